// partition/static.c -- the partitioner at load: fuses nodes that are never
// slower as one kernel than as several.
//
// A partition starts with one node and grows while its last value has one
// reader, which is elementwise over the same dims (equal as expressions, so
// equal at every shape). An anchor can only be the start. Producers of its
// inputs are included as well, if they are elementwise over those dims and have
// no other reader: these are *feeders*. Fusion barriers end a partition like
// values with several readers.
#include <string.h>

#include "partition/attention.h"
#include "partition/interpolate.h"
#include "partition/recurrent.h"
#include "partition/weights.h"
#include "partition/window.h"

typedef struct counter {
  uint32_t *uses;    // by value id: nodes that read it, and results; at least 2
                     // for fusion barriers
  lb_node **reader;  // by value id: one of its readers
} counter;

static void count_region(counter *c, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    for (uint32_t k = 0; k < n->n_in; k++) {
      if (!n->in[k] || c->reader[n->in[k]->id] == n) continue;
      c->uses[n->in[k]->id]++;
      c->reader[n->in[k]->id] = n;
    }
    for (uint32_t k = 0; k < n->n_regions; k++) count_region(c, n->regions[k]);
  }
  for (uint32_t i = 0; i < r->n_results; i++) c->uses[r->results[i]->id]++;
}

// Only a value with one use becomes part of its reader's partition.
static void add_barriers(counter *c, const lb_graph *g,
                         const lb_partition_options *o) {
  for (uint32_t i = 0; i < o->n_barriers; i++)
    if (o->barriers[i] < g->n_values) c->uses[o->barriers[i]] += 2;
}

// The order in which nodes start partitions. Anchors come before elementwise
// nodes, which thus join an adjacent anchor; row operations before
// contractions: a residual addition then joins the norm, and matmuls have fewer
// specs. A Resize comes before other elementwise nodes, because sizes are only
// assumed equal once it is in the partition.
typedef enum partition_pass {
  ROW_OPS,
  CONTRACTIONS,
  RESIZES,
  ELTWISE_OPS,
  N_PASSES
} partition_pass;

// Also returns the form of the partition that n starts; N_PASSES: none.
static partition_pass pass_of(const lb_node *n, lb_form *form) {
  uint32_t axes;
  *form = LB_FORM_MATMUL;
  if (lb_recurrent_is(n)) return CONTRACTIONS;
  if (n->n_out == 0 || !n->out[0]) return N_PASSES;
  if (lb_specgen_is_matmul(n)) return CONTRACTIONS;
  if (lb_window_is(n, form)) return CONTRACTIONS;
  *form = LB_FORM_ATTENTION;
  if (lb_attention_is(n)) return CONTRACTIONS;
  *form = LB_FORM_ROW_REDUCE;
  if (lb_specgen_is_row_op(n, &axes)) return ROW_OPS;
  *form = LB_FORM_ELTWISE;
  if (n->op == LB_OP_Resize && lb_specgen_is_eltwise(n)) return RESIZES;
  return lb_specgen_is_eltwise(n) ? ELTWISE_OPS : N_PASSES;
}

// -- growing -----------------------------------------------------------------

typedef struct growth {
  const lb_partitioning *p;
  const counter *c;
  const lb_node *nodes[LB_SPECGEN_MAX_NODES];
  uint32_t n, anchor;
  lb_form form;
} growth;

typedef struct outside {  // values that a trial spec reads
  const lb_value *values[LB_SPEC_MAX_IN];
  uint8_t nodes[LB_SPEC_MAX_IN];
  uint32_t n;
} outside;

static uint8_t try_source(void *user, lb_specgen *e, uint32_t reader,
                          const lb_value *v) {
  outside *o = user;
  (void)reader;
  for (uint32_t i = 0; i < o->n; i++)
    if (o->values[i] == v) return o->nodes[i];
  uint8_t node = lb_spec_input(&e->b, v->info.dtype, LB_LAYOUT_FULL);
  if (o->n < LB_SPEC_MAX_IN) {
    o->values[o->n] = v;
    o->nodes[o->n++] = node;
  }
  return node;
}

// Adds the inputs of an interpolating Resize, as many as there may be: it is
// the first node.
static void try_interp(lb_specgen *e, outside *o, const lb_node *n) {
  if (!lb_interp_is(n)) return;
  e->interpolated = lb_interp_max_axes(n);
  try_source(o, e, 0, n->in[0]);
  for (int axis = 0; axis < e->interpolated; axis++)
    for (int k = 0; k < 2 * lb_interp_taps(n); k++)
      lb_spec_input(&e->b, k < lb_interp_taps(n) ? LB_I64 : LB_F32,
                    LB_LAYOUT_PER_ROW);
}

