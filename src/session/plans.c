// session/plans.c -- a map and a list: O(1) get, put and eviction.
#include "session/plans.h"

#include <stdlib.h>
#include <string.h>

typedef struct lb_plans_entry entry;
struct lb_plans_entry {
  entry *prev, *next;
  lb_plan *plan;  // retained
  size_t bytes;   // plan and key
  size_t key_size;
  char key[];
};

lb_status lb_plans_init(lb_plans *p, size_t budget, lb_events *events) {
  *p = (lb_plans){.budget = budget, .events = events};
  return lb_lock_init(&p->lock);
}

static void unlink_entry(lb_plans *p, entry *e) {
  *(e->prev ? &e->prev->next : &p->first) = e->next;
  *(e->next ? &e->next->prev : &p->last) = e->prev;
}

static void push_front(lb_plans *p, entry *e) {
  e->prev = NULL;
  e->next = p->first;
  *(p->first ? &p->first->prev : &p->last) = e;
  p->first = e;
}

// Removes it from the cache; the caller owns it then.
static entry *take_out(lb_plans *p, entry *e) {
  unlink_entry(p, e);
  lb_map_remove(&p->map, e->key, e->key_size);
  p->bytes -= e->bytes;
  return e;
}

static void free_entry(entry *e) {
  lb_plan_release(e->plan);
  free(e);
}

void lb_plans_drop_version(lb_plans *p, uint64_t version) {
  entry *gone = NULL;
  lb_lock_take(&p->lock);
  for (entry *e = p->first, *next; e; e = next) {
    next = e->next;
    if (e->plan->program->version != version) continue;
    take_out(p, e)->next = gone;
    gone = e;
  }
  lb_lock_give(&p->lock);
  for (entry *next; gone; gone = next) {
    next = gone->next;
    free_entry(gone);
  }
}

void lb_plans_clear(lb_plans *p) {
  while (p->first) free_entry(take_out(p, p->first));
  p->built = p->evicted = p->serial = 0;
}

void lb_plans_fini(lb_plans *p) {
  lb_plans_clear(p);
  lb_map_fini(&p->map);
  lb_lock_fini(&p->lock);
}

lb_plan *lb_plans_get(lb_plans *p, const void *key, size_t size) {
  lb_lock_take(&p->lock);
  entry *e = lb_map_get(&p->map, key, size);
  lb_plan *plan = NULL;
  if (e) {
    unlink_entry(p, e);
    push_front(p, e);
    plan = lb_plan_retain(e->plan);
  }
  lb_lock_give(&p->lock);
  return plan;
}

static lb_status insert(lb_plans *p, const void *key, size_t size,
                        lb_plan *plan) {
  entry *e = malloc(sizeof *e + size);
  if (!e) return lb_oom();
  *e = (entry){.plan = plan, .key_size = size};
  e->bytes = lb_plan_bytes(plan) + sizeof *e + size;
  memcpy(e->key, key, size);
  lb_status st = lb_map_put(&p->map, e->key, size, e, NULL);
  if (lb_failed(st)) {
    free(e);
    return st;
  }
  lb_plan_retain(plan);
  plan->serial = ++p->serial;
  push_front(p, e);
  p->bytes += e->bytes;
  p->built++;
  for (; p->bytes > p->budget && p->last != e; p->evicted++) {
    lb_event_emit_since(p->events, PLAN_EVICTED, BUDGET, 0, p->last->bytes,
                        "%s", "");
    free_entry(take_out(p, p->last));
  }
  return LB_OK;
}

lb_status lb_plans_put(lb_plans *p, const void *key, size_t size,
                       lb_plan **plan) {
  lb_status st = LB_OK;
  lb_lock_take(&p->lock);
  entry *e = lb_map_get(&p->map, key, size);
  if (e) {
    lb_plan_release(*plan);
    *plan = lb_plan_retain(e->plan);
  } else {
    st = insert(p, key, size, *plan);
  }
  lb_lock_give(&p->lock);
  return st;
}

void lb_plans_each(lb_plans *p, void (*fn)(void *user, const lb_plan *plan),
                   void *user) {
  lb_lock_take(&p->lock);
  for (const entry *e = p->first; e; e = e->next) fn(user, e->plan);
  lb_lock_give(&p->lock);
}
