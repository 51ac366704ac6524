// shape/poly.c -- products and sums: their order and exact arithmetic.
#include <string.h>

#include "shape/expr.h"

typedef __int128 wide;

// -- order ------------------------------------------------------------------

static int sign_of(int64_t a, int64_t b) { return (a > b) - (a < b); }

// Operands are interned, so equal parts are equal pointers, and a comparison
// follows a single path to the first difference.
static int atom_cmp(const lb_atom *a, const lb_atom *b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return sign_of(a->kind, b->kind);
  int c = lb_dim_cmp(a->a, b->a);
  return c ? c : lb_dim_cmp(a->b, b->b);
}

int lb_prod_cmp(const lb_prod *a, const lb_prod *b) {
  if (a == b) return 0;
  if (a->n != b->n) return sign_of(b->n, a->n);
  int c = 0;
  for (int i = 0; i < a->n && c == 0; i++)
    c = atom_cmp(a->atoms[i], b->atoms[i]);
  return c;
}

int lb_dim_cmp(lb_dim a, lb_dim b) {
  if (a.e == b.e) return sign_of(a.k, b.k);
  if (!a.e || !b.e) return a.e ? -1 : 1;  // constants are last
  for (int i = 0; i < a.e->n && i < b.e->n; i++) {
    const lb_term *x = &a.e->terms[i], *y = &b.e->terms[i];
    int c = lb_prod_cmp(x->prod, y->prod);
    if (c == 0) c = sign_of(x->coef, y->coef);
    if (c != 0) return c;
  }
  return sign_of(a.e->n, b.e->n);
}

// -- products ---------------------------------------------------------------

lb_fail lb_prod_mul(lb_symtab *t, const lb_prod *a, const lb_prod *b,
                    const lb_prod **out) {
  *out = a->n ? a : b;
  if (a->n == 0 || b->n == 0) return LB_FAIL_NONE;
  if (a->n + b->n > LB_MAX_FACTORS) return LB_FAIL_SIZE;
  const lb_atom *atoms[LB_MAX_FACTORS];
  int n = 0, i = 0, j = 0;
  while (i < a->n || j < b->n) {
    bool left =
        j == b->n || (i < a->n && atom_cmp(a->atoms[i], b->atoms[j]) <= 0);
    atoms[n++] = left ? a->atoms[i++] : b->atoms[j++];
  }
  return lb_prod_intern(t, atoms, n, out);
}

lb_fail lb_prod_div(lb_symtab *t, const lb_prod *a, const lb_prod *b,
                    const lb_prod **out) {
  const lb_atom *atoms[LB_MAX_FACTORS];
  int n = 0, j = 0;
  for (int i = 0; i < a->n; i++) {
    if (j < b->n && a->atoms[i] == b->atoms[j])
      j++;
    else
      atoms[n++] = a->atoms[i];
  }
  *out = NULL;
  return j < b->n ? LB_FAIL_NONE : lb_prod_intern(t, atoms, n, out);
}

lb_fail lb_prod_gcd(lb_symtab *t, const lb_prod *a, const lb_prod *b,
                    const lb_prod **out) {
  const lb_atom *atoms[LB_MAX_FACTORS];
  int n = 0, i = 0, j = 0;
  while (i < a->n && j < b->n) {
    int c = atom_cmp(a->atoms[i], b->atoms[j]);
    if (c == 0) atoms[n++] = a->atoms[i];
    i += c <= 0;
    j += c >= 0;
  }
  return lb_prod_intern(t, atoms, n, out);
}

// -- sums -------------------------------------------------------------------

void lb_poly_of(lb_dim d, lb_poly *out) {
  out->n = d.e ? d.e->n : d.k != 0;
  if (d.e)
    memcpy(out->t, d.e->terms, (size_t)d.e->n * sizeof *out->t);
  else
    out->t[0] = (lb_term){d.k, &lb_prod_one};
}

int64_t lb_poly_constant(const lb_poly *p) {
  if (p->n == 0 || p->t[p->n - 1].prod != &lb_prod_one) return 0;
  return p->t[p->n - 1].coef;
}

