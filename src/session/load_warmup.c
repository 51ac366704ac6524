// session/load_warmup.c -- a run before the first one.
#include "session/load_warmup.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/check.h"
#include "session/microbatch.h"

// What it may take, but for memory that is touched: a share of what loading
// took, within bounds.
#define SHARE 4
#define LEAST_NS INT64_C(2000000)
#define MOST_NS INT64_C(10000000)
#define MOST_BYTES ((size_t)4 << 20)    // of inputs, and of values
#define MOST_TOUCHED ((size_t)8 << 20)  // of values of a larger run
#define LIMIT (2 * MOST_BYTES)          // with those that only the run tells

// Sizes of open dims, the likeliest first: some models take but multiples of
// 32, or one height, or no fewer samples than a window has.
static const int64_t sizes[] = {32, 48, 64, 128, 256, 512, 1};
#define N_SIZES (sizeof sizes / sizeof *sizes)
#define LARGER 32  // times these, to see how memory grows

typedef struct rehearsal {
  lb_session *s;
  lb_context *c;
  lb_context *lanes[LB_IDLE_CONTEXTS - 1];  // of other threads
  int n_lanes;
  size_t bytes;  // of values, of the largest run that was thought of
  lb_run_limits bound;
  void *zeros;     // for inputs; owned. NULL: they have no data
  lb_arena arena;  // not the context's: a run gives that memory back
  lb_tensor *in;   // there, as is `out`
  lb_output *out;
  bool compared;  // some contents are numbers that the model asks for
} rehearsal;

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

// A constant that the model holds this input against, or NULL.
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

// What decides shapes or branches is 1, or what the model asks for.
static bool guess_contents(rehearsal *h, uint32_t i, bool compare) {
  const lb_region *r = h->s->graph->main;
  lb_tensor *t = &h->in[i];
  size_t size = lb_dtype_size(t->dtype);
  const lb_tensor *like = compare ? compared_with(r, r->params[i]) : NULL;
  char *to = t->data = lb_arena_alloc(&h->arena, lb_tensor_bytes(t), 16);
  h->compared |= like != NULL;
  for (int64_t k = lb_tensor_count(t); to && k-- > 0; to += size) {
    if (like)
      memcpy(to, like->data, size);
    else
      put_one(t->dtype, to);
  }
  return t->data != NULL;
}

// All that decides nothing is zeros, the same ones for all inputs: a run does
// not write to those. None where that would be many bytes.
static bool fill(rehearsal *h, bool compare) {
  const lb_region *r = h->s->graph->main;
  size_t most = 0;
  for (uint32_t i = 0; i < r->n_params; i++) {
    size_t bytes = lb_tensor_bytes(&h->in[i]);
    if (lb_program_reads(h->c->program, r->params[i], &h->in[i])) {
      if (!guess_contents(h, i, compare)) return false;
    } else if (bytes > most) {
      most = bytes;
    }
  }
  free(h->zeros);
  h->zeros = most <= MOST_BYTES ? calloc(1, most + 1) : NULL;
  for (uint32_t i = 0; i < r->n_params; i++)
    if (!h->in[i].data) h->in[i].data = h->zeros;
  return true;
}

// Inputs of these sizes, if the model takes them.
static bool guess(rehearsal *h, lb_guess size, bool compare, lb_open *open) {
  if (!lb_load_warmup_guess(h->s, size, h->in, open)) return false;
  lb_status st = lb_check_inputs(h->s->graph, h->in);
  bool taken = !lb_failed(st);
  lb_status_drop(st);
  return taken && fill(h, compare);
}

// -- what a run would take ---------------------------------------------------

static size_t bytes_of(const lb_step_operand *list, uint32_t n) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; i++)
    if (list[i].place != LB_STORAGE_NONE)
      bytes += lb_tensor_bytes(list[i].tensor);
  return bytes;
}

