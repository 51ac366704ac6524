// shape/eval.c -- the value of a dim, given its symbols'.
#include "shape/expr.h"

typedef __int128 wide;

typedef struct env {
  const int64_t *values;
  int n;
} env;

static lb_status eval_expr(const lb_expr *e, const env *v, int64_t *out);

static lb_status atom_error(const lb_atom *a, const char *what) {
  lb_strbuf text = {0};
  lb_atom_print(a, &text);
  lb_status st = lb_error(LB_INVALID, "%s: %s", lb_strbuf_str(&text), what);
  lb_strbuf_fini(&text);
  return st;
}

static lb_status eval_symbol(const lb_atom *a, const env *v, int64_t *out) {
  if (a->a.k >= v->n) return atom_error(a, "no value given");
  *out = v->values[a->a.k];
  if (*out >= a->facts.at_least) return LB_OK;
  return lb_error(LB_INVALID, "%s: %lld is not a size", a->name,
                  (long long)*out);
}

static lb_status eval_operand(lb_dim d, const env *v, int64_t *out) {
  *out = d.k;
  return d.e ? eval_expr(d.e, v, out) : LB_OK;
}

static lb_status eval_division(const lb_atom *a, int64_t x, int64_t y,
                               int64_t *out) {
  if (y == 0) return atom_error(a, "division by zero");
  if (y == -1) {  // never rounds, and INT64_MIN / -1 is no number
    *out = 0;
    if (a->kind == LB_ATOM_MOD) return LB_OK;
    bool over = __builtin_sub_overflow((int64_t)0, x, out);
    return over ? atom_error(a, "overflows 64 bits") : LB_OK;
  }
  int64_t rest = x % y;
  if (a->kind == LB_ATOM_MOD)
    *out = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  else
    *out = lb_floordiv(x, y) + (a->kind == LB_ATOM_CEILDIV && rest != 0);
  return LB_OK;
}

static lb_status eval_atom(const lb_atom *a, const env *v, int64_t *out) {
  if (a->kind == LB_ATOM_SYMBOL) return eval_symbol(a, v, out);
  int64_t x = 0, y = 0;
  LB_TRY(eval_operand(a->a, v, &x));
  LB_TRY(eval_operand(a->b, v, &y));
  if (a->kind == LB_ATOM_MIN)
    *out = x < y ? x : y;
  else if (a->kind == LB_ATOM_MAX)
    *out = x > y ? x : y;
  else
    return eval_division(a, x, y, out);
  return LB_OK;
}

static lb_status expr_overflow(const lb_expr *e) {
  lb_strbuf text = {0};
  lb_dim_print((lb_dim){0, e}, &text);
  lb_status st = lb_error(LB_INVALID, "%s: overflows 64 bits for these sizes",
                          lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return st;
}

// A factor 0 makes the product 0, however large the others are.
static lb_status eval_prod(const lb_prod *p, const env *v, int64_t *out,
                           bool *over) {
  bool zero = false;
  *out = 1;
  *over = false;
  for (int i = 0; i < p->n; i++) {
    int64_t x = 0;
    LB_TRY(eval_atom(p->atoms[i], v, &x));
    zero = zero || x == 0;
    if (__builtin_mul_overflow(*out, x, out)) *over = true;
  }
  if (zero) *out = 0;
  *over = *over && !zero;
  return LB_OK;
}

// Summed in 128 bits: only the result has to fit, not what leads to it.
static lb_status eval_expr(const lb_expr *e, const env *v, int64_t *out) {
  wide sum = 0;
  for (int i = 0; i < e->n; i++) {
    int64_t x = 0;
    bool over;
    LB_TRY(eval_prod(e->terms[i].prod, v, &x, &over));
    if (over || __builtin_add_overflow(sum, (wide)e->terms[i].coef * x, &sum))
      return expr_overflow(e);
  }
  if (sum < INT64_MIN || sum > INT64_MAX) return expr_overflow(e);
  *out = (int64_t)sum;
  return LB_OK;
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

lb_status lb_dim_eval(lb_dim d, const int64_t *values, int n, int64_t *out) {
  *out = d.k;
  if (!d.e) return LB_OK;
  env v = {values, n};
  return eval_expr(d.e, &v, out);
}
