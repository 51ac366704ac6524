// shape/dim_test.c -- dims: simplification, ranges, printing and errors.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shape/dim.h"

typedef lb_status binary(lb_symtab *, lb_dim, lb_dim, lb_dim *);

static lb_symtab *T;  // one table per test

static int set_up(void **state) {
  (void)state;
  return lb_failed(lb_symtab_new(&T));
}

static int tear_down(void **state) {
  (void)state;
  lb_symtab_free(T);
  return 0;
}

static void ok(lb_status st) {
  if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
  assert_false(lb_failed(st));
}

static lb_dim S(const char *name) {
  lb_dim d;
  ok(lb_symtab_named(T, name, &d));
  return d;
}

static lb_dim any_int(void) {
  lb_dim d;
  ok(lb_symtab_fresh_int(T, &d));
  return d;
}

static lb_dim apply(binary *f, lb_dim a, lb_dim b) {
  lb_dim d;
  ok(f(T, a, b, &d));
  return d;
}

static lb_dim K(int64_t k) { return lb_dim_const(k); }

#define V(...) ((const int64_t[]){__VA_ARGS__})  // of symbols
static lb_dim add(lb_dim a, lb_dim b) { return apply(lb_dim_add, a, b); }
static lb_dim sub(lb_dim a, lb_dim b) { return apply(lb_dim_sub, a, b); }
static lb_dim mul(lb_dim a, lb_dim b) { return apply(lb_dim_mul, a, b); }
static lb_dim fdiv(lb_dim a, lb_dim b) { return apply(lb_dim_floordiv, a, b); }
static lb_dim cdiv(lb_dim a, lb_dim b) { return apply(lb_dim_ceildiv, a, b); }
static lb_dim mod(lb_dim a, lb_dim b) { return apply(lb_dim_mod, a, b); }
static lb_dim min(lb_dim a, lb_dim b) { return apply(lb_dim_min, a, b); }
static lb_dim max(lb_dim a, lb_dim b) { return apply(lb_dim_max, a, b); }
static lb_dim exact(lb_dim a, lb_dim b) { return apply(lb_dim_divexact, a, b); }

static void same(lb_dim a, lb_dim b) {
  lb_strbuf text = {0};
  lb_dim_print(a, &text);
  lb_strbuf_puts(&text, " and ");
  lb_dim_print(b, &text);
  if (!lb_dim_equal(a, b)) print_error("%s\n", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  assert_true(lb_dim_equal(a, b));
}

static void prints(lb_dim d, const char *want) {
  lb_strbuf text = {0};
  lb_dim_print(d, &text);
  char got[512];
  snprintf(got, sizeof got, "%s", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  assert_string_equal(got, want);
}

static void knows(lb_dim d, int64_t multiple, int64_t least, int64_t most) {
  lb_dim_range f = lb_dim_known(d);
  assert_int_equal(f.multiple_of, multiple);
  assert_int_equal(f.at_least, least);
  assert_int_equal(f.at_most, most);
}

static void fails(lb_status st, lb_code code, const char *message) {
  assert_int_equal(lb_status_code(st), code);
  assert_string_equal(lb_status_message(st), message);
  lb_status_drop(st);
}

// -- numbers ----------------------------------------------------------------

static void constants_need_no_table(void **state) {
  (void)state;
  static const int64_t cases[][7] = {
      // a, b, floor, ceil, mod, min, max
      {7, 2, 3, 4, 1, 2, 7},      {-7, 2, -4, -3, 1, -7, 2},
      {7, -2, -4, -3, -1, -2, 7}, {-7, -2, 3, 4, -1, -7, -2},
      {6, 3, 2, 2, 0, 3, 6},      {0, 5, 0, 0, 0, 0, 5},
  };
  binary *ops[] = {lb_dim_floordiv, lb_dim_ceildiv, lb_dim_mod, lb_dim_min,
                   lb_dim_max};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int op = 0; op < 5; op++) {
      lb_dim d;
      ok(ops[op](NULL, K(cases[i][0]), K(cases[i][1]), &d));
      same(d, K(cases[i][op + 2]));
    }
  }
}

