// spec/spec_test.c -- specs have one canonical form, and nothing else is
// accepted.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "spec/abi.h"

static uint64_t seed = 88172645463325252u;

static uint32_t draw(uint32_t n) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (uint32_t)(seed >> 33) % n;
}

static void assert_ok(lb_status st) {
  if (!lb_failed(st)) return;
  print_error("%s (%s)\n", lb_status_message(st), lb_status_where(st));
  lb_status_drop(st);
  fail();
}

static void assert_error(lb_status st, lb_code code, const char *part) {
  assert_int_equal(lb_status_code(st), code);
  if (!strstr(lb_status_message(st), part))
    fail_msg("'%s' does not say '%s'", lb_status_message(st), part);
  lb_status_drop(st);
}

static uint8_t unary(lb_spec_builder *b, lb_sop op, uint8_t x) {
  return lb_spec_node(b, op, LB_F32, &x, 1);
}

static uint8_t binary(lb_spec_builder *b, lb_sop op, uint8_t x, uint8_t y) {
  return lb_spec_node(b, op, LB_F32, (uint8_t[]){x, y}, 2);
}

static lb_spec softmax(void) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t top = unary(&b, LB_S_RMAX, x);
  uint8_t e = unary(&b, LB_S_EXP, binary(&b, LB_S_SUB, x, top));
  uint8_t y = binary(&b, LB_S_DIV, e, unary(&b, LB_S_RSUM, e));
  lb_spec_output(&b, y, LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &s));
  return s;
}

// -- canonical form ----------------------------------------------------------

typedef struct plan {  // a DAG that can be built in many orders
  lb_snode nodes[LB_SPEC_MAX_NODES];
  int n, n_in;
} plan;

static plan random_plan(void) {
  static const lb_sop ops[] = {LB_S_ADD, LB_S_SUB, LB_S_MUL, LB_S_MAX,
                               LB_S_EXP, LB_S_FMA, LB_S_NEG};
  plan p = {.n_in = 1 + (int)draw(4)};
  p.n = p.n_in + 1 + (int)draw(20);
  for (int i = p.n_in; i < p.n; i++) {
    lb_snode *n = &p.nodes[i];
    n->op = (uint8_t)ops[draw(sizeof ops / sizeof *ops)];
    n->n_src = lb_sop_infos[n->op].n_src;
    for (int j = 0; j < n->n_src; j++) n->src[j] = (uint8_t)draw((uint32_t)i);
  }
  return p;
}

static bool is_ready(const plan *p, int i, const uint8_t *at) {
  for (int j = 0; j < p->nodes[i].n_src; j++)
    if (at[p->nodes[i].src[j]] == LB_SPEC_NO_NODE) return false;
  return at[i] == LB_SPEC_NO_NODE;
}

// Builds nodes in a random order, sources of commutative operations in any
// order, and sometimes a node twice or a dead one.
static lb_spec build_shuffled(const plan *p) {
  lb_spec_builder b;
  lb_spec s;
  uint8_t at[LB_SPEC_MAX_NODES];
  memset(at, LB_SPEC_NO_NODE, sizeof at);
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  for (int i = 0; i < p->n_in; i++)
    at[i] = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  for (int left = p->n - p->n_in; left > 0;) {
    int i = p->n_in + (int)draw((uint32_t)(p->n - p->n_in));
    if (!is_ready(p, i, at)) continue;
    const lb_snode *n = &p->nodes[i];
    uint8_t src[4] = {0};
    for (int j = 0; j < n->n_src; j++) src[j] = at[n->src[j]];
    if (lb_sop_infos[n->op].commutative && draw(2)) {
      uint8_t first = src[0];
      src[0] = src[1], src[1] = first;
    }
    for (int twice = draw(8) == 0; twice >= 0; twice--)
      at[i] = lb_spec_node(&b, n->op, LB_F32, src, n->n_src);
    if (draw(8) == 0) unary(&b, LB_S_TANH, at[i]);
    if (draw(8) == 0) at[i] = unary(&b, LB_S_CAST, at[i]);
    left--;
  }
  lb_spec_output(&b, at[p->n - 1], LB_LAYOUT_FULL);
  lb_spec_output(&b, at[p->n / 2], LB_LAYOUT_STRIDED);
  assert_ok(lb_spec_finish(&b, &s));
  return s;
}

