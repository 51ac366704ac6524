// plan/plan.c -- builds stages: the first from a signature, later ones from
// stage results.
#include "plan/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "plan/planner.h"

// Block size of the workspace arenas. Their memory is freed or reused as soon
// as a plan is built, so it need not start small: the first block, a sixteenth
// of this, is enough for most plans.
#define WORKSPACE_BLOCK ((size_t)256 << 10)
// Max bytes that each arena of a workspace keeps.
#define MAX_KEPT_BYTES ((size_t)1 << 20)

void lb_plan_workspace_init(lb_plan_workspace *d) {
  lb_arena_init(&d->state, WORKSPACE_BLOCK);
  lb_arena_init(&d->scratch, WORKSPACE_BLOCK);
}

void lb_plan_workspace_fini(lb_plan_workspace *d) {
  lb_arena_fini(&d->state);
  lb_arena_fini(&d->scratch);
}

size_t lb_plan_workspace_bytes(const lb_plan_workspace *d) {
  return d->state.used + d->scratch.used;
}

// Moves an arena; `from` is empty afterwards.
static void move_arena(lb_arena *to, lb_arena *from) {
  *to = *from;
  lb_arena_init(from, from->block_size);
}

// Returns an arena to the workspace, emptied.
static void put_back(lb_arena *workspace, lb_arena *a) {
  if (a->used > MAX_KEPT_BYTES)
    lb_arena_fini(a);
  else
    lb_arena_reset(a);
  move_arena(workspace, a);
}

static lb_status plan_new(lb_program *prog, lb_plan *parent,
                          lb_plan_workspace *workspace, lb_plan **out) {
  lb_plan *p = calloc(1, sizeof *p);
  *out = p;
  if (!p) return lb_oom();
  lb_ref_init(&p->ref);
  lb_arena_init(&p->arena, 16 << 10);
  move_arena(&p->state, &workspace->state);
  p->program = prog;
  lb_program_retain(prog);
  p->parent = parent ? lb_plan_retain(parent) : NULL;
  p->n_dynamic = parent ? parent->n_dynamic : 0;
  return LB_OK;
}

lb_plan *lb_plan_retain(lb_plan *p) {
  lb_ref_retain(&p->ref);
  return p;
}

static void free_copies(lb_plan *p) {
  for (const lb_plan_copy *c = p->copies; c; c = c->next)
    lb_device_free(p->program->slots->device, NULL, c->data, c->bytes);
}

void lb_plan_release(lb_plan *p) {
  while (p && lb_ref_release(&p->ref)) {
    lb_plan *parent = p->parent;
    free_copies(p);
    lb_arena_fini(&p->arena);
    lb_arena_fini(&p->state);
    lb_program_release(p->program);
    free(p->nodes);
    free(p);
    p = parent;
  }
}

size_t lb_plan_bytes(const lb_plan *p) {
  return sizeof *p + p->arena.used + p->state.used +
         p->n_nodes * sizeof *p->nodes;
}

// Launches are shared within one plan only.
static lb_status begin_launch_cache(lb_planner *p) {
  p->launch.by_class = lb_arena_new(p->state, const lb_cached_launch *,
                                    p->prog->classes.n_classes);
  return p->launch.by_class ? LB_OK : lb_oom();
}

static lb_status planner_new(lb_plan *plan, lb_plan_workspace *workspace,
                             lb_planner **out) {
  lb_planner *p = lb_arena_new(&plan->state, lb_planner, 1);
  *out = p;
  if (!p) return lb_oom();
  p->plan = plan;
  p->arena = &plan->arena;
  p->state = &plan->state;
  move_arena(&p->scratch, &workspace->scratch);
  return LB_OK;
}

// Returns memory to the workspace; without a next stage, the planner's own,
// too.
static void close_planner(lb_planner *p, lb_plan_workspace *workspace) {
  lb_plan *plan = p->plan;
  put_back(&workspace->scratch, &p->scratch);
  if (!plan->remaining) put_back(&workspace->state, &plan->state);
}

// -- offsets -----------------------------------------------------------------

static void place_operands(const lb_memory *m, lb_step_operand *ops,
                           uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (ops[i].storage == LB_STORAGE_ARENA)
      ops[i].offset = lb_memory_offset(m, ops[i].offset);
}

