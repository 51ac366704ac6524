// session/run.c -- runs a region: signature, plan, stages, steps.
#include "session/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "device/reference/move.h"
#include "plan/memory.h"
#include "session/step_profiler.h"
#include "session/remote.h"
#include "session/microbatch.h"

// -- signatures --------------------------------------------------------------

typedef struct plan_key {  // in the context's keys arena
  char *data;
  size_t size;
  lb_content *contents;  // of the inputs, as guards found them; NULL: no guards
} plan_key;

static void put(plan_key *k, const void *p, size_t n) {
  memcpy(k->data + k->size, p, n);
  k->size += n;
}

static void put_dims(plan_key *k, const lb_tensor *t) {
  int32_t header[2] = {(int32_t)t->dtype, t->rank};
  put(k, header, sizeof header);
  put(k, t->dims, (size_t)t->rank * sizeof *t->dims);
}

static void put_strides(plan_key *k, int rank, const int64_t *strides) {
  put(k, strides, (size_t)rank * sizeof *strides);
}

// Contents that decide shapes; otherwise the strides of inputs that are not
// dense, as a plan depends on them.
static void put_input(plan_key *k, const lb_program *prog,
                      const lb_value *param, const lb_tensor *t) {
  put_dims(k, t);
  if (lb_program_reads(prog, param, t)) {
    lb_tensor dense = *t;
    lb_tensor_dense(&dense);
    dense.data = k->data + k->size;
    lb_tensor_copy(t, &dense);
    k->size += lb_tensor_bytes(t);
    return;
  }
  char strided = !lb_tensor_is_dense(t);
  put(k, &strided, 1);
  if (strided) put_strides(k, t->rank, t->strides);
}

static void put_output(plan_key *k, const lb_output *o) {
  char rank = (char)(!o->wanted ? -2 : o->strides ? o->rank : -1);
  put(k, &rank, 1);
  if (rank > 0) put_strides(k, rank, o->strides);
}

// Checks the guards of the inputs; what they find is part of the key.
static lb_status put_contents(plan_key *k, lb_context *c, const lb_region *r,
                              const lb_tensor *in) {
  const lb_program *prog = c->program;
  k->contents = lb_arena_new(&c->keys, lb_content, r->n_params);
  if (!k->contents) return lb_oom();
  for (uint32_t i = 0; i < r->n_params; i++) {
    if (prog->guards[i].kind == LB_CONTENT_ANY ||
        lb_program_reads(prog, r->params[i], &in[i]))
      continue;
    k->contents[i] = lb_guard_check(&prog->guards[i], &in[i]);
    put(k, &k->contents[i], sizeof *k->contents);
  }
  return LB_OK;
}

// Program version, region, wanted results with their strides, and the shapes,
// strides, deciding and guarded contents of the inputs.
static lb_status first_key(lb_context *c, const lb_region *r,
                           const lb_tensor *in, const lb_output *outputs,
                           plan_key *out) {
  const lb_program *prog = c->program;
  bool guarded = prog->n_guards && r == prog->graph->main;
  size_t size = sizeof prog->version + sizeof r;
  if (guarded) size += prog->n_guards * sizeof(lb_content);
  for (uint32_t i = 0; i < r->n_results; i++)
    size += 1 + (outputs[i].strides ? sizeof in->strides : 0);
  for (uint32_t i = 0; i < r->n_params; i++) {
    size += 9 + sizeof in->dims + sizeof in->strides;
    if (lb_program_reads(prog, r->params[i], &in[i]))
      size += lb_tensor_bytes(&in[i]);
  }
  *out = (plan_key){.data = lb_arena_alloc(&c->keys, size, 1)};
  if (!out->data) return lb_oom();
  put(out, &prog->version, sizeof prog->version);
  put(out, &r, sizeof r);
  for (uint32_t i = 0; i < r->n_results; i++) put_output(out, &outputs[i]);
  for (uint32_t i = 0; i < r->n_params; i++)
    put_input(out, prog, r->params[i], &in[i]);
  return guarded ? put_contents(out, c, r, in) : LB_OK;
}

