// shape/facts.c -- ranges of expressions: divisors and bounds that hold for all
// values of the symbols.
//
// INT64_MIN as lower and INT64_MAX as upper bound mean infinity. A finite bound
// that would collide with the other infinity, itself or negated, is weakened,
// so in this file those two numbers are always infinities. Bounds hold wherever
// the expression has a value: a divisor is never 0.
//
// Interval arithmetic alone cannot bound w-floor(w/2), because it treats the
// two terms as independent. lower() therefore also tries to replace a division,
// min or max by a simpler bound, after which symbols may cancel.
#include "shape/expr.h"

typedef __int128 wide;

enum { PROOF_STEPS = 4 };  // atoms replaced on one path of a proof

// -- numbers ----------------------------------------------------------------

uint64_t lb_gcd(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

uint64_t lb_abs(int64_t k) { return k < 0 ? 0 - (uint64_t)k : (uint64_t)k; }

int64_t lb_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
static bool infinite(int64_t a) { return a == INT64_MIN || a == INT64_MAX; }

static int64_t negate(int64_t a) {
  return a == INT64_MIN ? INT64_MAX : a == INT64_MAX ? INT64_MIN : -a;
}

static int64_t clamp(wide x) {
  if (x <= INT64_MIN) return INT64_MIN;
  return x >= INT64_MAX ? INT64_MAX : (int64_t)x;
}

static int64_t as_lower(wide x) { return min_of(clamp(x), INT64_MAX - 1); }
static int64_t as_upper(wide x) { return max_of(clamp(x), INT64_MIN + 2); }

static int64_t mul_bound(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (!infinite(a) && !infinite(b)) return clamp((wide)a * b);
  return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

// 2^63 does not fit in int64_t, but then 2^62 is a divisor too.
static int64_t as_multiple(uint64_t m) {
  return m > INT64_MAX ? (int64_t)(m / 2) : (int64_t)m;
}

// -- products ---------------------------------------------------------------

static int64_t mul_multiple(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? max_of(a, b) : r;
}

lb_dim_range lb_range_mul(lb_dim_range a, lb_dim_range b) {
  int64_t w = mul_bound(a.at_least, b.at_least);
  int64_t x = mul_bound(a.at_least, b.at_most);
  int64_t y = mul_bound(a.at_most, b.at_least);
  int64_t z = mul_bound(a.at_most, b.at_most);
  return (lb_dim_range){
      .multiple_of = mul_multiple(a.multiple_of, b.multiple_of),
      .at_least = as_lower(min_of(min_of(w, x), min_of(y, z))),
      .at_most = as_upper(max_of(max_of(w, x), max_of(y, z)))};
}

// -- sums -------------------------------------------------------------------

static int64_t term_lower(lb_term x) {
  const lb_dim_range *f = &x.prod->range;
  int64_t bound = x.coef > 0 ? f->at_least : f->at_most;
  if (infinite(bound)) return INT64_MIN;
  return as_lower((wide)x.coef * bound);
}

static int64_t interval_lower(const lb_poly *p) {
  wide sum = 0;
  for (int i = 0; i < p->n; i++) {
    int64_t lower = term_lower(p->t[i]);
    if (lower == INT64_MIN) return INT64_MIN;
    sum += lower;
  }
  return as_lower(sum);
}

// The priority of replacing the product's atom by a bound; 0: never. Min and
// max come first, because replacing them loses nothing.
static int replacement_priority(const lb_prod *p) {
  if (p->n != 1) return 0;
  const lb_atom *a = p->atoms[0];
  if (a->kind == LB_ATOM_MIN || a->kind == LB_ATOM_MAX)
    return LB_MAX_DEPTH + a->depth;
  bool division = a->kind == LB_ATOM_FLOORDIV && lb_dim_is_const(a->b);
  return division ? a->depth : 0;
}

// The term with the atom to replace; -1: none.
static int choose_atom(const lb_poly *p) {
  int best = -1, most = 0;
  for (int i = 0; i < p->n; i++) {
    int w = replacement_priority(p->t[i].prod);
    if (w > most) best = i;
    if (w > most) most = w;
  }
  return best;
}

static int64_t lower(const lb_poly *p, int steps);

// Lower bound of rest + m*d.
static int64_t lower_with(const lb_poly *rest, int64_t m, lb_dim d, int steps) {
  lb_poly sum = *rest, x;
  lb_poly_of(d, &x);
  return lb_poly_add(&sum, m, &x) ? INT64_MIN : lower(&sum, steps);
}

// e = rest + m*floor(x/c). For m < 0, c*e >= c*rest + m*x; for m > 0,
// c*e >= c*rest + m*(x-c+1). As e is an integer, its bound is rounded up.
static int64_t lower_floor(const lb_poly *rest, int64_t m, const lb_atom *a,
                           int steps) {
  int64_t c = a->b.k, slack = m > 0 ? c - 1 : 0;
  lb_poly scaled = {0};
  if (lb_poly_add(&scaled, c, rest) ||
      lb_poly_put(&scaled, -m, (lb_term){slack, &lb_prod_one}))
    return INT64_MIN;
  int64_t bound = lower_with(&scaled, m, a->a, steps);
  return infinite(bound) ? INT64_MIN : -lb_floordiv(-bound, c);
}

// The atom equals one of its operands, so the sum is the max or the min of the
// two sums.
static int64_t lower_minmax(const lb_poly *rest, int64_t m, const lb_atom *a,
                            int steps) {
  int64_t x = lower_with(rest, m, a->a, steps);
  int64_t y = lower_with(rest, m, a->b, steps);
  bool larger = (a->kind == LB_ATOM_MAX) == (m > 0);
  return larger ? max_of(x, y) : min_of(x, y);
}

static int64_t lower(const lb_poly *p, int steps) {
  int64_t plain = interval_lower(p);
  int at = choose_atom(p);
  if (steps == 0 || at < 0) return plain;
  const lb_atom *a = p->t[at].prod->atoms[0];
  int64_t m = p->t[at].coef;
  lb_poly rest = *p;
  if (m == INT64_MIN || lb_poly_put(&rest, -1, p->t[at])) return plain;
  int64_t proved = a->kind == LB_ATOM_FLOORDIV
                       ? lower_floor(&rest, m, a, steps - 1)
                       : lower_minmax(&rest, m, a, steps - 1);
  return max_of(plain, proved);
}

int64_t lb_poly_lower(const lb_poly *p) { return lower(p, PROOF_STEPS); }

static int64_t poly_upper(const lb_poly *p) {
  lb_poly minus = {0};
  if (lb_poly_add(&minus, -1, p)) return INT64_MAX;
  return negate(lb_poly_lower(&minus));
}

static int64_t poly_multiple(const lb_poly *p) {
  uint64_t g = 0;
  for (int i = 0; i < p->n; i++) {
    int64_t coef = as_multiple(lb_abs(p->t[i].coef));
    int64_t m = p->t[i].prod->range.multiple_of;
    g = lb_gcd(g, (uint64_t)mul_multiple(coef, m));
  }
  return as_multiple(g);
}

lb_dim_range lb_range_poly(const lb_poly *p) {
  return (lb_dim_range){.multiple_of = poly_multiple(p),
                        .at_least = lb_poly_lower(p),
                        .at_most = poly_upper(p)};
}

bool lb_known_le(lb_dim a, lb_dim b) {
  if (lb_dim_known(a).at_most <= lb_dim_known(b).at_least) return true;
  if (!a.e && !b.e) return false;
  lb_poly x, y;
  lb_poly_of(a, &x);
  lb_poly_of(b, &y);
  return !lb_poly_add(&y, -1, &x) && lb_poly_lower(&y) >= 0;
}

// -- atoms ------------------------------------------------------------------

// x/y rounded down, for y > 0; either may be infinite.
static int64_t floor_bound(int64_t x, int64_t y) {
  if (y == INT64_MAX) return x < 0 ? -1 : 0;
  return infinite(x) ? x : lb_floordiv(x, y);
}

static lb_dim_range floor_range(lb_dim_range a, lb_dim_range b) {
  lb_dim_range f = {1, INT64_MIN, INT64_MAX};
  if (b.at_least < 0) return f;
  int64_t y = max_of(b.at_least, 1);
  f.at_least =
      min_of(floor_bound(a.at_least, y), floor_bound(a.at_least, b.at_most));
  f.at_most =
      max_of(floor_bound(a.at_most, y), floor_bound(a.at_most, b.at_most));
  if (b.at_least == b.at_most && a.multiple_of % y == 0)
    f.multiple_of = a.multiple_of / y;
  return f;
}

static lb_dim_range minus(lb_dim_range f) {
  return (lb_dim_range){f.multiple_of, negate(f.at_most), negate(f.at_least)};
}

static lb_dim_range mod_range(lb_dim_range a, lb_dim_range b) {
  uint64_t g = lb_gcd((uint64_t)a.multiple_of, (uint64_t)b.multiple_of);
  lb_dim_range f = {.multiple_of = as_multiple(g)};
  if (b.at_least < 0)
    f.at_least = infinite(b.at_least) ? INT64_MIN : b.at_least + 1;
  if (b.at_most > 0)
    f.at_most = infinite(b.at_most) ? INT64_MAX : b.at_most - 1;
  if (a.at_least >= 0 && b.at_least >= 0)
    f.at_most = min_of(f.at_most, a.at_most);
  return f;
}

static lb_dim_range minmax_range(lb_atom_kind kind, lb_dim_range a,
                                 lb_dim_range b) {
  int64_t (*of)(int64_t, int64_t) = kind == LB_ATOM_MIN ? min_of : max_of;
  uint64_t g = lb_gcd((uint64_t)a.multiple_of, (uint64_t)b.multiple_of);
  return (lb_dim_range){.multiple_of = as_multiple(g),
                        .at_least = of(a.at_least, b.at_least),
                        .at_most = of(a.at_most, b.at_most)};
}

// The range of d, in which INT64_MIN and INT64_MAX only mean infinity.
static lb_dim_range weakened(lb_dim d) {
  lb_dim_range f = lb_dim_known(d);
  f.at_least = as_lower(f.at_least);
  f.at_most = as_upper(f.at_most);
  return f;
}

lb_dim_range lb_range_atom(lb_atom_kind kind, lb_dim a, lb_dim b) {
  lb_dim_range x = weakened(a), y = weakened(b);
  switch (kind) {
    case LB_ATOM_FLOORDIV: return floor_range(x, y);
    case LB_ATOM_CEILDIV: return minus(floor_range(minus(x), y));
    case LB_ATOM_MOD: return mod_range(x, y);
    case LB_ATOM_MIN:
    case LB_ATOM_MAX: return minmax_range(kind, x, y);
    case LB_ATOM_SYMBOL: break;
  }
  return (lb_dim_range){1, INT64_MIN, INT64_MAX};
}

lb_dim_range lb_dim_known(lb_dim d) {
  if (d.e) return d.e->range;
  return (lb_dim_range){as_multiple(lb_abs(d.k)), d.k, d.k};
}
