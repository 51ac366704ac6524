// compile/pace.c -- how much CPU time compiling may take from requests.
#include "compile/pace.h"

#include <math.h>

#define THROTTLED_FACTOR 0.5  // on the share, after throttling by a quota
#define RECOVERY_STEP (THROTTLED_FACTOR / 4)  // per unthrottled check
#define SHORT_REQUEST 5e6                     // ns; shorter requests are short
// Of short requests that overlap with a slice, if nothing pays.
#define MAX_HIT_RATE 0.002
#define SLICE INT64_C(4000000)     // ns: one tick
#define MIN_SLICE INT64_C(600000)  // ns, beside requests that are not short
#define SLICES_PER_REQUEST 8       // for requests that are not short
#define LARGE_SHARE 0.05           // larger shares come in long slices
#define WINDOW 16.0                // updates: time constant of decaying sums
#define TOLERATED_THROTTLING 0.01  // fraction of the time
#define POLL_UNLIMITED INT64_C(2000000)  // ns between updates while unlimited
#define GRANT_PERIOD INT64_C(40000000)   // ns, while running in slices
#define DISPLACING_PERIOD INT64_C(25000000)  // ns, in the place of requests
#define MAX_WAIT INT64_C(100000000)          // ns, while nothing is granted
#define MAX_OVERDRAFT INT64_C(100000000)  // ns; a larger overdraft is forgiven

void lb_pace_init(lb_pace *p, double processors, int threads) {
  *p = (lb_pace){.processors = processors,
                 .threads = threads,
                 .share = LB_PACE_MIN_SHARE,
                 .quota_factor = 1,
                 .slice = SLICE,
                 .last_run = INT64_MIN / 2};
}

// A run keeps all threads of its pool busy. If there are more runs than
// threads, each has one thread.
static int busy_threads(const lb_pace *p, int inside) {
  return inside > p->threads ? inside : p->threads;
}

static bool leaves_none_free(const lb_pace *p, int inside) {
  return busy_threads(p, inside) + 1 > p->processors;
}

bool lb_pace_displaces(const lb_pace *p, const lb_pool_runs *runs) {
  return p->quota_limited && p->state >= LB_PACE_CONTENDED &&
         busy_threads(p, runs->inside) >= p->processors;
}

bool lb_pace_is_contended(const lb_pace *p) {
  return p->state >= LB_PACE_CONTENDED;
}

bool lb_pace_pays_soon(const lb_pace *p) {
  return lb_pace_is_contended(p) && p->share > LARGE_SHARE;
}

static lb_pace_state state_of(const lb_pace *p, const lb_pace_input *in) {
  if (in->awaited) return LB_PACE_AWAITED;
  if (in->now - p->last_run > LB_PACE_QUIET_NS) return LB_PACE_FREE;
  if (!leaves_none_free(p, in->runs.inside)) return LB_PACE_FREE;
  return p->quota_factor < 1 ? LB_PACE_THROTTLED : LB_PACE_CONTENDED;
}

// Limits slices to one per 1 / MAX_HIT_RATE short requests; long ones lose
// little by a slice.
static double min_share_beside(double request) {
  if (request <= 0 || request >= SHORT_REQUEST) return LB_PACE_MIN_SHARE;
  double hit_share = MAX_HIT_RATE * (double)SLICE / request;
  return hit_share < LB_PACE_MIN_SHARE ? hit_share : LB_PACE_MIN_SHARE;
}

// Doubling the share doubles the slowdown of each request for half the time;
// waiting costs the payback. The total cost is least at a share proportional to
// the square root of the payback.
static double share_of(const lb_pace *p, double payback) {
  double share = LB_PACE_MAX_SHARE * sqrt(LB_PACE_SOON_S * payback);
  bool pays = LB_PACE_NEVER_S * payback >= 1;
  double min_share = pays ? LB_PACE_PAYING_SHARE : min_share_beside(p->request);
  if (share > LB_PACE_MAX_SHARE) share = LB_PACE_MAX_SHARE;
  return p->quota_factor * (share > min_share ? share : min_share);
}

