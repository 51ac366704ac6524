// onnx/import.h -- shared by the files of the importer: the state of an import,
// the scope in which names are resolved, and the draft of a node.
#ifndef LB_ONNX_IMPORT_H
#define LB_ONNX_IMPORT_H

#include "onnx/onnx.h"
#include "onnx/proto.h"

enum { LB_NEWEST_OPSET = 28 };  // newest opset that Limber knows

typedef struct lb_import {
  lb_graph *graph;  // == model->graph
  lb_model *model;  // the result
  const lb_log *log;
  bool copy_weights;
  const char *path;  // external data is in its directory; NULL: refused
  lb_arena scratch;
  lb_map files;         // location -> index in model->files + 1
  size_t sparse_bytes;  // of dense copies of sparse tensors so far
  lb_pb_model pb;
  uint64_t inlined;  // total size of inlined function bodies so far
  uint32_t n_calls;
  bool global_error;  // the error concerns the whole model: add no location
} lb_import;

// A function call that is being inlined.
typedef struct lb_call {
  const lb_pb_function *fn;
  const lb_pb_attr *attrs;  // of the calling node, references replaced
  uint32_t n_attrs;
  lb_map results;  // the function's output name -> the caller's (a C string)
  int depth;       // of nested calls, including this one
  const struct lb_call *caller;  // NULL: outside every function
} lb_call;

// The scope of names. A subgraph sees the names of its parent; a function body
// sees only its own, although its nodes are added to the caller's region.
typedef struct lb_name_scope {
  lb_import *im;
  struct lb_name_scope *parent;
  lb_region *region;
  int depth;              // nesting of regions
  const lb_call *call;    // NULL: outside every function
  const char *prefix;     // of value names; "" outside functions
  const char *call_site;  // name of the model's calling node; NULL outside
                          // functions
  lb_map names;           // name -> lb_value; NULL: an absent function input
  lb_map captured;        // outer value's id -> capture
} lb_name_scope;

typedef struct lb_capture {
  lb_value *outer, *param;
} lb_capture;

// A node before it is added to its region; all arrays are in scratch.
typedef struct lb_draft {
  lb_name_scope *scope;
  const lb_pb_node *src;
  const char *name;
  lb_op op;
  int64_t version;
  lb_value **in;  // has capacity for LB_DRAFT_SPARE more inputs
  lb_pb_str *out;
  lb_attr *attrs;
  uint32_t n_in, n_out, n_attrs;
} lb_draft;

enum { LB_DRAFT_SPARE = 8 };

// "node 'x' (Add)" for error messages.
#define LB_NODE_FMT "node '%.*s' (%.*s)"
#define LB_NODE_ARGS(n) LB_STR((n)->name), LB_STR((n)->op_type)

// -- tensor.c ----------------------------------------------------------------

// Decodes a tensor once. Its elements are not copied if possible.
lb_status lb_import_tensor(lb_import *im, lb_pb_tensor *t,
                           const lb_tensor **out);

// -- external.c --------------------------------------------------------------

typedef struct lb_external {
  lb_pb_str location;
  int64_t offset, length;  // length -1: not specified
} lb_external;

// `label` names the tensor in messages; `need` is its size in bytes.
lb_status lb_import_external(lb_import *im, const lb_external *e,
                             const char *label, size_t need,
                             const uint8_t **out);

// -- import.c ----------------------------------------------------------------

lb_status lb_import_nodes(lb_name_scope *s, lb_pb_nodes *nodes);
lb_status lb_import_graph(lb_name_scope *s, lb_pb_graph *g);
// Adds the node, with n_captures empty inputs at the end, to its region, and
// defines its outputs in the draft's scope.
lb_status lb_draft_add_node(lb_draft *d, uint32_t n_captures, lb_node **out);

// -- scope.c -----------------------------------------------------------------

void lb_name_scope_fini(lb_name_scope *s);
// Finds the value of that name in this scope; creates a capture if it is an
// outer value. *found is false if the name is undefined; *out is NULL for an
// absent function input.
lb_status lb_name_scope_find(lb_name_scope *s, lb_pb_str name, lb_value **out,
                             bool *found);
// The caller has checked that the name is not defined in the scope.
lb_status lb_name_scope_define(lb_name_scope *s, lb_pb_str name, lb_value *v);
// A node's inputs as values, in scratch, with capacity for `spare` more.
lb_status lb_name_scope_inputs(lb_name_scope *s, const lb_pb_node *n,
                               uint32_t spare, lb_value ***out);
// prefix + name, in scratch.
lb_status lb_name_scope_label(const lb_name_scope *s, lb_pb_str name,
                              const char **out);
// A node's name, in scratch. In a function it begins with the name of the
// model's calling node, which users know; a node that computes a result of the
// call has exactly that name.
lb_status lb_name_scope_node(const lb_name_scope *s, lb_pb_str name,
                             const char **out);

// -- control.c ---------------------------------------------------------------

// Adds an If, Loop or Scan node with its regions and captures.
lb_status lb_import_control(lb_draft *d);

// -- function.c --------------------------------------------------------------

// Adds to the total size of inlined functions; fails above the limit. Does
// nothing outside functions.
lb_status lb_call_charge(const lb_name_scope *s, uint64_t size);
// Inlines the body of n->fn in place of the node.
lb_status lb_import_call(lb_name_scope *s, lb_pb_node *n);
// The node's attributes, after resolution of references to attributes of the
// function that is being inlined; unresolved references are left out.
lb_status lb_call_attrs(const lb_name_scope *s, const lb_pb_node *n,
                        const lb_pb_attr **out, uint32_t *count);

// -- upgrade.c ---------------------------------------------------------------

// Rewrites the draft from the form of its opset to that of the newest.
lb_status lb_upgrade(lb_draft *d);

// -- lists.c -----------------------------------------------------------------

// Replaces lists of tensors that are only stacked by tensors.
lb_status lb_pb_stack_lists(lb_pb_graph *g, lb_arena *scratch);

// -- survey.c ----------------------------------------------------------------

typedef struct lb_op_table {
  lb_op_use *rows;  // in the arena, in order of first use
  uint32_t n, cap;
  lb_map index;  // domain, version and op_type -> row + 1
  uint32_t n_nodes;
} lb_op_table;

// Resolves operator, version and function of every reachable node, and counts
// them. Allocates the table's rows, and attributes of bodies from contrib.def,
// in `persistent`.
lb_status lb_pb_resolve(lb_pb_model *m, lb_arena *scratch, lb_arena *persistent,
                        lb_op_table *out);
void lb_op_table_fini(lb_op_table *t);
// Lists all unsupported operators in one LB_UNSUPPORTED error.
lb_status lb_op_table_check(const lb_op_table *t);

#endif
