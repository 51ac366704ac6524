// session/session.h -- a graph prepared for running, and its runs.
//
// Any number of threads may run one session at once; each takes an idle run
// context (arena, buffers). Plans are shared, and cached by signature under a
// byte budget.
#ifndef LB_SESSION_SESSION_H
#define LB_SESSION_SESSION_H

#include "base/alloc.h"
#include "base/run_limits.h"
#include "base/events.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/tensor.h"
#include "cache/slots.h"
#include "compile/service.h"
#include "graph/graph.h"
#include "partition/partition.h"
#include "session/watch.h"

typedef struct lb_session lb_session;

// Fusion beyond what is never slower.
typedef enum lb_fusion {
  LB_FUSION_STATIC,  // none
  LB_FUSION_LIVE,    // what the contents of inputs make worthwhile
} lb_fusion;

typedef struct lb_session_options {
  lb_pool *pool;          // borrowed; NULL: runs use the calling thread only
  const lb_alloc *alloc;  // borrowed; NULL: the C library
  size_t plan_bytes;      // budget of the plan cache; 0: the default, 24 MB
  size_t memory_limit;    // bytes for the values of one run; 0: no limit
  int64_t loop_limit;     // iterations, nested loops included; 0: 10 million
  uint64_t passes_off;    // bits of lb_pass_options.off
  const lb_log *log;      // for warnings while loading; borrowed, may be NULL
  // Where kernels of partitions are published; borrowed, outlives the session.
  // NULL: every node runs on its reference kernel, and no weights are packed.
  lb_slots *slots;
  uint64_t user;  // bit of the runtime that uses the slots; 0: none
  // Size of a processor's L2 cache: batches are run as micro-batches whose
  // values fit (session/microbatch.h). 0: batches are run whole.
  size_t l2_bytes;
  lb_events *events;   // receives events; borrowed, may be NULL
  bool deterministic;  // see plan/program.h
  bool no_skip;        // likewise
  bool reusable;       // likewise
  unsigned checks;     // bits of lb_memory_check
  lb_fusion fusion;
  // LIVE: fuses wherever it is right, without observing whether it pays.
  bool fusion_untried;
  // One of so many fused runs is recomputed without fusion and compared; if it
  // differs, the session fuses nothing any more. 0: none.
  unsigned verify;
  // Gets samples of pending slots; borrowed, outlives the session. NULL: no
  // kernels are compiled.
  lb_service *service;
  bool quiet;    // gives no samples: kernels are compiled only by settle
  bool passive;  // the owner calls lb_service_begin_background while it is used
  bool critical;  // gives samples only where lb_spec_is_critical holds
  unsigned compile_threshold;  // see lb_slot_sample
} lb_session_options;

// A result and where it goes. With data == NULL the run allocates memory and
// sets `owned` (lb_output_free frees it); else the caller owns `cap` bytes at
// `data`, and the result is written there with these strides.
typedef struct lb_output {
  bool wanted;
  bool owned;
  int rank;                // of `strides`
  const int64_t *strides;  // in elements; borrowed. NULL: dense
  lb_tensor tensor;        // set by the run: dtype, dims, strides, data
  void *data;
  size_t cap;
} lb_output;

// Infers shapes of, optimises and verifies the graph in place. The graph is
// borrowed and must outlive the session.
lb_status lb_session_new(lb_graph *graph, const lb_session_options *o,
                         lb_session **out);
void lb_session_free(lb_session *s);  // no run may be in progress; NULL is fine

// -- versions of the program ------------------------------------------------
// A session starts with a version that fuses everything that is never slower
// when fused. Others can be built at any time, off the request path; a swap
// makes one of them current for all runs that start from then on. Runs in
// progress end with the version they started with, and no run waits for a swap.
// See session/versions.h.

typedef struct lb_version lb_version;

// Builds another version, which the caller must release. Weights that an
// earlier version has packed are not packed again.
lb_status lb_session_build(lb_session *s, const lb_partition_options *o,
                           lb_version **out);
