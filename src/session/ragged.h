// session/ragged.h -- the guard of ragged batches, and their runs. Internal to
// the module.
//
// The guard of a run without padding is its mask: all elements must be 0 or 1,
// a tenth of them 0, each sequence must have a token at its first position if
// the model selects that, and the caller must not want a result that differs at
// padding.
#ifndef LB_SESSION_RAGGED_H
#define LB_SESSION_RAGGED_H

#include "fuse/ragged.h"
#include "session/ragged_groups.h"

typedef struct lb_ragged_guard {
  bool holds;             // apart from how much padding there is
  bool pays;              // it holds, and there is enough padding
  double padding;         // share of the positions
  lb_ragged_batch batch;  // if it pays: the tokens, in the context's memory
} lb_ragged_guard;

// Looks at the mask. The guard's memory is that of c->parts.
lb_status lb_ragged_check(const lb_ragged *r, lb_context *c,
                          const lb_tensor *in, const lb_output *out,
                          lb_ragged_guard *guard);

// Runs the main region without padding; `program` is that of r->graph.
// *token_bytes is learned from earlier runs; see lb_ragged_run.
lb_status lb_ragged_run_main(lb_session *s, lb_context *c, lb_program *program,
                             const lb_ragged_guard *guard, const lb_tensor *in,
                             lb_output *out, atomic_size_t *token_bytes);

#endif
