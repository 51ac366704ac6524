// session/microbatch.c -- splits a batch, and assembles its results.
#include "session/microbatch.h"

#include "base/caller.h"

// The first batch is run whole if its inputs take less than 1 / WHOLE_FRACTION
// of the L2 cache, because learning from one item costs a plan.
#define WHOLE_FRACTION 64

// -- how many ----------------------------------------------------------------

// The number of items, or 0 if the batch cannot be split.
static int64_t count_items(const lb_session *s, const lb_tensor *in) {
  int64_t items = 0;
  if (!s->batch || !s->options.l2_bytes) return 0;
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

// Keeps the largest item, which is the most representative: values of small
// ones are padded.
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

// Bytes of values between steps, per item.
static double item_values(lb_session *s, const lb_tensor *in, int64_t items) {
  double item = (double)batch_bytes(s, in) / (double)items;
  return item *
         (double)atomic_load_explicit(&s->item_values, memory_order_relaxed) /
         (double)atomic_load_explicit(&s->item_bytes, memory_order_relaxed);
}

static lb_status learn_one(lb_session *s, lb_context *c, const lb_tensor *in,
                           const lb_output *outputs, int64_t items) {
  lb_microbatches single = {.items = items, .shared = items};
  lb_plan *plan;
  lb_tensor *one = lb_arena_new(&c->keys, lb_tensor, s->graph->main->n_params);
  if (!one) return lb_oom();
  lb_microbatch_inputs(s, in, &single, 0, one);
  lb_status st = lb_run_plan(s, c, s->graph->main, one, outputs, &plan);
  lb_plan_release(plan);
  return st;
}

// The number of micro-batches for `items`, if `fit` of them fit.
static int64_t count_microbatches(int64_t items, double fit) {
  if (fit >= (double)items) return items > 0;
  int64_t each = fit < 1 ? 1 : (int64_t)fit;
  return (items + each - 1) / each;
}

lb_status lb_microbatch_split(lb_session *s, lb_context *c, const lb_tensor *in,
                              const lb_output *outputs, lb_microbatches *out) {
  int64_t items = count_items(s, in);
  *out = (lb_microbatches){.items = items, .shared = 1};
  if (items < 2 || batch_bytes(s, in) == 0) return LB_OK;
  if (!atomic_load_explicit(&s->item_bytes, memory_order_relaxed)) {
    if (batch_bytes(s, in) < s->options.l2_bytes / WHOLE_FRACTION) return LB_OK;
    LB_TRY(learn_one(s, c, in, outputs, items));
  }
  int64_t threads = lb_pool_threads(c->pool);
  double fitting = (double)s->options.l2_bytes / item_values(s, in, items);
  if (fitting + 0.5 >= (double)items) return LB_OK;
  if (items >= threads) {
    out->workers = threads;
    out->per_worker = count_microbatches(items / threads, fitting + 0.5);
  }
  out->shared = count_microbatches(items - items / threads * threads,
                                   fitting * (double)threads + 0.5);
  return LB_OK;
}

// -- parts -------------------------------------------------------------------

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// The first item of part i of n; the longer parts come first.
static int64_t begin_of(int64_t items, int64_t n, int64_t i) {
  return items / n * i + at_most(i, items % n);
}

static int64_t first_item(const lb_microbatches *split, int64_t i) {
  int64_t on_workers = split->workers * split->per_worker;
  int64_t worker_items = split->workers ? split->items / split->workers : 0;
  if (i < on_workers)
    return i / split->per_worker * worker_items +
           begin_of(worker_items, split->per_worker, i % split->per_worker);
  int64_t left = split->items - split->workers * worker_items;
  return split->items - left +
         (split->shared ? begin_of(left, split->shared, i - on_workers) : 0);
}

// Items [from, to) of a tensor with `items` of them along axis 0.
static lb_tensor tensor_items(const lb_tensor *t, int64_t items, int64_t from,
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
                          const lb_microbatches *split, int64_t i,
                          lb_tensor *out) {
  for (uint32_t k = 0; k < s->graph->main->n_params; k++)
    out[k] = s->batch[k]
                 ? tensor_items(&in[k], split->items, first_item(split, i),
                                first_item(split, i + 1))
                 : in[k];
}

// -- runs --------------------------------------------------------------------

typedef struct job {
  lb_session *s;
  lb_context *c;         // of the whole run
  lb_run_limits limits;  // a copy made when the run began, if it has limits
  const lb_tensor *in;
  const lb_output *out;  // with memory for all results
  lb_microbatches split;
  // Per thread: a context (except for the caller), inputs and outputs. Per
  // micro-batch of a worker: its status.
  lb_context **contexts;
  lb_tensor *ins;
  lb_output *outs;
  lb_status *statuses;
  atomic_bool failed;
} job;

static lb_status run_microbatch(job *j, lb_context *c, int64_t i, int worker) {
  const lb_region *r = j->s->graph->main;
  lb_tensor *in = j->ins + (size_t)worker * r->n_params;
  lb_output *out = j->outs + (size_t)worker * r->n_results;
  size_t before;
  lb_microbatch_inputs(j->s, j->in, &j->split, i, in);
  for (uint32_t k = 0; k < r->n_results; k++) {
    out[k] = (lb_output){.wanted = j->out[k].wanted,
                         .rank = j->out[k].rank,
                         .strides = j->out[k].strides};
    if (!out[k].wanted) continue;
    lb_tensor t =
        tensor_items(&j->out[k].tensor, j->split.items,
                     first_item(&j->split, i), first_item(&j->split, i + 1));
    out[k].data = t.data;
    LB_TRY(lb_tensor_reach(&t, &out[k].cap, &before));
  }
  return lb_run_region(j->s, c, r, in, out);
}

// Other threads use contexts of their own; the caller uses that of the run.
static lb_status run_in_own_context(job *j, int64_t i, int worker) {
  lb_lru *lru = j->s->options.slots ? j->s->options.slots->lru : NULL;
  lb_context **c = &j->contexts[worker];
  lb_run_limits limits = j->limits;
  if (!*c) LB_TRY(lb_session_take_context(j->s, j->c, c));
  (*c)->limits = j->c->limits ? &limits : NULL;
  (*c)->run = j->c->run;
  (*c)->pool = j->c->pool;
  lb_context_begin(*c, 0);
  lb_lru_enter(lru, (*c)->reader);
  lb_caller_enter();
  lb_status st = run_microbatch(j, *c, i, worker);
  lb_caller_leave();
  lb_lru_leave(lru, (*c)->reader);
  return st;
}

static void run_range(void *user, int64_t begin, int64_t end, int worker) {
  job *j = user;
  for (int64_t i = begin; i < end && !atomic_load(&j->failed); i++) {
    j->statuses[i] = worker ? run_in_own_context(j, i, worker)
                            : run_microbatch(j, j->c, i, 0);
    if (lb_failed(j->statuses[i])) atomic_store(&j->failed, true);
  }
}

// Runs the micro-batches of the workers. Their steps do not use other threads:
// a pool job started inside a job runs on the same thread.
static lb_status run_on_workers(job *j) {
  lb_pool *pool = j->c->pool;
  int64_t n = j->split.workers * j->split.per_worker;
  lb_status st = LB_OK;
  lb_pool_for(pool, n, 1, run_range, j);
  for (int i = 0; i < lb_pool_threads(pool); i++)
    if (j->contexts[i]) lb_session_give_context(j->s, j->contexts[i]);
  for (int64_t i = 0; i < n; i++) {
    if (lb_failed(st))
      lb_status_drop(j->statuses[i]);
    else
      st = j->statuses[i];
  }
  if (lb_failed(st) && j->c->limits) lb_run_limits_exceeded(j->c->limits);
  return st;
}

// Allocates whole results; *all is false if the plan of a micro-batch does not
// determine them all.
static lb_status reserve_results(const job *j, const lb_plan *plan,
                                 int64_t items, lb_output *out, bool *all) {
  const lb_region *r = j->s->graph->main;
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < r->n_results; i++) wanted += out[i].wanted;
  *all = plan->n_stage_results == 0 && plan->n_binds == wanted;
  for (uint32_t i = 0; *all && i < plan->n_binds; i++) {
    lb_tensor t = plan->binds[i].tensor;
    t.dims[0] = t.dims[0] / items * j->split.items;
    LB_TRY(
        lb_run_reserve_output(j->s, j->c, r, plan->binds[i].result, &t, out));
  }
  return LB_OK;
}

