// partition/partition.h -- nodes that run and compile as one unit.
//
// A partition has one anchor (a matmul, a convolution, a row operation, ...) or
// none, and elementwise nodes: those that process the anchor's result, and
// those that feed any of its nodes. Only the last node's value is read outside.
// What a partition computes is a spec (spec/spec.h); until its kernel exists
// its nodes run one by one.
//
// A partitioning is immutable once built; any thread may read it. One graph may
// have several, which share their packed weights.
#ifndef LB_PARTITION_PARTITION_H
#define LB_PARTITION_PARTITION_H

#include "base/arena.h"
#include "base/events.h"
#include "graph/graph.h"
#include "graph/resize.h"
#include "partition/memo.h"
#include "partition/zones.h"
#include "spec/spec.h"

// How an input is accessed.
typedef enum lb_input_access {
  LB_ACCESS_PLAIN,
  LB_ACCESS_REDUCED,  // has the dims of the result of a reduction
  LB_ACCESS_RESIZED,  // input of a Resize: it has fewer elements than the
                      // iteration space
} lb_input_access;

// An input of the partition, without operands of the anchor and scalars.
typedef struct lb_part_input {
  const lb_value *value;
  lb_input_access access;
  bool channel;  // one element per channel, axis 1
  bool single;   // must have one element
} lb_part_input;
#define LB_PART_INPUTS 17  // more than a spec can have

// A non-constant value from outside that nodes read for any purpose.
typedef struct lb_part_read {
  const lb_value *value;
  uint32_t times;
} lb_part_read;

typedef struct lb_partition {
  lb_form form;
  bool recurrent;  // one node, executed by several kernels:
                   // partition/recurrent.h binds them, not lb_partition_bind
  const lb_node **nodes;  // in order; the last one's output 0 is the result
  uint32_t n_nodes;
  uint32_t anchor;     // index of the anchor; ELTWISE: 0
  const void *packed;  // constant weights as kernels read them (MATMUL and
                       // CONV: in panels); NULL: none. Borrowed from
                       // partition/weights.h
  lb_layout panels;    // layout of `packed`
  const struct lb_window_desc *window;  // CONV, WINDOW: see partition/window.h
  lb_memo *memo;                        // specs built so far
  const lb_part_input *inputs;          // each value once per access; NULL: see
                                        // lb_partition_inputs
  uint32_t n_inputs;
  const lb_part_read *reads;  // each value once
  uint32_t n_reads;
  bool plain;  // if binding succeeds, the dims of its nodes are those of their
               // expressions: no shape rule has to run
} lb_partition;

static inline const lb_value *lb_partition_result(const lb_partition *p) {
  return p->nodes[p->n_nodes - 1]->out[0];
}

// The input whose last axis must be contiguous: the feature map of a
// convolution or pool, operand A of an int8 GEMM; else NULL.
const lb_value *lb_partition_contiguous_input(const lb_partition *p);

// Operand B of a matmul if it is not packed and its last axis is the columns;
// else NULL.
const lb_value *lb_partition_operand_b(const lb_partition *p);

// Finds the inputs; returns their number, at most LB_PART_INPUTS.
uint32_t lb_partition_inputs(const lb_partition *p,
                             lb_part_input out[LB_PART_INPUTS]);

typedef struct lb_partitioning {
  lb_arena arena;        // owns everything except packed weights and memos
  lb_partition **parts;  // in order of creation
  uint32_t n_parts;
  lb_partition **of_node;  // by node id; NULL: in no partition
  uint8_t *refusals;       // by node id: why it is in no partition (lb_reason)
} lb_partitioning;

// The reason why a node is in no partition.
lb_reason lb_partition_refusal(const lb_node *n);

// Options of a partitioning; {0}: every fusion that is never slower.
typedef struct lb_partition_options {
  // Ids of values across which nothing is fused: each stays the result of its
  // partition. Values that would not be inside a partition have no effect.
  const uint32_t *barriers;
  uint32_t n_barriers;
} lb_partition_options;

struct lb_weights;
// `o` is read during the call only; `weights` must outlive the partitioning.
lb_status lb_partitioning_init(lb_partitioning *p, const lb_graph *g,
                               const lb_partition_options *o,
                               struct lb_weights *weights);
