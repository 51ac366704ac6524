// compile/kernel_builder.h -- gives one slot at a time a compiled kernel:
// request, object, loaded code, published kernel.
//
// Owns the worker. Kernels belong to their slots, which may evict them. One
// thread at a time may call, except where a function says otherwise; any thread
// may read the statistics and the records.
#ifndef LB_COMPILE_KERNEL_BUILDER_H
#define LB_COMPILE_KERNEL_BUILDER_H

#include "base/log.h"
#include "cache/slots.h"
#include "compile/compile_log.h"
#include "compile/worker.h"
#include "spec/target.h"
#include "store/store.h"

typedef struct lb_kernel_builder lb_kernel_builder;

typedef struct lb_kernel_builder_options {
  const char *worker;        // path of limber-jit; copied
  lb_worker_options limits;  // of that process; the builder sets `generator`
  lb_slots *slots;           // borrowed; outlives the builder
  lb_store *store;           // borrowed; NULL: no kernels on disk
  lb_target target;          // instructions that kernels may use
  const lb_log *log;         // borrowed
  lb_hub *hub;               // borrowed; may be NULL
  const char *dump;  // directory to write loaded objects to; copied, or NULL
} lb_kernel_builder_options;

lb_status lb_kernel_builder_new(const lb_kernel_builder_options *o,
                                lb_kernel_builder **out);
void lb_kernel_builder_free(lb_kernel_builder *b);  // NULL is fine

typedef enum lb_compile_result {
  LB_COMPILE_DONE,       // or it failed: slot->failed is set, and the slot must
                         // not be requested again
  LB_COMPILE_TOO_LARGE,  // the kernel is larger than the cache
  LB_COMPILE_LATER,      // another process compiles it: search the disk later
} lb_compile_result;

// Gives the slot a kernel, within `timeout_ms`. A kernel that `pays_soon` waits
// for another process's lease for a shorter time, because that process may be
// throttled. On failure
//   LB_DEVICE            executable memory is refused, permanently
//   LB_IO, LB_CANCELLED  see lb_worker_compile
//   LB_OOM
lb_status lb_kernel_builder_compile(lb_kernel_builder *b, lb_slot *slot,
                                    int timeout_ms, bool pays_soon,
                                    lb_compile_result *out);
// Gives the slot the kernel that is on disk, or marks it as demoted if an
// earlier trial on this processor model found that kernel slower than what it
// would replace. *found is false if there is neither. Fails as
// lb_kernel_builder_compile does, but never because of the worker.
lb_status lb_kernel_builder_find(lb_kernel_builder *b, lb_slot *slot,
                                 bool *found);
// Loads kernels on disk for this target, up to a limit, into their slots, which
// are added as needed. The first call lists them and each later call loads one;
// call again while *more is true.
lb_status lb_kernel_builder_preload(lb_kernel_builder *b, bool *more);
// In a forked child: drops the preload list of the parent's thread.
void lb_kernel_builder_after_fork(lb_kernel_builder *b);
// Did the worker receive the last request before it failed?
bool lb_kernel_builder_had_request(const lb_kernel_builder *b);

// Marks the slot as failed, for a key at which the worker failed too often.
void lb_kernel_builder_give_up(lb_kernel_builder *b, lb_slot *slot,
                               const char *why);

// Acts on a decided trial: keeps the kernel or withdraws it, and records the
// result in the slot and on disk.
void lb_kernel_builder_end_trial(lb_kernel_builder *b, lb_slot *slot,
                                 const lb_paired_test *found);

// Any thread: cancels the current call, if any, and all later ones.
void lb_kernel_builder_cancel(lb_kernel_builder *b);
// Undoes lb_kernel_builder_cancel; no call may be in progress.
void lb_kernel_builder_resume(lb_kernel_builder *b);
// Whether kernels published from now on are put on trial against what they
// replace; initially false. Only the compile thread may call it.
void lb_kernel_builder_set_trials(lb_kernel_builder *b, bool trials);
// Whether the worker runs at low priority; see lb_worker_set_yields.
void lb_kernel_builder_set_yields(lb_kernel_builder *b, bool yields);
// Starts the worker's process ahead of the first request.
void lb_kernel_builder_prepare(lb_kernel_builder *b);
// See lb_worker_is_starting.
bool lb_kernel_builder_is_starting(lb_kernel_builder *b, int64_t *ns);
// Has the store write its buffered notes to disk.
void lb_kernel_builder_flush_store(lb_kernel_builder *b);
// Ends the worker's process until the next request.
void lb_kernel_builder_stop_worker(lb_kernel_builder *b);

typedef struct lb_kernel_builder_stats {
  uint64_t compiled, compile_failures;
  uint64_t build_us;       // spent compiling and checking
  uint64_t found;          // kernels loaded from disk
  uint64_t kept, demoted;  // after trials
  uint64_t code_bytes;
} lb_kernel_builder_stats;
lb_kernel_builder_stats lb_kernel_builder_count(lb_kernel_builder *b);

// Copies record i of the compile log; its texts stay valid. False if there are
// fewer records.
bool lb_kernel_builder_record(lb_kernel_builder *b, size_t i,
                              lb_compile_record *out);

#endif