// The addresses are in the plan's arena, behind their launch, and no thread
// runs the plan yet.
static void place_launches(const lb_memory *m, const lb_launch *l) {
  for (; l; l = l->next) {
    lb_address *addresses = (lb_address *)(uintptr_t)l->addresses;
    for (uint32_t i = 0; i < l->n_operands; i++)
      if (addresses[i].base == LB_BASE_ARENA)
        addresses[i].offset = lb_memory_offset(m, addresses[i].offset);
    lb_segments *segments = (lb_segments *)(uintptr_t)l->segments;
    if (segments && segments->offsets.base == LB_BASE_ARENA)
      segments->offsets.offset = lb_memory_offset(m, segments->offsets.offset);
  }
}

static int by_step(const void *a, const void *b) {
  const lb_wipe *x = a, *y = b;
  return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                            : (int)y->ended - (int)x->ended;
}

// Lists what may be overwritten before which step: a block that begins, before
// the first step that can write it; one that has ended, where the next block
// is allocated, which might take its place. `first` is the first block of the
// stage.
static lb_status list_wipes(lb_planner *p, uint32_t first) {
  const lb_memory *m = &p->values.memory;
  lb_plan *plan = p->plan;
  plan->wipes = lb_arena_new(p->arena, lb_wipe, 2 * (size_t)m->n);
  if (!plan->wipes) return lb_oom();
  for (uint32_t i = 0; i < m->n; i++) {
    const lb_extent *b = &m->blocks[i];
    if (i >= first)
      plan->wipes[plan->n_wipes++] =
          (lb_wipe){b->step, false, b->offset, b->size};
    if (b->end >= first && b->end < m->n)
      plan->wipes[plan->n_wipes++] =
          (lb_wipe){m->blocks[b->end].step, true, b->offset, b->size};
  }
  qsort(plan->wipes, plan->n_wipes, sizeof *plan->wipes, by_step);
  return LB_OK;
}

// Replaces virtual offsets by offsets in everything that a run reads.
static lb_status give_offsets(lb_planner *p) {
  const lb_memory *m = &p->values.memory;
  lb_plan *plan = p->plan;
  uint32_t first = m->n_placed;
  LB_TRY(lb_memory_place(&p->values.memory, &p->scratch));
  if (p->prog->checks & LB_CHECK_POISON) LB_TRY(list_wipes(p, first));
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *s = &plan->steps[i];
    place_operands(m, s->in, s->n_in);
    place_operands(m, s->out, s->n_out);
    place_launches(m, s->launch);
  }
  for (uint32_t i = 0; i < plan->n_stage_results; i++)
    place_operands(m, &plan->stage_results[i].source, 1);
  plan->arena_bytes = m->peak;
  return LB_OK;
}

// The common end of all stages: delivers the results that are ready, and keeps
// the planner in the plan if nodes are left.
static lb_status finish(lb_planner *p) {
  LB_TRY(lb_planner_deliver(p));
  LB_TRY(give_offsets(p));
  lb_plan *plan = p->plan;
  if (p->steps.n_pending == 0 && lb_planner_delivered(p)) {
    plan->n_stage_results = 0;
  } else if (plan->n_stage_results == 0) {
    return lb_error(LB_INTERNAL,
                    "planner made no progress: %u nodes left and no stage "
                    "results to wait for",
                    p->steps.n_pending);
  } else {
    plan->remaining = p;
    plan->n_left = p->steps.n_pending;
  }
  return LB_OK;
}

// -- first stage -------------------------------------------------------------

static bool all_wanted(const lb_planner *p, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_results; i++)
    if (!p->results.want[i].wanted) return false;
  return r == p->prog->graph->main;
}

static void mark_results(lb_planner *p) {
  const lb_region *r = p->region;
  for (uint32_t i = 0; i < r->n_results; i++) {
    if (!p->results.want[i].wanted) continue;
    p->tally.uses[r->results[i]->id]++;
    lb_output_path *path = &p->tally.output_of[r->results[i]->id];
    if (r->results[i]->producer && !path->result) path->result = i + 1;
  }
}

#define COPY(field, from, n)                                            \
  (p->field = lb_arena_memdup(p->state, (from), (n) * sizeof *p->field, \
                              _Alignof(max_align_t)))

static lb_status copy_tally(lb_planner *p, const lb_tally *from) {
  size_t n = p->prog->graph->n_values, nodes = p->prog->graph->n_nodes;
  bool ok = COPY(tally.uses, from->uses, n) &&
            COPY(tally.output_of, from->output_of, n) &&
            COPY(tally.concat_dests, from->concat_dests, n) &&
            COPY(tally.needed, from->needed, nodes);
  return ok ? LB_OK : lb_oom();
}

