// graph/match.c -- building blocks of patterns: operators, scalars, products.
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

#define MAX_DEPTH 6  // of a tree of multiplications

lb_node *lb_match_op(const lb_value *v, lb_op op) {
  if (!v || !v->producer || v->out_index != 0) return NULL;
  return v->producer->op == op ? v->producer : NULL;
}

lb_node *lb_match_inner(const lb_rewrite *rw, const lb_value *v, lb_op op) {
  lb_node *n = lb_match_op(v, op);
  return n && lb_rewrite_uses(rw, v) == 1 ? n : NULL;
}

double lb_match_elem(const lb_tensor *t, int64_t i) {
  const char *p = (const char *)t->data + (size_t)i * lb_dtype_size(t->dtype);
  uint16_t bits;
  float f;
  double d;
  switch (t->dtype) {
    case LB_F32: memcpy(&f, p, sizeof f); return (double)f;
    case LB_F64: memcpy(&d, p, sizeof d); return d;
    case LB_F16: memcpy(&bits, p, sizeof bits); return lb_f16_to_f32(bits);
    case LB_BF16: memcpy(&bits, p, sizeof bits); return lb_bf16_to_f32(bits);
    default: return NAN;
  }
}

int64_t lb_match_int(const lb_tensor *t, int64_t i) {
  const char *p = (const char *)t->data + i * (int64_t)lb_dtype_size(t->dtype);
  int64_t wide;
  int32_t narrow;
  if (t->dtype == LB_I64) {
    memcpy(&wide, p, sizeof wide);
    return wide;
  }
  memcpy(&narrow, p, sizeof narrow);
  return narrow;
}

bool lb_match_scalar(const lb_value *c, const lb_value *x, double *out) {
  const lb_tensor *t = lb_value_const(c);
  if (!t || !lb_dtype_is_float(t->dtype) || lb_tensor_count(t) != 1)
    return false;
  if (t->rank > 0 && (!x || t->rank > x->info.rank)) return false;
  *out = lb_match_elem(t, 0);
  return true;
}

bool lb_match_with_scalar(const lb_node *n, lb_value **x, double *out) {
  for (uint32_t i = 0; i < 2; i++) {
    if (!lb_match_scalar(n->in[i], n->in[1 - i], out)) continue;
    *x = n->in[1 - i];
    return true;
  }
  return false;
}

bool lb_match_unpadded(const lb_node *n, int n_spatial) {
  const char *mode = lb_attr_str(n, "auto_pad", "NOTSET");
  if (strcmp(mode, "VALID") == 0) return true;
  if (*mode && strcmp(mode, "NOTSET") != 0) return false;
  for (int i = 0; i < 2 * n_spatial; i++)
    if (lb_attr_int_at(n, "pads", i, 0) != 0) return false;
  return true;
}

static bool is_near(double a, double b) {
  return fabs(a - b) <= 1e-6 * fabs(b);
}

// Constants of 16-bit models were rounded to float16 or bfloat16.
static bool is_near_16bit(double a, double b) {
  return is_near(a, (double)lb_f16_to_f32(lb_f64_to_f16(b))) ||
         is_near(a, (double)lb_bf16_to_f32(lb_f32_to_bf16((float)b)));
}

bool lb_match_near(double a, double b) {
  return is_near(a, b) || is_near_16bit(a, b) ||
         (a != 0 && is_near_16bit(1 / a, 1 / b));
}

static bool add_factor(const lb_rewrite *rw, lb_value *v, int depth,
                       lb_product *p);

// Adds the factors of a Mul or Div; false if there are too many.
static bool add_node(const lb_rewrite *rw, const lb_node *n, int depth,
                     lb_product *p) {
  double c;
  lb_value *x;
  if (n->op == LB_OP_Div) {
    if (!lb_match_scalar(n->in[1], n->in[0], &c)) return false;
    p->coef /= c;
    return add_factor(rw, n->in[0], depth + 1, p);
  }
  if (lb_match_with_scalar(n, &x, &c)) {
    p->coef *= c;
    return add_factor(rw, x, depth + 1, p);
  }
  return add_factor(rw, n->in[0], depth + 1, p) &&
         add_factor(rw, n->in[1], depth + 1, p);
}

static bool is_product(const lb_node *n) {
  double c;
  return n->op == LB_OP_Mul ||
         (n->op == LB_OP_Div && lb_match_scalar(n->in[1], n->in[0], &c));
}

static bool add_factor(const lb_rewrite *rw, lb_value *v, int depth,
                       lb_product *p) {
  if (v->producer && lb_rewrite_uses(rw, v) == 1 && depth < MAX_DEPTH &&
      is_product(v->producer))
    return add_node(rw, v->producer, depth, p);
  if (p->n == LB_MAX_FACTORS) return false;
  p->leaf[p->n++] = v;
  return true;
}

bool lb_match_product(const lb_rewrite *rw, const lb_node *n, lb_product *out) {
  *out = (lb_product){.coef = 1};
  return add_node(rw, n, 0, out);
}

bool lb_match_factors(const lb_rewrite *rw, lb_value *v, lb_product *out) {
  *out = (lb_product){.coef = 1};
  return add_factor(rw, v, 0, out);
}
