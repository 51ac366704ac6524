// spec/build.c -- the spec builder, which remembers its first error.
#include <string.h>

#include "spec/canon.h"

static void fail_with(lb_spec_builder *b, lb_status st) {
  if (lb_failed(b->error))
    lb_status_drop(st);
  else
    b->error = st;
}

void lb_spec_begin(lb_spec_builder *b, lb_form form) {
  *b = (lb_spec_builder){.spec.form = (uint8_t)form};
}

static uint8_t push(lb_spec_builder *b, lb_snode n) {
  lb_spec *s = &b->spec;
  if (lb_failed(b->error)) return LB_SPEC_NO_NODE;
  if (s->n_nodes == LB_SPEC_MAX_NODES) {
    b->error =
        lb_error(LB_UNSUPPORTED, "spec: more than %d nodes", LB_SPEC_MAX_NODES);
    return LB_SPEC_NO_NODE;
  }
  const char *wrong = lb_snode_check(s, &n);
  if (wrong) {
    b->error =
        lb_error(LB_INVALID, "spec: node %u, %s: %s", s->n_nodes,
                 n.op < LB_S_COUNT ? lb_sop_infos[n.op].name : "?", wrong);
    return LB_SPEC_NO_NODE;
  }
  s->nodes[s->n_nodes] = n;
  return s->n_nodes++;
}

uint8_t lb_spec_input(lb_spec_builder *b, lb_dtype t, lb_layout layout) {
  lb_spec *s = &b->spec;
  if (s->n_in == LB_SPEC_MAX_IN) {
    fail_with(b, lb_error(LB_UNSUPPORTED, "spec: more than %d inputs",
                          LB_SPEC_MAX_IN));
    return LB_SPEC_NO_NODE;
  }
  s->in[s->n_in].dtype = (uint8_t)t;
  s->in[s->n_in].layout = (uint8_t)layout;
  lb_snode n = {.op = LB_S_INPUT, .dtype = (uint8_t)t, .arg = s->n_in++};
  return push(b, n);
}

uint8_t lb_spec_scalar(lb_spec_builder *b, lb_dtype t) {
  lb_spec *s = &b->spec;
  if (s->n_scalars == LB_SPEC_MAX_SCALARS) {
    fail_with(b, lb_error(LB_UNSUPPORTED, "spec: more than %d scalars",
                          LB_SPEC_MAX_SCALARS));
    return LB_SPEC_NO_NODE;
  }
  lb_snode n = {.op = LB_S_SCALAR, .dtype = (uint8_t)t, .arg = s->n_scalars++};
  return push(b, n);
}

uint8_t lb_spec_node(lb_spec_builder *b, lb_sop op, lb_dtype t,
                     const uint8_t *src, uint8_t n) {
  lb_snode x = {.op = (uint8_t)op, .dtype = (uint8_t)t, .n_src = n};
  if (n <= sizeof x.src)
    for (uint8_t i = 0; i < n; i++) x.src[i] = src[i];
  return push(b, x);
}

uint8_t lb_spec_acc(lb_spec_builder *b, lb_acc acc, lb_dtype t) {
  return push(
      b, (lb_snode){.op = LB_S_ACC, .dtype = (uint8_t)t, .arg = (uint8_t)acc});
}

void lb_spec_output(lb_spec_builder *b, uint8_t node, lb_layout layout) {
  lb_spec *s = &b->spec;
  if (lb_failed(b->error)) return;
  if (s->n_out == LB_SPEC_MAX_OUT || node >= s->n_nodes) {
    b->error =
        lb_error(LB_UNSUPPORTED, "spec: output %u of node %u", s->n_out, node);
    return;
  }
  s->out[s->n_out++] = (lb_soperand){
      .dtype = s->nodes[node].dtype, .layout = (uint8_t)layout, .node = node};
}

lb_status lb_spec_finish(lb_spec_builder *b, lb_spec *out) {
  lb_spec built = b->spec;
  lb_status st = b->error;
  *b = (lb_spec_builder){0};
  *out = (lb_spec){0};
  if (lb_failed(st)) return st;
  lb_spec canonical;
  lb_spec_canonical(&built, &canonical);
  LB_TRY(lb_spec_verify(&canonical));
  *out = canonical;
  return LB_OK;
}
