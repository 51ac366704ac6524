// lower/lowering.c -- Builds the body of a kernel; shared by all forms.
#include "lower/lowering.h"

#include <string.h>

// Elementwise operations have the same names in specs and in kernel IR.
static const uint8_t kops[LB_S_COUNT] = {
#define LB_SLEAF(...)
#define LB_SREDUCE(...)
#define LB_SELEM(ID, ...) [LB_S_##ID] = LB_K_##ID,
#include "spec/sops.def"
};

bool lb_lower_is_costly(const lb_snode *n) {
  return lb_sop_infos[n->op].rule == LB_SR_SAME &&
         lb_kop_infos[kops[n->op]].cls == LB_KC_PURE;
}

// -- helpers -----------------------------------------------------------------

lb_kval lb_lower_add(lb_lowering *e, lb_kval x, int64_t n) {
  return n ? lb_k_add(&e->b, x, lb_k_i64(&e->b, n)) : x;
}

lb_kval lb_lower_mul(lb_lowering *e, lb_kval x, int64_t n) {
  return n == 1 ? x : lb_k_mul(&e->b, x, lb_k_i64(&e->b, n));
}

lb_kval lb_lower_round_down(lb_lowering *e, lb_kval x, int64_t n) {
  return lb_k_sub(&e->b, x, lb_k_rem(&e->b, x, lb_k_i64(&e->b, n)));
}

void lb_lower_advance(lb_lowering *e, lb_kval reg, lb_kval by) {
  lb_k_set(&e->b, reg, lb_k_ptr(&e->b, lb_k_get(&e->b, reg), by, 0));
}

static lb_kval offsets_of(lb_lowering *e, lb_kval stride) {
  return lb_k_mul(&e->b, lb_k_iota(&e->b, LB_I64, e->lanes),
                  lb_k_splat(&e->b, stride, e->lanes));
}

lb_kval lb_lower_gather(lb_lowering *e, lb_kval p, lb_kval stride,
                        lb_kval mask) {
  return lb_k_gather(&e->b, p, offsets_of(e, stride), mask, LB_K_NONE);
}

// -- arguments, uniformity, stages -------------------------------------------

static lb_kval int_param(lb_lowering *e) {
  return lb_k_param(&e->b, lb_kt(LB_I64, 1));
}

static void take_strides(lb_lowering *e, lb_stride *to, uint8_t n) {
  for (uint8_t i = 0; i < n; i++) {
    to[i].row = int_param(e);
    to[i].col = int_param(e);
  }
}

// An input with the dtype and layout of an output may be the same memory.
static bool may_be_written(const lb_spec *s, int input) {
  if (s->form == LB_FORM_ATTENTION || input < lb_spec_factors(s) ||
      lb_spec_is_gathered(s, (uint8_t)input))
    return false;
  for (int i = 0; i < s->n_out; i++)
    if (s->out[i].dtype == s->in[input].dtype &&
        s->out[i].layout == s->in[input].layout)
      return true;
  return false;
}

bool lb_lower_in_place(const lb_lowering *e) {
  for (int i = 0; i < e->spec->n_in; i++)
    if (may_be_written(e->spec, i)) return true;
  return false;
}

static void take_arguments(lb_lowering *e) {
  const lb_spec *s = e->spec;
  for (int i = 0; i < s->n_out; i++)
    e->out[i] = lb_k_param(&e->b, lb_kt_ptr(s->out[i].dtype, 0));
  for (int i = 0; i < s->n_in; i++) {
    unsigned flags = may_be_written(s, i) ? 0 : LB_K_READONLY;
    e->in[i] = lb_k_param(&e->b, lb_kt_ptr(s->in[i].dtype, flags));
  }
  int n_dims = lb_spec_dims(s);
  for (int i = 0; i < n_dims; i++) e->dims[i] = int_param(e);
  take_strides(e, e->out_stride, s->n_out);
  take_strides(e, e->in_stride, s->n_in);
  for (int i = 0; lb_spec_has_taps(s) && i < 2; i++) {
    e->taps[i].y = int_param(e);
    e->taps[i].x = int_param(e);
  }
  for (int i = 0; i < s->n_scalars; i++)
    e->scalar[i] = lb_k_param(&e->b, lb_kt(s->nodes[s->n_in + i].dtype, 1));
  for (int i = 0; i < n_dims; i++) {
    int known = lb_facts_get(e->facts, LB_ASSUME_EQUAL, (lb_sdim)i, -1);
    if (known >= 0) e->dims[i] = lb_k_i64(&e->b, known);
  }
}

