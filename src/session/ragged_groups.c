// session/ragged_groups.c -- divides a ragged batch, and assembles its results.
#include "session/ragged_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/caller.h"
#include "fuse/ragged.h"

#define MAX_GROUPS 256
// A thread may have this share (in percent) more than its part of the tokens;
// sharing each step is as fast then.
#define MAX_EXCESS 12

// -- dividing ----------------------------------------------------------------

typedef struct division {
  int64_t first[MAX_GROUPS + 1];  // sequences
  int n;
} division;

// The first sequence that starts at this token or after it.
static int64_t sequence_at(const lb_ragged_batch *b, int64_t from,
                           int64_t token) {
  while (from < b->sequences && b->segments[from] < token) from++;
  if (from > 0 && from < b->sequences &&
      b->segments[from] - token > token - b->segments[from - 1])
    from--;
  return from;
}

static void divide(const lb_ragged_batch *b, int n, division *out) {
  out->n = 0;
  out->first[0] = 0;
  for (int i = 1; i <= n; i++) {
    int64_t at = i == n
                     ? b->sequences
                     : sequence_at(b, out->first[out->n],
                                   b->tokens / n * i + b->tokens % n * i / n);
    if (at > out->first[out->n]) out->first[++out->n] = at;
  }
}

// Threads take the next group when they have finished one.
static bool is_fair(const lb_ragged_batch *b, const division *d, int threads) {
  int64_t ends[64] = {0}, last = 0;
  if (threads > 64) return false;
  for (int i = 0; i < d->n; i++) {
    int next = 0;
    for (int k = 1; k < threads; k++)
      if (ends[k] < ends[next]) next = k;
    ends[next] += b->segments[d->first[i + 1]] - b->segments[d->first[i]];
    if (ends[next] > last) last = ends[next];
  }
  return last * threads * 100 <= b->tokens * (100 + MAX_EXCESS);
}

static bool find_division(const lb_ragged_run *r, division *out) {
  const lb_ragged_batch *b = r->batch;
  int threads = lb_pool_threads(r->c->pool);
  size_t l2 = r->s->options.l2_bytes;
  double bytes = (double)r->token_bytes * (double)b->tokens;
  double each = bytes / (double)l2 / threads;
  if (!l2 || !r->token_bytes || bytes <= (double)l2) return false;
  for (int i = each < 1 ? 1 : (int)(each + 0.5), tries = 0; tries < 3;
       i++, tries++) {
    if ((int64_t)i * threads > MAX_GROUPS ||
        (int64_t)i * threads > b->sequences)
      return false;
    divide(b, i * threads, out);
    if (out->n > 1 && is_fair(b, out, threads)) return true;
  }
  return false;
}

// -- inputs and outputs ------------------------------------------------------

static lb_tensor vector(int64_t *v, int64_t n) {
  lb_tensor t = {.dtype = LB_I64, .rank = 1, .dims = {n}, .data = v};
  lb_tensor_dense(&t);
  return t;
}

static void set_tokens(const lb_ragged_batch *b, lb_tensor *to) {
  to[LB_RAGGED_ROWS] = vector(b->rows, b->tokens);
  to[LB_RAGGED_POSITIONS] = vector(b->positions, b->tokens);
  to[LB_RAGGED_SEGMENTS] = vector(b->segments, b->sequences + 1);
}

static const lb_region *region_of(const lb_ragged_run *r) {
  return r->program->graph->main;
}

// Sequences [from, to) of a tensor of `all` sequences along axis 0.
static lb_tensor sequences(const lb_tensor *t, int64_t all, int64_t from,
                           int64_t to) {
  lb_tensor p = *t;
  int64_t rows = t->dims[0] / all;
  p.dims[0] = rows * (to - from);
  if (p.data)
    p.data = (char *)p.data +
             rows * from * t->strides[0] * (int64_t)lb_dtype_size(t->dtype);
  return p;
}