// The plan of the stage before, whose serial is unique in the session, and its
// stage results.
static lb_status next_key(lb_context *c, const lb_plan *plan,
                          const lb_tensor *values, plan_key *out) {
  size_t size = sizeof plan->serial;
  for (uint32_t i = 0; i < plan->n_stage_results; i++)
    size += 8 + sizeof values[i].dims +
            (plan->stage_results[i].kind == LB_STAGE_RESULT_CONTENTS
                 ? lb_tensor_bytes(&values[i])
                 : 0);
  *out = (plan_key){.data = lb_arena_alloc(&c->keys, size, 1)};
  if (!out->data) return lb_oom();
  put(out, &plan->serial, sizeof plan->serial);
  for (uint32_t i = 0; i < plan->n_stage_results; i++) {
    put_dims(out, &values[i]);
    if (plan->stage_results[i].kind == LB_STAGE_RESULT_CONTENTS)
      put(out, values[i].data, lb_tensor_bytes(&values[i]));
  }
  return LB_OK;
}

// -- steps -------------------------------------------------------------------

typedef struct frame {  // a region in progress
  lb_session *s;
  lb_context *c;
  const lb_region *region;
  const lb_tensor *in;
  lb_output *out;
  lb_stream stream;
  bool remote;          // the device does not share memory
  const lb_step *step;  // the current one
  // The last launch without a kernel, and the step after its cover.
  const lb_step *covered_launch, *cover_end;
  uint32_t n_wiped;  // of the plan's wipes
} frame;

// Is the operand in the device's own memory?
static bool is_remote(const frame *f, const lb_step_operand *o) {
  return f->remote &&
         (o->storage == LB_STORAGE_ARENA || o->storage == LB_STORAGE_OUTPUT);
}

static char *result_at(const frame *f, uint32_t i) {
  return f->remote ? lb_remote_at(f->c, f->region->n_params + i)
                   : f->out[i].tensor.data;
}

static lb_tensor locate(const frame *f, const lb_step_operand *o) {
  lb_tensor t = *o->tensor;
  char *base = NULL;
  switch (o->storage) {
    case LB_STORAGE_NONE: return t;
    case LB_STORAGE_INPUT: base = f->in[o->index].data; break;
    case LB_STORAGE_OUTPUT: base = result_at(f, o->index); break;
    case LB_STORAGE_ARENA: base = lb_context_base(f->c); break;
    case LB_STORAGE_DYNAMIC: base = f->c->buffers[o->index].tensor.data; break;
  }
  t.data = base ? base + o->offset : NULL;
  return t;
}

#define POISON 0xff  // the bytes of a NaN of every float type, and of -1

// Overwrites memory that is about to be written, if memory is checked.
static void poison(const lb_session *s, void *data, size_t bytes) {
  if (s->options.checks & LB_CHECK_POISON) memset(data, POISON, bytes);
}

static lb_status grow(lb_reference_call *call, int i, int rank,
                      const int64_t *dims) {
  const frame *f = call->user;
  int64_t count;
  if (call->out[i].dtype == LB_NONE) return LB_OK;
  LB_TRY(lb_dims_count(rank, dims, &count));
  lb_tensor t = {.dtype = call->out[i].dtype, .rank = rank};
  memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
  uint32_t buffer = f->step->out[i].index;
  LB_TRY(lb_context_resize_buffer(f->c, buffer, &t, 0));
  call->out[i] = f->c->buffers[buffer].tensor;
  poison(f->s, call->out[i].data, lb_tensor_bytes(&t));
  return LB_OK;
}

static lb_status run_call(frame *f, lb_tensor *in, lb_tensor *out) {
  lb_reference_call call = {
      .node = f->step->node,
      .in = in,
      .out = out,
      .pool = f->c->pool,
      .scratch = &f->c->scratch,
      .seed = f->c->seed++,
      .grow = grow,
      .user = f,
  };
  return lb_reference_run(&call);
}

// Overwrites what holds no live value before a step. Values that begin in a
// cover that was skipped are left alone: its launch may have written them.
static void wipe(frame *f, const lb_plan *plan, const lb_step *step) {
  uint32_t at = (uint32_t)(step - plan->steps);
  char *arena = lb_context_base(f->c);
  for (; f->n_wiped < plan->n_wipes; f->n_wiped++) {
    const lb_wipe *w = &plan->wipes[f->n_wiped];
    if (w->step > at) return;
    if (!f->remote && (w->ended || w->step == at))
      memset(arena + w->offset, POISON, w->size);
  }
}

