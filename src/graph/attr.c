// graph/attr.c -- reading attributes.
#include "graph/attr.h"

#include <string.h>

#include "graph/graph.h"

const lb_attr *lb_attr_find(const lb_node *n, const char *name,
                            lb_attr_kind kind) {
  for (uint32_t i = 0; i < n->n_attrs; i++) {
    const lb_attr *a = &n->attrs[i];
    if (a->kind == kind && strcmp(a->name, name) == 0) return a;
  }
  return NULL;
}

bool lb_attr_has(const lb_node *n, const char *name) {
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (strcmp(n->attrs[i].name, name) == 0) return true;
  return false;
}

int64_t lb_attr_int(const lb_node *n, const char *name, int64_t dflt) {
  const lb_attr *a = lb_attr_find(n, name, LB_ATTR_INT);
  return a ? a->i : dflt;
}

float lb_attr_float(const lb_node *n, const char *name, float dflt) {
  const lb_attr *a = lb_attr_find(n, name, LB_ATTR_FLOAT);
  return a ? a->f : dflt;
}

const char *lb_attr_str(const lb_node *n, const char *name, const char *dflt) {
  const lb_attr *a = lb_attr_find(n, name, LB_ATTR_STRING);
  return a ? a->s : dflt;
}

const int64_t *lb_attr_ints(const lb_node *n, const char *name,
                            uint32_t *count) {
  const lb_attr *a = lb_attr_find(n, name, LB_ATTR_INTS);
  *count = a ? a->n : 0;
  return a ? a->ints : NULL;
}

int64_t lb_attr_int_at(const lb_node *n, const char *name, int i,
                       int64_t dflt) {
  uint32_t count;
  const int64_t *list = lb_attr_ints(n, name, &count);
  return list && (uint32_t)i < count ? list[i] : dflt;
}

const float *lb_attr_floats(const lb_node *n, const char *name,
                            uint32_t *count) {
  const lb_attr *a = lb_attr_find(n, name, LB_ATTR_FLOATS);
  *count = a ? a->n : 0;
  return a ? a->floats : NULL;
}

#define CODES 17

lb_dtype lb_attr_dtype(int64_t code) {
  static const lb_dtype types[CODES] = {
      [1] = LB_F32,   [2] = LB_U8,   [3] = LB_I8,   [4] = LB_U16,
      [5] = LB_I16,   [6] = LB_I32,  [7] = LB_I64,  [9] = LB_BOOL,
      [10] = LB_F16,  [11] = LB_F64, [12] = LB_U32, [13] = LB_U64,
      [16] = LB_BF16,
  };
  return code > 0 && code < CODES ? types[code] : LB_NONE;
}

int64_t lb_attr_code(lb_dtype t) {
  int64_t code = CODES - 1;
  while (code > 0 && lb_attr_dtype(code) != t) code--;
  return code;
}
