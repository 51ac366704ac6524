// session/load_warmup.c -- plans and runs a model once while it is loaded.
#include "session/load_warmup.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/check.h"
#include "session/microbatch.h"

// Time for the warm-up, not counting prefaulting: a fraction of the loading
// time, within limits.
#define LOAD_FRACTION 4
#define MIN_NS INT64_C(2000000)
#define MAX_NS INT64_C(10000000)
#define MAX_BYTES ((size_t)4 << 20)       // of inputs, and of values
#define MAX_PREFAULTED ((size_t)8 << 20)  // of the values of a larger run
#define MEMORY_LIMIT (2 * MAX_BYTES)      // including data-dependent values

// Sizes to try for open dims, the most likely first. Some models accept only
// multiples of 32, or one height, or no fewer samples than a window has.
static const int64_t sizes[] = {32, 48, 64, 128, 256, 512, 1};
#define N_SIZES (sizeof sizes / sizeof *sizes)
#define LARGER 32  // factor on these, to see how memory grows

typedef struct warmup {
  lb_session *s;
  lb_context *c;
  lb_context *workers[LB_IDLE_CONTEXTS - 1];  // contexts of other threads
  int n_workers;
  size_t bytes;  // of values, for the largest run considered
  lb_run_limits limits;
  void *zeros;     // data of inputs; owned. NULL: they have no data
  lb_arena arena;  // separate from the context's, which a run resets
  lb_tensor *in;   // in the arena, as is `out`
  lb_output *out;
  bool compared;  // some contents are constants that the model compares with
} warmup;

// -- guesses -----------------------------------------------------------------

static bool guess_dims(const lb_vinfo *info, lb_guess size, int64_t *env, int n,
                       lb_tensor *out, lb_open *open) {
  int64_t next = size.first;
  lb_open kind = LB_OPEN_FIRST;
  int symbol;
  for (int k = 0; k < info->rank; k++) {
    if (!lb_dim_as_symbol(info->dims[k], &symbol) || symbol >= n) continue;
    if (env[symbol] < 0) {
      env[symbol] = next;
      if (kind > *open) *open = kind;
    }
    next = size.others;
    kind = LB_OPEN_OTHERS;
  }
  for (int k = 0; k < info->rank; k++)
    if (!lb_dim_try_eval(info->dims[k], env, n, &out->dims[k])) return false;
  return true;
}

bool lb_load_warmup_guess(const lb_session *s, lb_guess size, lb_tensor *out,
                          lb_open *open) {
  const lb_region *r = s->graph->main;
  int n = lb_symtab_count(s->graph->syms);
  int64_t *env = malloc((size_t)(n + 1) * sizeof *env);
  bool ok = env != NULL;
  *open = LB_OPEN_NONE;
  for (int i = 0; ok && i < n; i++) env[i] = -1;
  for (uint32_t i = 0; ok && i < r->n_params; i++) {
    const lb_vinfo *info = &r->params[i]->info;
    out[i] = (lb_tensor){.dtype = info->dtype, .rank = info->rank};
    ok = info->dtype != LB_NONE && info->rank >= 0 &&
         guess_dims(info, size, env, n, &out[i], open);
    if (ok) lb_tensor_dense(&out[i]);
  }
  free(env);
  return ok;
}

// A constant that the model compares this input with, or NULL.
static const lb_tensor *compared_with(const lb_region *r, const lb_value *v) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    if (n->op != LB_OP_Equal || (n->in[0] != v && n->in[1] != v)) continue;
    const lb_tensor *t = lb_value_const(n->in[n->in[0] == v]);
    if (t && t->dtype == v->info.dtype && lb_tensor_count(t) > 0) return t;
  }
  return NULL;
}

static void put_one(lb_dtype type, void *to) {
  switch (type) {
    case LB_F32: memcpy(to, &(float){1}, 4); break;
    case LB_F64: memcpy(to, &(double){1}, 8); break;
    case LB_F16: memcpy(to, &(uint16_t){lb_f32_to_f16(1)}, 2); break;
    case LB_BF16: memcpy(to, &(uint16_t){lb_f32_to_bf16(1)}, 2); break;
    default: memcpy(to, &(uint64_t){1}, lb_dtype_size(type)); break;
  }
}

// Contents that decide shapes or branches are 1, or the constant that the model
// compares them with.
static bool guess_contents(warmup *w, uint32_t i, bool compare) {
  const lb_region *r = w->s->graph->main;
  lb_tensor *t = &w->in[i];
  size_t size = lb_dtype_size(t->dtype);
  const lb_tensor *like = compare ? compared_with(r, r->params[i]) : NULL;
  char *to = t->data = lb_arena_alloc(&w->arena, lb_tensor_bytes(t), 16);
  w->compared |= like != NULL;
  for (int64_t k = lb_tensor_count(t); to && k-- > 0; to += size) {
    if (like)
      memcpy(to, like->data, size);
    else
      put_one(t->dtype, to);
  }
  return t->data != NULL;
}

