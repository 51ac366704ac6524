// compile/pace.c -- how much processor time compiling may take from requests.
#include "compile/pace.h"

#include <math.h>

#define HALF 0.5         // of the share is left while a quota is used up
#define STEP (HALF / 4)  // back, for each time without throttling
#define SHORT 5e6        // ns of a request
#define FEW 0.002        // of short requests may meet a slice, if nothing pays
#define SLICE INT64_C(4000000)        // ns: a tick
#define SLICE_LEAST INT64_C(600000)   // beside requests that are not short
#define SLICES 8                      // as long as such a request
#define MUCH 0.05                     // a share that comes in long slices
#define LATELY 16.0                   // looks
#define TOLERATED 0.01                // of the time, throttled
#define GLANCE INT64_C(2000000)       // ns between looks while it goes freely
#define TRAIN INT64_C(40000000)       // while it goes in slices
#define IN_PLACE INT64_C(25000000)    // ... in the place of requests
#define LONGEST INT64_C(100000000)    // while it does not go
#define OVERDRAWN INT64_C(100000000)  // more is forgiven

void lb_pace_init(lb_pace *p, double processors, int threads) {
  *p = (lb_pace){.processors = processors,
                 .threads = threads,
                 .share = LB_PACE_LEAST,
                 .left = 1,
                 .slice = SLICE,
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
  return p->scarce && p->state >= LB_PACE_CONTENDED &&
         busy_of(p, runs->inside) >= p->processors;
}

bool lb_pace_is_contended(const lb_pace *p) {
  return p->state >= LB_PACE_CONTENDED;
}

bool lb_pace_hurries(const lb_pace *p) {
  return lb_pace_is_contended(p) && p->share > MUCH;
}

static lb_pace_state state_of(const lb_pace *p, const lb_pace_look *seen) {
  if (seen->wanted) return LB_PACE_WANTED;
  if (seen->now - p->last_run > LB_PACE_QUIET) return LB_PACE_FREE;
  if (!leave_none_free(p, seen->runs.inside)) return LB_PACE_FREE;
  return p->left < 1 ? LB_PACE_THROTTLED : LB_PACE_CONTENDED;
}

// One slice for so many requests; those that are long lose little by it.
static double least_beside(double request) {
  if (request <= 0 || request >= SHORT) return LB_PACE_LEAST;
  double few = FEW * (double)SLICE / request;
  return few < LB_PACE_LEAST ? few : LB_PACE_LEAST;
}

// Twice the share is twice the harm to each request, for half of the time; to
// wait costs what is returned. Both together are least at the root of it.
static double share_of(const lb_pace *p, double returns) {
  double share = LB_PACE_MOST * sqrt(LB_PACE_SOON * returns);
  bool pays = LB_PACE_EVER * returns >= 1;
  double least = pays ? LB_PACE_SOME : least_beside(p->request);
  if (share > LB_PACE_MOST) share = LB_PACE_MOST;
  return p->left * (share > least ? share : least);
}

static double rate(const lb_pace *p, int inside) {
  double runs = inside > 1 ? inside : 1;
  return p->share * (runs < p->processors ? runs : p->processors);
}

static void fill(lb_pace *p, const lb_pace_look *seen, double per_ns) {
  int64_t passed = p->now ? seen->now - p->now : 0;
  if (passed > 0) p->level += (int64_t)(per_ns * (double)passed);
  p->level -= seen->spent;
  if (p->level > p->slice + p->slice / 2) p->level = p->slice + p->slice / 2;
  if (p->level < -OVERDRAWN) p->level = -OVERDRAWN;
}

static int64_t slice_beside(double request, double share) {
  double ns = request / SLICES;
  if (request < SHORT || share > MUCH || ns > (double)SLICE) return SLICE;
  return ns > (double)SLICE_LEAST ? (int64_t)ns : SLICE_LEAST;
}

// How long requests take is told by how many began while so many ran.
static void measure(lb_pace *p, const lb_pace_look *seen) {
  uint64_t begun = seen->runs.entered - p->entered;
  int64_t passed = seen->now - p->now;
  if (passed > 2 * LONGEST) return;  // nobody looked
  p->busy += (double)passed * seen->runs.inside - p->busy / LATELY;
  p->begun += (double)begun - p->begun / LATELY;
  if (p->begun >= 1) p->request = p->busy / p->begun;
}

// As many as one look may grant. Requests whose place they take move to other
// processors now and then, and slices are beside them until the next look.
static int64_t slices_for(const lb_pace *p, const lb_pool_runs *runs,
                          double per_ns) {
  int64_t time = lb_pace_displaces(p, runs) ? IN_PLACE : TRAIN;
  int64_t n = (int64_t)(per_ns * (double)time / (double)p->slice);
  return n > 1 ? n : 1;
}

// What may be spent out of the bucket, and when to look again.
static int64_t spend(lb_pace *p, const lb_pace_look *seen, int64_t *ns) {
  measure(p, seen);
  p->share = share_of(p, seen->returns);
  p->slice = slice_beside(p->request, p->share);
  double per_ns = rate(p, seen->runs.inside);
  fill(p, seen, per_ns);
  bool goes = p->level >= p->slice / 2;
  int64_t go = goes ? slices_for(p, &seen->runs, per_ns) * p->slice : 0;
  int64_t most = goes ? TRAIN : LONGEST;
  double wait = (double)(p->slice + go - p->level) / per_ns;
  *ns = wait < (double)most ? (int64_t)wait + 1 : most;
  return go;
}

int64_t lb_pace_look_at(lb_pace *p, const lb_pace_look *seen, int64_t *ns) {
  int64_t go = LB_PACE_FREELY;
  if (seen->runs.inside || seen->runs.entered != p->entered)
    p->last_run = seen->now;
  p->state = state_of(p, seen);
  *ns = GLANCE;
  if (p->state >= LB_PACE_CONTENDED)
    go = spend(p, seen, ns);
  else
    p->level = 0;
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
  if (grew && p->state >= LB_PACE_CONTENDED)
    p->left = HALF;
  else if (!grew)
    p->left = p->left + STEP < 1 ? p->left + STEP : 1;
}
