// compile/kernel_builder.h -- one slot at a time: request, object, code,
// kernel.
//
// Owns the worker. Kernels belong to their slots, which may evict them. Making
// is for one thread at a time; what was made may be asked for by any.
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
  lb_worker_options limits;  // of that process; the generator is ours
  lb_slots *slots;           // borrowed; outlives the maker
  lb_store *store;           // borrowed; NULL: nothing is kept on disk
  lb_target target;          // what kernels may use
  const lb_log *log;         // borrowed
  lb_hub *hub;               // borrowed; may be NULL
  const char *dump;  // folder for the objects that are loaded; copied, or NULL
} lb_kernel_builder_options;

lb_status lb_kernel_builder_new(const lb_kernel_builder_options *o,
                                lb_kernel_builder **out);
void lb_kernel_builder_free(lb_kernel_builder *m);  // NULL is fine

typedef enum lb_compile_result {
  LB_COMPILE_DONE,       // or refused: the slot says so, and is not to be asked
                         // again
  LB_COMPILE_TOO_LARGE,  // the cache has no room for it
  LB_COMPILE_LATER,  // another process is making it: look for it on disk later
} lb_compile_result;

// Gives the slot a kernel, within `timeout_ms`. One that pays `soon` does not
// wait for another process as long as others do: there it may not pay, and be
// held back. On failure
//   LB_DEVICE            executable memory is refused, for good
//   LB_IO, LB_CANCELLED  see lb_worker_compile
//   LB_OOM
lb_status lb_kernel_builder_make(lb_kernel_builder *m, lb_slot *slot,
                                 int timeout_ms, bool soon,
                                 lb_compile_result *out);
// Gives it the kernel that is on disk, or none for good if that is known to be
// slower here than what it would replace. *found is false if there is none that
// is sound. Fails as the above does, but never for the worker.
lb_status lb_kernel_builder_find(lb_kernel_builder *m, lb_slot *slot,
                                 bool *found);
// Loads what is on disk for this target, to a limit, into slots that exist or
// will: one kernel a call, or the list of them, while there is *more.
lb_status lb_kernel_builder_preload(lb_kernel_builder *m, bool *more);
// In a forked child: what the other process's thread had in hand is forgotten.
void lb_kernel_builder_begin_anew(lb_kernel_builder *m);
// Did the worker fail with the last request in hand?
bool lb_kernel_builder_blames(const lb_kernel_builder *m);

// The same for a key that failed too often.
void lb_kernel_builder_give_up(lb_kernel_builder *m, lb_slot *slot,
                               const char *why);

// A kernel was tried against what it replaced, and is kept or taken away: that
// is remembered, on disk too.
void lb_kernel_builder_judge(lb_kernel_builder *m, lb_slot *slot,
                             const lb_paired_test *found);

// Any thread: the call under way, if any, and all later ones are cancelled.
void lb_kernel_builder_cancel(lb_kernel_builder *m);
// Takes that back; no call is under way.
void lb_kernel_builder_resume(lb_kernel_builder *m);
// From now on kernels are tried against what they replace, or not; at first
// not. Of the thread that makes.
void lb_kernel_builder_set_judges(lb_kernel_builder *m, bool judges);
// Whether the worker makes way for other programs; see worker.h.
void lb_kernel_builder_set_yields(lb_kernel_builder *m, bool yields);
// Starts the worker's process, for what will be asked for.
void lb_kernel_builder_prepare(lb_kernel_builder *m);
// See lb_worker_gets_ready.
bool lb_kernel_builder_gets_ready(lb_kernel_builder *m, int64_t *ns);
// Has the store write what it has noted.
void lb_kernel_builder_note(lb_kernel_builder *m);
// Ends the worker's process until it is needed again.
void lb_kernel_builder_rest(lb_kernel_builder *m);

typedef struct lb_kernel_builder_stats {
  uint64_t compiled, refused;
  uint64_t build_us;       // spent compiling and checking
  uint64_t found;          // on disk
  uint64_t kept, demoted;  // after trials
  uint64_t code_bytes;
} lb_kernel_builder_stats;
lb_kernel_builder_stats lb_kernel_builder_count(lb_kernel_builder *m);

// What became of key i of those that were made or refused; texts stay. False
// if there are not so many.
bool lb_kernel_builder_built(lb_kernel_builder *m, size_t i,
                             lb_compile_record *out);

#endif
