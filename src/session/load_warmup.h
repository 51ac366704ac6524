// session/load_warmup.h -- plans and runs a model once while it is loaded.
// Internal to the module; the public part is in session.h.
//
// The first plan and run of a process, and of a session, pay for things that
// later ones find done: specs are built and looked up, pages of code and
// weights are faulted in, memory is allocated. The load warm-up does this while
// the model is loaded, on zeros, with guessed sizes for dims that the model
// leaves open.
//
// (1) It leaves no trace: no plan, nothing learned or counted, no random number
//     drawn, no error. What remains is what runs would look up again; memory
//     for values, as much as larger runs might need, within limits; and wanted
//     kernels, which are those that requests use whatever their sizes
//     (plan/variants.h) and which may be compiled before the first request.
// (2) It plans as long as its time permits, and at least for one size and a
//     larger one. It runs plans with little work and few bytes, and ends before
//     a step when its time is over.
#ifndef LB_SESSION_LOAD_WARMUP_H
#define LB_SESSION_LOAD_WARMUP_H

#include "session/run.h"

// Sizes for dims that the model leaves open; the first of an input is often a
// batch.
typedef struct lb_guess {
  int64_t first, others;
} lb_guess;

typedef enum lb_open {  // which dims the model leaves open
  LB_OPEN_NONE,
  LB_OPEN_FIRST,  // only the first of an input
  LB_OPEN_OTHERS,
} lb_open;

// Sets inputs of the main region at these sizes, without data; dims with the
// same name get the same size. False if ranks or dtypes are unknown.
bool lb_load_warmup_guess(const lb_session *s, lb_guess size, lb_tensor *out,
                          lb_open *open);

#endif
