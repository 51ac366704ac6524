// graph/pass_group.c -- normalisation over groups of channels.
//
// Exporters write it as a normalisation of rows: Reshape to [batch, groups,
// -1], InstanceNormalization, Reshape back. GroupNormalization is rewritten
// likewise. With channels last a group is not a row. There the formula is
// expanded into reductions, first over the spatial axes and then over the
// channels of a group, and elementwise operators, and channels stay last.
#include "graph/transpose.h"

typedef struct group_norm {
  lb_node *node;  // produces the result
  lb_value *x;    // [batch, channels, spatial...]
  lb_node *norm;  // InstanceNormalization
  int64_t channels, groups;
} group_norm;

static bool is_row(const lb_value *v, int64_t n) {
  const lb_tensor *t = lb_value_const(v);
  return t && t->dtype == LB_F32 && t->rank == 1 && t->dims[0] == n &&
         lb_tensor_is_dense(t);
}

// Matches a normalisation of each channel, or of as many rows as there are
// groups.
static bool match(const lb_rewrite *rw, lb_node *n, group_norm *g) {
  *g = (group_norm){.node = n, .norm = n};
  if (n->op == LB_OP_InstanceNormalization) {
    g->x = n->in[0];
  } else {
    g->norm = lb_match_inner(rw, n->in[0], LB_OP_InstanceNormalization);
    const lb_node *rows =
        g->norm ? lb_match_inner(rw, g->norm->in[0], LB_OP_Reshape) : NULL;
    if (!rows || !lb_value_same_dims(rows->in[0], n->out[0])) return false;
    g->x = rows->in[0];
  }
  const lb_vinfo *x = &g->x->info, *rows = &g->norm->in[0]->info;
  if (x->dtype != LB_F32 || x->rank < 3 || !lb_dim_is_const(x->dims[1]) ||
      rows->rank < 3 || !lb_dim_equal(x->dims[0], rows->dims[0]) ||
      !lb_dim_is_const(rows->dims[1]))
    return false;
  g->channels = x->dims[1].k;
  g->groups = rows->dims[1].k;
  return g->groups > 0 && g->channels > 0 && g->channels % g->groups == 0 &&
         is_row(g->norm->in[1], g->groups) && is_row(g->norm->in[2], g->groups);
}

// -- building: each function inserts nodes before g->node --------------------

static lb_status add(lb_rewrite *rw, const group_norm *g, lb_op op, lb_value *a,
                     lb_value *b, lb_value **out) {
  lb_value *in[2] = {a, b};
  return lb_rewrite_make(rw, g->node, op, in, b ? 2 : 1, out);
}

static lb_status reshape(lb_rewrite *rw, const group_norm *g, lb_value *x,
                         const int64_t *shape, int rank, lb_value **out) {
  lb_value *target;
  LB_TRY(lb_const_ints(rw->graph, "shape", shape, rank, &target));
  return add(rw, g, LB_OP_Reshape, x, target, out);
}

// The mean over axes [first, last].
static lb_status mean(lb_rewrite *rw, const group_norm *g, lb_value *x,
                      int first, int last, lb_value **out) {
  int64_t axes[LB_MAX_RANK];
  lb_value *list;
  for (int i = first; i <= last; i++) axes[i - first] = i;
  LB_TRY(lb_const_ints(rw->graph, "axes", axes, last - first + 1, &list));
  return add(rw, g, LB_OP_ReduceMean, x, list, out);
}

// A target shape that ends with the n dims `last`; the other dims are 1, or 0,
// which keeps the input's dim.
static void row_dims(int64_t *shape, int rank, int64_t others,
                     const int64_t *last, int n) {
  for (int i = 0; i < rank; i++) shape[i] = i + n < rank ? others : *last++;
}

// The mean of each group, over the spatial axes and its channels.
static lb_status group_mean(lb_rewrite *rw, const group_norm *g, lb_value *x,
                            lb_value **out) {
  int rank = g->x->info.rank;
  int64_t by_group[LB_MAX_RANK];
  LB_TRY(mean(rw, g, x, 1, rank - 2, out));
  if (g->groups == g->channels) return LB_OK;
  row_dims(by_group, rank + 1, 0,
           (int64_t[]){g->groups, g->channels / g->groups}, 2);
  LB_TRY(reshape(rw, g, *out, by_group, rank + 1, out));
  return mean(rw, g, *out, rank, rank, out);
}

// Expands one number per group to one per channel, because elementwise kernels
// process large feature maps channel by channel.
static lb_status expand_to_channels(lb_rewrite *rw, const group_norm *g,
                                    lb_value *x, lb_value **out) {
  int rank = g->x->info.rank;
  int64_t by_group[LB_MAX_RANK], by_channel[LB_MAX_RANK];
  lb_value *shape;
  *out = x;
  if (g->groups == g->channels) return LB_OK;
  row_dims(by_group, rank + 1, 1,
           (int64_t[]){g->groups, g->channels / g->groups}, 2);
  row_dims(by_channel, rank, 0, &g->channels, 1);
  LB_TRY(lb_const_ints(rw->graph, "shape", by_group, rank + 1, &shape));
  LB_TRY(add(rw, g, LB_OP_Expand, x, shape, &x));
  return reshape(rw, g, x, by_channel, rank, out);
}

