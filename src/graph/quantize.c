// graph/quantize.c -- what the passes over quantised graphs share.
#include "graph/quantize.h"

#include <math.h>
#include <string.h>

#define MAX_MOVES 8  // between the Cast to int8 and a reader of floats

// -- inserting nodes ---------------------------------------------------------

lb_status lb_insert_node(const lb_insert_point *s, lb_op op, lb_value *x,
                         lb_value *y, lb_value **out) {
  lb_value *in[] = {x, y};
  return lb_rewrite_make(s->rw, s->at, op, in, y ? 2 : 1, out);
}

lb_status lb_insert_with_scalar(const lb_insert_point *s, lb_op op, lb_value *x,
                                float y, lb_value **out) {
  lb_value *scalar;
  LB_TRY(lb_const_f32(s->rw->graph, "scalar", y, &scalar));
  return lb_insert_node(s, op, x, scalar, out);
}

static lb_status clip(const lb_insert_point *s, lb_value *x, float low,
                      float high, lb_value **out) {
  lb_value *in[3] = {x};
  LB_TRY(lb_const_f32(s->rw->graph, "low", low, &in[1]));
  LB_TRY(lb_const_f32(s->rw->graph, "high", high, &in[2]));
  return lb_rewrite_make(s->rw, s->at, LB_OP_Clip, in, 3, out);
}

bool lb_quantized_range(lb_dtype t, float range[2]) {
  range[0] = t == LB_I8 ? -128 : t == LB_I16 ? -32768 : 0;
  range[1] = t == LB_I8 ? 127 : t == LB_U8 ? 255 : t == LB_I16 ? 32767 : 65535;
  return t == LB_I8 || t == LB_U8 || t == LB_I16 || t == LB_U16;
}

// x where `x op 0` holds, else 0. NaN gives 0.
static lb_status zero_unless(const lb_insert_point *s, lb_op op, lb_value *x,
                             lb_value **out) {
  lb_value *in[3] = {NULL, x};
  LB_TRY(lb_insert_with_scalar(s, op, x, 0, &in[0]));
  LB_TRY(lb_const_f32(s->rw->graph, "zero", 0, &in[2]));
  return lb_rewrite_make(s->rw, s->at, LB_OP_Where, in, 3, out);
}

// The scale as DynamicQuantizeLinear defines it; 1 where all elements are 0.
static lb_status make_scale(const lb_insert_point *s, lb_value *x,
                            lb_value **low, lb_node **scale) {
  lb_value *high, *range, *is_zero, *in[3];
  lb_node *ends[2];
  for (int i = 0; i < 2; i++) {
    lb_op op = i ? LB_OP_ReduceMax : LB_OP_ReduceMin;
    lb_value *some;
    LB_TRY(zero_unless(s, i ? LB_OP_Greater : LB_OP_Less, x, &some));
    LB_TRY(lb_rewrite_insert(s->rw, s->at, op, &some, 1, &ends[i]));
    LB_TRY(lb_node_set_int(s->rw->graph, ends[i], "keepdims", 0));
    LB_TRY(lb_rewrite_inserted(s->rw, ends[i], i ? &high : low));
  }
  LB_TRY(lb_insert_with_scalar(s, LB_OP_Min, *low, 0, low));
  LB_TRY(lb_insert_with_scalar(s, LB_OP_Max, high, 0, &high));
  LB_TRY(lb_insert_node(s, LB_OP_Sub, high, *low, &range));
  LB_TRY(lb_insert_with_scalar(s, LB_OP_Div, range, 255, &in[2]));
  LB_TRY(lb_insert_with_scalar(s, LB_OP_Equal, in[2], 0, &is_zero));
  in[0] = is_zero;
  LB_TRY(lb_const_f32(s->rw->graph, "one", 1, &in[1]));
  LB_TRY(lb_rewrite_insert(s->rw, s->at, LB_OP_Where, in, 3, scale));
  lb_value *y_scale;
  return lb_rewrite_inserted(s->rw, *scale, &y_scale);
}

// Lets n produce the former output `old`, if that has readers.
static void set_output(lb_node *n, lb_value *old) {
  if (old) lb_node_set_out(n, 0, old);
}

lb_status lb_insert_quantize(const lb_insert_point *s, lb_value *x,
                             lb_value *zero_point, const float range[2],
                             lb_value **out) {
  LB_TRY(lb_insert_node(s, LB_OP_Round, x, NULL, out));
  if (zero_point) LB_TRY(lb_insert_node(s, LB_OP_Add, *out, zero_point, out));
  return clip(s, *out, range[0], range[1], out);
}