// Whether one spec can hold all nodes.
static bool fits(const growth *g) {
  lb_specgen e = {0};
  outside o = {.n = 0};
  lb_spec spec;
  const lb_node *anchor = g->nodes[g->anchor];
  bool window = g->form == LB_FORM_CONV || g->form == LB_FORM_WINDOW;
  bool has_acc = g->form == LB_FORM_MATMUL || window;
  lb_acc acc = window ? lb_window_acc(anchor) : LB_ACC_DOT;
  lb_spec_begin(&e.b, g->form);
  for (int i = 0; has_acc && i < (acc == LB_ACC_DOT ? 2 : 1); i++)
    lb_spec_input(&e.b, anchor->in[i]->info.dtype,
                  i && g->form == LB_FORM_CONV ? lb_window_panels(anchor)
                                               : LB_LAYOUT_FULL);
  try_interp(&e, &o, g->nodes[0]);
  lb_specgen_output m = {.nodes = g->nodes,
                         .n_nodes = g->n,
                         .anchor = g->anchor,
                         .has_acc = has_acc,
                         .acc = acc,
                         .average = 1,
                         .source = try_source,
                         .user = &o};
  lb_spec_output(&e.b, lb_specgen_nodes(&e, &m), LB_LAYOUT_FULL);
  lb_status st = lb_spec_finish(&e.b, &spec);
  bool ok = !lb_failed(st);
  lb_status_drop(st);
  return ok;
}

static void put(growth *g, uint32_t at, const lb_node *n) {
  memmove(&g->nodes[at + 1], &g->nodes[at], (g->n - at) * sizeof *g->nodes);
  g->nodes[at] = n;
  g->n++;
  if (g->n > 1 && at <= g->anchor) g->anchor++;
}

static void take(growth *g, uint32_t at) {
  g->n--;
  memmove(&g->nodes[at], &g->nodes[at + 1], (g->n - at) * sizeof *g->nodes);
  if (at < g->anchor) g->anchor--;
}

static bool has_op(const growth *g, lb_op op) {
  for (uint32_t i = 0; i < g->n; i++)
    if (g->nodes[i]->op == op) return true;
  return false;
}

// Whether both have the same size, as far as expressions show. Around a Resize
// they seldom do: there, sizes that vary are assumed to be equal, and binding
// checks them.
static bool has_same_size(const growth *g, const lb_value *a,
                          const lb_value *b) {
  if (lb_value_same_dims(a, b)) return true;
  if (!has_op(g, LB_OP_Resize) || a->info.rank != b->info.rank) return false;
  for (int i = 0; i < a->info.rank; i++) {
    lb_dim x = a->info.dims[i], y = b->info.dims[i];
    bool vary = !lb_dim_is_const(x) && !lb_dim_is_const(y);
    if (!vary && !lb_dim_equal(x, y)) return false;
  }
  return true;
}

// A Resize has its own access pattern, which is supported in elementwise
// partitions, and once per partition.
static bool is_free(const growth *g, const lb_node *n, const lb_value *like) {
  if (g->p->of_node[n->id] || n->region != like->region) return false;
  for (uint32_t i = 0; i < g->n; i++)
    if (g->nodes[i] == n) return false;
  if (n->op == LB_OP_Resize &&
      (g->form != LB_FORM_ELTWISE || has_op(g, LB_OP_Resize)))
    return false;
  return lb_specgen_is_eltwise(n) && has_same_size(g, n->out[0], like);
}

static bool reads_contraction(const lb_node *n) {
  lb_form form;
  for (uint32_t i = 0; i < n->n_in; i++) {
    const lb_node *from = n->in[i] ? n->in[i]->producer : NULL;
    if (from && pass_of(from, &form) == CONTRACTIONS) return true;
  }
  return false;
}

// A node right behind a contraction is fused with it, while the accumulators
// are in registers; and a row operation reads a row more than once, so that its
// feeders must be cheap.
static bool may_feed(const growth *g, const lb_node *n) {
  if (g->form != LB_FORM_ROW_REDUCE) return true;
  bool cheap =
      lb_specgen_reads_once(g->nodes[g->anchor]) || lb_specgen_is_cheap(n);
  return cheap && !reads_contraction(n);
}

