// graph/pass_norm.c -- folds batch normalisation, and separate multiplications
// and additions, into the convolution before or after them.
//
// y = (conv(x) - mean) * f + shift, with f = scale / sqrt(var + eps) for each
// output channel, is a convolution with weights w * f and bias (bias - mean) *
// f + shift. These are computed in double and rounded once.
//
// A batch normalisation without such a convolution is expanded into elementwise
// operators.
//
// conv(x * s + t), with scalars s and t, is a convolution of x with weights w *
// s and a bias to which t times the sum of the weights is added. If x is padded
// with zeros, t must not be added to the padding: then it is a convolution of x
// + t / s.
//
// Convolutions of quantised values are left alone: their sums are exact, and
// the scale must be applied after them, or rounding to int8 would give
// different results.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/rewrite.h"

typedef struct batch_norm {
  lb_node *node;
  const lb_node *conv;
  const lb_tensor *weight, *bias;  // bias may be NULL
  const lb_tensor *scale, *shift, *mean, *var;
  int64_t channels;  // of the output
} batch_norm;

static const lb_tensor *dense_const(const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  return t && lb_dtype_is_float(t->dtype) && lb_tensor_is_dense(t) ? t : NULL;
}

static bool is_vector(const lb_tensor *t, int64_t n) {
  return t && t->rank == 1 && t->dims[0] == n;
}

// Output channels; 0 if weights and group are inconsistent.
static int64_t out_channels(const lb_node *conv, const lb_tensor *w) {
  if (w->rank < 2 || lb_tensor_count(w) == 0) return 0;
  if (conv->op == LB_OP_Conv) return w->dims[0];
  int64_t group = lb_attr_int(conv, "group", 1), n;
  if (group < 1 || w->dims[0] % group != 0) return 0;
  return __builtin_mul_overflow(group, w->dims[1], &n) ? 0 : n;
}

// Channels are axis 1 in all nodes that are matched here.
static const lb_node *conv_before(const lb_rewrite *rw, const lb_value *v) {
  const lb_node *n = lb_match_inner(rw, v, LB_OP_Conv);
  if (!n) n = lb_match_inner(rw, v, LB_OP_ConvTranspose);
  return n && !lb_op_channels_last(n) ? n : NULL;
}

// False if the weights or the bias are not constants of matching sizes.
static bool match_conv(const lb_node *conv, batch_norm *b) {
  bool biased = conv->n_in > 2 && conv->in[2];
  b->conv = conv;
  b->weight = dense_const(conv->in[1]);
  b->channels = b->weight ? out_channels(conv, b->weight) : 0;
  b->bias = biased ? dense_const(conv->in[2]) : NULL;
  return b->channels > 0 && (!biased || is_vector(b->bias, b->channels));
}

static bool only_first_output(const lb_node *n) {
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  return n->n_out > 0 && n->out[0];
}

// Matches a normalisation by constants, one per channel.
static bool match_norm(lb_node *n, batch_norm *b) {
  if (n->op != LB_OP_BatchNormalization || !only_first_output(n) ||
      lb_attr_int(n, "training_mode", 0) != 0)
    return false;
  *b = (batch_norm){.node = n,
                    .scale = dense_const(n->in[1]),
                    .shift = dense_const(n->in[2]),
                    .mean = dense_const(n->in[3]),
                    .var = dense_const(n->in[4])};
  int64_t m = b->scale && b->scale->rank == 1 ? b->scale->dims[0] : 0;
  b->channels = m;
  return m > 0 && is_vector(b->shift, m) && is_vector(b->mean, m) &&
         is_vector(b->var, m);
}

static bool match(const lb_rewrite *rw, lb_node *n, batch_norm *b) {
  if (!match_norm(n, b)) return false;
  const lb_node *conv = conv_before(rw, n->in[0]);
  int64_t channels = b->channels;
  return conv && !lb_op_exact(conv) && match_conv(conv, b) &&
         b->channels == channels;
}

// The scale of each channel; false if one is not finite.
static bool channel_scales(const batch_norm *b, double *f) {
  double eps = (double)lb_attr_float(b->node, "epsilon", 1e-5f);
  for (int64_t i = 0; i < b->channels; i++) {
    f[i] = lb_match_elem(b->scale, i) / sqrt(lb_match_elem(b->var, i) + eps);
    if (!isfinite(f[i])) return false;
  }
  return true;
}