// A core does about 50 operations with a kernel and one without, and moves 10
// bytes and one, in a nanosecond. Of constants a host kernel may need few.
static double cost_of(const lb_step *step) {
  lb_step_event e;
  if (step->kind != LB_STEP_LAUNCH)
    return (double)(bytes_of(step->in, step->n_in) +
                    bytes_of(step->out, step->n_out));
  lb_watch_step(step, &e);
  if (e.tier == LB_TIER_REFERENCE) return (double)e.flops + (double)e.bytes;
  return (double)e.flops / 50 + (double)e.bytes / 10;
}

// One step is not cut short: none may be as long as all may be.
static bool is_cheap(const rehearsal *h, const lb_plan *plan) {
  double left = (double)(h->bound.deadline_ns - lb_clock_ns());
  if (!h->zeros || plan->arena_bytes > MOST_BYTES) return false;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    if (cost_of(&plan->steps[i]) > left) return false;
    if (plan->steps[i].kind == LB_STEP_LAUNCH) i += plan->steps[i].skip;
  }
  return left > 0;
}

// -- rehearsing --------------------------------------------------------------

static void run(rehearsal *h) {
  lb_session *s = h->s;
  size_t limit = s->options.memory_limit;
  lb_lru *lru = s->options.slots ? s->options.slots->lru : NULL;
  h->c->bound = &h->bound;
  lb_context_begin(h->c, limit && limit < LIMIT ? limit : LIMIT);
  lb_pool_enter(s->options.pool);
  lb_lru_enter(lru, h->c->stay);
  lb_status_drop(lb_run_region(s, h->c, s->graph->main, h->in, h->out));
  lb_lru_leave(lru, h->c->stay);
  lb_pool_leave(s->options.pool);
  for (uint32_t i = 0; i < s->graph->main->n_results; i++)
    lb_output_free(s, &h->out[i]);
}

// A plan for these inputs, or NULL.
static lb_plan *try_plan(rehearsal *h) {
  lb_session *s = h->s;
  lb_plan *plan = NULL;
  lb_status st = lb_run_plan(s, h->c, s->graph->main, h->in, h->out, &plan);
  if (lb_failed(st)) {
    lb_status_drop(st);
    lb_plan_release(plan);
    plan = NULL;
  }
  return plan;
}

static void note_bytes(rehearsal *h, size_t bytes) {
  if (bytes > h->bytes) h->bytes = bytes;
}

// Requests are larger: what their plans look up is found, and so is how much
// memory they take. Some models end somewhere (positions that have an
// embedding, images of one height): then one dim may grow, or a batch.
static void look_ahead(rehearsal *h, size_t small, int64_t size, bool compare,
                       lb_open open) {
  size_t bytes = lb_mul_sat(small, LARGER);
  for (int64_t times = LARGER; times > 1; times /= 4) {
    lb_guess ahead = {open == LB_OPEN_FIRST ? times * size : 1, times * size};
    lb_open same;
    lb_plan *plan = guess(h, ahead, compare, &same) ? try_plan(h) : NULL;
    if (!plan) continue;
    bytes = lb_mul_sat(plan->arena_bytes, (size_t)(LARGER / times));
    lb_plan_release(plan);
    break;
  }
  note_bytes(h, bytes);
}

// True if the model takes these dims.
static bool attempt(rehearsal *h, lb_guess size, bool compare, lb_open *open) {
  if (!guess(h, size, compare, open)) return false;
  lb_plan *plan = try_plan(h);
  if (!plan) return false;
  if (is_cheap(h, plan)) run(h);
  if (*open == LB_OPEN_NONE)
    note_bytes(h, plan->arena_bytes);
  else
    look_ahead(h, plan->arena_bytes, size.others, compare, *open);
  lb_plan_release(plan);
  return true;
}

static bool begin(rehearsal *h) {
  const lb_region *r = h->s->graph->main;
  lb_arena *a = &h->arena;
  lb_arena_init(a, 4 << 10);
  h->in = lb_arena_new(a, lb_tensor, r->n_params);
  h->out = lb_arena_new(a, lb_output, r->n_results);
  if (!h->in || !h->out) return false;
  for (uint32_t i = 0; i < r->n_results; i++) h->out[i].wanted = true;
  return true;
}

