// session/load_warmup.h -- a run before the first one. Internal to the room;
// what others call is in session.h.
//
// Once in a process, and once in a session, planning and running meet what they
// have not met before: specs are made and looked up, pages of code and weights
// are touched, memory is asked for. A rehearsal has that happen while a model
// is loaded: at dims that are guessed where the model leaves them open, on
// zeros.
//
// (1) It leaves no trace: no plan, nothing learned or counted, no number drawn,
//     no error. What stays is what runs would find out again, memory for
//     values, as much as larger runs might need, within bounds, and kernels
//     that are wanted: those that requests use whatever their sizes
//     (plan/variants.h), which may be compiled before the first one.
// (2) It plans for as long as it may, and for one size and larger ones in any
//     case; it runs what is little work and few bytes, and ends before a step
//     when its time is over.
#ifndef LB_SESSION_LOAD_WARMUP_H
#define LB_SESSION_LOAD_WARMUP_H

#include "session/run.h"

// For dims that the model leaves open: the first of an input is often a batch.
typedef struct lb_guess {
  int64_t first, others;
} lb_guess;

typedef enum lb_open {  // what is left to guess
  LB_OPEN_NONE,
  LB_OPEN_FIRST,  // none of `others`
  LB_OPEN_OTHERS,
} lb_open;

// Inputs of the main region at these sizes, without data; what the model calls
// by one name is one number. False if not even ranks and dtypes are known.
bool lb_load_warmup_guess(const lb_session *s, lb_guess size, lb_tensor *out,
                          lb_open *open);

#endif
