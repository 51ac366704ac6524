// fuse/tokens.c -- the facts of each value, operator by operator.
#include "fuse/tokens.h"

#include <math.h>
#include <string.h>

#include "fuse/axes.h"
#include "graph/rewrite.h"

#define MAX_UNIFORM 4096  // elements of a constant that are compared
#define MAX_OPERANDS 16   // inputs of a node that is computed on rows

// A score of at most this is hidden: exp(score - max) is 0 in float32 unless
// scores differ by almost as much. Exporters write -10000 or less.
#define HIDDEN_SCORE (-9999.0)

static const lb_token_fact nothing = {.at_least = -INFINITY};

static lb_token_fact uniform(double v) {
  return (lb_token_fact){.kind = LB_TOKENS_UNIFORM,
                         .masked = v,
                         .valid = v,
                         .at_least = isnan(v) ? -INFINITY : v};
}

// -- numbers -----------------------------------------------------------------

static bool read_number(const lb_tensor *t, int64_t i, double *out) {
  const char *p = (const char *)t->data + (size_t)i * lb_dtype_size(t->dtype);
  switch (t->dtype) {
    case LB_BOOL:
    case LB_U8: *out = *(const uint8_t *)p; return true;
    case LB_I32:
    case LB_I64: *out = (double)lb_match_int(t, i); return true;
    case LB_F32:
    case LB_F64: *out = lb_match_elem(t, i); return true;
    default: return false;
  }
}

static bool write_number(lb_dtype dtype, double v, void *to) {
  switch (dtype) {
    case LB_BOOL:
    case LB_U8: *(uint8_t *)to = (uint8_t)v; return true;
    case LB_I32: memcpy(to, &(int32_t){(int32_t)v}, 4); return true;
    case LB_I64: memcpy(to, &(int64_t){(int64_t)v}, 8); return true;
    case LB_F32: memcpy(to, &(float){(float)v}, 4); return true;
    case LB_F64: memcpy(to, &v, 8); return true;
    default: return false;
  }
}

static lb_token_fact fact_of_constant(const lb_tensor *t) {
  int64_t n = lb_tensor_count(t);
  double first, v;
  if (n < 1 || n > MAX_UNIFORM || !lb_tensor_is_dense(t) ||
      !read_number(t, 0, &first))
    return nothing;
  double low = first;
  bool equal = true;
  for (int64_t i = 1; i < n; i++) {
    if (!read_number(t, i, &v) || isnan(v)) return nothing;
    equal = equal && v == first;
    low = v < low ? v : low;
  }
  lb_token_fact f = uniform(first);
  if (!equal) f = nothing;
  f.at_least = low;
  return f;
}

lb_token_fact lb_tokens_fact(const lb_tokens *t, const lb_value *v) {
  if (!v) return nothing;
  return v->info.data ? fact_of_constant(v->info.data) : t->facts[v->id];
}

static bool is_number(lb_token_fact f) {
  return f.kind == LB_TOKENS_UNIFORM || f.kind == LB_TOKENS_MASK;
}

// -- nodes on rows -----------------------------------------------------------

typedef struct visit {  // one node
  lb_tokens *t;
  const lb_node *node;
  lb_token_fact in[MAX_OPERANDS];
  uint8_t operands[MAX_OPERANDS];
} visit;

static int rank_of(const visit *v, uint32_t i) {
  return v->node->in[i]->info.rank;
}

static bool is_rows(const visit *v, uint32_t i) {
  return i < v->node->n_in && v->in[i].kind == LB_TOKENS_ROWS;
}

// Inputs from `first` on do not depend on tokens.
static bool rest_is_whole(const visit *v, uint32_t first) {
  for (uint32_t i = first; i < v->node->n_in; i++)
    if (v->in[i].kind == LB_TOKENS_ROWS || v->in[i].kind == LB_TOKENS_MASK)
      return false;
  return true;
}

static bool rest_is_constant(const visit *v, uint32_t first) {
  for (uint32_t i = first; i < v->node->n_in; i++)
    if (v->node->in[i] && !lb_value_const(v->node->in[i])) return false;
  return true;
}

static lb_token_fact rows(int batch, int seq) {
  return (lb_token_fact){.kind = LB_TOKENS_ROWS,
                         .batch = batch,
                         .seq = seq,
                         .at_least = -INFINITY};
}