// Counts readers, or copies the counts made at load.
static lb_status begin_tally(lb_planner *p, const lb_region *r) {
  size_t n = p->prog->graph->n_values, nodes = p->prog->graph->n_nodes;
  lb_tally *t = &p->tally;
  if (all_wanted(p, r)) return copy_tally(p, &p->prog->all);
  *t = (lb_tally){lb_arena_new(p->state, uint32_t, n),
                  lb_arena_new(p->state, lb_output_path, n),
                  lb_arena_new(p->state, lb_concat_dest, n),
                  lb_arena_new(p->state, bool, nodes)};
  if (!t->uses || !t->output_of || !t->concat_dests || !t->needed)
    return lb_oom();
  mark_results(p);
  lb_planner_count(p, r);
  return LB_OK;
}

lb_status lb_program_count(lb_program *prog) {
  const lb_graph *g = prog->graph;
  size_t n = g->n_values + (size_t)1;
  size_t results = g->main->n_results;
  lb_want *want = calloc(results + 1, sizeof *want);
  lb_tally t = {calloc(n, sizeof *t.uses), calloc(n, sizeof *t.output_of),
                calloc(n, sizeof *t.concat_dests),
                calloc(g->n_nodes + (size_t)1, sizeof *t.needed)};
  bool ok = want && t.uses && t.output_of && t.concat_dests && t.needed;
  prog->all = t;
  if (ok) {
    for (size_t i = 0; i < results; i++) want[i].wanted = true;
    lb_planner p = {
        .prog = prog, .region = g->main, .tally = t, .results.want = want};
    mark_results(&p);
    lb_planner_count(&p, g->main);
  }
  free(want);
  return ok ? LB_OK : lb_oom();
}

// Reserves as many steps as are likely to be needed.
static lb_status begin_steps(lb_planner *p, const lb_region *r) {
  const lb_partitioning *parts = p->prog->parts;
  uint32_t n = parts ? parts->n_parts : 0;
  if (n > r->n_nodes) n = r->n_nodes;
  lb_step *steps =
      lb_arena_alloc(p->arena, lb_mul_sat(n, sizeof *steps), _Alignof(lb_step));
  if (!steps) return lb_oom();
  p->plan->steps = steps;
  p->steps.cap_steps = n;
  return LB_OK;
}

// Starts with the dispositions of earlier stages; in the first stage, with
// those of nodes that the planner never visits.
static lb_status begin_nodes(lb_plan *plan, const lb_planner *p) {
  const lb_plan *parent = plan->parent;
  const lb_orders *orders = &p->prog->orders;
  lb_order o = lb_orders_get(orders, p->prog->graph, p->region);
  size_t n = o.end_id - o.first_id;
  plan->nodes = malloc(n * sizeof *plan->nodes + 1);
  if (!plan->nodes) return lb_oom();
  plan->first_node = o.first_id;
  plan->n_nodes = (uint32_t)n;
  if (parent) plan->first_step = parent->first_step + parent->n_steps;
  const lb_disposition *from = parent ? parent->nodes
                               : orders->unvisited
                                   ? orders->unvisited + o.first_id
                                   : NULL;
  if (from) memcpy(plan->nodes, from, n * sizeof *plan->nodes);
  for (size_t i = 0; !from && i < n; i++) plan->nodes[i] = LB_NOT_NEEDED;
  return LB_OK;
}

static lb_status allocate(lb_planner *p, const lb_region *r) {
  size_t n = p->prog->graph->n_values;
  lb_arena *a = p->state;
  p->values.states = lb_arena_new(a, const lb_pvalue *, n);
  p->values.alias = lb_arena_new(a, uint32_t, n);
  p->concat.buffers = lb_arena_new(a, const lb_pvalue *, n);
  p->values.memory.separate = p->prog->checks & LB_CHECK_SEPARATE;
  p->results.claimed = lb_arena_new(a, bool, r->n_results);
  p->results.delivered = lb_arena_new(a, bool, r->n_results);
  bool ok = p->values.states && p->values.alias && p->concat.buffers &&
            p->results.claimed && p->results.delivered;
  return ok ? LB_OK : lb_oom();
}

