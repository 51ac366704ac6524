// compile/service.h -- compiles better kernels while requests run.
//
// Runs report the slots that they used without a compiled kernel, and how long
// the step took. One thread has the worker compile kernels for them, highest
// priority first (queue.h), and publishes these in the slots, where the next
// run finds them.
//
// Terms. A slot is *pending* while it has no kernel or only the pack's, and one
// could be compiled (lb_slot_is_pending). It is *queued* from the first run
// that uses it while it is pending, or from when it is found to be wanted
// before any run has used it, until it has a kernel, fails or is dropped.
//
// (1) Reporting takes no lock, never waits and starts nothing but the thread,
//     once. Only settle waits.
// (2) A slot has one job at a time, however many sessions and runs need it. It
//     is compiled at its second use, or at the lowest compile threshold of the
//     sessions that use it; earlier if there is nothing else to do and requests
//     have been idle for a while. The same holds, with the lowest priority, for
//     slots that loading and plans want and no run has used yet.
// (3) A key that cannot be compiled is not queued again, nor is one at which
//     the worker crashed or hung three times while others succeeded. After a
//     failure the key backs off, and for a shorter time all compiling, which
//     doubles with each failure in a row.
// (4) When a session leaves, slots that it used last are dropped from the
//     queue; other sessions that need them queue them again at their next run.
// (5) While requests need the processors, all work of the service takes a small
//     share of them; see pace.h. This does not apply while a caller settles.
// (6) After fork the child has its own queue and thread, which start empty.
// (7) Sessions differ in what they want compiled, and when. Kernels are
//     compiled in the background only while a session wants that
//     (lb_service_begin_background); what one session queues serves all.
//     Trials take place only then too, as other sessions do not report step
//     times.
#ifndef LB_COMPILE_SERVICE_H
#define LB_COMPILE_SERVICE_H

#include "compile/kernel_builder.h"

typedef struct lb_service lb_service;

typedef struct lb_service_options {
  // Its slots and hub are the service's; the runs of the hub's members are the
  // requests.
  lb_kernel_builder_options builder;
  bool trials;     // new kernels are tried against what they replace
  bool find_only;  // there is no worker: only kernels on disk are used
  bool unpaced;    // the worker is never throttled; see throttle.h
  bool fifo;       // see queue.h
} lb_service_options;

lb_status lb_service_new(const lb_service_options *o, lb_service **out);
// Cancels the current job. No run may be in progress, and none may use the
// slots afterwards. NULL is fine.
void lb_service_free(lb_service *s);
// Cancels the current job and ends thread and worker, unless a caller settles
// or a session compiles in the background. Both start again when needed, which
// may happen concurrently.
void lb_service_try_stop(lb_service *s);

// -- for runs

// False: runs need not report samples.
bool lb_service_wants_samples(const lb_service *s);

// Returns the session's number for lb_slot_sample; never 0.
unsigned lb_service_join(lb_service *s);
void lb_service_leave(lb_service *s, unsigned session);

// Calls are counted: kernels are compiled in the background between the first
// begin and the last end. The first begin also starts to load the kernels that
// are on disk.
void lb_service_begin_background(lb_service *s);
void lb_service_end_background(lb_service *s);

typedef struct lb_slot_sample {
  unsigned session;
  unsigned compile_threshold;  // of the session; 0: LB_COMPILE_THRESHOLD
  uint64_t run;                // unique per run
  int64_t ns;                  // that the step took
} lb_slot_sample;
// Reports that a run used this slot, which is pending. A run that uses it
// several times reports each time, so that all of the time is counted; it is
// counted as one use.
void lb_service_add_sample(lb_service *s, lb_slot *slot,
                           const lb_slot_sample *sample);

// Slots are wanted that no run has used, as when a model was loaded. If some
// session compiles in the background, they are compiled in an idle moment.
// Takes no lock.
void lb_service_notify(lb_service *s);

// A trial was decided (cache/trial.h); the thread acts on it soon. Takes no
// lock.
void lb_service_trial_decided(lb_service *s);

// -- for callers that wait

typedef struct lb_settle {
  double seconds;
  bool critical;   // only slots for which lb_spec_is_critical holds
  uint64_t users;  // whose slots (lb_slot_user); 0: all
  // Calls `enqueue` on each slot that is to be compiled first. May be NULL.
  void (*each)(void *user, void (*enqueue)(void *to, lb_slot *slot), void *to);
  void *user;
} lb_settle;

// Waits until no wanted slot of the users is pending. LB_CANCELLED: the time
// ran out; LB_IO: the worker is missing or fails; LB_DEVICE: executable memory
// is refused. Succeeds in all of these cases if the slots that plans use have
// their kernels and only those for future shapes are pending.
lb_status lb_service_settle(lb_service *s, const lb_settle *how);

typedef struct lb_service_stats {
  lb_kernel_builder_stats kernels;
  uint64_t queued;    // slots
  uint64_t failures;  // of the worker
} lb_service_stats;
lb_service_stats lb_service_count(lb_service *s);

// See lb_kernel_builder_record.
bool lb_service_compile_record(lb_service *s, size_t i, lb_compile_record *out);

#endif