// The dims of `v` at the axes of the fact are those of the batch.
static bool has_positions(const lb_tokens *t, const lb_value *v,
                          lb_token_fact f) {
  int rank = v->info.rank;
  const lb_dim *d = v->info.dims;
  if (f.batch < 0 || f.seq < 0 || f.batch >= rank || f.seq >= rank)
    return false;
  if (f.batch == f.seq) return lb_dim_equal(d[f.batch], t->all);
  return lb_dim_equal(d[f.batch], t->batch) && lb_dim_equal(d[f.seq], t->seq);
}

// The size at an axis of the result that the input is broadcast to; 1 if it
// does not have the axis.
static lb_dim dim_at(const lb_value *in, int axis, int rank) {
  int own = axis - (rank - in->info.rank);
  return own < 0 ? lb_dim_const(1) : in->info.dims[own];
}

// Whether d is the length of a sequence, or the least of that and a constant,
// as tables of positions have it.
static bool is_length(const lb_tokens *t, lb_dim d) {
  lb_dim least, limit = lb_dim_const(lb_dim_known(d).at_most);
  if (lb_dim_equal(d, t->seq)) return true;
  if (lb_dim_is_const(d) || limit.k < 2 || limit.k == INT64_MAX) return false;
  lb_status st = lb_dim_min(t->graph->syms, t->seq, limit, &least);
  bool is = !lb_failed(st) && lb_dim_equal(d, least);
  lb_status_drop(st);
  return is;
}

// How an input that is not ROWS is read where it is broadcast to rows of the
// positions `to` in a result of that rank.
static bool read_other(const visit *v, uint32_t i, lb_token_fact to, int rank,
                       uint8_t *out) {
  const lb_value *x = v->node->in[i];
  lb_token_fact f = v->in[i];
  int shift = rank - x->info.rank;
  if (x->info.rank < 0) return false;
  lb_dim b = dim_at(x, to.batch, rank), s = dim_at(x, to.seq, rank);
  *out = LB_OPERAND_WHOLE;
  if (lb_dim_is(b, 1) && lb_dim_is(s, 1)) return true;
  *out = LB_OPERAND_NUMBER;
  if (f.kind == LB_TOKENS_UNIFORM) return true;
  if (f.kind == LB_TOKENS_MASK)
    return f.batch + shift == to.batch && f.seq + shift == to.seq;
  *out = LB_OPERAND_POSITION;
  return to.batch != to.seq && lb_dim_is(b, 1) && is_length(v->t, s);
}

// The positions of the inputs that are ROWS, in a result of that rank.
static bool find_positions(const visit *v, int rank, lb_token_fact *out) {
  out->kind = LB_TOKENS_NONE;
  for (uint32_t i = 0; i < v->node->n_in; i++) {
    if (!is_rows(v, i)) continue;
    int shift = rank - rank_of(v, i);
    lb_token_fact f = rows(v->in[i].batch + shift, v->in[i].seq + shift);
    if (out->kind != LB_TOKENS_NONE &&
        (out->batch != f.batch || out->seq != f.seq))
      return false;
    *out = f;
  }
  return out->kind != LB_TOKENS_NONE;
}

// Whether a masked element of the result of an elementwise node is 0.
static bool is_zero_at_padding(const visit *v) {
  const lb_token_fact *in = v->in;
  switch (v->node->op) {
    case LB_OP_Mul:
      for (int i = 0; i < 2; i++)
        if (in[i].kind == LB_TOKENS_ROWS
                ? in[i].zero
                : is_number(in[i]) && in[i].masked == 0)
          return true;
      return false;
    case LB_OP_Where: {
      if (in[0].kind != LB_TOKENS_MASK) return false;
      lb_token_fact at = in[in[0].masked != 0 ? 1 : 2];
      return at.kind == LB_TOKENS_ROWS ? at.zero
                                       : is_number(at) && at.masked == 0;
    }
    case LB_OP_Div:
    case LB_OP_Cast:
    case LB_OP_Neg: return in[0].zero;
    default: return false;
  }
}

