// worker/check.c -- Runs interpreter and machine code on equal operands and
// compares the results.
#include "worker/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kir/interp.h"
#include "kir/num.h"
#include "worker/operand.h"

enum {
  RUN_LIMIT_MS = 2000,
  BUDGET = 4000000,    // interpreted instructions per shape
  MAX_WORK = 1 << 22,  // rows * cols * k
  ROW_INDICES = 4,     // row indices are below this; two may be added
};

// Rows, cols, k, keys or taps_y, taps_x; windows have few rows of taps. Only
// the first shape has special values (infinities, ...): they propagate and
// would hide other errors.
static const int64_t test_shapes[][LB_SDIMS] = {
    {5, 21, 3, 18, 2},   {1, 1, 1, 1, 1},   {13, 131, 5, 17, 3},
    {2, 64, 33, 300, 1}, {7, 16, 2, 48, 3}, {4, 3, 0, 5, 2},
    {0, 9, 4, 7, 2},     {3, 0, 7, 0, 1},
};
enum {
  N_SHAPES = sizeof test_shapes / sizeof *test_shapes,
  WITH_TILES = 2,  // this shape has whole tiles and a remainder
};

typedef struct check_case {
  const lb_spec *spec;    // borrowed, as are facts and code
  const lb_facts *facts;  //
  lb_kernel_fn *code;
  lb_kinterp *interp;  // owned, as are the operands
  lb_test_operand in[LB_SPEC_MAX_IN];
  lb_test_operand out[LB_SPEC_MAX_OUT];   // written by the code
  lb_test_operand want[LB_SPEC_MAX_OUT];  // and by the interpreter
  uint64_t args[LB_SPEC_MAX_ARGS];        // of the code
  lb_karg kargs[LB_SPEC_MAX_ARGS];        // and of the interpreter
  int64_t dims[LB_SDIMS];
  struct {
    int64_t y, x;
  } taps[2];  // strides
  lb_random random;
} check_case;

// -- how exact an output is --------------------------------------------------

typedef enum exactness {
  EXACT,  // the same bits
  NEAR,   // after a function that may be off by some ulps
  POLES,  // then used as a divisor that is a sum, which sometimes cancels
  DISCONTINUOUS,  // then passed through a discontinuous operation
  ANY,  // a function of an angle that may be too large for machine code
} exactness;

