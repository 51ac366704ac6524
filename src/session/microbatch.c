// session/microbatch.c -- cutting a batch, and putting its results together.
#include "session/microbatch.h"

#include "base/caller.h"

// A batch of which inputs take less than this part of the near cache is run
// whole if it is the first one: what is learned from one item costs a plan.
#define SMALL 64

// -- how many ----------------------------------------------------------------

// Items of a batch that may be cut; 0: it may not.
static int64_t count_items(const lb_session *s, const lb_tensor *in) {
  int64_t items = 0;
  if (!s->batch || !s->options.near_bytes) return 0;
  for (uint32_t i = 0; i < s->graph->main->n_params; i++) {
    if (!s->batch[i]) continue;
    if (items && in[i].dims[0] != items) return 0;
    items = in[i].dims[0];
  }
  return items;
}

static size_t batch_bytes(const lb_session *s, const lb_tensor *in) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < s->graph->main->n_params; i++)
    if (s->batch[i]) bytes += lb_tensor_bytes(&in[i]);
  return bytes;
}

// The largest item says most: small ones are padded.
void lb_microbatch_learn(lb_session *s, const lb_tensor *in,
                         const lb_plan *plan) {
  int64_t items = count_items(s, in);
  if (items == 0) return;
  size_t bytes = batch_bytes(s, in) / (size_t)items;
  if (bytes < atomic_load_explicit(&s->item_bytes, memory_order_relaxed))
    return;
  atomic_store_explicit(&s->item_values, plan->arena_bytes / (size_t)items,
                        memory_order_relaxed);
  atomic_store_explicit(&s->item_bytes, bytes, memory_order_relaxed);
}

// Bytes between the steps of a run of one item.
static double item_values(lb_session *s, const lb_tensor *in, int64_t items) {
  double item = (double)batch_bytes(s, in) / (double)items;
  return item *
         (double)atomic_load_explicit(&s->item_values, memory_order_relaxed) /
         (double)atomic_load_explicit(&s->item_bytes, memory_order_relaxed);
}

static lb_status learn_one(lb_session *s, lb_context *c, const lb_tensor *in,
                           const lb_output *outputs, int64_t items) {
  lb_microbatches single = {.items = items, .rest = items};
  lb_plan *plan;
  lb_tensor *one = lb_arena_new(&c->keys, lb_tensor, s->graph->main->n_params);
  if (!one) return lb_oom();
  lb_microbatch_inputs(s, in, &single, 0, one);
  lb_status st = lb_run_plan(s, c, s->graph->main, one, outputs, &plan);
  lb_plan_release(plan);
  return st;
}

// Slices of so many items, of which `fit` fit.
static int64_t slices_of(int64_t items, double fit) {
  if (fit >= (double)items) return items > 0;
  int64_t each = fit < 1 ? 1 : (int64_t)fit;
  return (items + each - 1) / each;
}

lb_status lb_microbatch_cut(lb_session *s, lb_context *c, const lb_tensor *in,
                            const lb_output *outputs, lb_microbatches *out) {
  int64_t items = count_items(s, in);
  *out = (lb_microbatches){.items = items, .rest = 1};
  if (items < 2 || batch_bytes(s, in) == 0) return LB_OK;
  if (!atomic_load_explicit(&s->item_bytes, memory_order_relaxed)) {
    if (batch_bytes(s, in) < s->options.near_bytes / SMALL) return LB_OK;
    LB_TRY(learn_one(s, c, in, outputs, items));
  }
  int64_t threads = lb_pool_threads(c->pool);
  double near = (double)s->options.near_bytes / item_values(s, in, items);
  if (near + 0.5 >= (double)items) return LB_OK;
  if (items >= threads) {
    out->lanes = threads;
    out->each = slices_of(items / threads, near + 0.5);
  }
  out->rest = slices_of(items - items / threads * threads,
                        near * (double)threads + 0.5);
  return LB_OK;
}