// The tokens of sequences [from, to), as a batch of its own.
static lb_status take_group(lb_context *c, const lb_ragged_batch *b,
                            int64_t from, int64_t to, lb_ragged_batch *out) {
  int64_t begin = b->segments[from], n = b->segments[to] - begin;
  *out = (lb_ragged_batch){
      .sequences = to - from,
      .length = b->length,
      .tokens = n,
      .rows = lb_arena_new(&c->parts, int64_t, (size_t)n),
      .positions = b->positions + begin,
      .segments = lb_arena_new(&c->parts, int64_t, (size_t)(to - from) + 1)};
  if (!out->rows || !out->segments) return lb_oom();
  for (int64_t i = 0; i < n; i++)
    out->rows[i] = b->rows[begin + i] - from * b->length;
  for (int64_t i = 0; i <= to - from; i++)
    out->segments[i] = b->segments[from + i] - begin;
  return LB_OK;
}

// -- runs --------------------------------------------------------------------

// Runs the rewritten graph in a context of the session's version.
static lb_status run_region(const lb_ragged_run *r, lb_context *c,
                            const lb_tensor *in, lb_output *out) {
  lb_program *program = c->program;
  c->program = r->program;
  lb_status st = lb_run_region(r->s, c, region_of(r), in, out);
  c->program = program;
  return st;
}

lb_status lb_ragged_run_whole(lb_ragged_run *r, size_t *token_bytes) {
  uint32_t n = region_of(r)->n_params;
  lb_tensor *in = lb_arena_new(&r->c->parts, lb_tensor, n);
  if (!in) return lb_oom();
  memcpy(in, r->in, (n - LB_RAGGED_PARAMS) * sizeof *in);
  set_tokens(r->batch, in + n - LB_RAGGED_PARAMS);
  LB_TRY(run_region(r, r->c, in, r->out));
  *token_bytes = r->c->arena_used / (size_t)r->batch->tokens;
  return LB_OK;
}

typedef struct group_runs {
  const lb_ragged_run *run;
  const division *division;
  lb_ragged_batch *groups;
  lb_run_limits limits;  // a copy made when the run began, if it has limits
  // Per thread: a context (except for the caller), inputs and outputs. Per
  // group: its status.
  lb_context **contexts;
  lb_tensor *ins;
  lb_output *outs;
  lb_status *statuses;
  atomic_bool failed;
} group_runs;

static void group_inputs(const group_runs *j, int64_t i, lb_tensor *in) {
  const lb_ragged_run *r = j->run;
  uint32_t n = region_of(r)->n_params - LB_RAGGED_PARAMS;
  for (uint32_t k = 0; k < n; k++)
    in[k] = r->s->batch[k]
                ? sequences(&r->in[k], r->batch->sequences,
                            j->division->first[i], j->division->first[i + 1])
                : r->in[k];
  set_tokens(&j->groups[i], in + n);
}

static lb_status run_group(group_runs *j, lb_context *c, int64_t i,
                           int worker) {
  const lb_region *r = region_of(j->run);
  lb_tensor *in = j->ins + (size_t)worker * r->n_params;
  lb_output *out = j->outs + (size_t)worker * r->n_results;
  size_t before;
  group_inputs(j, i, in);
  for (uint32_t k = 0; k < r->n_results; k++) {
    const lb_output *all = &j->run->out[k];
    out[k] = (lb_output){
        .wanted = all->wanted, .rank = all->rank, .strides = all->strides};
    if (!all->wanted) continue;
    lb_tensor t = sequences(&all->tensor, j->run->batch->sequences,
                            j->division->first[i], j->division->first[i + 1]);
    out[k].data = t.data;
    LB_TRY(lb_tensor_reach(&t, &out[k].cap, &before));
  }
  return run_region(j->run, c, in, out);
}

static lb_status run_in_own_context(group_runs *j, int64_t i, int worker) {
  const lb_ragged_run *r = j->run;
  lb_lru *lru = r->s->options.slots->lru;
  lb_context **c = &j->contexts[worker];
  lb_run_limits limits = j->limits;
  if (!*c) LB_TRY(lb_session_take_context(r->s, r->c, c));
  (*c)->limits = r->c->limits ? &limits : NULL;
  (*c)->run = r->c->run;
  (*c)->pool = r->c->pool;
  lb_context_begin(*c, 0);
  lb_lru_enter(lru, (*c)->reader);
  lb_caller_enter();
  lb_status st = run_group(j, *c, i, worker);
  lb_caller_leave();
  lb_lru_leave(lru, (*c)->reader);
  return st;
}