void lb_partitioning_fini(lb_partitioning *p);

// -- one partition at concrete shapes ----------------------------------------

#define LB_BIND_LOOPS (LB_MAX_RANK - 2)

// An operand of a kernel: its value and strides.
typedef struct lb_bind_operand {
  const lb_value *value;         // NULL: the packed weights
  int64_t offset;                // of the first element, in elements
  int64_t row, col;              // the kernel's strides, in elements
  int64_t outer[LB_BIND_LOOPS];  // strides of the outer loops, in elements
} lb_bind_operand;

#define LB_MAX_SPATIAL 3  // spatial axes of a feature map

// Loop structure of the zones of a convolution or pool. Internal to this
// module.
typedef struct lb_conv_loops {
  lb_tensor x, y;
  int64_t group_in, group_out;  // channels per group
  lb_axis axes[LB_MAX_SPATIAL];
  const lb_zone *zones[LB_MAX_SPATIAL];        // the current zone of each axis
  int64_t weight_tap_strides[LB_MAX_SPATIAL];  // from tap to tap, in elements
                                               // of the weights
  bool batch_rows;   // the kernel's rows may be the batch
  int rows;          // the spatial axis of the kernel's rows; -1: the batch
  int tap_y, tap_x;  // spatial axes of taps_y and taps_x; -1: none
  bool adjacent;     // all taps in x are one contiguous piece
  // Strides of operands with the dims of the result: along batch, spatial axes
  // and channels.
  int64_t strides[LB_SPEC_MAX_IN + 1][LB_MAX_SPATIAL + 2];
} lb_conv_loops;

// An interpolating Resize (linear, cubic) at concrete sizes. Internal to this
// module.
typedef struct lb_interp {
  lb_resize resize;
  int taps, n;  // n: resized axes, at most two
  lb_resize_axis axes[2];
  int64_t strides[2];  // of the input, along these axes
} lb_interp;

// How a partition is computed at these shapes: loops around a kernel's rows x
// cols. Operands are outputs, then inputs, in the spec's order.
typedef struct lb_binding {
  uint32_t n_operands;
  int64_t dims[LB_SDIMS];
  int64_t taps[4];  // tap strides in y and x, of input 0, then of input 1
  int64_t outer[LB_BIND_LOOPS];
  int n_outer;
  int zones;  // number of bindings that cover the result: 1, more with padding
  int axis;   // zones with the same axis have the same strides: dims, loops and
              // offsets differ
  uint64_t scalars[LB_SPEC_MAX_SCALARS];  // bits
  const lb_memo_spec *memo_spec;          // the spec in the memo; NULL: not
                                          // there
  lb_reason refusal;                      // if it could not be bound: why
  // The value whose contents split the rows of the outermost loop into segments
  // (device/launch.h); NULL: none.
  const lb_value *segments;
  size_t table_bytes;  // size of tables that operands without a value refer to;
                       // 0: these refer to the packed weights
  lb_bind_operand operands[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  lb_spec spec;
  union {
    lb_conv_loops loops;  // CONV, WINDOW
    lb_interp interp;     // with tables
  };
} lb_binding;

// Returns dims and strides of a value at plan time (data is not read).
typedef lb_status lb_tensor_fn(void *user, const lb_value *v, lb_tensor *out);

// Binds a partition. *ok is false if no spec supports these shapes or strides;
// the nodes then run one by one.
lb_status lb_partition_bind(const lb_partition *p, lb_tensor_fn *tensor,
                            void *user, lb_binding *out, bool *ok);
// Fills the tables of a binding that has some.
void lb_partition_fill_tables(const lb_binding *b, void *to);
// Computes the other bindings of a partition that has several zones; `b` is the
// result of lb_partition_bind. They have the same spec and cover other elements
// of the result. Each is built in `b` and passed to `zone`, which must not keep
// it.
typedef lb_status lb_zone_fn(void *user, const lb_binding *zone);
lb_status lb_partition_bind_zones(const lb_partition *p, lb_binding *b,
                                  lb_zone_fn *zone, void *user);

#endif
