// graph/op.c -- the operator table, generated from ops.def.
#include "graph/op.h"

#include <string.h>

#define LB_OP(id, min_in, max_in, max_out, cls, deciding, traits, shape, ...) \
  lb_shape_fn shape;
#include "graph/ops.def"

// The names of traits as ops.def writes them.
enum {
#define LB_TRAIT(name, what) name = LB_TRAIT_##name,
#include "graph/traits.def"
};

const lb_op_info lb_op_infos[LB_OP_COUNT] = {
#define ROW(id, domain, min_in, max_in, max_out, cls, deciding, traits, shape, \
            batch, sink, skip)                                                 \
  [LB_OP_##id] = {#id,     domain,           min_in,   max_in,                 \
                  max_out, LB_CLASS_##cls,   deciding, traits,                 \
                  shape,   LB_SKIP_ID_##skip},
#define LB_OP(id, ...) ROW(id, "", __VA_ARGS__)
#define LB_INTERNAL_OP(id, ...) ROW(id, "ai.limber", __VA_ARGS__)
#include "graph/ops.def"
};

// A linear scan: about two hundred rows, most of which differ in the first
// letter, are searched faster than an index could be built.
lb_op lb_op_find(const char *domain, const char *name) {
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  for (int i = 0; i < LB_OP_COUNT; i++) {
    const lb_op_info *row = &lb_op_infos[i];
    if (row->name[0] == name[0] && strcmp(row->name, name) == 0 &&
        strcmp(row->domain, domain) == 0)
      return (lb_op)i;
  }
  return LB_OP_COUNT;
}
