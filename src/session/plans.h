// session/plans.h -- an LRU cache of plans by signature, under a byte budget.
// Thread-safe; a plan in use stays alive after its eviction.
#ifndef LB_SESSION_PLANS_H
#define LB_SESSION_PLANS_H

#include <stdatomic.h>

#include "base/events.h"
#include "base/lock.h"
#include "base/map.h"
#include "plan/plan.h"

typedef struct lb_plans {
  lb_lock lock;
  lb_map map;                           // signature -> struct entry
  struct lb_plans_entry *first, *last;  // most recent first
  atomic_size_t bytes;                  // written with the lock held
  size_t budget;
  uint64_t built, evicted, serial;
  lb_events *events;  // borrowed; may be NULL
} lb_plans;

lb_status lb_plans_init(lb_plans *p, size_t budget, lb_events *events);
void lb_plans_fini(lb_plans *p);

// A retained plan, or NULL.
lb_plan *lb_plans_get(lb_plans *p, const void *key, size_t size);
// Adds a plan (retained by the cache) and gives it its serial. If another
// thread was faster, *plan is released and replaced by the one in the cache.
lb_status lb_plans_put(lb_plans *p, const void *key, size_t size,
                       lb_plan **plan);
// Removes the plans of a program version that is no longer used. They are
// released without the lock, and are not counted as evicted.
void lb_plans_drop_version(lb_plans *p, uint64_t version);
// Removes all plans and resets the counters. No other thread may use the cache.
void lb_plans_clear(lb_plans *p);
// Calls `fn` on each plan, with the lock held.
void lb_plans_each(lb_plans *p, void (*fn)(void *user, const lb_plan *plan),
                   void *user);

#endif
