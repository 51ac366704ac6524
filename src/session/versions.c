// session/versions.c -- versions of the program, and their memory.
#include "session/versions.h"

#include <stdlib.h>

#include "session/run.h"

lb_status lb_versions_init(lb_versions *v, lb_device *device) {
  *v = (lb_versions){.built = 0};
  LB_TRY(lb_lock_init(&v->lock));
  lb_status st = lb_weights_init(&v->weights, device);
  if (lb_failed(st)) lb_lock_fini(&v->lock);
  return st;
}

void lb_versions_fini(lb_versions *v) {
  for (lb_version *one = v->unused, *next; one; one = next) {
    next = one->next;
    free(one);
  }
  lb_weights_fini(&v->weights);
  lb_lock_fini(&v->lock);
}

// A version that has no users yet, or NULL.
static lb_version *new_version(lb_versions *v, uint64_t *number) {
  lb_lock_take(&v->lock);
  lb_version *one = v->unused;
  if (one) v->unused = one->next;
  *number = ++v->built;
  lb_lock_give(&v->lock);
  return one ? one : calloc(1, sizeof *one);
}

static void put_back(lb_versions *v, lb_version *one) {
  lb_lock_take(&v->lock);
  one->next = v->unused;
  v->unused = one;
  lb_lock_give(&v->lock);
}

// The session as a user of slots, and what is compiled ahead for it.
static lb_slot_user user_of(const lb_session_options *o) {
  lb_ahead ahead = o->quiet      ? LB_AHEAD_NONE
                   : o->critical ? LB_AHEAD_CRITICAL
                                 : LB_AHEAD_ALL;
  return (lb_slot_user){.bit = o->user, .ahead = ahead};
}

lb_status lb_session_build(lb_session *s, const lb_partition_options *o,
                           lb_version **out) {
  return lb_version_build(s, s->graph, o, out);
}

lb_status lb_version_build(lb_session *s, const lb_graph *g,
                           const lb_partition_options *o, lb_version **out) {
  const lb_session_options *so = &s->options;
  lb_program_options how = {.graph = g,
                            .limit = so->memory_limit,
                            .slots = so->slots,
                            .weights = &s->versions.weights,
                            .partition = *o,
                            .deterministic = so->deterministic,
                            .reusable = so->reusable,
                            .checks = so->checks,
                            .no_skip = so->no_skip,
                            .user = user_of(so),
                            .usage = &s->versions.usage};
  *out = NULL;
  lb_version *v = new_version(&s->versions, &how.version);
  if (!v) return lb_oom();
  lb_status st = lb_program_new(&how, &v->program);
  if (lb_failed(st)) {
    put_back(&s->versions, v);
    return st;
  }
  atomic_store_explicit(&v->users, 1, memory_order_release);
  *out = v;
  return LB_OK;
}

void lb_session_release_version(lb_session *s, lb_version *v) {
  if (!v || atomic_fetch_sub_explicit(&v->users, 1, memory_order_acq_rel) != 1)
    return;
  lb_plans_drop_version(&s->plans, v->program->version);
  lb_program_release(v->program);
  put_back(&s->versions, v);
}

uint64_t lb_version_number(const lb_version *v) { return v->program->version; }

// Adds a user unless there are none.
static bool add_user(lb_version *v) {
  size_t n = atomic_load_explicit(&v->users, memory_order_relaxed);
  while (n &&
         !atomic_compare_exchange_weak_explicit(
             &v->users, &n, n + 1, memory_order_acquire, memory_order_relaxed))
    continue;
  return n != 0;
}

lb_version *lb_version_take_from(lb_session *s, lb_version_place *from) {
  for (;;) {
    lb_version *v = atomic_load(from);
    if (!v) return NULL;
    if (!add_user(v)) continue;  // it is no longer published
    if (atomic_load(from) == v) return v;
    lb_session_release_version(s, v);
  }
}

lb_version *lb_version_take(lb_session *s) {
  return lb_version_take_from(s, &s->versions.current);
}
