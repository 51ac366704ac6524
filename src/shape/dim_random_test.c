// shape/dim_random_test.c -- random expressions against plain arithmetic.
//
// `test_dim_random` uses new seeds in each run; `test_dim_random SEED` repeats
// one case, and a failure prints that command. Every fourth seed is wild: its
// numbers are near the limits, so that overflow occurs wherever it can. Only
// fixed seeds check that another construction order gives the same words: about
// one in a million exceeds what the proofs can show (see README.md).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "shape/dim.h"

enum { CASES = 4000, SAMPLES = 24, SYMBOLS = 4, MAX_NODES = 64 };

typedef enum kind {
  CONST,
  SYMBOL,
  ADD,
  MUL,
  MIN,
  MAX,
  SUB,
  FLOOR,
  CEIL,
  MOD
} kind;

typedef struct node {
  kind kind;
  int64_t k;  // constant, or index of the symbol
  int n;      // operands: two or three for ADD to MAX, two for the rest
  int kids[3];
} node;

typedef struct tree {
  node nodes[MAX_NODES];
  int n;
  bool wild;
} tree;

static uint64_t only_seed;  // 0: all

static uint64_t next_random(uint64_t *s) {  // xorshift64*
  *s ^= *s >> 12;
  *s ^= *s << 25;
  *s ^= *s >> 27;
  return *s * UINT64_C(0x2545F4914F6CDD1D);
}

static int below(uint64_t *s, int n) {
  return (int)((next_random(s) >> 33) % (uint64_t)n);
}

static int64_t extreme(uint64_t *s) {
  int64_t near = below(s, 4), power = INT64_C(1) << below(s, 63);
  switch (below(s, 4)) {
    case 0: return INT64_MAX - near;
    case 1: return INT64_MIN + near;
    case 2: return power - near;
    default: return -power + near;
  }
}

static int grow(tree *t, int depth, uint64_t *s) {
  int id = t->n++;
  node x = {0};
  bool leaf = depth == 0 || t->n > MAX_NODES - 12 || below(s, 5) == 0;
  x.kind = leaf ? (kind)below(s, 2) : (kind)(ADD + below(s, MOD - ADD + 1));
  if (x.kind == CONST) x.k = below(s, 20) - 7;
  if (x.kind == CONST && t->wild && below(s, 2)) x.k = extreme(s);
  if (x.kind == SYMBOL) x.k = below(s, SYMBOLS);
  x.n = leaf ? 0 : x.kind <= MAX ? 2 + below(s, 2) : 2;
  for (int i = 0; i < x.n; i++) x.kids[i] = grow(t, depth - 1, s);
  t->nodes[id] = x;
  return id;
}

// -- plain arithmetic -------------------------------------------------------

static bool value_pair(kind k, int64_t a, int64_t b, int64_t *out) {
  int64_t down = 0, rest = 0;
  if (k >= FLOOR) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    rest = a % b;
    down = a / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
      rest += b;
      down--;
    }
  }
  switch (k) {
    case ADD: return !__builtin_add_overflow(a, b, out);
    case SUB: return !__builtin_sub_overflow(a, b, out);
    case MUL: return !__builtin_mul_overflow(a, b, out);
    case MIN: *out = a < b ? a : b; return true;
    case MAX: *out = a > b ? a : b; return true;
    case FLOOR: *out = down; return true;
    case CEIL: *out = down + (rest != 0); return true;
    default: *out = rest; return true;
  }
}

// False if there is no value: division by zero, or overflow.
static bool value(const tree *t, int id, const int64_t *env, int64_t *out) {
  const node *x = &t->nodes[id];
  *out = x->kind == SYMBOL ? env[x->k] : x->k;
  for (int i = 0; i < x->n; i++) {
    int64_t v;
    if (!value(t, x->kids[i], env, &v)) return false;
    if (i == 0)
      *out = v;
    else if (!value_pair(x->kind, *out, v, out))
      return false;
  }
  return true;
}

// -- dims -------------------------------------------------------------------

static lb_status pair(lb_symtab *tab, kind k, lb_dim a, lb_dim b, lb_dim *out) {
  switch (k) {
    case ADD: return lb_dim_add(tab, a, b, out);
    case SUB: return lb_dim_sub(tab, a, b, out);
    case MUL: return lb_dim_mul(tab, a, b, out);
    case MIN: return lb_dim_min(tab, a, b, out);
    case MAX: return lb_dim_max(tab, a, b, out);
    case FLOOR: return lb_dim_floordiv(tab, a, b, out);
    case CEIL: return lb_dim_ceildiv(tab, a, b, out);
    default: return lb_dim_mod(tab, a, b, out);
  }
}