static void store(const lb_tensor *t, int64_t i, double x) {
  char *p = (char *)t->data + (size_t)i * lb_dtype_size(t->dtype);
  float f = (float)x;
  uint16_t bits = t->dtype == LB_F16 ? lb_f64_to_f16(x) : lb_f32_to_bf16(f);
  switch (t->dtype) {
    case LB_F32: memcpy(p, &f, sizeof f); break;
    case LB_F64: memcpy(p, &x, sizeof x); break;
    default: memcpy(p, &bits, sizeof bits); break;
  }
}

// The output channel of block j of `inner` elements. Weights of Conv are [M,
// C/group, k...], those of ConvTranspose [C, M/group, k...], where the input
// channels of a group are consecutive.
static int64_t channel_of(const batch_norm *b, int64_t j) {
  const lb_tensor *w = b->weight;
  if (b->conv->op == LB_OP_Conv) return j / w->dims[1];
  int64_t per_group = w->dims[0] / lb_attr_int(b->conv, "group", 1);
  return j / w->dims[1] / per_group * w->dims[1] + j % w->dims[1];
}

static lb_status scaled_weights(lb_graph *g, const batch_norm *b,
                                const double *f, lb_value **out) {
  lb_tensor t = *b->weight;
  t.data = lb_arena_alloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  int64_t blocks = t.dims[0] * t.dims[1];
  int64_t inner = lb_tensor_count(&t) / blocks;
  for (int64_t j = 0; j < blocks; j++) {
    double factor = f[channel_of(b, j)];
    for (int64_t i = j * inner; i < (j + 1) * inner; i++)
      store(&t, i, lb_match_elem(b->weight, i) * factor);
  }
  return lb_const_new(g, b->conv->in[1]->name, &t, out);
}

static lb_status shifted_bias(lb_graph *g, const batch_norm *b, const double *f,
                              lb_value **out) {
  lb_tensor t = {.dtype = b->weight->dtype, .rank = 1, .dims = {b->channels}};
  lb_tensor_dense(&t);
  t.data = lb_arena_alloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  for (int64_t i = 0; i < b->channels; i++) {
    double bias = b->bias ? lb_match_elem(b->bias, i) : 0;
    double mean = b->mean ? lb_match_elem(b->mean, i) : 0;
    double shift = b->shift ? lb_match_elem(b->shift, i) : 0;
    store(&t, i, (bias - mean) * f[i] + shift);
  }
  const lb_value *named = b->shift ? b->node->in[2] : b->conv->in[2];
  return lb_const_new(g, named->name, &t, out);
}

static lb_status fold(lb_rewrite *rw, const batch_norm *b, const double *f) {
  lb_value *in[3] = {b->conv->in[0]};
  bool biased = b->bias || b->shift;
  LB_TRY(scaled_weights(rw->graph, b, f, &in[1]));
  if (biased) LB_TRY(shifted_bias(rw->graph, b, f, &in[2]));
  LB_TRY(lb_rewrite_become(rw, b->node, b->conv->op, in, biased ? 3 : 2));
  return lb_node_copy_attrs(rw->graph, b->node, b->conv);
}

// -- elementwise -------------------------------------------------------------

// One number per channel, shaped to broadcast to an input of that rank.
static lb_status channel_row(lb_rewrite *rw, const lb_tensor *from, int rank,
                             lb_value **out) {
  lb_tensor t = {.dtype = from->dtype,
                 .rank = rank - 1,
                 .dims = {from->dims[0]},
                 .data = from->data};
  for (int i = 1; i < t.rank; i++) t.dims[i] = 1;
  lb_tensor_dense(&t);
  return lb_const_new(rw->graph, "channel", &t, out);
}

static lb_status scale_row(lb_rewrite *rw, const batch_norm *b, int rank,
                           const double *f, lb_value **out) {
  lb_tensor t = *b->scale;
  t.data = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  for (int64_t i = 0; i < b->channels; i++) store(&t, i, f[i]);
  return channel_row(rw, &t, rank, out);
}

static lb_status expand_norm(lb_rewrite *rw, const batch_norm *b,
                             const double *f) {
  static const lb_op ops[] = {LB_OP_Sub, LB_OP_Mul};
  int rank = b->node->in[0]->info.rank;
  lb_value *x[2] = {b->node->in[0]};
  for (int i = 0; i < 2; i++) {
    lb_node *n;
    LB_TRY(i ? scale_row(rw, b, rank, f, &x[1])
             : channel_row(rw, b->mean, rank, &x[1]));
    LB_TRY(lb_rewrite_insert(rw, b->node, ops[i], x, 2, &n));
    LB_TRY(lb_rewrite_inserted(rw, n, &x[0]));
  }
  LB_TRY(channel_row(rw, b->shift, rank, &x[1]));
  return lb_rewrite_become(rw, b->node, LB_OP_Add, x, 2);
}

