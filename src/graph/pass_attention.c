// graph/pass_attention.c -- attention that an exporter broke apart:
//
//   softmax(scale * Q K^T + mask) V    with Q, K, V: [batch, head, seq, dim]
//
// The scale may be multiplied to the scores, to Q, to K or to several of them.
// A float mask is added, or two are; a bool mask chooses between scores and
// -inf, or a number far below any score. Then one is added that is so low that
// it swallows the score: other places are all that counts, and where there are
// none, all are alike.
// Transposes that make Q, K and V stay outside; the one that makes K^T is
// undone. A row whose mask is -inf everywhere gives 0 in Attention where
// Softmax gives NaN, unless the exporter turned NaN into 0; nothing else
// differs but rounding, and NaN among the scores.
//
// Then heads that were split from the rows of a tensor and go back into rows,
//
//   Reshape(Transpose(Attention(Transpose(Reshape(x)), ...)))
//
// are left where they are: Attention splits tensors of rank 3 itself.
#include <math.h>
#include <string.h>

#include "graph/rewrite.h"

// Adding it to a score that is no larger than 1e20 gives it again.
static const double LOWEST = -1e30;
// Scores are not that low.
static const double LOW = -1e8;

typedef struct attention {
  lb_value *q, *v, *mask;  // mask may be NULL
  lb_value *more;          // is added to the mask; or NULL
  double low;              // replaces scores as the mask says; or 0
  bool low_where_set;      // the mask being true, not false
  lb_node *turn;           // the Transpose that gives K^T
  lb_value *k_source;      // what it turns, unscaled
  int64_t perm[4];         // would turn k_source into K
  lb_dim keys;             // how many there are
  double scale;
} attention;

// v without scalar factors that belong to it alone; *scale takes them.
static lb_value *unscaled(const lb_rewrite *rw, lb_value *v, double *scale) {
  lb_product p;
  if (!lb_match_factors(rw, v, &p) || p.n != 1) return v;
  *scale *= p.coef;
  return p.leaf[0];
}

// kt = K^T, made by a Transpose of four axes.
static bool is_turned_key(const lb_rewrite *rw, lb_value *kt, attention *a) {
  kt = unscaled(rw, kt, &a->scale);
  a->turn = lb_match_inner(rw, kt, LB_OP_Transpose);
  uint32_t count;
  const int64_t *perm = a->turn ? lb_attr_ints(a->turn, "perm", &count) : NULL;
  if (!perm || count != 4 || kt->info.rank != 4) return false;
  a->perm[0] = perm[0];
  a->perm[1] = perm[1];
  a->perm[2] = perm[3];
  a->perm[3] = perm[2];
  a->keys = kt->info.dims[3];
  a->k_source = unscaled(rw, a->turn->in[0], &a->scale);
  return a->k_source->info.rank == 4;
}

// s = scale * Q K^T
static bool is_scores(const lb_rewrite *rw, lb_value *s, attention *a) {
  a->scale = 1;
  s = unscaled(rw, s, &a->scale);
  const lb_node *n = lb_match_inner(rw, s, LB_OP_MatMul);
  if (!n || s->info.rank != 4 || !is_turned_key(rw, n->in[1], a)) return false;
  a->q = unscaled(rw, n->in[0], &a->scale);
  return a->q->info.rank == 4;
}

// May the mask be added to scores without making them larger? The last dim
// must be the number of keys: Attention takes a shorter one for padding.
static bool fits(const lb_value *mask, lb_dtype dtype, const lb_value *scores,
                 const attention *a) {
  int rank = mask->info.rank;
  if (rank < 2 || rank > 4 || mask->info.dtype != dtype) return false;
  const lb_dim *d = mask->info.dims;
  if (!lb_dim_equal(d[rank - 1], a->keys)) return false;
  for (int i = 0; i < rank - 1; i++)
    if (!lb_dim_is(d[i], 1) &&
        !lb_dim_equal(d[i], scores->info.dims[4 - rank + i]))
      return false;
  return true;
}

