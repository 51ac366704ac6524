// shape/eval.c -- evaluates a dim for given values of its symbols.
#include "shape/expr.h"

typedef __int128 wide;

typedef struct env {
  const int64_t *values;
  int n;
} env;

static bool eval_expr(const lb_expr *e, const env *v, int64_t *out);

static bool eval_symbol(const lb_atom *a, const env *v, int64_t *out) {
  if (a->a.k >= v->n) return false;
  *out = v->values[a->a.k];
  return *out >= a->range.at_least;
}

static bool eval_operand(lb_dim d, const env *v, int64_t *out) {
  *out = d.k;
  return !d.e || eval_expr(d.e, v, out);
}

static bool eval_division(const lb_atom *a, int64_t x, int64_t y,
                          int64_t *out) {
  if (y == 0) return false;
  if (y == -1) {  // never rounds, and INT64_MIN / -1 overflows
    *out = 0;
    return a->kind == LB_ATOM_MOD ||
           !__builtin_sub_overflow((int64_t)0, x, out);
  }
  int64_t rest = x % y;
  if (a->kind == LB_ATOM_MOD)
    *out = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  else
    *out = lb_floordiv(x, y) + (a->kind == LB_ATOM_CEILDIV && rest != 0);
  return true;
}

static bool eval_atom(const lb_atom *a, const env *v, int64_t *out) {
  if (a->kind == LB_ATOM_SYMBOL) return eval_symbol(a, v, out);
  int64_t x = 0, y = 0;
  if (!eval_operand(a->a, v, &x) || !eval_operand(a->b, v, &y)) return false;
  if (a->kind == LB_ATOM_MIN)
    *out = x < y ? x : y;
  else if (a->kind == LB_ATOM_MAX)
    *out = x > y ? x : y;
  else
    return eval_division(a, x, y, out);
  return true;
}

// A factor 0 makes the product 0, however large the others are.
static bool eval_prod(const lb_prod *p, const env *v, int64_t *out) {
  bool zero = false, over = false;
  *out = 1;
  for (int i = 0; i < p->n; i++) {
    int64_t x = 0;
    if (!eval_atom(p->atoms[i], v, &x)) return false;
    zero = zero || x == 0;
    if (__builtin_mul_overflow(*out, x, out)) over = true;
  }
  if (zero) *out = 0;
  return zero || !over;
}

// Sums in 128 bits: only the result has to fit, not the intermediate values.
static bool eval_expr(const lb_expr *e, const env *v, int64_t *out) {
  wide sum = 0;
  for (int i = 0; i < e->n; i++) {
    int64_t x = 0;
    if (!eval_prod(e->terms[i].prod, v, &x) ||
        __builtin_add_overflow(sum, (wide)e->terms[i].coef * x, &sum))
      return false;
  }
  *out = (int64_t)sum;
  return sum >= INT64_MIN && sum <= INT64_MAX;
}

static bool has_values(lb_dim d, const env *v) {
  for (int i = 0; d.e && i < d.e->n; i++) {
    const lb_prod *p = d.e->terms[i].prod;
    for (int k = 0; k < p->n; k++) {
      const lb_atom *a = p->atoms[k];
      bool has = a->kind == LB_ATOM_SYMBOL
                     ? a->a.k < v->n && v->values[a->a.k] >= 0
                     : has_values(a->a, v) && has_values(a->b, v);
      if (!has) return false;
    }
  }
  return true;
}

bool lb_dim_has_values(lb_dim d, const int64_t *values, int n) {
  env v = {values, n};
  return has_values(d, &v);
}

bool lb_dim_try_eval(lb_dim d, const int64_t *values, int n, int64_t *out) {
  env v = {values, n};
  return eval_operand(d, &v, out);
}
