// plan/program.c -- builds programs, and finds the contents that decide shapes
// by a backward walk.
//
// Marks only grow, and each marked value is pushed once, so the walk ends. The
// body of a Loop or Scan is planned at run time with its actual inputs, so
// marks stop at its parameters; they pass through an If, because its branch is
// planned in place.
#include "plan/program.h"

#include <stdlib.h>

#include "graph/op.h"

typedef struct program_walk {
  uint8_t *deciding;
  const lb_value **stack;
  const lb_node **owner;  // by value id of a region parameter: the node that
                          // owns the region
  uint32_t *slot;         // ... and the index of the node's input that it
                          // receives
  uint32_t n;
} program_walk;

static bool is_small(const lb_value *v) {
  const lb_vinfo *info = &v->info;
  if (info->rank < 0) return true;
  int64_t count = 1;
  for (int i = 0; i < info->rank; i++) {
    if (!lb_dim_is_const(info->dims[i])) continue;
    int64_t d = info->dims[i].k;
    if (d > LB_MAX_KNOWN) return false;
    count *= d ? d : 1;
    if (count > LB_MAX_KNOWN) return false;
  }
  return true;
}

static void mark(program_walk *w, const lb_value *v, lb_deciding how) {
  if (!v || v->info.data || !is_small(v)) return;
  if (!w->deciding[v->id]) w->stack[w->n++] = v;
  if (w->deciding[v->id] < how) w->deciding[v->id] = (uint8_t)how;
}

// Operators whose outputs can be computed from small contents while planning.
static bool is_arithmetic(lb_op op) {
  switch (lb_op_infos[op].cls) {
    case LB_CLASS_CONTRACTION:
    case LB_CLASS_WINDOW:
    case LB_CLASS_RECURRENT:
    case LB_CLASS_CONTROL: return false;
    default: return lb_op_is_pure(op);
  }
}

static void mark_through(program_walk *w, const lb_value *v) {
  const lb_node *n = v->producer;
  lb_deciding how = w->deciding[v->id];
  if (!n) {
    const lb_node *outer = w->owner[v->id];
    if (outer && outer->op == LB_OP_If) mark(w, outer->in[w->slot[v->id]], how);
    return;
  }
  if (n->op == LB_OP_If) {
    for (uint32_t r = 0; r < n->n_regions; r++)
      mark(w, n->regions[r]->results[v->out_index], how);
  } else if (is_arithmetic(n->op) && !lb_op_has(n->op, LB_TRAIT_DIMS_ONLY)) {
    for (uint32_t i = 0; i < n->n_in; i++)
      mark(w, n->in[i], LB_DECIDES_THROUGH);
  }
}

static void note_params(program_walk *w, const lb_node *n) {
  for (uint32_t r = 0; r < n->n_regions; r++) {
    const lb_region *body = n->regions[r];
    for (uint32_t c = 0; c < n->n_captures; c++) {
      const lb_value *p = body->params[body->n_params - n->n_captures + c];
      w->owner[p->id] = n;
      w->slot[p->id] = n->n_in - n->n_captures + c;
    }
  }
}

// Captures of all regions first; then the deciding inputs. The importer bounds
// nesting.
static void visit(program_walk *w, const lb_region *r, bool seed) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    if (!seed) note_params(w, n);
    for (uint32_t k = 0; seed && k < n->n_in && k < 32; k++)
      if (lb_op_infos[n->op].deciding >> k & 1)
        mark(w, n->in[k], LB_DECIDES_DIRECTLY);
    for (uint32_t k = 0; k < n->n_regions; k++) visit(w, n->regions[k], seed);
  }
}

