// shape/div.c -- floor, ceiling and modulo of sums.
//
// All rules hold for negative numbers too. A quotient may be defined where the
// division is not: (a*n)/n becomes a, which has a value at n == 0.
#include <assert.h>

#include "shape/expr.h"

static lb_fail by_const(lb_symtab *t, lb_atom_kind kind, const lb_poly *a,
                        int64_t c, lb_poly *out);
static lb_fail by_poly(lb_symtab *t, lb_atom_kind kind, lb_poly a, lb_poly b,
                       lb_poly *out);

// -- by constants -----------------------------------------------------------

// floor((q*c*p + r)/c) = q*p + floor(r/c). Adds sign*q*p to `out` and leaves r
// in *a, with coefficients smaller than c and the constant in [0,c).
static lb_fail extract_quotients(lb_poly *a, int64_t c, int64_t sign,
                                 lb_poly *out) {
  lb_poly rest = {0};
  for (int i = 0; i < a->n; i++) {
    lb_term x = a->t[i];
    bool constant = x.prod == &lb_prod_one;
    int64_t q = constant ? lb_floordiv(x.coef, c) : x.coef / c;
    LB_FIT(lb_poly_put(out, sign, (lb_term){q, x.prod}));
    LB_FIT(lb_poly_put(&rest, 1, x));
    LB_FIT(lb_poly_put(&rest, -c, (lb_term){q, x.prod}));
  }
  *a = rest;
  return LB_FAIL_NONE;
}

// floor((g*p + k)/(g*c)) = floor((p + floor(k/g))/c).
static lb_fail cancel_gcd(lb_poly *a, int64_t *c) {
  uint64_t g = (uint64_t)*c;
  for (int i = 0; i < a->n; i++)
    if (a->t[i].prod != &lb_prod_one) g = lb_gcd(g, lb_abs(a->t[i].coef));
  if (g == 1) return LB_FAIL_NONE;
  lb_poly p = {0};
  for (int i = 0; i < a->n; i++) {
    int64_t q = lb_floordiv(a->t[i].coef, (int64_t)g);
    LB_FIT(lb_poly_put(&p, 1, (lb_term){q, a->t[i].prod}));
  }
  *a = p;
  *c /= (int64_t)g;
  return LB_FAIL_NONE;
}

// floor(a/c) = -floor((c-1-a)/c). Makes the first coefficient positive.
static lb_fail normalise_sign(lb_poly *a, int64_t c, int64_t *sign) {
  if (a->t[0].coef > 0) return LB_FAIL_NONE;
  lb_poly p = {.n = c > 1, .t = {{c - 1, &lb_prod_one}}};
  LB_FIT(lb_poly_add(&p, -1, a));
  *a = p;
  *sign = -*sign;
  return LB_FAIL_NONE;
}

// If a is floor(x/y) + k: floor(a/b) = floor((x + k*y)/(y*b)) for b > 0.
static lb_fail flatten(lb_symtab *t, const lb_poly *a, const lb_poly *b,
                       lb_poly *x, lb_poly *y) {
  const lb_atom *inner = lb_poly_atom(a);
  lb_poly d;
  lb_poly_of(inner->a, x);
  lb_poly_of(inner->b, &d);
  LB_FIT(lb_poly_add(x, lb_poly_constant(a), &d));
  return lb_poly_mul(t, &d, b, y);
}

static bool is_floor(const lb_poly *a) {
  const lb_atom *inner = lb_poly_atom(a);
  return inner && inner->kind == LB_ATOM_FLOORDIV;
}

// out += sign * kind(a/b), as an atom unless its range has a single value.
static lb_fail add_atom(lb_symtab *t, lb_atom_kind kind, const lb_poly *a,
                        lb_dim b, int64_t sign, lb_poly *out) {
  lb_dim x;
  LB_FIT(lb_poly_intern(t, a, &x));
  lb_dim_range f = lb_range_atom(kind, x, b);
  if (f.at_least == f.at_most)
    return lb_poly_put(out, sign, (lb_term){f.at_least, &lb_prod_one});
  lb_term atom = {1, NULL};
  LB_FIT(lb_atom_intern(t, kind, x, b, &atom.prod));
  return lb_poly_put(out, sign, atom);
}