// Where(mask, scores, low), or Where(mask, low, scores)
static bool is_chosen_scores(const lb_rewrite *rw, const lb_node *where,
                             attention *a) {
  a->low_where_set = !lb_match_scalar(where->in[2], where->in[1], &a->low);
  lb_value *scores = where->in[a->low_where_set ? 2 : 1];
  const lb_value *low = where->in[a->low_where_set ? 1 : 2];
  a->mask = where->in[0];
  if (!lb_match_scalar(low, scores, &a->low) || !(a->low <= LOW)) return false;
  if (a->low > LOWEST) a->low = LOWEST;
  if (a->low == -INFINITY && !a->low_where_set) a->low = 0;
  return is_scores(rw, scores, a) && fits(a->mask, LB_BOOL, scores, a) &&
         (a->low >= 0 || scores->info.dtype == LB_F32);
}

// Add(scores, mask); `more` is what was added to that.
static bool is_added_scores(const lb_rewrite *rw, const lb_node *add,
                            lb_value *more, attention *a) {
  for (int i = 0; i < 2; i++) {
    lb_value *scores = add->in[i];
    lb_dtype dtype = scores->info.dtype;
    a->mask = add->in[1 - i];
    a->more = more;
    if (is_scores(rw, scores, a) && fits(a->mask, dtype, scores, a) &&
        (!more || fits(more, dtype, scores, a)))
      return true;
  }
  return false;
}

static bool is_masked_scores(const lb_rewrite *rw, lb_value *s, attention *a) {
  const lb_node *where = lb_match_inner(rw, s, LB_OP_Where);
  if (where) return is_chosen_scores(rw, where, a);
  const lb_node *add = lb_match_inner(rw, s, LB_OP_Add);
  if (!add) return is_scores(rw, s, a);
  if (is_added_scores(rw, add, NULL, a)) return true;
  for (int i = 0; i < 2; i++) {
    const lb_node *first = lb_match_inner(rw, add->in[i], LB_OP_Add);
    if (first && is_added_scores(rw, first, add->in[1 - i], a)) return true;
  }
  return false;
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

// The older Softmax over all axes from the last one on is the same.
static bool over_last_axis(const lb_node *softmax) {
  int64_t axis = lb_attr_int(softmax, "axis", -1);
  return axis == -1 || axis == 3;
}

static bool same_heads(const lb_value *x, const lb_value *y) {
  return lb_dim_equal(x->info.dims[0], y->info.dims[0]) &&
         lb_dim_equal(x->info.dims[1], y->info.dims[1]);
}

static bool match(const lb_rewrite *rw, const lb_node *n, attention *a) {
  *a = (attention){.scale = 1};
  if (n->op != LB_OP_MatMul || n->n_out != 1 || !n->out[0]) return false;
  const lb_node *softmax = softmax_of(rw, n->in[0]);
  if (!softmax || softmax->out[0]->info.rank != 4 || !over_last_axis(softmax))
    return false;
  if (!is_masked_scores(rw, softmax->in[0], a)) return false;
  a->v = n->in[1];
  return a->v->info.rank == 4 && lb_dtype_is_float(a->v->info.dtype) &&
         same_heads(a->q, a->turn->out[0]) && same_heads(a->q, a->v) &&
         a->scale > 0 && isfinite(a->scale);
}

static bool is_identity(const int64_t *perm) {
  for (int i = 0; i < 4; i++)
    if (perm[i] != i) return false;
  return true;
}

// Makes the Transpose give K instead of K^T. The scores, dead now, still read
// K^T until they are removed.
static lb_status turn_back(lb_rewrite *rw, const attention *a, lb_value **key) {
  lb_graph *g = rw->graph;
  lb_value *in = a->k_source;
  const lb_value *kt = a->turn->out[0];
  int64_t *perm =
      lb_arena_memdup(&g->arena, a->perm, sizeof a->perm, _Alignof(int64_t));
  if (!perm) return lb_oom();
  LB_TRY(lb_rewrite_value(rw, kt, "key", key));
  (*key)->info = kt->info;
  (*key)->info.dims[2] = kt->info.dims[3];
  (*key)->info.dims[3] = kt->info.dims[2];
  LB_TRY(lb_rewrite_become(rw, a->turn, LB_OP_Transpose, &in, 1));
  lb_node_set_out(a->turn, 0, *key);
  return lb_node_add_attr(
      g, a->turn,
      (lb_attr){.name = "perm", .kind = LB_ATTR_INTS, .n = 4, .ints = perm});
}

// The two masks as one, or flags as a mask that is added.
static lb_status one_mask(lb_rewrite *rw, lb_node *n, attention *a) {
  lb_value *zero, *low, *in[3] = {a->mask, a->more};
  if (a->low >= 0) return lb_rewrite_make(rw, n, LB_OP_Add, in, 2, &a->mask);
  LB_TRY(lb_const_f32(rw->graph, "zero", 0, &zero));
  LB_TRY(lb_const_f32(rw->graph, "low", (float)a->low, &low));
  in[1] = a->low_where_set ? low : zero;
  in[2] = a->low_where_set ? zero : low;
  return lb_rewrite_make(rw, n, LB_OP_Where, in, 3, &a->mask);
}

static lb_status visit_product(lb_rewrite *rw, lb_node *n) {
  attention a;
  if (!match(rw, n, &a)) return LB_OK;
  lb_value *key = a.k_source;
  if (!is_identity(a.perm)) LB_TRY(turn_back(rw, &a, &key));
  if (a.more || a.low < 0) LB_TRY(one_mask(rw, n, &a));
  lb_value *in[] = {a.q, key, a.v, a.mask};
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Attention, in, a.mask ? 4 : 3));
  return lb_node_set_float(rw->graph, n, "scale", (float)a.scale);
}

