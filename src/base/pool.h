// base/pool.h -- one thread pool per runtime.
//
// A pool of n threads has n-1 workers; the caller is the n-th. No more of them
// take part than there are processors for them; the others sleep, and work is
// dealt out as if they did not. Workers spin only while some run is inside
// (enter/leave), and 50 us longer for the next one, and park when none is. With
// as many runs inside as threads take part each has its caller's: workers park,
// and jobs stay with their callers. A worker leaves the processor that a run is
// on, and is free to go anywhere else: no affinity stays. A caller never runs
// another request's task: it helps with its own job alone. After fork the
// child's pool starts its workers anew at the next job.
#ifndef LB_BASE_POOL_H
#define LB_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lb_pool lb_pool;

// Work on items [begin, end). `worker` is in [0, threads).
typedef void lb_pool_fn(void *user, int64_t begin, int64_t end, int worker);

lb_status lb_pool_new(int threads, lb_pool **out);
void lb_pool_free(lb_pool *p);          // joins the workers; NULL is fine
int lb_pool_threads(const lb_pool *p);  // 1 for NULL
// How many of them take part: no more than there are processors that the caller
// of lb_pool_new, or of lb_pool_enter some tenths of a second ago, or the
// workers may use.
int lb_pool_width(const lb_pool *p);
// Would a job of the calling thread have it alone, as things are now?
bool lb_pool_alone(const lb_pool *p);

// A run brackets its jobs, so that workers know when to spin.
void lb_pool_enter(lb_pool *p);
void lb_pool_leave(lb_pool *p);

typedef struct lb_pool_runs {
  int inside;        // now
  uint64_t entered;  // ever
  int cpu;           // where the last one entered, or -1
} lb_pool_runs;
lb_pool_runs lb_pool_count(const lb_pool *p);  // none for NULL

// Calls fn over [0, n) in chunks of `grain` items and returns when all are
// done. Chunk bounds depend on n and grain alone, never on the thread count.
// A job of a single chunk, or one that is alone, runs on the caller. Of k
// chunks a thread gets the same ones in each such job, unless another is done
// early and takes them.
void lb_pool_for(lb_pool *p, int64_t n, int64_t grain, lb_pool_fn *fn,
                 void *user);

#endif
