// graph/pass_attention.c -- recognises attention that an exporter decomposed:
//
//   softmax(scale * Q K^T + mask) V    with Q, K, V: [batch, head, seq, dim]
//
// The scale may be applied to the scores, to Q, to K or to several of them.
// Float masks are added; a bool mask selects between scores and -inf, or a
// large negative number instead. Several masks are merged into one float mask
// if that number is so low that adding a score does not change it. The
// Transposes that produce Q, K and V stay outside; the one that produces K^T is
// undone. A row whose mask is -inf everywhere gives 0 in Attention where
// Softmax gives NaN, unless the exporter replaced NaN by 0; apart from that
// only rounding, and results for NaN scores, differ.
//
// Batch and heads may be merged into one axis, throughout or only for the
// matmuls. Where a Reshape shows the number of heads, that axis is split, which
// undoes the Reshape that merged them; otherwise each of its indices is a batch
// of one head.
//
// Then heads that were split from the rows of a tensor and are merged into rows
// again,
//
//   Reshape(Transpose(Attention(Transpose(Reshape(x)), ...)))
//
// stay merged: Attention splits tensors of rank 3 itself.
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

#define MAX_MASKS 3
#define MAX_HEAD 256  // elements; larger heads only have matmul kernels

// Adding a score of at most 1e20 to it does not change it.
static const double LOWEST = -1e30;

typedef struct mask {
  lb_value *v;
  int rank;            // of the scores
  double low;          // replaces masked scores; 0: a float mask that is added
  bool low_where_set;  // masked where the flag is true, not false
} mask;

typedef struct graph_attention {
  lb_value *q, *v;
  mask masks[MAX_MASKS];  // the last one is applied first
  int n_masks;
  lb_node *transpose;  // the Transpose that produces K^T
  lb_value *k_source;  // its input, unscaled
  int64_t perm[4];     // permutes k_source to K
  lb_dim keys;         // number of keys
  double scale;
  int64_t heads;  // heads merged with the batch; 0: not known
} graph_attention;

static bool is_ranked(const lb_value *v) {
  return v->info.rank == 3 || v->info.rank == 4;
}

// v without scalar factors that only it uses; *scale is multiplied by them.
static lb_value *unscaled(const lb_rewrite *rw, lb_value *v, double *scale) {
  lb_product p;
  if (!lb_match_factors(rw, v, &p) || p.n != 1) return v;
  *scale *= p.coef;
  return p.leaf[0];
}

// -- batch and heads merged into one axis
// --------------------------------------

// Whether x and y, in either order, are [b*h, x, y] and [b, h, x, y]. *heads is
// set to h if it was 0, and must equal h otherwise.
static bool differ_in_merged_heads(const lb_value *x, const lb_value *y,
                                   int64_t *heads) {
  const lb_value *four = x->info.rank == 4 ? x : y;
  const lb_value *three = x->info.rank == 4 ? y : x;
  const lb_dim *d = four->info.dims, *j = three->info.dims;
  if (four->info.rank != 4 || three->info.rank != 3 || !lb_dim_is_const(d[1]) ||
      d[1].k < 1 || (*heads && *heads != d[1].k) || !lb_dim_equal(d[2], j[1]) ||
      !lb_dim_equal(d[3], j[2]))
    return false;
  *heads = d[1].k;
  return true;
}

// The input of the Reshape that produces v, if that merges or splits batch and
// heads; otherwise v.
static lb_value *reshaped(const lb_rewrite *rw, lb_value *v, int64_t *heads) {
  const lb_node *n = lb_match_inner(rw, v, LB_OP_Reshape);
  return n && differ_in_merged_heads(n->in[0], v, heads) ? n->in[0] : v;
}

// The same if it merges them, even if v has other readers.
static lb_value *unmerged(lb_value *v, int64_t *heads) {
  const lb_node *n = lb_match_op(v, LB_OP_Reshape);
  bool joins = n && n->in[0]->info.rank == 4;
  return joins && differ_in_merged_heads(n->in[0], v, heads) ? n->in[0] : v;
}