static bool is_inexact(uint8_t op) {
  switch (op) {
#define LB_SELEM(ID, ...) \
  case LB_S_##ID:         \
    return lb_kop_infos[LB_K_##ID].cls != LB_KC_EXACT;
#include "spec/sops.def"
    default: return false;
  }
}

// Whether the operation can amplify a small error: steps, poles, ends of
// domains, angles.
static bool is_discontinuous(const lb_snode *n) {
  switch (n->op) {
    case LB_S_EQ:
    case LB_S_NE:
    case LB_S_LT:
    case LB_S_LE:
    case LB_S_REM:
    case LB_S_FLOOR:
    case LB_S_CEIL:
    case LB_S_ROUND:
    case LB_S_TRUNC: return true;
    case LB_S_CAST: return !lb_dtype_is_float(n->dtype);
    case LB_S_EXP:
    case LB_S_EXPM1:
    case LB_S_TANH:
    case LB_S_SIGMOID:
    case LB_S_ERF:
    case LB_S_ATAN:
    case LB_S_ASINH:
    case LB_S_RSQRT: return false;
    default: return is_inexact(n->op);
  }
}

static bool is_large_angle(const lb_spec *s, const lb_snode *n) {
  return (n->op == LB_S_SIN || n->op == LB_S_COS || n->op == LB_S_TAN) &&
         n->src[0] >= s->n_in + s->n_scalars;
}

static bool has_pole(const lb_spec *s, const lb_snode *n,
                     const exactness *nodes) {
  if (n->op != LB_S_DIV || nodes[n->src[1]] == EXACT) return false;
  uint8_t op = s->nodes[n->src[1]].op;
  return op == LB_S_ADD || op == LB_S_SUB;
}

static void find_exactness(const lb_spec *s, exactness *out) {
  for (int i = 0; i < s->n_nodes; i++) {
    const lb_snode *n = &s->nodes[i];
    out[i] = EXACT;
    for (int j = 0; j < n->n_src; j++)
      if (out[n->src[j]] > out[i]) out[i] = out[n->src[j]];
    if (out[i] == NEAR && has_pole(s, n, out)) out[i] = POLES;
    if ((out[i] == NEAR || out[i] == POLES) && is_discontinuous(n))
      out[i] = DISCONTINUOUS;
    if (out[i] == EXACT && is_inexact(n->op)) out[i] = NEAR;
    if (is_large_angle(s, n)) out[i] = ANY;
  }
}

// Attention takes exponentials of its score node.
static exactness exactness_of(const lb_spec *s, const exactness *nodes,
                              int output) {
  exactness e = nodes[s->out[output].node];
  return s->form == LB_FORM_ATTENTION && e == EXACT ? NEAR : e;
}

// -- shapes and arguments ----------------------------------------------------

// k must be a multiple of this.
static int64_t k_multiple(const lb_spec *s) {
  return s->n_in > 1 ? lb_panel_rows(s->in[1].layout) : 1;
}

// Sets the dims nearest to those of shape i for which the facts hold; false if
// there are none, or they are too large.
static bool choose_dims(check_case *t, int i) {
  for (lb_sdim d = 0; d < LB_SDIMS; d++) {
    int64_t m = lb_facts_get(t->facts, LB_ASSUME_MULTIPLE, d, 1);
    int64_t tile = lb_facts_get(t->facts, LB_CHOOSE_TILE, d, 0);
    int64_t max_dim = lb_facts_get(t->facts, LB_ASSUME_AT_MOST, d, INT32_MAX);
    int64_t x = test_shapes[i][d];
    if (d == LB_DIM_TAPS_Y && lb_spec_has_taps(t->spec)) x %= 5;
    if (x > max_dim) x = max_dim;
    if (i == WITH_TILES && x <= 2 * tile) x = 2 * tile + 1;
    while (d == LB_DIM_K && m % k_multiple(t->spec)) m *= 2;
    t->dims[d] =
        lb_facts_get(t->facts, LB_ASSUME_EQUAL, d, (int)((x + m - 1) / m * m));
  }
  if (t->dims[LB_DIM_K] % k_multiple(t->spec)) return false;
  for (int d = lb_spec_dims(t->spec); d < LB_SDIMS; d++) t->dims[d] = 0;
  int64_t work = t->dims[0] * t->dims[1];
  int64_t k = t->dims[LB_DIM_K] + t->dims[LB_DIM_TAPS_Y];
  if (lb_spec_has_taps(t->spec)) k *= t->dims[LB_DIM_TAPS_X] + 1;
  return lb_facts_hold(t->facts, t->dims) && work <= MAX_WORK / (k + 1);
}

static bool shape_of_attention(check_case *t, int i) {
  const int64_t *d = t->dims;
  int64_t cols = i == 2 ? d[LB_DIM_COLS] : i < 2 ? d[LB_DIM_K] : d[LB_DIM_KEYS];
  int64_t rows = i == 1 || i == 2 ? d[LB_DIM_KEYS] : d[LB_DIM_ROWS];
  return lb_test_operand_shape(&t->in[i], t->spec->in[i], rows, cols);
}

// An operand of a convolution or window, with gaps between taps and rows of
// taps; rows overlap.
static bool shape_taps(check_case *t, int i) {
  const int64_t *d = t->dims;
  bool conv = t->spec->form == LB_FORM_CONV, panel_b = conv && i == 1;
  int64_t tap_size = conv ? d[LB_DIM_K] : d[LB_DIM_COLS];
  int64_t unit = panel_b ? lb_panel_cols(t->spec->in[i].layout) : 1;
  int64_t more = panel_b ? k_multiple(t->spec) : 1;
  int64_t x_stride = (tap_size + more) * unit;
  int64_t y_stride = d[LB_DIM_TAPS_X] * x_stride + unit;
  int64_t extent = d[LB_DIM_TAPS_Y] * y_stride;  // longer than any row
  int64_t rows = i == 0 ? d[LB_DIM_ROWS] : 1;
  if (panel_b) rows = (d[LB_DIM_COLS] + unit - 1) / unit;
  lb_test_operand *o = &t->in[i];
  t->taps[i].y = y_stride;
  t->taps[i].x = x_stride;
  o->dtype = t->spec->in[i].dtype;
  o->row_stride = panel_b ? extent : x_stride;
  o->col_stride = INT64_MIN / 3;
  bool none =
      rows == 0 || extent == 0 || d[LB_DIM_TAPS_X] == 0 || tap_size == 0;
  int64_t last = (rows - 1) * o->row_stride +
                 (d[LB_DIM_TAPS_Y] - 1) * y_stride +
                 (d[LB_DIM_TAPS_X] - 1) * x_stride + tap_size * unit;
  o->count = none ? 0 : (size_t)last;
  return none || last <= 1 << 22;
}

static bool shape_input(check_case *t, int i) {
  lb_soperand s = t->spec->in[i];
  int64_t rows = t->dims[LB_DIM_ROWS], cols = t->dims[LB_DIM_COLS];
  int64_t k = t->dims[LB_DIM_K];
  if (t->spec->form == LB_FORM_ATTENTION) return shape_of_attention(t, i);
  if (lb_spec_is_gathered(t->spec, (uint8_t)i)) rows = 2 * ROW_INDICES - 1;
  if (i >= lb_spec_factors(t->spec))
    return lb_test_operand_shape(&t->in[i], s, rows, cols);
  if (lb_spec_has_taps(t->spec)) return shape_taps(t, i);
  if (i == 0) return lb_test_operand_shape(&t->in[i], s, rows, k);
  return lb_panel_cols(s.layout) ? lb_test_operand_pack(&t->in[i], s, k, cols)
                                 : lb_test_operand_shape(&t->in[i], s, k, cols);
}

static bool shape_operands(check_case *t) {
  const lb_spec *s = t->spec;
  for (int i = 0; i < s->n_in; i++)
    if (!shape_input(t, i)) return false;
  for (int i = 0; i < s->n_out; i++) {
    if (!lb_test_operand_shape(&t->out[i], s->out[i], t->dims[LB_DIM_ROWS],
                               t->dims[LB_DIM_COLS]) ||
        !lb_test_operand_shape(&t->want[i], s->out[i], t->dims[LB_DIM_ROWS],
                               t->dims[LB_DIM_COLS]))
      return false;
  }
  return true;
}

// Fills input i with valid row indices.
static void fill_row_indices(check_case *t, int i) {
  int64_t *to = (int64_t *)(void *)t->in[i].data;
  for (size_t k = 0; k < t->in[i].count; k++)
    to[k] = (int64_t)(lb_random_next(&t->random) >> 8 & (ROW_INDICES - 1));
}

static lb_status map_operands(check_case *t, bool low, bool special) {
  const lb_spec *s = t->spec;
  for (int i = 0; i < s->n_in; i++) {
    LB_TRY(lb_test_operand_map(&t->in[i], low));
    lb_test_operand_fill(&t->in[i], &t->random, special);
    if (lb_spec_is_row_index(s, (uint8_t)i)) fill_row_indices(t, i);
    if (lb_panel_cols(s->in[i].layout) && !lb_spec_has_taps(s))
      lb_test_operand_pad(&t->in[i], s->in[i], t->dims[LB_DIM_K],
                          t->dims[LB_DIM_COLS]);
  }
  for (int i = 0; i < s->n_out; i++) {
    LB_TRY(lb_test_operand_map(&t->out[i], low));
    LB_TRY(lb_test_operand_map(&t->want[i], low));
    memset(t->out[i].data, 0xa5, lb_test_operand_bytes(&t->out[i]));
    memset(t->want[i].data, 0xa5, lb_test_operand_bytes(&t->want[i]));
  }
  return LB_OK;
}

static void set_number(check_case *t, int cell, uint64_t bits) {
  t->args[cell] = bits;
  t->kargs[cell] = (lb_karg){.bits = bits};
}

static void set_memory(check_case *t, int cell, const lb_test_operand *code,
                       const lb_test_operand *interp) {
  t->args[cell] = (uintptr_t)code->data;
  t->kargs[cell] = lb_karg_mem(interp->data, lb_test_operand_bytes(interp));
}

static void set_strides(check_case *t, int cell, const lb_test_operand *o) {
  set_number(t, cell, (uint64_t)o->row_stride);
  set_number(t, cell + 1, (uint64_t)o->col_stride);
}

static void set_args(check_case *t, bool special) {
  const lb_spec *s = t->spec;
  lb_sargs a = lb_spec_args(s);
  for (int i = 0; i < s->n_out; i++) {
    set_memory(t, a.out + i, &t->out[i], &t->want[i]);
    set_strides(t, a.out_strides + 2 * i, &t->out[i]);
  }
  for (int i = 0; i < s->n_in; i++) {
    set_memory(t, a.in + i, &t->in[i], &t->in[i]);
    set_strides(t, a.in_strides + 2 * i, &t->in[i]);
  }
  for (int i = 0; i < lb_spec_dims(s); i++)
    set_number(t, a.dims + i, (uint64_t)t->dims[i]);
  for (int i = 0; i < 2 && a.taps < a.scalars; i++) {
    set_number(t, a.taps + 2 * i, (uint64_t)t->taps[i].y);
    set_number(t, a.taps + 2 * i + 1, (uint64_t)t->taps[i].x);
  }
  for (int i = 0; i < s->n_scalars; i++)
    set_number(
        t, a.scalars + i,
        lb_random_bits(&t->random, s->nodes[s->n_in + i].dtype, special));
}

// -- comparing ---------------------------------------------------------------

static uint64_t bits_at(const lb_test_operand *o, size_t i) {
  size_t size = lb_dtype_size(o->dtype);
  uint64_t bits = 0;
  memcpy(&bits, o->data + i * size, size);
  return bits;
}

// The relative tolerance of results of mathematical functions.
static double tolerance_of(lb_dtype t) {
  if (t == LB_BF16) return 0x1p-5;
  return t == LB_F16 ? 0x1p-8 : 0x1p-10;
}

static bool is_same(lb_dtype t, uint64_t got, uint64_t want, exactness e) {
  if (got == want) return true;
  if (!lb_dtype_is_float(t)) return false;
  double x = lb_knum_float(t, got), y = lb_knum_float(t, want);
  // Infinity times a function's result: it may be 0 on one side and the
  // smallest positive number on the other.
  if (e != EXACT && isnan(x) != isnan(y) && (isinf(x) || isinf(y))) return true;
  if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
  return e != EXACT && fabs(x - y) <= 1e-4 + tolerance_of(t) * fabs(y);
}

static lb_status mismatch(const check_case *t, int output, size_t at) {
  const lb_test_operand *o = &t->out[output];
  return lb_error(LB_INTERNAL,
                  "the code is wrong: at rows %" PRId64 ", cols %" PRId64
                  ", k %" PRId64 ", keys or taps_y %" PRId64 ", taps_x %" PRId64
                  ", output %d, element %zu has the bits "
                  "%" PRIx64 ", expected %" PRIx64,
                  t->dims[0], t->dims[1], t->dims[2], t->dims[3], t->dims[4],
                  output, at, bits_at(o, at), bits_at(&t->want[output], at));
}

// After a discontinuous operation, half of the elements may differ: functions
// that saturate put many numbers next to a step. Poles are hit by chance.
static size_t allowed_wrong(exactness e, size_t count) {
  switch (e) {
    case POLES: return 2 + count / 1000;
    case DISCONTINUOUS: return (count + 1) / 2;
    case ANY: return count;
    default: return 0;
  }
}

static lb_status compare(const check_case *t, int output, exactness e) {
  const lb_test_operand *o = &t->out[output];
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < o->count; i++) {
    if (is_same(o->dtype, bits_at(o, i), bits_at(&t->want[output], i), e))
      continue;
    if (wrong++ == 0) first = i;
  }
  bool ok = wrong <= allowed_wrong(e, o->count);
  return ok ? LB_OK : mismatch(t, output, first);
}

