// api/shared.c -- the state that all runtimes of a process share.
#include "api/shared.h"

#include <pthread.h>

#include "api/cache.h"
#include "api/primitive.h"

// The hub needs no initialisation, so a runtime may join before the other parts
// exist; `created` says whether they do.
static lb_shared process;
static atomic_bool created;

static lb_status create(lb_shared *s) {
  s->log = lb_hub_log(&s->hub);
  LB_TRY(lb_lru_init(&s->lru, lb_cache_first_capacity(&s->log)));
  lb_status st = lb_primitives_init(&s->primitives, &s->lru);
  if (lb_failed(st)) {
    lb_lru_fini(&s->lru);
    return st;
  }
  lb_kernels_open(&s->kernels, &s->lru, &s->hub, &s->log);
  st = lb_found_init(&s->found, &s->kernels);
  if (lb_failed(st)) {
    lb_found_fini(&s->found);
    lb_kernels_close(&s->kernels);
    lb_cache_fini(&s->primitives);
    lb_lru_fini(&s->lru);
  }
  return st;
}

lb_status lb_shared_get(lb_shared **out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  *out = &process;
  if (atomic_load_explicit(&created, memory_order_acquire)) return LB_OK;
  lb_status st = LB_OK;
  pthread_mutex_lock(&lock);
  if (!atomic_load_explicit(&created, memory_order_relaxed)) {
    st = create(&process);
    atomic_store_explicit(&created, !lb_failed(st), memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return st;
}

// Joins before it creates the object, so that warnings about the environment
// reach the log of the runtime that caused it to be read.
lb_status lb_shared_join(const lb_member *who, lb_shared **shared,
                         lb_seat **seat) {
  LB_TRY(lb_hub_join(&process.hub, who, seat));
  lb_status st = lb_shared_get(shared);
  if (lb_failed(st)) lb_hub_leave(&process.hub, *seat);
  return st;
}

void lb_shared_leave(lb_shared *s, lb_seat *seat) {
  const lb_kernels *k = &s->kernels;
  lb_hub_close(&s->hub, seat);
  if (k->slots && !lb_seat_is_shared(seat))
    lb_slots_forget(k->slots, lb_seat_bit(seat));
  lb_hub_leave(&s->hub, seat);
  if (k->service && lb_hub_is_empty(&s->hub)) lb_service_try_stop(k->service);
  if (k->store) lb_status_drop(lb_store_flush(k->store));
}