static lb_status run_microbatches(job *j, lb_output *out) {
  const lb_region *r = j->s->graph->main;
  size_t threads = (size_t)lb_pool_threads(j->c->pool);
  lb_plan *plan;
  bool all = false;
  j->contexts = lb_arena_new(&j->c->parts, lb_context *, threads);
  j->ins = lb_arena_new(&j->c->parts, lb_tensor, threads * r->n_params);
  j->outs = lb_arena_new(&j->c->parts, lb_output, threads * r->n_results);
  j->statuses = lb_arena_new(&j->c->parts, lb_status,
                             (size_t)(j->split.workers * j->split.per_worker));
  if (!j->contexts || !j->ins || !j->outs || !j->statuses) return lb_oom();
  lb_microbatch_inputs(j->s, j->in, &j->split, 0, j->ins);
  lb_status st = lb_run_plan(j->s, j->c, r, j->ins, out, &plan);
  if (!lb_failed(st))
    st = reserve_results(j, plan, first_item(&j->split, 1), out, &all);
  lb_plan_release(plan);
  LB_TRY(st);
  if (!all) return lb_run_region(j->s, j->c, r, j->in, out);
  // Budget and watcher may be used by one thread only.
  bool workers = j->split.workers > 1 && !j->c->watcher && !j->c->budget->limit;
  if (workers) LB_TRY(run_on_workers(j));
  for (int64_t i = workers ? j->split.workers * j->split.per_worker : 0;
       i < lb_microbatches_count(&j->split); i++)
    LB_TRY(run_microbatch(j, j->c, i, 0));
  return LB_OK;
}

lb_status lb_microbatch_run(lb_session *s, lb_context *c, const lb_tensor *in,
                            lb_output *out) {
  const lb_region *r = s->graph->main;
  job j = {.s = s, .c = c, .in = in, .out = out};
  if (c->limits) j.limits = *c->limits;
  if (count_items(s, in) < 2) return lb_run_region(s, c, r, in, out);
  lb_status st = lb_microbatch_split(s, c, in, out, &j.split);
  if (!lb_failed(st))
    st = lb_microbatches_count(&j.split) > 1 ? run_microbatches(&j, out)
                                             : lb_run_region(s, c, r, in, out);
  lb_arena_reset(&c->keys);
  lb_arena_reset(&c->parts);
  return st;
}
