// graph/pass_match.c -- recognises activations and layer norms that exporters
// decompose.
//
// Activations are matched as products, whatever the order of their factors:
//   GELU       0.5 * x * (1 + erf(x / sqrt 2))
//   GELU tanh  0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
//   HardSwish  1/6 * x * clip(x + 3, 0, 6),  x * HardSigmoid(x; 1/6, 0.5)
//   Swish      x * sigmoid(alpha * x)
// A layer norm is matched at the Mul by its scale; an Add of a bias is folded
// into a layer norm that has none.
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

// -- activations -------------------------------------------------------------

// y if v = 1 + op(y) and there are no other readers, else NULL.
static lb_value *one_plus(const lb_rewrite *rw, const lb_value *v, lb_op op) {
  double one;
  lb_value *y;
  const lb_node *add = lb_match_inner(rw, v, LB_OP_Add);
  if (!add || !lb_match_with_scalar(add, &y, &one) || one != 1) return NULL;
  const lb_node *f = lb_match_inner(rw, y, op);
  return f ? f->in[0] : NULL;
}

// v = *coef * x.
static bool is_multiple(const lb_rewrite *rw, lb_value *v, const lb_value *x,
                        double *coef) {
  lb_product p;
  if (!lb_match_factors(rw, v, &p) || p.n != 1 || p.leaf[0] != x) return false;
  *coef = p.coef;
  return true;
}

// v = coef * x^power, as multiplications or as Pow.
static bool is_monomial(const lb_rewrite *rw, lb_value *v, const lb_value *x,
                        double coef, double power) {
  lb_product p;
  if (!lb_match_factors(rw, v, &p) || !lb_match_near(p.coef, coef))
    return false;
  double sum = 0;
  for (int i = 0; i < p.n; i++) {
    double e = 1;
    const lb_node *pow = lb_match_inner(rw, p.leaf[i], LB_OP_Pow);
    const lb_value *base = pow ? pow->in[0] : p.leaf[i];
    if (base != x) return false;
    if (pow && !lb_match_scalar(pow->in[1], x, &e)) return false;
    sum += e;
  }
  return sum == power;
}

static bool is_gelu_erf(const lb_rewrite *rw, lb_value *x, lb_value *s) {
  double c;
  lb_value *u = one_plus(rw, s, LB_OP_Erf);
  return u && is_multiple(rw, u, x, &c) && lb_match_near(c, sqrt(0.5));
}

// w = x + 0.044715 x^3
static bool is_cubic(const lb_rewrite *rw, lb_value *w, const lb_value *x) {
  const lb_node *add = lb_match_inner(rw, w, LB_OP_Add);
  if (!add) return false;
  for (int i = 0; i < 2; i++)
    if (add->in[i] == x && is_monomial(rw, add->in[1 - i], x, 0.044715, 3))
      return true;
  return false;
}

// w = 1 + 0.044715 x^2
static bool is_even_part(const lb_rewrite *rw, lb_value *w, const lb_value *x) {
  double one;
  lb_value *z;
  const lb_node *add = lb_match_inner(rw, w, LB_OP_Add);
  return add && lb_match_with_scalar(add, &z, &one) && one == 1 &&
         is_monomial(rw, z, x, 0.044715, 2);
}

static bool is_gelu_tanh(const lb_rewrite *rw, lb_value *x, lb_value *s) {
  lb_product p;
  lb_value *u = one_plus(rw, s, LB_OP_Tanh);
  if (!u || !lb_match_factors(rw, u, &p)) return false;
  if (!lb_match_near(p.coef, sqrt(2 / acos(-1)))) return false;
  if (p.n == 1) return is_cubic(rw, p.leaf[0], x);
  if (p.n != 2) return false;
  for (int i = 0; i < 2; i++)
    if (p.leaf[i] == x && is_even_part(rw, p.leaf[1 - i], x)) return true;
  return false;
}

static bool is_clip(const lb_node *n, double low, double high) {
  double a, b;
  return n && n->n_in == 3 && lb_match_scalar(n->in[1], NULL, &a) &&
         lb_match_scalar(n->in[2], NULL, &b) && a == low && b == high;
}

// s = clip(x + 3, 0, 6)
static bool is_relu6_of(const lb_rewrite *rw, lb_value *x, lb_value *s) {
  double three;
  lb_value *y;
  const lb_node *clip = lb_match_inner(rw, s, LB_OP_Clip);
  if (!is_clip(clip, 0, 6)) return false;
  const lb_node *add = lb_match_inner(rw, clip->in[0], LB_OP_Add);
  return add && lb_match_with_scalar(add, &y, &three) && y == x && three == 3;
}

