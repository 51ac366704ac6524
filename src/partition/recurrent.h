// partition/recurrent.h -- LSTM, GRU and RNN as kernels that run once per time
// step.
//
// A time step of one direction consists of the matmul of the state and its
// weights, then the gates; if GRU resets the state before the matmul, of both
// twice. Time steps run one after the other, so their kernels are not steps of
// a plan: see lb_step.iterations. Directions share no memory that is written,
// so that each may run on its own thread.
#ifndef LB_PARTITION_RECURRENT_H
#define LB_PARTITION_RECURRENT_H

#include "partition/partition.h"

// Whether kernels support the node: projected, common activations, no clipping,
// no peepholes.
bool lb_recurrent_is(const lb_node *n);

// The constant from which the matmuls' weights are packed; and whether the
// state is reset before the matmul, which determines how.
const lb_value *lb_recurrent_weights(const lb_node *n);
bool lb_recurrent_resets_first(const lb_node *n);
// Packs the weights of its matmuls, one behind the other.
// lb_recurrent_pack_size returns false if their size overflows a size_t.
bool lb_recurrent_pack_size(const lb_node *n, size_t *bytes);
void lb_recurrent_pack(const lb_node *n, void *to);

// The memory that holds an operand of its kernels.
typedef enum lb_rmem {
  LB_RMEM_X,       // input 0
  LB_RMEM_BIAS,    // input 3
  LB_RMEM_Y,       // output 0
  LB_RMEM_H,       // output 1; initially the state before the first time step
  LB_RMEM_C,       // output 2, likewise. LSTM only
  LB_RMEM_MASK,    // input 4: 1 if the time step is within its sequence
  LB_RMEM_GATES,   // [directions, batch, gates * hidden], between kernels
  LB_RMEM_RESET,   // [directions, batch, hidden], likewise. GRU only
  LB_RMEM_PACKED,  // the packed weights of the partition
  LB_RMEMS
} lb_rmem;

// Dims and strides, by lb_rmem: X, Y, H, C, MASK. The stride of Y along time
// may be 0 if Y is not read.
typedef struct lb_rshape {
  lb_tensor tensor[LB_RMEM_MASK + 1];
} lb_rshape;

// Whether kernels support these shapes.
bool lb_recurrent_fits(const lb_partition *p, const lb_rshape *s);

#define LB_RNN_KERNELS 8  // max of all directions
int lb_recurrent_directions(const lb_partition *p);
int lb_recurrent_kernels(const lb_partition *p);  // per direction

// One kernel of a time step, without loops around it.
typedef struct lb_rnn_kernel {
  lb_binding b;  // values are NULL; offsets are those of the first time step
  uint8_t mem[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];  // by operand: lb_rmem
  // By operand: the stride from one time step to the next, in elements.
  int64_t time_strides[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
} lb_rnn_kernel;
lb_status lb_recurrent_bind(const lb_partition *p, const lb_rshape *s,
                            int direction, int kernel, lb_rnn_kernel *out);

#endif