lb_status lb_insert_quantize_scaled(const lb_insert_point *s, lb_value *x,
                                    lb_value *scale, lb_value *zero_point,
                                    const float range[2], lb_value **out) {
  lb_value *in[3];
  LB_TRY(lb_insert_node(s, LB_OP_Div, x, scale, &in[2]));
  LB_TRY(lb_insert_node(s, LB_OP_IsNaN, in[2], NULL, &in[0]));
  LB_TRY(lb_const_f32(s->rw->graph, "least", -INFINITY, &in[1]));
  LB_TRY(lb_rewrite_make(s->rw, s->at, LB_OP_Where, in, 3, out));
  return lb_insert_quantize(s, *out, zero_point, range, out);
}

// -- constants ---------------------------------------------------------------

lb_status lb_const_zeros(lb_graph *g, lb_dtype t, int64_t n, int n_spatial,
                         lb_value **out) {
  lb_tensor c = {.dtype = t, .rank = 1 + n_spatial, .dims = {n}};
  for (int i = 0; i < n_spatial; i++) c.dims[1 + i] = 1;
  lb_tensor_dense(&c);
  c.data = lb_arena_zalloc(&g->arena, lb_tensor_bytes(&c), 64);
  return c.data ? lb_const_new(g, "numbers", &c, out) : lb_oom();
}

const lb_tensor *lb_int8_const(const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  return t && lb_is_int8(t->dtype) && lb_tensor_is_dense(t) ? t : NULL;
}

bool lb_zero_point_at(const lb_value *v, float *out) {
  const lb_tensor *t = lb_value_const(v);
  float range[2];
  int16_t bits;
  if (!t || lb_tensor_count(t) != 1 || !lb_quantized_range(t->dtype, range))
    return false;
  if (lb_is_int8(t->dtype)) {
    *out = (float)lb_int8_at(t, 0);
    return true;
  }
  memcpy(&bits, t->data, sizeof bits);
  *out = t->dtype == LB_I16 ? (float)bits : (float)(uint16_t)bits;
  return true;
}

// -- expanding quantisation --------------------------------------------------

lb_status lb_expand_dynamic_quantize(lb_rewrite *rw, lb_node *n) {
  static const float range[2] = {0, 255};
  lb_insert_point s = {rw, n};
  lb_value *x = n->in[0], *low, *zero_point, *q, *zero_point_u8;
  lb_value *old_scale = n->n_out > LB_Q_SCALE ? n->out[LB_Q_SCALE] : NULL;
  lb_value *old_zero_point =
      n->n_out > LB_Q_ZERO_POINT ? n->out[LB_Q_ZERO_POINT] : NULL;
  lb_node *scale;
  if (!n->out[0] || x->info.dtype != LB_F32) return LB_OK;
  LB_TRY(make_scale(&s, x, &low, &scale));
  set_output(scale, old_scale);
  LB_TRY(lb_insert_node(&s, LB_OP_Neg, low, NULL, &zero_point));
  LB_TRY(lb_insert_node(&s, LB_OP_Div, zero_point, scale->out[0], &zero_point));
  LB_TRY(lb_insert_node(&s, LB_OP_Round, zero_point, NULL, &zero_point));
  LB_TRY(clip(&s, zero_point, 0, 255, &zero_point));
  if (old_zero_point) {
    LB_TRY(lb_rewrite_cast(rw, n, zero_point, LB_U8, &zero_point_u8));
    set_output(zero_point_u8->producer, old_zero_point);
  }
  LB_TRY(
      lb_insert_quantize_scaled(&s, x, scale->out[0], zero_point, range, &q));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &q, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(LB_U8));
}

lb_status lb_expand_quantize(lb_rewrite *rw, lb_node *n) {
  lb_insert_point s = {rw, n};
  double scale;
  float range[2], zero_point;
  lb_value *z = lb_node_input(n, LB_Q_ZERO_POINT), *q;
  if (!n->out[0]) return LB_OK;
  lb_dtype t = n->out[0]->info.dtype;
  if (n->in[LB_Q_X]->info.dtype != LB_F32 ||
      n->in[LB_Q_SCALE]->info.dtype != LB_F32 ||
      !lb_match_scalar(n->in[LB_Q_SCALE], n->in[LB_Q_X], &scale) ||
      !lb_quantized_range(t, range) || (z && !lb_zero_point_at(z, &zero_point)))
    return LB_OK;
  if (z) LB_TRY(lb_const_f32(rw->graph, "zero", zero_point, &z));
  LB_TRY(lb_insert_quantize_scaled(&s, n->in[LB_Q_X], n->in[LB_Q_SCALE], z,
                                   range, &q));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Cast, &q, 1));
  return lb_node_set_int(rw->graph, n, "to", lb_attr_code(t));
}