static void overflow_of_numbers_names_operation_and_operands(void **state) {
  (void)state;
  lb_dim d, big = K(INT64_MAX), low = K(INT64_MIN);
  fails(lb_dim_add(NULL, big, K(1), &d), LB_INVALID,
        "add(9223372036854775807, 1): overflows 64 bits");
  fails(lb_dim_sub(NULL, low, K(1), &d), LB_INVALID,
        "sub(-9223372036854775808, 1): overflows 64 bits");
  fails(lb_dim_mul(NULL, big, K(2), &d), LB_INVALID,
        "mul(9223372036854775807, 2): overflows 64 bits");
  fails(lb_dim_floordiv(NULL, low, K(-1), &d), LB_INVALID,
        "floordiv(-9223372036854775808, -1): overflows 64 bits");
  fails(lb_dim_ceildiv(NULL, low, K(-1), &d), LB_INVALID,
        "ceildiv(-9223372036854775808, -1): overflows 64 bits");
  fails(lb_dim_divexact(NULL, low, K(-1), &d), LB_INVALID,
        "divexact(-9223372036854775808, -1): overflows 64 bits");
  ok(lb_dim_mod(NULL, low, K(-1), &d));
  same(d, K(0));
}

static void division_by_constant_zero_is_an_error(void **state) {
  (void)state;
  lb_dim d, w = S("w");
  fails(lb_dim_floordiv(NULL, K(3), K(0), &d), LB_INVALID,
        "floordiv(3, 0): division by zero");
  fails(lb_dim_mod(NULL, K(3), K(0), &d), LB_INVALID,
        "mod(3, 0): division by zero");
  fails(lb_dim_ceildiv(T, w, K(0), &d), LB_INVALID,
        "ceildiv(w, 0): division by zero");
  fails(lb_dim_mod(T, w, sub(w, w), &d), LB_INVALID,
        "mod(w, 0): division by zero");
  fails(lb_dim_divexact(NULL, K(7), K(2), &d), LB_INVALID,
        "divexact(7, 2): leaves a remainder");
}

// -- symbols ----------------------------------------------------------------

static void named_symbols_are_shared_and_fresh_ones_are_unique(void **state) {
  (void)state;
  lb_dim a = S("batch"), b = S("seq"), x, y;
  ok(lb_symtab_fresh(T, &x));
  ok(lb_symtab_fresh(T, &y));
  same(a, S("batch"));
  assert_false(lb_dim_equal(a, b));
  assert_false(lb_dim_equal(x, y));
  prints(x, "?1");
  prints(y, "?2");
  assert_int_equal(lb_symtab_count(T), 4);
  assert_string_equal(lb_symtab_name(T, 1), "seq");
  int symbol = -1;
  assert_true(lb_dim_as_symbol(b, &symbol));
  assert_int_equal(symbol, 1);
  assert_false(lb_dim_as_symbol(add(b, K(1)), &symbol));
  assert_false(lb_dim_as_symbol(K(4), &symbol));
}

// -- sums and products ------------------------------------------------------

static void sums_and_products_have_one_form(void **state) {
  (void)state;
  lb_dim a = S("a"), b = S("b"), c = S("c");
  same(add(add(a, b), c), add(c, add(b, a)));
  same(mul(add(a, b), sub(a, b)), sub(mul(a, a), mul(b, b)));
  same(sub(add(a, K(3)), a), K(3));
  same(mul(a, K(0)), K(0));
  same(mul(a, K(1)), a);
  same(mul(mul(a, b), c), mul(b, mul(c, a)));
}

static void overflow_of_coefficients_is_an_error(void **state) {
  (void)state;
  lb_dim d, w = S("w");
  lb_dim huge = mul(w, K(INT64_MAX));
  fails(lb_dim_add(T, huge, w, &d), LB_INVALID,
        "add(9223372036854775807*w, w): overflows 64 bits");
  fails(lb_dim_mul(T, huge, K(2), &d), LB_INVALID,
        "mul(9223372036854775807*w, 2): overflows 64 bits");
  fails(lb_dim_sub(T, add(w, K(INT64_MIN)), K(1), &d), LB_INVALID,
        "sub(w-9223372036854775808, 1): overflows 64 bits");
  fails(lb_dim_floordiv(T, w, K(INT64_MIN), &d), LB_INVALID,
        "floordiv(w, -9223372036854775808): overflows 64 bits");
}

