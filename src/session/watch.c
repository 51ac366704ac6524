// session/watch.c -- counts the bytes and operations of a step.
#include "session/watch.h"

#include <string.h>

#include "plan/plan.h"

// Elements of a matrix operand of a matmul or of attention.
static uint64_t matrix_size(const lb_spec *s, uint32_t i, const int64_t *dims) {
  bool is_matmul = s->form == LB_FORM_MATMUL;
  int64_t k = dims[LB_DIM_K], cols = dims[LB_DIM_COLS];
  if (i == 0) return (uint64_t)(dims[LB_DIM_ROWS] * k);
  if (is_matmul) return (uint64_t)(k * cols);
  return (uint64_t)(dims[LB_DIM_KEYS] * (i == 1 ? k : cols));
}

static uint64_t operand_size(const lb_spec *s, uint32_t i,
                             const int64_t *dims) {
  if (i < s->n_out) return (uint64_t)(dims[LB_DIM_ROWS] * dims[LB_DIM_COLS]);
  uint32_t k = i - s->n_out;
  if (k < (uint32_t)lb_spec_factors(s)) return matrix_size(s, k, dims);
  bool attention = s->form == LB_FORM_ATTENTION;
  uint64_t rows = (uint64_t)dims[LB_DIM_ROWS];
  uint64_t cols = (uint64_t)dims[attention ? LB_DIM_KEYS : LB_DIM_COLS];
  switch (s->in[k].layout) {
    case LB_LAYOUT_BROADCAST: return 1;
    case LB_LAYOUT_PER_ROW: return rows;
    case LB_LAYOUT_PER_COL: return cols;
    default: return rows * cols;
  }
}

static uint64_t launch_bytes(const lb_launch *l, const int64_t *dims) {
  const lb_spec *s = &l->slot->key.spec;
  const int64_t *strides = l->strides;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < l->n_operands; i++, strides += 2 + l->n_loops) {
    uint8_t t = i < s->n_out ? s->out[i].dtype : s->in[i - s->n_out].dtype;
    uint64_t n = operand_size(s, i, dims) * lb_dtype_size((lb_dtype)t);
    for (int k = 0; k < l->n_loops; k++)
      if (strides[2 + k]) n *= (uint64_t)l->loops[k];
    bytes += n;
  }
  return bytes;
}

static uint64_t launch_flops(const lb_launch *l, const int64_t *dims) {
  const lb_spec *s = &l->slot->key.spec;
  uint64_t rows = (uint64_t)dims[LB_DIM_ROWS], k = (uint64_t)dims[LB_DIM_K];
  uint64_t cols = (uint64_t)dims[LB_DIM_COLS];
  uint64_t len = (uint64_t)dims[LB_DIM_TAPS_Y], nodes = 0, sums = 0, taps = 0;
  for (int i = 0; i < s->n_nodes; i++)
    nodes += lb_sop_infos[s->nodes[i].op].n_src != 0;
  if (lb_spec_has_taps(s)) taps = len * (uint64_t)dims[LB_DIM_TAPS_X];
  if (s->form == LB_FORM_MATMUL) sums = 2 * rows * cols * k;
  if (s->form == LB_FORM_CONV) sums = 2 * rows * cols * k * taps;
  if (s->form == LB_FORM_WINDOW) sums = 2 * rows * cols * taps;
  if (s->form == LB_FORM_ATTENTION) sums = 2 * rows * len * (k + cols);
  if (s->form == LB_FORM_ATTENTION) cols = len;
  return (sums + nodes * rows * cols) * (uint64_t)l->split.outer;
}

static void read_dims(const lb_launch *l, int64_t *dims) {
  for (int i = 0; i < lb_spec_dims(&l->slot->key.spec); i++)
    dims[i] = (int64_t)l->args[l->n_operands + i];
}

lb_reason lb_watch_fault(const lb_slot *slot) {
  return atomic_load(&slot->failed) == LB_SLOT_DEMOTED
             ? LB_REASON_SLOWER
             : LB_REASON_COMPILE_FAILED;
}

// Kernel and dims are those of the first launch.
static void watch_launch(const lb_launch *l, int64_t n_iterations,
                         lb_step_event *out) {
  out->slot = l->slot;
  out->tier = lb_slot_tier(l->slot);
  out->reason = out->tier > LB_TIER_PACK        ? LB_REASON_COMPILED
                : atomic_load(&l->slot->failed) ? lb_watch_fault(l->slot)
                                                : LB_REASON_IN_PACK;
  out->outer = l->split.outer * n_iterations;
  read_dims(l, out->dims);
  for (; l; l = l->next) {
    int64_t dims[LB_SDIMS] = {0};
    read_dims(l, dims);
    out->bytes += launch_bytes(l, dims) * (uint64_t)n_iterations;
    out->flops += launch_flops(l, dims) * (uint64_t)n_iterations;
  }
}

void lb_watch_step(const lb_step *step, lb_step_event *out) {
  memset(out, 0, sizeof *out);
  out->node = step->node;
  if (step->kind == LB_STEP_LAUNCH) {
    watch_launch(step->launch, step->iterations ? step->iterations : 1, out);
    return;
  }
  out->reason = step->reason;
  out->copies = step->kind == LB_STEP_COPY;
  for (uint32_t i = 0; i < step->n_in; i++)
    out->bytes += lb_tensor_bytes(step->in[i].tensor);
  for (uint32_t i = 0; i < step->n_out; i++)
    out->bytes += lb_tensor_bytes(step->out[i].tensor);
}
