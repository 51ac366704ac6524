// api/attr.c -- attributes of primitives, and the names of kinds and algs.
#include <stdlib.h>

#include "api/error.h"
#include "primitive/desc.h"

const char *limber_primitive_kind_name(int kind) {
  return kind > 0 && kind < LIMBER_PRIMITIVE_KINDS ? lb_kind_infos[kind].name
                                                   : NULL;
}

const char *limber_alg_name(int alg) {
  return alg > 0 && alg < LIMBER_ALGS ? lb_alg_infos[alg].name : NULL;
}

int limber_alg_kind(int alg) {
  return alg > 0 && alg < LIMBER_ALGS ? lb_alg_infos[alg].kind : 0;
}

limber_status limber_attr_create(limber_attr **out) {
  *out = malloc(sizeof **out);
  if (*out) **out = lb_attr_none;
  return lb_report(*out ? LB_OK : lb_oom(), NULL);
}

void limber_attr_destroy(limber_attr *attr) { free(attr); }

static limber_status append(limber_attr *a, const lb_post *post) {
  if (a->n_post == LIMBER_MAX_POST_OPS)
    return lb_report(lb_error(LB_UNSUPPORTED,
                              "post-operations: there are %d already, which is "
                              "the limit",
                              LIMBER_MAX_POST_OPS),
                     NULL);
  a->post[a->n_post++] = *post;
  return LIMBER_OK;
}

static limber_status wrong_alg(int alg, const char *what) {
  const char *name = limber_alg_name(alg);
  return lb_report(
      name ? lb_error(LB_INVALID, "alg: %s is not an alg of %s", name, what)
           : lb_error(LB_INVALID, "alg: %d is not an alg of %s", alg, what),
      NULL);
}

limber_status limber_attr_append_eltwise(limber_attr *attr, int alg,
                                         float alpha, float beta) {
  lb_post post = {
      .kind = LB_POST_ELTWISE, .alg = alg, .alpha = alpha, .beta = beta};
  if (limber_alg_kind(alg) != LIMBER_ELTWISE) return wrong_alg(alg, "eltwise");
  return append(attr, &post);
}

limber_status limber_attr_append_binary(limber_attr *attr, int alg,
                                        const limber_operand *operand) {
  lb_post post = {.kind = LB_POST_BINARY, .alg = alg, .in = *operand};
  if (limber_alg_kind(alg) != LIMBER_BINARY) return wrong_alg(alg, "binary");
  return append(attr, &post);
}

limber_status limber_attr_append_sum(limber_attr *attr, float scale) {
  return append(attr, &(lb_post){.kind = LB_POST_SUM, .alpha = scale});
}

static limber_status set_flag(const char *name, int on, int32_t *flag) {
  if (on != 0 && on != 1)
    return lb_report(
        lb_error(LB_INVALID, "%s: %d is neither 0 nor 1", name, on), NULL);
  *flag = on;
  return LIMBER_OK;
}

limber_status limber_attr_set_deterministic(limber_attr *attr, int on) {
  return set_flag("deterministic", on, &attr->deterministic);
}

limber_status limber_attr_set_user_scratch(limber_attr *attr, int on) {
  return set_flag("user_scratch", on, &attr->user_scratch);
}

limber_status limber_attr_set_reference(limber_attr *attr, int on) {
  return set_flag("reference", on, &attr->reference);
}

limber_status limber_attr_set_hint_reusable_kernels(limber_attr *attr, int on) {
  int32_t flag;
  limber_status st = set_flag("hint_reusable_kernels", on, &flag);
  if (!st) attr->reusable = flag ? 1 : -1;
  return st;
}

limber_status limber_attr_get_hint_reusable_kernels(const limber_attr *attr,
                                                    int *out) {
  *out = attr->reusable > 0;
  return LIMBER_OK;
}