static void find_stages(lb_lowering *e) {
  for (int i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    bool reduces = lb_sop_infos[n->op].rule == LB_SR_REDUCE;
    for (int j = 0; j < n->n_src; j++) {
      uint8_t stage = (uint8_t)(e->stage[n->src[j]] + reduces);
      if (stage > e->stage[i]) e->stage[i] = stage;
    }
  }
}

static void find_uniformity(lb_lowering *e) {
  uint8_t varies[LB_SPEC_MAX_NODES];
  lb_spec_varies(e->spec, varies);
  for (int i = 0; i < e->spec->n_nodes; i++) {
    bool all = !varies[i] && e->stage[i] == 0;
    bool each = varies[i] & LB_VARIES_COLS;
    e->uniformity[i] = all ? LB_UNIFORM : each ? LB_VARYING : LB_UNIFORM_ROW;
  }
}

// Marks scalars that are sources of vectors or of reductions, or are stored in
// all columns.
static void find_splats(lb_lowering *e) {
  const lb_spec *s = e->spec;
  for (int i = 0; i < s->n_nodes; i++) {
    const lb_snode *n = &s->nodes[i];
    if (n->op == LB_S_GATHER_ROW) continue;
    if (e->uniformity[i] == LB_VARYING ||
        lb_sop_infos[n->op].rule == LB_SR_REDUCE)
      for (int j = 0; j < n->n_src; j++) e->is_splat[n->src[j]] = true;
  }
  for (int i = 0; i < s->n_out; i++)
    if (s->out[i].layout != LB_LAYOUT_PER_ROW)
      e->is_splat[s->out[i].node] = true;
}

void lb_lower_begin(lb_lowering *e) {
  e->cached_node = e->cached_out = LB_SPEC_NO_NODE;
  memset(e->uniform, 0xff, sizeof e->uniform);  // LB_K_NONE
  memset(e->lanes_of, 0xff, sizeof e->lanes_of);
  take_arguments(e);
  find_stages(e);
  find_uniformity(e);
  find_splats(e);
}

// -- scalars -----------------------------------------------------------------

static lb_kval emit_op(lb_lowering *e, const lb_snode *n, const lb_kval *src,
                       uint32_t lanes) {
  lb_kinst in = {.op = kops[n->op],
                 .dtype = n->dtype,
                 .lanes = (uint16_t)lanes,
                 .n_src = n->n_src};
  return lb_k_push(&e->b, in, src, NULL);
}

static lb_kval scalar_of(lb_lowering *e, const lb_snode *n) {
  lb_kval src[4];
  switch (n->op) {
    case LB_S_INPUT: return lb_k_load(&e->b, e->in_row[n->arg], 1, 0);
    case LB_S_SCALAR: return e->scalar[n->arg];
    case LB_S_COLS: return lb_k_cast(&e->b, e->dims[LB_DIM_COLS], n->dtype);
    default:
      for (int j = 0; j < n->n_src; j++) src[j] = e->uniform[n->src[j]];
      return emit_op(e, n, src, 1);
  }
}

void lb_lower_set_uniform(lb_lowering *e, uint8_t node, lb_kval one) {
  e->uniform[node] = one;
  if (e->is_splat[node]) e->lanes_of[node] = lb_k_splat(&e->b, one, e->lanes);
}

