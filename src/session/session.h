// session/session.h -- a graph made ready to run, and the run itself.
//
// Any number of threads may run one session at once; each takes a run context
// (arena, buffers) of those that are idle. Plans are shared and cached by
// signature under a byte budget.
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

typedef struct lb_session_options {
  lb_pool *pool;          // borrowed; NULL: the caller's thread alone
  const lb_alloc *alloc;  // borrowed; NULL: the C library
  size_t plan_bytes;      // budget of the plan cache; 0: the default, 24 MB
  size_t memory_limit;    // bytes one run may take for values; 0: none
  int64_t loop_limit;     // turns of a Loop, inner ones too; 0: 10 million
  uint64_t passes_off;    // bits of lb_pass_options.off
  const lb_log *log;      // for warnings while loading; borrowed, may be NULL
  // Where kernels of partitions are published; borrowed, outlives the session.
  // NULL: every node runs by its host kernel, and no weights are packed.
  lb_slots *slots;
  uint64_t user;  // bit of the runtime, as slots know who uses them; 0: none
  // Bytes of values that a processor has near: batches are run in slices that
  // keep within them (session/microbatch.h). 0: they are run whole.
  size_t near_bytes;
  lb_events *events;   // who is told what is decided; borrowed, may be NULL
  bool deterministic;  // see plan/program.h
  bool reusable;       // likewise
  // Told of slots that lack; borrowed, outlives the session. NULL: nobody is.
  lb_service *service;
  bool quiet;     // it is told nothing: kernels come by settle alone
  bool passive;   // others hold the service for it, while it is used
  bool critical;  // told of nothing but what lb_spec_is_critical says
  unsigned compile_threshold;  // see lb_slot_sample
} lb_session_options;

// A result and where it goes. With data == NULL the run allocates (and owned is
// set: lb_output_free returns it); else `cap` bytes at data are the caller's,
// and the result is written there with these strides.
typedef struct lb_output {
  bool wanted;
  bool owned;
  int rank;                // of `strides`
  const int64_t *strides;  // in elements; borrowed. NULL: dense
  lb_tensor tensor;        // set by the run: dtype, dims, strides, data
  void *data;
  size_t cap;
} lb_output;

// Infers, simplifies and checks the graph in place. The graph is borrowed and
// must outlive the session.
lb_status lb_session_new(lb_graph *graph, const lb_session_options *o,
                         lb_session **out);
void lb_session_free(lb_session *s);  // no run may be inside; NULL is fine

// -- versions of the program ------------------------------------------------
// A session begins with one that fuses all that is never slower to fuse. Others
// are built at any time, off the request path; a swap makes one of them that of
// all runs that begin from then on. Runs that are inside end with the version
// they began with, and no run waits for a swap. See session/versions.h.

typedef struct lb_version lb_version;

// Builds another version, which the caller leaves in the end. Weights that an
// earlier one has packed are not packed again.
lb_status lb_session_build(lb_session *s, const lb_partition_options *o,
                           lb_version **out);
// Makes it current; the caller still has it to leave. Any thread may swap.
void lb_session_swap(lb_session *s, lb_version *v);
// Is not used by the caller any more. A version that is not current loses its
// plans with its last user, so whoever will swap back keeps it. NULL is fine.
void lb_session_leave(lb_session *s, lb_version *v);
uint64_t lb_version_number(const lb_version *v);  // 1, 2, ... in a session

// Plans, and runs if that is quick, at guessed dims, so that the first request
// need not pay for what is met for the first time (session/load_warmup.h). To
// be called before anything else is done with the session, or not at all; takes
// about a quarter of what loading took, and no more than 10 ms, but for memory
// that it touches.
void lb_session_load_warmup(lb_session *s, int64_t loading_ns);

// `inputs`: one tensor per input of the graph, of any strides; `outputs`: one
// per output.
// On failure outputs keep what the caller put there, nothing is owned.
lb_status lb_session_run(lb_session *s, const lb_tensor *inputs,
                         lb_output *outputs);

#define LB_SCRATCH_ALIGN 64

typedef struct lb_run_how {
  // Is told of each step, as soon as it has run: of a Loop or Scan of the steps
  // of its body. Borrowed; may be NULL.
  const lb_watcher *watcher;
  lb_run_limits *bound;  // borrowed; may be NULL
  // For values between steps, in place of memory of the session's; those of
  // loops' bodies aside. Borrowed, LB_SCRATCH_ALIGN-aligned.
  void *scratch;
  size_t scratch_bytes;
  bool lends;  // scratch is what there is, even if that is none
  // In place of the session's, for this run; `alloc` for results alone.
  // Borrowed; NULL: the session's.
  lb_pool *pool;
  const lb_alloc *alloc;
} lb_run_how;
lb_status lb_session_run_so(lb_session *s, const lb_tensor *inputs,
                            lb_output *outputs, const lb_run_how *how);
void lb_output_free(const lb_session *s, lb_output *o);

typedef struct lb_plan_counts {
  uint32_t steps;      // without those that cover a launch
  uint32_t launches;   // of these steps
  uint32_t left;       // nodes of later stages, which need data
  size_t arena_bytes;  // for values between steps
} lb_plan_counts;

// Plans the first stage, and runs nothing. `inputs` as for a run, but without
// data where that decides no shape: LB_INVALID names an input that must have
// it. `outputs` say which are wanted; NULL: all.
lb_status lb_session_plan(lb_session *s, const lb_tensor *inputs,
                          const lb_output *outputs, lb_plan_counts *out);
// The same for all; `watcher` is told of the steps that were counted, without
// times.
lb_status lb_session_emit(lb_session *s, const lb_tensor *inputs,
                          const lb_watcher *watcher, lb_plan_counts *out);

// Notes the signatures of runs in a file from now on; NULL: no more. See
// session/record.h. `log` is borrowed.
lb_status lb_session_record(lb_session *s, const char *path, const lb_log *log);

// Calls `fn` on the slots of the plans that are remembered, on one perhaps
// several times, with a lock held.
void lb_session_each_slot(lb_session *s, void (*fn)(void *user, lb_slot *slot),
                          void *user);
// Waits until kernels are made for what the plans of this session lack, then
// for those of the other users among `users`. See lb_service_settle; nothing
// without a service.
lb_status lb_session_settle(lb_session *s, double seconds, uint64_t users);

typedef struct lb_session_stats {
  uint64_t runs, plans_built, plans_evicted;
  size_t plans, plan_bytes;      // in the cache now
  size_t contexts, arena_bytes;  // of idle run contexts
  size_t packed_bytes;           // of weights, laid out for kernels
  size_t packings;               // constants that were packed so far
  size_t programs;               // that exist, the current one included
  uint64_t version;              // of the current one
  size_t own_bytes;              // programs, idle contexts without values
} lb_session_stats;
void lb_session_stats_get(lb_session *s, lb_session_stats *out);
// Its plan_bytes alone, without a lock.
size_t lb_session_plan_bytes(const lb_session *s);
// Memory for values that contexts keep, those in use too as they were before;
// without a lock.
size_t lb_session_scratch_bytes(const lb_session *s);

// Gives back the memory of contexts in which nobody runs; how much it was.
size_t lb_session_trim(lb_session *s);

#endif
