// api/declared.c -- what a model says of its outputs, against what they are.
// Files are often wrong there, and the run is right all the same.
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

// True if runs have to be looked at.
static bool compare_inferred(const limber_session *s, uint32_t i) {
  const lb_declared *said = &s->model.outputs[i];
  const lb_vinfo *info = &s->model.graph->main->results[i]->info;
  bool open = false;
  if (said->dtype && info->dtype && said->dtype != info->dtype)
    lb_log_line(&s->runtime->log, LB_LOG_WARN,
                "output '%s': declared as %s, but is %s",
                s->outputs.infos[i].name, lb_dtype_name(said->dtype),
                lb_dtype_name(info->dtype));
  if (said->rank < 0 || info->rank < 0) return said->rank >= 0;
  if (said->rank != info->rank) {
    warn_rank(s, i, info->rank);
    return false;
  }
  for (int k = 0; k < said->rank; k++) {
    if (said->dims[k] < 0) continue;
    if (!lb_dim_is_const(info->dims[k])) {
      open = true;
    } else if (info->dims[k].k != said->dims[k]) {
      warn(s, i, k, info->dims[k].k);
    }
  }
  return open;
}

lb_status lb_declared_before(limber_session *s) {
  s->doubtful = lb_arena_new(&s->arena, atomic_bool, s->outputs.n);
  if (!s->doubtful) return lb_oom();
  for (uint32_t i = 0; i < s->outputs.n; i++)
    atomic_init(&s->doubtful[i], s->model.outputs && compare_inferred(s, i));
  return LB_OK;
}

static bool compare_result(const limber_session *s, uint32_t i,
                           const lb_tensor *t) {
  const lb_declared *said = &s->model.outputs[i];
  if (said->rank != t->rank) {
    warn_rank(s, i, t->rank);
    return false;
  }
  for (int k = 0; k < t->rank; k++) {
    if (said->dims[k] < 0 || said->dims[k] == t->dims[k]) continue;
    warn(s, i, k, t->dims[k]);
    return false;
  }
  return true;
}

void lb_declared_after(limber_session *s, const lb_output *outputs) {
  for (uint32_t i = 0; i < s->outputs.n; i++) {
    if (!outputs[i].wanted) continue;
    if (!atomic_load_explicit(&s->doubtful[i], memory_order_relaxed)) continue;
    if (!compare_result(s, i, &outputs[i].tensor))
      atomic_store_explicit(&s->doubtful[i], false, memory_order_relaxed);
  }
}