static void the_order_of_building_does_not_matter(void **state) {
  (void)state;
  for (int i = 0; i < 300; i++) {
    plan p = random_plan();
    lb_spec first = build_shuffled(&p);
    for (int j = 0; j < 4; j++) {
      lb_spec again = build_shuffled(&p);
      assert_memory_equal(&first, &again, sizeof first);
      assert_true(lb_spec_equal(&first, &again));
    }
  }
}

static void different_meanings_have_different_bytes(void **state) {
  (void)state;
  lb_spec specs[3];
  for (int i = 0; i < 3; i++) {
    lb_spec_builder b;
    lb_spec_begin(&b, LB_FORM_ELTWISE);
    uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
    uint8_t y = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
    uint8_t z = i == 0   ? binary(&b, LB_S_SUB, x, y)
                : i == 1 ? binary(&b, LB_S_SUB, y, x)
                         : binary(&b, LB_S_ADD, y, x);
    lb_spec_output(&b, z, LB_LAYOUT_FULL);
    assert_ok(lb_spec_finish(&b, &specs[i]));
  }
  assert_false(lb_spec_equal(&specs[0], &specs[1]));
  assert_false(lb_spec_equal(&specs[1], &specs[2]));
}

static void row_reduce_without_reductions_becomes_eltwise(void **state) {
  (void)state;
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  unary(&b, LB_S_RSUM, x);  // dead
  lb_spec_output(&b, unary(&b, LB_S_EXP, x), LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &s));
  assert_int_equal(s.form, LB_FORM_ELTWISE);
  assert_int_equal(s.n_nodes, 2);
}

// -- rejected specs -----------------------------------------------------------

static void finish_returns_the_first_error(void **state) {
  (void)state;
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t h = lb_spec_input(&b, LB_F16, LB_LAYOUT_FULL);
  uint8_t bad = binary(&b, LB_S_ADD, h, h);
  assert_int_equal(bad, LB_SPEC_NO_NODE);
  lb_spec_output(&b, bad, LB_LAYOUT_FULL);
  assert_error(lb_spec_finish(&b, &s), LB_INVALID, "node 1, add");

  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  for (int i = 0; i < LB_SPEC_MAX_NODES; i++) x = unary(&b, LB_S_NEG, x);
  lb_spec_output(&b, x, LB_LAYOUT_FULL);
  assert_error(lb_spec_finish(&b, &s), LB_UNSUPPORTED, "48 nodes");

  lb_spec_begin(&b, LB_FORM_ELTWISE);
  for (int i = 0; i <= LB_SPEC_MAX_IN; i++)
    x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  assert_error(lb_spec_finish(&b, &s), LB_UNSUPPORTED, "12 inputs");
}

static void nodes_of_other_forms_are_rejected(void **state) {
  (void)state;
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, unary(&b, LB_S_RSUM, x), LB_LAYOUT_PER_ROW);
  assert_error(lb_spec_finish(&b, &s), LB_INVALID, "reductions");

  lb_spec_begin(&b, LB_FORM_ELTWISE);
  x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, x, LB_LAYOUT_PER_ROW);
  assert_error(lb_spec_finish(&b, &s), LB_INVALID, "output 0");

  lb_spec_begin(&b, LB_FORM_MATMUL);
  x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  lb_spec_output(&b, binary(&b, LB_S_ADD, acc, x), LB_LAYOUT_FULL);
  assert_error(lb_spec_finish(&b, &s), LB_INVALID, "input of acc");
}

// Every accepted spec prints and has its arguments within the array; rejected
// ones must not cause reads out of bounds.
static void any_bytes_are_accepted_or_rejected(void **state) {
  (void)state;
  int accepted = 0;
  lb_spec base = softmax();
  for (int i = 0; i < 20000; i++) {
    lb_spec *s = malloc(sizeof *s);  // exact size, so that sanitizers detect
                                     // reads out of bounds
    *s = base;
    uint32_t edits = i % 4 ? 1 + draw(3) : sizeof *s;
    for (uint32_t j = 0; j < edits; j++)
      ((uint8_t *)s)[draw(sizeof *s)] = (uint8_t)draw(j % 2 ? 8 : 256);
    lb_status st = lb_spec_verify(s);
    if (!lb_failed(st)) {
      lb_strbuf text = {0};
      lb_spec_print(s, &text);
      assert_true(lb_spec_args(s).count <= LB_SPEC_MAX_ARGS);
      lb_strbuf_fini(&text);
      accepted++;
    }
    lb_status_drop(st);
    free(s);
  }
  assert_true(accepted > 0);
}

