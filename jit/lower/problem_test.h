// lower/problem_test.h -- For tests: random specs with operands of random,
// edge-biased sizes and strides, and their expected results.
//
// A failure prints a command line that runs the case alone.
#ifndef LB_LOWER_PROBLEM_TEST_H
#define LB_LOWER_PROBLEM_TEST_H

#include "kir/testkit.h"

#include <stdio.h>
#include <stdlib.h>

#include "lower/lower.h"
#include "lower/reference_test.h"
#include "spec/abi.h"
#include "spec/panel.h"

static const char *test_name;

// -- drawing -----------------------------------------------------------------

static uint64_t seed;
// Excludes operations whose machine code may be off by ulps.
static bool only_exact;

static inline uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

#define DRAW(array) ((array)[draw(sizeof(array) / sizeof *(array))])

static const int64_t edges[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,   15,  16,
                                17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129};
static const int64_t small_sizes[] = {0, 1, 2, 3, 5, 6, 7, 8, 13};

static const lb_dtype dtypes[] = {LB_F32, LB_F32,  LB_F32, LB_F32, LB_F64,
                                  LB_F16, LB_BF16, LB_I32, LB_I64, LB_I8,
                                  LB_U8,  LB_U32,  LB_BOOL};

static bool only_moderate;  // moderate numbers only, so that long sums are
                            // finite and inexact

// A random number, often a special value.
static inline num draw_num(lb_dtype t) {
  static const double special[] = {0,    -0.0,     1,         -1,  0.5,
                                   NAN,  INFINITY, -INFINITY, 2,   1e-40,
                                   3e38, -2.5,     1e-5,      100, -7};
  double x = draw(8) ? draw(2000) / 500.0 - 2 : DRAW(special);
  if (only_moderate) x = draw(1u << 24) / 7e6 - 1;
  if (lb_dtype_is_float(t)) return cast_num(t, (num){LB_F64, x, 0});
  uint64_t bits = (uint64_t)draw(1u << 31) << 33 | draw(1u << 31);
  return num_int(t, draw(4) ? draw(9) - 4u : bits);
}

static inline void fill_random(operand *o, lb_dtype t, int64_t n) {
  size_t size = lb_dtype_size(t);
  o->bytes = (size_t)n * size;
  o->data = malloc(o->bytes + 1);
  for (int64_t i = 0; i < n; i++)
    num_write(draw_num(t), o->data + (size_t)i * size);
}

// -- specs -------------------------------------------------------------------

static const lb_layout input_layouts[] = {
    LB_LAYOUT_FULL,    LB_LAYOUT_FULL,      LB_LAYOUT_PER_COL,
    LB_LAYOUT_PER_ROW, LB_LAYOUT_BROADCAST, LB_LAYOUT_STRIDED};

// A node in a dtype that supports arithmetic: f16 and bf16 are cast at once.
static inline uint8_t widened(lb_spec_builder *b, uint8_t node, lb_dtype t) {
  if (lb_sdtype_kind(t)) return node;
  return lb_spec_node(b, LB_S_CAST, LB_F32, &node, 1);
}

static inline uint8_t draw_of_kind(const lb_spec_builder *b, unsigned kinds) {
  for (int tries = 0; tries < 40; tries++) {
    uint8_t i = (uint8_t)draw(b->spec.n_nodes);
    if (i < lb_spec_factors(&b->spec) || lb_spec_is_gathered(&b->spec, i))
      continue;
    if (lb_sdtype_kind(b->spec.nodes[i].dtype) & kinds) return i;
  }
  return LB_SPEC_NO_NODE;
}

static inline uint8_t draw_of_dtype(const lb_spec_builder *b, uint8_t like) {
  for (int tries = 0; tries < 20; tries++) {
    uint8_t i = draw_of_kind(b, LB_SD_ALL);
    if (i != LB_SPEC_NO_NODE &&
        b->spec.nodes[i].dtype == b->spec.nodes[like].dtype)
      return i;
  }
  return like;
}