static lb_status begin_sizes(lb_planner *p) {
  const lb_sizes *s = &p->prog->sizes;
  size_t bytes = s->n * sizeof *s->known;
  size_t n = (size_t)s->n_symbols;
  p->dims.sizes = lb_arena_memdup(p->state, s->known, bytes, _Alignof(int64_t));
  p->dims.symbols = lb_arena_alloc(
      p->state, lb_mul_sat(n, sizeof *p->dims.symbols), _Alignof(int64_t));
  if (!p->dims.sizes || !p->dims.symbols) return lb_oom();
  for (size_t i = 0; i < n; i++) p->dims.symbols[i] = -1;
  p->dims.exact = true;
  return LB_OK;
}

// Whether kernels read an input in place, as they read dense ones: they accept
// any row stride. Broadcast elements need other kernels.
static bool is_read_in_place(const lb_tensor *t) {
  int last = t->rank - 1;
  if (lb_tensor_count(t) == 0) return true;
  for (int i = 0; i < t->rank; i++)
    if (t->dims[i] > 1 &&
        (t->strides[i] == 0 || (i == last && t->strides[i] != 1)))
      return false;
  return true;
}

// Inputs that cannot be read in place are copied before the first step.
static lb_status set_elements(lb_planner *p, uint32_t i, const lb_tensor *t) {
  const lb_value *v = p->region->params[i];
  lb_step_operand from, to;
  LB_TRY(lb_planner_set_view(p, v, t, LB_STORAGE_INPUT, i));
  if (is_read_in_place(t)) return LB_OK;
  LB_TRY(lb_planner_operand(p, p->values.states[v->id], &from));
  LB_TRY(lb_planner_set_dense(p, v, t, LB_STORAGE_ARENA, 0));
  LB_TRY(lb_planner_operand(p, p->values.states[v->id], &to));
  return lb_planner_copy(p, from, to, NULL, LB_REASON_LAYOUT);
}

static lb_status set_input(lb_planner *p, uint32_t i, const lb_tensor *t,
                           const lb_content *content) {
  const lb_value *v = p->region->params[i];
  if (!p->tally.uses[v->id]) return LB_OK;
  lb_planner_learn(p, v, t);
  if (!lb_program_reads(p->prog, v, t)) {
    LB_TRY(set_elements(p, i, t));
    bool found = content && content->kind != LB_CONTENT_ANY;
    return found ? lb_planner_set_content(p, v, content) : LB_OK;
  }
  lb_tensor copy = *t;
  lb_tensor_dense(&copy);
  copy.data = lb_arena_alloc(p->arena, lb_tensor_bytes(t), 64);
  if (!copy.data) return lb_oom();
  lb_tensor_copy(t, &copy);
  return lb_planner_set_const(p, v, &copy);
}

// Copies the caller's requests, because later stages need them.
static lb_status begin_want(lb_planner *p, const lb_want *want) {
  lb_want *copy = lb_arena_new(p->state, lb_want, p->region->n_results);
  p->results.want = copy;
  if (!copy) return lb_oom();
  for (uint32_t i = 0; i < p->region->n_results; i++) {
    copy[i] = want[i];
    if (!want[i].strides) continue;
    copy[i].strides = lb_arena_memdup(
        p->state, want[i].strides,
        (size_t)want[i].rank * sizeof *want[i].strides, _Alignof(int64_t));
    if (!copy[i].strides) return lb_oom();
  }
  return LB_OK;
}

static lb_status build_first(lb_planner *p, const lb_tensor *inputs,
                             const lb_content *contents, const lb_want *want) {
  const lb_region *r = p->region;
  LB_TRY(allocate(p, r));
  LB_TRY(begin_nodes(p->plan, p));
  LB_TRY(begin_sizes(p));
  LB_TRY(begin_launch_cache(p));
  LB_TRY(begin_steps(p, r));
  LB_TRY(begin_want(p, want));
  LB_TRY(begin_tally(p, r));
  for (uint32_t i = 0; i < r->n_params; i++)
    LB_TRY(set_input(p, i, &inputs[i], contents ? &contents[i] : NULL));
  LB_TRY(lb_planner_region(p, r));
  return finish(p);
}