static bool is_of_one_dtype(const batch_norm *b) {
  lb_dtype t = b->node->in[0]->info.dtype;
  return (t == LB_F32 || t == LB_F64) && b->scale->dtype == t &&
         b->shift->dtype == t && b->mean->dtype == t && b->var->dtype == t;
}

static lb_status visit_affine(lb_rewrite *rw, lb_node *n) {
  batch_norm b;
  if (!match_norm(n, &b) || n->in[0]->info.rank < 2 || !is_of_one_dtype(&b))
    return LB_OK;
  double *f = lb_arena_new(&rw->scratch, double, (size_t)b.channels);
  if (!f) return lb_oom();
  return channel_scales(&b, f) ? expand_norm(rw, &b, f) : LB_OK;
}

lb_status lb_pass_affine(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit_affine);
}

// -- separate bias and scale -------------------------------------------------

// Whether t broadcasts to an output of this rank as one number, or as one per
// channel.
static bool is_per_channel(const lb_tensor *t, int rank, int64_t m) {
  if (!t || t->rank > rank) return false;
  int axis = t->rank - (rank - 1);  // of the channels
  for (int i = 0; i < t->rank; i++)
    if (t->dims[i] != 1 && (i != axis || t->dims[i] != m)) return false;
  return true;
}

static lb_status add_biases(lb_graph *g, const lb_value *name,
                            const lb_tensor *old, const lb_tensor *added,
                            int64_t m, lb_value **out) {
  lb_tensor t = {.dtype = added->dtype, .rank = 1, .dims = {m}};
  lb_tensor_dense(&t);
  t.data = lb_arena_alloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  int64_t step = lb_tensor_count(added) == 1 ? 0 : 1;
  for (int64_t i = 0; i < m; i++)
    store(&t, i,
          (old ? lb_match_elem(old, i) : 0) + lb_match_elem(added, i * step));
  return lb_const_new(g, name->name, &t, out);
}

// Whether t is one number, or one per channel, that fits the convolution.
static bool match_channels(const lb_node *conv, const lb_tensor *t,
                           batch_norm *b) {
  return match_conv(conv, b) &&
         is_per_channel(t, b->weight->rank, b->channels) &&
         t->dtype == b->weight->dtype;
}

// Replaces n, an Add of `added` to the convolution, by the convolution.
static lb_status absorb_bias(lb_rewrite *rw, lb_node *n, const lb_node *conv,
                             const lb_value *added) {
  batch_norm b = {.node = n};
  const lb_tensor *t = dense_const(added);
  if (!match_channels(conv, t, &b)) return LB_OK;
  lb_value *in[3] = {conv->in[0], conv->in[1]};
  LB_TRY(add_biases(rw->graph, added, b.bias, t, b.channels, &in[2]));
  LB_TRY(lb_rewrite_become(rw, n, conv->op, in, 3));
  return lb_node_copy_attrs(rw->graph, n, conv);
}

// The same for a Mul.
static lb_status absorb_scale(lb_rewrite *rw, lb_node *n, const lb_node *conv,
                              const lb_value *by) {
  batch_norm b = {.node = n};
  const lb_tensor *t = dense_const(by);
  if (lb_op_exact(conv) || !match_channels(conv, t, &b)) return LB_OK;
  double *f = lb_arena_new(&rw->scratch, double, (size_t)b.channels);
  if (!f) return lb_oom();
  int64_t step = lb_tensor_count(t) == 1 ? 0 : 1;
  for (int64_t i = 0; i < b.channels; i++) {
    f[i] = lb_match_elem(t, i * step);
    if (!isfinite(f[i])) return LB_OK;
  }
  return fold(rw, &b, f);
}

static lb_status visit_pair(lb_rewrite *rw, lb_node *n) {
  if (n->n_out != 1 || !n->out[0]) return LB_OK;
  for (int i = 0; i < 2; i++) {
    const lb_node *conv = conv_before(rw, n->in[i]);
    if (!conv) continue;
    return n->op == LB_OP_Add ? absorb_bias(rw, n, conv, n->in[1 - i])
                              : absorb_scale(rw, n, conv, n->in[1 - i]);
  }
  return LB_OK;
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  batch_norm b;
  if (n->op == LB_OP_Add || n->op == LB_OP_Mul) return visit_pair(rw, n);
  if (!match(rw, n, &b)) return LB_OK;
  double *f = lb_arena_new(&rw->scratch, double, (size_t)b.channels);
  if (!f) return lb_oom();
  return channel_scales(&b, f) ? fold(rw, &b, f) : LB_OK;
}

