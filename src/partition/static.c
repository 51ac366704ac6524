// partition/static.c -- the partitioner at load: chains that are never slower
// as one kernel than as several.
//
// A chain grows while the value it ends with has one reader, which is
// elementwise over the same dims (equal as expressions, so equal at every
// shape). An anchor may only begin a chain.
#include <string.h>

#include "partition/emit.h"
#include "partition/partition.h"
#include "spec/pack.h"

typedef struct counter {
  uint32_t *uses;    // by value id
  lb_node **reader;  // by value id: one that reads it
} counter;

static void count_region(counter *c, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    for (uint32_t k = 0; k < n->n_in; k++) {
      if (!n->in[k]) continue;
      c->uses[n->in[k]->id]++;
      c->reader[n->in[k]->id] = n;
    }
    for (uint32_t k = 0; k < n->n_regions; k++) count_region(c, n->regions[k]);
  }
  for (uint32_t i = 0; i < r->n_results; i++) c->uses[r->results[i]->id]++;
}

static bool same_dims(const lb_value *a, const lb_value *b) {
  if (a->info.rank < 0 || a->info.rank != b->info.rank) return false;
  for (int i = 0; i < a->info.rank; i++)
    if (!lb_dim_equal(a->info.dims[i], b->info.dims[i])) return false;
  return true;
}

// The node that may join a chain ending with v, or NULL.
static lb_node *next_of(const counter *c, const lb_partitioning *p,
                        const lb_value *v) {
  lb_node *n = c->reader[v->id];
  bool ok = c->uses[v->id] == 1 && n && !p->of_node[n->id] &&
            n->region == v->region && lb_emit_is_map(n) &&
            same_dims(v, n->out[0]);
  return ok ? n : NULL;
}

// MatMul by a constant matrix of float32.
static bool is_product(const lb_node *n) {
  if (n->op != LB_OP_MatMul) return false;
  const lb_tensor *b = lb_value_const(n->in[1]);
  return b && b->dtype == LB_F32 && b->rank == 2 &&
         n->in[0]->info.dtype == LB_F32 && n->in[0]->info.rank >= 2 &&
         lb_tensor_count(b) > 0;
}

static lb_status pack(lb_partitioning *p, lb_partition *part) {
  const lb_tensor *b = lb_value_const(part->nodes[0]->in[1]);
  lb_matrix m = {b->data,       b->dims[0],    b->dims[1],
                 b->strides[0], b->strides[1], lb_dtype_size(b->dtype)};
  size_t bytes;
  if (!lb_pack_size(&m, &bytes)) return lb_oom();
  part->packed = lb_arena_alloc(&p->arena, bytes, 64);
  if (!part->packed) return lb_oom();
  lb_pack_b(&m, part->packed);
  p->packed_bytes += bytes;
  return LB_OK;
}

static lb_status add_chain(lb_partitioning *p, const counter *c, lb_node *first,
                           lb_form form) {
  const lb_node *chain[LB_SPEC_MAX_NODES / 2];
  uint32_t n = 0;
  for (lb_node *x = first; x && n < LB_SPEC_MAX_NODES / 2;
       x = next_of(c, p, x->out[0]))
    chain[n++] = x;
  lb_partition *part = lb_arena_new(&p->arena, lb_partition, 1);
  if (!part) return lb_oom();
  part->form = form;
  part->memo = lb_arena_new(&p->arena, lb_memo, 1);
  part->n_nodes = n;
  part->nodes =
      lb_arena_memdup(&p->arena, chain, n * sizeof *chain, _Alignof(lb_node *));
  if (!part->nodes || !part->memo) return lb_oom();
  if (form == LB_FORM_MATMUL) LB_TRY(pack(p, part));
  for (uint32_t i = 0; i < n; i++) p->of_node[chain[i]->id] = part;
  p->parts[p->n_parts++] = part;
  return LB_OK;
}

// Anchors first, so that an elementwise node goes to the anchor before it.
static lb_status partition_region(lb_partitioning *p, const counter *c,
                                  const lb_region *r, bool anchors) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(partition_region(p, c, n->regions[k], anchors));
    if (p->of_node[n->id]) continue;
    if (anchors && is_product(n))
      LB_TRY(add_chain(p, c, n, LB_FORM_MATMUL));
    else if (anchors && lb_emit_is_rows(n))
      LB_TRY(add_chain(p, c, n, LB_FORM_ROWS));
    else if (!anchors && lb_emit_is_map(n))
      LB_TRY(add_chain(p, c, n, LB_FORM_MAP));
  }
  return LB_OK;
}

lb_status lb_partitioning_init(lb_partitioning *p, const lb_graph *g) {
  *p = (lb_partitioning){0};
  lb_arena scratch;
  lb_arena_init(&p->arena, 64 << 10);
  lb_arena_init(&scratch, 64 << 10);
  p->of_node = lb_arena_new(&p->arena, lb_partition *, g->n_nodes);
  p->parts = lb_arena_new(&p->arena, lb_partition *, g->n_nodes);
  counter c = {lb_arena_new(&scratch, uint32_t, g->n_values),
               lb_arena_new(&scratch, lb_node *, g->n_values)};
  lb_status st = LB_OK;
  if (!p->of_node || !p->parts || !c.uses || !c.reader) st = lb_oom();
  if (!lb_failed(st)) {
    count_region(&c, g->main);
    st = partition_region(p, &c, g->main, true);
  }
  if (!lb_failed(st)) st = partition_region(p, &c, g->main, false);
  lb_arena_fini(&scratch);
  if (lb_failed(st)) lb_partitioning_fini(p);
  return st;
}

void lb_partitioning_fini(lb_partitioning *p) {
  for (uint32_t i = 0; i < p->n_parts; i++) lb_memo_fini(p->parts[i]->memo);
  lb_arena_fini(&p->arena);
  *p = (lb_partitioning){0};
}