// -- facts, text and keys -----------------------------------------------------

static void a_spec_prints_as_one_line(void **state) {
  (void)state;
  lb_spec s = softmax();
  lb_strbuf text = {0};
  lb_spec_print(&s, &text);
  assert_string_equal(
      lb_strbuf_str(&text),
      "row_reduce %0=input.float32.full %1=rmax.float32(%0) "
      "%2=sub.float32(%0,%1) "
      "%3=exp.float32(%2) %4=rsum.float32(%3) %5=div.float32(%3,%4) "
      "-> %5.full");
  lb_strbuf_fini(&text);
}

static void arguments_are_adjacent(void **state) {
  (void)state;
  lb_spec s = {.form = LB_FORM_MATMUL, .n_in = 3, .n_out = 2, .n_scalars = 4};
  lb_sargs a = lb_spec_args(&s);
  assert_int_equal(a.in, 2);
  assert_int_equal(a.dims, 5);
  assert_int_equal(a.out_strides, 8);
  assert_int_equal(a.in_strides, 12);
  assert_int_equal(a.scalars, 18);
  assert_int_equal(a.count, 22);
}

static void facts_are_sorted_and_checked(void **state) {
  (void)state;
  lb_facts f = {0}, g = {0};
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 32);
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_facts_add(&g, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_facts_add(&g, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  assert_memory_equal(&f, &g, sizeof f);
  assert_ok(lb_facts_verify(&f));
  assert_true(lb_facts_reusable(&f));
  assert_true(lb_facts_hold(&f, (int64_t[LB_SDIMS]){7, 128, 1}));
  assert_false(lb_facts_hold(&f, (int64_t[LB_SDIMS]){7, 129, 1}));
  lb_facts_add(&g, LB_ASSUME_AT_MOST, LB_DIM_TAPS_Y, 5);
  assert_true(lb_facts_hold(&g, (int64_t[LB_SDIMS]){7, 128, 1, 5}));
  assert_false(lb_facts_hold(&g, (int64_t[LB_SDIMS]){7, 128, 1, 6}));
  assert_false(lb_facts_reusable(&g));
  assert_int_equal(lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 1), 6);
  assert_int_equal(lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_COLS, 9), 9);
  assert_true(lb_facts_divides(&f, LB_DIM_COLS, 16));
  assert_false(lb_facts_divides(&f, LB_DIM_COLS, 48));
  lb_strbuf text = {0};
  lb_facts_print(&f, &text);
  assert_string_equal(lb_strbuf_str(&text), "cols%64 rows:6");
  lb_strbuf_fini(&text);
  lb_facts_add(&f, LB_ASSUME_EQUAL, LB_DIM_K, 0);
  assert_false(lb_facts_reusable(&f));
  assert_ok(lb_facts_verify(&f));
  f.list[0].kind = 9;
  assert_error(lb_facts_verify(&f), LB_INVALID, "entry 0");
}

static lb_spec matmul_with(lb_layout right) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, right);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0),
                 LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &s));
  return s;
}

static lb_spec matmul(void) { return matmul_with(LB_LAYOUT_PANEL); }

// softmax(q k^T + mask) v, v of dtype t
static lb_spec attention(lb_dtype t) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ATTENTION);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, t, LB_LAYOUT_FULL);
  uint8_t mask = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  uint8_t score = lb_spec_node(&b, LB_S_ADD, LB_F32, (uint8_t[]){acc, mask}, 2);
  lb_spec_output(&b, score, LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &s));
  return s;
}

static void attention_has_four_dims(void **state) {
  (void)state;
  lb_spec s = attention(LB_F16);
  lb_sargs a = lb_spec_args(&s);
  assert_int_equal(a.dims, 5);
  assert_int_equal(a.out_strides, 9);
  assert_int_equal(a.count, 9 + 2 * 5);
  lb_strbuf text = {0};
  lb_spec_print(&s, &text);
  assert_string_equal(lb_strbuf_str(&text),
                      "attention %0=input.float32.full %1=input.float32.full "
                      "%2=input.float16.full %3=input.float32.per_col "
                      "%4=acc.float32 %5=add.float32(%3,%4) -> %5.full");
  lb_strbuf_fini(&text);
}