static inline bool is_inexact(lb_sop op) {
  return op == LB_S_RSQRT || (op >= LB_S_EXP && op <= LB_S_POW);
}

static inline void add_node(lb_spec_builder *b) {
  lb_sop op = draw(LB_S_COUNT);
  const lb_sop_info *info = &lb_sop_infos[op];
  if (b->spec.form == LB_FORM_ROW_REDUCE && draw(4) == 0)
    op = LB_S_RSUM + draw(4), info = &lb_sop_infos[op];
  if (info->rule == LB_SR_LEAF && op != LB_S_COLS) return;
  if (info->rule == LB_SR_GATHER_ROW) return;
  if (op == LB_S_COLS && b->spec.form == LB_FORM_ATTENTION) return;
  if (only_exact && is_inexact(op)) return;
  if (info->rule == LB_SR_REDUCE && b->spec.form != LB_FORM_ROW_REDUCE) return;
  uint8_t src[4], x = draw_of_kind(b, info->dtypes), n = 0;
  if (x == LB_SPEC_NO_NODE) return;
  lb_dtype t = b->spec.nodes[x].dtype;
  if (info->rule == LB_SR_LEAF && !(lb_sdtype_kind(t) & LB_SD_NUM)) return;
  if (info->rule == LB_SR_SELECT) src[n++] = draw_of_kind(b, LB_SD_BOOL);
  if (n && src[0] == LB_SPEC_NO_NODE) return;
  if (info->n_src > n) src[n++] = x;
  while (n < info->n_src) src[n++] = draw_of_dtype(b, x);
  if (info->rule == LB_SR_COMPARE) t = LB_BOOL;
  if (info->rule == LB_SR_CAST) t = DRAW(dtypes);
  uint8_t node = lb_spec_node(b, op, t, src, n);
  if (info->rule == LB_SR_CAST && node != LB_SPEC_NO_NODE) widened(b, node, t);
}

static inline void add_output(lb_spec_builder *b, uint8_t node) {
  uint8_t varies[LB_SPEC_MAX_NODES];
  lb_spec_varies(&b->spec, varies);
  bool rows =
      !lb_spec_factors(&b->spec) && draw(4) && !(varies[node] & LB_VARIES_COLS);
  lb_spec_output(b, node,
                 rows      ? LB_LAYOUT_PER_ROW
                 : draw(4) ? LB_LAYOUT_FULL
                           : LB_LAYOUT_STRIDED);
}

static inline void add_matmul_operands(lb_spec_builder *b) {
  static const lb_dtype accs[] = {LB_F32, LB_F32, LB_F32, LB_F64, LB_I32};
  static const lb_layout rights[] = {LB_LAYOUT_PANEL,    LB_LAYOUT_PANEL,
                                     LB_LAYOUT_PANEL_K2, LB_LAYOUT_PANEL_K2,
                                     LB_LAYOUT_FULL,     LB_LAYOUT_STRIDED};
  lb_dtype acc = DRAW(accs);
  if (acc == LB_I32 && draw(2)) {
    lb_spec_input(b, draw(4) ? LB_U8 : LB_I8, LB_LAYOUT_FULL);
    lb_spec_input(b, draw(4) ? LB_I8 : LB_U8, LB_LAYOUT_PANEL_K4);
    return;
  }
  lb_dtype narrow = acc == LB_I32 ? LB_I8 : acc == LB_F32 ? LB_F16 : LB_F32;
  lb_spec_input(b, draw(4) ? acc : narrow,
                draw(4) ? LB_LAYOUT_FULL : LB_LAYOUT_STRIDED);
  lb_spec_input(b, draw(4) ? acc : narrow, DRAW(rights));
}

static inline uint8_t input_of(lb_spec_builder *b) {
  lb_dtype t = DRAW(dtypes);
  return widened(b, lb_spec_input(b, t, DRAW(input_layouts)), t);
}

// Gathers rows of an input by one index or by the sum of two. Indices are below
// ROW_INDICES: see draw_operands.
enum { ROW_INDICES = 3 };

