// compile/service.h -- better kernels, made while requests run.
//
// Runs tell which slots they met without their best kernel, and what the step
// took; one thread has kernels made for them by the worker, the most worth
// first (queue.h), and publishes these into the slots. The next run finds them.
//
// Terms. A slot *lacks* while it has no kernel but the pack's. A run that meets
// such a slot is a *sighting*. A slot is *asked for* from its first sighting,
// or from when it was seen that no run has met it, until it has a kernel,
// failed or was dropped.
//
// (1) Telling takes no lock, waits for nobody and starts nothing but the
//     thread, once. Nobody but settle waits.
// (2) A slot has one job at a time, whichever sessions and runs ask for it. It
//     is made at its second sighting, or at the one that a session says which
//     meets it; the session that asks for the fewest decides. Or earlier when
//     there is nothing else to do and requests have rested for a while. So is
//     what loading and plans want that no run has met: last of all.
// (3) A key that the worker refuses is not asked for again, nor one at which it
//     crashed or hung three times while it was well at others. After a failure
//     the key rests, and for a shorter time everything, which doubles with
//     each failure in a row.
// (4) What a session asked for is dropped when it leaves, unless another one
//     asked after it; whoever still needs it asks at its next run.
// (5) While requests need the processors, all that is done here takes a small
//     share of them; see pace.h. Not so while somebody settles.
// (6) After fork the child has a queue and a thread of its own, which begin
//     empty.
// (7) Sessions differ in what they want compiled, and when. Those that compile
// in
//     the background hold the service; what one of them asks for serves all.
//     Kernels are tried against what they replaced only while somebody holds
//     it, as other sessions do not say what steps take.
#ifndef LB_COMPILE_SERVICE_H
#define LB_COMPILE_SERVICE_H

#include "compile/kernel_builder.h"

typedef struct lb_service lb_service;

typedef struct lb_service_options {
  lb_kernel_builder_options maker;  // its slots and hub are the service's; runs
                                    // of the hub's members are the requests
  bool judges;     // kernels are tried against what they replace
  bool find_only;  // there is no worker: what is on disk is all
  bool unpaced;    // nothing holds the worker back; see brake.h
  bool in_turn;    // see queue.h
} lb_service_options;

lb_status lb_service_new(const lb_service_options *o, lb_service **out);
// Stops what is under way. Nobody may run, or use slots afterwards. NULL is
// fine.
void lb_service_free(lb_service *s);
// Stops what is under way, and ends thread and worker, unless somebody settles
// or holds the service. Both begin anew when somebody needs them, be it at the
// same time.
void lb_service_rest(lb_service *s);

// -- for runs

// False: nobody has to tell anything.
bool lb_service_listens(const lb_service *s);

// The name of a session in what it tells; never 0.
unsigned lb_service_join(lb_service *s);
void lb_service_leave(lb_service *s, unsigned session);

// One more, or one less, has kernels made while requests run: nothing is made
// in the background unless somebody holds the service. With the first, what is
// on disk is loaded.
void lb_service_hold(lb_service *s);
void lb_service_let_go(lb_service *s);

typedef struct lb_slot_sample {
  unsigned session;
  unsigned compile_threshold;  // that it takes for the session; 0:
                               // LB_COMPILE_THRESHOLD
  uint64_t run;                // a number for each run
  int64_t ns;                  // that the step took
} lb_slot_sample;
// A run met this slot, which lacks. One that meets it several times tells each
// time, for the time; it is one sighting.
void lb_service_add_sample(lb_service *s, lb_slot *slot,
                           const lb_slot_sample *seen);

// Slots were wanted that no run has met, as when a model was loaded: those who
// have kernels made in the background get them in an idle moment. Takes no
// lock.
void lb_service_look(lb_service *s);

// A trial was decided (cache/trial.h): it is acted upon soon. Takes no lock.
void lb_service_decided(lb_service *s);

// -- for those who wait

typedef struct lb_settle {
  double seconds;
  bool critical;   // nothing but what lb_spec_is_critical says
  uint64_t users;  // whose slots (lb_slot_user); 0: all
  // What matters most: calls `ask` on each such slot. May be NULL.
  void (*each)(void *user, void (*ask)(void *to, lb_slot *slot), void *to);
  void *user;
} lb_settle;

// Waits until no wanted slot of the users lacks. LB_CANCELLED when time ran out
// before that; LB_IO: the worker is missing or fails; LB_DEVICE: executable
// memory is refused. None of these if all is there that plans use, and what
// lacks is for shapes to come.
lb_status lb_service_settle(lb_service *s, const lb_settle *how);

typedef struct lb_service_stats {
  lb_kernel_builder_stats made;
  uint64_t waiting;   // slots asked for
  uint64_t failures;  // of the worker
} lb_service_stats;
lb_service_stats lb_service_count(lb_service *s);

// See lb_kernel_builder_built.
bool lb_service_compile_record(lb_service *s, size_t i, lb_compile_record *out);

#endif