// -- cases -------------------------------------------------------------------

// An output and an input with the same layout, which may share memory.
typedef struct alias_pair {
  int out, in;  // -1: none
} alias_pair;

static alias_pair find_alias(const lb_spec *s) {
  int first = lb_spec_factors(s);
  if (s->form == LB_FORM_ATTENTION) return (alias_pair){-1, -1};
  for (int o = 0; o < s->n_out; o++)
    for (int i = first; i < s->n_in; i++)
      if (s->out[o].dtype == s->in[i].dtype &&
          s->out[o].layout == s->in[i].layout &&
          !lb_spec_is_gathered(s, (uint8_t)i) &&
          !lb_spec_is_row_index(s, (uint8_t)i))
        return (alias_pair){o, i};
  return (alias_pair){-1, -1};
}

// The code works in place; the interpreter writes over a copy, so that gaps are
// equal.
static void apply_alias(check_case *t, alias_pair p) {
  lb_sargs a = lb_spec_args(t->spec);
  size_t bytes = lb_test_operand_bytes(&t->in[p.in]);
  memcpy(t->out[p.out].data, t->in[p.in].data, bytes);
  memcpy(t->want[p.out].data, t->in[p.in].data, bytes);
  t->args[a.in + p.in] = t->args[a.out + p.out];
}