static inline void add_gathers(lb_spec_builder *b) {
  static const lb_layout layouts[] = {LB_LAYOUT_PER_ROW, LB_LAYOUT_BROADCAST};
  lb_dtype t = DRAW(dtypes);
  uint8_t x = lb_spec_input(b, t, LB_LAYOUT_FULL);
  for (uint32_t i = 1 + draw(3); i > 0; i--) {
    uint8_t index = lb_spec_input(b, LB_I64, DRAW(layouts));
    uint8_t two[] = {index, lb_spec_input(b, LB_I64, DRAW(layouts))};
    if (draw(2)) index = lb_spec_node(b, LB_S_ADD, LB_I64, two, 2);
    widened(b, lb_spec_node(b, LB_S_GATHER_ROW, t, (uint8_t[]){x, index}, 2),
            t);
  }
}

static inline lb_status draw_attention(lb_spec *out) {
  lb_spec_builder b;
  lb_dtype acc_dtype = draw(4) ? LB_F32 : LB_F64;
  lb_spec_begin(&b, LB_FORM_ATTENTION);
  for (int i = 0; i < 3; i++)
    lb_spec_input(&b, draw(6) ? acc_dtype : LB_F16, LB_LAYOUT_FULL);
  for (uint32_t i = draw(4); i > 0; i--) input_of(&b);
  for (uint32_t i = draw(3); i > 0; i--) {
    lb_dtype t = DRAW(dtypes);
    widened(&b, lb_spec_scalar(&b, t), t);
  }
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, acc_dtype, NULL, 0), score = acc;
  for (uint32_t i = draw(6); i > 0; i--) add_node(&b);
  static const lb_sop ops[] = {LB_S_ADD, LB_S_MUL, LB_S_SUB, LB_S_MIN};
  for (uint32_t i = draw(4); i > 0; i--) {
    uint8_t src[] = {score, draw_of_dtype(&b, acc)};
    score = lb_spec_node(&b, DRAW(ops), acc_dtype, src, 2);
  }
  lb_spec_output(&b, score, LB_LAYOUT_FULL);
  return lb_spec_finish(&b, out);
}

// Adds the inputs of a convolution or window; returns the accumulator dtype.
static inline lb_dtype add_window(lb_spec_builder *b, lb_acc kind) {
  lb_dtype acc = draw(4) ? LB_F32 : LB_F64;
  bool conv = b->spec.form == LB_FORM_CONV;
  if (conv && draw(4) == 0) {
    lb_spec_input(b, LB_U8, LB_LAYOUT_FULL);
    lb_spec_input(b, LB_I8, LB_LAYOUT_PANEL_K4);
    return LB_I32;
  }
  lb_spec_input(b, draw(6) ? acc : LB_F16, LB_LAYOUT_FULL);
  if (kind == LB_ACC_DOT)
    lb_spec_input(b, draw(6) ? acc : LB_F16,
                  !conv     ? LB_LAYOUT_FULL
                  : draw(2) ? LB_LAYOUT_PANEL
                            : LB_LAYOUT_PANEL_K2);
  return acc;
}

static inline lb_status draw_window(lb_form form, lb_spec *out) {
  lb_spec_builder b;
  lb_acc kind = form == LB_FORM_CONV ? LB_ACC_DOT : draw(LB_ACCS);
  lb_spec_begin(&b, form);
  lb_dtype t = add_window(&b, kind);
  for (uint32_t i = draw(3); i > 0; i--) input_of(&b);
  uint8_t acc = lb_spec_acc(&b, kind, t);
  for (uint32_t i = draw(6); i > 0; i--) add_node(&b);
  uint8_t last = (uint8_t)(b.spec.n_nodes - 1);
  if (last != acc) add_output(&b, last);
  add_output(&b, acc);
  return lb_spec_finish(&b, out);
}