// Makes it current; the caller must still release it. Any thread may swap.
void lb_session_swap(lb_session *s, lb_version *v);
// Releases the caller's use. A version that is not current loses its plans with
// its last user, so a caller that will swap back should keep it. NULL is fine.
void lb_session_release_version(lb_session *s, lb_version *v);
uint64_t lb_version_number(const lb_version *v);  // 1, 2, ... in a session

// Plans, and runs if that is quick, at guessed dims, so that the first request
// is not slowed down by one-time costs (session/load_warmup.h). To be called
// before any other use of the session, or not at all. Takes about a quarter of
// `loading_ns` and at most 10 ms, not counting the memory it prefaults.
void lb_session_load_warmup(lb_session *s, int64_t loading_ns);

// `inputs`: one tensor per input of the graph, of any strides; `outputs`: one
// per output. On failure outputs keep what the caller put there, and nothing is
// owned.
lb_status lb_session_run(lb_session *s, const lb_tensor *inputs,
                         lb_output *outputs);

#define LB_SCRATCH_ALIGN 64

typedef struct lb_run_how {
  // Called for each step when it has run; for a Loop or Scan, for the steps of
  // its body. Borrowed; may be NULL.
  const lb_watcher *watcher;
  lb_run_limits *limits;  // borrowed; may be NULL
  // Memory for values between steps, in place of the session's, except for
  // those of loop bodies. Borrowed, LB_SCRATCH_ALIGN-aligned.
  void *scratch;
  size_t scratch_bytes;
  bool lends;  // use `scratch` even if it has no bytes
  // Used in this run in place of the session's; `alloc` is for results only.
  // Borrowed; NULL: the session's.
  lb_pool *pool;
  const lb_alloc *alloc;
} lb_run_how;
lb_status lb_session_run_with(lb_session *s, const lb_tensor *inputs,
                              lb_output *outputs, const lb_run_how *how);
void lb_output_free(const lb_session *s, lb_output *o);

typedef struct lb_plan_counts {
  uint32_t steps;      // not counting those that cover a launch
  uint32_t launches;   // of these steps
  uint32_t left;       // nodes of later stages, which depend on data
  size_t arena_bytes;  // for values between steps
} lb_plan_counts;

// Plans the first stage without running it. `inputs` as for a run, but data may
// be missing where it decides no shape: LB_INVALID names an input that must
// have it. `outputs` say which are wanted; NULL: all.
lb_status lb_session_plan(lb_session *s, const lb_tensor *inputs,
                          const lb_output *outputs, lb_plan_counts *out);
// The same for all outputs; calls `watcher` for each step counted, without
// times.
lb_status lb_session_plan_watched(lb_session *s, const lb_tensor *inputs,
                                  const lb_watcher *watcher,
                                  lb_plan_counts *out);

// Records the signatures of runs in a file from now on; NULL: stops. See
// session/record.h. `log` is borrowed.
lb_status lb_session_record(lb_session *s, const char *path, const lb_log *log);

// Calls `fn` on the slots of all cached plans, perhaps several times on one,
// with a lock held.
void lb_session_each_slot(lb_session *s, void (*fn)(void *user, lb_slot *slot),
                          void *user);
// Waits until the pending slots of this session's plans have kernels, then
// those of the other users in `users`. See lb_service_settle; does nothing
// without a service.
lb_status lb_session_settle(lb_session *s, double seconds, uint64_t users);

typedef struct lb_session_stats {
  uint64_t runs, plans_built, plans_evicted;
  size_t plans, plan_bytes;      // in the cache now
  size_t contexts, arena_bytes;  // in idle run contexts
  size_t packed_bytes;           // of weights, packed for kernels
  size_t packings;               // constants packed so far
  size_t programs;               // alive, including the current one
  uint64_t version;              // of the current one
  uint64_t ragged_runs;          // without padding
  size_t own_bytes;  // of programs, and of idle contexts without values
} lb_session_stats;
void lb_session_stats_get(lb_session *s, lb_session_stats *out);
// Only plan_bytes of the above, without a lock.
size_t lb_session_plan_bytes(const lb_session *s);
// Memory for values that contexts keep, without a lock; for those in use, as of
// their last run.
size_t lb_session_scratch_bytes(const lb_session *s);

// Frees the memory of idle contexts; returns the bytes freed.
size_t lb_session_trim(lb_session *s);

#endif