// A number has no dims, so some other input must have all dims of the result.
static bool keeps_dims(const visit *v) {
  const lb_value *out = v->node->out[0];
  bool numbers = false, whole = false;
  for (uint32_t i = 0; i < v->node->n_in; i++) {
    if (!v->node->in[i]) continue;
    numbers |= v->operands[i] == LB_OPERAND_NUMBER;
    whole |= v->operands[i] == LB_OPERAND_ROWS &&
             lb_value_same_dims(v->node->in[i], out);
  }
  return !numbers || whole;
}

static lb_token_fact elementwise_rows(visit *v) {
  const lb_node *n = v->node;
  int rank = n->out[0]->info.rank;
  lb_token_fact f;
  if (rank < 0 || !find_positions(v, rank, &f)) return nothing;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i] || is_rows(v, i)) continue;
    if (!read_other(v, i, f, rank, &v->operands[i])) return nothing;
  }
  if (!keeps_dims(v)) return nothing;
  f.zero = is_zero_at_padding(v);
  return f;
}

static bool others_are_constant(const lb_value *v, int batch, int seq) {
  for (int i = 0; i < v->info.rank; i++)
    if (i != batch && i != seq &&
        (!lb_dim_is_const(v->info.dims[i]) || v->info.dims[i].k < 1))
      return false;
  return true;
}

static lb_token_fact moved(visit *v) {
  lb_token_fact f = v->in[0];
  int batch = f.batch, seq = f.seq;
  lb_axes_dims dims = {v->t->batch, v->t->seq, v->t->all};
  if (!rest_is_whole(v, 1) || !lb_axes_moved(v->node, &dims, &batch, &seq))
    return nothing;
  f.batch = batch;
  f.seq = seq;
  if (f.kind == LB_TOKENS_ROWS && lb_axes_states_shape(v->node->op) &&
      !others_are_constant(v->node->out[0], batch, seq))
    return nothing;
  return f;
}

// Contracts the last axis with constant weights.
static lb_token_fact matmul(visit *v) {
  const lb_node *n = v->node;
  if (!is_rows(v, 0) || !lb_value_const(n->in[1])) return nothing;
  int last = rank_of(v, 0) - 1;
  bool plain = n->op == LB_OP_Gemm
                   ? !lb_attr_int(n, "transA", 0) && rest_is_constant(v, 1)
                   : rank_of(v, 1) == 2;
  if (!plain || v->in[0].batch == last || v->in[0].seq == last) return nothing;
  const lb_value *c = lb_node_input(n, 2);
  if (c && c->info.rank > 1 && !lb_dim_is(c->info.dims[0], 1)) return nothing;
  return rows(v->in[0].batch, v->in[0].seq);
}

// Rows along the axes from `axis` on are processed one by one.
static lb_token_fact row_op(visit *v, int64_t axis, bool only) {
  int rank = rank_of(v, 0), at = (int)(axis < 0 ? axis + rank : axis);
  lb_token_fact f = v->in[0];
  for (uint32_t i = 1; i < v->node->n_out; i++)
    if (v->node->out[i]) return nothing;
  if (!is_rows(v, 0) || !rest_is_constant(v, 1)) return nothing;
  if (only ? f.batch == at || f.seq == at : f.batch >= at || f.seq >= at)
    return nothing;
  for (uint32_t i = 1; i < v->node->n_in; i++)
    if (v->node->in[i] && rank_of(v, i) > rank - at) return nothing;
  return rows(f.batch, f.seq);
}

static lb_token_fact reduced(visit *v) {
  lb_token_fact f = v->in[0];
  uint32_t axes;
  if (!is_rows(v, 0) || !lb_axes_listed(v->node, 1, rank_of(v, 0), &axes) ||
      axes == 0 || axes >> f.batch & 1 || axes >> f.seq & 1)
    return nothing;
  if (lb_attr_int(v->node, "keepdims", 1)) return rows(f.batch, f.seq);
  return rows(f.batch - __builtin_popcount(axes & ((1u << f.batch) - 1)),
              f.seq - __builtin_popcount(axes & ((1u << f.seq) - 1)));
}