lb_status lb_pass_batch_norm(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit);
}

// -- before a convolution ----------------------------------------------------

typedef struct scaled {
  batch_norm b;
  lb_value *x;          // unscaled input
  double factor, term;  // the convolution reads x * factor + term
  bool padded;
} scaled;

// If s->x is produced by `op` of a value and a scalar, and has no other reader:
// replaces s->x by that value, and returns the scalar.
static bool peel_scalar(const lb_rewrite *rw, lb_op op, scaled *s,
                        double *number) {
  const lb_node *n = lb_match_inner(rw, s->x, op);
  lb_value *x;
  double found;
  if (!n || !lb_match_with_scalar(n, &x, &found) || !isfinite(found) ||
      x->info.dtype != s->x->info.dtype)
    return false;
  s->x = x;
  *number = found;
  return true;
}

static bool match_scaled(const lb_rewrite *rw, lb_node *n, scaled *s) {
  *s = (scaled){.b = {.node = n}, .x = n->in[0], .factor = 1};
  if (n->op != LB_OP_Conv || lb_op_channels_last(n) || lb_op_exact(n) ||
      !only_first_output(n) || !match_conv(n, &s->b))
    return false;
  lb_dtype t = s->b.weight->dtype;
  if ((t != LB_F32 && t != LB_F64) || s->x->info.dtype != t) return false;
  s->padded = !lb_match_unpadded(n, s->b.weight->rank - 2);
  bool shifts = peel_scalar(rw, LB_OP_Add, s, &s->term);
  bool scales = peel_scalar(rw, LB_OP_Mul, s, &s->factor);
  if (s->padded && shifts)
    return scales && isnormal((float)s->factor) &&
           isfinite((float)(s->term / s->factor));
  return shifts || scales;
}

// The bias, plus the term times the sum of the weights of each channel.
static lb_status shifted_by_term(lb_graph *g, const scaled *s, lb_value **out) {
  const lb_tensor *w = s->b.weight;
  lb_tensor t = {.dtype = w->dtype, .rank = 1, .dims = {s->b.channels}};
  lb_tensor_dense(&t);
  t.data = lb_arena_alloc(&g->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  int64_t each = lb_tensor_count(w) / s->b.channels;
  for (int64_t i = 0; i < s->b.channels; i++) {
    double sum = 0;
    for (int64_t j = 0; j < each; j++) sum += lb_match_elem(w, i * each + j);
    double bias = s->b.bias ? lb_match_elem(s->b.bias, i) : 0;
    store(&t, i, bias + s->term * sum);
  }
  return lb_const_new(g, s->b.node->in[1]->name, &t, out);
}

static lb_status insert_add_scalar(lb_rewrite *rw, lb_node *n, double number,
                                   lb_value **x) {
  lb_tensor t = {.dtype = (*x)->info.dtype};
  lb_tensor_dense(&t);
  t.data = lb_arena_alloc(&rw->graph->arena, lb_tensor_bytes(&t), 64);
  if (!t.data) return lb_oom();
  store(&t, 0, number);
  lb_value *in[2] = {*x};
  LB_TRY(lb_const_new(rw->graph, n->in[1]->name, &t, &in[1]));
  return lb_rewrite_make(rw, n, LB_OP_Add, in, 2, x);
}

static lb_status visit_scaled(lb_rewrite *rw, lb_node *n) {
  scaled s;
  if (!match_scaled(rw, n, &s)) return LB_OK;
  double *f = lb_arena_new(&rw->scratch, double, (size_t)s.b.channels);
  if (!f) return lb_oom();
  for (int64_t i = 0; i < s.b.channels; i++) f[i] = s.factor;
  lb_node before = *n;
  lb_value *in[3] = {s.x, NULL, n->n_in > 2 ? n->in[2] : NULL};
  LB_TRY(scaled_weights(rw->graph, &s.b, f, &in[1]));
  if (s.padded && s.term != 0)
    LB_TRY(insert_add_scalar(rw, n, s.term / s.factor, &in[0]));
  else if (s.term != 0)
    LB_TRY(shifted_by_term(rw->graph, &s, &in[2]));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Conv, in, in[2] ? 3 : 2));
  return lb_node_copy_attrs(rw->graph, n, &before);
}

lb_status lb_pass_scale(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, visit_scaled);
}