// A key/value cache whose window is an input, and a longer window an output:
// the elements that are already there need no copy.
static bool is_in_place(const lb_tensor *in, const lb_tensor *out) {
  if (in->data != out->data || in->rank != out->rank) return false;
  for (int i = 0; i < in->rank; i++)
    if (in->dims[i] != out->dims[i] ||
        (in->dims[i] > 1 && in->strides[i] != out->strides[i]))
      return false;
  return true;
}

// Runs a step in host memory. The caller resets the scratch arena.
static lb_status run_on_host(frame *f, lb_tensor *in, lb_tensor *out) {
  switch (f->step->kind) {
    case LB_STEP_CALL: return run_call(f, in, out);
    case LB_STEP_LOOP: return lb_run_loop(f->s, f->c, f->step, in);
    case LB_STEP_COPY:
      if (!is_in_place(&in[0], &out[0])) lb_move(f->c->pool, &in[0], &out[0]);
      return LB_OK;
    case LB_STEP_LAUNCH: return LB_OK;  // see try_launch
  }
  return LB_OK;
}

// Copies what the step has written to where launches read it.
static lb_status write_back(frame *f, const lb_tensor *out) {
  uint32_t first_buffer = f->region->n_params + f->region->n_results;
  for (uint32_t i = 0; i < f->step->n_out; i++) {
    const lb_step_operand *o = &f->step->out[i];
    if (o->storage == LB_STORAGE_DYNAMIC)
      LB_TRY(lb_remote_write(f->c, &f->stream, first_buffer + o->index,
                             &f->c->buffers[o->index].tensor));
    else if (is_remote(f, o))
      LB_TRY(lb_remote_unstage(&f->stream, &out[i], locate(f, o).data));
  }
  return LB_OK;
}

static lb_status run_staged(frame *f, lb_tensor *in, lb_tensor *out) {
  const lb_step *step = f->step;
  for (uint32_t i = 0; i < step->n_in; i++)
    if (is_remote(f, &step->in[i]))
      LB_TRY(lb_remote_stage(f->c, &f->stream, &in[i]));
  for (uint32_t i = 0; i < step->n_out; i++)
    if (is_remote(f, &step->out[i]))
      LB_TRY(lb_remote_stage(f->c, &f->stream, &out[i]));
  LB_TRY(run_on_host(f, in, out));
  return write_back(f, out);
}

static lb_status run_step(frame *f, const lb_step *step) {
  lb_tensor *in = f->c->operands, *out = in + step->n_in;
  f->step = step;
  for (uint32_t i = 0; i < step->n_in; i++) in[i] = locate(f, &step->in[i]);
  for (uint32_t i = 0; i < step->n_out; i++) out[i] = locate(f, &step->out[i]);
  lb_status st = f->remote ? run_staged(f, in, out) : run_on_host(f, in, out);
  lb_arena_reset(&f->c->scratch);
  return st;
}

// The name in the model, which may differ from the value's.
static const char *name_of(const lb_region *r, uint32_t result) {
  const lb_graph *g = r->graph;
  return r == g->main && g->output_names ? g->output_names[result]
                                         : r->results[result]->name;
}

lb_status lb_run_reserve_output(const lb_session *s, lb_context *c,
                                const lb_region *r, uint32_t result,
                                const lb_tensor *t, lb_output *out) {
  lb_budget *b = c->budget;
  lb_output *o = &out[result];
  size_t bytes = lb_tensor_bytes(t), before;
  if (o->strides) LB_TRY(lb_tensor_reach(t, &bytes, &before));
  bool allocates = !o->data || o->owned;
  if (allocates && (!o->data || bytes > o->cap)) {
    LB_TRY(lb_budget_check(b, bytes - o->cap));
    void *p = lb_alloc_get(c->results, bytes);
    if (!p)
      return lb_error(LB_OOM, "out of memory: %zu bytes for output '%s'", bytes,
                      name_of(r, result));
    lb_alloc_put(c->results, o->data);
    b->outputs += bytes - o->cap;
    *o = (lb_output){.wanted = true, .owned = true, .data = p, .cap = bytes};
  }
  char dims[128], strides[160] = "";
  if (bytes > o->cap)
    return lb_error(
        LB_INVALID,
        "output '%s' of %s%s%s%s needs %zu bytes, the buffer has %zu",
        name_of(r, result), lb_dtype_name(t->dtype),
        lb_dims_print(t->rank, t->dims, dims, sizeof dims),
        o->strides ? " with strides " : "",
        o->strides ? lb_dims_print(t->rank, t->strides, strides, sizeof strides)
                   : "",
        bytes, o->cap);
  o->tensor = *t;
  o->tensor.data = o->data;
  if (o->owned) poison(s, o->data, bytes);
  return LB_OK;
}