// -- parts -------------------------------------------------------------------

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Where part i of n begins, of so many items; the longer parts come first.
static int64_t begin_of(int64_t items, int64_t n, int64_t i) {
  return items / n * i + at_most(i, items % n);
}

static int64_t first_item(const lb_microbatches *cut, int64_t i) {
  int64_t own = cut->lanes * cut->each;
  int64_t lane = cut->lanes ? cut->items / cut->lanes : 0;
  if (i < own)
    return i / cut->each * lane + begin_of(lane, cut->each, i % cut->each);
  int64_t left = cut->items - cut->lanes * lane;
  return cut->items - left +
         (cut->rest ? begin_of(left, cut->rest, i - own) : 0);
}

// Items [from, to) of a tensor with `items` of them along axis 0.
static lb_tensor part(const lb_tensor *t, int64_t items, int64_t from,
                      int64_t to) {
  lb_tensor p = *t;
  int64_t rows = t->dims[0] / items;
  int64_t size = (int64_t)lb_dtype_size(t->dtype);
  p.dims[0] = rows * (to - from);
  if (p.data && lb_tensor_count(t))
    p.data = (char *)p.data + rows * from * t->strides[0] * size;
  return p;
}

void lb_microbatch_inputs(const lb_session *s, const lb_tensor *in,
                          const lb_microbatches *cut, int64_t i,
                          lb_tensor *out) {
  for (uint32_t k = 0; k < s->graph->main->n_params; k++)
    out[k] = s->batch[k] ? part(&in[k], cut->items, first_item(cut, i),
                                first_item(cut, i + 1))
                         : in[k];
}

// -- runs --------------------------------------------------------------------

typedef struct job {
  lb_session *s;
  lb_context *c;        // of the whole run
  lb_run_limits bound;  // of the run as it began, if it has one
  const lb_tensor *in;
  const lb_output *out;  // all memory is there
  lb_microbatches cut;
  // By thread: a context but for the caller, inputs, outputs; by slice of a
  // thread: how it ended.
  lb_context **contexts;
  lb_tensor *ins;
  lb_output *outs;
  lb_status *ends;
  atomic_bool failed;
} job;

static lb_status run_slice(job *j, lb_context *c, int64_t i, int worker) {
  const lb_region *r = j->s->graph->main;
  lb_tensor *in = j->ins + (size_t)worker * r->n_params;
  lb_output *out = j->outs + (size_t)worker * r->n_results;
  size_t before;
  lb_microbatch_inputs(j->s, j->in, &j->cut, i, in);
  for (uint32_t k = 0; k < r->n_results; k++) {
    out[k] = (lb_output){.wanted = j->out[k].wanted,
                         .rank = j->out[k].rank,
                         .strides = j->out[k].strides};
    if (!out[k].wanted) continue;
    lb_tensor t = part(&j->out[k].tensor, j->cut.items, first_item(&j->cut, i),
                       first_item(&j->cut, i + 1));
    out[k].data = t.data;
    LB_TRY(lb_tensor_reach(&t, &out[k].cap, &before));
  }
  return lb_run_region(j->s, c, r, in, out);
}

// In a context of its own; the caller has that of the run.
static lb_status run_apart(job *j, int64_t i, int worker) {
  lb_lru *lru = j->s->options.slots ? j->s->options.slots->lru : NULL;
  lb_context **c = &j->contexts[worker];
  lb_run_limits bound = j->bound;
  if (!*c) LB_TRY(lb_session_take_context(j->s, j->c, c));
  (*c)->bound = j->c->bound ? &bound : NULL;
  (*c)->run = j->c->run;
  (*c)->pool = j->c->pool;
  lb_context_begin(*c, 0);
  lb_lru_enter(lru, (*c)->stay);
  lb_caller_enter();
  lb_status st = run_slice(j, *c, i, worker);
  lb_caller_leave();
  lb_lru_leave(lru, (*c)->stay);
  return st;
}

static void run_some(void *user, int64_t begin, int64_t end, int worker) {
  job *j = user;
  for (int64_t i = begin; i < end && !atomic_load(&j->failed); i++) {
    j->ends[i] = worker ? run_apart(j, i, worker) : run_slice(j, j->c, i, 0);
    if (lb_failed(j->ends[i])) atomic_store(&j->failed, true);
  }
}