// Looks rows up in a table, or selects along another axis.
static lb_token_fact gather(visit *v) {
  const lb_node *n = v->node;
  lb_token_fact f = v->in[1];
  int64_t axis = lb_attr_int(n, "axis", 0);
  if (axis < 0) axis += rank_of(v, 0);
  if (is_rows(v, 1)) {
    if (!lb_value_const(n->in[0])) return nothing;
    return rows(f.batch + (int)axis, f.seq + (int)axis);
  }
  f = v->in[0];
  if (!is_rows(v, 0) || !lb_value_const(n->in[1]) || f.batch == axis ||
      f.seq == axis)
    return nothing;
  int more = rank_of(v, 1) - 1;
  return rows(f.batch + (f.batch > axis ? more : 0),
              f.seq + (f.seq > axis ? more : 0));
}

// Slice, Split and Concat along other axes.
static lb_token_fact pieces(visit *v) {
  const lb_node *n = v->node;
  lb_token_fact f = v->in[0];
  uint32_t axes = 0;
  if (!is_rows(v, 0)) return nothing;
  int64_t axis = lb_attr_int(n, "axis", 0);
  if (axis < 0) axis += rank_of(v, 0);
  if (n->op != LB_OP_Slice) axes = 1u << axis;
  if (n->op == LB_OP_Slice && !lb_axes_listed(n, 3, rank_of(v, 0), &axes))
    return nothing;
  if (axes >> f.batch & 1 || axes >> f.seq & 1) return nothing;
  if (n->op != LB_OP_Concat)
    return rest_is_constant(v, 1) ? rows(f.batch, f.seq) : nothing;
  for (uint32_t i = 1; i < n->n_in; i++)
    if (!is_rows(v, i) || v->in[i].batch != f.batch || v->in[i].seq != f.seq)
      return nothing;
  return rows(f.batch, f.seq);
}

// Whether the mask of an attention hides exactly the keys that are padding.
static bool hides_padding(const visit *v) {
  const lb_value *m = lb_node_input(v->node, 3);
  lb_token_fact f = v->in[3];
  int shift = m ? 4 - m->info.rank : 0;
  if (!m || f.kind != LB_TOKENS_MASK || f.batch + shift != 0 ||
      f.seq + shift != 3)
    return false;
  if (m->info.dtype != LB_BOOL) return f.valid == 0 && f.masked < HIDDEN_SCORE;
  double low = (double)lb_attr_float(v->node, "masked", -INFINITY);
  return f.valid != 0 && f.masked == 0 && low < HIDDEN_SCORE;
}

static lb_token_fact attention(visit *v) {
  const lb_node *n = v->node;
  lb_token_fact f = v->in[0];
  for (uint32_t i = 4; i < n->n_in; i++)
    if (n->in[i]) return nothing;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return nothing;
  if (n->n_in < 4 || lb_attr_int(n, "is_causal", 0) ||
      lb_attr_int(n, "left_window_size", -1) != -1 ||
      lb_attr_int(n, "right_window_size", -1) != -1 || !hides_padding(v))
    return nothing;
  for (uint32_t i = 0; i < 3; i++)
    if (!is_rows(v, i) || rank_of(v, i) != rank_of(v, 0) ||
        v->in[i].batch != 0 || v->in[i].seq != rank_of(v, i) - 2 ||
        n->in[i]->info.dtype != LB_F32)
      return nothing;
  v->operands[3] = LB_OPERAND_NUMBER;  // it is not read at all
  return rows(f.batch, f.seq);
}

static lb_token_fact fact_on_rows(visit *v) {
  const lb_node *n = v->node;
  switch (n->op) {
    case LB_OP_MatMul:
    case LB_OP_Gemm: return matmul(v);
    case LB_OP_LayerNormalization:
    case LB_OP_RMSNormalization:
      return row_op(v, lb_attr_int(n, "axis", -1), false);
    case LB_OP_Softmax:
    case LB_OP_LogSoftmax:
      if (lb_attr_int(n, "flatten", 0)) return nothing;
      return row_op(v, lb_attr_int(n, "axis", -1), true);
    case LB_OP_ReduceSum:
    case LB_OP_ReduceMean:
    case LB_OP_ReduceMax:
    case LB_OP_ReduceMin:
    case LB_OP_ReduceL2:
    case LB_OP_ReduceSumSquare: return reduced(v);
    case LB_OP_Gather: return gather(v);
    case LB_OP_Slice:
    case LB_OP_Split:
    case LB_OP_Concat: return pieces(v);
    case LB_OP_Attention: return attention(v);
    default: return nothing;
  }
}

// -- numbers by the mask -----------------------------------------------------