// Addresses that the launches of a stage refer to; they do not change during
// it.
static void fill_bases(const frame *f, const lb_plan *plan) {
  uintptr_t *base = f->c->bases;
  base[LB_BASE_NONE] = 0;
  base[LB_BASE_ARENA] = (uintptr_t)lb_context_base(f->c);
  base += LB_BASE_FIRST;
  size_t n =
      (size_t)f->region->n_params + f->region->n_results + plan->n_dynamic;
  for (size_t i = 0; f->remote && i < n; i++)
    *base++ = (uintptr_t)lb_remote_at(f->c, i);
  if (f->remote) return;
  for (uint32_t i = 0; i < f->region->n_params; i++)
    *base++ = (uintptr_t)f->in[i].data;
  for (uint32_t i = 0; i < f->region->n_results; i++)
    *base++ = (uintptr_t)f->out[i].tensor.data;
  for (uint32_t i = 0; i < plan->n_dynamic; i++)
    *base++ = (uintptr_t)f->c->buffers[i].tensor.data;
}

static lb_status bind_stage(frame *f, const lb_plan *plan) {
  size_t n_bases = LB_BASE_FIRST + (size_t)f->region->n_params +
                   f->region->n_results + plan->n_dynamic;
  LB_TRY(lb_context_arena(f->c, plan->arena_bytes));
  LB_TRY(lb_context_reserve_buffers(f->c, plan->n_dynamic));
  LB_TRY(lb_context_reserve_operands(f->c, plan->max_operands, n_bases));
  for (uint32_t i = 0; i < plan->n_binds; i++) {
    uint32_t result = plan->binds[i].result;
    LB_TRY(lb_run_reserve_output(f->s, f->c, f->region, result,
                                 &plan->binds[i].tensor, f->out));
    if (f->remote)
      LB_TRY(lb_remote_reserve(f->c, f->region->n_params + result,
                               &f->out[result].tensor));
  }
  fill_bases(f, plan);
  f->stream.bases = f->c->bases;
  f->stream.n_bases = n_bases;
  return LB_OK;
}

// For a step that covers a launch.
static lb_reason why_pending(const lb_step *launch) {
  for (const lb_launch *l = launch->launch; l; l = l->next)
    if (!lb_slot_kernel(l->slot) && atomic_load(&l->slot->failed))
      return lb_watch_fault(l->slot);
  return LB_REASON_PENDING;
}

static lb_status emit_step(const frame *f, const lb_plan *plan,
                           const lb_step *step, int64_t start, int64_t end) {
  const lb_watcher *w = f->c->watcher;
  lb_step_event e;
  if (!w || step->kind == LB_STEP_LOOP)
    return LB_OK;  // the steps of its body were reported
  lb_watch_step(step, &e);
  e.start_ns = start;
  e.end_ns = end;
  e.version = f->c->program->version;
  e.step = f->region->parent
               ? LB_NO_STEP
               : plan->first_step + (uint32_t)(step - plan->steps);
  if (f->covered_launch && step > f->covered_launch && step < f->cover_end)
    e.reason = why_pending(f->covered_launch);
  const lb_tensor *operands = f->c->operands;  // of this step
  if (step->kind == LB_STEP_COPY && is_in_place(&operands[0], &operands[1])) {
    e.reason = LB_REASON_IN_PLACE;
    e.bytes = 0;
  }
  return w->step(w->user, &e);
}

