// api/declared.c -- compares the output types that a model declares with the
// actual ones. Model files often declare wrong types; a difference causes a
// warning, and the actual type is used.
#include <inttypes.h>

#include "api/session.h"

static void warn(const limber_session *s, uint32_t i, int axis, int64_t is) {
  lb_log_line(&s->runtime->log, LB_LOG_WARN,
              "output '%s': dim %d is declared as %" PRId64 ", but is %" PRId64,
              s->outputs.infos[i].name, axis, s->model.outputs[i].dims[axis],
              is);
}

static void warn_rank(const limber_session *s, uint32_t i, int is) {
  lb_log_line(&s->runtime->log, LB_LOG_WARN,
              "output '%s': declared with %d dims, but has %d",
              s->outputs.infos[i].name, s->model.outputs[i].rank, is);
}

// Returns true if the results of runs must be compared too, because the
// inferred type leaves a declared dim open.
static bool compare_inferred(const limber_session *s, uint32_t i) {
  const lb_declared *declared = &s->model.outputs[i];
  const lb_vinfo *info = &s->model.graph->main->results[i]->info;
  bool open = false;
  if (declared->dtype && info->dtype && declared->dtype != info->dtype)
    lb_log_line(&s->runtime->log, LB_LOG_WARN,
                "output '%s': declared as %s, but is %s",
                s->outputs.infos[i].name, lb_dtype_name(declared->dtype),
                lb_dtype_name(info->dtype));
  if (declared->rank < 0 || info->rank < 0) return declared->rank >= 0;
  if (declared->rank != info->rank) {
    warn_rank(s, i, info->rank);
    return false;
  }
  for (int k = 0; k < declared->rank; k++) {
    if (declared->dims[k] < 0) continue;
    if (!lb_dim_is_const(info->dims[k])) {
      open = true;
    } else if (info->dims[k].k != declared->dims[k]) {
      warn(s, i, k, info->dims[k].k);
    }
  }
  return open;
}

lb_status lb_declared_check_model(limber_session *s) {
  s->check_declared = lb_arena_new(&s->arena, atomic_bool, s->outputs.n);
  if (!s->check_declared) return lb_oom();
  for (uint32_t i = 0; i < s->outputs.n; i++)
    atomic_init(&s->check_declared[i],
                s->model.outputs && compare_inferred(s, i));
  return LB_OK;
}

static bool compare_result(const limber_session *s, uint32_t i,
                           const lb_tensor *t) {
  const lb_declared *declared = &s->model.outputs[i];
  if (declared->rank != t->rank) {
    warn_rank(s, i, t->rank);
    return false;
  }
  for (int k = 0; k < t->rank; k++) {
    if (declared->dims[k] < 0 || declared->dims[k] == t->dims[k]) continue;
    warn(s, i, k, t->dims[k]);
    return false;
  }
  return true;
}

void lb_declared_check_run(limber_session *s, const lb_output *outputs) {
  for (uint32_t i = 0; i < s->outputs.n; i++) {
    if (!outputs[i].wanted) continue;
    if (!atomic_load_explicit(&s->check_declared[i], memory_order_relaxed))
      continue;
    if (!compare_result(s, i, &outputs[i].tensor))
      atomic_store_explicit(&s->check_declared[i], false, memory_order_relaxed);
  }
}
