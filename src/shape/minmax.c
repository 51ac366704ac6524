// shape/minmax.c -- min and max of any number of dims.
//
// Nested operands are flattened, dominated ones are dropped, and the others are
// sorted and nested again, so that construction order makes no difference.
#include <assert.h>

#include "shape/expr.h"

enum { MAX_OPERANDS = 16 };

typedef struct operands {
  lb_atom_kind kind;
  int n;
  lb_dim d[MAX_OPERANDS];
} operands;

static lb_fail insert(operands *o, lb_dim d) {
  int at = 0;
  while (at < o->n && lb_dim_cmp(o->d[at], d) < 0) at++;
  if (at < o->n && lb_dim_equal(o->d[at], d)) return LB_FAIL_NONE;
  if (o->n == MAX_OPERANDS) return LB_FAIL_SIZE;
  for (int i = o->n++; i > at; i--) o->d[i] = o->d[i - 1];
  o->d[at] = d;
  return LB_FAIL_NONE;
}

// Operands are nested on the right: only an atom's second one may be of the
// same kind.
static lb_fail collect(operands *o, lb_dim d) {
  const lb_atom *a = lb_dim_atom(d);
  while (a && a->kind == (int64_t)o->kind) {
    LB_FIT(insert(o, a->a));
    d = a->b;
    a = lb_dim_atom(d);
  }
  return insert(o, d);
}

// Whether y can be dropped because x is always at least as small (large).
static bool dominates(const operands *o, lb_dim x, lb_dim y) {
  return o->kind == LB_ATOM_MIN ? lb_known_le(x, y) : lb_known_le(y, x);
}

static void drop_dominated(operands *o) {
  for (int i = 0; i < o->n; i++) {
    bool dominated = false;
    for (int j = 0; j < o->n && !dominated; j++)
      dominated = i != j && dominates(o, o->d[j], o->d[i]);
    if (!dominated) continue;
    for (int j = i + 1; j < o->n; j++) o->d[j - 1] = o->d[j];
    o->n--;
    i--;
  }
}

lb_fail lb_minmax(lb_symtab *t, lb_atom_kind kind, lb_dim a, lb_dim b,
                  lb_dim *out) {
  assert(t);
  operands o = {.kind = kind};
  LB_FIT(collect(&o, a));
  LB_FIT(collect(&o, b));
  drop_dominated(&o);
  lb_dim d = o.d[o.n - 1];
  for (int i = o.n - 2; i >= 0; i--) {
    lb_poly p = {.n = 1, .t = {{1, NULL}}};
    LB_FIT(lb_atom_intern(t, kind, o.d[i], d, &p.t[0].prod));
    LB_FIT(lb_poly_intern(t, &p, &d));
  }
  *out = d;
  return LB_FAIL_NONE;
}
