// graph/graph.h -- the graph of a model after import: values, nodes and
// regions.
//
// One thread builds and rewrites a graph. After that it never changes, and any
// thread may read it. Everything belongs to the graph's arena and is freed with
// it; only the elements of constants may be in a mapped file, which must
// outlive the graph.
//
// (1) The nodes of a region are in topological order.
// (2) A value has one producer: a node's output or a region's parameter; a
//     constant has none.
// (3) A node reads only constants and values of its own region. A body receives
//     outer values as parameters: the last n_captures inputs of a node with
//     regions are its captures, and the last n_captures parameters of each of
//     its regions receive them. So the inputs of If are cond, captures...;
//     those of Loop are M, cond, carried..., captures...; those of Scan are
//     states..., scanned..., captures....
// (4) Absent optional inputs and unnamed outputs are NULL.
#ifndef LB_GRAPH_GRAPH_H
#define LB_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "base/tensor.h"
#include "graph/attr.h"
#include "graph/op.h"
#include "shape/dim.h"

// The maximal nesting depth of regions; the main region has depth 0.
#define LB_MAX_NESTING 32

// The contents of integer values of up to this many elements are tracked
// symbolically.
#define LB_MAX_KNOWN 64

// What is known about a value. At load the dims are symbolic expressions, at
// planning they are numbers.
typedef struct lb_vinfo {
  lb_dtype dtype;  // LB_NONE: not known yet, or absent
  int rank;        // -1: not known yet
  lb_dim dims[LB_MAX_RANK];
  const lb_tensor *data;  // concrete contents, or NULL; borrowed
  const lb_dim *known;    // symbolic contents of an integer or bool value of
                          // rank 0 or 1, n_known elements, or NULL; borrowed.
                          // Unused where data is set.
  int n_known;
} lb_vinfo;

typedef struct lb_node lb_node;
typedef struct lb_region lb_region;
typedef struct lb_graph lb_graph;

typedef struct lb_value {
  uint32_t id;         // index in graph->values
  const char *name;    // for messages; unique within its region
  lb_vinfo info;       // info.data set: a constant
  lb_node *producer;   // NULL: parameter or constant
  uint32_t out_index;  // index among the producer's outputs
  lb_region *region;   // the region that defines it; NULL: a constant
} lb_value;

// What a skip rule has proved (skip.h): the outputs are views of input `input`.
typedef struct lb_proof {
  uint8_t kind;  // lb_proof_kind
  uint8_t axis;
  uint16_t input;
  int64_t first, n;  // indices along the axis
} lb_proof;

struct lb_node {
  uint32_t id;  // unique in the graph
  lb_op op;
  const char *name;   // never ""; derived from the operator if the model has
                      // none
  lb_region *region;  // the region that contains it
  lb_value **in;
  lb_value **out;
  lb_attr *attrs;
  lb_region **regions;  // If: then, else; Loop, Scan: body
  uint32_t n_in, n_out, n_attrs, n_regions, n_captures;
  uint32_t cap_attrs;
  bool optimized, runtime_skippable;  // see skip.h
  bool in_order;   // optimized alone: output 0 has all elements, in order
  lb_proof proof;  // optimized alone: why
};

struct lb_region {
  uint32_t id;  // unique in the graph
  lb_graph *graph;
  lb_region *parent;  // NULL: the main region
  lb_value **params;
  lb_node **nodes;
  lb_value **results;
  uint32_t n_params, n_nodes, n_results;
  uint32_t cap_params, cap_nodes, cap_results;
};

// A node of the model that is no longer in the graph, and the pass after which
// no result depended on it. A node whose operator a pass replaced is still
// there.
typedef struct lb_removed {
  const char *name;
  lb_op op;  // as in the model
  const char *pass;
} lb_removed;

struct lb_graph {
  lb_arena arena;
  lb_symtab *syms;  // owned
  lb_value **values;
  uint32_t n_values, cap_values, n_nodes, n_regions;
  lb_region *main;  // params: the model's inputs; results: its outputs
  const char **output_names;  // one per result; may differ from the value's
  lb_removed *removed;        // filled by lb_graph_optimize, in pass order
  uint32_t n_removed;
};

lb_status lb_graph_new(lb_graph **out);
void lb_graph_free(lb_graph *g);

// -- building ----------------------------------------------------------------

lb_status lb_region_new(lb_graph *g, lb_region *parent, lb_region **out);
// `name` is copied. dtype is LB_NONE and rank -1 until the caller sets them.
lb_status lb_value_new(lb_graph *g, const char *name, lb_value **out);
// Creates a constant. `t` is copied; its data is borrowed and must be in the
// graph's arena or outlive the graph.
lb_status lb_const_new(lb_graph *g, const char *name, const lb_tensor *t,
                       lb_value **out);