// -- quantised values still held as floats -----------------------------------

// Whether every window of a pool covers an element: an empty window gives
// different results for int8 and for floats.
static bool has_no_empty_window(const lb_node *pool) {
  const char *mode = lb_attr_str(pool, "auto_pad", "NOTSET");
  int n_spatial = pool->in[0]->info.rank - 2;
  for (int i = 0; i < n_spatial; i++) {
    int64_t size = lb_attr_int_at(pool, "kernel_shape", i, 1);
    if (lb_attr_int_at(pool, "dilations", i, 1) != 1 ||
        lb_attr_int_at(pool, "pads", i, 0) >= size ||
        lb_attr_int_at(pool, "pads", n_spatial + i, 0) >= size)
      return false;
  }
  return strcmp(*mode ? mode : "NOTSET", "NOTSET") == 0 &&
         lb_attr_int(pool, "ceil_mode", 0) == 0;
}

bool lb_commutes_with_cast(const lb_node *n) {
  if (!lb_op_has(n->op, LB_TRAIT_LIKE_CAST)) return false;
  return n->op != LB_OP_MaxPool ||
         ((n->n_out == 1 || !n->out[1]) && has_no_empty_window(n));
}

// Whether n clamps to the range of dtype t.
static bool is_clamp(const lb_node *n, lb_dtype t) {
  float range[2];
  double low, high;
  if (n->op != LB_OP_Clip || n->n_in != 3 || !n->in[1] || !n->in[2])
    return false;
  return lb_quantized_range(t, range) &&
         lb_match_scalar(n->in[1], n->in[0], &low) &&
         lb_match_scalar(n->in[2], n->in[0], &high) &&
         low == (double)range[0] && high == (double)range[1];
}

// Whether v was rounded, as the zero points of DynamicQuantizeLinear are, or is
// an integral constant.
static bool is_whole(const lb_value *v, const lb_value *like) {
  const lb_node *clamp = lb_match_op(v, LB_OP_Clip);
  double x;
  if (clamp && is_clamp(clamp, LB_U8)) v = clamp->in[0];
  return lb_match_op(v, LB_OP_Round) ||
         (lb_match_scalar(v, like, &x) && x == rint(x));
}

// Whether n computes quantised values of dtype t: rounded and clamped.
static bool is_quantized(const lb_node *n, lb_dtype t) {
  if (!is_clamp(n, t)) return false;
  const lb_node *sum = lb_match_op(n->in[0], LB_OP_Add);
  return sum ? lb_match_op(sum->in[0], LB_OP_Round) &&
                   is_whole(sum->in[1], sum->in[0])
             : lb_match_op(n->in[0], LB_OP_Round) != NULL;
}

// The floats from which v was cast, if a pass expanded its quantisation; or
// NULL.
static lb_value *uncast(const lb_value *v) {
  const lb_node *cast = lb_match_op(v, LB_OP_Cast), *from;
  if (!cast || cast->in[0]->info.dtype != LB_F32) return NULL;
  for (from = cast->in[0]->producer; from && lb_commutes_with_cast(from);)
    from = from->in[0]->producer;
  return from && is_quantized(from, v->info.dtype) ? cast->in[0] : NULL;
}

lb_status lb_insert_copy(const lb_insert_point *s, const lb_node *n,
                         lb_value *x, lb_value **out) {
  lb_value *in[2] = {x, n->n_in > 1 ? n->in[1] : NULL};
  lb_node *copy;
  LB_TRY(lb_rewrite_insert(s->rw, s->at, n->op, in, n->n_in, &copy));
  LB_TRY(lb_node_copy_attrs(s->rw->graph, copy, n));
  return lb_rewrite_inserted(s->rw, copy, out);
}

// f(Cast(x)) = Cast(f(x)).
lb_status lb_insert_uncast(const lb_insert_point *s, const lb_value *v,
                           lb_value **out) {
  const lb_node *moved[MAX_MOVES];
  int n = 0;
  while (!(*out = uncast(v)) && v->producer &&
         lb_commutes_with_cast(v->producer) && n < MAX_MOVES) {
    moved[n++] = v->producer;
    v = v->producer->in[0];
  }
  while (*out && n > 0) LB_TRY(lb_insert_copy(s, moved[--n], *out, out));
  return LB_OK;
}