// Adds the feeders of the node at `at` over the dims of `like`, recursively.
// Returns how many were added.
static uint32_t add_feeders(growth *g, uint32_t at, const lb_value *like) {
  const lb_node *n = g->nodes[at];
  uint32_t before = g->n;
  for (uint32_t k = 0; k < n->n_in && g->n < LB_SPECGEN_MAX_NODES; k++) {
    const lb_value *v = n->in[k];
    lb_node *from = v ? v->producer : NULL;
    if (!from || !lb_specgen_reads(n, k) || g->c->uses[v->id] != 1 ||
        !is_free(g, from, like) || !may_feed(g, from))
      continue;
    uint32_t here = at + (g->n - before);
    put(g, here, from);
    if (fits(g))
      add_feeders(g, here, like);
    else
      take(g, here);
  }
  return g->n - before;
}

// The node that may follow; NULL: none.
static lb_node *next_of(const growth *g) {
  const lb_value *v = g->nodes[g->n - 1]->out[0];
  lb_node *n = g->c->reader[v->id];
  return g->c->uses[v->id] == 1 && n && is_free(g, n, v) ? n : NULL;
}

// A reduction along columns is computed as a window, which reads its input
// directly.
static bool takes_feeders(const lb_node *n, uint32_t axes) {
  int rank = n->in[0]->info.rank;
  bool trailing = axes + (axes & -axes) == 1u << rank;
  lb_acc kind;
  return trailing || !lb_specgen_is_window(n, &kind);
}

static void grow(growth *g, const lb_node *first) {
  uint32_t axes;
  put(g, 0, first);
  if (g->form == LB_FORM_ATTENTION || lb_recurrent_is(first)) return;
  if (g->form == LB_FORM_ROW_REDUCE && lb_specgen_is_row_op(first, &axes) &&
      takes_feeders(first, axes))
    add_feeders(g, 0, first->in[0]);
  lb_node *next;
  while (g->n < LB_SPECGEN_MAX_NODES && (next = next_of(g))) {
    uint32_t at = g->n;
    put(g, at, next);
    if (!fits(g)) {
      take(g, at);
      return;
    }
    add_feeders(g, at, next->out[0]);
  }
}

// -- partitions --------------------------------------------------------------

static bool is_window(const lb_partition *part) {
  return part->form == LB_FORM_CONV || part->form == LB_FORM_WINDOW;
}

static bool is_inside(const lb_partition *part, const lb_value *v) {
  for (uint32_t i = 0; i < part->n_nodes; i++)
    if (part->nodes[i]->out[0] == v) return true;
  return false;
}

static void add_read(const lb_partition *part, lb_part_read *list, uint32_t *n,
                     const lb_value *v) {
  if (!v || v->info.data || is_inside(part, v)) return;
  uint32_t i = 0;
  while (i < *n && list[i].value != v) i++;
  if (i == *n) list[(*n)++] = (lb_part_read){v, 0};
  list[i].times++;
}

static lb_status find_reads(lb_partitioning *p, lb_partition *part) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < part->n_nodes; i++) most += part->nodes[i]->n_in;
  lb_part_read *list = lb_arena_new(&p->arena, lb_part_read, most);
  if (!list) return lb_oom();
  for (uint32_t i = 0; i < part->n_nodes; i++)
    for (uint32_t k = 0; k < part->nodes[i]->n_in; k++)
      add_read(part, list, &part->n_reads, part->nodes[i]->in[k]);
  part->reads = list;
  return LB_OK;
}

// Whether the node has one output and is arithmetic whose dims are decided by
// no contents other than constants.
static bool is_plain_node(const lb_node *n) {
  const lb_op_info *op = &lb_op_infos[n->op];
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  for (uint32_t i = 0; i < n->n_in && i < 32; i++)
    if (op->deciding >> i & 1 && n->in[i] && !lb_value_const(n->in[i]))
      return false;
  return lb_op_is_pure(n->op) && op->cls != LB_CLASS_VIEW;
}

// Whether nodes have the dims of the result, or those of a reduction's input.
static bool is_plain(const lb_partition *part) {
  const lb_value *result = lb_partition_result(part);
  if (part->recurrent) return false;
  for (uint32_t i = 0; i < part->n_nodes; i++) {
    bool before = part->form == LB_FORM_ROW_REDUCE && i < part->anchor;
    const lb_value *like = before ? part->nodes[part->anchor]->in[0] : result;
    if (!is_plain_node(part->nodes[i]) ||
        !lb_value_same_dims(part->nodes[i]->out[0], like))
      return false;
  }
  return true;
}

