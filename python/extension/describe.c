// python/extension/describe.c -- a session's inputs, outputs, metadata and
// statistics as Python objects.
#include "session.h"

static PyObject *dims_of(const limber_value_info *info) {
  if (info->rank < 0) Py_RETURN_NONE;
  PyObject *dims = PyList_New(info->rank);
  for (int i = 0; dims && i < info->rank; i++) {
    PyObject *dim = lb_text(info->dims[i]);
    if (!dim || PyList_SetItem(dims, i, dim)) Py_CLEAR(dims);
  }
  return dims;
}

// [(name, dtype, dims or None)]
static PyObject *values_of(const limber_value_info *infos, size_t n) {
  PyObject *list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; i++) {
    PyObject *name = lb_text(infos[i].name), *dims = dims_of(&infos[i]);
    PyObject *row = NULL;
    if (name && dims)
      row = Py_BuildValue("OsO", name, limber_dtype_name(infos[i].dtype), dims);
    Py_XDECREF(name);
    Py_XDECREF(dims);
    if (!row || PyList_SetItem(list, (Py_ssize_t)i, row)) Py_CLEAR(list);
  }
  return list;
}

PyObject *lb_py_input_rows(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = lb_py_opened(self);
  return s ? values_of(s->inputs, s->n_inputs) : NULL;
}

PyObject *lb_py_output_rows(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = lb_py_opened(self);
  return s ? values_of(s->outputs, s->n_outputs) : NULL;
}

static PyObject *properties_of(const limber_model_info *m) {
  PyObject *all = PyDict_New();
  for (size_t i = 0; all && i < m->n_properties; i++) {
    PyObject *key = lb_text(m->properties[i].key);
    PyObject *value = lb_text(m->properties[i].value);
    bool good = key && value && !PyDict_SetItem(all, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    if (!good) Py_CLEAR(all);
  }
  return all;
}

PyObject *lb_py_model_info(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = lb_py_opened(self);
  limber_model_info m = {.size = sizeof m};
  if (!s) return NULL;
  limber_status st = limber_session_model(s->limber, &m);
  if (!lb_py_check(s, st)) return NULL;
  return Py_BuildValue(
      "{s:L,s:L,s:L,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:n}", "ir_version",
      (long long)m.ir_version, "opset", (long long)m.opset, "version",
      (long long)m.model_version, "producer_name", lb_text(m.producer_name),
      "producer_version", lb_text(m.producer_version), "domain",
      lb_text(m.domain), "description", lb_text(m.description), "graph_name",
      lb_text(m.graph_name), "custom_metadata_map", properties_of(&m),
      "weight_bytes", (unsigned long long)m.weight_bytes, "nodes",
      (Py_ssize_t)m.nodes);
}

PyObject *lb_py_counters(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = lb_py_opened(self);
  limber_stats t = {.size = sizeof t};
  if (!s) return NULL;
  limber_status st = limber_session_stats(s->limber, &t);
  if (!lb_py_check(s, st)) return NULL;
  return lb_stats_row(&t);
}

PyObject *lb_py_dump(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = lb_py_opened(self);
  char *dump;
  if (!s) return NULL;
  limber_status st = limber_session_dump(s->limber, &dump);
  if (!lb_py_check(s, st)) return NULL;
  PyObject *text = lb_text(dump);
  limber_string_free(dump);
  return text;
}
