// partition/recurrent.h -- LSTM, GRU and RNN as kernels that run in turns.
//
// A *turn* is a step of the recurrence in one direction: the product of the
// state and its weights, then what the gates make of it; where GRU resets the
// state before the product, both once more. One turn comes after the other, so
// its kernels are no steps of a plan: see lb_step.turns. Directions share no
// memory that is written, so that each may have a thread.
#ifndef LB_PARTITION_RECURRENT_H
#define LB_PARTITION_RECURRENT_H

#include "partition/partition.h"

// True if kernels can do it: projected, usual activations, no clipping, no
// peepholes.
bool lb_recurrent_is(const lb_node *n);

// The constant that its products are packed from; and whether it resets the
// state before the product, which decides how.
const lb_value *lb_recurrent_weights(const lb_node *n);
bool lb_recurrent_resets_first(const lb_node *n);
// The weights of its products, one behind the other. False if their bytes do
// not fit a size_t.
bool lb_recurrent_pack_size(const lb_node *n, size_t *bytes);
void lb_recurrent_pack(const lb_node *n, void *to);

// Where operands of its kernels lie.
typedef enum lb_rmem {
  LB_RMEM_X,       // input 0
  LB_RMEM_BIAS,    // input 3
  LB_RMEM_Y,       // output 0
  LB_RMEM_H,       // output 1: at first the state before the first step
  LB_RMEM_C,       // output 2, likewise. LSTM alone
  LB_RMEM_MASK,    // input 4: 1 where a step is within its sequence
  LB_RMEM_GATES,   // [directions, batch, gates * hidden], between kernels
  LB_RMEM_RESET,   // [directions, batch, hidden], likewise. GRU alone
  LB_RMEM_PACKED,  // the partition's
  LB_RMEMS
} lb_rmem;

// Dims and strides, by lb_rmem: X, Y, H, C, MASK. That of Y along time may be
// 0, where nobody reads it.
typedef struct lb_rshape {
  lb_tensor tensor[LB_RMEM_MASK + 1];
} lb_rshape;

// False if kernels cannot do it at these shapes.
bool lb_recurrent_fits(const lb_partition *p, const lb_rshape *s);

#define LB_RNN_KERNELS 8  // of all directions, at most
int lb_recurrent_directions(const lb_partition *p);
int lb_recurrent_kernels(const lb_partition *p);  // of one direction

typedef struct lb_rnn_kernel {  // one kernel of a turn, no loops around it
  lb_binding b;  // values are NULL; offsets are those of the first turn
  uint8_t mem[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];   // by operand: lb_rmem
  int64_t step[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];  // elements on to the next
} lb_rnn_kernel;
lb_status lb_recurrent_bind(const lb_partition *p, const lb_rshape *s,
                            int direction, int kernel, lb_rnn_kernel *out);

#endif