// Q without scale and merging, which may be applied in either order.
static lb_value *query_of(const lb_rewrite *rw, lb_value *v,
                          graph_attention *a) {
  v = unscaled(rw, v, &a->scale);
  lb_value *q = unmerged(v, &a->heads);
  bool inner = q != v && lb_rewrite_uses(rw, v) == 1;
  return inner ? unscaled(rw, q, &a->scale) : q;
}

// -- scores ------------------------------------------------------------------

// Whether kt is K^T, produced by a Transpose.
static bool is_transposed_key(const lb_rewrite *rw, lb_value *kt,
                              graph_attention *a) {
  kt = reshaped(rw, unscaled(rw, kt, &a->scale), &a->heads);
  a->transpose = lb_match_inner(rw, kt, LB_OP_Transpose);
  uint32_t rank;
  const int64_t *perm =
      a->transpose ? lb_attr_ints(a->transpose, "perm", &rank) : NULL;
  if (!perm || !is_ranked(kt) || kt->info.rank != (int)rank) return false;
  memcpy(a->perm, perm, rank * sizeof *perm);
  a->perm[rank - 2] = perm[rank - 1];
  a->perm[rank - 1] = perm[rank - 2];
  a->keys = kt->info.dims[rank - 1];
  a->k_source = unscaled(rw, a->transpose->in[0], &a->scale);
  return a->k_source->info.rank == (int)rank;
}

// MatMul broadcasts batch dims, Attention does not.
static bool has_equal_batch(const lb_node *matmul) {
  const lb_value *x = matmul->in[0], *y = matmul->in[1];
  if (!is_ranked(x) || x->info.rank != y->info.rank) return false;
  for (int i = 0; i < x->info.rank - 2; i++)
    if (!lb_dim_equal(x->info.dims[i], y->info.dims[i])) return false;
  return true;
}

// s = scale * Q K^T
static bool is_scores(const lb_rewrite *rw, lb_value *s, graph_attention *a) {
  a->scale = 1;
  s = reshaped(rw, unscaled(rw, s, &a->scale), &a->heads);
  s = unscaled(rw, s, &a->scale);
  const lb_node *n = lb_match_inner(rw, s, LB_OP_MatMul);
  if (!n || !has_equal_batch(n) || !is_transposed_key(rw, n->in[1], a))
    return false;
  a->q = query_of(rw, n->in[0], a);
  return is_ranked(a->q);
}

// Whether d <= e for all sizes.
static bool is_at_most(const lb_rewrite *rw, lb_dim d, lb_dim e) {
  lb_dim least;
  lb_status st = lb_dim_min(rw->graph->syms, d, e, &least);
  bool ok = !lb_failed(st) && lb_dim_equal(least, d);
  lb_status_drop(st);
  return ok;
}

// Whether the mask broadcasts to the scores without enlarging them, its last
// dim aside. A causal mask that is cut out of a constant has at most as many
// rows as there are queries: fewer only if the constant is too small, which is
// an error.
static bool fits(const lb_rewrite *rw, const mask *m, const lb_value *scores) {
  int rank = m->v->info.rank;
  lb_dtype dtype = m->low < 0 ? LB_BOOL : scores->info.dtype;
  if (rank < 2 || rank > m->rank || m->v->info.dtype != dtype) return false;
  const lb_dim *d = m->v->info.dims;
  for (int i = 0; i < rank - 1; i++)
    if (!lb_dim_is(d[i], 1) &&
        !is_at_most(rw, d[i], scores->info.dims[m->rank - rank + i]))
      return false;
  return true;
}

// Matches Where(mask, scores, low) or Where(mask, low, scores).
static lb_value *chosen_scores(const lb_node *where, mask *m) {
  m->low_where_set = !lb_match_scalar(where->in[2], where->in[1], &m->low);
  lb_value *scores = where->in[m->low_where_set ? 2 : 1];
  const lb_value *low = where->in[m->low_where_set ? 1 : 2];
  m->v = where->in[0];
  return lb_match_scalar(low, scores, &m->low) && m->low < 0 ? scores : NULL;
}

static bool is_masked_scores(const lb_rewrite *rw, lb_value *s,
                             graph_attention *a);

