// graph/pass_rotary.c -- expands RotaryEmbedding into elementwise operators on
// halves of heads.
//
// With a and b the halves of the rotated part of each head, and c and s the
// rows of the caches at their positions,
//
//   y = Concat(a * c - b * s, a * s + b * c, part that is not rotated)
//
// The interleaved form is left alone.
#include "graph/rewrite.h"

enum { X, COS, SIN, POSITIONS };  // inputs

typedef struct rotary {
  lb_rewrite *rw;
  lb_node *node;
  int64_t size, half;  // elements of a head; half of its rotated part
  int64_t heads;       // per row of x: 1 if x has rank 4
  int rank;            // of x
} rotary;

static bool is_f32(const lb_value *v) { return v->info.dtype == LB_F32; }

static bool has_types(const lb_node *n) {
  int rank = lb_node_input(n, POSITIONS) ? 2 : 3;  // of the caches
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

static lb_status insert_node(const rotary *r, lb_op op, lb_value *x,
                             lb_value *y, lb_value **out) {
  lb_value *in[] = {x, y};
  return lb_rewrite_make(r->rw, r->node, op, in, 2, out);
}

static lb_status with_list(const rotary *r, lb_op op, lb_value *x,
                           const int64_t *list, uint32_t n, lb_value **out) {
  lb_value *v;
  LB_TRY(lb_const_ints(r->rw->graph, "list", list, n, &v));
  return insert_node(r, op, x, v, out);
}

// Elements [begin, end) of each head.
static lb_status slice(const rotary *r, lb_value *x, int64_t begin, int64_t end,
                       lb_value **out) {
  const int64_t list[] = {begin, end, 3};
  lb_value *in[4] = {x};
  for (int i = 0; i < 3; i++)
    LB_TRY(lb_const_ints(r->rw->graph, "cut", &list[i], 1, &in[1 + i]));
  return lb_rewrite_make(r->rw, r->node, LB_OP_Slice, in, 4, out);
}

// Rows of a cache, broadcast to all heads of a position.
static lb_status rows_of(const rotary *r, lb_value *cache, lb_value **out) {
  const int64_t axis = r->rank == 3 ? 2 : 1;
  lb_value *positions = lb_node_input(r->node, POSITIONS);
  if (positions) LB_TRY(insert_node(r, LB_OP_Gather, cache, positions, &cache));
  return with_list(r, LB_OP_Unsqueeze, cache, &axis, 1, out);
}

// a * c + b * s, or the difference.
static lb_status combine(const rotary *r, lb_op op, lb_value *const ab[2],
                         lb_value *c, lb_value *s, lb_value **out) {
  lb_value *left, *right;
  LB_TRY(insert_node(r, LB_OP_Mul, ab[0], c, &left));
  LB_TRY(insert_node(r, LB_OP_Mul, ab[1], s, &right));
  return insert_node(r, op, left, right, out);
}

static lb_status rotate(const rotary *r, lb_value *x, lb_value *part[2]) {
  lb_value *ab[2], *c, *s;
  LB_TRY(slice(r, x, 0, r->half, &ab[0]));
  LB_TRY(slice(r, x, r->half, 2 * r->half, &ab[1]));
  LB_TRY(rows_of(r, r->node->in[COS], &c));
  LB_TRY(rows_of(r, r->node->in[SIN], &s));
  LB_TRY(combine(r, LB_OP_Sub, ab, c, s, &part[0]));
  return combine(r, LB_OP_Add, ab, s, c, &part[1]);
}

static lb_status concat_parts(const rotary *r, lb_value **part, uint32_t n) {
  lb_node *concat = r->node;
  lb_value *all, *in[2];
  if (r->rank == 4) {
    LB_TRY(lb_rewrite_become(r->rw, concat, LB_OP_Concat, part, n));
    return lb_node_set_int(r->rw->graph, concat, "axis", 3);
  }
  LB_TRY(lb_rewrite_insert(r->rw, r->node, LB_OP_Concat, part, n, &concat));
  LB_TRY(lb_node_set_int(r->rw->graph, concat, "axis", 3));
  LB_TRY(lb_rewrite_inserted(r->rw, concat, &all));
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
  bool partial = 2 * r.half < r.size;
  if (r.rank == 3) LB_TRY(with_list(&r, LB_OP_Reshape, x, split, 4, &x));
  LB_TRY(rotate(&r, x, part));
  if (partial) LB_TRY(slice(&r, x, 2 * r.half, r.size, &part[2]));
  return concat_parts(&r, part, partial ? 3 : 2);
}

lb_status lb_pass_rotary(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
