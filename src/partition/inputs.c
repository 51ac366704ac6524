// partition/inputs.c -- finds the inputs of a partition.
#include "partition/specgen.h"
#include "partition/partition.h"

static bool is_inner(const lb_partition *p, uint32_t reader,
                     const lb_value *v) {
  for (uint32_t i = 0; i < reader; i++)
    if (p->nodes[i]->out[0] == v) return true;
  return false;
}

// How node `reader` accesses its inputs.
static lb_input_access access_of(const lb_partition *p, uint32_t reader) {
  if (p->nodes[reader]->op == LB_OP_Resize) return LB_ACCESS_RESIZED;
  bool late = p->form == LB_FORM_ROW_REDUCE && reader > p->anchor;
  return late ? LB_ACCESS_REDUCED : LB_ACCESS_PLAIN;
}

static bool has(const lb_part_input *list, uint32_t n, const lb_value *v,
                lb_input_access how) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i].value == v && list[i].access == how) return true;
  return false;
}

// The operands of a matmul or window are not inputs of its epilogue.
static uint32_t first_input(const lb_partition *p, uint32_t reader) {
  bool has_acc = p->form == LB_FORM_MATMUL || p->form == LB_FORM_CONV ||
                 p->form == LB_FORM_WINDOW;
  return has_acc && reader == p->anchor ? 2 : 0;
}

uint32_t lb_partition_inputs(const lb_partition *p,
                             lb_part_input out[LB_PART_INPUTS]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const lb_node *x = p->nodes[i];
    lb_input_access how = access_of(p, i);
    for (uint32_t k = first_input(p, i); k < x->n_in; k++) {
      const lb_value *v = x->in[k];
      if (!lb_specgen_reads(x, k) || lb_specgen_is_scalar(v) ||
          is_inner(p, i, v))
        continue;
      if (n == LB_PART_INPUTS || has(out, n, v, how)) continue;
      out[n++] = (lb_part_input){.value = v,
                                 .access = how,
                                 .channel = lb_specgen_is_channel(x, k),
                                 .single = x->op == LB_OP_Clip && k > 0};
    }
  }
  return n;
}
