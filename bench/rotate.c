// bench/rotate.c -- Computes the memory of operands, and allocates copies.
#include "bench/rotate.h"

#include <stdlib.h>

#include "bench/machine.h"
#include "device/cpu/submit.h"

// One dim of an operand: `n` elements at `stride` bytes.
typedef struct operand_dim {
  int64_t n, stride;
} operand_dim;

#define MAX_OPERAND_DIMS (4 + LB_BIND_LOOPS)

static int64_t dim(const lb_launch *l, lb_sdim d) {
  return (int64_t)l->args[l->n_operands + d];
}

// Rows and columns of operand i, from the dims of the kernel.
static void extents(const lb_launch *l, int i, int64_t out[2]) {
  const lb_spec *s = &l->slot->key.spec;
  int in = i - s->n_out;
  bool is_ab = in >= 0 && in < lb_spec_factors(s);
  out[0] = dim(l, LB_DIM_ROWS);
  out[1] = dim(l, LB_DIM_COLS);
  if ((s->form == LB_FORM_MATMUL || s->form == LB_FORM_CONV) && is_ab)
    out[in == 0 ? 1 : 0] = dim(l, LB_DIM_K);
  if (s->form != LB_FORM_ATTENTION || in < 0) return;
  if (in == 0 || in == 1) out[1] = dim(l, LB_DIM_K);
  if (in == 1 || in == 2) out[0] = dim(l, LB_DIM_KEYS);
  if (in > 2) out[1] = dim(l, LB_DIM_KEYS);
}

static int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

// Window taps of the feature map, and of the weights.
static int taps_of(const lb_launch *l, int in, int64_t size, operand_dim *out) {
  const lb_spec *s = &l->slot->key.spec;
  if (!lb_spec_has_taps(s) || in < 0 || in >= lb_spec_factors(s)) return 0;
  const uint64_t *taps = &l->args[lb_spec_args(s).taps + 2 * in];
  out[0] = (operand_dim){at_least_one(dim(l, LB_DIM_TAPS_Y)),
                         (int64_t)taps[0] * size};
  out[1] = (operand_dim){at_least_one(dim(l, LB_DIM_TAPS_X)),
                         (int64_t)taps[1] * size};
  return 2;
}

static int operand_dims_of(const lb_launch *l, int i,
                           operand_dim out[MAX_OPERAND_DIMS]) {
  const lb_spec *s = &l->slot->key.spec;
  const lb_soperand *o = i < s->n_out ? &s->out[i] : &s->in[i - s->n_out];
  int64_t size = (int64_t)lb_dtype_size((lb_dtype)o->dtype), e[2];
  lb_sargs cells = lb_spec_args(s);
  const uint64_t *strides = &l->args[cells.out_strides + 2 * i];
  int64_t row = (int64_t)strides[0] * size, col = (int64_t)strides[1] * size;
  extents(l, i, e);
  switch (o->layout) {
    case LB_LAYOUT_FULL:
      out[0] = (operand_dim){e[0], row}, out[1] = (operand_dim){e[1], size};
      break;
    case LB_LAYOUT_PER_COL:
      out[0] = (operand_dim){1, 0}, out[1] = (operand_dim){e[1], size};
      break;
    case LB_LAYOUT_PER_ROW:
      out[0] = (operand_dim){e[0], row}, out[1] = (operand_dim){1, 0};
      break;
    case LB_LAYOUT_BROADCAST: out[0] = out[1] = (operand_dim){1, 0}; break;
    case LB_LAYOUT_PANEL:
    case LB_LAYOUT_PANEL_K2:
    case LB_LAYOUT_PANEL_K4: {
      int64_t width = lb_panel_cols(o->layout);
      out[0] = (operand_dim){(e[1] + width - 1) / width, row};
      out[1] = (operand_dim){e[0] * width, size};
      break;
    }
    default:
      out[0] = (operand_dim){e[0], row}, out[1] = (operand_dim){e[1], col};
  }
  const int64_t *loops = l->strides + (size_t)i * (2 + l->n_loops) + 2;
  int n = 2;
  for (int k = 0; k < l->n_loops; k++)
    out[n++] = (operand_dim){l->loops[k], loops[k]};
  return n + taps_of(l, i - s->n_out, size, out + n);
}