static lb_status find_inputs(lb_partitioning *p, lb_partition *part) {
  lb_part_input list[LB_PART_INPUTS];
  part->n_inputs = lb_partition_inputs(part, list);
  part->inputs = lb_arena_memdup(&p->arena, list, part->n_inputs * sizeof *list,
                                 _Alignof(lb_part_input));
  return part->inputs ? LB_OK : lb_oom();
}

static lb_status describe(lb_partitioning *p, lb_partition *part) {
  LB_TRY(find_inputs(p, part));
  part->plain = is_plain(part);
  part->panels = lb_weights_layout(part);
  if (is_window(part)) {
    lb_window_desc *w = lb_arena_new(&p->arena, lb_window_desc, 1);
    if (!w) return lb_oom();
    lb_window_describe(part->nodes[part->anchor], w);
    part->window = w;
  }
  return find_reads(p, part);
}

static lb_status add_part(lb_partitioning *p, const counter *c,
                          const lb_node *first, lb_form form) {
  growth g = {.p = p, .c = c, .form = form};
  grow(&g, first);
  lb_partition *part = lb_arena_new(&p->arena, lb_partition, 1);
  if (!part) return lb_oom();
  part->form = form;
  part->recurrent = lb_recurrent_is(first);
  part->memo = lb_arena_new(&p->arena, lb_memo, 1);
  part->n_nodes = g.n;
  part->anchor = g.anchor;
  part->nodes = lb_arena_memdup(&p->arena, g.nodes, g.n * sizeof *g.nodes,
                                _Alignof(lb_node *));
  if (!part->nodes || !part->memo) return lb_oom();
  for (uint32_t i = 0; i < g.n; i++) p->of_node[g.nodes[i]->id] = part;
  p->parts[p->n_parts++] = part;
  return describe(p, part);
}

static lb_status partition_region(lb_partitioning *p, const counter *c,
                                  const lb_region *r, partition_pass of) {
  lb_form form;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    lb_node *n = r->nodes[i];
    for (uint32_t k = 0; k < n->n_regions; k++)
      LB_TRY(partition_region(p, c, n->regions[k], of));
    if (!p->of_node[n->id] && pass_of(n, &form) == of)
      LB_TRY(add_part(p, c, n, form));
  }
  return LB_OK;
}

static void note_refusals(lb_partitioning *p, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    if (!p->of_node[n->id])
      p->refusals[n->id] = (uint8_t)lb_partition_refusal(n);
    for (uint32_t k = 0; k < n->n_regions; k++) note_refusals(p, n->regions[k]);
  }
}

static lb_status partition_all(lb_partitioning *p, const counter *c,
                               const lb_region *r) {
  for (partition_pass of = 0; of < N_PASSES; of++)
    LB_TRY(partition_region(p, c, r, of));
  note_refusals(p, r);
  return LB_OK;
}

lb_status lb_partitioning_init(lb_partitioning *p, const lb_graph *g,
                               const lb_partition_options *o,
                               lb_weights *weights) {
  *p = (lb_partitioning){0};
  lb_arena scratch;
  lb_arena_init(&p->arena, 64 << 10);
  lb_arena_init(&scratch, 64 << 10);
  p->of_node = lb_arena_new(&p->arena, lb_partition *, g->n_nodes);
  p->parts = lb_arena_new(&p->arena, lb_partition *, g->n_nodes);
  p->refusals = lb_arena_new(&p->arena, uint8_t, g->n_nodes);
  counter c = {lb_arena_new(&scratch, uint32_t, g->n_values),
               lb_arena_new(&scratch, lb_node *, g->n_values)};
  lb_status st = LB_OK;
  if (!p->of_node || !p->parts || !p->refusals || !c.uses || !c.reader)
    st = lb_oom();
  if (!lb_failed(st)) {
    count_region(&c, g->main);
    add_barriers(&c, g, o);
    st = partition_all(p, &c, g->main);
  }
  if (!lb_failed(st)) st = lb_weights_pack(weights, p->parts, p->n_parts);
  lb_arena_fini(&scratch);
  if (lb_failed(st)) lb_partitioning_fini(p);
  return st;
}

void lb_partitioning_fini(lb_partitioning *p) {
  for (uint32_t i = 0; i < p->n_parts; i++) lb_memo_fini(p->parts[i]->memo);
  lb_arena_fini(&p->arena);
  *p = (lb_partitioning){0};
}