static void invalid_attention_is_rejected(void **state) {
  (void)state;
  lb_spec s = attention(LB_F32);
  s.in[1].layout = LB_LAYOUT_STRIDED;
  assert_error(lb_spec_verify(&s), LB_INVALID,
               "input 1 has an unsupported layout");
  s = attention(LB_F32);
  s.out[0].layout = LB_LAYOUT_STRIDED;
  assert_error(lb_spec_verify(&s), LB_INVALID,
               "output 0 has an unsupported layout");
  s = attention(LB_F32);
  s.in[2].dtype = s.nodes[2].dtype = LB_I32;
  assert_error(lb_spec_verify(&s), LB_INVALID, "float inputs");
  s = attention(LB_F32);
  s.nodes[5].src[0] = 2;
  assert_error(lb_spec_verify(&s), LB_INVALID, "reads an input of acc");
  s = attention(LB_F32);
  s.form = LB_FORM_ELTWISE;
  assert_error(lb_spec_verify(&s), LB_INVALID, "acc must occur once");
}

// Only operand B of a matmul has panels.
static void panels_are_for_operand_b_only(void **state) {
  (void)state;
  lb_spec s = matmul_with(LB_LAYOUT_PANEL_K2);
  lb_strbuf text = {0};
  lb_spec_print(&s, &text);
  assert_string_equal(lb_strbuf_str(&text),
                      "matmul %0=input.float32.full %1=input.float32.panel_k2 "
                      "%2=acc.float32 -> %2.full");
  lb_strbuf_fini(&text);
  s.in[0].layout = LB_LAYOUT_PANEL_K2;
  assert_error(lb_spec_verify(&s), LB_INVALID,
               "input 0 has an unsupported layout");
  s = attention(LB_F32);
  s.in[1].layout = LB_LAYOUT_PANEL_K2;
  assert_error(lb_spec_verify(&s), LB_INVALID,
               "input 1 has an unsupported layout");
}

static lb_spec int8_matmul(void) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_U8, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_I8, LB_LAYOUT_PANEL_K4);
  lb_spec_output(&b, lb_spec_acc(&b, LB_ACC_DOT, LB_I32), LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &s));
  return s;
}

static void panel_k4_is_for_int8_only(void **state) {
  (void)state;
  lb_spec s = int8_matmul();
  lb_strbuf text = {0};
  lb_spec_print(&s, &text);
  assert_string_equal(lb_strbuf_str(&text),
                      "matmul %0=input.uint8.full %1=input.int8.panel_k4 "
                      "%2=acc.int32 -> %2.full");
  lb_strbuf_fini(&text);
  s.in[0].layout = LB_LAYOUT_STRIDED;
  assert_error(lb_spec_verify(&s), LB_INVALID, "panel_k4 needs int8");
  s = int8_matmul();
  s.in[0].dtype = s.nodes[0].dtype = LB_I16;
  assert_error(lb_spec_verify(&s), LB_INVALID, "panel_k4 needs int8");
  s = int8_matmul();
  s.nodes[2].dtype = s.out[0].dtype = LB_F32;
  assert_error(lb_spec_verify(&s), LB_INVALID, "panel_k4 needs int8");
  s = matmul();
  s.in[1].layout = LB_LAYOUT_PANEL_K4;
  assert_error(lb_spec_verify(&s), LB_INVALID, "panel_k4 needs int8");
}

// The tile of K2-interleaved panels is as wide as few columns need.
static void k2_tiles_fit_the_columns(void **state) {
  (void)state;
  lb_spec s = matmul_with(LB_LAYOUT_PANEL_K2);
  for (int64_t cols = 1; cols <= 24; cols++) {
    int64_t dims[LB_SDIMS] = {100, cols, 64};
    lb_facts f = lb_facts_of(&s, 16, dims);
    int width = lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_COLS, 0);
    assert_int_equal(width, (cols + 7) / 8 * 8);
    assert_true(lb_facts_reusable(&f));
  }
}