// `s` shuffles operands whose order is free; NULL leaves them.
static lb_status build(lb_symtab *tab, const tree *t, int id,
                       const lb_dim *symbols, uint64_t *s, lb_dim *out) {
  const node *x = &t->nodes[id];
  *out = x->kind == SYMBOL ? symbols[x->k] : lb_dim_const(x->k);
  if (x->n == 0) return LB_OK;
  lb_dim d[3];
  for (int i = 0; i < x->n; i++)
    LB_TRY(build(tab, t, x->kids[i], symbols, s, &d[i]));
  for (int i = x->n - 1; s && x->kind <= MAX && i > 0; i--) {
    int j = below(s, i + 1);
    lb_dim swap = d[i];
    d[i] = d[j];
    d[j] = swap;
  }
  bool right = s && x->n == 3 && below(s, 2);
  if (right) LB_TRY(pair(tab, x->kind, d[1], d[2], &d[1]));
  LB_TRY(pair(tab, x->kind, d[0], d[1], out));
  if (x->n == 3 && !right) LB_TRY(pair(tab, x->kind, *out, d[2], out));
  return LB_OK;
}

static bool range_holds(lb_dim_range f, int64_t v) {
  if (f.multiple_of == 0 ? v != 0 : v % f.multiple_of != 0) return false;
  return v >= f.at_least && v <= f.at_most;
}

static const char *check_value(const tree *t, lb_dim d, uint64_t *s) {
  int64_t env[SYMBOLS], want, got;
  for (int i = 0; i < SYMBOLS; i++) env[i] = below(s, below(s, 2) ? 4 : 40);
  env[SYMBOLS - 1] -= 15;  // the one that may be any integer
  if (t->wild) env[0] = extreme(s) & INT64_MAX;
  if (t->wild) env[SYMBOLS - 1] = extreme(s);
  if (!value(t, 0, env, &want)) return NULL;
  bool failed = !lb_dim_try_eval(d, env, SYMBOLS, &got);
  if (failed && t->wild) return NULL;  // an intermediate value overflows
  if (failed) return "eval fails where plain arithmetic has a value";
  if (got != want) return "eval and plain arithmetic differ";
  return range_holds(lb_dim_known(d), got) ? NULL : "the range does not hold";
}

static const char *check_order(lb_symtab *tab, const tree *t, lb_dim d,
                               const lb_dim *symbols, uint64_t *s) {
  lb_dim other;
  lb_status st = build(tab, t, 0, symbols, s, &other);
  bool failed = lb_failed(st);
  lb_status_drop(st);
  return failed || lb_dim_equal(d, other) ? NULL : "another order differs";
}

static const char *check_quotient(lb_symtab *tab, lb_dim d, lb_dim by) {
  lb_dim back;
  lb_status st = lb_dim_mul(tab, d, by, &back);
  if (!lb_failed(st)) st = lb_dim_divexact(tab, back, by, &back);
  bool failed = lb_failed(st);
  lb_status_drop(st);
  return failed || lb_dim_equal(d, back) ? NULL : "(d*a)/a is not d";
}

static const char *check_dim(lb_symtab *tab, const tree *t, lb_dim d,
                             const lb_dim *symbols, uint64_t *s) {
  for (int i = 0; i < SAMPLES; i++) {
    const char *wrong = check_value(t, d, s);
    if (wrong) return wrong;
  }
  return check_quotient(tab, d, symbols[0]);
}

static void symbols_of(lb_symtab *tab, lb_dim *out) {
  const char *names[] = {"a", "b", "c"};
  for (int i = 0; i < SYMBOLS - 1; i++)
    assert_false(lb_failed(lb_symtab_named(tab, names[i], &out[i])));
  assert_false(lb_failed(lb_symtab_fresh_int(tab, &out[SYMBOLS - 1])));
}

// Returns false if the expression could not be built: zero divisor, too large.
static bool run_case(uint64_t seed, bool order) {
  uint64_t s = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
  for (int i = 0; i < 4; i++) next_random(&s);
  tree t = {.wild = seed % 4 == 0};
  grow(&t, 1 + below(&s, 4), &s);
  lb_symtab *tab;
  lb_dim symbols[SYMBOLS], d;
  assert_false(lb_failed(lb_symtab_new(&tab)));
  symbols_of(tab, symbols);
  lb_status st = build(tab, &t, 0, symbols, NULL, &d);
  bool built = !lb_failed(st);
  lb_status_drop(st);
  const char *wrong = built ? check_dim(tab, &t, d, symbols, &s) : NULL;
  if (built && order && !wrong) wrong = check_order(tab, &t, d, symbols, &s);
  if (wrong) {
    lb_strbuf text = {0};
    lb_dim_print(d, &text);
    print_error("test_dim_random %llu: %s (%s)\n", (unsigned long long)seed,
                wrong, lb_strbuf_str(&text));
    lb_strbuf_fini(&text);
  }
  lb_symtab_free(tab);
  assert_null(wrong);
  return built;
}

static void run_cases(uint64_t first, bool order) {
  int built = 0;
  if (only_seed) run_case(only_seed, only_seed <= CASES);
  for (uint64_t i = 0; i < CASES && !only_seed; i++)
    built += run_case(first + i, order);
  assert_true(only_seed || built > CASES / 2);
}

static void random_expressions_agree_with_arithmetic(void **state) {
  (void)state;
  run_cases(CASES + (uint64_t)time(NULL), false);
}

static void construction_order_makes_no_difference(void **state) {
  (void)state;
  run_cases(1, true);
}

int main(int argc, char **argv) {
  only_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_expressions_agree_with_arithmetic),
      cmocka_unit_test(construction_order_makes_no_difference),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