// -- heads in rows -----------------------------------------------------------

static lb_node *swapped(const lb_value *v) {
  static const int64_t want[] = {0, 2, 1, 3};
  lb_node *n = lb_match_op(v, LB_OP_Transpose);
  uint32_t count;
  const int64_t *perm = n ? lb_attr_ints(n, "perm", &count) : NULL;
  return perm && count == 4 && !memcmp(perm, want, sizeof want) ? n : NULL;
}

// Is `rows` [batch, length, heads * size] where `heads` is [batch, heads,
// length, size]?
static bool are_rows_of(const lb_value *rows, const lb_value *heads) {
  const lb_dim *r = rows->info.dims, *h = heads->info.dims;
  int64_t all;
  return rows->info.rank == 3 && heads->info.rank == 4 &&
         lb_dim_equal(r[0], h[0]) && lb_dim_equal(r[1], h[2]) &&
         lb_dim_is_const(h[1]) && lb_dim_is_const(h[3]) &&
         !__builtin_mul_overflow(h[1].k, h[3].k, &all) && lb_dim_is(r[2], all);
}

// What heads were split from, or themselves.
static lb_value *rows_of(lb_value *heads) {
  const lb_node *turn = swapped(heads);
  const lb_node *split = turn ? lb_match_op(turn->in[0], LB_OP_Reshape) : NULL;
  return split && are_rows_of(split->in[0], heads) ? split->in[0] : heads;
}

// n puts the heads of an Attention, whose only reader it is, into rows.
static lb_node *attention_before(const lb_rewrite *rw, const lb_node *n) {
  if (n->op != LB_OP_Reshape || !n->out[0]) return NULL;
  const lb_node *turn = swapped(n->in[0]);
  if (!turn || lb_rewrite_uses(rw, n->in[0]) != 1) return NULL;
  lb_node *a = lb_match_inner(rw, turn->in[0], LB_OP_Attention);
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
  return n->op == LB_OP_Reshape ? visit_rows(rw, n) : visit_product(rw, n);
}

lb_status lb_pass_attention(lb_rewrite *rw) {
  uint64_t before = rw->changes;
  LB_TRY(lb_rewrite_walk(rw, visit));
  if (rw->changes == before) return LB_OK;
  LB_TRY(lb_rewrite_begin(rw));
  return lb_pass_dead(rw);
}