static lb_status measure(const lb_launch *l, int i, bench_operand *out) {
  const lb_spec *s = &l->slot->key.spec;
  const lb_soperand *o = i < s->n_out ? &s->out[i] : &s->in[i - s->n_out];
  operand_dim dims[MAX_OPERAND_DIMS];
  int n = operand_dims_of(l, i, dims);
  size_t after = lb_dtype_size((lb_dtype)o->dtype);
  *out = (bench_operand){.weights = lb_panel_cols(o->layout) != 0,
                         .touched = after};
  for (int k = 0; k < n; k++) {
    if (dims[k].n <= 0) return lb_error(LB_INVALID, "operand %d is empty", i);
    size_t steps = (size_t)dims[k].n - 1;
    if (dims[k].stride > 0) after += steps * (size_t)dims[k].stride;
    if (dims[k].stride < 0) out->before += steps * (size_t)-dims[k].stride;
    if (dims[k].stride) out->touched *= (size_t)dims[k].n;
  }
  // Windows overlap.
  if (out->touched > out->before + after) out->touched = out->before + after;
  // Copies begin at cache lines; large ones must not all map to the same cache
  // set.
  out->span = (out->before + 63) / 64 * 64 + (after + 63) / 64 * 64;
  if (out->span >= 4096) out->span = (out->span + 4095) / 4096 * 4096 + 64;
  out->before = (out->before + 63) / 64 * 64;
  return LB_OK;
}

static void fill(float *p, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    p[i] = (float)(seed >> 8) * 0x1p-23f - 1;
  }
}

// Random floats; other dtypes are zeros, which are valid for every kernel.
static lb_status allocate(const lb_launch *l, int i, size_t set,
                          bench_operand *o) {
  const lb_spec *s = &l->slot->key.spec;
  int t = i < s->n_out ? s->out[i].dtype : s->in[i - s->n_out].dtype;
  o->copies = set / (o->touched < 64 ? 64 : o->touched) + 1;
  size_t bytes = o->copies * o->span + o->before;
  o->data = bench_alloc(bytes);
  if (!o->data) return lb_oom();
  o->owned = true;
  if (t == LB_F32) fill((float *)(void *)o->data, bytes / 4, (uint32_t)i + 1);
  return LB_OK;
}

// An earlier operand that has the same memory in the plan, or -1.
static int same_memory(const bench_rotation *r, const lb_launch *l, int i) {
  for (int k = 0; k < i; k++)
    if (l->addresses[k].base == l->addresses[i].base &&
        l->addresses[k].offset == l->addresses[i].offset &&
        r->operands[k].span == r->operands[i].span)
      return k;
  return -1;
}

static void count(bench_rotation *r, const bench_operand *o) {
  *(o->weights ? &r->weight_bytes : &r->other_bytes) += o->touched;
  *(o->weights ? &r->weight_set : &r->other_set) +=
      o->owned ? o->touched * o->copies : 0;
  if (o->copies > r->copies) r->copies = o->copies;
}

lb_status bench_rotation_init(bench_rotation *r, const lb_launch *l,
                              const bench_sets *sets) {
  *r = (bench_rotation){.launch = *l, .n = l->n_operands};
  size_t others = 0;
  for (int i = 0; i < r->n; i++) {
    LB_TRY(measure(l, i, &r->operands[i]));
    if (!r->operands[i].weights) others += r->operands[i].touched;
  }
  for (int i = 0; i < r->n; i++) {
    bench_operand *o = &r->operands[i];
    int same = same_memory(r, l, i);
    // Proportional shares of the set: all operands have equally many copies.
    double share = (double)o->touched / (double)(others ? others : 1);
    size_t set =
        o->weights ? sets->weights : (size_t)((double)sets->others * share);
    if (same >= 0) {
      size_t touched = o->touched;
      *o = r->operands[same];
      o->touched = touched;
      o->owned = false;
    } else {
      lb_status st = allocate(l, i, set, o);
      if (lb_failed(st)) {
        bench_rotation_fini(r);
        return st;
      }
    }
    count(r, o);
    r->addresses[i] = (lb_address){.base = (uint32_t)i};
  }
  r->launch.addresses = r->addresses;
  return LB_OK;
}