// No selected tile computes 10% more rows than another would; tiles that divide
// the rows are selected.
static void attention_tiles_waste_few_rows(void **state) {
  (void)state;
  static const int even[][3] = {{16, 16, 8},   {16, 64, 8}, {16, 77, 10},
                                {16, 128, 10}, {8, 20, 4},  {8, 64, 6}};
  lb_spec s = attention(LB_F32);
  for (size_t i = 0; i < sizeof even / sizeof *even; i++) {
    int64_t dims[LB_SDIMS] = {even[i][1], 32, 32, even[i][1]};
    lb_facts f = lb_facts_of(&s, (uint32_t)even[i][0], dims);
    assert_int_equal(lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0),
                     even[i][2]);
  }
  for (int64_t rows = 11; rows < 300; rows++) {
    int64_t dims[LB_SDIMS] = {rows, 32, 32, rows};
    lb_facts f = lb_facts_of(&s, 16, dims);
    int64_t tile = lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0);
    int64_t made = (rows + tile - 1) / tile * tile;
    assert_true(10 * made <= 11 * ((rows + 7) / 8 * 8));
    assert_true(10 * made <= 11 * ((rows + 9) / 10 * 10));
  }
}

static void all_sizes_select_few_facts(void **state) {
  (void)state;
  const lb_spec specs[] = {matmul(), matmul_with(LB_LAYOUT_PANEL_K2), softmax(),
                           attention(LB_F32)};
  for (int i = 0; i < 4; i++)
    for (uint32_t lanes = 4; lanes <= 16; lanes *= 2) {
      lb_facts seen[LB_MAX_FACTS_OF + 1];
      int n = 0;
      for (int64_t at = 0; at < 200 * 200; at++) {
        int64_t dims[LB_SDIMS] = {at % 200, at / 200 * (at % 2 ? 16 : 1),
                                  at % 7 * (at % 3 ? 1 : 50), at % 999};
        lb_facts f = lb_facts_of(&specs[i], lanes, dims);
        assert_true(lb_facts_hold(&f, dims));
        int j = 0;
        while (j < n && memcmp(&seen[j], &f, sizeof f) != 0) j++;
        if (j == n) seen[n++] = f;
        assert_true(n <= LB_MAX_FACTS_OF);
      }
    }
}

static void reusable_facts_assume_only_divisibility(void **state) {
  (void)state;
  const lb_spec specs[] = {matmul(), matmul_with(LB_LAYOUT_PANEL_K2),
                           softmax()};
  for (int i = 0; i < 3; i++)
    for (uint32_t lanes = 4; lanes <= 16; lanes *= 2)
      for (int64_t at = 0; at < 200 * 200; at++) {
        int64_t dims[LB_SDIMS] = {at % 200, at / 200, 64};
        lb_facts f = lb_facts_prefer(&specs[i], lanes, dims, true);
        lb_facts any = lb_facts_of(&specs[i], lanes, dims);
        assert_true(lb_facts_hold(&f, dims) && lb_facts_reusable(&f));
        if (lb_facts_reusable(&any))  // then there is nothing to prefer
          assert_memory_equal(&f, &any, sizeof f);
      }
  lb_spec heads = attention(LB_F32);
  lb_facts f = lb_facts_prefer(&heads, 16, (int64_t[LB_SDIMS]){9, 9, 64}, true);
  assert_false(lb_facts_reusable(&f));
  assert_non_null(lb_spec_needs_specialised(&heads));
  assert_null(lb_spec_needs_specialised(&specs[0]));
}

// Fewer than one in five computed rows is unused, except for the smallest
// matmuls.
static void tiles_fit_the_rows(void **state) {
  (void)state;
  lb_spec s = matmul();
  for (uint32_t lanes = 4; lanes <= 16; lanes *= 2)
    for (int64_t m = 1; m < 300; m++) {
      lb_facts f = lb_facts_of(&s, lanes, (int64_t[LB_SDIMS]){m, 384, 384});
      int64_t rows = lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0);
      assert_true(rows >= 1);
      int64_t n = (m + rows - 1) / rows, full = m - n * (rows - 1);
      int64_t done = full < 0 ? n * (rows - 1) : m;
      assert_true((done - m) * 5 < m);
    }
}

static int max_cols(int64_t rows, int64_t cols, bool reusable) {
  lb_spec s = softmax();
  int64_t dims[LB_SDIMS] = {rows, cols};
  lb_facts f = lb_facts_prefer(&s, 16, dims, reusable);
  assert_true(lb_facts_hold(&f, dims));
  return lb_facts_get(&f, LB_ASSUME_AT_MOST, LB_DIM_COLS, 0);
}