static void run_range(void *user, int64_t begin, int64_t end, int worker) {
  group_runs *j = user;
  for (int64_t i = begin; i < end && !atomic_load(&j->failed); i++) {
    j->statuses[i] = worker ? run_in_own_context(j, i, worker)
                            : run_group(j, j->run->c, i, 0);
    if (lb_failed(j->statuses[i])) atomic_store(&j->failed, true);
  }
}

static lb_status run_all(group_runs *j) {
  lb_pool *pool = j->run->c->pool;
  lb_status st = LB_OK;
  lb_pool_for(pool, j->division->n, 1, run_range, j);
  for (int i = 0; i < lb_pool_threads(pool); i++)
    if (j->contexts[i]) lb_session_give_context(j->run->s, j->contexts[i]);
  for (int i = 0; i < j->division->n; i++) {
    if (lb_failed(st))
      lb_status_drop(j->statuses[i]);
    else
      st = j->statuses[i];
  }
  if (lb_failed(st) && j->run->c->limits)
    lb_run_limits_exceeded(j->run->c->limits);
  return st;
}

// Allocates the results of the whole batch; *all is false if the plan of the
// first group does not determine them.
static lb_status reserve_results(group_runs *j, bool *all) {
  const lb_ragged_run *r = j->run;
  const lb_region *region = region_of(r);
  lb_program *program = r->c->program;
  uint32_t wanted = 0;
  lb_plan *plan;
  group_inputs(j, 0, j->ins);
  r->c->program = r->program;
  lb_status st = lb_run_plan(r->s, r->c, region, j->ins, r->out, &plan);
  r->c->program = program;
  for (uint32_t i = 0; i < region->n_results; i++) wanted += r->out[i].wanted;
  *all = !lb_failed(st) && !plan->n_stage_results && plan->n_binds == wanted;
  for (uint32_t i = 0; *all && !lb_failed(st) && i < plan->n_binds; i++) {
    lb_tensor t = plan->binds[i].tensor;
    t.dims[0] = t.dims[0] / j->groups[0].sequences * r->batch->sequences;
    st = lb_run_reserve_output(r->s, r->c, region, plan->binds[i].result, &t,
                               r->out);
  }
  lb_plan_release(plan);
  lb_arena_reset(&r->c->keys);
  return st;
}

static lb_status prepare(group_runs *j) {
  const lb_ragged_run *r = j->run;
  const division *d = j->division;
  const lb_region *region = region_of(r);
  size_t threads = (size_t)lb_pool_threads(r->c->pool), n = (size_t)d->n;
  lb_arena *a = &r->c->parts;
  j->groups = lb_arena_new(a, lb_ragged_batch, n);
  j->contexts = lb_arena_new(a, lb_context *, threads);
  j->ins = lb_arena_new(a, lb_tensor, threads * region->n_params);
  j->outs = lb_arena_new(a, lb_output, threads * region->n_results);
  j->statuses = lb_arena_new(a, lb_status, n);
  if (!j->groups || !j->contexts || !j->ins || !j->outs || !j->statuses)
    return lb_oom();
  if (r->c->limits) j->limits = *r->c->limits;
  for (int i = 0; i < d->n; i++)
    LB_TRY(take_group(r->c, r->batch, d->first[i], d->first[i + 1],
                      &j->groups[i]));
  return LB_OK;
}

lb_status lb_ragged_run_groups(lb_ragged_run *r, bool *ran) {
  division d;
  // Budget and watcher may be used by one thread only.
  *ran = r->s->batch && !r->c->watcher && !r->c->budget->limit &&
         find_division(r, &d);
  if (!*ran) return LB_OK;
  group_runs j = {.run = r, .division = &d};
  LB_TRY(prepare(&j));
  LB_TRY(reserve_results(&j, ran));
  return *ran ? run_all(&j) : LB_OK;
}
