// onnx/import.h -- what the importing files share: the import as a whole, the
// scope in which names are looked up, and a node while it is being made.
#ifndef LB_ONNX_IMPORT_H
#define LB_ONNX_IMPORT_H

#include "onnx/onnx.h"
#include "onnx/proto.h"

enum { LB_NEWEST_OPSET = 28 };  // that Limber knows

typedef struct lb_import {
  lb_graph *graph;  // == model->graph
  lb_model *model;  // being filled
  const lb_log *log;
  bool copy_weights;
  const char *path;  // external data lies beside it; NULL: refused
  lb_arena scratch;
  lb_map files;         // location -> place in model->files + 1
  size_t sparse_bytes;  // of sparse tensors made dense so far
  lb_pb_model pb;
  uint64_t inlined;  // size of all function bodies put in place so far
  uint32_t n_calls;
  bool whole;  // the error is about the model, not the place it was met at
} lb_import;

// One function call that is being put in place.
typedef struct lb_call {
  const lb_pb_function *fn;
  const lb_pb_attr *attrs;  // of the calling node, references replaced
  uint32_t n_attrs;
  lb_map results;  // the function's output name -> the caller's (a C string)
  int depth;       // of calls, this one included
  const struct lb_call *caller;  // NULL: outside every function
} lb_call;

// Where names mean something. A subgraph sees its parent's names; a function's
// body sees only its own, though its nodes go to the caller's region.
typedef struct lb_name_scope {
  lb_import *im;
  struct lb_name_scope *parent;
  lb_region *region;
  int depth;            // of regions
  const lb_call *call;  // NULL: outside every function
  const char *prefix;   // of names of values: "" outside functions
  const char *within;   // the model's node that calls; NULL outside functions
  lb_map names;         // name -> lb_value; NULL: an absent function input
  lb_map captured;      // outer value's id -> capture
} lb_name_scope;

typedef struct lb_capture {
  lb_value *outer, *param;
} lb_capture;

// A node before it is made; everything in scratch.
typedef struct lb_draft {
  lb_name_scope *scope;
  const lb_pb_node *src;
  const char *name;
  lb_op op;
  int64_t version;
  lb_value **in;  // LB_DRAFT_SPARE more fit than the model gave
  lb_pb_str *out;
  lb_attr *attrs;
  uint32_t n_in, n_out, n_attrs;
} lb_draft;

enum { LB_DRAFT_SPARE = 8 };

// "node 'x' (Add)" for error messages.
#define LB_NODE_FMT "node '%.*s' (%.*s)"
#define LB_NODE_ARGS(n) LB_STR((n)->name), LB_STR((n)->op_type)

// -- tensor.c ----------------------------------------------------------------

// Elements stay where they are if they can; decoded once.
lb_status lb_import_tensor(lb_import *im, lb_pb_tensor *t,
                           const lb_tensor **out);

// -- external.c --------------------------------------------------------------

typedef struct lb_external {
  lb_pb_str location;
  int64_t offset, length;  // length -1: not given
} lb_external;

// `label` names the tensor in messages; `need` is its size in bytes.
lb_status lb_import_external(lb_import *im, const lb_external *e,
                             const char *label, size_t need,
                             const uint8_t **out);

// -- import.c ----------------------------------------------------------------

lb_status lb_import_nodes(lb_name_scope *s, lb_pb_nodes *nodes);
lb_status lb_import_graph(lb_name_scope *s, lb_pb_graph *g);
// Makes the drafted node, its last n_captures inputs empty, and defines its
// outputs in the draft's scope.
lb_status lb_draft_make(lb_draft *d, uint32_t n_captures, lb_node **out);

// -- scope.c -----------------------------------------------------------------

void lb_name_scope_fini(lb_name_scope *s);
// The value of that name in this scope, captured from outside if need be.
// *found is false if nothing defines it; NULL is an absent function input.
lb_status lb_name_scope_find(lb_name_scope *s, lb_pb_str name, lb_value **out,
                             bool *found);
// Nothing else may have that name in the scope: the caller has looked.
lb_status lb_name_scope_define(lb_name_scope *s, lb_pb_str name, lb_value *v);
// A node's inputs as values, in scratch, with room for `spare` more.
lb_status lb_name_scope_inputs(lb_name_scope *s, const lb_pb_node *n,
                               uint32_t spare, lb_value ***out);
// prefix + name, in scratch.
lb_status lb_name_scope_label(const lb_name_scope *s, lb_pb_str name,
                              const char **out);
// A node's name, in scratch. In functions it begins with that of the model's
// node, which whoever reads it knows; a node that makes a result of the call is
// called just that.
lb_status lb_name_scope_node(const lb_name_scope *s, lb_pb_str name,
                             const char **out);

// -- control.c ---------------------------------------------------------------

// Makes If, Loop or Scan from a draft, with its regions and captures.
lb_status lb_import_control(lb_draft *d);

// -- function.c --------------------------------------------------------------

// Adds to the size of what functions expand to, which has a limit. Nothing to
// do outside functions.
lb_status lb_call_charge(const lb_name_scope *s, uint64_t size);
// Puts the body of node->fn in place of the node.
lb_status lb_import_call(lb_name_scope *s, lb_pb_node *n);
// The node's attributes, with references to attributes of the function that is
// being put in place replaced; those that refer to nothing are left out.
lb_status lb_call_attrs(const lb_name_scope *s, const lb_pb_node *n,
                        const lb_pb_attr **out, uint32_t *count);

// -- upgrade.c ---------------------------------------------------------------

// Rewrites the draft from its opset's form to the newest.
lb_status lb_upgrade(lb_draft *d);

// -- lists.c -----------------------------------------------------------------

// Lists of tensors that are only stacked become tensors.
lb_status lb_pb_stack_lists(lb_pb_graph *g, lb_arena *scratch);

// -- survey.c ----------------------------------------------------------------

typedef struct lb_op_table {
  lb_op_use *rows;  // in the arena, in order of first use
  uint32_t n, cap;
  lb_map index;  // domain, version and op_type -> row + 1
  uint32_t n_nodes;
} lb_op_table;

// Finds operator, version and function of every node that can be reached, and
// counts them. The table's rows lie in `keep`, and so do attributes of bodies
// that are Limber's own.
lb_status lb_pb_resolve(lb_pb_model *m, lb_arena *scratch, lb_arena *keep,
                        lb_op_table *out);
void lb_op_table_fini(lb_op_table *t);
// One LB_UNSUPPORTED error with all that Limber does not have, or success.
lb_status lb_op_table_check(const lb_op_table *t);

#endif