static bool is_hard_sigmoid_of(const lb_rewrite *rw, lb_value *x, lb_value *s) {
  const lb_node *n = lb_match_inner(rw, s, LB_OP_HardSigmoid);
  return n && n->in[0] == x &&
         lb_match_near((double)lb_attr_float(n, "alpha", 0.2f), 1.0 / 6) &&
         lb_match_near((double)lb_attr_float(n, "beta", 0.5f), 0.5);
}

static bool is_sigmoid_of(const lb_rewrite *rw, lb_value *x, lb_value *s,
                          double *alpha) {
  const lb_node *n = lb_match_inner(rw, s, LB_OP_Sigmoid);
  return n && is_multiple(rw, n->in[0], x, alpha) && isfinite(*alpha);
}

// If coef * x * s is an activation, changes n into it.
static lb_status try_activation(lb_rewrite *rw, lb_node *n, double coef,
                                lb_value *x, lb_value *s, bool *done) {
  lb_graph *g = rw->graph;
  double alpha;
  *done = true;
  if (lb_match_near(coef, 0.5)) {
    if (is_gelu_erf(rw, x, s))
      return lb_rewrite_become(rw, n, LB_OP_Gelu, &x, 1);
    if (is_gelu_tanh(rw, x, s)) {
      LB_TRY(lb_rewrite_become(rw, n, LB_OP_Gelu, &x, 1));
      return lb_node_set_str(g, n, "approximate", "tanh");
    }
  } else if (lb_match_near(coef, 1.0 / 6)) {
    if (is_relu6_of(rw, x, s))
      return lb_rewrite_become(rw, n, LB_OP_HardSwish, &x, 1);
  } else if (lb_match_near(coef, 1)) {
    if (is_hard_sigmoid_of(rw, x, s))
      return lb_rewrite_become(rw, n, LB_OP_HardSwish, &x, 1);
    if (is_sigmoid_of(rw, x, s, &alpha)) {
      LB_TRY(lb_rewrite_become(rw, n, LB_OP_Swish, &x, 1));
      return lb_node_set_float(g, n, "alpha", (float)alpha);
    }
  }
  *done = false;
  return LB_OK;
}

static lb_status match_activation(lb_rewrite *rw, lb_node *n, bool *done) {
  lb_product p;
  *done = false;
  if (!lb_match_product(rw, n, &p) || p.n != 2) return LB_OK;
  for (int i = 0; i < 2 && !*done; i++)
    LB_TRY(try_activation(rw, n, p.coef, p.leaf[i], p.leaf[1 - i], done));
  return LB_OK;
}

// -- layer normalisation -----------------------------------------------------

typedef struct layer_norm {
  lb_value *x, *scale;
  int trailing;  // how many last axes are normalised
  double eps;
} layer_norm;

// The number of trailing axes over which ReduceMean n takes the mean, with
// keepdims; 0 if it reduces other axes.
static int trailing_axes(const lb_node *n) {
  const lb_tensor *t = n->n_in > 1 ? lb_value_const(n->in[1]) : NULL;
  if (!t || t->dtype != LB_I64 || !lb_tensor_is_dense(t)) return 0;
  if (lb_attr_int(n, "keepdims", 1) != 1) return 0;
  int64_t count = lb_tensor_count(t);
  if (count < 1 || count > LB_MAX_RANK) return 0;
  unsigned seen = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t axis;
    memcpy(&axis, (const char *)t->data + i * 8, sizeof axis);
    if (axis >= 0 && n->in[0]->info.rank >= 0) axis -= n->in[0]->info.rank;
    if (axis < -count || axis >= 0) return 0;
    seen |= 1u << (-axis - 1);
  }
  return seen == (1u << count) - 1 ? (int)count : 0;
}

// d if sq = d * d is one node; *reads is how often that node reads d.
static lb_value *square_of(const lb_rewrite *rw, const lb_value *sq,
                           uint32_t *reads) {
  double two;
  const lb_node *n = lb_match_inner(rw, sq, LB_OP_Pow);
  if (n) {
    *reads = 1;
    return lb_match_scalar(n->in[1], n->in[0], &two) && two == 2 ? n->in[0]
                                                                 : NULL;
  }
  n = lb_match_inner(rw, sq, LB_OP_Mul);
  *reads = 2;
  return n && n->in[0] == n->in[1] ? n->in[0] : NULL;
}