lb_status lb_const_ints(lb_graph *g, const char *name, const int64_t *v,
                        int64_t n, lb_value **out);  // rank 1, int64
lb_status lb_const_f32(lb_graph *g, const char *name, float v, lb_value **out);
lb_status lb_const_i64(lb_graph *g, const char *name, int64_t v,
                       lb_value **out);  // rank 0
// Append to the region; a parameter's region is set to r. Callers may also
// assign arrays of their own.
lb_status lb_region_add_param(lb_region *r, lb_value *v);
lb_status lb_region_add_result(lb_region *r, lb_value *v);
// Creates a node and appends it to r. Its arrays have the given sizes and are
// filled with NULL; it has no attributes.
lb_status lb_node_new(lb_region *r, lb_op op, const char *name, uint32_t n_in,
                      uint32_t n_out, lb_node **out);
void lb_node_set_out(lb_node *n, uint32_t i, lb_value *v);
// NULL if the input or output is absent or i is out of range.
static inline lb_value *lb_node_input(const lb_node *n, uint32_t i) {
  return i < n->n_in ? n->in[i] : NULL;
}
static inline lb_value *lb_node_output(const lb_node *n, uint32_t i) {
  return i < n->n_out ? n->out[i] : NULL;
}
// Appends without checking for an attribute of the same name. The struct is
// copied; the data that it points to is borrowed and must live as long as the
// graph.
lb_status lb_node_add_attr(lb_graph *g, lb_node *n, lb_attr attr);
// These replace an existing attribute of that name; `name` and `v` are copied.
lb_status lb_node_set_int(lb_graph *g, lb_node *n, const char *name, int64_t v);
lb_status lb_node_set_float(lb_graph *g, lb_node *n, const char *name, float v);
lb_status lb_node_set_str(lb_graph *g, lb_node *n, const char *name,
                          const char *v);
lb_status lb_node_set_ints(lb_graph *g, lb_node *n, const char *name,
                           const int64_t *v, uint32_t count);

// -- reading -----------------------------------------------------------------

static inline const lb_tensor *lb_value_const(const lb_value *v) {
  return v ? v->info.data : NULL;
}

// Whether the dims are equal at every shape, as far as the expressions show.
static inline bool lb_value_same_dims(const lb_value *a, const lb_value *b) {
  if (a->info.rank < 0 || a->info.rank != b->info.rank) return false;
  for (int i = 0; i < a->info.rank; i++)
    if (!lb_dim_equal(a->info.dims[i], b->info.dims[i])) return false;
  return true;
}

// Whether the feature map is [batch, spatial..., channels]. See ops.def.
static inline bool lb_op_channels_last(const lb_node *n) {
  return lb_op_has(n->op, LB_TRAIT_CHANNELS_LAST) &&
         lb_attr_int(n, "channels_last", 0) != 0;
}

// Whether it is a Conv of quantised values held as floats. See ops.def.
static inline bool lb_op_exact(const lb_node *n) {
  return n->op == LB_OP_Conv && lb_attr_int(n, "exact", 0) != 0;
}

// Whether it is a u8 x s8 GEMM or convolution with constant weights, for which
// int8 kernels exist.
bool lb_op_is_int8_gemm(const lb_node *n);

// Whether input 0 of an LSTM, GRU or RNN is already multiplied by W. See
// ops.def.
static inline bool lb_op_projected(const lb_node *n) {
  return lb_op_infos[n->op].cls == LB_CLASS_RECURRENT &&
         lb_attr_int(n, "projected", 0) != 0;
}

// Whether input i is required. The trip count and the condition of a Loop are
// not, and neither is W of a projected recurrence.
static inline bool lb_op_needs(const lb_node *n, uint32_t i) {
  return i < (uint32_t)lb_op_infos[n->op].min_in && n->op != LB_OP_Loop &&
         !(i == 1 && lb_op_projected(n));
}

// How messages name a node: "Conv 'conv1'", or "Conv 'conv1' (channels last)"
// where its axes may not be in the model's order. Operators of our own are
// called "node", because users do not know them. Writes into buf and returns
// it.
const char *lb_node_label(const lb_node *n, char *buf, size_t cap);

// Checks (1) to (4), the arities of ops.def, and every index. Errors are
// LB_INTERNAL, because the importer has checked the model.
lb_status lb_graph_verify(const lb_graph *g);

// Writes readable text: one line per node, dims as expressions, regions
// indented.
void lb_graph_dump(const lb_graph *g, lb_strbuf *out);

#endif
