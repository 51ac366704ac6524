// partition/partition.h -- nodes that run and compile as one unit.
//
// A partition has one anchor (a product, a row operation) or none, and
// elementwise nodes: those that make of its result what the last one gives, and
// those that feed any of them. Only the last node's value is seen outside. What
// a partition computes is a spec (spec/spec.h); until its kernel exists its
// nodes run one by one.
//
// A partitioning never changes once it is made; any thread may read it. One
// graph may have several, which share their packed weights.
#ifndef LB_PARTITION_PARTITION_H
#define LB_PARTITION_PARTITION_H

#include "base/arena.h"
#include "base/events.h"
#include "graph/graph.h"
#include "graph/resize.h"
#include "partition/memo.h"
#include "partition/zones.h"
#include "spec/spec.h"

// In which way an operand is walked.
typedef enum lb_manner {
  LB_MANNER_PLAIN,
  LB_MANNER_LATE,   // over the result of a reduction
  LB_MANNER_SMALL,  // each element of a Resize's input stands for several
} lb_manner;

// What a node reads of others; factors of a product and scalars left out.
typedef struct lb_part_input {
  const lb_value *value;
  lb_manner manner;
  bool channel;  // one element a channel, axis 1
  bool single;   // it has to be one element
} lb_part_input;
#define LB_PART_INPUTS 17  // more than a spec can have

// A value of others, no constant, that nodes read for whatever purpose.
typedef struct lb_part_read {
  const lb_value *value;
  uint32_t times;
} lb_part_read;

typedef struct lb_partition {
  lb_form form;
  bool recurrent;  // one node, made by several kernels: partition/recurrent.h
                   // binds them, not lb_partition_bind
  const lb_node **nodes;  // in order; the last one's output 0 is the result
  uint32_t n_nodes;
  uint32_t anchor;     // its number; MAP: 0
  const void *packed;  // constant weights as kernels read them, of MATMUL and
                       // CONV in panels; NULL: it has none. Borrowed from
                       // partition/weights.h
  lb_layout panels;    // how those lie
  const struct lb_window_desc *window;  // CONV, WINDOW: see partition/window.h
  lb_memo *memo;                        // of its specs
  const lb_part_input *inputs;  // each value once for a manner; NULL: see
                                // lb_partition_inputs
  uint32_t n_inputs;
  const lb_part_read *reads;  // each value once
  uint32_t n_reads;
  bool plain;  // as far as binding finds its operands to fit, its nodes do what
               // expressions say: no rule has to run
} lb_partition;

static inline const lb_value *lb_partition_result(const lb_partition *p) {
  return p->nodes[p->n_nodes - 1]->out[0];
}

// What has to lie side by side along its last axis: the image that it walks,
// the left side of a product of bytes; else NULL.
const lb_value *lb_partition_dense(const lb_partition *p);

// The second factor of a product, if it is not packed and its last axis are the
// columns; else NULL.
const lb_value *lb_partition_factor(const lb_partition *p);

// Finds the inputs; returns how many, at most LB_PART_INPUTS.
uint32_t lb_partition_inputs(const lb_partition *p,
                             lb_part_input out[LB_PART_INPUTS]);

typedef struct lb_partitioning {
  lb_arena arena;        // owns all of it but packed weights and memos
  lb_partition **parts;  // in order of making
  uint32_t n_parts;
  lb_partition **of_node;  // by node id; NULL: runs alone
  uint8_t *refusals;       // by node id: if it runs alone, why (lb_reason)
} lb_partitioning;

// The condition that keeps a node out of every partition.
lb_reason lb_partition_refusal(const lb_node *n);

// What a partitioning is to be like; {0}: every fusion that is never slower.
typedef struct lb_partition_options {
  // Ids of values across which nothing is fused: each stays a result of its
  // partition. Those that no partition would have inside change nothing.
  const uint32_t *apart;
  uint32_t n_apart;
} lb_partition_options;