// True if contents were compared: then others take another branch.
static bool attempt_sizes(rehearsal *h, bool compare) {
  lb_open open = LB_OPEN_OTHERS;
  h->compared = false;
  for (size_t i = 0; i < N_SIZES; i++) {
    lb_guess size = {open == LB_OPEN_FIRST ? sizes[i] : 1, sizes[i]};
    if (attempt(h, size, compare, &open)) break;
    if (open == LB_OPEN_NONE || lb_run_limits_exceeded(&h->bound)) return false;
  }
  return h->compared;
}

// -- memory ------------------------------------------------------------------

static void touch_one(lb_context *c, size_t bytes) {
  lb_context_begin(c, 0);
  lb_context_touch(c, bytes);
}

// Of a batch that is cut other threads run slices, in contexts of their own.
static void touch_lanes(rehearsal *h) {
  const lb_session *s = h->s;
  size_t near = s->options.near_bytes, left = MOST_TOUCHED;
  size_t each = near > LB_LARGE_PAGE ? near : LB_LARGE_PAGE;
  int threads = s->batch && near ? lb_pool_threads(s->options.pool) : 1;
  if (h->bytes <= near) return;  // no batch is cut, it seems
  for (int i = 1; i < threads && i < LB_IDLE_CONTEXTS && each <= left; i++) {
    lb_context **c = &h->lanes[h->n_lanes];
    lb_status st = lb_session_take_context(h->s, h->c, c);
    h->n_lanes += !lb_failed(st);
    if (!lb_failed(st)) touch_one(*c, near);
    lb_status_drop(st);
    left -= each;
  }
}

// Memory for values, as long as it is not the caller's, nor given back at once.
// No clock bounds it: what is not touched here a request has to wait for.
static void touch(rehearsal *h) {
  const lb_session_options *o = &h->s->options;
  if ((o->alloc && o->alloc->alloc) || o->memory_limit || !h->bytes) return;
  touch_one(h->c, h->bytes < MOST_TOUCHED ? h->bytes : MOST_TOUCHED);
  touch_lanes(h);
}

// As if nothing had been; contexts keep their memory, and kernels that were
// found to serve all requests stay wanted.
static void forget(lb_session *s) {
  for (int i = 0; i < LB_IDLE_CONTEXTS; i++)
    lb_context_forget(atomic_load_explicit(&s->idle[i], memory_order_relaxed));
  lb_plans_clear(&s->plans);
  atomic_store(&s->item_bytes, 0);
  atomic_store(&s->item_values, 0);
}

void lb_session_load_warmup(lb_session *s, int64_t loading_ns) {
  lb_session_options options = s->options;
  int64_t ns = loading_ns / SHARE, now = lb_clock_ns();
  if (ns < LEAST_NS) ns = LEAST_NS;
  if (ns > MOST_NS) ns = MOST_NS;
  rehearsal h = {.s = s, .bound = {.start_ns = now, .deadline_ns = now + ns}};
  lb_status st = lb_session_take_context(s, NULL, &h.c);
  if (lb_failed(st)) {
    lb_status_drop(st);
    return;
  }
  h.c->workspace.in_warmup = true;
  s->options.events = NULL;
  s->options.quiet = true;
  if (begin(&h) && attempt_sizes(&h, true)) attempt_sizes(&h, false);
  touch(&h);
  lb_arena_reset(&h.c->keys);
  lb_arena_fini(&h.arena);
  free(h.zeros);
  h.c->workspace.in_warmup = false;
  lb_session_give_context(s, h.c);  // first: the next run takes that
  for (int i = 0; i < h.n_lanes; i++) lb_session_give_context(s, h.lanes[i]);
  forget(s);
  s->options = options;
  if (options.service) lb_service_look(options.service);
}