// out = floor(a/c), for c > 0.
static lb_fail floor_by(lb_symtab *t, lb_poly a, int64_t c, lb_poly *out) {
  int64_t sign = 1;
  out->n = 0;
  LB_FIT(extract_quotients(&a, c, sign, out));
  if (a.n == 0 || a.t[0].prod == &lb_prod_one) return LB_FAIL_NONE;
  LB_FIT(cancel_gcd(&a, &c));
  LB_FIT(normalise_sign(&a, c, &sign));
  if (is_floor(&a)) {
    lb_poly by = {.n = 1, .t = {{c, &lb_prod_one}}}, x, y, q;
    lb_fail f = flatten(t, &a, &by, &x, &y);
    if (!f) f = by_poly(t, LB_ATOM_FLOORDIV, x, y, &q);
    if (!f) return lb_poly_add(out, sign, &q);
    if (f == LB_FAIL_MEMORY) return f;
  }
  return add_atom(t, LB_ATOM_FLOORDIV, &a, lb_dim_const(c), sign, out);
}

// ceil(a/c) = -floor(-a/c), floor(a/-c) = floor(-a/c), a%c = a-c*floor(a/c).
static lb_fail by_const(lb_symtab *t, lb_atom_kind kind, const lb_poly *a,
                        int64_t c, lb_poly *out) {
  if (c == 0) return LB_FAIL_ZERO;
  if (c == INT64_MIN) return LB_FAIL_OVERFLOW;
  int64_t round = kind == LB_ATOM_CEILDIV ? -1 : 1;
  lb_poly x = {0}, q;
  LB_FIT(lb_poly_add(&x, c < 0 ? -round : round, a));
  LB_FIT(floor_by(t, x, c < 0 ? -c : c, &q));
  out->n = 0;
  if (kind != LB_ATOM_MOD) return lb_poly_add(out, round, &q);
  *out = *a;
  return lb_poly_add(out, -c, &q);
}

// -- by expressions ---------------------------------------------------------

// (coef, prod) = gcd of itself and all terms of p.
static lb_fail content(lb_symtab *t, const lb_poly *p, uint64_t *coef,
                       const lb_prod **prod) {
  for (int i = 0; i < p->n; i++) {
    *coef = lb_gcd(*coef, lb_abs(p->t[i].coef));
    if (!*prod)
      *prod = p->t[i].prod;
    else
      LB_FIT(lb_prod_gcd(t, *prod, p->t[i].prod, prod));
  }
  return LB_FAIL_NONE;
}

static lb_fail divide_terms(lb_symtab *t, lb_poly *p, lb_term g) {
  for (int i = 0; i < p->n; i++) {
    p->t[i].coef /= g.coef;
    LB_FIT(lb_prod_div(t, p->t[i].prod, g.prod, &p->t[i].prod));
  }
  return LB_FAIL_NONE;
}

// Divides both by their greatest common term, which becomes *g.
static lb_fail cancel(lb_symtab *t, lb_poly *a, lb_poly *b, lb_term *g) {
  uint64_t coef = 0;
  *g = (lb_term){1, NULL};
  LB_FIT(content(t, b, &coef, &g->prod));
  LB_FIT(content(t, a, &coef, &g->prod));
  if (coef <= INT64_MAX) g->coef = (int64_t)coef;
  LB_FIT(divide_terms(t, a, *g));
  return divide_terms(t, b, *g);
}

