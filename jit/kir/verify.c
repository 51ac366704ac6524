// kir/verify.c -- Checks every invariant of kir.h, over arrays with any
// contents.
#include <stdlib.h>
#include <string.h>

#include "kir/kir.h"
#include "kir/type.h"

typedef struct kir_verifier {
  const lb_kernel *k;
  uint32_t i;         // the current instruction
  uint32_t n_pool;    // operands used so far
  uint32_t n_tables;  // entries of lane tables used so far
  bool in_order;      // operands and table of i are in canonical order
  uint32_t depth;     // of open blocks
  uint32_t open[LB_K_MAX_DEPTH];  // LOOP, IF or ELSE
  // owned; per instruction: the block that it is visible in
  uint32_t *block_of;
  // owned; per instruction: whether it is a block that has ended
  uint8_t *closed;
} kir_verifier;

static const char *check_name(const lb_kernel *k) {
  size_t n = strnlen(k->name, sizeof k->name);
  if (n == 0 || n == sizeof k->name) return "has no name";
  for (size_t i = 0; i < n; i++) {
    char c = k->name[i];
    bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
              (c >= '0' && c <= '9' && i > 0);
    if (!ok) return "has a name that is not an identifier";
  }
  for (size_t i = n; i < sizeof k->name; i++)
    if (k->name[i]) return "has non-zero bytes after its name";
  for (int i = 0; i < 3; i++)
    if (k->local[i] < 1 || k->local[i] > 1024) return "has a bad group size";
  if (k->local[0] * k->local[1] * k->local[2] > 1024)
    return "has more than 1024 work items in a group";
  return k->n_insts > LB_K_MAX_INSTS ? "has too many instructions" : NULL;
}

// Operands and lane tables must be in canonical order.
static const char *check_order(kir_verifier *v, const lb_kinst *in) {
  if (in->op >= LB_K_COUNT) return "is not an operation";
  if (in->src != v->n_pool || in->n_src > v->k->n_pool - v->n_pool)
    return "has operands out of order";
  v->n_pool += in->n_src;
  if (in->op != LB_K_SHUFFLE) return NULL;
  if (in->imm != v->n_tables || in->lanes > v->k->n_tables - v->n_tables)
    return "has its lane table out of order";
  v->n_tables += in->lanes;
  return NULL;
}

static bool takes_reg(const lb_kinst *in, uint32_t operand) {
  return operand == 0 && (in->op == LB_K_GET || in->op == LB_K_SET);
}

static const char *check_operand(kir_verifier *v, const lb_kinst *in,
                                 uint32_t n) {
  uint32_t s = v->k->pool[in->src + n];
  if (s >= v->i) return "uses a value before it is defined";
  if (v->block_of[s] != LB_K_NONE && v->closed[v->block_of[s]])
    return "uses a value of a block that has ended";
  bool is_reg = v->k->insts[s].op == LB_K_REG;
  if (is_reg && !takes_reg(in, n)) return "takes a register as a value";
  if (!is_reg && takes_reg(in, n)) return "must name a register";
  return v->k->insts[s].dtype == LB_NONE ? "uses an instruction without a value"
                                         : NULL;
}

static const char *check_types(kir_verifier *v, const lb_kinst *in) {
  lb_ktype src[4], out = {0};
  if (in->n_src > lb_kop_infos[in->op].max_src)
    return "has a wrong number of operands";
  for (uint32_t n = 0; n < in->n_src; n++) {
    const char *wrong = check_operand(v, in, n);
    if (wrong) return wrong;
    src[n] = lb_ktype_of(lb_kernel_src(v->k, in, n));
  }
  const uint8_t *table =
      in->op == LB_K_SHUFFLE ? lb_kernel_table(v->k, in) : NULL;
  const char *wrong = lb_kinfer(in, src, table, &out);
  if (wrong) return wrong;
  return lb_ktype_eq(out, lb_ktype_of(in))
             ? NULL
             : "has a type other than the inferred one";
}

static const char *check_param(const kir_verifier *v, const lb_kinst *in) {
  if (v->i && v->k->insts[v->i - 1].op != LB_K_PARAM)
    return "must come before all other instructions";
  return in->imm == v->i ? NULL : "has a slot out of order";
}

static const char *open_block(kir_verifier *v) {
  if (v->depth == LB_K_MAX_DEPTH) return "is nested too deeply";
  v->open[v->depth++] = v->i;
  return NULL;
}

static const char *else_block(kir_verifier *v) {
  if (!v->depth || v->k->insts[v->open[v->depth - 1]].op != LB_K_IF)
    return "has no IF";
  v->closed[v->open[v->depth - 1]] = true;
  v->open[v->depth - 1] = v->i;
  return NULL;
}

static const char *close_block(kir_verifier *v) {
  if (!v->depth) return "closes no block";
  v->closed[v->open[--v->depth]] = true;
  return NULL;
}

static const char *check_block(kir_verifier *v, const lb_kinst *in) {
  const char *wrong = NULL;
  switch (in->op) {
    case LB_K_PARAM: wrong = check_param(v, in); break;
    case LB_K_LOOP:
    case LB_K_IF: wrong = open_block(v); break;
    case LB_K_ELSE: wrong = else_block(v); break;
    case LB_K_END: wrong = close_block(v); break;
    default: break;
  }
  // A LOOP's value is visible inside its block, so this comes last.
  v->block_of[v->i] = v->depth ? v->open[v->depth - 1] : LB_K_NONE;
  return wrong;
}

static const char *check_inst(kir_verifier *v) {
  const lb_kinst *in = &v->k->insts[v->i];
  const char *wrong = check_order(v, in);
  v->in_order = !wrong;
  if (!wrong) wrong = check_types(v, in);
  if (!wrong) wrong = check_block(v, in);
  return wrong;
}

static lb_status bad_inst(const kir_verifier *v, const char *wrong) {
  lb_strbuf text = {0};
  if (v->in_order) lb_kernel_print_inst(v->k, v->i, &text);
  lb_status st = lb_error(LB_INTERNAL, "kernel %s: instruction %u '%s' %s",
                          v->k->name, v->i, lb_strbuf_str(&text), wrong);
  lb_strbuf_fini(&text);
  return st;
}

static lb_status check_all(kir_verifier *v) {
  for (v->i = 0; v->i < v->k->n_insts; v->i++) {
    const char *wrong = check_inst(v);
    if (wrong) return bad_inst(v, wrong);
  }
  const char *wrong = NULL;
  if (v->depth) wrong = "has a block without END";
  if (v->n_pool != v->k->n_pool) wrong = "has unused operands";
  if (v->n_tables != v->k->n_tables) wrong = "has unused lane tables";
  if (!wrong) return LB_OK;
  return lb_error(LB_INTERNAL, "kernel %s: %s", v->k->name, wrong);
}

lb_status lb_kernel_verify(const lb_kernel *k) {
  const char *wrong = check_name(k);
  if (wrong)
    return lb_error(LB_INTERNAL, "kernel %.*s %s", LB_K_NAME, k->name, wrong);
  kir_verifier v = {.k = k};
  v.block_of = calloc(k->n_insts + 1u, sizeof *v.block_of);
  v.closed = calloc(k->n_insts + 1u, 1);
  lb_status st = v.block_of && v.closed ? check_all(&v) : lb_oom();
  free(v.block_of);
  free(v.closed);
  return st;
}