static double fill_rate(const lb_pace *p, int inside) {
  double runs = inside > 1 ? inside : 1;
  return p->share * (runs < p->processors ? runs : p->processors);
}

static void fill(lb_pace *p, const lb_pace_input *in, double per_ns) {
  int64_t passed = p->now ? in->now - p->now : 0;
  if (passed > 0) p->balance += (int64_t)(per_ns * (double)passed);
  p->balance -= in->spent;
  if (p->balance > p->slice + p->slice / 2)
    p->balance = p->slice + p->slice / 2;
  if (p->balance < -MAX_OVERDRAFT) p->balance = -MAX_OVERDRAFT;
}

static int64_t slice_beside(double request, double share) {
  double ns = request / SLICES_PER_REQUEST;
  if (request < SHORT_REQUEST || share > LARGE_SHARE || ns > (double)SLICE)
    return SLICE;
  return ns > (double)MIN_SLICE ? (int64_t)ns : MIN_SLICE;
}

// The mean duration of requests: time spent in runs, divided by runs started.
static void measure_requests(lb_pace *p, const lb_pace_input *in) {
  uint64_t started = in->runs.entered - p->entered;
  int64_t passed = in->now - p->now;
  if (passed > 2 * MAX_WAIT) return;  // there was no update for too long
  p->busy += (double)passed * in->runs.inside - p->busy / WINDOW;
  p->started += (double)started - p->started / WINDOW;
  if (p->started >= 1) p->request = p->busy / p->started;
}

// As many slices as one update may grant. Requests that are displaced move to
// other processors now and then, and slices run beside them until the next
// update.
static int64_t slices_for(const lb_pace *p, const lb_pool_runs *runs,
                          double per_ns) {
  int64_t time = lb_pace_displaces(p, runs) ? DISPLACING_PERIOD : GRANT_PERIOD;
  int64_t n = (int64_t)(per_ns * (double)time / (double)p->slice);
  return n > 1 ? n : 1;
}

// What may be spent from the bucket, and when to update again.
static int64_t spend(lb_pace *p, const lb_pace_input *in, int64_t *ns) {
  measure_requests(p, in);
  p->share = share_of(p, in->payback);
  p->slice = slice_beside(p->request, p->share);
  double per_ns = fill_rate(p, in->runs.inside);
  fill(p, in, per_ns);
  bool may_go = p->balance >= p->slice / 2;
  int64_t granted = may_go ? slices_for(p, &in->runs, per_ns) * p->slice : 0;
  int64_t most = may_go ? GRANT_PERIOD : MAX_WAIT;
  double wait = (double)(p->slice + granted - p->balance) / per_ns;
  *ns = wait < (double)most ? (int64_t)wait + 1 : most;
  return granted;
}

int64_t lb_pace_update(lb_pace *p, const lb_pace_input *in, int64_t *ns) {
  int64_t granted = LB_PACE_UNLIMITED;
  if (in->runs.inside || in->runs.entered != p->entered) p->last_run = in->now;
  p->state = state_of(p, in);
  *ns = POLL_UNLIMITED;
  if (p->state >= LB_PACE_CONTENDED)
    granted = spend(p, in, ns);
  else
    p->balance = 0;
  p->now = in->now;
  p->entered = in->runs.entered;
  return granted;
}

void lb_pace_set_quota(lb_pace *p, int64_t now, double processors,
                       bool quota_limited, uint64_t throttled) {
  double most = TOLERATED_THROTTLING * (double)(now - p->quota_read_at);
  bool was_throttled = p->quota_read_at && throttled > p->throttled &&
                       (double)(throttled - p->throttled) > most;
  p->processors = processors;
  p->quota_limited = quota_limited;
  p->throttled = throttled;
  p->quota_read_at = now;
  if (was_throttled && p->state >= LB_PACE_CONTENDED)
    p->quota_factor = THROTTLED_FACTOR;
  else if (!was_throttled)
    p->quota_factor = p->quota_factor + RECOVERY_STEP < 1
                          ? p->quota_factor + RECOVERY_STEP
                          : 1;
}
