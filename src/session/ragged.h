// session/ragged.h -- runs batches without their padding. Internal to the
// module.
//
// A session with fusion LIVE has a second version of its program, whose graph
// computes tokens only (fuse/ragged.h), if the model allows it. Each run looks
// at the mask first, which is its guard: all elements must be 0 or 1, a
// tenth of them 0, each sequence must have a token at its first position if the
// model selects that, and the caller must not want a result that differs at
// padding. Otherwise the run is that of
// the original.
#ifndef LB_SESSION_RAGGED_H
#define LB_SESSION_RAGGED_H

#include "session/run.h"

struct lb_ragged_version;

// *out is NULL if there is nothing to leave out.
lb_status lb_ragged_version_new(lb_session *s, struct lb_ragged_version **out);
// NULL is fine.
void lb_ragged_version_free(lb_session *s, struct lb_ragged_version *v);
uint64_t lb_ragged_version_runs(const struct lb_ragged_version *v);

// Runs the main region without padding. *ran is false if the guard does not
// hold: then nothing was done.
lb_status lb_ragged_try(lb_session *s, lb_context *c, const lb_tensor *in,
                        lb_output *out, bool *ran);

#endif