// All other contents are zeros, shared by all inputs because a run does not
// write to inputs. Without data if that would be too many bytes.
static bool fill(warmup *w, bool compare) {
  const lb_region *r = w->s->graph->main;
  size_t most = 0;
  for (uint32_t i = 0; i < r->n_params; i++) {
    size_t bytes = lb_tensor_bytes(&w->in[i]);
    if (lb_program_reads(w->c->program, r->params[i], &w->in[i])) {
      if (!guess_contents(w, i, compare)) return false;
    } else if (bytes > most) {
      most = bytes;
    }
  }
  free(w->zeros);
  w->zeros = most <= MAX_BYTES ? calloc(1, most + 1) : NULL;
  for (uint32_t i = 0; i < r->n_params; i++)
    if (!w->in[i].data) w->in[i].data = w->zeros;
  return true;
}

// Sets inputs of these sizes; false if the model does not accept them.
static bool guess(warmup *w, lb_guess size, bool compare, lb_open *open) {
  if (!lb_load_warmup_guess(w->s, size, w->in, open)) return false;
  lb_status st = lb_check_inputs(w->s->graph, w->in);
  bool taken = !lb_failed(st);
  lb_status_drop(st);
  return taken && fill(w, compare);
}

// -- cost of a run -----------------------------------------------------------

static size_t bytes_of(const lb_step_operand *list, uint32_t n) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; i++)
    if (list[i].storage != LB_STORAGE_NONE)
      bytes += lb_tensor_bytes(list[i].tensor);
  return bytes;
}

// Per nanosecond, a core does about 50 operations and moves 10 bytes with a
// kernel, and 1 and 1 without. A reference kernel may read only a few bytes of
// its constants.
static double cost_of(const lb_step *step) {
  lb_step_event e;
  if (step->kind != LB_STEP_LAUNCH)
    return (double)(bytes_of(step->in, step->n_in) +
                    bytes_of(step->out, step->n_out));
  lb_watch_step(step, &e);
  if (e.tier == LB_TIER_REFERENCE) return (double)e.flops + (double)e.bytes;
  return (double)e.flops / 50 + (double)e.bytes / 10;
}

// A step cannot be interrupted, so none may take longer than all the time left.
static bool is_cheap(const warmup *w, const lb_plan *plan) {
  double left = (double)(w->limits.deadline_ns - lb_clock_ns());
  if (!w->zeros || plan->arena_bytes > MAX_BYTES) return false;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    if (cost_of(&plan->steps[i]) > left) return false;
    if (plan->steps[i].kind == LB_STEP_LAUNCH) i += plan->steps[i].skip;
  }
  return left > 0;
}

// -- warm-up -----------------------------------------------------------------

static void run(warmup *w) {
  lb_session *s = w->s;
  size_t limit = s->options.memory_limit;
  lb_lru *lru = s->options.slots ? s->options.slots->lru : NULL;
  w->c->limits = &w->limits;
  lb_context_begin(w->c, limit && limit < MEMORY_LIMIT ? limit : MEMORY_LIMIT);
  lb_pool_enter(s->options.pool);
  lb_lru_enter(lru, w->c->reader);
  lb_status_drop(lb_run_region(s, w->c, s->graph->main, w->in, w->out));
  lb_lru_leave(lru, w->c->reader);
  lb_pool_leave(s->options.pool);
  for (uint32_t i = 0; i < s->graph->main->n_results; i++)
    lb_output_free(s, &w->out[i]);
}

// A plan for these inputs, or NULL.
static lb_plan *try_plan(warmup *w) {
  lb_session *s = w->s;
  lb_plan *plan = NULL;
  lb_status st = lb_run_plan(s, w->c, s->graph->main, w->in, w->out, &plan);
  if (lb_failed(st)) {
    lb_status_drop(st);
    lb_plan_release(plan);
    plan = NULL;
  }
  return plan;
}

static void note_bytes(warmup *w, size_t bytes) {
  if (bytes > w->bytes) w->bytes = bytes;
}

// Requests are usually larger. Planning larger ones looks up their specs, and
// shows how much memory they need. Some models have a maximum (positions with
// an embedding, a fixed feature-map height); then only one dim, or the batch,
// may grow.
static void plan_larger(warmup *w, size_t small, int64_t size, bool compare,
                        lb_open open) {
  size_t bytes = lb_mul_sat(small, LARGER);
  for (int64_t times = LARGER; times > 1; times /= 4) {
    lb_guess larger = {open == LB_OPEN_FIRST ? times * size : 1, times * size};
    lb_open same;
    lb_plan *plan = guess(w, larger, compare, &same) ? try_plan(w) : NULL;
    if (!plan) continue;
    bytes = lb_mul_sat(plan->arena_bytes, (size_t)(LARGER / times));
    lb_plan_release(plan);
    break;
  }
  note_bytes(w, bytes);
}

