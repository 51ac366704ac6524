// graph/graph.h -- a model after import: values, nodes, regions.
//
// A graph is built by one thread, then never changes; any thread may read it.
// Everything lives in the graph's arena and is freed with it. Constants'
// elements may lie in a mapped file that outlives the graph.
//
// (1) Nodes of a region stand in topological order.
// (2) A value has one producer: a node's output, a region's parameter, or none
//     (a constant).
// (3) A node reads values of its own region and constants, nothing else: what
//     a body takes from outside it gets as a parameter. The last n_captures
//     inputs of a node with regions are those captures, and the last
//     n_captures parameters of each of its regions receive them. So If has
//     inputs cond, captures...; Loop has M, cond, carried..., captures...;
//     Scan has states..., scanned..., captures....
// (4) Absent optional inputs and unnamed outputs are NULL.
#ifndef LB_GRAPH_GRAPH_H
#define LB_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "base/tensor.h"
#include "graph/attr.h"
#include "graph/op.h"
#include "shape/dim.h"

// Regions nest at most this deep; the main region is at depth 0.
#define LB_MAX_NESTING 32

// Contents of up to this many integers are followed through the graph.
#define LB_MAX_KNOWN 64

// What is known of a value. The same struct serves symbols at load and plain
// numbers at planning.
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
  uint32_t id;         // its place in graph->values
  const char *name;    // for people; unique within its region
  lb_vinfo info;       // info.data set: a constant
  lb_node *producer;   // NULL: parameter or constant
  uint32_t out_index;  // which output of the producer
  lb_region *region;   // where it is defined; NULL: a constant
} lb_value;

struct lb_node {
  uint32_t id;  // unique in the graph
  lb_op op;
  const char *name;   // never ""; made from the operator if the model had none
  lb_region *region;  // where it stands
  lb_value **in;
  lb_value **out;
  lb_attr *attrs;
  lb_region **regions;  // If: then, else; Loop, Scan: body
  uint32_t n_in, n_out, n_attrs, n_regions, n_captures;
  uint32_t cap_attrs;
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

// A node of the model that is gone, and the pass that left no reader of its
// results. A node that a pass gave another operator is not gone.
typedef struct lb_removed {
  const char *name;
  lb_op op;  // as the model has it
  const char *pass;
} lb_removed;

struct lb_graph {
  lb_arena arena;
  lb_symtab *syms;  // owned
  lb_value **values;
  uint32_t n_values, cap_values, n_nodes, n_regions;
  lb_region *main;  // params: the model's inputs; results: its outputs
  const char **output_names;  // one per result; may differ from the value's
  lb_removed *removed;        // by lb_graph_optimize, in the order of passes
  uint32_t n_removed;
};

lb_status lb_graph_new(lb_graph **out);
void lb_graph_free(lb_graph *g);

// -- building ----------------------------------------------------------------

lb_status lb_region_new(lb_graph *g, lb_region *parent, lb_region **out);
// `name` is copied. dtype LB_NONE and rank -1 until set by the caller.
lb_status lb_value_new(lb_graph *g, const char *name, lb_value **out);
// A constant; `t` is copied, its data is borrowed and must outlive the graph
// (or lie in the graph's arena).
lb_status lb_const_new(lb_graph *g, const char *name, const lb_tensor *t,
                       lb_value **out);
lb_status lb_const_ints(lb_graph *g, const char *name, const int64_t *v,
                        int64_t n, lb_value **out);  // rank 1, int64
lb_status lb_const_f32(lb_graph *g, const char *name, float v, lb_value **out);
lb_status lb_const_i64(lb_graph *g, const char *name, int64_t v,
                       lb_value **out);  // rank 0
// Appends; a parameter's region is set to r. Arrays made by hand work as well.
lb_status lb_region_add_param(lb_region *r, lb_value *v);
lb_status lb_region_add_result(lb_region *r, lb_value *v);
// Arrays have the given sizes, filled with NULL; attrs are empty.
lb_status lb_node_new(lb_region *r, lb_op op, const char *name, uint32_t n_in,
                      uint32_t n_out, lb_node **out);  // appended to r
void lb_node_set_out(lb_node *n, uint32_t i, lb_value *v);
// NULL where it is absent, or the list is not so long.
static inline lb_value *lb_node_input(const lb_node *n, uint32_t i) {
  return i < n->n_in ? n->in[i] : NULL;
}
static inline lb_value *lb_node_output(const lb_node *n, uint32_t i) {
  return i < n->n_out ? n->out[i] : NULL;
}
// Appends without looking for another of that name. The struct is copied, what
// it points to is borrowed and must live as long as the graph.
lb_status lb_node_add_attr(lb_graph *g, lb_node *n, lb_attr attr);
// These replace an attribute of that name; `name` and `v` are copied.
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

// Have they equal dims at every shape, as far as expressions say?
static inline bool lb_value_same_dims(const lb_value *a, const lb_value *b) {
  if (a->info.rank < 0 || a->info.rank != b->info.rank) return false;
  for (int i = 0; i < a->info.rank; i++)
    if (!lb_dim_equal(a->info.dims[i], b->info.dims[i])) return false;
  return true;
}

// Is its image [batch, space..., channels]? See ops.def.
static inline bool lb_op_channels_last(const lb_node *n) {
  return lb_op_has(n->op, LB_TRAIT_CHANNELS_LAST) &&
         lb_attr_int(n, "channels_last", 0) != 0;
}

// Does it convolve what was bytes? See ops.def.
static inline bool lb_op_exact(const lb_node *n) {
  return n->op == LB_OP_Conv && lb_attr_int(n, "exact", 0) != 0;
}

// Does it multiply unsigned bytes by constant signed ones, as kernels do?
bool lb_op_is_int8_gemm(const lb_node *n);

// Is input 0 of an LSTM, GRU or RNN multiplied with W already? See ops.def.
static inline bool lb_op_projected(const lb_node *n) {
  return lb_op_infos[n->op].cls == LB_CLASS_RECURRENT &&
         lb_attr_int(n, "projected", 0) != 0;
}

// Must input i be there? Loop's trip count and condition need not, and neither
// need the weights of what is projected.
static inline bool lb_op_needs(const lb_node *n, uint32_t i) {
  return i < (uint32_t)lb_op_infos[n->op].min_in && n->op != LB_OP_Loop &&
         !(i == 1 && lb_op_projected(n));
}

// "Conv 'conv1'": how errors name a node; "Conv 'conv1' (channels last)" where
// its axes may not be in the model's order, "node 'conv1'" if its operator is
// one of ours, which nobody knows. Into buf; returns buf.
const char *lb_node_label(const lb_node *n, char *buf, size_t cap);

// Checks (1) to (4), arities against ops.def, and every index. LB_INTERNAL
// errors, since the importer has checked the model.
lb_status lb_graph_verify(const lb_graph *g);

// Readable text: one line a node, dims as expressions, regions indented.
void lb_graph_dump(const lb_graph *g, lb_strbuf *out);

#endif
