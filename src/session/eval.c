// session/eval.c -- infers shapes by the node's rule, and computes elements
// with its reference kernel.
#include "session/eval.h"

#include <string.h>

#include "device/reference/reference.h"
#include "graph/infer.h"

typedef struct call {
  lb_reference_call base;  // first, as grow casts it back
  lb_arena *arena;
} call;

static lb_status allocate(lb_arena *arena, lb_tensor *t) {
  lb_tensor_dense(t);
  t->data = lb_arena_zalloc(arena, lb_tensor_bytes(t), 64);
  return t->data ? LB_OK : lb_oom();
}

static lb_status grow(lb_reference_call *c, int i, int rank,
                      const int64_t *dims) {
  int64_t count;
  LB_TRY(lb_dims_count(rank, dims, &count));
  c->out[i].rank = rank;
  memcpy(c->out[i].dims, dims, (size_t)rank * sizeof *dims);
  return allocate(((call *)c)->arena, &c->out[i]);
}

static lb_status infer_outputs(const lb_node *n, const lb_tensor *in,
                               lb_arena *arena, lb_tensor *out) {
  bool dynamic = lb_op_has(n->op, LB_TRAIT_DYNAMIC);
  lb_vinfo *infos = lb_arena_new(arena, lb_vinfo, (size_t)n->n_in + n->n_out);
  if (!infos) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) {
    infos[i].dtype = in[i].dtype;
    infos[i].rank = in[i].dtype == LB_NONE ? -1 : in[i].rank;
    for (int k = 0; k < infos[i].rank; k++)
      infos[i].dims[k] = lb_dim_const(in[i].dims[k]);
    if (in[i].dtype != LB_NONE) infos[i].data = &in[i];
  }
  lb_infer c = {.node = n, .arena = arena, .in = infos, .out = infos + n->n_in};
  LB_TRY(lb_infer_node(&c));
  for (uint32_t i = 0; i < n->n_out; i++) {
    const lb_vinfo *o = &c.out[i];
    out[i] = (lb_tensor){.dtype = n->out[i] ? o->dtype : LB_NONE};
    if (dynamic || out[i].dtype == LB_NONE) continue;
    if (o->rank < 0) return lb_error(LB_INTERNAL, "unknown rank");
    out[i].rank = o->rank;
    for (int k = 0; k < o->rank; k++) out[i].dims[k] = o->dims[k].k;
    LB_TRY(allocate(arena, &out[i]));
  }
  return LB_OK;
}

lb_status lb_eval_node(void *user, const lb_node *node, const lb_tensor *in,
                       lb_arena *arena, lb_tensor *out) {
  (void)user;
  LB_TRY(infer_outputs(node, in, arena, out));
  lb_arena scratch;
  lb_arena_init(&scratch, 4 << 10);
  call c = {.base = {.node = node,
                     .in = in,
                     .out = out,
                     .scratch = &scratch,
                     .grow = grow},
            .arena = arena};
  lb_status st = lb_reference_run(&c.base);
  lb_arena_fini(&scratch);
  return st;
}
