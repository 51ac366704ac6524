// kir/kir.c -- The table of operations, and kernels as plain arrays.
#include "kir/kir.h"

#include <stdlib.h>
#include <string.h>

#include "kir/type.h"

const lb_kop_info lb_kop_infos[LB_K_COUNT] = {
#define LB_KOP(ID, text, min, max, cls, rule, dtypes, imm)                   \
  [LB_K_##ID] = {#text,          min,        max, LB_KC_##cls, LB_KR_##rule, \
                 LB_KD_##dtypes, LB_KI_##imm},
#include "kir/kops.def"
};

void lb_kernel_fini(lb_kernel *k) {
  free(k->insts);
  free(k->pool);
  free(k->tables);
  *k = (lb_kernel){0};
}

static void *dup_bytes(const void *p, size_t n, bool *failed) {
  void *copy = malloc(n ? n : 1);
  if (!copy)
    *failed = true;
  else if (n)
    memcpy(copy, p, n);
  return copy;
}

lb_status lb_kernel_copy(const lb_kernel *k, lb_kernel *out) {
  bool failed = false;
  *out = *k;
  out->insts = dup_bytes(k->insts, k->n_insts * sizeof *k->insts, &failed);
  out->pool = dup_bytes(k->pool, k->n_pool * sizeof *k->pool, &failed);
  out->tables = dup_bytes(k->tables, k->n_tables, &failed);
  if (!failed) return LB_OK;
  lb_kernel_fini(out);
  return lb_oom();
}

static bool same_bytes(const void *a, const void *b, size_t n) {
  return n == 0 || memcmp(a, b, n) == 0;
}

bool lb_kernel_eq(const lb_kernel *a, const lb_kernel *b) {
  return a->n_insts == b->n_insts && a->n_pool == b->n_pool &&
         a->n_tables == b->n_tables &&
         same_bytes(a->name, b->name, sizeof a->name) &&
         same_bytes(a->local, b->local, sizeof a->local) &&
         same_bytes(a->insts, b->insts, a->n_insts * sizeof *a->insts) &&
         same_bytes(a->pool, b->pool, a->n_pool * sizeof *a->pool) &&
         same_bytes(a->tables, b->tables, a->n_tables);
}

uint32_t lb_kernel_params(const lb_kernel *k) {
  uint32_t n = 0;
  while (n < k->n_insts && k->insts[n].op == LB_K_PARAM) n++;
  return n;
}

int64_t lb_kconst_int(const lb_kinst *in) {
  unsigned unused = 64 - 8 * (unsigned)lb_dtype_size(in->dtype);
  if (!lb_dtype_is_signed(in->dtype)) return in->imm;
  return (int64_t)((uint64_t)in->imm << unused) >> unused;
}

void lb_kernel_partners(const lb_kernel *k, uint32_t *out) {
  uint32_t open[LB_K_MAX_DEPTH], last[LB_K_MAX_DEPTH], depth = 0;
  for (uint32_t i = 0; i < k->n_insts; i++) {
    out[i] = LB_K_NONE;
    switch (k->insts[i].op) {
      case LB_K_LOOP:
      case LB_K_IF: open[depth] = last[depth] = i, depth++; break;
      case LB_K_ELSE:
        out[last[depth - 1]] = i;
        last[depth - 1] = i;
        break;
      case LB_K_END:
        depth--;
        out[last[depth]] = i;
        out[i] = open[depth];
        break;
      default: break;
    }
  }
}

void lb_kernel_parents(const lb_kernel *k, uint32_t *out) {
  uint32_t part[LB_K_MAX_DEPTH + 1] = {LB_K_NONE}, open[LB_K_MAX_DEPTH + 1];
  uint32_t depth = 0;
  for (uint32_t i = 0; i < k->n_insts; i++) {
    out[i] = part[depth];
    switch (k->insts[i].op) {
      case LB_K_LOOP:
      case LB_K_IF: depth++, open[depth] = part[depth] = i; break;
      case LB_K_ELSE: out[i] = open[depth], part[depth] = i; break;
      case LB_K_END: out[i] = open[depth], depth--; break;
      default: break;
    }
  }
}