static void short_rows_have_two_widths(void **state) {
  (void)state;
  assert_int_equal(max_cols(2100, 1, false), 16);
  assert_int_equal(max_cols(8, 16, false), 16);
  assert_int_equal(max_cols(8, 17, false), 32);
  assert_int_equal(max_cols(100, 32, false), 32);
  assert_int_equal(max_cols(100, 33, false), 0);
  assert_int_equal(max_cols(7, 16, false), 0);  // too few rows for a block
  assert_int_equal(max_cols(100, 16, true), 0);
}

static lb_spec depthwise(void) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_WINDOW);
  for (int i = 0; i < 2; i++) lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_acc(&b, LB_ACC_DOT, LB_F32), LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &s));
  return s;
}

// Only the lowest tile, which few rows get, may be higher than the rows.
static void windows_have_three_heights(void **state) {
  (void)state;
  lb_spec s = depthwise();
  for (uint32_t lanes = 4; lanes <= 16; lanes *= 2) {
    bool seen[17] = {false};
    int heights = 0;
    for (int64_t at = 0; at < 200 * 49 * 4; at++) {
      int64_t taps = at / 200 % 49, cols = 8 + 8 * (at / 200 / 49);
      int64_t dims[] = {1 + at % 200, cols, 1, 1 + taps / 7, 1 + taps % 7};
      lb_facts f = lb_facts_of(&s, lanes, dims);
      int rows = lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0);
      assert_in_range(rows, 2, 16);
      assert_true(rows == 2 || rows <= dims[0]);
      heights += !seen[rows];
      seen[rows] = true;
    }
    assert_int_equal(heights, 3);
  }
}

static void keys_depend_on_all_parts(void **state) {
  (void)state;
  lb_spec s = softmax();
  lb_facts none = {0}, some = {0};
  lb_facts_add(&some, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 16);
  lb_hash128 k = lb_spec_key(&s, &none, "x86-64-v3", 1);
  lb_hash128 others[] = {lb_spec_key(&s, &some, "x86-64-v3", 1),
                         lb_spec_key(&s, &none, "x86-64-v4", 1),
                         lb_spec_key(&s, &none, "x86-64-v3", 2)};
  lb_hash128 same = lb_spec_key(&s, &none, "x86-64-v3", 1);
  assert_memory_equal(&k, &same, sizeof k);
  for (int i = 0; i < 3; i++) assert_memory_not_equal(&k, &others[i], sizeof k);
}

static void softmax_is_critical_and_a_norm_is_not(void **state) {
  (void)state;
  lb_spec s = {.form = LB_FORM_ROW_REDUCE, .n_nodes = 2};
  s.nodes[0].op = LB_S_RSUM;
  s.nodes[1].op = LB_S_SQRT;
  assert_false(lb_spec_is_critical(&s));
  s.nodes[1].op = LB_S_EXP;
  assert_true(lb_spec_is_critical(&s));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(softmax_is_critical_and_a_norm_is_not),
      cmocka_unit_test(the_order_of_building_does_not_matter),
      cmocka_unit_test(different_meanings_have_different_bytes),
      cmocka_unit_test(row_reduce_without_reductions_becomes_eltwise),
      cmocka_unit_test(finish_returns_the_first_error),
      cmocka_unit_test(nodes_of_other_forms_are_rejected),
      cmocka_unit_test(any_bytes_are_accepted_or_rejected),
      cmocka_unit_test(a_spec_prints_as_one_line),
      cmocka_unit_test(arguments_are_adjacent),
      cmocka_unit_test(facts_are_sorted_and_checked),
      cmocka_unit_test(attention_has_four_dims),
      cmocka_unit_test(invalid_attention_is_rejected),
      cmocka_unit_test(panels_are_for_operand_b_only),
      cmocka_unit_test(panel_k4_is_for_int8_only),
      cmocka_unit_test(k2_tiles_fit_the_columns),
      cmocka_unit_test(attention_tiles_waste_few_rows),
      cmocka_unit_test(all_sizes_select_few_facts),
      cmocka_unit_test(reusable_facts_assume_only_divisibility),
      cmocka_unit_test(tiles_fit_the_rows),
      cmocka_unit_test(short_rows_have_two_widths),
      cmocka_unit_test(windows_have_three_heights),
      cmocka_unit_test(keys_depend_on_all_parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