// Whether these are the scores before mask m is applied.
static bool is_masked_by(const lb_rewrite *rw, lb_value *scores, mask m,
                         graph_attention *a) {
  graph_attention before = *a;
  m.rank = scores->info.rank;
  if (a->n_masks == MAX_MASKS || !is_ranked(scores)) return false;
  a->masks[a->n_masks++] = m;
  if (is_masked_scores(rw, scores, a) && fits(rw, &m, scores)) return true;
  *a = before;
  return false;
}

static bool is_masked_scores(const lb_rewrite *rw, lb_value *s,
                             graph_attention *a) {
  if (is_scores(rw, s, a)) return true;
  s = reshaped(rw, s, &a->heads);
  const lb_node *where = lb_match_inner(rw, s, LB_OP_Where);
  const lb_node *add = lb_match_inner(rw, s, LB_OP_Add);
  mask m = {0};
  lb_value *scores = where ? chosen_scores(where, &m) : NULL;
  if (scores) return is_masked_by(rw, scores, m, a);
  for (int i = 0; add && i < 2; i++)
    if (is_masked_by(rw, add->in[i], (mask){.v = add->in[1 - i]}, a))
      return true;
  return false;
}

static lb_dim last_dim(const mask *m) {
  return m->v->info.dims[m->v->info.rank - 1];
}

// Whether d is `keys` wherever the two broadcast, so that d = 1 is not
// repeated: d <= keys, and d is 1 only where `keys` is. True for min(keys,
// 1024).
static bool covers_keys(const lb_rewrite *rw, lb_dim d, lb_dim keys) {
  lb_dim d2, keys2, two = lb_dim_const(2);
  lb_symtab *t = rw->graph->syms;
  lb_status st = lb_dim_min(t, d, two, &d2);
  if (!lb_failed(st)) st = lb_dim_min(t, keys, two, &keys2);
  bool ok = !lb_failed(st) && lb_dim_equal(d2, keys2);
  lb_status_drop(st);
  return ok && is_at_most(rw, d, keys);
}

// Attention pads a mask that is shorter than the keys, so the last dim of a
// single mask must be the number of keys. Several masks are merged by nodes
// that check their dims, so it is enough that the merged mask is not shorter. A
// last dim that is greater than the number of keys does not fit the values.
static bool have_all_keys(const lb_rewrite *rw, const lb_node *n,
                          const graph_attention *a) {
  bool all = true, any = false;
  for (int i = 0; i < a->n_masks; i++) {
    lb_dim d = last_dim(&a->masks[i]);
    all = all && lb_dim_equal(d, a->keys);
    any = any || covers_keys(rw, d, a->keys);
  }
  const lb_vinfo *v = &n->in[1]->info;
  return all ||
         (any && a->n_masks > 1 && lb_dim_equal(v->dims[v->rank - 2], a->keys));
}

// A finite number in place of -inf must be float32. If several masks are
// merged, which adds them, it must be low enough.
static bool can_merge_masks(const graph_attention *a) {
  for (int i = 0; i < a->n_masks; i++) {
    double low = a->masks[i].low;
    if (low < 0 && low > -INFINITY && a->q->info.dtype != LB_F32) return false;
    if (low < 0 && low > LOWEST && a->n_masks > 1) return false;
  }
  return true;
}

// Softmax, or Where(IsNaN(softmax), 0, softmax).
static const lb_node *softmax_of(const lb_rewrite *rw, const lb_value *v) {
  const lb_node *where = lb_match_inner(rw, v, LB_OP_Where);
  if (!where) return lb_match_inner(rw, v, LB_OP_Softmax);
  const lb_node *nan = lb_match_inner(rw, where->in[0], LB_OP_IsNaN);
  const lb_value *p = where->in[2];
  double zero;
  if (!nan || nan->in[0] != p || lb_rewrite_uses(rw, p) != 2 ||
      !lb_match_scalar(where->in[1], p, &zero) || zero != 0)
    return NULL;
  return lb_match_op(p, LB_OP_Softmax);
}

// The older Softmax, which flattens all axes from `axis` on, is the same for
// the last one.
static bool over_last_axis(const lb_node *softmax) {
  int64_t axis = lb_attr_int(softmax, "axis", -1);
  return axis == -1 || axis == softmax->out[0]->info.rank - 1;
}

static bool is_large(const lb_value *q) {
  lb_dim size = q->info.dims[q->info.rank - 1];
  return lb_dim_is_const(size) && size.k > MAX_HEAD;
}