// *done is false, without an error, if the interpreter ran out of budget.
static lb_status interpret(check_case *t, bool *done) {
  lb_klaunch launch = {.args = t->kargs,
                       .n_args = lb_spec_args(t->spec).count,
                       .groups = {1, 1, 1},
                       .budget = BUDGET};
  lb_status st = lb_kinterp_run(t->interp, &launch);
  *done = !lb_failed(st);
  if (!lb_failed(st)) return LB_OK;
  if (lb_status_code(st) != LB_CANCELLED)
    return lb_status_note(st, "the interpreter");
  lb_status_drop(st);
  return LB_OK;
}

static lb_status check_shape(check_case *t, int i, alias_pair alias,
                             bool *done) {
  exactness exact[LB_SPEC_MAX_NODES];
  bool special = i == 0;
  LB_TRY(map_operands(t, i % 2 != 0, special));
  set_args(t, special);
  if (alias.in >= 0) apply_alias(t, alias);
  LB_TRY(interpret(t, done));
  if (!*done) return LB_OK;
  LB_TRY(lb_fault_run(t->code, t->args, RUN_LIMIT_MS));
  find_exactness(t->spec, exact);
  for (int o = 0; o < t->spec->n_out; o++)
    LB_TRY(compare(t, o, exactness_of(t->spec, exact, o)));
  return LB_OK;
}