// Moves the terms of a that are multiples of the single term b to q, divided.
static lb_fail split(lb_symtab *t, lb_poly *a, lb_term b, lb_poly *q) {
  lb_poly rest = {0};
  for (int i = 0; i < a->n; i++) {
    lb_term x = a->t[i];
    bool fits = x.coef % b.coef == 0;
    const lb_prod *prod = NULL;
    if (fits) LB_FIT(lb_prod_div(t, x.prod, b.prod, &prod));
    if (prod)
      LB_FIT(lb_poly_put(q, 1, (lb_term){x.coef / b.coef, prod}));
    else
      LB_FIT(lb_poly_put(&rest, 1, x));
  }
  *a = rest;
  return LB_FAIL_NONE;
}

static bool known_less(const lb_poly *a, const lb_poly *b) {
  lb_poly d = *b;
  if (lb_poly_add(&d, -1, a)) return false;
  return lb_poly_lower(a) >= 0 && lb_poly_lower(&d) >= 1;
}

// kind(a/b) once nothing cancels any more; b's first coefficient is positive.
static lb_fail by_reduced(lb_symtab *t, lb_atom_kind kind, const lb_poly *a,
                          const lb_poly *b, lb_poly *out) {
  out->n = 0;
  if (a->n == 0) return LB_FAIL_NONE;
  if (kind != LB_ATOM_CEILDIV && known_less(a, b)) {
    if (kind == LB_ATOM_MOD) *out = *a;
    return LB_FAIL_NONE;
  }
  if (kind == LB_ATOM_FLOORDIV && is_floor(a) && lb_poly_lower(b) >= 0) {
    lb_poly x, y;
    lb_fail f = flatten(t, a, b, &x, &y);
    if (!f) f = by_poly(t, kind, x, y, out);
    if (!f || f == LB_FAIL_MEMORY) return f;
    out->n = 0;
  }
  lb_dim by;
  LB_FIT(lb_poly_intern(t, b, &by));
  if (lb_dim_is_const(by)) return by_const(t, kind, a, by.k, out);
  return add_atom(t, kind, a, by, 1, out);
}

static lb_fail negate(lb_poly *p) {
  lb_poly minus = {0};
  LB_FIT(lb_poly_add(&minus, -1, p));
  *p = minus;
  return LB_FAIL_NONE;
}

// (g*a)/(g*b) = a/b and (g*a)%(g*b) = g*(a%b), for any g but 0.
static lb_fail by_poly(lb_symtab *t, lb_atom_kind kind, lb_poly a, lb_poly b,
                       lb_poly *out) {
  if (b.n == 0) return LB_FAIL_ZERO;
  if (b.t[0].prod == &lb_prod_one)
    return by_const(t, kind, &a, b.t[0].coef, out);
  lb_poly q = {0}, r;
  bool exact;
  LB_FIT(lb_poly_div(t, &a, &b, out, &exact));
  if (exact && kind == LB_ATOM_MOD) out->n = 0;
  if (exact) return LB_FAIL_NONE;
  lb_term g;
  LB_FIT(cancel(t, &a, &b, &g));
  if (b.t[0].coef < 0) {
    LB_FIT(negate(&a));
    LB_FIT(negate(&b));
    g.coef = -g.coef;
  }
  if (b.t[0].prod == &lb_prod_one) {
    LB_FIT(by_const(t, kind, &a, b.t[0].coef, &r));
  } else {
    if (b.n == 1) LB_FIT(split(t, &a, b.t[0], &q));
    LB_FIT(by_reduced(t, kind, &a, &b, &r));
  }
  out->n = 0;
  if (kind == LB_ATOM_MOD) return lb_poly_addmul(t, out, g, &r);
  *out = q;
  return lb_poly_add(out, 1, &r);
}

lb_fail lb_div(lb_symtab *t, lb_atom_kind kind, lb_dim a, lb_dim b,
               lb_dim *out) {
  assert(t);
  lb_poly x, y, q;
  lb_poly_of(a, &x);
  lb_poly_of(b, &y);
  LB_FIT(by_poly(t, kind, x, y, &q));
  return lb_poly_intern(t, &q, out);
}
