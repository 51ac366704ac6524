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

const float *lb_attr_floats(const lb_node *n, const char *name,
                            uint32_t *count) {
  const lb_attr *a = lb_attr_find(n, name, LB_ATTR_FLOATS);
  *count = a ? a->n : 0;
  return a ? a->floats : NULL;
}