void bench_rotation_fini(bench_rotation *r) {
  for (int i = 0; i < r->n; i++)
    if (r->operands[i].owned) free(r->operands[i].data);
  r->n = 0;
}

void bench_rotation_run(const bench_rotation *r, const lb_exec *kernel,
                        size_t at, size_t n) {
  lb_launch l = r->launch;
  l.addresses = r->addresses;
  l.next = NULL;  // only one of several zones is measured
  uintptr_t bases[BENCH_OPERANDS];
  lb_stream stream = {.bases = bases, .n_bases = (size_t)r->n};
  for (size_t c = at; c < at + n; c++) {
    for (int i = 0; i < r->n; i++) {
      const bench_operand *o = &r->operands[i];
      bases[i] = (uintptr_t)(o->data + o->before + c % o->copies * o->span);
    }
    (void)lb_cpu_submit(&stream, kernel, &l);
  }
}

// Minimum of operations per element of a node's value; for functions the
// multiplications and additions of Limber's implementation, without table
// lookups.
static double flops_of_node(const lb_snode *n) {
  switch ((lb_sop)n->op) {
    case LB_S_INPUT:
    case LB_S_SCALAR:
    case LB_S_COLS:
    case LB_S_ACC:
    case LB_S_CAST:
    case LB_S_GATHER_ROW: return 0;
    case LB_S_FMA: return 2;
    case LB_S_EXP: return 15;
    case LB_S_ERF: return 17;
    case LB_S_SIGMOID: return 16;
    case LB_S_EXPM1:
    case LB_S_TANH:
    case LB_S_LOG: return 20;
    default: return 1;
  }
}

// Per score: max, subtraction, exponential (spec/exp.h), sum.
#define SOFTMAX_FLOPS 21.0

// Operations of the nodes (epilogue or elementwise), for all elements.
static double flops_of_nodes(const lb_launch *l) {
  const lb_spec *s = &l->slot->key.spec;
  bool scores = s->form == LB_FORM_ATTENTION;
  double rows = (double)dim(l, LB_DIM_ROWS);
  double cols = (double)dim(l, scores ? LB_DIM_KEYS : LB_DIM_COLS);
  uint8_t varies[LB_SPEC_MAX_NODES];
  lb_spec_varies(s, varies);
  double n = scores ? rows * cols * SOFTMAX_FLOPS : 0;
  for (int i = 0; i < s->n_nodes; i++) {
    // A value that is the same for all rows may be computed once.
    if (!(varies[i] & LB_VARIES_ROWS)) continue;
    double elements = varies[i] & LB_VARIES_COLS ? rows * cols : rows;
    n += elements * flops_of_node(&s->nodes[i]);
  }
  return n;
}

// Operations of the matmul or convolution, in one iteration of the loops.
static double flops_of_matmul(const lb_launch *l) {
  const lb_spec *s = &l->slot->key.spec;
  double rows = (double)dim(l, LB_DIM_ROWS), cols = (double)dim(l, LB_DIM_COLS);
  switch (s->form) {
    case LB_FORM_MATMUL: return 2 * rows * cols * (double)dim(l, LB_DIM_K);
    case LB_FORM_ATTENTION:  // scores, then their matmul with V
      return 2 * rows * (double)dim(l, LB_DIM_KEYS) *
             ((double)dim(l, LB_DIM_K) + cols);
    case LB_FORM_CONV:
    case LB_FORM_WINDOW:
      if (lb_spec_factors(s) < 2) return 0;  // pooling
      return 2 * rows * cols * (double)dim(l, LB_DIM_K) *
             (double)dim(l, LB_DIM_TAPS_Y) * (double)dim(l, LB_DIM_TAPS_X);
    default: return 0;
  }
}

double bench_flops(const lb_launch *l) {
  double n = flops_of_matmul(l) + flops_of_nodes(l);
  for (int k = 0; k < l->n_loops; k++) n *= (double)l->loops[k];
  return n;
}
