// compile/throttle.c -- from clocks and counts to what may be spent.
#include "compile/throttle.h"

#include <time.h>

#include "base/cpu.h"

#define MS INT64_C(1000000)     // ns
#define READ_QUOTA (500 * MS)   // between looks at cgroups that have a quota
#define READ_NONE (10000 * MS)  // at those that had none
#define TELL (1000 * MS)        // between events, at least

void lb_throttle_init(lb_throttle *b, const lb_throttle_options *o) {
  *b = (lb_throttle){.options = *o, .cpu = -1};
  lb_pace_init(&b->pace, lb_cpu_allowed(), lb_hub_count(o->hub).threads);
}

void lb_throttle_begin(lb_throttle *b) {
  b->own = 0;
  b->cpu = -1;
}

void lb_throttle_hurry(lb_throttle *b, int by) {
  atomic_fetch_add(&b->hurried, by);
}

void lb_throttle_spend(lb_throttle *b, int64_t ns) { b->spent += ns; }

int64_t lb_throttle_spent(lb_throttle *b) {
  struct timespec t;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return b->spent;
  int64_t own = t.tv_sec * 1000 * MS + t.tv_nsec;
  b->spent += own - b->own;
  b->own = own;
  return b->spent;
}

static void read_cgroups(lb_throttle *b, int64_t now) {
  int64_t every = b->has_quota ? READ_QUOTA : READ_NONE;
  if (b->read_at && now - b->read_at < every) return;
  lb_cpu_limits limits = lb_cpu_read_limits(NULL);
  if (b->cpu < 0) {
    b->allowed = lb_cpu_allowed();
    b->all = lb_cpu_allowed_mask(0);
  }
  b->read_at = now;
  b->has_quota = limits.quota > 0;
  bool scarce = b->has_quota && limits.quota < b->allowed;
  lb_pace_hear(&b->pace, now, scarce ? limits.quota : b->allowed, scarce,
               limits.throttled);
}

void lb_throttle_place(lb_throttle *b, pid_t worker) {
  lb_pool_runs runs = lb_hub_count(b->options.hub).runs;
  int cpu = lb_pace_displaces(&b->pace, &runs) ? runs.cpu : -1;
  bool same = cpu == b->cpu && (cpu < 0 || worker == b->placed);
  b->cpu = cpu;
  b->placed = worker;
  if (same) return;
  lb_cpu_place(0, &b->all, cpu);
  lb_cpu_place(worker, &b->all, cpu);
}

// One event when the state has changed, not for each slice.
static void tell(lb_throttle *b, int64_t now) {
  lb_pace_state state = b->pace.state;
  lb_hub *hub = b->options.hub;
  bool held = state >= LB_PACE_CONTENDED;
  if (!lb_hub_listens(hub) || held == b->told_held || now - b->told_at < TELL)
    return;
  b->told_held = held;
  b->told_at = now;
  int permille = (int)(1000 * b->pace.share);
  if (state == LB_PACE_CONTENDED)
    lb_hub_emit(hub, WORKER_THROTTLED, CONTENDED, permille, "%s", "");
  else if (state == LB_PACE_THROTTLED)
    lb_hub_emit(hub, WORKER_THROTTLED, THROTTLED, permille, "%s", "");
  else if (state == LB_PACE_WANTED)
    lb_hub_emit(hub, WORKER_RESUMED, REQUESTED, 0, "%s", "");
  else
    lb_hub_emit(hub, WORKER_RESUMED, QUIET, 0, "%s", "");
}

int64_t lb_throttle_lets_go(lb_throttle *b, int64_t *ns) {
  const lb_throttle_options *o = &b->options;
  *ns = INT64_MAX;
  if (o->off) return LB_PACE_FREELY;
  int64_t now = lb_clock_ns();
  read_cgroups(b, now);
  lb_hub_runs all = lb_hub_count(o->hub);
  b->pace.threads = all.threads;
  lb_pace_look seen = {.now = now,
                       .runs = all.runs,
                       .wanted = atomic_load(&b->hurried) > 0,
                       .returns = o->returns ? o->returns(o->user) : 0,
                       .spent = lb_throttle_spent(b) - b->told};
  b->told += seen.spent;
  int64_t go = lb_pace_look_at(&b->pace, &seen, ns);
  tell(b, now);
  return go;
}