// Evaluates an elementwise node on one element of each input.
static lb_status evaluate(const visit *v, bool valid, double *out, bool *ok) {
  const lb_node *n = v->node;
  lb_tensor in[MAX_OPERANDS] = {{0}}, y = {0};
  int64_t elements[MAX_OPERANDS] = {0};
  lb_arena scratch;
  *ok = true;
  for (uint32_t i = 0; *ok && i < n->n_in; i++) {
    if (!n->in[i]) continue;
    in[i] = (lb_tensor){.dtype = n->in[i]->info.dtype, .data = &elements[i]};
    *ok = write_number(in[i].dtype, valid ? v->in[i].valid : v->in[i].masked,
                       &elements[i]);
  }
  if (!*ok) return LB_OK;
  lb_arena_init(&scratch, 1 << 10);
  lb_status st = v->t->eval(NULL, n, in, &scratch, &y);
  *ok = !lb_failed(st) && lb_tensor_count(&y) == 1 && read_number(&y, 0, out);
  lb_arena_fini(&scratch);
  if (lb_status_code(st) == LB_OOM) return st;
  lb_status_drop(st);  // such a node is not understood, which is no error
  return LB_OK;
}

// A comparison that the lower bound of an input decides.
static bool is_always_true(const visit *v) {
  bool less = v->node->op == LB_OP_LessOrEqual;
  if (!less && v->node->op != LB_OP_GreaterOrEqual) return false;
  lb_token_fact high = v->in[less], low = v->in[!less];
  return low.kind == LB_TOKENS_UNIFORM && high.at_least >= low.valid;
}

static lb_status elementwise_numbers(visit *v, lb_token_fact *out) {
  const lb_node *n = v->node;
  int rank = n->out[0]->info.rank;
  lb_token_fact f = uniform(0);
  bool ok;
  *out = nothing;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i]) continue;
    if (!is_number(v->in[i])) return LB_OK;
    if (v->in[i].kind != LB_TOKENS_MASK) continue;
    int shift = rank - rank_of(v, i);
    int batch = v->in[i].batch + shift, seq = v->in[i].seq + shift;
    if (f.kind == LB_TOKENS_MASK && (f.batch != batch || f.seq != seq))
      return LB_OK;
    f.kind = LB_TOKENS_MASK;
    f.batch = batch;
    f.seq = seq;
  }
  LB_TRY(evaluate(v, true, &f.valid, &ok));
  if (ok) LB_TRY(evaluate(v, false, &f.masked, &ok));
  if (!ok) return LB_OK;
  f.at_least = fmin(f.valid, f.masked);
  *out = f;
  return LB_OK;
}

static bool is_elementwise(const lb_node *n) {
  return lb_op_infos[n->op].cls == LB_CLASS_ELEMENTWISE &&
         lb_op_is_pure(n->op) && n->op != LB_OP_BatchNormalization &&
         n->op != LB_OP_Dropout && n->op != LB_OP_QuantizeLinear &&
         n->op != LB_OP_DequantizeLinear;
}

static lb_status elementwise(visit *v, lb_token_fact *out) {
  LB_TRY(elementwise_numbers(v, out));
  if (out->kind != LB_TOKENS_NONE) return LB_OK;
  if (is_always_true(v))
    *out = uniform(1);
  else
    *out = elementwise_rows(v);
  return LB_OK;
}

static lb_token_fact range(const visit *v) {
  lb_token_fact f = nothing;
  if (v->in[0].kind == LB_TOKENS_UNIFORM &&
      v->in[2].kind == LB_TOKENS_UNIFORM && v->in[2].valid > 0)
    f.at_least = v->in[0].valid;
  return f;
}

static lb_token_fact viewed(visit *v) {
  lb_token_fact f = v->in[0];
  if (f.kind == LB_TOKENS_MASK || f.kind == LB_TOKENS_ROWS) return moved(v);
  return f;  // a number or a bound, in whatever order
}

static lb_status find_fact(visit *v, lb_token_fact *out) {
  const lb_node *n = v->node;
  *out = nothing;
  if (is_elementwise(n)) return elementwise(v, out);
  switch (n->op) {
    case LB_OP_Range: *out = range(v); break;
    case LB_OP_Identity:
    case LB_OP_Reshape:
    case LB_OP_Flatten:
    case LB_OP_Squeeze:
    case LB_OP_Unsqueeze:
    case LB_OP_Transpose:
    case LB_OP_Expand: *out = viewed(v); break;
    default: *out = fact_on_rows(v); break;
  }
  return LB_OK;
}

