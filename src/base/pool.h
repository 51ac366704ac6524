// base/pool.h -- one thread pool per runtime.
//
// A pool of n threads has n-1 workers; the caller is the n-th. At most as many
// threads take part as there are processors for them; the others sleep, but
// work is divided as if they took part. Workers spin only while a run is inside
// (enter/leave) and for 50 us after it; otherwise they park. If as many runs
// are inside as threads take part, every run has only its caller's thread:
// workers park, and jobs run on their callers. A worker moves off the processor
// that a run is on; its affinity is not changed. A caller never runs tasks of
// another request, only its own job. After a fork, the child's pool starts its
// workers again at the next job.
#ifndef LB_BASE_POOL_H
#define LB_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lb_pool lb_pool;

// Processes items [begin, end). `worker` is in [0, threads).
typedef void lb_pool_fn(void *user, int64_t begin, int64_t end, int worker);

lb_status lb_pool_new(int threads, lb_pool **out);
void lb_pool_free(lb_pool *p);          // joins the workers; NULL is fine
int lb_pool_threads(const lb_pool *p);  // 1 for NULL
// How many threads take part: at most the number of processors that the workers
// or the caller of lb_pool_new or lb_pool_enter may use. lb_pool_enter updates
// it at most every tenth of a second.
int lb_pool_width(const lb_pool *p);
// Would a job of the calling thread run on that thread alone at the moment?
bool lb_pool_alone(const lb_pool *p);

// A run brackets its jobs with these, so that workers know when to spin.
void lb_pool_enter(lb_pool *p);
void lb_pool_leave(lb_pool *p);

typedef struct lb_pool_runs {
  int inside;        // runs inside now
  uint64_t entered;  // total number of runs
  int cpu;           // processor on which the last one entered, or -1
} lb_pool_runs;
lb_pool_runs lb_pool_count(const lb_pool *p);  // no runs for NULL

// Calls fn over [0, n) in chunks of `grain` items and returns when all are
// done. Chunk bounds depend on n and grain only, never on the thread count. If
// there is a single chunk, or if lb_pool_alone, the caller runs everything.
// Jobs with equal chunk counts give each thread the same chunks, except that a
// thread that finishes early takes chunks of others.
void lb_pool_for(lb_pool *p, int64_t n, int64_t grain, lb_pool_fn *fn,
                 void *user);

#endif
