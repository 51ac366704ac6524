// session/partition_manager.h -- builds the version that live data suggests,
// deploys it, and undoes it. Internal to the module.
//
// A session with fusion LIVE looks at load for what could be fused; so far that
// is the padding of batches (fuse/ragged.h). Runs observe the data; the
// analyzer's thread (observe/analyzer.h) asks the fusion engine
// (fuse/lifecycle.h) for a decision and acts on it.
//
// (1) Versions are built on the analyzer's thread, never by a run. A run reads
//     the deployed one by one atomic load, keeps it to its end, and never
//     waits.
// (2) A run whose guard does not hold is that of the original.
// (3) A time counts only if every matmul, attention and convolution of the run
//     had a kernel.
// (4) There is at most one fused version. If it has lost, it is freed with the
//     last run that uses it; if there is no padding at the moment, it stays.
#ifndef LB_SESSION_PARTITION_MANAGER_H
#define LB_SESSION_PARTITION_MANAGER_H

#include "session/run.h"

typedef struct lb_partition_manager lb_partition_manager;

// *out is NULL if fusion is not LIVE, or if there is nothing to fuse.
lb_status lb_partition_manager_new(lb_session *s, lb_partition_manager **out);
void lb_partition_manager_free(lb_partition_manager *m);  // NULL is fine

// Runs the main region, fused or not; see lb_run_region.
lb_status lb_partition_manager_run(lb_partition_manager *m, lb_context *c,
                                   const lb_tensor *in, lb_output *out);

// Decides at once what the analyzer would decide soon; NULL is fine.
void lb_partition_manager_update(lb_partition_manager *m);

// How many runs used the fused version; 0 for NULL.
uint64_t lb_partition_manager_fused_runs(const lb_partition_manager *m);

#endif