static inline lb_status draw_spec(lb_form form, lb_spec *out) {
  if (form == LB_FORM_ATTENTION) return draw_attention(out);
  if (form == LB_FORM_CONV || form == LB_FORM_WINDOW)
    return draw_window(form, out);
  lb_spec_builder b;
  lb_spec_begin(&b, form);
  if (form == LB_FORM_MATMUL) add_matmul_operands(&b);
  uint32_t n_in = form == LB_FORM_MATMUL ? draw(4) : 1 + draw(4);
  for (uint32_t i = 0; i < n_in; i++) input_of(&b);
  if (form == LB_FORM_ELTWISE && draw(4) == 0) add_gathers(&b);
  for (uint32_t i = draw(3); i > 0; i--) {
    lb_dtype t = DRAW(dtypes);
    widened(&b, lb_spec_scalar(&b, t), t);
  }
  uint8_t acc = LB_SPEC_NO_NODE;
  if (form == LB_FORM_MATMUL) {
    lb_dtype ta = b.spec.in[0].dtype;
    lb_dtype t = ta == LB_F16                 ? LB_F32
                 : ta == LB_I8 || ta == LB_U8 ? LB_I32
                                              : ta;
    acc = lb_spec_node(&b, LB_S_ACC, t, NULL, 0);
  }
  for (uint32_t i = draw(14); i > 0 && b.spec.n_nodes < 40; i--) add_node(&b);
  uint8_t last = (uint8_t)(b.spec.n_nodes - 1);
  if (form != LB_FORM_MATMUL || last == acc || draw(2)) add_output(&b, last);
  if (form == LB_FORM_MATMUL && last != acc) add_output(&b, acc);
  if (draw(3) == 0) {
    uint8_t node = draw_of_kind(&b, LB_SD_ALL);
    if (node != LB_SPEC_NO_NODE) add_output(&b, node);
  }
  return lb_spec_finish(&b, out);
}

// -- operands ----------------------------------------------------------------

static inline void draw_strides(operand *o, int64_t rows, int64_t cols,
                                bool input) {
  switch (draw(input ? 4 : 3)) {
    case 0: o->row = cols * 2 + 1, o->col = 2; break;
    case 1: o->row = 1, o->col = rows + draw(2); break;
    case 2: o->row = cols + draw(3), o->col = 1; break;
    default: o->row = draw(2), o->col = 0; break;
  }
}

// Returns exactly as many elements as the layout can reach.
static inline int64_t draw_layout(operand *o, lb_layout layout, int64_t rows,
                                  int64_t cols, bool input) {
  int64_t last_row = rows - 1, last_col = cols - 1;
  o->row = cols + draw(3), o->col = 1;
  switch (layout) {
    case LB_LAYOUT_PER_COL: o->row = 0, last_row = 0; break;
    case LB_LAYOUT_PER_ROW:
      o->row = 1 + draw(3), o->col = 0, last_col = 0;
      break;
    case LB_LAYOUT_BROADCAST: return 1;
    case LB_LAYOUT_STRIDED: draw_strides(o, rows, cols, input); break;
    default:
      if (input && draw(8) == 0) o->row = 0;
      break;
  }
  if (last_row < 0 || last_col < 0) return 0;
  return last_row * o->row + last_col * o->col + 1;
}

static inline void pack(problem *p, operand *o) {
  lb_dtype t = p->spec.in[1].dtype;
  int64_t k = p->dims[LB_DIM_K], n = p->dims[LB_DIM_COLS];
  operand plain = {0};
  fill_random(&plain, t, k * n);
  lb_matrix m = {plain.data, k,
                 n,          n,
                 1,          lb_dtype_size(t),
                 false,      (lb_layout)p->spec.in[1].layout};
  size_t bytes = 0;
  assert_true(lb_panel_size(&m, &bytes));
  int64_t panel = k * lb_panel_cols(p->spec.in[1].layout);
  *o = (operand){malloc(bytes + 1), bytes, panel, 0};
  lb_panel_pack(&m, o->data);
  free(plain.data);
}