static bool match(const lb_rewrite *rw, const lb_node *n, graph_attention *a) {
  *a = (graph_attention){.scale = 1};
  if (n->op != LB_OP_MatMul || n->n_out != 1 || !n->out[0] ||
      !has_equal_batch(n) || !lb_dtype_is_float(n->in[1]->info.dtype))
    return false;
  const lb_node *softmax = softmax_of(rw, reshaped(rw, n->in[0], &a->heads));
  a->v = unmerged(n->in[1], &a->heads);
  return softmax && over_last_axis(softmax) &&
         is_masked_scores(rw, softmax->in[0], a) && can_merge_masks(a) &&
         have_all_keys(rw, n, a) && a->scale > 0 && isfinite(a->scale) &&
         !is_large(a->q);
}

// -- replacement -------------------------------------------------------------

static bool is_identity(const int64_t *perm, int rank) {
  for (int i = 0; i < rank; i++)
    if (perm[i] != i) return false;
  return true;
}

// Changes the Transpose so that it produces K instead of K^T. The scores, now
// dead, still read K^T until they are removed.
static lb_status untranspose_key(lb_rewrite *rw, const graph_attention *a,
                                 lb_value **key) {
  lb_value *in = a->k_source;
  const lb_value *kt = a->transpose->out[0];
  int rank = kt->info.rank;
  *key = in;
  if (is_identity(a->perm, rank)) return LB_OK;
  LB_TRY(lb_rewrite_value(rw, kt, "key", key));
  (*key)->info = kt->info;
  (*key)->info.dims[rank - 2] = kt->info.dims[rank - 1];
  (*key)->info.dims[rank - 1] = kt->info.dims[rank - 2];
  LB_TRY(lb_rewrite_become(rw, a->transpose, LB_OP_Transpose, &in, 1));
  lb_node_set_out(a->transpose, 0, *key);
  return lb_node_set_ints(rw->graph, a->transpose, "perm", a->perm,
                          (uint32_t)rank);
}

// Dims [first, last) of x.
static lb_status sizes_of(lb_rewrite *rw, lb_node *n, lb_value *x, int first,
                          int last, lb_value **out) {
  lb_node *shape;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Shape, &x, 1, &shape));
  LB_TRY(lb_node_set_int(rw->graph, shape, "start", first));
  LB_TRY(lb_node_set_int(rw->graph, shape, "end", last));
  return lb_rewrite_inserted(rw, shape, out);
}

// Concatenates three lists.
static lb_status concat_sizes(lb_rewrite *rw, lb_node *n, lb_value *const *in,
                              lb_value **out) {
  lb_node *concat;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Concat, in, 3, &concat));
  LB_TRY(lb_node_set_int(rw->graph, concat, "axis", 0));
  return lb_rewrite_inserted(rw, concat, out);
}

// Splits *x from three axes to four.
static lb_status split_heads(lb_rewrite *rw, lb_node *n,
                             const graph_attention *a, lb_value **x) {
  static const int64_t one = 1;
  lb_value *in[3] = {*x}, *sizes[2], *heads, *target;
  lb_node *reshape;
  if (!a->heads) {
    LB_TRY(lb_const_ints(rw->graph, "axis", &one, 1, &in[1]));
    return lb_rewrite_make(rw, n, LB_OP_Unsqueeze, in, 2, x);
  }
  LB_TRY(lb_const_ints(rw->graph, "heads", &a->heads, 1, &heads));
  LB_TRY(sizes_of(rw, n, *x, 0, 1, &sizes[0]));
  sizes[1] = heads;
  LB_TRY(lb_rewrite_make(rw, n, LB_OP_Div, sizes, 2, &in[0]));
  in[1] = heads;
  LB_TRY(sizes_of(rw, n, *x, 1, 3, &in[2]));
  LB_TRY(concat_sizes(rw, n, in, &target));
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Reshape, (lb_value *[]){*x, target}, 2,
                           &reshape));
  LB_TRY(lb_node_set_int(rw->graph, reshape, "allowzero", 1));
  return lb_rewrite_inserted(rw, reshape, x);
}

