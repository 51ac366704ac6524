// kir/verify.c -- every invariant of kir.h, checked over any arrays.
#include <stdlib.h>
#include <string.h>

#include "kir/kir.h"
#include "kir/type.h"

typedef struct verifier {
  const lb_kernel *k;
  uint32_t i;         // the instruction looked at
  uint32_t n_pool;    // operands used so far
  uint32_t n_tables;  // entries of lane tables used so far
  bool placed;        // operands and table of i are where they must be
  uint32_t depth;     // of open blocks
  uint32_t open[LB_K_MAX_DEPTH];  // LOOP, IF or ELSE
  uint32_t *home;   // owned; per instruction: the block that sees it
  uint8_t *closed;  // owned; per instruction: a block that has ended
} verifier;

static const char *check_name(const lb_kernel *k) {
  size_t n = strnlen(k->name, sizeof k->name);
  if (n == 0 || n == sizeof k->name) return "has no name";
  for (size_t i = 0; i < n; i++) {
    char c = k->name[i];
    bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
              (c >= '0' && c <= '9' && i > 0);
    if (!ok) return "has a name that is no identifier";
  }
  for (size_t i = n; i < sizeof k->name; i++)
    if (k->name[i]) return "has bytes behind its name";
  for (int i = 0; i < 3; i++)
    if (k->local[i] < 1 || k->local[i] > 1024) return "has a bad group size";
  if (k->local[0] * k->local[1] * k->local[2] > 1024)
    return "has more than 1024 work items in a group";
  return k->n_insts > LB_K_MAX_INSTS ? "is too long" : NULL;
}

// Operands and lane tables lie where the canonical form has them.
static const char *check_place(verifier *v, const lb_kinst *in) {
  if (in->op >= LB_K_COUNT) return "is no operation";
  if (in->src != v->n_pool || in->n_src > v->k->n_pool - v->n_pool)
    return "has operands out of place";
  v->n_pool += in->n_src;
  if (in->op != LB_K_SHUFFLE) return NULL;
  if (in->imm != v->n_tables || in->lanes > v->k->n_tables - v->n_tables)
    return "has its lane table out of place";
  v->n_tables += in->lanes;
  return NULL;
}

static bool takes_reg(const lb_kinst *in, uint32_t operand) {
  return operand == 0 && (in->op == LB_K_GET || in->op == LB_K_SET);
}

static const char *check_operand(verifier *v, const lb_kinst *in, uint32_t n) {
  uint32_t s = v->k->pool[in->src + n];
  if (s >= v->i) return "names a value that is not there yet";
  if (v->home[s] != LB_K_NONE && v->closed[v->home[s]])
    return "names a value of a block that has ended";
  bool is_reg = v->k->insts[s].op == LB_K_REG;
  if (is_reg && !takes_reg(in, n)) return "takes a register as a value";
  if (!is_reg && takes_reg(in, n)) return "must name a register";
  return v->k->insts[s].dtype == LB_NONE ? "names what makes no value" : NULL;
}

static const char *check_types(verifier *v, const lb_kinst *in) {
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
  return lb_ktype_eq(out, lb_ktype_of(in)) ? NULL : "has another type";
}

static const char *check_param(const verifier *v, const lb_kinst *in) {
  if (v->i && v->k->insts[v->i - 1].op != LB_K_PARAM)
    return "must come before all else";
  return in->imm == v->i ? NULL : "is out of the order of slots";
}

static const char *open_block(verifier *v) {
  if (v->depth == LB_K_MAX_DEPTH) return "is nested too deeply";
  v->open[v->depth++] = v->i;
  return NULL;
}

static const char *part_block(verifier *v) {
  if (!v->depth || v->k->insts[v->open[v->depth - 1]].op != LB_K_IF)
    return "has no IF";
  v->closed[v->open[v->depth - 1]] = true;
  v->open[v->depth - 1] = v->i;
  return NULL;
}

static const char *close_block(verifier *v) {
  if (!v->depth) return "closes nothing";
  v->closed[v->open[--v->depth]] = true;
  return NULL;
}

static const char *check_block(verifier *v, const lb_kinst *in) {
  const char *wrong = NULL;
  switch (in->op) {
    case LB_K_PARAM: wrong = check_param(v, in); break;
    case LB_K_LOOP:
    case LB_K_IF: wrong = open_block(v); break;
    case LB_K_ELSE: wrong = part_block(v); break;
    case LB_K_END: wrong = close_block(v); break;
    default: break;
  }
  // A LOOP's value is seen inside of its block, so this comes last.
  v->home[v->i] = v->depth ? v->open[v->depth - 1] : LB_K_NONE;
  return wrong;
}

static const char *check_inst(verifier *v) {
  const lb_kinst *in = &v->k->insts[v->i];
  const char *wrong = check_place(v, in);
  v->placed = !wrong;
  if (!wrong) wrong = check_types(v, in);
  if (!wrong) wrong = check_block(v, in);
  return wrong;
}

static lb_status bad_inst(const verifier *v, const char *wrong) {
  lb_strbuf text = {0};
  if (v->placed) lb_kernel_print_inst(v->k, v->i, &text);
  lb_status st = lb_error(LB_INTERNAL, "kernel %s: instruction %u '%s' %s",
                          v->k->name, v->i, lb_strbuf_str(&text), wrong);
  lb_strbuf_fini(&text);
  return st;
}

static lb_status check_all(verifier *v) {
  for (v->i = 0; v->i < v->k->n_insts; v->i++) {
    const char *wrong = check_inst(v);
    if (wrong) return bad_inst(v, wrong);
  }
  const char *wrong = NULL;
  if (v->depth) wrong = "has a block without END";
  if (v->n_pool != v->k->n_pool) wrong = "has operands of nothing";
  if (v->n_tables != v->k->n_tables) wrong = "has lane tables of nothing";
  if (!wrong) return LB_OK;
  return lb_error(LB_INTERNAL, "kernel %s: %s", v->k->name, wrong);
}

lb_status lb_kernel_verify(const lb_kernel *k) {
  const char *wrong = check_name(k);
  if (wrong)
    return lb_error(LB_INTERNAL, "kernel %.*s %s", LB_K_NAME, k->name, wrong);
  verifier v = {.k = k};
  v.home = calloc(k->n_insts + 1u, sizeof *v.home);
  v.closed = calloc(k->n_insts + 1u, 1);
  lb_status st = v.home && v.closed ? check_all(&v) : lb_oom();
  free(v.home);
  free(v.closed);
  return st;
}