// The best kernel of a slot, or the built-in one for `without`; may be NULL.
static const lb_exec *kernel_of(const lb_slot *slot, const lb_slot *without) {
  return slot == without ? lb_slot_builtin(slot) : lb_slot_kernel(slot);
}

// *ran is false if a kernel is missing: then nothing was run.
static lb_status try_sequence(frame *f, const lb_step *step,
                              const lb_slot *without, bool *ran) {
  const lb_exec *execs[LB_MAX_SEQUENCE];
  lb_sequence s = {.first = step->launch,
                   .execs = execs,
                   .iterations = step->iterations,
                   .group_size = step->group_size,
                   .max_parallel_threads = step->max_parallel_threads};
  for (const lb_launch *l = step->launch; l; l = l->next)
    if (!(execs[s.n++] = kernel_of(l->slot, without))) return LB_OK;
  *ran = true;
  return lb_device_submit_sequence(&f->stream, &s);
}

// *ran is false if a kernel is missing: then the step's cover comes next. The
// compiled kernel of `without` is not used; NULL: all are.
static lb_status try_launch(frame *f, const lb_step *step,
                            const lb_slot *without, bool *ran) {
  *ran = false;
  for (const lb_launch *l = step->launch; l;
       l = step->iterations ? l->next : NULL)
    lb_slot_use(l->slot, f->c->reader);
  if (step->iterations) return try_sequence(f, step, without, ran);
  const lb_exec *kernel = kernel_of(step->launch->slot, without);
  if (!kernel) return LB_OK;
  *ran = true;
  return lb_device_submit(&f->stream, kernel, step->launch);
}

// The error of a run that is ended before or in a step; it says how far the run
// got.
static lb_status limits_error(const frame *f, const lb_plan *plan,
                              const lb_step *step) {
  uint32_t done = 0, all = 0;
  for (uint32_t i = 0; i < plan->n_steps; i++, all++) {
    if (plan->steps + i < step) done++;
    if (plan->steps[i].kind == LB_STEP_LAUNCH) i += plan->steps[i].skip;
  }
  char where[256], label[128] = "a copy";
  if (step->node) lb_node_label(step->node, label, sizeof label);
  int n = snprintf(where, sizeof where,
                   "at %s, after %" PRIu32 " of %" PRIu32 " steps", label, done,
                   all);
  if (plan->n_stage_results && n > 0 && (size_t)n < sizeof where)
    snprintf(where + n, sizeof where - (size_t)n,
             " of this stage; later ones depend on data");
  return lb_run_limits_error(f->c->limits, where);
}

// Runs one step. *next is the step to continue with; *covered is set if that is
// its cover.
static lb_status run_one(frame *f, const lb_plan *plan, const lb_step *step,
                         const lb_slot *without, const lb_step **next,
                         bool *covered) {
  lb_run_limits *limits = f->c->limits;
  *next = step + 1;
  *covered = false;
  if (limits && lb_run_limits_exceeded(limits))
    return limits_error(f, plan, step);
  if (plan->wipes) wipe(f, plan, step);
  if (step->kind != LB_STEP_LAUNCH) return run_step(f, step);
  bool ran;
  LB_TRY(try_launch(f, step, without, &ran));
  *covered = !ran;
  if (*covered) return LB_OK;
  *next += step->skip;
  return limits && limits->found ? limits_error(f, plan, step) : LB_OK;
}

// Times each step: for a watcher, or because slots are pending or on trial.
static lb_status run_profiled(frame *f, lb_plan *plan) {
  const lb_step *end = plan->steps + plan->n_steps, *next;
  lb_step_profiler profiler;
  bool covered;
  lb_step_profiler_begin(&profiler, f->s, f->c, plan);
  for (const lb_step *step = plan->steps; step < end; step = next) {
    int64_t start = lb_clock_ns();
    const lb_slot *without = lb_step_profiler_without(&profiler, step);
    LB_TRY(run_one(f, plan, step, without, &next, &covered));
    if (covered) {
      f->covered_launch = step;
      f->cover_end = next + step->skip;
      lb_step_profiler_cover(&profiler, step, start);
      continue;
    }
    int64_t stop = lb_clock_ns();
    lb_step_profiler_step(&profiler, step, start, stop);
    LB_TRY(emit_step(f, plan, step, start, stop));
  }
  lb_step_profiler_end(&profiler, plan);
  return LB_OK;
}

