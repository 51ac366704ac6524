// compile/throttle.c -- feeds clocks, runs and cgroup limits into pace.c.
#include "compile/throttle.h"

#include <time.h>

#include "base/cpu.h"

#define MS INT64_C(1000000)         // ns
#define READ_QUOTA (500 * MS)       // between reads of cgroups with a quota
#define READ_NO_QUOTA (10000 * MS)  // between reads of cgroups without one
#define EVENT_PERIOD (1000 * MS)    // minimum time between events

void lb_throttle_init(lb_throttle *t, const lb_throttle_options *o) {
  *t = (lb_throttle){.options = *o, .cpu = -1};
  lb_pace_init(&t->pace, lb_cpu_allowed(), lb_hub_count(o->hub).threads);
}

void lb_throttle_begin(lb_throttle *t) {
  t->thread_ns = 0;
  t->cpu = -1;
}

void lb_throttle_add_waiter(lb_throttle *t, int by) {
  atomic_fetch_add(&t->waiters, by);
}

void lb_throttle_spend(lb_throttle *t, int64_t ns) { t->spent += ns; }

int64_t lb_throttle_spent(lb_throttle *t) {
  struct timespec cpu_time;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_time)) return t->spent;
  int64_t thread_ns = cpu_time.tv_sec * 1000 * MS + cpu_time.tv_nsec;
  t->spent += thread_ns - t->thread_ns;
  t->thread_ns = thread_ns;
  return t->spent;
}

static void read_cgroups(lb_throttle *t, int64_t now) {
  int64_t period = t->has_quota ? READ_QUOTA : READ_NO_QUOTA;
  if (t->read_at && now - t->read_at < period) return;
  lb_cpu_limits limits = lb_cpu_read_limits(NULL);
  if (t->cpu < 0) {
    t->allowed = lb_cpu_allowed();
    t->all = lb_cpu_allowed_mask(0);
  }
  t->read_at = now;
  t->has_quota = limits.quota > 0;
  bool quota_limited = t->has_quota && limits.quota < t->allowed;
  lb_pace_set_quota(&t->pace, now, quota_limited ? limits.quota : t->allowed,
                    quota_limited, limits.throttled);
}

void lb_throttle_place(lb_throttle *t, pid_t worker) {
  lb_pool_runs runs = lb_hub_count(t->options.hub).runs;
  int cpu = lb_pace_displaces(&t->pace, &runs) ? runs.cpu : -1;
  bool same = cpu == t->cpu && (cpu < 0 || worker == t->placed_pid);
  t->cpu = cpu;
  t->placed_pid = worker;
  if (same) return;
  lb_cpu_place(0, &t->all, cpu);
  lb_cpu_place(worker, &t->all, cpu);
}

// Emits one event per change of state, not one per slice.
static void emit_change(lb_throttle *t, int64_t now) {
  lb_pace_state state = t->pace.state;
  lb_hub *hub = t->options.hub;
  bool held = state >= LB_PACE_CONTENDED;
  if (!lb_hub_listens(hub) || held == t->event_throttled ||
      now - t->event_at < EVENT_PERIOD)
    return;
  t->event_throttled = held;
  t->event_at = now;
  int permille = (int)(1000 * t->pace.share);
  if (state == LB_PACE_CONTENDED)
    lb_hub_emit(hub, WORKER_THROTTLED, CONTENDED, permille, "%s", "");
  else if (state == LB_PACE_THROTTLED)
    lb_hub_emit(hub, WORKER_THROTTLED, THROTTLED, permille, "%s", "");
  else if (state == LB_PACE_AWAITED)
    lb_hub_emit(hub, WORKER_RESUMED, REQUESTED, 0, "%s", "");
  else
    lb_hub_emit(hub, WORKER_RESUMED, QUIET, 0, "%s", "");
}

int64_t lb_throttle_grant(lb_throttle *t, int64_t *ns) {
  const lb_throttle_options *o = &t->options;
  *ns = INT64_MAX;
  if (o->off) return LB_PACE_UNLIMITED;
  int64_t now = lb_clock_ns();
  read_cgroups(t, now);
  lb_hub_runs all = lb_hub_count(o->hub);
  t->pace.threads = all.threads;
  lb_pace_input in = {.now = now,
                      .runs = all.runs,
                      .awaited = atomic_load(&t->waiters) > 0,
                      .payback = o->payback ? o->payback(o->user) : 0,
                      .spent = lb_throttle_spent(t) - t->reported};
  t->reported += in.spent;
  int64_t granted = lb_pace_update(&t->pace, &in, ns);
  emit_change(t, now);
  return granted;
}