static lb_fail insert_term(lb_poly *p, int at, lb_term term) {
  if (p->n == LB_MAX_TERMS) return LB_FAIL_SIZE;
  memmove(&p->t[at + 1], &p->t[at], (size_t)(p->n - at) * sizeof *p->t);
  p->t[at] = term;
  p->n++;
  return LB_FAIL_NONE;
}

static void remove_term(lb_poly *p, int at) {
  p->n--;
  memmove(&p->t[at], &p->t[at + 1], (size_t)(p->n - at) * sizeof *p->t);
}

lb_fail lb_poly_put(lb_poly *p, int64_t m, lb_term term) {
  int at = 0, c = 1;
  while (at < p->n && (c = lb_prod_cmp(p->t[at].prod, term.prod)) < 0) at++;
  bool found = at < p->n && c == 0;
  wide coef = (wide)m * term.coef + (found ? p->t[at].coef : 0);
  if (coef < INT64_MIN || coef > INT64_MAX) return LB_FAIL_OVERFLOW;
  term.coef = (int64_t)coef;
  if (!found) return coef ? insert_term(p, at, term) : LB_FAIL_NONE;
  if (coef)
    p->t[at] = term;
  else
    remove_term(p, at);
  return LB_FAIL_NONE;
}

lb_fail lb_poly_add(lb_poly *p, int64_t m, const lb_poly *q) {
  for (int i = 0; i < q->n; i++) LB_FIT(lb_poly_put(p, m, q->t[i]));
  return LB_FAIL_NONE;
}

lb_fail lb_poly_addmul(lb_symtab *t, lb_poly *p, lb_term m, const lb_poly *q) {
  for (int i = 0; i < q->n; i++) {
    lb_term term = {q->t[i].coef, NULL};
    LB_FIT(lb_prod_mul(t, m.prod, q->t[i].prod, &term.prod));
    LB_FIT(lb_poly_put(p, m.coef, term));
  }
  return LB_FAIL_NONE;
}

lb_fail lb_poly_mul(lb_symtab *t, const lb_poly *a, const lb_poly *b,
                    lb_poly *out) {
  out->n = 0;
  for (int i = 0; i < a->n; i++) LB_FIT(lb_poly_addmul(t, out, a->t[i], b));
  return LB_FAIL_NONE;
}

// Long division. Because products are in graded lexicographic order, each step
// removes the leading term of the remainder and adds only smaller ones.
static lb_fail divide(lb_symtab *t, lb_poly *rest, const lb_poly *b,
                      lb_poly *out) {
  while (rest->n > 0) {
    lb_term m = rest->t[0];
    int64_t by = b->t[0].coef;
    if (by == -1 && m.coef == INT64_MIN) return LB_FAIL_OVERFLOW;
    if (m.coef % by != 0) return LB_FAIL_INEXACT;
    m.coef /= by;
    LB_FIT(lb_prod_div(t, m.prod, b->t[0].prod, &m.prod));
    if (!m.prod) return LB_FAIL_INEXACT;
    LB_FIT(lb_poly_put(out, 1, m));
    if (m.coef == INT64_MIN) return LB_FAIL_OVERFLOW;
    m.coef = -m.coef;
    LB_FIT(lb_poly_addmul(t, rest, m, b));
  }
  return LB_FAIL_NONE;
}

lb_fail lb_poly_div(lb_symtab *t, const lb_poly *a, const lb_poly *b,
                    lb_poly *out, bool *exact) {
  lb_poly rest = *a;
  out->n = 0;
  lb_fail f = divide(t, &rest, b, out);
  *exact = f == LB_FAIL_NONE;
  return f == LB_FAIL_MEMORY ? f : LB_FAIL_NONE;
}

const lb_atom *lb_poly_atom(const lb_poly *p) {
  bool shaped = p->n == 1 || (p->n == 2 && p->t[1].prod == &lb_prod_one);
  if (!shaped || p->t[0].coef != 1 || p->t[0].prod->n != 1) return NULL;
  return p->t[0].prod->atoms[0];
}

const lb_atom *lb_dim_atom(lb_dim d) {
  if (!d.e || d.e->n != 1) return NULL;
  const lb_term *x = &d.e->terms[0];
  return x->coef == 1 && x->prod->n == 1 ? x->prod->atoms[0] : NULL;
}