static void too_large_expressions_are_unsupported(void **state) {
  (void)state;
  lb_dim sum = K(0), next;
  lb_status st = LB_OK;
  for (int i = 0; i < 100 && !lb_failed(st); i++) {
    ok(lb_symtab_fresh(T, &next));
    st = lb_dim_add(T, sum, next, &next);
    if (!lb_failed(st)) sum = next;
  }
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  assert_non_null(strstr(lb_status_message(st), "expression too large"));
  lb_status_drop(st);

  lb_dim deep = S("x"), n = S("n");
  st = LB_OK;
  for (int i = 0; i < 100 && !lb_failed(st); i++) {
    st = lb_dim_mod(T, add(deep, K(1)), n, &next);
    if (!lb_failed(st)) deep = next;
  }
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  lb_status_drop(st);

  lb_dim wide = S("x");  // its expanded size doubles at each step
  st = LB_OK;
  for (int i = 0; i < 30 && !lb_failed(st); i++) {
    wide = mod(wide, add(n, K(i)));
    st = lb_dim_mul(T, wide, wide, &next);
    if (!lb_failed(st)) wide = next;
  }
  assert_int_equal(lb_status_code(st), LB_UNSUPPORTED);
  assert_non_null(strstr(lb_status_message(st), "expression too large"));
  lb_status_drop(st);
}

// -- division ---------------------------------------------------------------

static void division_by_constants_extracts_exact_quotients(void **state) {
  (void)state;
  lb_dim w = S("w"), h = S("h");
  same(fdiv(add(mul(w, K(8)), K(4)), K(4)), add(mul(w, K(2)), K(1)));
  same(fdiv(w, K(1)), w);
  same(fdiv(w, K(-1)), sub(K(0), w));
  same(fdiv(add(mul(K(6), w), K(3)), K(4)), add(w, fdiv(add(w, K(1)), K(2))));
  same(fdiv(sub(w, K(3)), K(2)), sub(fdiv(add(w, K(1)), K(2)), K(2)));
  same(cdiv(w, K(2)), fdiv(add(w, K(1)), K(2)));
  same(sub(K(0), fdiv(sub(K(0), w), K(2))), cdiv(w, K(2)));
  same(fdiv(add(mul(w, mul(h, K(4))), h), K(4)), add(mul(w, h), fdiv(h, K(4))));
}

static void nested_divisions_are_merged(void **state) {
  (void)state;
  lb_dim w = S("w"), s = S("s");
  same(fdiv(fdiv(w, K(2)), K(3)), fdiv(w, K(6)));
  same(cdiv(cdiv(w, K(2)), K(4)), cdiv(w, K(8)));
  same(fdiv(fdiv(w, s), K(2)), fdiv(w, mul(s, K(2))));
  same(fdiv(fdiv(w, K(2)), s), fdiv(w, mul(s, K(2))));
  lb_dim conv = w;  // kernel 3, stride 2, padding 1, five times
  for (int i = 0; i < 5; i++)
    conv = add(fdiv(sub(add(conv, K(2)), K(3)), K(2)), K(1));
  same(conv, cdiv(w, K(32)));
  lb_dim x = any_int();  // floor(floor(x/2)/s) for a negative divisor differs
  assert_false(lb_dim_equal(fdiv(fdiv(w, K(2)), x), fdiv(w, mul(x, K(2)))));
}