static void compute_uniforms(lb_lowering *e, lb_uniformity uniformity,
                             uint8_t stage) {
  for (uint8_t i = 0; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (e->uniformity[i] != uniformity || e->stage[i] != stage ||
        lb_sop_infos[n->op].rule == LB_SR_REDUCE)
      continue;
    lb_lower_set_uniform(e, i, scalar_of(e, n));
  }
}

void lb_lower_uniforms(lb_lowering *e) {
  for (int i = 0; i < e->spec->n_in; i++) e->in_row[i] = e->in[i];
  compute_uniforms(e, LB_UNIFORM, 0);
}

static lb_kval row_of(lb_lowering *e, lb_kval p, lb_kval stride, lb_kval row) {
  return lb_k_ptr(&e->b, p, lb_k_mul(&e->b, row, stride), 0);
}

static void find_gathered_rows(lb_lowering *e) {
  for (int i = e->spec->n_in; i < e->spec->n_nodes; i++) {
    const lb_snode *n = &e->spec->nodes[i];
    if (n->op != LB_S_GATHER_ROW) continue;
    uint8_t from = n->src[0];
    e->gathered_row[i] =
        row_of(e, e->in[from], e->in_stride[from].row, e->uniform[n->src[1]]);
  }
}

void lb_lower_row(lb_lowering *e, lb_kval row) {
  const lb_spec *s = e->spec;
  for (int i = 0; i < s->n_in; i++) {
    bool fixed = s->in[i].layout == LB_LAYOUT_PER_COL ||
                 s->in[i].layout == LB_LAYOUT_BROADCAST ||
                 lb_spec_is_gathered(s, (uint8_t)i);
    e->in_row[i] =
        fixed ? e->in[i] : row_of(e, e->in[i], e->in_stride[i].row, row);
  }
  for (int i = 0; i < s->n_out; i++)
    e->out_row[i] = row_of(e, e->out[i], e->out_stride[i].row, row);
  lb_lower_row_stage(e, 0);
  find_gathered_rows(e);
}

void lb_lower_row_stage(lb_lowering *e, uint8_t stage) {
  compute_uniforms(e, LB_UNIFORM_ROW, stage);
}

// -- lanes -------------------------------------------------------------------

void lb_lower_at(lb_lowering *e, lb_kval col, lb_kval mask) {
  e->col = col;
  e->mask = mask;
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (e->uniformity[i] == LB_VARYING) e->lanes_of[i] = LB_K_NONE;
}

static lb_kval load_lanes(lb_lowering *e, lb_kval row) {
  lb_kval p = lb_k_ptr(&e->b, row, e->col, 0);
  return lb_k_load_masked(&e->b, p, e->lanes, 0, e->mask, LB_K_NONE);
}

static lb_kval input_lanes(lb_lowering *e, uint8_t i) {
  if (e->spec->in[i].layout != LB_LAYOUT_STRIDED)
    return load_lanes(e, e->in_row[i]);
  lb_kval at = lb_k_mul(&e->b, e->col, e->in_stride[i].col);
  lb_kval p = lb_k_ptr(&e->b, e->in_row[i], at, 0);
  return lb_lower_gather(e, p, e->in_stride[i].col, e->mask);
}

// Recursion computes sources first; its depth is bounded by the nodes of a
// spec.
lb_kval lb_lower_value(lb_lowering *e, uint8_t node) {
  const lb_snode *n = &e->spec->nodes[node];
  lb_kval src[4];
  if (e->lanes_of[node] != LB_K_NONE) return e->lanes_of[node];
  if (node == e->cached_node) {
    src[0] = load_lanes(e, e->out_row[e->cached_out]);
    return e->lanes_of[node] = src[0];
  }
  if (n->op == LB_S_INPUT) return e->lanes_of[node] = input_lanes(e, n->arg);
  if (n->op == LB_S_GATHER_ROW)
    return e->lanes_of[node] = load_lanes(e, e->gathered_row[node]);
  for (int j = 0; j < n->n_src; j++) src[j] = lb_lower_value(e, n->src[j]);
  return e->lanes_of[node] = emit_op(e, n, src, e->lanes);
}