static inline void size_of_input(const problem *p, int i, int64_t *rows,
                                 int64_t *cols) {
  int64_t k = p->dims[LB_DIM_K], n_keys = p->dims[LB_DIM_KEYS];
  *rows = p->dims[LB_DIM_ROWS], *cols = p->dims[LB_DIM_COLS];
  bool is_operand = i < lb_spec_factors(&p->spec);
  if (p->spec.form == LB_FORM_ATTENTION) {
    if (is_operand && i > 0) *rows = n_keys;
    if (i != 2) *cols = is_operand ? k : n_keys;
  } else if (is_operand) {
    *(i == 0 ? cols : rows) = k;
  } else if (lb_spec_is_gathered(&p->spec, (uint8_t)i)) {
    *rows = 2 * ROW_INDICES - 1;
  }
}

// Draws taps that may overlap or have gaps, and allocates exactly the elements
// of input i that they can reach.
static inline void draw_taps(problem *p, int i) {
  const int64_t *d = p->dims;
  bool conv = p->spec.form == LB_FORM_CONV, panel_b = conv && i == 1;
  int64_t piece = conv ? d[LB_DIM_K] : d[LB_DIM_COLS], panels = 1;
  int64_t unit = panel_b ? lb_panel_cols(p->spec.in[i].layout) : 1;
  int64_t n = piece * unit;
  int64_t gap = panel_b ? unit * lb_panel_rows(p->spec.in[i].layout) : unit;
  int64_t x_stride = piece * unit + draw(3) * gap;
  int64_t y_stride = d[LB_DIM_TAPS_X] * x_stride + draw(3) * gap;
  int64_t any_stride = draw(2) ? 2 : 1 + draw(40);
  int64_t row = i == 0 ? draw(3) ? (1 + draw(2)) * x_stride : any_stride : 0;
  if (i == 0 && d[LB_DIM_TAPS_X] > 60 && draw(4))
    row = y_stride;  // windows are disjoint
  int64_t last =
      (d[LB_DIM_TAPS_Y] - 1) * y_stride + (d[LB_DIM_TAPS_X] - 1) * x_stride;
  if (panel_b) {
    panels = (d[LB_DIM_COLS] + unit - 1) / unit;
    row = last + n + LB_PANEL_COLS * draw(2);
    last += (panels - 1) * row;
  } else if (i == 0) {
    last += (d[LB_DIM_ROWS] - 1) * row;
  }
  bool none = d[LB_DIM_TAPS_Y] == 0 || d[LB_DIM_TAPS_X] == 0 || piece == 0 ||
              panels == 0 || d[LB_DIM_ROWS] == 0;
  p->taps[i].y = y_stride;
  p->taps[i].x = x_stride;
  p->in[i].row = row;
  fill_random(&p->in[i], p->spec.in[i].dtype, none ? 0 : last + n);
}

static inline void draw_operands(problem *p) {
  const lb_spec *s = &p->spec;
  int64_t rows = p->dims[0], cols = p->dims[1];
  for (int i = 0; i < s->n_in; i++) {
    int64_t r, c;
    if (lb_spec_has_taps(s) && i < lb_spec_factors(s)) {
      draw_taps(p, i);
      continue;
    }
    size_of_input(p, i, &r, &c);
    if (lb_panel_cols(s->in[i].layout)) {
      pack(p, &p->in[i]);
      continue;
    }
    int64_t n = draw_layout(&p->in[i], s->in[i].layout, r, c, true);
    fill_random(&p->in[i], s->in[i].dtype, n);
    for (int64_t k = 0; lb_spec_is_row_index(s, (uint8_t)i) && k < n; k++)
      ((int64_t *)(void *)p->in[i].data)[k] = draw(ROW_INDICES);
  }
  for (int i = 0; i < s->n_out; i++) {
    int64_t n = draw_layout(&p->out[i], s->out[i].layout, rows, cols, false);
    fill_random(&p->out[i], s->out[i].dtype, n);
  }
  for (int i = 0; i < s->n_scalars; i++)
    num_write(draw_num(s->nodes[s->n_in + i].dtype), &p->scalars[i]);
}