static void division_by_expressions_cancels(void **state) {
  (void)state;
  lb_dim b = S("b"), s = S("s"), h = S("h");
  same(exact(mul(K(6), mul(b, s)), mul(K(2), s)), mul(K(3), b));
  same(fdiv(mul(b, s), s), b);
  same(fdiv(add(mul(b, s), h), s), add(b, fdiv(h, s)));
  same(fdiv(mul(K(3), mul(b, s)), mul(K(2), s)), fdiv(mul(K(3), b), K(2)));
  same(exact(mul(add(b, h), add(s, K(1))), add(s, K(1))), add(b, h));
  same(mod(mul(b, s), s), K(0));
  same(mod(mul(b, s), mul(h, s)), mul(s, mod(b, h)));
  same(cdiv(mul(b, s), mul(h, s)), cdiv(b, h));
  same(exact(b, K(4)), fdiv(b, K(4)));
}

static void modulo_folds(void **state) {
  (void)state;
  lb_dim w = S("w");
  same(mod(w, K(1)), K(0));
  same(mod(mul(w, K(12)), K(4)), K(0));
  same(mod(mod(w, K(8)), K(4)), mod(w, K(4)));
  same(mod(mod(w, K(4)), K(8)), mod(w, K(4)));
  same(fdiv(mod(w, K(4)), K(4)), K(0));
  same(add(mul(fdiv(w, K(3)), K(3)), mod(w, K(3))), w);
  lb_dim padding = mod(sub(K(8), mod(w, K(8))), K(8));
  same(add(w, padding), mul(K(8), cdiv(w, K(8))));
  lb_dim n = S("n");
  same(mod(w, add(w, add(n, K(1)))), w);
  same(fdiv(w, add(w, K(1))), K(0));
}

// -- min and max ------------------------------------------------------------

static void min_and_max_use_known_bounds(void **state) {
  (void)state;
  lb_dim w = S("w"), h = S("h"), x = any_int();
  same(min(w, w), w);
  same(max(w, K(0)), w);
  same(max(w, K(-1)), w);
  same(min(w, K(0)), K(0));
  same(min(add(w, h), w), w);
  same(max(add(w, K(3)), add(w, K(5))), add(w, K(5)));
  same(min(mod(w, K(8)), K(7)), mod(w, K(8)));
  same(max(fdiv(w, K(2)), w), w);
  same(min(max(sub(w, K(3)), K(0)), w), max(sub(w, K(3)), K(0)));
  prints(max(x, K(0)), "max(?1,0)");
  prints(min(x, w), "min(w,?1)");
}

static void min_and_max_do_not_depend_on_order(void **state) {
  (void)state;
  lb_dim a = S("a"), b = S("b"), c = S("c");
  same(min(a, b), min(b, a));
  same(min(min(a, b), c), min(a, min(c, b)));
  same(max(max(c, K(9)), max(a, K(4))), max(K(9), max(c, a)));
  prints(max(K(3), max(b, a)), "max(a,b,3)");
}

// -- eval, ranges, print ----------------------------------------------------

static void eval_checks_everything(void **state) {
  (void)state;
  lb_dim w = S("w"), n = S("n");
  int64_t v;
  assert_true(lb_dim_try_eval(add(mul(w, n), K(1)), V(6, 7), 2, &v));
  assert_int_equal(v, 43);
  assert_false(lb_dim_try_eval(fdiv(w, n), V(6, 0), 2, &v));
  assert_false(lb_dim_try_eval(mul(w, n), V(INT64_MAX, 2), 2, &v));
  assert_false(lb_dim_try_eval(add(w, n), V(INT64_MAX, 1), 2, &v));
  assert_false(lb_dim_try_eval(n, V(6), 1, &v));
  assert_false(lb_dim_try_eval(w, V(-6, 1), 2, &v));
  assert_false(lb_dim_try_eval(add(fdiv(w, n), K(1)), V(6, 0), 2, &v));
  assert_true(lb_dim_try_eval(mul(mul(w, w), n), V(INT64_MAX, 0), 2, &v));
  assert_int_equal(v, 0);
  lb_dim apart = sub(mul(K(4), w), mul(K(4), n));
  assert_true(lb_dim_try_eval(apart, V(INT64_MAX, INT64_MAX - 1), 2, &v));
  assert_int_equal(v, 4);
}