// -- outputs -----------------------------------------------------------------

bool lb_lower_has_stores(const lb_lowering *e) {
  for (int i = 0; i < e->spec->n_out; i++)
    if (e->spec->out[i].layout != LB_LAYOUT_PER_ROW) return true;
  return false;
}

void lb_lower_values(lb_lowering *e, lb_stores *out) {
  *out = (lb_stores){.col = e->col, .mask = e->mask};
  for (int i = 0; i < e->spec->n_out; i++)
    if (e->spec->out[i].layout != LB_LAYOUT_PER_ROW)
      out->value[i] = lb_lower_value(e, e->spec->out[i].node);
}

void lb_lower_stores(lb_lowering *e, const lb_stores *s) {
  lb_kbuilder *b = &e->b;
  for (int i = 0; i < e->spec->n_out; i++) {
    uint8_t layout = e->spec->out[i].layout;
    lb_kval step = e->out_stride[i].col;
    if (layout == LB_LAYOUT_FULL) {
      lb_kval p = lb_k_ptr(b, e->out_row[i], s->col, 0);
      lb_k_store_masked(b, p, s->value[i], 0, s->mask);
    } else if (layout == LB_LAYOUT_STRIDED) {
      lb_kval p = lb_k_ptr(b, e->out_row[i], lb_k_mul(b, s->col, step), 0);
      lb_k_scatter(b, p, offsets_of(e, step), s->value[i], s->mask);
    }
  }
}

void lb_lower_row_stores(lb_lowering *e) {
  for (int i = 0; i < e->spec->n_out; i++)
    if (e->spec->out[i].layout == LB_LAYOUT_PER_ROW)
      lb_k_store(&e->b, e->out_row[i], e->uniform[e->spec->out[i].node], 0);
}

// -- all columns -------------------------------------------------------------

enum { MAX_UNROLL = 4 };

// Mathematical functions need most registers themselves.
static uint32_t unroll_of(const lb_lowering *e) {
  for (int i = 0; i < e->spec->n_nodes; i++)
    if (e->uniformity[i] == LB_VARYING && i != e->cached_node &&
        lb_lower_is_costly(&e->spec->nodes[i]))
      return 2;
  return MAX_UNROLL;
}

static void unrolled_columns(lb_lowering *e, lb_kval end, uint32_t vectors) {
  lb_kbuilder *b = &e->b;
  lb_stores s[MAX_UNROLL];
  lb_kval step = lb_k_i64(b, vectors * e->lanes);
  lb_kval col = lb_k_loop(b, lb_k_i64(b, 0), end, step);
  for (uint32_t v = 0; v < vectors; v++) {
    lb_lower_at(e, lb_lower_add(e, col, v * e->lanes), LB_K_NONE);
    lb_lower_values(e, &s[v]);
  }
  for (uint32_t v = 0; v < vectors; v++) lb_lower_stores(e, &s[v]);
  lb_k_end(b);
}

// Full groups of vectors, then single vectors under a mask.
void lb_lower_columns(lb_lowering *e) {
  lb_kbuilder *b = &e->b;
  lb_kval cols = e->dims[LB_DIM_COLS];
  uint32_t vectors = unroll_of(e);
  int group = (int)(vectors * e->lanes);
  if (!lb_lower_has_stores(e)) return;
  lb_kval end = lb_lower_round_down(e, cols, group);
  unrolled_columns(e, end, vectors);
  if (lb_facts_divides(e->facts, LB_DIM_COLS, group)) return;
  bool whole = lb_facts_divides(e->facts, LB_DIM_COLS, (int)e->lanes);
  lb_kval col = lb_k_loop(b, end, cols, lb_k_i64(b, e->lanes));
  lb_kval left = lb_k_sub(b, cols, col);
  lb_stores s;
  lb_lower_at(e, col, whole ? LB_K_NONE : lb_k_tail(b, left, e->lanes));
  lb_lower_values(e, &s);
  lb_lower_stores(e, &s);
  lb_k_end(b);
}
