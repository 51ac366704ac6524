// compile/pace.c -- how much processor time compiling may take from requests.
#include "compile/pace.h"

#define FASTER 5  // while there is something left of LB_PACE_FIRST
#define LEAST (LB_PACE_SHARE / 2)
#define STEP (LB_PACE_SHARE / 8)  // back, for each time without throttling
#define SHORT INT64_C(600000)     // ns of a request
#define SLICE_OF_SHORT INT64_C(4000000)  // ns, beside such requests
#define SLICE_LEAST INT64_C(400000)      // beside others
#define SLICE_MOST INT64_C(2000000)
#define SLICES 8                      // as long as a request
#define LATELY 16.0                   // looks
#define TOLERATED 0.01                // of the time, throttled
#define GLANCE INT64_C(2000000)       // ns between looks while it goes freely
#define LONGEST INT64_C(40000000)     // while it does not
#define IN_PLACE INT64_C(25000000)    // while it takes the place of requests
#define OVERDRAWN INT64_C(100000000)  // more is forgiven

void lb_pace_init(lb_pace *p, double processors, int threads) {
  *p = (lb_pace){.processors = processors,
                 .threads = threads,
                 .share = LB_PACE_SHARE,
                 .slice = LB_PACE_SLICE,
                 .first = LB_PACE_FIRST,
                 .last_run = INT64_MIN / 2};
}

// A run keeps all threads of its pool busy; more runs than these have a thread
// each.
static int busy_of(const lb_pace *p, int inside) {
  return inside > p->threads ? inside : p->threads;
}

static bool leave_none_free(const lb_pace *p, int inside) {
  return busy_of(p, inside) + 1 > p->processors;
}

bool lb_pace_displaces(const lb_pace *p, const lb_pool_runs *runs) {
  return p->scarce && p->state >= LB_PACE_PRESSED &&
         busy_of(p, runs->inside) >= p->processors;
}

static lb_pace_state state_of(const lb_pace *p, const lb_pace_look *seen) {
  if (seen->wanted) return LB_PACE_WANTED;
  if (seen->now - p->last_run > LB_PACE_QUIET) return LB_PACE_FREE;
  if (!leave_none_free(p, seen->runs.inside)) return LB_PACE_FREE;
  return p->share < LB_PACE_SHARE ? LB_PACE_THROTTLED : LB_PACE_PRESSED;
}

static double rate(const lb_pace *p, int inside) {
  double runs = inside > 1 ? inside : 1;
  double share = p->first > 0 ? FASTER * p->share : p->share;
  return share * (runs < p->processors ? runs : p->processors);
}

static void fill(lb_pace *p, const lb_pace_look *seen, double per_ns) {
  int64_t passed = seen->now - p->now;
  if (passed > 0) p->level += (int64_t)(per_ns * (double)passed);
  p->level -= seen->spent;
  if (p->level > p->slice + p->slice / 2) p->level = p->slice + p->slice / 2;
  if (p->level < -OVERDRAWN) p->level = -OVERDRAWN;
}

static int64_t slice_beside(const lb_pace *p, double request) {
  double ns = request / SLICES;
  if (request < SHORT) return SLICE_OF_SHORT;
  if (ns > SLICE_MOST || p->first > 0) return SLICE_MOST;
  return ns > SLICE_LEAST ? (int64_t)ns : SLICE_LEAST;
}

// How long requests take is told by how many began while so many ran.
static void measure(lb_pace *p, const lb_pace_look *seen) {
  uint64_t begun = seen->runs.entered - p->entered;
  int64_t passed = seen->now - p->now;
  if (passed > 2 * LONGEST) return;  // nobody looked
  p->busy += (double)passed * seen->runs.inside - p->busy / LATELY;
  p->begun += (double)begun - p->begun / LATELY;
  if (p->begun < 1) return;
  p->slice = slice_beside(p, p->busy / p->begun);
}

// As many as one look may grant. Requests whose place they take move to other
// processors now and then, and slices are beside them until the next look.
static int64_t slices_for(const lb_pace *p, const lb_pool_runs *runs,
                          double per_ns) {
  int64_t time = lb_pace_displaces(p, runs) ? IN_PLACE : LONGEST;
  int64_t n = (int64_t)(per_ns * (double)time / (double)p->slice);
  return n > 1 ? n : 1;
}

int64_t lb_pace_look_at(lb_pace *p, const lb_pace_look *seen, int64_t *ns) {
  int64_t go = LB_PACE_FREELY;
  double per_ns = rate(p, seen->runs.inside);
  p->first -= seen->spent;
  if (seen->runs.inside || seen->runs.entered != p->entered)
    p->last_run = seen->now;
  p->state = state_of(p, seen);
  *ns = GLANCE;
  if (p->state >= LB_PACE_PRESSED) {
    measure(p, seen);
    fill(p, seen, per_ns);
    if (p->level < p->slice / 2)
      go = 0;
    else
      go = slices_for(p, &seen->runs, per_ns) * p->slice;
    *ns = (int64_t)((double)(p->slice + go - p->level) / per_ns) + 1;
    if (*ns > LONGEST) *ns = LONGEST;
  } else {
    p->level = 0;
  }
  p->now = seen->now;
  p->entered = seen->runs.entered;
  return go;
}

void lb_pace_hear(lb_pace *p, int64_t now, double processors, bool scarce,
                  uint64_t throttled) {
  double most = TOLERATED * (double)(now - p->heard);
  bool grew = p->heard && throttled > p->throttled &&
              (double)(throttled - p->throttled) > most;
  p->processors = processors;
  p->scarce = scarce;
  p->throttled = throttled;
  p->heard = now;
  if (grew && p->state >= LB_PACE_PRESSED)
    p->share = LEAST;
  else if (!grew)
    p->share =
        p->share + STEP < LB_PACE_SHARE ? p->share + STEP : LB_PACE_SHARE;
}