// In separate memory first, then in place where the spec allows it.
static lb_status check_both_ways(check_case *t, int i, bool *done) {
  alias_pair p = find_alias(t->spec);
  LB_TRY(check_shape(t, i, (alias_pair){-1, -1}, done));
  if (!*done || p.in < 0) return LB_OK;
  return lb_status_note(check_shape(t, i, p, done), "in place");
}

static void check_case_fini(check_case *t) {
  for (int i = 0; i < LB_SPEC_MAX_IN; i++) lb_test_operand_fini(&t->in[i]);
  for (int i = 0; i < LB_SPEC_MAX_OUT; i++) {
    lb_test_operand_fini(&t->out[i]);
    lb_test_operand_fini(&t->want[i]);
  }
  lb_kinterp_free(t->interp);
}

lb_status lb_check_code(const lb_spec *spec, const lb_facts *facts,
                        const lb_kernel *kernel, lb_kernel_fn *code,
                        uint32_t *shapes) {
  check_case t = {
      .spec = spec, .facts = facts, .code = code, .random = {88172645}};
  *shapes = 0;
  lb_status st = lb_kinterp_new(kernel, &t.interp);
  for (int i = 0; i < N_SHAPES && !lb_failed(st); i++) {
    bool done = false;
    if (choose_dims(&t, i) && shape_operands(&t))
      st = check_both_ways(&t, i, &done);
    *shapes += done;
  }
  check_case_fini(&t);
  return st;
}
