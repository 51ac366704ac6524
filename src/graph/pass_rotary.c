// graph/pass_rotary.c -- RotaryEmbedding in products and sums of halves.
//
// With a and b the halves of what is turned of each head, and c and s the rows
// of the caches at their positions,
//
//   y = Concat(a * c - b * s, a * s + b * c, what is not turned)
//
// Neighbours that turn each other (interleaved) are left alone.
#include "graph/rewrite.h"

enum { X, COS, SIN, PLACES };  // inputs

typedef struct rotary {
  lb_rewrite *rw;
  lb_node *node;
  int64_t size, half;  // elements of a head; half of those that turn
  int64_t heads;       // side by side: 1 if x has rank 4
  int rank;            // of x
} rotary;

static bool is_f32(const lb_value *v) { return v->info.dtype == LB_F32; }

static bool has_types(const lb_node *n) {
  int rank = lb_node_input(n, PLACES) ? 2 : 3;  // of the caches
  return is_f32(n->in[X]) && is_f32(n->in[COS]) && is_f32(n->in[SIN]) &&
         n->in[COS]->info.rank == rank && n->in[SIN]->info.rank == rank;
}

static bool find_sizes(rotary *r) {
  const lb_vinfo *x = &r->node->in[X]->info, *cos = &r->node->in[COS]->info;
  r->rank = x->rank;
  if (r->rank != 3 && r->rank != 4) return false;
  lb_dim width = x->dims[r->rank - 1], half = cos->dims[cos->rank - 1];
  if (!lb_dim_is_const(width) || !lb_dim_is_const(half)) return false;
  r->half = half.k;
  r->heads = r->rank == 4 ? 1 : lb_attr_int(r->node, "num_heads", 0);
  if (r->half < 1 || r->half > width.k / 2) return false;
  if (r->heads == -1) r->heads = width.k / (2 * r->half);
  if (r->heads < 1 || width.k % r->heads != 0) return false;
  r->size = width.k / r->heads;
  int64_t part = lb_attr_int(r->node, "rotary_embedding_dim", 0);
  if (part == -1) return 2 * r->half <= r->size;
  return 2 * r->half == (part ? part : r->size) && part <= r->size;
}

static bool match(lb_rewrite *rw, lb_node *n, rotary *r) {
  if (n->op != LB_OP_RotaryEmbedding || !n->out[0]) return false;
  *r = (rotary){.rw = rw, .node = n};
  return !lb_attr_int(n, "interleaved", 0) && has_types(n) && find_sizes(r);
}

static lb_status make(const rotary *r, lb_op op, lb_value *x, lb_value *y,
                      lb_value **out) {
  lb_value *in[] = {x, y};
  return lb_rewrite_make(r->rw, r->node, op, in, 2, out);
}

static lb_status with_list(const rotary *r, lb_op op, lb_value *x,
                           const int64_t *list, uint32_t n, lb_value **out) {
  lb_value *v;
  LB_TRY(lb_const_ints(r->rw->graph, "list", list, n, &v));
  return make(r, op, x, v, out);
}

// Elements of heads from `begin` to `end`.
static lb_status cut(const rotary *r, lb_value *x, int64_t begin, int64_t end,
                     lb_value **out) {
  const int64_t list[] = {begin, end, 3};
  lb_value *in[4] = {x};
  for (int i = 0; i < 3; i++)
    LB_TRY(lb_const_ints(r->rw->graph, "cut", &list[i], 1, &in[1 + i]));
  return lb_rewrite_make(r->rw, r->node, LB_OP_Slice, in, 4, out);
}

// Rows of a cache, one for all heads of a position.
static lb_status rows_of(const rotary *r, lb_value *cache, lb_value **out) {
  const int64_t axis = r->rank == 3 ? 2 : 1;
  lb_value *places = lb_node_input(r->node, PLACES);
  if (places) LB_TRY(make(r, LB_OP_Gather, cache, places, &cache));
  return with_list(r, LB_OP_Unsqueeze, cache, &axis, 1, out);
}

// a * c + b * s, or the difference.
static lb_status blend(const rotary *r, lb_op op, lb_value *const ab[2],
                       lb_value *c, lb_value *s, lb_value **out) {
  lb_value *left, *right;
  LB_TRY(make(r, LB_OP_Mul, ab[0], c, &left));
  LB_TRY(make(r, LB_OP_Mul, ab[1], s, &right));
  return make(r, op, left, right, out);
}

static lb_status turn(const rotary *r, lb_value *x, lb_value *part[2]) {
  lb_value *ab[2], *c, *s;
  LB_TRY(cut(r, x, 0, r->half, &ab[0]));
  LB_TRY(cut(r, x, r->half, 2 * r->half, &ab[1]));
  LB_TRY(rows_of(r, r->node->in[COS], &c));
  LB_TRY(rows_of(r, r->node->in[SIN], &s));
  LB_TRY(blend(r, LB_OP_Sub, ab, c, s, &part[0]));
  return blend(r, LB_OP_Add, ab, s, c, &part[1]);
}

static lb_status join(const rotary *r, lb_value **part, uint32_t n) {
  lb_node *made = r->node;
  lb_value *all, *in[2];
  if (r->rank == 4) {
    LB_TRY(lb_rewrite_become(r->rw, made, LB_OP_Concat, part, n));
    return lb_node_set_int(r->rw->graph, made, "axis", 3);
  }
  LB_TRY(lb_rewrite_insert(r->rw, r->node, LB_OP_Concat, part, n, &made));
  LB_TRY(lb_node_set_int(r->rw->graph, made, "axis", 3));
  LB_TRY(lb_rewrite_inserted(r->rw, made, &all));
  const int64_t dims[] = {0, 0, r->heads * r->size};
  in[0] = all;
  LB_TRY(lb_const_ints(r->rw->graph, "rows", dims, 3, &in[1]));
  return lb_rewrite_become(r->rw, r->node, LB_OP_Reshape, in, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  rotary r;
  if (!match(rw, n, &r)) return LB_OK;
  lb_value *x = n->in[X], *part[3];
  const int64_t split[] = {0, 0, r.heads, r.size};
  bool rest = 2 * r.half < r.size;
  if (r.rank == 3) LB_TRY(with_list(&r, LB_OP_Reshape, x, split, 4, &x));
  LB_TRY(turn(&r, x, part));
  if (rest) LB_TRY(cut(&r, x, 2 * r.half, r.size, &part[2]));
  return join(&r, part, rest ? 3 : 2);
}

lb_status lb_pass_rotary(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
