// graph/attr.h -- the attributes of a node, by ONNX name.
#ifndef LB_GRAPH_ATTR_H
#define LB_GRAPH_ATTR_H

#include <stdint.h>

#include "base/tensor.h"

struct lb_node;

typedef enum lb_attr_kind {
  LB_ATTR_INT,
  LB_ATTR_FLOAT,
  LB_ATTR_STRING,
  LB_ATTR_INTS,
  LB_ATTR_FLOATS,
  LB_ATTR_STRINGS,
  LB_ATTR_TENSOR,
} lb_attr_kind;

typedef struct lb_attr {  // everything borrowed from the graph's arena
  const char *name;
  lb_attr_kind kind;
  uint32_t n;  // elements of ints, floats, strings; bytes of s
  union {
    int64_t i;
    float f;
    const char *s;  // NUL-terminated as well
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
    const lb_tensor *tensor;
  };
} lb_attr;

// NULL if there is none of that name and kind.
const lb_attr *lb_attr_find(const struct lb_node *n, const char *name,
                            lb_attr_kind kind);
bool lb_attr_has(const struct lb_node *n, const char *name);
int64_t lb_attr_int(const struct lb_node *n, const char *name, int64_t dflt);
float lb_attr_float(const struct lb_node *n, const char *name, float dflt);
const char *lb_attr_str(const struct lb_node *n, const char *name,
                        const char *dflt);
// Element i of a list, or `dflt` if the list is shorter.
int64_t lb_attr_int_at(const struct lb_node *n, const char *name, int i,
                       int64_t dflt);
// The list and its length; NULL and 0 if absent.
const int64_t *lb_attr_ints(const struct lb_node *n, const char *name,
                            uint32_t *count);
const float *lb_attr_floats(const struct lb_node *n, const char *name,
                            uint32_t *count);

// The dtype with ONNX number `code` (TensorProto.DataType); LB_NONE if it is
// not supported.
lb_dtype lb_attr_dtype(int64_t code);
// The ONNX number of a dtype other than LB_NONE.
int64_t lb_attr_code(lb_dtype t);

#endif