// Reshapes a mask to fit scores of four axes. A mask of fewer axes than its
// scores, or with a leading dim of 1, applies to all batches and heads.
static lb_status split_mask_heads(lb_rewrite *rw, lb_node *n,
                                  const graph_attention *a, mask *m) {
  bool all = m->v->info.rank < 3 || lb_dim_is(m->v->info.dims[0], 1);
  return m->rank == 4 || all ? LB_OK : split_heads(rw, n, a, &m->v);
}

// Makes true mean that the score stays.
static lb_status invert_mask(lb_rewrite *rw, lb_node *n, mask *m) {
  const lb_node *not_ = lb_match_op(m->v, LB_OP_Not);
  if (!m->low_where_set) return LB_OK;
  m->low_where_set = false;
  if (!not_) return lb_rewrite_make(rw, n, LB_OP_Not, &m->v, 1, &m->v);
  m->v = not_->in[0];
  return LB_OK;
}

// A float mask for a bool mask: `sum` (or 0 if it is NULL) where the score
// stays, m->low elsewhere.
static lb_status select_mask(lb_rewrite *rw, lb_node *n, const mask *m,
                             lb_value *sum, lb_value **out) {
  lb_value *in[3] = {m->v, sum};
  if (!sum) LB_TRY(lb_const_f32(rw->graph, "zero", 0, &in[1]));
  LB_TRY(lb_const_f32(rw->graph, "low", (float)m->low, &in[2]));
  return lb_rewrite_make(rw, n, LB_OP_Where, in, 3, out);
}

// Merges all masks into one; NULL if there are none.
static lb_status merge_masks(lb_rewrite *rw, lb_node *n, graph_attention *a,
                             lb_value **out) {
  *out = NULL;
  for (int i = a->n_masks; i-- > 0;) {
    mask *m = &a->masks[i];
    LB_TRY(invert_mask(rw, n, m));
    LB_TRY(split_mask_heads(rw, n, a, m));
    lb_value *in[] = {*out, m->v};
    if (a->n_masks > 1 && m->low < 0)
      LB_TRY(select_mask(rw, n, m, *out, out));
    else if (*out)
      LB_TRY(lb_rewrite_make(rw, n, LB_OP_Add, in, 2, out));
    else
      *out = m->v;
  }
  return LB_OK;
}

// Changes n, of rank 3, into the node that merges batch and heads of y again.
static lb_status merge_heads(lb_rewrite *rw, lb_node *n,
                             const graph_attention *a, lb_value *y) {
  static const int64_t one = 1;
  lb_value *v = n->in[1], *in[2] = {y}, *sizes[3];
  int queries = a->q->info.rank - 2;
  if (!a->heads) {
    LB_TRY(lb_const_ints(rw->graph, "axis", &one, 1, &in[1]));
    return lb_rewrite_become(rw, n, LB_OP_Squeeze, in, 2);
  }
  LB_TRY(sizes_of(rw, n, v, 0, 1, &sizes[0]));
  LB_TRY(sizes_of(rw, n, a->q, queries, queries + 1, &sizes[1]));
  LB_TRY(sizes_of(rw, n, v, 2, 3, &sizes[2]));
  LB_TRY(concat_sizes(rw, n, sizes, &in[1]));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Reshape, in, 2));
  return lb_node_set_int(rw->graph, n, "allowzero", 1);
}

static lb_status set_attrs(lb_rewrite *rw, lb_node *n,
                           const graph_attention *a) {
  const mask *m = a->n_masks == 1 ? a->masks : NULL;
  LB_TRY(lb_node_set_float(rw->graph, n, "scale", (float)a->scale));
  if (!m || m->low >= 0 || m->low == -INFINITY) return LB_OK;
  return lb_node_set_float(rw->graph, n, "masked", (float)m->low);
}

static lb_status visit_matmul(lb_rewrite *rw, lb_node *n) {
  graph_attention a;
  lb_value *in[4], *y;
  lb_node *attention_node;
  if (!match(rw, n, &a)) return LB_OK;
  in[0] = a.q;
  in[2] = a.v;
  LB_TRY(untranspose_key(rw, &a, &in[1]));
  LB_TRY(merge_masks(rw, n, &a, &in[3]));
  for (int i = 0; i < 3; i++)
    if (in[i]->info.rank == 3) LB_TRY(split_heads(rw, n, &a, &in[i]));
  uint32_t n_in = in[3] ? 4 : 3;
  if (n->out[0]->info.rank == 4) {
    LB_TRY(lb_rewrite_become(rw, n, LB_OP_Attention, in, n_in));
    return set_attrs(rw, n, &a);
  }
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Attention, in, n_in, &attention_node));
  LB_TRY(set_attrs(rw, attention_node, &a));
  LB_TRY(lb_rewrite_inserted(rw, attention_node, &y));
  return merge_heads(rw, n, &a, y);
}

