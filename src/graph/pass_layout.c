// graph/pass_layout.c -- converts convolutions and pools to channels last.
//
//   Conv(x) = Transpose(Conv{channels_last}(Transpose(x)))
//
// The inner loop then runs over channels, which are contiguous, whatever the
// kernel size, strides and groups are. Transposes between two of these
// operators cancel once they have sunk (pass_sink.c); those at the ends of the
// region are paid once. Without lb_pass_options.channels_last, only inputs that
// are stored with channels last already are converted.
#include "graph/rewrite.h"

static bool is_conv_or_pool(const lb_node *n) {
  bool conv = n->op == LB_OP_Conv || n->op == LB_OP_ConvTranspose;
  bool pool = n->op == LB_OP_MaxPool || n->op == LB_OP_AveragePool;
  bool int8 = n->op == LB_OP_ConvInteger && lb_op_is_int8_gemm(n);
  return (int8 || ((pool || (conv && lb_value_const(n->in[1]))) &&
                   n->in[0]->info.dtype == LB_F32)) &&
         n->n_out == 1 && n->out[0] && !lb_op_channels_last(n) &&
         n->in[0]->info.rank >= 3;
}

// Whether the channels of the input are contiguous in memory, as far as the
// graph shows.
static bool is_stored_channels_last(const lb_node *n) {
  const lb_value *x = n->in[0];
  int rank = x->info.rank;
  if (lb_dim_is(x->info.dims[1], 1)) return true;
  const lb_node *t = lb_match_op(x, LB_OP_Transpose);
  uint32_t count;
  const int64_t *perm = t ? lb_attr_ints(t, "perm", &count) : NULL;
  if (!perm || count != (uint32_t)rank || t->in[0]->info.rank != rank)
    return false;
  for (int64_t i = perm[1] + 1; i < rank; i++)
    if (!lb_dim_is(t->in[0]->info.dims[i], 1)) return false;
  return true;
}

static lb_status visit(lb_rewrite *rw, lb_node *n) {
  if (!is_conv_or_pool(n) ||
      !(rw->options->channels_last || is_stored_channels_last(n)))
    return LB_OK;
  int rank = n->in[0]->info.rank;
  int64_t to_last[LB_MAX_RANK], to_first[LB_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    to_last[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    to_first[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1;
  }
  lb_node *node;
  lb_value *in[3] = {n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : NULL}, *y;
  LB_TRY(lb_rewrite_insert(rw, n, LB_OP_Transpose, in, 1, &node));
  LB_TRY(lb_node_set_ints(rw->graph, node, "perm", to_last, (uint32_t)rank));
  LB_TRY(lb_rewrite_inserted(rw, node, &in[0]));
  LB_TRY(lb_rewrite_insert(rw, n, n->op, in, n->n_in, &node));
  LB_TRY(lb_node_copy_attrs(rw->graph, node, n));
  LB_TRY(lb_node_set_int(rw->graph, node, "channels_last", 1));
  LB_TRY(lb_rewrite_inserted(rw, node, &y));
  LB_TRY(lb_rewrite_become(rw, n, LB_OP_Transpose, &y, 1));
  return lb_node_set_ints(rw->graph, n, "perm", to_first, (uint32_t)rank);
}

lb_status lb_pass_layout(lb_rewrite *rw) { return lb_rewrite_walk(rw, visit); }