// The slices that threads have of their own. Steps stay with them: jobs of a
// thread that is inside one are its own.
static lb_status run_lanes(job *j) {
  lb_pool *pool = j->c->pool;
  int64_t n = j->cut.lanes * j->cut.each;
  lb_status st = LB_OK;
  lb_pool_for(pool, n, 1, run_some, j);
  for (int i = 0; i < lb_pool_threads(pool); i++)
    if (j->contexts[i]) lb_session_give_context(j->s, j->contexts[i]);
  for (int64_t i = 0; i < n; i++) {
    if (lb_failed(st))
      lb_status_drop(j->ends[i]);
    else
      st = j->ends[i];
  }
  if (lb_failed(st) && j->c->bound) lb_run_limits_exceeded(j->c->bound);
  return st;
}

// Memory for whole results; false if the plan of a slice does not tell all.
static lb_status hold_results(const job *j, const lb_plan *plan, int64_t items,
                              lb_output *out, bool *all) {
  const lb_region *r = j->s->graph->main;
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < r->n_results; i++) wanted += out[i].wanted;
  *all = plan->n_facts == 0 && plan->n_binds == wanted;
  for (uint32_t i = 0; *all && i < plan->n_binds; i++) {
    lb_tensor t = plan->binds[i].tensor;
    t.dims[0] = t.dims[0] / items * j->cut.items;
    LB_TRY(lb_run_hold(j->s, j->c, r, plan->binds[i].result, &t, out));
  }
  return LB_OK;
}

static lb_status run_slices(job *j, lb_output *out) {
  const lb_region *r = j->s->graph->main;
  size_t threads = (size_t)lb_pool_threads(j->c->pool);
  lb_plan *plan;
  bool all = false;
  j->contexts = lb_arena_new(&j->c->parts, lb_context *, threads);
  j->ins = lb_arena_new(&j->c->parts, lb_tensor, threads * r->n_params);
  j->outs = lb_arena_new(&j->c->parts, lb_output, threads * r->n_results);
  j->ends = lb_arena_new(&j->c->parts, lb_status,
                         (size_t)(j->cut.lanes * j->cut.each));
  if (!j->contexts || !j->ins || !j->outs || !j->ends) return lb_oom();
  lb_microbatch_inputs(j->s, j->in, &j->cut, 0, j->ins);
  lb_status st = lb_run_plan(j->s, j->c, r, j->ins, out, &plan);
  if (!lb_failed(st))
    st = hold_results(j, plan, first_item(&j->cut, 1), out, &all);
  lb_plan_release(plan);
  LB_TRY(st);
  if (!all) return lb_run_region(j->s, j->c, r, j->in, out);
  // What is counted of a run, and told of it, is one thread's to write.
  bool lanes = j->cut.lanes > 1 && !j->c->watcher && !j->c->budget->limit;
  if (lanes) LB_TRY(run_lanes(j));
  for (int64_t i = lanes ? j->cut.lanes * j->cut.each : 0;
       i < lb_microbatches_count(&j->cut); i++)
    LB_TRY(run_slice(j, j->c, i, 0));
  return LB_OK;
}

lb_status lb_microbatch_run(lb_session *s, lb_context *c, const lb_tensor *in,
                            lb_output *out) {
  const lb_region *r = s->graph->main;
  job j = {.s = s, .c = c, .in = in, .out = out};
  if (c->bound) j.bound = *c->bound;
  if (count_items(s, in) < 2) return lb_run_region(s, c, r, in, out);
  lb_status st = lb_microbatch_cut(s, c, in, out, &j.cut);
  if (!lb_failed(st))
    st = lb_microbatches_count(&j.cut) > 1 ? run_slices(&j, out)
                                           : lb_run_region(s, c, r, in, out);
  lb_arena_reset(&c->keys);
  lb_arena_reset(&c->parts);
  return st;
}