// The constant v, one number per channel or per group, as one per channel along
// the first of `rank` axes.
static lb_status per_channel(lb_rewrite *rw, const group_norm *g,
                             const lb_value *v, int rank, lb_value **out) {
  const lb_tensor *from = lb_value_const(v);
  float *row = lb_arena_new(&rw->graph->arena, float, (size_t)g->channels);
  lb_tensor t = {.dtype = LB_F32, .rank = rank, .data = row};
  int64_t each = g->channels / from->dims[0];
  if (!row) return lb_oom();
  for (int64_t i = 0; i < g->channels; i++)
    row[i] = (float)lb_match_elem(from, i / each);
  for (int i = 0; i < rank; i++) t.dims[i] = i ? 1 : g->channels;
  lb_tensor_dense(&t);
  return lb_const_new(rw->graph, v->name, &t, out);
}

// x has channels last. Everything that is the same for a whole feature map is
// computed on few numbers, so that each element needs a subtraction, a
// multiplication and an addition.
static lb_status normalise(lb_rewrite *rw, const group_norm *g, lb_value *x,
                           lb_value **out) {
  lb_value *m, *d, *v, *eps, *scale, *shift;
  LB_TRY(lb_const_f32(rw->graph, "epsilon",
                      lb_attr_float(g->norm, "epsilon", 1e-5f), &eps));
  LB_TRY(per_channel(rw, g, g->norm->in[1], 1, &scale));
  LB_TRY(per_channel(rw, g, g->norm->in[2], 1, &shift));
  LB_TRY(group_mean(rw, g, x, &m));
  LB_TRY(expand_to_channels(rw, g, m, &m));
  LB_TRY(add(rw, g, LB_OP_Sub, x, m, &d));
  LB_TRY(add(rw, g, LB_OP_Mul, d, d, &v));
  LB_TRY(group_mean(rw, g, v, &v));
  LB_TRY(add(rw, g, LB_OP_Add, v, eps, &v));
  LB_TRY(add(rw, g, LB_OP_Sqrt, v, NULL, &v));
  LB_TRY(add(rw, g, LB_OP_Reciprocal, v, NULL, &v));
  LB_TRY(expand_to_channels(rw, g, v, &v));
  LB_TRY(add(rw, g, LB_OP_Mul, v, scale, &v));
  LB_TRY(add(rw, g, LB_OP_Mul, d, v, &d));
  return add(rw, g, LB_OP_Add, d, shift, out);
}

lb_status lb_transpose_norm(lb_rewrite *rw, lb_node *n) {
  group_norm g;
  lb_transpose t;
  lb_value *x;
  if (!match(rw, n, &g) || !lb_transpose_of(g.x, &t) ||
      !lb_transpose_to_first(&t) || t.rank + 1 > LB_MAX_RANK)
    return LB_OK;
  LB_TRY(normalise(rw, &g, t.source, &x));
  return lb_transpose_become(rw, n, x, &t);
}

// -- GroupNormalization ------------------------------------------------------

static lb_status const_row(lb_rewrite *rw, float value, int64_t n,
                           lb_value **out) {
  float *row = lb_arena_new(&rw->graph->arena, float, (size_t)n);
  lb_tensor t = {.dtype = LB_F32, .rank = 1, .dims = {n}, .data = row};
  if (!row) return lb_oom();
  for (int64_t i = 0; i < n; i++) row[i] = value;
  lb_tensor_dense(&t);
  return lb_const_new(rw->graph, "row", &t, out);
}

static bool match_group(lb_node *n, group_norm *g) {
  if (n->op != LB_OP_GroupNormalization || n->n_out != 1 || !n->out[0])
    return false;
  const lb_vinfo *x = &n->in[0]->info;
  *g = (group_norm){.node = n, .x = n->in[0]};
  g->groups = lb_attr_int(n, "num_groups", 0);
  if (x->dtype != LB_F32 || x->rank < 3 || !lb_dim_is_const(x->dims[1]) ||
      g->groups < 1)
    return false;
  g->channels = x->dims[1].k;
  int64_t given = lb_attr_int(n, "per_group", 0) != 0 ? g->groups : g->channels;
  return g->channels > 0 && g->channels % g->groups == 0 &&
         is_row(n->in[1], given) && is_row(n->in[2], given);
}

static lb_status as_rows(lb_rewrite *rw, const group_norm *g) {
  int64_t shape[3] = {0, g->groups, -1};
  lb_value *in[3], *scale, *shift, *dims, *y;
  lb_node *norm;
  int rank = g->x->info.rank - 1;
  LB_TRY(per_channel(rw, g, g->node->in[1], rank, &scale));
  LB_TRY(per_channel(rw, g, g->node->in[2], rank, &shift));
  LB_TRY(const_row(rw, 1, g->groups, &in[1]));
  LB_TRY(const_row(rw, 0, g->groups, &in[2]));
  LB_TRY(reshape(rw, g, g->x, shape, 3, &in[0]));
  LB_TRY(lb_rewrite_insert(rw, g->node, LB_OP_InstanceNormalization, in, 3,
                           &norm));
  LB_TRY(lb_node_set_float(rw->graph, norm, "epsilon",
                           lb_attr_float(g->node, "epsilon", 1e-5f)));
  LB_TRY(lb_rewrite_inserted(rw, norm, &y));
  LB_TRY(add(rw, g, LB_OP_Shape, g->x, NULL, &dims));
  LB_TRY(add(rw, g, LB_OP_Reshape, y, dims, &y));
  LB_TRY(add(rw, g, LB_OP_Mul, y, scale, &y));
  return lb_rewrite_become(rw, g->node, LB_OP_Add, (lb_value *[]){y, shift}, 2);
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  group_norm g;
  return match_group(n, &g) ? as_rows(rw, &g) : LB_OK;
}

lb_status lb_pass_group(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