// -- heads in rows -----------------------------------------------------------

static lb_node *match_head_transpose(const lb_value *v) {
  static const int64_t want[] = {0, 2, 1, 3};
  lb_node *n = lb_match_op(v, LB_OP_Transpose);
  uint32_t count;
  const int64_t *perm = n ? lb_attr_ints(n, "perm", &count) : NULL;
  return perm && count == 4 && !memcmp(perm, want, sizeof want) ? n : NULL;
}

// Whether `rows` is [batch, length, heads * size] and `heads` is [batch, heads,
// length, size].
static bool are_rows_of(const lb_value *rows, const lb_value *heads) {
  const lb_dim *r = rows->info.dims, *h = heads->info.dims;
  int64_t all;
  return rows->info.rank == 3 && heads->info.rank == 4 &&
         lb_dim_equal(r[0], h[0]) && lb_dim_equal(r[1], h[2]) &&
         lb_dim_is_const(h[1]) && lb_dim_is_const(h[3]) &&
         !__builtin_mul_overflow(h[1].k, h[3].k, &all) && lb_dim_is(r[2], all);
}

// The rows from which heads were split, or the heads themselves.
static lb_value *rows_of(lb_value *heads) {
  const lb_node *transpose = match_head_transpose(heads);
  const lb_node *split =
      transpose ? lb_match_op(transpose->in[0], LB_OP_Reshape) : NULL;
  return split && are_rows_of(split->in[0], heads) ? split->in[0] : heads;
}

// The Attention whose heads n merges into rows, if it has no other reader.
static lb_node *attention_before(const lb_rewrite *rw, const lb_node *n) {
  if (n->op != LB_OP_Reshape || !n->out[0]) return NULL;
  const lb_node *transpose = match_head_transpose(n->in[0]);
  if (!transpose || lb_rewrite_uses(rw, n->in[0]) != 1) return NULL;
  lb_node *a = lb_match_inner(rw, transpose->in[0], LB_OP_Attention);
  if (!a || a->n_in > 4 || !are_rows_of(n->out[0], a->out[0])) return NULL;
  for (uint32_t i = 1; i < a->n_out; i++)
    if (a->out[i]) return NULL;
  return a;
}

static lb_status visit_rows(lb_rewrite *rw, lb_node *n) {
  lb_node *a = attention_before(rw, n);
  if (!a) return LB_OK;
  lb_value *in[4] = {NULL};
  int64_t heads = a->in[0]->info.rank == 4 ? a->out[0]->info.dims[1].k : 0;
  const lb_dim *k = a->in[1]->info.dims;
  if (!heads || a->in[1]->info.rank != 4 || !lb_dim_is_const(k[1]))
    return LB_OK;
  int64_t kv_heads = k[1].k;
  for (uint32_t i = 0; i < a->n_in; i++)
    in[i] = i < 3 ? rows_of(a->in[i]) : a->in[i];
  if (in[0] == a->in[0]) return LB_OK;  // the output has the rank of q
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Attention, in, a->n_in));
  LB_TRY(lb_node_copy_attrs(rw->graph, n, a));
  LB_TRY(lb_node_set_int(rw->graph, n, "q_num_heads", heads));
  return lb_node_set_int(rw->graph, n, "kv_num_heads", kv_heads);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  return n->op == LB_OP_Reshape ? visit_rows(rw, n) : visit_matmul(rw, n);
}

lb_status lb_pass_attention(lb_rewrite *rw) {
  uint64_t before = rw->changes;
  LB_TRY(lb_rewrite_walk(rw, visit));
  if (rw->changes == before) return LB_OK;
  LB_TRY(lb_rewrite_begin(rw));
  return lb_pass_dead(rw);
}
