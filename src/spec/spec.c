// spec/spec.c -- specs as bytes, text and keys.
#include "spec/spec.h"

#include <string.h>

size_t lb_spec_bytes(const lb_spec *s) {
  return offsetof(lb_spec, nodes) + s->n_nodes * sizeof *s->nodes;
}

bool lb_spec_equal(const lb_spec *a, const lb_spec *b) {
  return a->n_nodes == b->n_nodes && memcmp(a, b, lb_spec_bytes(a)) == 0;
}

int lb_spec_dims(const lb_spec *s) {
  static const uint8_t dims[LB_FORM_COUNT] = {2, 2, 3, 4, 5, 5};
  return dims[s->form];
}

static int window_acc_inputs(const lb_spec *s) {
  for (int i = 0; i < s->n_nodes; i++)
    if (s->nodes[i].op == LB_S_ACC)
      return s->nodes[i].arg == LB_ACC_DOT ? 2 : 1;
  return 2;
}

int lb_spec_factors(const lb_spec *s) {
  static const uint8_t acc_inputs[LB_FORM_COUNT] = {0, 0, 2, 3, 2, 0};
  return s->form == LB_FORM_WINDOW ? window_acc_inputs(s) : acc_inputs[s->form];
}

bool lb_spec_is_gathered(const lb_spec *s, uint8_t input) {
  for (int i = 0; i < s->n_nodes; i++)
    if (s->nodes[i].op == LB_S_GATHER_ROW && s->nodes[i].src[0] == input)
      return true;
  return false;
}

static bool is_read_by(const lb_snode *n, uint8_t source) {
  for (int i = 0; i < n->n_src; i++)
    if (n->src[i] == source) return true;
  return false;
}

bool lb_spec_is_row_index(const lb_spec *s, uint8_t input) {
  for (int i = 0; i < s->n_nodes; i++) {
    uint8_t row_index = s->nodes[i].src[1];
    if (s->nodes[i].op == LB_S_GATHER_ROW &&
        (row_index == input || is_read_by(&s->nodes[row_index], input)))
      return true;
  }
  return false;
}

static uint8_t input_varies(const lb_spec *s, uint8_t input) {
  switch (s->in[input].layout) {
    case LB_LAYOUT_BROADCAST: return 0;
    case LB_LAYOUT_PER_ROW: return LB_VARIES_ROWS;
    case LB_LAYOUT_PER_COL: return LB_VARIES_COLS;
    default: return LB_VARIES_ROWS | LB_VARIES_COLS;
  }
}

void lb_spec_varies(const lb_spec *s, uint8_t out[LB_SPEC_MAX_NODES]) {
  for (int i = 0; i < s->n_nodes; i++) {
    const lb_snode *n = &s->nodes[i];
    out[i] = 0;
    for (int j = 0; j < n->n_src; j++) out[i] |= out[n->src[j]];
    if (n->op == LB_S_INPUT) out[i] = input_varies(s, n->arg);
    if (n->op == LB_S_GATHER_ROW) out[i] = out[n->src[1]] | LB_VARIES_COLS;
    if (n->op == LB_S_ACC) out[i] = LB_VARIES_ROWS | LB_VARIES_COLS;
    if (lb_sop_infos[n->op].rule == LB_SR_REDUCE) out[i] &= LB_VARIES_ROWS;
  }
}

// -- text --------------------------------------------------------------------

static const char *const form_names[] = {"eltwise",   "row_reduce", "matmul",
                                         "attention", "conv",       "window"};
static const char *const acc_names[] = {"", ".sum", ".max", ".min", ".squares"};
static const char *const layout_names[] = {"full",      "per_col", "per_row",
                                           "broadcast", "strided", "panel",
                                           "panel_k2",  "panel_k4"};

static void print_node(const lb_spec *s, int i, lb_strbuf *out) {
  const lb_snode *n = &s->nodes[i];
  lb_strbuf_printf(out, " %%%d=%s.%s", i, lb_sop_infos[n->op].name,
                   lb_dtype_name(n->dtype));
  if (n->op == LB_S_INPUT)
    lb_strbuf_printf(out, ".%s", layout_names[s->in[n->arg].layout]);
  if (n->op == LB_S_ACC) lb_strbuf_puts(out, acc_names[n->arg]);
  for (int j = 0; j < n->n_src; j++)
    lb_strbuf_printf(out, "%s%%%u", j ? "," : "(", n->src[j]);
  if (n->n_src) lb_strbuf_putc(out, ')');
}

// row_reduce %0=input.float32.full %1=rsum.float32(%0) -> %1.per_row
void lb_spec_print(const lb_spec *s, lb_strbuf *out) {
  lb_strbuf_puts(out, form_names[s->form]);
  for (int i = 0; i < s->n_nodes; i++) print_node(s, i, out);
  lb_strbuf_puts(out, " ->");
  for (int i = 0; i < s->n_out; i++)
    lb_strbuf_printf(out, " %%%u.%s", s->out[i].node,
                     layout_names[s->out[i].layout]);
}

// -- kinds -------------------------------------------------------------------

static bool has_node(const lb_spec *s, lb_sop op) {
  for (int i = 0; i < s->n_nodes; i++)
    if (s->nodes[i].op == op) return true;
  return false;
}

bool lb_spec_is_critical(const lb_spec *s) {
  switch ((lb_form)s->form) {
    case LB_FORM_MATMUL:
    case LB_FORM_CONV:
    case LB_FORM_ATTENTION: return true;
    case LB_FORM_WINDOW: return s->n_in > 1 && lb_spec_factors(s) == 2;
    case LB_FORM_ROW_REDUCE:
      return has_node(s, LB_S_EXP) && has_node(s, LB_S_RSUM);
    default: return false;
  }
}

// -- keys ------------------------------------------------------

lb_hash128 lb_spec_key(const lb_spec *s, const lb_facts *f, const char *target,
                       uint64_t generator) {
  struct {
    lb_spec spec;
    lb_facts facts;
    lb_hash128 target;
    uint64_t generator;
  } all;
  _Static_assert(sizeof all == sizeof(lb_spec) + sizeof(lb_facts) +
                                   sizeof(lb_hash128) + sizeof(uint64_t),
                 "no padding: hashed");
  memset(&all, 0, sizeof all);
  memcpy(&all.spec, s, lb_spec_bytes(s));
  all.facts = *f;
  all.target = lb_hash_wide(target, strlen(target));
  all.generator = generator;
  return lb_hash_wide(&all, sizeof all);
}