lb_status lb_plan_first(lb_program *prog, const lb_region *region,
                        const lb_tensor *inputs, const lb_content *contents,
                        const lb_want *want, lb_plan_workspace *workspace,
                        lb_plan **out) {
  lb_plan *plan;
  lb_planner *p;
  *out = NULL;
  LB_TRY(plan_new(prog, NULL, workspace, &plan));
  lb_status st = planner_new(plan, workspace, &p);
  if (!lb_failed(st)) {
    p->prog = prog;
    p->region = region;
    p->in_warmup = workspace->in_warmup;
    st = build_first(p, inputs, contents, want);
    close_planner(p, workspace);
  }
  if (lb_failed(st)) {
    lb_plan_release(plan);
  } else {
    *out = plan;
  }
  return st;
}

// -- next stages -------------------------------------------------------------

// Initialises a planner that continues where `from` stopped. `from` does not
// change, because several planners may continue from it.
static lb_status resume(lb_planner *p, const lb_planner *from) {
  size_t values = from->prog->graph->n_values;
  size_t results = from->region->n_results;
  p->prog = from->prog;
  p->region = from->region;
  p->in_warmup = from->in_warmup;
  p->results.want = from->results.want;
  p->dims.exact = from->dims.exact;
  p->values.n_bufs = from->values.n_bufs;
  p->values.cap_bufs = from->values.cap_bufs;
  bool ok =
      COPY(values.states, from->values.states, values) &&
      COPY(values.alias, from->values.alias, values) &&
      COPY(values.bufs, from->values.bufs, from->values.cap_bufs) &&
      COPY(concat.buffers, from->concat.buffers, values) &&
      COPY(results.claimed, from->results.claimed, results) &&
      COPY(results.delivered, from->results.delivered, results) &&
      COPY(dims.sizes, from->dims.sizes, p->prog->sizes.n) &&
      COPY(dims.symbols, from->dims.symbols, (size_t)p->prog->sizes.n_symbols);
  if (!ok) return lb_oom();
  LB_TRY(copy_tally(p, &from->tally));
  LB_TRY(lb_memory_copy(&p->values.memory, &from->values.memory, p->state));
  p->values.memory.now = 0;  // steps are counted from the stage's first
  return LB_OK;
}

static lb_status learn(lb_planner *p, const lb_stage_result *stage_result,
                       uint32_t value, const lb_tensor *t) {
  const lb_value *v = p->prog->graph->values[value];
  if (!p->tally.uses[value]) return LB_OK;
  lb_planner_learn(p, v,
                   stage_result->kind == LB_STAGE_RESULT_DIMS
                       ? t
                       : stage_result->source.tensor);
  if (stage_result->kind == LB_STAGE_RESULT_DIMS)
    return lb_planner_set_dense(p, v, t, LB_STORAGE_DYNAMIC,
                                stage_result->dynamic_buffer);
  lb_tensor copy = *stage_result->source.tensor;
  lb_tensor_dense(&copy);
  copy.data = lb_arena_memdup(p->arena, t->data, lb_tensor_bytes(t), 64);
  if (!copy.data) return lb_oom();
  // The elements are the plan's now; the buffer has one reader less.
  lb_planner_leave(p, p->values.states[value]->buffer);
  return lb_planner_set_const(p, v, &copy);
}

static lb_status build_next(lb_planner *p, const lb_plan *parent,
                            const lb_tensor *stage_results) {
  const lb_planner *from = parent->remaining;
  LB_TRY(resume(p, from));
  LB_TRY(begin_nodes(p->plan, p));
  LB_TRY(begin_launch_cache(p));
  for (uint32_t i = 0; i < parent->n_stage_results; i++)
    LB_TRY(learn(p, &parent->stage_results[i],
                 from->steps.stage_result_values[i], &stage_results[i]));
  lb_planner_drop_unread(p, from->steps.pending, from->steps.n_pending);
  LB_TRY(lb_planner_nodes(p, from->steps.pending, from->steps.n_pending));
  return finish(p);
}

lb_status lb_plan_next(lb_plan *parent, const lb_tensor *stage_results,
                       lb_plan_workspace *workspace, lb_plan **out) {
  lb_plan *plan;
  lb_planner *p;
  *out = NULL;
  assert(parent->remaining);
  LB_TRY(plan_new(parent->program, parent, workspace, &plan));
  lb_status st = planner_new(plan, workspace, &p);
  if (!lb_failed(st)) {
    st = build_next(p, parent, stage_results);
    close_planner(p, workspace);
  }
  if (lb_failed(st)) {
    lb_plan_release(plan);
  } else {
    *out = plan;
  }
  return st;
}