struct lb_weights;
// `o` is read during the call alone; `weights` outlive the partitioning.
lb_status lb_partitioning_init(lb_partitioning *p, const lb_graph *g,
                               const lb_partition_options *o,
                               struct lb_weights *weights);
void lb_partitioning_fini(lb_partitioning *p);

// -- one partition at concrete shapes ----------------------------------------

#define LB_BIND_LOOPS (LB_MAX_RANK - 2)

// An operand of a kernel: which value, and how to walk it.
typedef struct lb_bind_operand {
  const lb_value *value;         // NULL: the packed weights
  int64_t offset;                // of the first element, in elements
  int64_t row, col;              // the kernel's strides, in elements
  int64_t outer[LB_BIND_LOOPS];  // of the loops that there are
} lb_bind_operand;

#define LB_MAX_SPATIAL 3  // axes of an image

// What the zones of an image are made of. Internal to the room.
typedef struct lb_conv_loops {
  lb_tensor x, y;
  int64_t group_in, group_out;  // channels of one group
  lb_axis axes[LB_MAX_SPATIAL];
  const lb_zone *zones[LB_MAX_SPATIAL];  // the present one
  int64_t weight_steps[LB_MAX_SPATIAL];  // of a tap, in elements of the weights
  bool images;                           // rows may be images
  int rows;                              // the axis of the kernel's rows, or -1
  int run, step;                         // the axes of taps, -1: none
  bool adjacent;                         // steps are one piece
  // Of operands that lie like the result: along batch, space and channels.
  int64_t strides[LB_SPEC_MAX_IN + 1][LB_MAX_SPATIAL + 2];
} lb_conv_loops;

// A Resize that makes elements of their neighbours, at concrete sizes. Internal
// to the room.
typedef struct lb_interp {
  lb_resize resize;
  int taps, n;  // axes that change, at most two
  lb_resize_axis axes[2];
  int64_t strides[2];  // of the input
} lb_interp;

// How a partition is computed at these shapes: loops around a kernel's
// rows x cols. Operands: outputs, then inputs, in the spec's order.
typedef struct lb_binding {
  uint32_t n_operands;
  int64_t dims[LB_SDIMS];
  int64_t taps[4];  // strides of a run and of a step, of inputs 0 and 1
  int64_t outer[LB_BIND_LOOPS];
  int n_outer;
  int zones;  // bindings that make all of it: 1, more at borders of images
  int axis;   // zones of one axis are walked in the same way: dims, loops and
              // offsets differ
  uint64_t scalars[LB_SPEC_MAX_SCALARS];  // bits
  const lb_memo_spec *made;               // the spec in the memo, or NULL
  lb_reason refusal;                      // if it could not be bound: why
  size_t table_bytes;  // of tables that operands without a value lie in; 0:
                       // those are the packed weights
  lb_bind_operand operands[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  lb_spec spec;
  union {
    lb_conv_loops walk;  // CONV, WINDOW
    lb_interp blend;     // with tables
  };
} lb_binding;

// A tensor as the plan sees it: dims and strides (data is not read).
typedef lb_status lb_tensor_fn(void *user, const lb_value *v, lb_tensor *out);

// *ok is false where these shapes or strides have no spec; the nodes then run
// one by one.
lb_status lb_partition_bind(const lb_partition *p, lb_tensor_fn *tensor,
                            void *user, lb_binding *out, bool *ok);
// Fills in the tables of a binding that has some.
void lb_partition_fill_tables(const lb_binding *b, void *to);
// The other bindings of a partition that has several, of which `b` is what
// lb_partition_bind gave: the same spec, other elements of the result. Each is
// made in `b`, and lent to `zone` for the call.
typedef lb_status lb_zone_fn(void *user, const lb_binding *zone);
lb_status lb_partition_bind_zones(const lb_partition *p, lb_binding *b,
                                  lb_zone_fn *zone, void *user);

#endif
