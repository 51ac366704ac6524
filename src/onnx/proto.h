// onnx/proto.h -- a model file as small structs that point into its bytes.
//
// Has only the fields that the importer needs. Names are spans of the file;
// attribute payloads are decoded once into the graph's arena, tensors at first
// use. Everything else is in a scratch arena that is freed after the import.
#ifndef LB_ONNX_PROTO_H
#define LB_ONNX_PROTO_H

#include "base/arena.h"
#include "base/map.h"
#include "graph/graph.h"
#include "onnx/wire.h"

#define LB_MAX_CALLS 64  // nested function calls

typedef struct lb_pb_str {  // bytes of the file; no zero byte inside
  const char *p;
  size_t n;
} lb_pb_str;

// For printf's %.*s. Names in messages are truncated to 200 bytes.
#define LB_STR(s) ((s).n < 200 ? (int)(s).n : 200), ((s).n ? (s).p : "")

typedef struct lb_pb_opset {
  lb_pb_str domain;  // "" for ai.onnx
  int64_t version;
} lb_pb_opset;

typedef struct lb_pb_tensor {
  lb_wire body;  // the TensorProto, or the SparseTensorProto
  lb_pb_str name;
  bool sparse;
  const lb_tensor *decoded;  // NULL before its first use
  lb_value *value;           // its constant; NULL before it is created
} lb_pb_tensor;

typedef struct lb_pb_dim {
  int64_t size;    // if it has no name
  lb_pb_str name;  // n == 0: none
} lb_pb_dim;

typedef enum lb_pb_type {
  LB_PB_UNTYPED,
  LB_PB_TENSOR,
  LB_PB_OTHER,  // sequence, map, optional, sparse
} lb_pb_type;

typedef struct lb_pb_value {
  lb_pb_str name;
  lb_pb_type type;
  int64_t elem;  // TensorProto.DataType
  int64_t rank;  // -1: no shape
  lb_pb_dim *dims;
} lb_pb_value;

typedef struct lb_pb_attr {
  lb_pb_str name;
  lb_pb_str ref;              // name of the function's attribute; n == 0: none
  bool plain;                 // the payload is in `attr`
  lb_attr attr;               // its name is set even if not plain
  lb_pb_tensor *tensor;       // TENSOR or SPARSE_TENSOR, or NULL
  struct lb_pb_graph *graph;  // GRAPH, or NULL
} lb_pb_attr;

typedef struct lb_pb_node {
  lb_pb_str name;  // never empty: by default from operator type and index
  lb_pb_str op_type, domain, overload;
  lb_pb_str *refs;  // inputs, then the outer names that its subgraphs read
  lb_pb_str *out;
  lb_pb_attr *attrs;
  uint32_t n_in, n_refs, n_out, n_attrs;
  // set by lb_pb_resolve:
  int op;                     // an lb_op, or LB_PB_CONSTANT; unset for a call
  int64_t version;            // opset version of its domain in this body
  struct lb_pb_function *fn;  // the function that it calls, or NULL
  lb_value *value;            // Constant: created at first use
} lb_pb_node;

enum { LB_PB_CONSTANT = LB_OP_COUNT + 1 };

typedef struct lb_pb_nodes {
  lb_pb_node *at;
  uint32_t n;
  bool sorted;  // by lb_pb_sort
} lb_pb_nodes;

typedef struct lb_pb_graph {
  lb_pb_str name;
  lb_pb_nodes nodes;
  lb_pb_tensor *inits;  // dense and sparse
  lb_pb_value *in, *out;
  uint32_t n_inits, n_in, n_out;
  lb_pb_str *outer;  // names read here but defined outside, without duplicates
  uint32_t n_outer;
} lb_pb_graph;

typedef struct lb_pb_function {
  lb_pb_str name, domain, overload;
  lb_pb_str *in, *out;
  lb_pb_attr *defaults;
  lb_pb_nodes nodes;
  lb_pb_opset *opsets;
  uint32_t n_in, n_out, n_defaults, n_opsets;
  bool reached;  // by lb_pb_resolve
  struct lb_pb_function *next;
} lb_pb_function;

typedef struct lb_pb_prop {
  lb_pb_str key, value;
} lb_pb_prop;

typedef struct lb_pb_model {
  int64_t ir_version, model_version;
  lb_pb_str producer_name, producer_version, domain, description;
  lb_pb_graph *graph;  // never NULL
  lb_pb_opset *opsets;
  lb_pb_function *functions;
  lb_pb_prop *props;
  uint32_t n_opsets, n_functions, n_props;
} lb_pb_model;

// Reads the whole file except tensor data. Attribute payloads are allocated in
// `persistent`.
lb_status lb_pb_read(lb_span file, lb_arena *scratch, lb_arena *persistent,
                     lb_pb_model *out);

// Sorts the nodes topologically; a valid order is kept. Two nodes that define
// the same name, and cycles, are errors.
lb_status lb_pb_sort(lb_pb_nodes *nodes, lb_arena *scratch);

static inline bool lb_pb_same(lb_pb_str a, lb_pb_str b) {
  return a.n == b.n && (a.n == 0 || __builtin_memcmp(a.p, b.p, a.n) == 0);
}
bool lb_pb_is(lb_pb_str s, const char *text);
// NUL-terminated copy; NULL if memory runs out.
char *lb_pb_cstr(lb_arena *a, lb_pb_str s);
// The version of a domain; 0: not imported.
int64_t lb_pb_version(const lb_pb_opset *sets, uint32_t n, lb_pb_str domain);
const char *lb_pb_type_name(int64_t onnx_type);  // "float8e5m2"

#endif
