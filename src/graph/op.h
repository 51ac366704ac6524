// graph/op.h -- the operator table, generated from ops.def.
#ifndef LB_GRAPH_OP_H
#define LB_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum lb_op {
#define LB_OP(id, ...) LB_OP_##id,
#include "graph/ops.def"
  LB_OP_COUNT
} lb_op;

typedef enum lb_op_class {
  LB_CLASS_ELEMENTWISE,
  LB_CLASS_CONTRACTION,
  LB_CLASS_REDUCTION,  // each row to a row or to less: softmax and norms too
  LB_CLASS_WINDOW,     // pooling, resampling
  LB_CLASS_MOVEMENT,   // copies elements to other positions
  LB_CLASS_VIEW,       // the same elements with other dims or strides
  LB_CLASS_CREATE,     // output depends on shapes or scalars alone
  LB_CLASS_RECURRENT,
  LB_CLASS_SEARCH,   // sorting, selection, indices
  LB_CLASS_CONTROL,  // has regions; run by the planner, not a kernel
} lb_op_class;

enum {
#define LB_TRAIT(name, what) LB_TRAIT_BIT_##name,
#include "graph/traits.def"
};

typedef enum lb_trait {  // see traits.def
#define LB_TRAIT(name, what) LB_TRAIT_##name = 1 << LB_TRAIT_BIT_##name,
#include "graph/traits.def"
} lb_trait;

struct lb_infer;
typedef lb_status lb_shape_fn(struct lb_infer *c);

typedef enum lb_skip_id {  // see skip.h
#define LB_SKIP(name, ...) LB_SKIP_ID_##name,
#include "graph/skips.def"
  LB_SKIP_ID_COUNT
} lb_skip_id;

typedef struct lb_op_info {
  const char *name;    // ONNX op_type
  const char *domain;  // "" or "ai.onnx.ml", ...
  int min_in, max_in;  // max_in -1: any number
  int max_out;         // -1: any number
  lb_op_class cls;
  uint32_t deciding;  // bit i: the contents of input i determine output shapes
  uint32_t traits;    // bits: lb_trait
  lb_shape_fn *shape;
  lb_skip_id skip;
} lb_op_info;

extern const lb_op_info lb_op_infos[LB_OP_COUNT];

// Whether it has any of these traits.
static inline bool lb_op_has(lb_op op, uint32_t traits) {
  return (lb_op_infos[op].traits & traits) != 0;
}

// Whether the shape rule gives the dims of all outputs, and the inputs
// determine their contents.
static inline bool lb_op_is_pure(lb_op op) {
  return !lb_op_has(op, LB_TRAIT_DYNAMIC | LB_TRAIT_RANDOM);
}

// LB_OP_COUNT if unknown. "ai.onnx" is an alias of the domain "".
lb_op lb_op_find(const char *domain, const char *name);

#endif
