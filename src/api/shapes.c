// api/shapes.c -- records shapes, reads recorded files, and warms sessions for
// them.
#include "session/shapes.h"

#include <stdlib.h>

#include "api/error.h"
#include "api/session.h"
#include "base/clock.h"

limber_status limber_session_record_shapes(limber_session *session,
                                           const char *path) {
  const lb_log *log = &session->runtime->log;
  lb_status st = lb_session_record(session->session, path, log);
  if (!lb_failed(st) && path)
    lb_event_emit(session->runtime->events, SHAPES_RECORDED, REQUESTED, "%s",
                  path);
  return lb_report(st, log);
}

// -- files -------------------------------------------------------------------

struct limber_shapes {
  lb_shapes shapes;
  limber_signature *list;  // in the arena of `shapes`
};

static lb_status write_signature(lb_arena *a, const lb_recorded_signature *s,
                                 limber_signature *out) {
  limber_tensor *inputs =
      lb_arena_zalloc(a, (s->n_inputs + 1u) * sizeof *inputs, 16);
  if (!inputs) return lb_oom();
  for (uint32_t i = 0; i < s->n_inputs; i++) {
    const lb_tensor *t = &s->inputs[i];
    inputs[i].name = s->names[i];
    inputs[i].dtype = (limber_dtype)t->dtype;
    inputs[i].rank = t->rank;
    for (int k = 0; k < t->rank; k++) inputs[i].dims[k] = t->dims[k];
    inputs[i].data = t->data;
  }
  *out = (limber_signature){.inputs = inputs,
                            .n_inputs = s->n_inputs,
                            .outputs = s->outputs,
                            .n_outputs = s->n_outputs,
                            .count = s->count};
  return LB_OK;
}

static int more_frequent(const void *a, const void *b) {
  const limber_signature *x = a, *y = b;
  return (x->count < y->count) - (x->count > y->count);
}

static lb_status shapes_open(limber_shapes *s, const char *path) {
  lb_shapes *from = &s->shapes;
  LB_TRY(lb_shapes_read(path, from));
  s->list = lb_arena_new(&from->arena, limber_signature, from->n + 1);
  if (!s->list) return lb_oom();
  for (size_t i = 0; i < from->n; i++)
    LB_TRY(write_signature(&from->arena, &from->list[i], &s->list[i]));
  qsort(s->list, from->n, sizeof *s->list, more_frequent);
  return LB_OK;
}

limber_status limber_shapes_open(const char *path, limber_shapes **out) {
  limber_shapes *s = *out = calloc(1, sizeof *s);
  lb_status st = s ? shapes_open(s, path) : lb_oom();
  if (lb_failed(st)) {
    limber_shapes_close(s);
    *out = NULL;
  }
  return lb_report(st, NULL);
}

size_t limber_shapes_list(const limber_shapes *shapes,
                          const limber_signature **out) {
  *out = shapes->list;
  return shapes->shapes.n;
}

void limber_shapes_close(limber_shapes *shapes) {
  if (!shapes) return;
  lb_shapes_fini(&shapes->shapes);
  free(shapes);
}

// -- warming -----------------------------------------------------------------

limber_status limber_session_plan_signature(limber_session *session,
                                            const limber_signature *signature,
                                            limber_plan_info *out) {
  return lb_report(lb_api_plan(session, signature, out),
                   &session->runtime->log);
}

// Plans the least frequent signatures first: plans over the budget are evicted
// in the order in which they were built, and the list starts with the most
// frequent signature. *out is the error of the first signature that cannot be
// planned.
static lb_status plan_all(limber_session *s, const limber_signature *list,
                          size_t n, int64_t end_ns, lb_status *out) {
  *out = LB_OK;
  for (size_t i = n; i--;) {
    if (lb_clock_ns() >= end_ns)
      return lb_error(LB_CANCELLED,
                      "%zu of %zu shapes were planned within the time limit; "
                      "allow more seconds",
                      n - i - 1, n);
    lb_status st = lb_api_plan(s, &list[i], NULL);
    if (lb_failed(st) && lb_status_code(st) == LB_OOM) return st;
    if (!lb_failed(st)) continue;
    lb_status_drop(*out);
    *out = st;
  }
  return LB_OK;
}

static limber_status warm(limber_session *s, const limber_signature *list,
                          size_t n, double seconds) {
  const lb_log *log = &s->runtime->log;
  int64_t start = lb_clock_ns();
  double most = seconds < 1e9 ? seconds : 1e9;
  lb_status bad;
  lb_status st = plan_all(s, list, n, start + (int64_t)(most * 1e9), &bad);
  if (lb_failed(st)) {
    lb_status_drop(bad);
    return lb_report(st, log);
  }
  double left = most - (double)(lb_clock_ns() - start) * 1e-9;
  limber_status settled = limber_session_settle(s, left > 0 ? left : 0);
  if (!settled) return lb_report(bad, log);
  lb_status_drop(bad);
  return settled;
}

limber_status limber_session_warm(limber_session *session,
                                  const limber_signature *signatures, size_t n,
                                  double seconds) {
  return warm(session, signatures, n, seconds);
}

limber_status limber_session_warm_file(limber_session *session,
                                       const char *path, double seconds) {
  limber_shapes *shapes;
  limber_status st = limber_shapes_open(path, &shapes);
  if (st) return st;
  st = warm(session, shapes->list, shapes->shapes.n, seconds);
  limber_shapes_close(shapes);
  return st;
}