// Places output 0 in the memory of an input with the same layout, if there is
// one.
static inline int draw_alias(problem *p) {
  const lb_spec *s = &p->spec;
  if (s->form == LB_FORM_ATTENTION) return -1;
  for (int i = lb_spec_factors(s); i < s->n_in; i++) {
    if (s->in[i].dtype != s->out[0].dtype || draw(2)) continue;
    if (s->in[i].layout != s->out[0].layout) continue;
    if (p->in[i].row == 0 || p->in[i].col == 0) continue;
    if (s->in[i].layout == LB_LAYOUT_PER_ROW ||
        lb_spec_is_gathered(s, (uint8_t)i) ||
        lb_spec_is_row_index(s, (uint8_t)i))
      continue;
    p->out[0].row = p->in[i].row, p->out[0].col = p->in[i].col;
    free(p->out[0].data);
    p->out[0].bytes = p->in[i].bytes;
    p->out[0].data = malloc(p->in[i].bytes + 1);
    memcpy(p->out[0].data, p->in[i].data, p->in[i].bytes);
    return i;
  }
  return -1;
}

static inline void draw_facts(problem *p) {
  static const uint16_t tiles[] = {16, 32, 48, 64};
  static const uint16_t units[] = {4, 8, 16, 32, 64, 128};
  bool attention = p->spec.form == LB_FORM_ATTENTION;
  uint16_t max_k = (uint16_t)(p->dims[LB_DIM_K] + draw(2) * draw(100));
  if (attention && max_k > 0)
    lb_facts_add(&p->facts, LB_ASSUME_AT_MOST, LB_DIM_K, max_k);
  else if (attention)
    lb_facts_add(&p->facts, LB_ASSUME_EQUAL, LB_DIM_K, 0);
  if (draw(3) == 0) {
    p->facts = lb_facts_of(&p->spec, 4u << draw(3), p->dims);
    return;
  }
  for (lb_sdim d = 0; d < LB_SDIMS; d++) {
    if (draw(6) == 0)
      lb_facts_add(&p->facts, LB_ASSUME_EQUAL, d, (uint16_t)p->dims[d]);
    uint16_t unit = DRAW(units);
    if (draw(2) == 0 && p->dims[d] % unit == 0)
      lb_facts_add(&p->facts, LB_ASSUME_MULTIPLE, d, unit);
  }
  if (draw(2)) return;
  uint16_t rows = (uint16_t)(1 + draw(8)), cols = DRAW(tiles);
  if (is_k2(p)) cols /= 2;
  lb_facts_add(&p->facts, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  lb_facts_add(&p->facts, LB_CHOOSE_TILE, LB_DIM_COLS, cols);
  if (p->dims[LB_DIM_COLS] <= cols && draw(2))
    lb_facts_add(&p->facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, cols);
  if (p->dims[0] % rows == 0 && draw(2))
    lb_facts_add(&p->facts, LB_ASSUME_MULTIPLE, LB_DIM_ROWS, rows);
}

// -- running -----------------------------------------------------------------

typedef struct problem_case {
  problem p;
  lb_form form;
  uint64_t seed;
  int alias;  // the input whose memory is output 0, or -1
  char *want[LB_SPEC_MAX_OUT];
} problem_case;

static const char *const form_names[] = {"eltwise",   "row_reduce", "matmul",
                                         "attention", "conv",       "window"};

static inline lb_form form_named(const char *name) {
  lb_form f = LB_FORM_ELTWISE;
  while (f + 1 < LB_FORM_COUNT && strcmp(form_names[f], name) != 0) f++;
  return f;
}

static inline void report(const problem_case *c, uint32_t lanes,
                          const char *what) {
  lb_strbuf text = {0};
  lb_spec_print(&c->p.spec, &text);
  lb_strbuf_puts(&text, " | ");
  lb_facts_print(&c->p.facts, &text);
  print_error("%s %s %llu: %s; lanes %u, %lldx%lldx%lldx%lldx%lld, %s\n",
              test_name, form_names[c->form], (unsigned long long)c->seed, what,
              lanes, (long long)c->p.dims[0], (long long)c->p.dims[1],
              (long long)c->p.dims[2], (long long)c->p.dims[3],
              (long long)c->p.dims[4], lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  fail();
}

static inline uint32_t make_args(const problem *p, char *const *out,
                                 const operand *in, lb_karg *args) {
  const lb_spec *s = &p->spec;
  lb_sargs at = lb_spec_args(s);
  for (int i = 0; i < s->n_out; i++) {
    args[at.out + i] = lb_karg_mem(out[i], p->out[i].bytes);
    args[at.out_strides + 2 * i] = lb_karg_i64(p->out[i].row);
    args[at.out_strides + 2 * i + 1] = lb_karg_i64(p->out[i].col);
  }
  for (int i = 0; i < s->n_in; i++) {
    args[at.in + i] = lb_karg_mem(in[i].data, in[i].bytes);
    args[at.in_strides + 2 * i] = lb_karg_i64(in[i].row);
    args[at.in_strides + 2 * i + 1] = lb_karg_i64(in[i].col);
  }
  for (int i = 0; i < at.out_strides - at.dims; i++)
    args[at.dims + i] = lb_karg_i64(p->dims[i]);
  for (int i = 0; i < 2 && at.taps < at.scalars; i++) {
    args[at.taps + 2 * i] = lb_karg_i64(p->taps[i].y);
    args[at.taps + 2 * i + 1] = lb_karg_i64(p->taps[i].x);
  }
  for (int i = 0; i < s->n_scalars; i++)
    args[at.scalars + i] = (lb_karg){.bits = p->scalars[i]};
  return at.count;
}

static inline void compare(const problem_case *c, uint32_t lanes,
                           char *const *got) {
  const lb_spec *s = &c->p.spec;
  for (int o = 0; o < s->n_out; o++) {
    lb_dtype t = s->out[o].dtype;
    for (size_t i = 0; i < c->p.out[o].bytes; i += lb_dtype_size(t)) {
      num a = num_read(t, got[o] + i), b = num_read(t, c->want[o] + i);
      if (num_same(a, b)) continue;
      char what[128];
      snprintf(what, sizeof what,
               "output %d, element %zu: %.17g/%lld, not %.17g/%lld", o,
               i / lb_dtype_size(t), a.f, (long long)a.u, b.f, (long long)b.u);
      report(c, lanes, what);
    }
  }
}

static const int64_t around[] = {-1, 0, 1};

// All sizes are small except one or two, because their product is the cost.
static inline void draw_attention_dims(problem *p) {
  static const int64_t many[] = {255, 256, 257, 300, 511, 513};
  int64_t *d = p->dims;
  d[LB_DIM_KEYS] = draw(3) ? DRAW(edges) : DRAW(many);
  if (draw(2)) d[LB_DIM_K] = DRAW(small_sizes);
  if (draw(2)) d[LB_DIM_COLS] = DRAW(small_sizes);
  if (draw(8) == 0) d[LB_DIM_ROWS] = 127 + draw(4);
  while (d[0] * d[3] * (d[1] + d[2]) > 200000) d[1] /= 2, d[2] /= 2;
}

// Numbers of taps around the end of a block or part of a sum, with rows of taps
// shorter and longer than a block.
static inline void draw_long_window(int64_t *d) {
  static const int64_t ends[] = {LB_SUM_TAPS, LB_SUM_TAPS * LB_SUM_BLOCKS / 2,
                                 LB_SUM_TAPS * LB_SUM_BLOCKS,
                                 2 * LB_SUM_TAPS * LB_SUM_BLOCKS};
  static const int64_t sides[] = {1, 2, 5, 7, 13, 23, 24, 25, 49};
  int64_t side = DRAW(sides), other = DRAW(ends) / side + DRAW(around);
  bool tall = draw(2);
  if (other < 0) other = 0;
  d[LB_DIM_TAPS_Y] = tall ? other : side;
  d[LB_DIM_TAPS_X] = tall ? side : other;
  while (d[0] * d[1] > 60) d[0] = (d[0] + 1) / 2, d[1] = (d[1] + 1) / 2;
}

static inline void draw_window_dims(problem *p) {
  int64_t *d = p->dims;
  d[LB_DIM_K] = DRAW(small_sizes);
  uint32_t max_side = p->spec.form == LB_FORM_WINDOW ? 7 : 3;
  d[LB_DIM_TAPS_Y] = draw(8) ? 1 + draw(max_side) : draw(6);
  d[LB_DIM_TAPS_X] = draw(8) ? 1 + draw(max_side) : draw(6);
  if (p->spec.form == LB_FORM_WINDOW && draw(6) == 0)
    d[LB_DIM_TAPS_Y] = 1, d[LB_DIM_TAPS_X] = 62 + draw(5);
  if (p->spec.form == LB_FORM_WINDOW && draw(4) == 0) draw_long_window(d);
}

// A row of more than one block.
static inline void draw_long_row(problem *p) {
  p->dims[LB_DIM_ROWS] = 1 + draw(2);
  p->dims[LB_DIM_COLS] = (1 + draw(3)) * LB_SUM_COLS + DRAW(around);
}

// False if the verifier rejects the spec, which another test covers.
static inline bool case_init(problem_case *c, lb_form form, uint64_t number) {
  problem *p = &c->p;
  *c = (problem_case){.form = form, .seed = number};
  seed = number * 2654435761u + form;
  for (int i = 0; i < 8; i++) draw(2);
  lb_status st = draw_spec(form, &p->spec);
  lb_status_drop(st);
  if (!p->spec.n_nodes) return false;
  p->dims[0] = DRAW(small_sizes), p->dims[1] = DRAW(edges),
  p->dims[2] = DRAW(edges);
  if (form == LB_FORM_MATMUL && draw(2)) p->dims[2] = DRAW(small_sizes);
  if (form == LB_FORM_ROW_REDUCE && draw(30) == 0) draw_long_row(p);
  if (form == LB_FORM_ATTENTION) draw_attention_dims(p);
  if (lb_spec_has_taps(&p->spec)) draw_window_dims(p);
  if (lb_spec_factors(&p->spec) == 2)
    p->dims[LB_DIM_K] &= -lb_panel_rows(p->spec.in[1].layout);
  if (is_k2(p) && draw(2)) p->dims[LB_DIM_COLS] = 1 + draw(24);
  int64_t taps = p->dims[LB_DIM_TAPS_Y] * p->dims[LB_DIM_TAPS_X];
  only_moderate = p->dims[LB_DIM_COLS] >= LB_SUM_COLS ||
                  (form == LB_FORM_WINDOW && taps > LB_SUM_TAPS);
  draw_operands(p);
  draw_facts(p);
  c->alias = draw_alias(p);
  for (int i = 0; i < p->spec.n_out; i++) {
    c->want[i] = malloc(p->out[i].bytes + 1);
    memcpy(c->want[i], p->out[i].data, p->out[i].bytes);
  }
  reference_run(p, c->want);
  return true;
}

static inline void case_fini(problem_case *c) {
  for (int i = 0; i < c->p.spec.n_out; i++)
    free(c->want[i]), free(c->p.out[i].data);
  for (int i = 0; i < c->p.spec.n_in; i++) free(c->p.in[i].data);
}

// Sets the outputs to their state before a run and fills in the arguments;
// returns their number.
static inline uint32_t case_begin(const problem_case *c, char **got,
                                  lb_karg *args) {
  const problem *p = &c->p;
  operand in[LB_SPEC_MAX_IN];
  memcpy(in, p->in, sizeof in);
  for (int i = 0; i < p->spec.n_out; i++) {
    got[i] = malloc(p->out[i].bytes + 1);
    memcpy(got[i], p->out[i].data, p->out[i].bytes);
  }
  if (c->alias >= 0) in[c->alias].data = got[0];
  return make_args(p, got, in, args);
}

#endif
