// fuse/axes.c -- see axes.h.
#include "fuse/axes.h"

#include "graph/rewrite.h"

bool lb_axes_listed(const lb_node *n, uint32_t i, int rank, uint32_t *out) {
  const lb_tensor *t = lb_value_const(lb_node_input(n, i));
  *out = 0;
  if (!t || (t->dtype != LB_I64 && t->dtype != LB_I32) ||
      !lb_tensor_is_dense(t))
    return false;
  for (int64_t k = 0; k < lb_tensor_count(t); k++) {
    int64_t axis = lb_match_int(t, k);
    if (axis < -rank || axis >= rank) return false;
    *out |= 1u << (axis < 0 ? axis + rank : axis);
  }
  return true;
}

bool lb_axes_states_shape(lb_op op) {
  return op == LB_OP_Reshape || op == LB_OP_Flatten || op == LB_OP_Expand ||
         op == LB_OP_Squeeze || op == LB_OP_Unsqueeze;
}

static bool transposed(const lb_node *n, int *batch, int *seq) {
  int rank = n->in[0]->info.rank, from_batch = *batch, from_seq = *seq;
  for (int i = 0; i < rank; i++) {
    int64_t from = lb_attr_int_at(n, "perm", i, rank - 1 - i);
    if (from == from_batch) *batch = i;
    if (from == from_seq) *seq = i;
  }
  return true;
}

static int next_axis(const lb_vinfo *x, int i) {
  while (i < x->rank && lb_dim_is(x->dims[i], 1)) i++;
  return i;
}

// The elements stay in order: axes before those of the batch must be the same,
// apart from sizes of 1.
static bool reshaped(const lb_node *n, const lb_axes_dims *dims, int *batch,
                     int *seq) {
  const lb_vinfo *x = &n->in[0]->info, *y = &n->out[0]->info;
  int from_batch = *batch, from_seq = *seq, i = 0, k = 0;
  *batch = *seq = -1;
  for (; *batch < 0 || *seq < 0; i++, k++) {
    i = next_axis(x, i);
    k = next_axis(y, k);
    if (i >= x->rank || k >= y->rank) return false;
    bool at_batch = i == from_batch, at_seq = i == from_seq;
    if (lb_dim_equal(x->dims[i], y->dims[k])) {
      if (at_batch) *batch = k;
      if (at_seq) *seq = k;
    } else if (at_batch && next_axis(x, i + 1) == from_seq &&
               lb_dim_equal(y->dims[k], dims->all)) {
      *batch = *seq = k;
    } else if (at_batch && at_seq && lb_dim_equal(y->dims[k], dims->batch)) {
      *batch = k;
      *seq = next_axis(y, k + 1);
      return *seq < y->rank && lb_dim_equal(y->dims[*seq], dims->seq);
    } else {
      return false;
    }
  }
  return true;
}

bool lb_axes_moved(const lb_node *n, const lb_axes_dims *dims, int *batch,
                   int *seq) {
  int shift = n->out[0]->info.rank - n->in[0]->info.rank;
  switch (n->op) {
    case LB_OP_Identity: return true;
    case LB_OP_Transpose: return transposed(n, batch, seq);
    case LB_OP_Expand:
      *batch += shift;
      *seq += shift;
      return true;
    default: return reshaped(n, dims, batch, seq);
  }
}
