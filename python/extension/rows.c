// python/extension/rows.c -- steps, nodes and statistics as dicts.
#include "extension.h"

static void append(PyObject *list, PyObject *row) {
  if (row) PyList_Append(list, row);
  Py_XDECREF(row);
}

void lb_step_row(void *list, const limber_step *t) {
  if (PyErr_Occurred()) return;
  append(
      list,
      Py_BuildValue(
          "{s:N,s:s,s:s,s:s,s:s,s:L,s:L,s:L,s:L,s:L,s:K,s:K,s:L,s:L,s:s,s:s,"
          "s:N,s:N,s:z,s:N,s:N}",
          "name", lb_text(t->name), "op", t->op, "kind", t->kind, "tier",
          t->tier, "kernel", t->kernel, "rows", (long long)t->rows, "cols",
          (long long)t->cols, "k", (long long)t->k, "len", (long long)t->len,
          "outer", (long long)t->outer, "bytes", (unsigned long long)t->bytes,
          "flops", (unsigned long long)t->flops, "start_ns",
          (long long)t->start_ns, "end_ns", (long long)t->end_ns, "reason",
          t->reason, "reason_text", t->reason_text, "skipped",
          PyBool_FromLong(t->skipped), "proof", lb_text(t->proof), "pass",
          t->pass, "optimized", PyBool_FromLong(t->optimized),
          "runtime_skippable", PyBool_FromLong(t->runtime_skippable)));
}

static PyObject *step_of(const limber_node *n) {
  if (n->step < 0) Py_RETURN_NONE;
  return PyLong_FromLongLong(n->step);
}

void lb_node_row(void *list, const limber_node *n) {
  if (PyErr_Occurred()) return;
  append(list, Py_BuildValue("{s:N,s:s,s:N,s:N,s:N,s:N,s:s,s:s,s:s,s:N,s:z}",
                             "name", lb_text(n->name), "op", n->op, "optimized",
                             PyBool_FromLong(n->optimized), "runtime_skippable",
                             PyBool_FromLong(n->runtime_skippable), "skipped",
                             PyBool_FromLong(n->skipped), "proof",
                             lb_text(n->proof), "disposition", n->disposition,
                             "reason", n->reason, "reason_text", n->reason_text,
                             "step", step_of(n), "pass", n->pass));
}

PyObject *lb_stats_row(const limber_stats *t) {
  return Py_BuildValue(
      "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:s,s:K,s:K,s:K,s:K,s:K,s:K,"
      "s:K,s:K,s:K,s:K}",
      "runs", (unsigned long long)t->runs, "plans_built",
      (unsigned long long)t->plans_built, "plans_evicted",
      (unsigned long long)t->plans_evicted, "plans",
      (unsigned long long)t->plans, "plan_bytes",
      (unsigned long long)t->plan_bytes, "arena_bytes",
      (unsigned long long)t->arena_bytes, "kernels_requested",
      (unsigned long long)t->kernels_requested, "kernels",
      (unsigned long long)t->kernels, "packed_bytes",
      (unsigned long long)t->packed_bytes, "prefer_reusable_kernels",
      PyBool_FromLong(t->prefer_reusable_kernels), "prefer_reusable_from",
      t->prefer_reusable_from, "kernels_specialised",
      (unsigned long long)t->kernels_specialised, "kernels_failed",
      (unsigned long long)t->kernels_failed, "kernels_pending",
      (unsigned long long)t->kernels_pending, "kernels_queued",
      (unsigned long long)t->kernels_queued, "worker_failures",
      (unsigned long long)t->worker_failures, "compile_us_on_callers",
      (unsigned long long)t->compile_us_on_callers, "kernels_on_trial",
      (unsigned long long)t->kernels_on_trial, "kernels_kept",
      (unsigned long long)t->kernels_kept, "kernels_demoted",
      (unsigned long long)t->kernels_demoted, "ragged_runs",
      (unsigned long long)t->ragged_runs);
}