static lb_status find_deciding(lb_program *p) {
  const lb_graph *g = p->graph;
  size_t n = g->n_values ? g->n_values : 1;
  program_walk w = {.deciding = calloc(n, sizeof(*w.deciding)),
                    .stack = calloc(n, sizeof(*w.stack)),
                    .owner = calloc(n, sizeof(*w.owner)),
                    .slot = calloc(n, sizeof(*w.slot))};
  p->deciding = w.deciding;
  bool ok = w.deciding && w.stack && w.owner && w.slot;
  if (ok) {
    visit(&w, g->main, false);
    visit(&w, g->main, true);
    while (w.n) mark_through(&w, w.stack[--w.n]);
  }
  free(w.stack);
  free(w.owner);
  free(w.slot);
  return ok ? LB_OK : lb_oom();
}

static lb_status partition(lb_program *p, const lb_program_options *o) {
  if (!o->slots) return LB_OK;
  LB_TRY(lb_partitioning_init(&p->partitioning, p->graph, &o->partition,
                              o->weights));
  p->parts = &p->partitioning;
  LB_TRY(lb_orders_init(&p->orders, p->parts, p->graph));
  return lb_part_classes_init(&p->classes, p->parts, p->graph, &p->sizes);
}

static lb_status find_guards(lb_program *p) {
  p->guards = calloc(p->graph->main->n_params + 1u, sizeof *p->guards);
  if (!p->guards) return lb_oom();
  if (!p->no_skip) p->n_guards = lb_guards_find(p->graph, p->guards);
  return LB_OK;
}

static lb_status build(lb_program *p, const lb_program_options *o) {
  LB_TRY(find_deciding(p));
  LB_TRY(find_guards(p));
  LB_TRY(lb_sizes_init(&p->sizes, p->graph));
  LB_TRY(partition(p, o));
  return lb_program_count(p);
}

static size_t count_bytes(const lb_program *p) {
  const lb_graph *g = p->graph;
  size_t value = sizeof *p->deciding + sizeof *p->all.uses +
                 sizeof *p->all.output_of + sizeof *p->all.concat_dests;
  size_t node = sizeof *p->all.needed + sizeof *p->orders.nodes +
                sizeof *p->orders.unvisited + sizeof *p->classes.of_node;
  return sizeof *p + p->partitioning.arena.used + g->n_values * value +
         g->n_nodes * node + p->sizes.n * sizeof *p->sizes.dims;
}

lb_status lb_program_new(const lb_program_options *o, lb_program **out) {
  lb_program *p = *out = calloc(1, sizeof *p);
  if (!p) return lb_oom();
  *p = (lb_program){.graph = o->graph,
                    .version = o->version,
                    .limit = o->limit,
                    .slots = o->slots,
                    .weights = o->weights,
                    .deterministic = o->deterministic,
                    .reusable = o->reusable,
                    .checks = o->checks,
                    .no_skip = o->no_skip,
                    .user = o->user,
                    .usage = o->usage};
  lb_ref_init(&p->ref);
  if (p->usage) atomic_fetch_add(&p->usage->count, 1);
  lb_status st = build(p, o);
  if (lb_failed(st)) {
    lb_program_release(p);
    *out = NULL;
    return st;
  }
  p->bytes = count_bytes(p);
  if (p->usage) atomic_fetch_add(&p->usage->bytes, p->bytes);
  return LB_OK;
}

void lb_program_release(lb_program *p) {
  if (!p || !lb_ref_release(&p->ref)) return;
  if (p->usage) atomic_fetch_sub(&p->usage->bytes, p->bytes);
  if (p->usage) atomic_fetch_sub(&p->usage->count, 1);
  free(p->deciding);
  free(p->guards);
  lb_sizes_fini(&p->sizes);
  lb_part_classes_fini(&p->classes);
  lb_orders_fini(&p->orders);
  if (p->parts) lb_partitioning_fini(&p->partitioning);
  free(p->all.uses);
  free(p->all.output_of);
  free(p->all.concat_dests);
  free(p->all.needed);
  free(p);
}

bool lb_deciding_reads(lb_deciding how, const lb_tensor *t) {
  if (how == LB_DECIDES_NOTHING || t->rank > 1) return false;
  if (how == LB_DECIDES_THROUGH && lb_dtype_is_float(t->dtype)) return false;
  return lb_tensor_count(t) <= LB_MAX_KNOWN;
}