static void has_values_checks_all_symbols(void **state) {
  (void)state;
  lb_dim w = S("w"), n = S("n"), deep = add(fdiv(add(w, K(3)), n), K(1));
  assert_true(lb_dim_has_values(K(7), NULL, 0));
  assert_true(lb_dim_has_values(deep, V(6, 0), 2));
  assert_false(lb_dim_has_values(deep, V(6, -1), 2));
  assert_false(lb_dim_has_values(deep, V(-1, 6), 2));
  assert_false(lb_dim_has_values(deep, V(6), 1));
  assert_true(lb_dim_has_values(w, V(6), 1));
}

static void ranges_have_multiples_and_bounds(void **state) {
  (void)state;
  lb_dim w = S("w"), h = S("h"), x = any_int();
  knows(K(0), 0, 0, 0);
  knows(K(-12), 12, -12, -12);
  knows(K(INT64_MIN), INT64_C(1) << 62, INT64_MIN, INT64_MIN);
  knows(w, 1, 0, INT64_MAX);
  knows(x, 1, INT64_MIN, INT64_MAX);
  knows(add(mul(w, K(8)), K(4)), 4, 4, INT64_MAX);
  knows(mul(mul(w, K(2)), mul(h, K(3))), 6, 0, INT64_MAX);
  knows(sub(K(5), w), 1, INT64_MIN, 5);
  knows(mod(x, K(8)), 1, 0, 7);
  knows(mod(x, K(-8)), 1, -7, 0);
  knows(mul(mod(x, K(4)), K(6)), 6, 0, 18);
  knows(min(mul(w, K(4)), K(10)), 2, 0, 10);
  knows(max(fdiv(w, K(2)), K(1)), 1, 1, INT64_MAX);
  knows(sub(w, min(w, h)), 1, 0, INT64_MAX);
  knows(sub(w, fdiv(w, K(2))), 1, 0, INT64_MAX);
  knows(mul(w, x), 1, INT64_MIN, INT64_MAX);
  knows(add(w, K(INT64_MAX)), 1, INT64_MAX - 1, INT64_MAX);
}

static void printing_uses_common_notation(void **state) {
  (void)state;
  lb_dim batch = S("batch"), seq = S("seq"), w = S("width"), n = S("n");
  prints(K(-3), "-3");
  prints(batch, "batch");
  prints(add(mul(seq, K(2)), K(1)), "2*seq+1");
  prints(fdiv(w, K(8)), "floor(width/8)");
  prints(cdiv(w, K(8)), "ceil(width/8)");
  prints(cdiv(add(w, K(1)), n), "ceil((width+1)/n)");
  prints(min(seq, batch), "min(batch,seq)");
  prints(mod(w, K(3)), "width%3");
  prints(mod(add(w, seq), K(3)), "(seq+width)%3");
  prints(mul(mod(w, K(3)), K(2)), "2*(width%3)");
  prints(add(mod(w, n), K(1)), "width%n+1");
  prints(mul(mod(w, n), seq), "seq*(width%n)");
  prints(mul(K(6), mul(seq, batch)), "6*batch*seq");
  prints(sub(K(1), seq), "1-seq");
  prints(sub(K(0), seq), "-seq");
  prints(fdiv(mul(w, seq), mul(K(2), n)), "floor(seq*width/(2*n))");
  prints(sub(mul(K(8), cdiv(w, K(8))), w), "8*ceil(width/8)-width");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(constants_need_no_table),
      TEST(overflow_of_numbers_names_operation_and_operands),
      TEST(division_by_constant_zero_is_an_error),
      TEST(named_symbols_are_shared_and_fresh_ones_are_unique),
      TEST(sums_and_products_have_one_form),
      TEST(overflow_of_coefficients_is_an_error),
      TEST(too_large_expressions_are_unsupported),
      TEST(division_by_constants_extracts_exact_quotients),
      TEST(nested_divisions_are_merged),
      TEST(division_by_expressions_cancels),
      TEST(modulo_folds),
      TEST(min_and_max_use_known_bounds),
      TEST(min_and_max_do_not_depend_on_order),
      TEST(eval_checks_everything),
      TEST(has_values_checks_all_symbols),
      TEST(ranges_have_multiples_and_bounds),
      TEST(printing_uses_common_notation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
