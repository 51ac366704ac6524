// session/ragged_groups.h -- runs a large ragged batch as groups of sequences.
// Internal to the module.
//
// What micro-batches (session/microbatch.h) do for batches of equal items: each
// thread runs groups of its own, of so many tokens that the values between
// steps fit the L2 cache. Sequences stay in order, so groups differ in size; a
// batch that cannot be shared fairly by the threads is run whole.
#ifndef LB_SESSION_RAGGED_GROUPS_H
#define LB_SESSION_RAGGED_GROUPS_H

#include "session/run.h"

// The tokens of a batch, or of consecutive sequences of one.
typedef struct lb_ragged_batch {
  int64_t sequences, length;  // length: with padding
  int64_t tokens;
  // See LB_RAGGED_ROWS and so on in fuse/ragged.h.
  int64_t *rows, *positions, *segments;
} lb_ragged_batch;

typedef struct lb_ragged_run {
  lb_session *s;
  lb_context *c;
  lb_program *program;  // of the rewritten graph
  const lb_ragged_batch *batch;
  const lb_tensor *in;  // of the original
  lb_output *out;
  size_t token_bytes;  // of values between steps; 0: not known yet
} lb_ragged_run;

// Runs the batch whole; *token_bytes is learned.
lb_status lb_ragged_run_whole(lb_ragged_run *r, size_t *token_bytes);
// Runs it in groups. *ran is false if it has to be run whole.
lb_status lb_ragged_run_groups(lb_ragged_run *r, bool *ran);

#endif