static lb_status run_steps(frame *f, lb_plan *plan) {
  lb_slots *slots = f->s->options.slots;
  f->covered_launch = NULL;  // it belongs to another plan
  f->n_wiped = 0;
  LB_TRY(bind_stage(f, plan));
  if (plan->n_steps == 0) return LB_OK;  // all results are constant
  if (slots)
    lb_lru_refresh(slots->lru, f->c->reader);  // no kernel is in use here
  if (f->c->watcher || lb_step_profiler_needed(f->s, plan))
    return run_profiled(f, plan);
  const lb_step *end = plan->steps + plan->n_steps, *next;
  bool covered;
  for (const lb_step *step = plan->steps; step < end; step = next)
    LB_TRY(run_one(f, plan, step, NULL, &next, &covered));
  return LB_OK;
}

// The device may use launches, kernels and memory of the stage until the stream
// has been waited for, also after a failure.
static lb_status run_stage(frame *f, lb_plan *plan) {
  lb_status st = run_steps(f, plan);
  lb_status waited = lb_device_wait(&f->stream);
  if (!lb_failed(st)) return waited;
  lb_status_drop(waited);
  return st;
}

// -- stages ------------------------------------------------------------------

static lb_status read_stage_results(frame *f, const lb_plan *plan,
                                    lb_tensor **out) {
  lb_tensor *values = *out =
      lb_arena_new(&f->c->keys, lb_tensor, plan->n_stage_results);
  if (!values) return lb_oom();
  for (uint32_t i = 0; i < plan->n_stage_results; i++) {
    const lb_stage_result *source_result = &plan->stage_results[i];
    if (source_result->kind == LB_STAGE_RESULT_DIMS) {
      values[i] = f->c->buffers[source_result->dynamic_buffer].tensor;
      continue;
    }
    lb_tensor from = locate(f, &source_result->source);
    if (is_remote(f, &source_result->source))
      LB_TRY(lb_remote_stage(f->c, &f->stream, &from));
    values[i] = from;
    lb_tensor_dense(&values[i]);
    values[i].data = lb_arena_alloc(&f->c->keys, lb_tensor_bytes(&from), 64);
    if (!values[i].data) return lb_oom();
    lb_tensor_copy(&from, &values[i]);
    lb_arena_reset(&f->c->scratch);
  }
  return LB_OK;
}

void lb_run_shapes(const lb_region *r, const lb_tensor *in, char *buf,
                   size_t cap) {
  size_t n = 0;
  *buf = 0;
  for (uint32_t i = 0; i < r->n_params; i++) {
    for (int k = -1; k < in[i].rank; k++) {
      if (n >= cap) return;
      int more = k < 0 ? snprintf(buf + n, cap - n, "%s%s=", i ? " " : "",
                                  r->params[i]->name)
                       : snprintf(buf + n, cap - n, "%s%" PRId64, k ? "x" : "",
                                  in[i].dims[k]);
      n += more > 0 ? (size_t)more : 0;
    }
  }
}

// Emits why kernels are specialised although reusable ones are preferred.
static void emit_specialised(const lb_session *s, const lb_plan *plan) {
  if (!s->options.reusable) return;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_launch *l = plan->steps[i].launch;
    if (l && !lb_facts_reusable(&l->slot->key.facts))
      lb_event_emit(s->options.events, KERNEL_REQUESTED, NEEDS_SPECIALISED,
                    "%s", lb_spec_needs_specialised(&l->slot->key.spec));
  }
}

static void emit_plan(const lb_session *s, const lb_region *r,
                      const lb_tensor *in, const lb_plan *plan, int64_t start) {
  lb_events *e = s->options.events;
  char shapes[LB_EVENT_TEXT];
  lb_run_shapes(r, in, shapes, sizeof shapes);
  emit_specialised(s, plan);
  if (plan->parent) {
    lb_event_emit_since(e, PLAN_BUILT, NEXT_STAGE, start, plan->n_steps, "%s",
                        shapes);
  } else {
    lb_event_emit_since(e, PLAN_BUILT, NEW_SHAPES, start, plan->n_steps, "%s",
                        shapes);
  }
}

