// spec/verify.c -- checks all rules of a spec, over any bytes.
#include <string.h>

#include "spec/canon.h"

const lb_sop_info lb_sop_infos[LB_S_COUNT] = {
#define LB_SOP(ID, text, n_src, commutative, rule, dtypes) \
  [LB_S_##ID] = {#text, n_src, commutative, LB_SR_##rule, LB_SD_##dtypes},
#include "spec/sops.def"
};

// -- nodes -------------------------------------------------------------------

static bool is_storage_only(lb_dtype t) { return t == LB_F16 || t == LB_BF16; }

unsigned lb_sdtype_kind(lb_dtype t) {
  if (t >= LB_DTYPE_COUNT || is_storage_only(t)) return 0;
  if (lb_dtype_is_float(t)) return LB_SD_FLOAT;
  if (lb_dtype_is_integer(t)) return LB_SD_INT;
  return t == LB_BOOL ? LB_SD_BOOL : 0;
}

static bool is_dtype(uint8_t t) { return t != LB_NONE && t < LB_DTYPE_COUNT; }

static bool is_accumulator(uint8_t t) {
  return (lb_sdtype_kind(t) & LB_SD_NUM) && lb_dtype_size(t) >= 4;
}

static const char *check_leaf(const lb_snode *n) {
  switch (n->op) {
    case LB_S_ACC:
      if (n->arg >= LB_ACCS) return "unknown kind of accumulator";
      return is_accumulator(n->dtype) ? NULL
                                      : "cannot accumulate in this dtype";
    case LB_S_COLS:
      return lb_sdtype_kind(n->dtype) & LB_SD_NUM ? NULL
                                                  : "needs a numeric dtype";
    default: return is_dtype(n->dtype) ? NULL : "has no dtype";
  }
}

static const char *check_types(const lb_snode *n, const uint8_t *src) {
  const lb_sop_info *info = &lb_sop_infos[n->op];
  if (info->rule == LB_SR_LEAF) return check_leaf(n);
  if (info->rule == LB_SR_CAST) return is_dtype(n->dtype) ? NULL : "no dtype";
  if (info->rule == LB_SR_GATHER_ROW)
    return src[1] == LB_I64 && n->dtype == src[0]
               ? NULL
               : "the row index must be int64, and the value have the input's "
                 "dtype";
  int first = 0;
  if (info->rule == LB_SR_SELECT && src[first++] != LB_BOOL)
    return "the condition must be bool";
  for (int i = first; i < n->n_src; i++) {
    if (!(lb_sdtype_kind(src[i]) & info->dtypes))
      return "does not take this dtype";
    if (src[i] != src[first]) return "sources differ in dtype";
  }
  uint8_t want = info->rule == LB_SR_COMPARE ? LB_BOOL : src[first];
  return n->dtype == want ? NULL : "the value has a wrong dtype";
}

const char *lb_snode_check(const lb_spec *s, const lb_snode *n) {
  uint8_t dtypes[4];
  if (n->op >= LB_S_COUNT) return "no such operation";
  if (n->n_src != lb_sop_infos[n->op].n_src)
    return "has a wrong number of sources";
  for (int i = 0; i < n->n_src; i++) {
    if (n->src[i] >= s->n_nodes) return "a source does not exist";
    dtypes[i] = s->nodes[n->src[i]].dtype;
  }
  return check_types(n, dtypes);
}

// INPUT nodes come first, then SCALAR nodes, each in order of their numbers.
static bool is_in_place(const lb_spec *s, uint8_t i) {
  const lb_snode *n = &s->nodes[i];
  if (i < s->n_in)
    return n->op == LB_S_INPUT && n->arg == i && n->dtype == s->in[i].dtype;
  if (i < s->n_in + s->n_scalars)
    return n->op == LB_S_SCALAR && n->arg == i - s->n_in;
  return n->op != LB_S_INPUT && n->op != LB_S_SCALAR;
}

// Checks each node as if it were the next one to be added.
static lb_status check_nodes(const lb_spec *s) {
  lb_spec seen = *s;
  for (uint8_t i = 0; i < s->n_nodes; i++) {
    seen.n_nodes = i;
    const char *wrong = lb_snode_check(&seen, &s->nodes[i]);
    if (!wrong && !is_in_place(s, i)) wrong = "inputs and scalars come first";
    if (wrong) return lb_error(LB_INVALID, "spec: node %u: %s", i, wrong);
  }
  return LB_OK;
}

// -- forms -------------------------------------------------------------------

static bool has_layout(uint8_t layout, unsigned allowed) {
  return layout < LB_LAYOUT_COUNT && (allowed >> layout & 1);
}

#define ALLOW(layout) (1u << LB_LAYOUT_##layout)
#define ALLOW_ANY (ALLOW(FULL) | ALLOW(STRIDED))
#define ALLOW_PANELS (ALLOW(PANEL) | ALLOW(PANEL_K2) | ALLOW(PANEL_K4))
#define ALLOW_INPUT \
  (ALLOW_ANY | ALLOW(PER_COL) | ALLOW(PER_ROW) | ALLOW(BROADCAST))

static lb_status check_inputs(const lb_spec *s) {
  for (int i = 0; i < s->n_in; i++) {
    unsigned allowed = ALLOW_INPUT;
    if (s->form == LB_FORM_MATMUL && i < 2)
      allowed = i == 0 ? ALLOW_ANY : ALLOW_ANY | ALLOW_PANELS;
    if (s->form == LB_FORM_ATTENTION && i < 3) allowed = ALLOW(FULL);
    if (lb_spec_has_taps(s) && i < lb_spec_factors(s))
      allowed = s->form == LB_FORM_CONV && i == 1 ? ALLOW_PANELS : ALLOW(FULL);
    if (!has_layout(s->in[i].layout, allowed))
      return lb_error(LB_INVALID, "spec: input %d has an unsupported layout",
                      i);
  }
  return LB_OK;
}

static lb_status check_outputs(const lb_spec *s) {
  uint8_t varies[LB_SPEC_MAX_NODES];
  lb_spec_varies(s, varies);
  if (s->n_out == 0) return lb_error(LB_INVALID, "spec: no output");
  for (int i = 0; i < s->n_out; i++) {
    const lb_soperand *o = &s->out[i];
    bool rows = !lb_spec_factors(s) && !(varies[o->node] & LB_VARIES_COLS);
    unsigned allowed = rows ? ALLOW_ANY | ALLOW(PER_ROW) : ALLOW_ANY;
    if (s->form == LB_FORM_ATTENTION) allowed = ALLOW(FULL);
    if (!has_layout(o->layout, allowed))
      return lb_error(LB_INVALID, "spec: output %d has an unsupported layout",
                      i);
    if (o->dtype != s->nodes[o->node].dtype)
      return lb_error(LB_INVALID, "spec: output %d has a wrong dtype", i);
  }
  return LB_OK;
}

static bool reads_acc_inputs(const lb_spec *s) {
  int acc_inputs = lb_spec_factors(s);
  for (int i = 0; i < s->n_nodes; i++)
    for (int j = 0; j < s->nodes[i].n_src; j++)
      if (s->nodes[i].src[j] < acc_inputs) return true;
  for (int i = 0; i < s->n_out; i++)
    if (s->out[i].node < acc_inputs) return true;
  return false;
}

static bool is_index_input(const lb_spec *s, uint8_t node) {
  return node < s->n_in && (s->in[node].layout == LB_LAYOUT_PER_ROW ||
                            s->in[node].layout == LB_LAYOUT_BROADCAST);
}

static bool is_row_index(const lb_spec *s, uint8_t node) {
  const lb_snode *n = &s->nodes[node];
  return is_index_input(s, node) ||
         (n->op == LB_S_ADD && is_index_input(s, n->src[0]) &&
          is_index_input(s, n->src[1]));
}

static lb_status check_gathers(const lb_spec *s) {
  for (int i = s->n_in; i < s->n_nodes; i++) {
    const lb_snode *n = &s->nodes[i];
    bool gather = n->op == LB_S_GATHER_ROW;
    for (int j = gather; j < n->n_src; j++)
      if (lb_spec_is_gathered(s, n->src[j]))
        return lb_error(LB_INVALID,
                        "spec: node %d reads an input of gather_row", i);
    if (gather && (s->form != LB_FORM_ELTWISE || n->src[0] >= s->n_in ||
                   s->in[n->src[0]].layout != LB_LAYOUT_FULL ||
                   !is_row_index(s, n->src[1])))
      return lb_error(
          LB_INVALID,
          "spec: node %d: invalid form, input or row index of gather_row", i);
  }
  for (int i = 0; i < s->n_out; i++)
    if (lb_spec_is_gathered(s, s->out[i].node))
      return lb_error(LB_INVALID, "spec: output %d is an input of gather_row",
                      i);
  return LB_OK;
}

static int count_ops(const lb_spec *s, lb_sop op) {
  int n = 0;
  for (int i = 0; i < s->n_nodes; i++) n += s->nodes[i].op == op;
  return n;
}

static lb_status check_acc(const lb_spec *s) {
  int acc_inputs = lb_spec_factors(s);
  if (count_ops(s, LB_S_ACC) != (acc_inputs > 0) || s->n_in < acc_inputs)
    return lb_error(LB_INVALID,
                    "spec: acc must occur once in matmul, conv, window and "
                    "attention, with all of its inputs, and in no other form");
  if (reads_acc_inputs(s))
    return lb_error(LB_INVALID, "spec: a node reads an input of acc");
  for (int i = 0; i < acc_inputs; i++)
    if (s->in[i].dtype == LB_BOOL)
      return lb_error(LB_INVALID, "spec: an input of acc is bool");
  return LB_OK;
}

// Scores are accumulated in ACC's dtype, which is a float.
static lb_status check_attention(const lb_spec *s) {
  const lb_snode *acc = s->nodes;
  while (acc->op != LB_S_ACC) acc++;
  bool floats = lb_dtype_is_float(acc->dtype);
  for (int i = 0; i < 3; i++)
    floats = floats && lb_dtype_is_float(s->in[i].dtype);
  if (!floats || s->n_out != 1 || s->out[0].dtype != acc->dtype ||
      count_ops(s, LB_S_COLS) != 0)
    return lb_error(
        LB_INVALID,
        "spec: attention needs float inputs and one output of acc's "
        "dtype, and must not contain cols");
  return LB_OK;
}

static lb_status check_window(const lb_spec *s) {
  const lb_snode *acc = s->nodes;
  while (acc->op != LB_S_ACC) acc++;
  bool window = s->form == LB_FORM_WINDOW;
  if (window && !lb_dtype_is_float(acc->dtype))
    return lb_error(LB_INVALID, "spec: acc of a window must be a float");
  if (!window && acc->arg != LB_ACC_DOT)
    return lb_error(
        LB_INVALID,
        "spec: acc of matmul, conv and attention must be a dot product");
  return LB_OK;
}

static bool is_int8(uint8_t t) { return t == LB_I8 || t == LB_U8; }

static lb_status check_panel_k4(const lb_spec *s) {
  const lb_snode *acc = s->nodes;
  while (acc->op != LB_S_ACC) acc++;
  if (!is_int8(s->in[0].dtype) || !is_int8(s->in[1].dtype) ||
      acc->dtype != LB_I32 || s->in[0].layout != LB_LAYOUT_FULL)
    return lb_error(LB_INVALID,
                    "spec: panel_k4 needs int8 or uint8 inputs, input 0 full, "
                    "and an int32 acc");
  return LB_OK;
}

static lb_status check_form(const lb_spec *s) {
  int reductions = 0;
  for (int i = 0; i < s->n_nodes; i++)
    reductions += lb_sop_infos[s->nodes[i].op].rule == LB_SR_REDUCE;
  if ((reductions != 0) != (s->form == LB_FORM_ROW_REDUCE))
    return lb_error(
        LB_INVALID,
        "spec: reductions are allowed, and required, in row_reduce only");
  LB_TRY(check_gathers(s));
  LB_TRY(check_acc(s));
  if (lb_spec_factors(s)) LB_TRY(check_window(s));
  if (s->n_in > 1 && s->in[1].layout == LB_LAYOUT_PANEL_K4)
    LB_TRY(check_panel_k4(s));
  return s->form == LB_FORM_ATTENTION ? check_attention(s) : LB_OK;
}

static lb_status check_counts(const lb_spec *s) {
  if (s->form >= LB_FORM_COUNT || s->n_nodes > LB_SPEC_MAX_NODES ||
      s->n_in > LB_SPEC_MAX_IN || s->n_out > LB_SPEC_MAX_OUT ||
      s->n_scalars > LB_SPEC_MAX_SCALARS || s->n_in + s->n_scalars > s->n_nodes)
    return lb_error(LB_INVALID, "spec: a count is out of range");
  for (int i = 0; i < s->n_out; i++)
    if (s->out[i].node >= s->n_nodes)
      return lb_error(LB_INVALID, "spec: output %d has no node", i);
  return LB_OK;
}

lb_status lb_spec_verify(const lb_spec *s) {
  lb_spec canonical;
  LB_TRY(check_counts(s));
  LB_TRY(check_nodes(s));
  LB_TRY(check_inputs(s));
  LB_TRY(check_outputs(s));
  LB_TRY(check_form(s));
  lb_spec_canonical(s, &canonical);
  if (memcmp(s, &canonical, sizeof canonical) != 0)
    return lb_error(LB_INVALID, "spec: not in canonical form");
  return LB_OK;
}
