// partition/refusal.c -- the reason why a node is in no partition.
//
// Determined at load for nodes in no partition: which condition of the
// partitioner's predicates (lb_specgen_is_eltwise and others) failed, the most
// informative first.
#include "graph/op.h"
#include "partition/specgen.h"
#include "partition/partition.h"

typedef struct anchor {
  uint8_t kinds;  // of dtypes that kernels support; 0: see specgen.h
  uint8_t rank;   // min rank of the first input
  uint8_t input;  // number of the input that must be constant; 0: none
} anchor;

static const anchor anchors[LB_OP_COUNT] = {
    [LB_OP_MatMul] = {LB_KIND_N, 2, 0},
    [LB_OP_Gemm] = {LB_KIND_N, 2, 0},
    [LB_OP_MatMulInteger] = {LB_KIND_I, 2, 1},
    [LB_OP_Conv] = {LB_KIND_F, 3, 1},
    [LB_OP_ConvTranspose] = {LB_KIND_F, 3, 1},
    [LB_OP_ConvInteger] = {LB_KIND_I, 3, 1},
    [LB_OP_MaxPool] = {LB_KIND_F, 3, 0},
    [LB_OP_AveragePool] = {LB_KIND_F, 3, 0},
    [LB_OP_Attention] = {LB_KIND_F, 3, 0},
    [LB_OP_LSTM] = {LB_KIND_F, 3, 2},
    [LB_OP_GRU] = {LB_KIND_F, 3, 2},
    [LB_OP_RNN] = {LB_KIND_F, 3, 2},
};

lb_reason lb_partition_refusal(const lb_node *n) {
  const anchor *a = &anchors[n->op];
  unsigned kinds = a->kinds ? a->kinds : lb_specgen_kinds(n->op);
  uint32_t first = n->op == LB_OP_Where ? 1 : 0;
  if (lb_op_has(n->op, LB_TRAIT_DYNAMIC)) return LB_REASON_DYNAMIC;
  if (!kinds || n->n_in <= first || !n->in[first])
    return LB_REASON_REFERENCE_ONLY;
  const lb_vinfo *x = &n->in[first]->info;
  if (!(lb_specgen_kind(x->dtype) & kinds)) return LB_REASON_DTYPE;
  if (x->rank < (int)a->rank) return LB_REASON_RANK;
  if (a->input && n->n_in > a->input && n->in[a->input] &&
      !lb_value_const(n->in[a->input]))
    return LB_REASON_NOT_CONSTANT;
  return LB_REASON_ATTRIBUTES;
}
