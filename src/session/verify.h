// session/verify.h -- recomputes a run without fusion and compares. Internal to
// the module.
#ifndef LB_SESSION_VERIFY_H
#define LB_SESSION_VERIFY_H

#include "session/run.h"

// Runs the original main region on `in`, and compares its wanted float32
// results with those in `out`. *same is false if they differ by more than
// rounding: the log then has a warning with the inputs' shapes and the first
// element that differs.
lb_status lb_verify_run(lb_session *s, lb_context *c, const lb_tensor *in,
                        const lb_output *out, bool *same);

#endif