// d = x - mean(x), and s = sqrt(mean(d * d) + eps).
static bool is_deviation(const lb_rewrite *rw, lb_value *d, lb_value *s,
                         layer_norm *m) {
  uint32_t reads;
  lb_value *var;
  const lb_node *root = lb_match_inner(rw, s, LB_OP_Sqrt);
  const lb_node *add = root ? lb_match_inner(rw, root->in[0], LB_OP_Add) : NULL;
  if (!add || !lb_match_with_scalar(add, &var, &m->eps)) return false;
  const lb_node *mean_sq = lb_match_inner(rw, var, LB_OP_ReduceMean);
  if (!mean_sq || square_of(rw, mean_sq->in[0], &reads) != d) return false;
  const lb_node *sub = lb_match_op(d, LB_OP_Sub);
  if (!sub || lb_rewrite_uses(rw, d) != reads + 1) return false;
  const lb_node *mean = lb_match_inner(rw, sub->in[1], LB_OP_ReduceMean);
  if (!mean || mean->in[0] != sub->in[0]) return false;
  m->x = sub->in[0];
  m->trailing = trailing_axes(mean);
  return m->trailing > 0 && m->trailing == trailing_axes(mean_sq);
}

// v = d / s, or d * (1 / s).
static bool is_standardised(const lb_rewrite *rw, const lb_value *v,
                            layer_norm *m) {
  const lb_node *n = lb_match_inner(rw, v, LB_OP_Div);
  if (n) return is_deviation(rw, n->in[0], n->in[1], m);
  n = lb_match_inner(rw, v, LB_OP_Mul);
  for (int i = 0; n && i < 2; i++) {
    const lb_node *inv = lb_match_inner(rw, n->in[i], LB_OP_Reciprocal);
    if (inv && is_deviation(rw, n->in[1 - i], inv->in[0], m)) return true;
  }
  return false;
}

// Whether c is a constant with the last dims of x.
static bool has_last_dims(const lb_value *c, const lb_value *x, int trailing) {
  const lb_tensor *t = lb_value_const(c);
  if (!t || t->rank != trailing || x->info.rank < trailing) return false;
  const lb_dim *dims = x->info.dims + (x->info.rank - trailing);
  for (int i = 0; i < trailing; i++)
    if (!lb_dim_is(dims[i], t->dims[i])) return false;
  return t->dtype == x->info.dtype;
}

// LayerNormalization computes in float32 by default, so float64 is left alone.
static lb_status match_layer_norm(lb_rewrite *rw, lb_node *n, bool *done) {
  layer_norm m = {0};
  *done = false;
  for (int i = 0; i < 2; i++) {
    lb_value *scale = n->in[i];
    if (!lb_value_const(scale) || !is_standardised(rw, n->in[1 - i], &m) ||
        m.x->info.dtype == LB_F64 || !has_last_dims(scale, m.x, m.trailing))
      continue;
    lb_value *in[] = {m.x, scale};
    LB_TRY(lb_rewrite_become(rw, n, LB_OP_LayerNormalization, in, 2));
    LB_TRY(lb_node_set_int(rw->graph, n, "axis", -m.trailing));
    *done = true;
    return lb_node_set_float(rw->graph, n, "epsilon", (float)m.eps);
  }
  return LB_OK;
}

static lb_status match_norm_bias(lb_rewrite *rw, lb_node *n) {
  for (int i = 0; i < 2; i++) {
    lb_value *bias = n->in[i];
    const lb_node *ln =
        lb_match_inner(rw, n->in[1 - i], LB_OP_LayerNormalization);
    if (!ln || ln->n_in != 2 || ln->n_out != 1) continue;
    const lb_tensor *scale = lb_value_const(ln->in[1]);
    if (!scale || !has_last_dims(bias, ln->in[0], scale->rank)) continue;
    lb_value *in[] = {ln->in[0], ln->in[1], bias};
    LB_TRY(lb_rewrite_become(rw, n, LB_OP_LayerNormalization, in, 3));
    return lb_node_copy_attrs(rw->graph, n, ln);
  }
  return LB_OK;
}

// -- the pass ----------------------------------------------------------------

static lb_status match_node(lb_rewrite *rw, lb_node *n) {
  bool done = false;
  if (n->n_out != 1 || !n->out[0]) return LB_OK;
  if (n->op == LB_OP_Add) return match_norm_bias(rw, n);
  if (n->op != LB_OP_Mul && n->op != LB_OP_Div) return LB_OK;
  LB_TRY(match_activation(rw, n, &done));
  if (done || n->op != LB_OP_Mul) return LB_OK;
  return match_layer_norm(rw, n, &done);
}

lb_status lb_pass_match(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, match_node);
}