// True if the model accepts these dims.
static bool attempt(warmup *w, lb_guess size, bool compare, lb_open *open) {
  if (!guess(w, size, compare, open)) return false;
  lb_plan *plan = try_plan(w);
  if (!plan) return false;
  if (is_cheap(w, plan)) run(w);
  if (*open == LB_OPEN_NONE)
    note_bytes(w, plan->arena_bytes);
  else
    plan_larger(w, plan->arena_bytes, size.others, compare, *open);
  lb_plan_release(plan);
  return true;
}

static bool begin(warmup *w) {
  const lb_region *r = w->s->graph->main;
  lb_arena *a = &w->arena;
  lb_arena_init(a, 4 << 10);
  w->in = lb_arena_new(a, lb_tensor, r->n_params);
  w->out = lb_arena_new(a, lb_output, r->n_results);
  if (!w->in || !w->out) return false;
  for (uint32_t i = 0; i < r->n_results; i++) w->out[i].wanted = true;
  return true;
}

// True if contents were compared with constants: other contents then take
// another branch.
static bool attempt_sizes(warmup *w, bool compare) {
  lb_open open = LB_OPEN_OTHERS;
  w->compared = false;
  for (size_t i = 0; i < N_SIZES; i++) {
    lb_guess size = {open == LB_OPEN_FIRST ? sizes[i] : 1, sizes[i]};
    if (attempt(w, size, compare, &open)) break;
    if (open == LB_OPEN_NONE || lb_run_limits_exceeded(&w->limits))
      return false;
  }
  return w->compared;
}

// -- memory ------------------------------------------------------------------

static void prefault_one(lb_context *c, size_t bytes) {
  lb_context_begin(c, 0);
  lb_context_prefault(c, bytes);
}

// For a batch that is split, other threads run micro-batches in contexts of
// their own.
static void prefault_workers(warmup *w) {
  const lb_session *s = w->s;
  size_t l2 = s->options.l2_bytes, left = MAX_PREFAULTED;
  size_t each = l2 > LB_LARGE_PAGE ? l2 : LB_LARGE_PAGE;
  int threads = s->batch && l2 ? lb_pool_threads(s->options.pool) : 1;
  if (w->bytes <= l2) return;  // probably no batch is split
  for (int i = 1; i < threads && i < LB_IDLE_CONTEXTS && each <= left; i++) {
    lb_context **c = &w->workers[w->n_workers];
    lb_status st = lb_session_take_context(w->s, w->c, c);
    w->n_workers += !lb_failed(st);
    if (!lb_failed(st)) prefault_one(*c, l2);
    lb_status_drop(st);
    left -= each;
  }
}

// Prefaults memory for values, unless it is the caller's or is freed after each
// run. No time limit applies: a request would have to wait for any page not
// faulted in here.
static void prefault(warmup *w) {
  const lb_session_options *o = &w->s->options;
  if ((o->alloc && o->alloc->alloc) || o->memory_limit || !w->bytes) return;
  prefault_one(w->c, w->bytes < MAX_PREFAULTED ? w->bytes : MAX_PREFAULTED);
  prefault_workers(w);
}

// Resets the session. Contexts keep their memory, and kernels that serve all
// requests stay wanted.
static void reset_session(lb_session *s) {
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++)
    lb_context_drop_plan(
        atomic_load_explicit(&s->idle[i], memory_order_relaxed));
  lb_plans_clear(&s->plans);
  atomic_store(&s->item_bytes, 0);
  atomic_store(&s->item_values, 0);
}

void lb_session_load_warmup(lb_session *s, int64_t loading_ns) {
  lb_session_options options = s->options;
  int64_t ns = loading_ns / LOAD_FRACTION, now = lb_clock_ns();
  if (ns < MIN_NS) ns = MIN_NS;
  if (ns > MAX_NS) ns = MAX_NS;
  warmup w = {.s = s, .limits = {.start_ns = now, .deadline_ns = now + ns}};
  lb_status st = lb_session_take_context(s, NULL, &w.c);
  if (lb_failed(st)) {
    lb_status_drop(st);
    return;
  }
  w.c->workspace.in_warmup = true;
  s->options.events = NULL;
  s->options.quiet = true;
  if (begin(&w) && attempt_sizes(&w, true)) attempt_sizes(&w, false);
  prefault(&w);
  lb_arena_reset(&w.c->keys);
  lb_arena_fini(&w.arena);
  free(w.zeros);
  w.c->workspace.in_warmup = false;
  lb_session_give_context(s, w.c);  // first, as the next run takes it
  for (int i = 0; i < w.n_workers; i++)
    lb_session_give_context(s, w.workers[i]);
  reset_session(s);
  s->options = options;
  if (options.service) lb_service_notify(options.service);
}