static lb_status build_plan(lb_context *c, const lb_region *r,
                            const lb_tensor *in, const lb_content *contents,
                            const lb_output *outputs, lb_plan **out) {
  lb_want *want = lb_arena_new(&c->keys, lb_want, r->n_results);
  if (!want) return lb_oom();
  for (uint32_t i = 0; i < r->n_results; i++)
    want[i] = (lb_want){.wanted = outputs[i].wanted,
                        .rank = outputs[i].rank,
                        .strides = outputs[i].strides};
  return lb_plan_first(c->program, r, in, contents, want, &c->workspace, out);
}

lb_status lb_run_plan(lb_session *s, lb_context *c, const lb_region *r,
                      const lb_tensor *in, const lb_output *outputs,
                      lb_plan **out) {
  plan_key k;
  *out = NULL;
  LB_TRY(first_key(c, r, in, outputs, &k));
  if (c->last && c->last_size == k.size &&
      !memcmp(c->last_key, k.data, k.size)) {
    *out = lb_plan_retain(c->last);
    return LB_OK;
  }
  *out = lb_plans_get(&s->plans, k.data, k.size);
  if (!*out) {
    int64_t start = lb_event_start(s->options.events);
    LB_TRY(build_plan(c, r, in, k.contents, outputs, out));
    LB_TRY(lb_plans_put(&s->plans, k.data, k.size, out));
    if (r == s->graph->main) lb_microbatch_learn(s, in, *out);
    if (start) emit_plan(s, r, in, *out, start);
  }
  lb_context_cache_plan(c, k.data, k.size, *out);
  return LB_OK;
}

// Replaces *plan by the plan of the next stage.
static lb_status next_plan(frame *f, lb_plan **plan) {
  lb_tensor *values;
  plan_key k;
  LB_TRY(read_stage_results(f, *plan, &values));
  LB_TRY(next_key(f->c, *plan, values, &k));
  lb_plan *next = lb_plans_get(&f->s->plans, k.data, k.size);
  if (!next) {
    int64_t start = lb_event_start(f->s->options.events);
    LB_TRY(lb_plan_next(*plan, values, &f->c->workspace, &next));
    lb_status st = lb_plans_put(&f->s->plans, k.data, k.size, &next);
    if (lb_failed(st)) {
      lb_plan_release(next);
      return st;
    }
    if (start) emit_plan(f->s, f->region, f->in, next, start);
  }
  lb_plan_release(*plan);
  *plan = next;
  return LB_OK;
}

static lb_status write_inputs(frame *f) {
  for (uint32_t i = 0; f->remote && i < f->region->n_params; i++)
    LB_TRY(lb_remote_write(f->c, &f->stream, i, &f->in[i]));
  return LB_OK;
}

static lb_status read_results(frame *f) {
  for (uint32_t i = 0; f->remote && i < f->region->n_results; i++)
    if (f->out[i].wanted)
      LB_TRY(lb_remote_read(f->c, &f->stream, f->region->n_params + i,
                            &f->out[i].tensor));
  return lb_device_wait(&f->stream);
}

lb_status lb_run_region(lb_session *s, lb_context *c, const lb_region *r,
                        const lb_tensor *in, lb_output *out) {
  frame f = {
      .s = s,
      .c = c,
      .region = r,
      .in = in,
      .out = out,
      .stream = {.device = c->device, .pool = c->pool, .limits = c->limits},
      .remote = !lb_device_shares(c->device)};
  lb_plan *plan = NULL;
  lb_status st = lb_run_plan(s, c, r, in, out, &plan);
  if (!lb_failed(st)) st = write_inputs(&f);
  if (!lb_failed(st)) st = run_stage(&f, plan);
  while (!lb_failed(st) && plan->n_stage_results) {
    st = next_plan(&f, &plan);
    if (!lb_failed(st)) st = run_stage(&f, plan);
  }
  if (!lb_failed(st)) st = read_results(&f);
  const lb_watcher *w = r->parent ? NULL : c->watcher;
  if (!lb_failed(st) && w && w->done) st = w->done(w->user, plan);
  lb_plan_release(plan);
  lb_arena_reset(&c->keys);
  return st;
}