// -- the graph ---------------------------------------------------------------

static lb_status keep_operands(visit *v) {
  lb_tokens *t = v->t;
  const lb_node *n = v->node;
  uint8_t *kept = lb_arena_memdup(t->arena, v->operands, n->n_in + 1u, 1);
  if (!kept) return lb_oom();
  t->operands[n->id] = kept;
  t->n_attentions += n->op == LB_OP_Attention;
  return LB_OK;
}

// Any value with the dims of a batch has rows of positions, even if it has to
// be computed whole: the rows of tokens can be read from it.
static void set_fact(lb_tokens *t, const lb_value *v, lb_token_fact f) {
  lb_token_fact whole = rows(0, 1);
  whole.at_least = f.at_least;
  bool is = f.kind == LB_TOKENS_NONE && has_positions(t, v, whole);
  t->facts[v->id] = is ? whole : f;
}

static lb_status visit_node(lb_tokens *t, const lb_node *n) {
  visit v = {.t = t, .node = n};
  lb_token_fact f;
  if (n->n_regions || n->n_in + 1 > MAX_OPERANDS || n->n_in == 0 ||
      n->n_out == 0 || !n->out[0] || n->out[0]->info.rank < 0)
    return LB_OK;
  for (uint32_t i = 0; i < n->n_in; i++) {
    v.in[i] = lb_tokens_fact(t, n->in[i]);
    if (v.in[i].kind == LB_TOKENS_ROWS) v.operands[i] = LB_OPERAND_ROWS;
    if (n->in[i] && n->in[i]->info.rank < 0) return LB_OK;
  }
  LB_TRY(find_fact(&v, &f));
  bool placed = f.kind == LB_TOKENS_MASK || f.kind == LB_TOKENS_ROWS;
  for (uint32_t i = 0; i < n->n_out; i++)
    if (placed && n->out[i] && !has_positions(t, n->out[i], f)) f = nothing;
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i]) set_fact(t, n->out[i], f);
  return f.kind == LB_TOKENS_ROWS ? keep_operands(&v) : LB_OK;
}

bool lb_tokens_may_mask(const lb_graph *g, uint32_t i) {
  const lb_vinfo *x = &g->main->params[i]->info;
  return x->rank == 2 && !lb_dim_is(x->dims[0], 1) &&
         !lb_dim_is(x->dims[1], 1) && !lb_dim_equal(x->dims[0], x->dims[1]) &&
         (x->dtype == LB_I64 || x->dtype == LB_I32 || x->dtype == LB_BOOL ||
          x->dtype == LB_F32);
}

lb_status lb_tokens_find(const lb_graph *g, uint32_t mask, lb_eval_fn *eval,
                         lb_arena *arena, lb_tokens *out) {
  const lb_region *r = g->main;
  const lb_dim *dims = r->params[mask]->info.dims;
  *out = (lb_tokens){.graph = g,
                     .eval = eval,
                     .arena = arena,
                     .batch = dims[0],
                     .seq = dims[1],
                     .mask = mask,
                     .facts = lb_arena_new(arena, lb_token_fact, g->n_values),
                     .operands = lb_arena_new(arena, uint8_t *, g->n_nodes)};
  if (!out->facts || !out->operands) return lb_oom();
  LB_TRY(lb_dim_mul(g->syms, dims[0], dims[1], &out->all));
  for (uint32_t i = 0; i < g->n_values; i++) out->facts[i] = nothing;
  for (uint32_t i = 0; i < r->n_params; i++) {
    lb_token_fact f = rows(0, 1);
    if (has_positions(out, r->params[i], f)) out->facts[r->params[i]->id] = f;
  }
  lb_token_fact *m = &out->facts[r->params[mask]->id];
  *m = rows(0, 1);
  m->kind = LB_TOKENS_MASK;
  m->valid = 1;
  m->at_least = 0;
  for (uint32_t i = 0; i < r->n_nodes; i++)
    LB_TRY(visit_node(out, r->nodes[i]));
  return LB_OK;
}
