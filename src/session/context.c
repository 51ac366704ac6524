// session/context.c -- buffers that only grow during a run.
#include "session/context.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096  // bytes; the smallest of any processor
#define MIN_TRIM_BYTES ((size_t)1 << 20)  // less memory than this is kept

lb_status lb_context_new(const lb_alloc *alloc, lb_device *device,
                         lb_context **out) {
  lb_context *c = *out = calloc(1, sizeof *c);
  if (!c) return lb_oom();
  c->alloc = alloc;
  c->device = device;
  c->budget = &c->own_budget;
  c->reader = &c->own_reader;
  lb_plan_workspace_init(&c->workspace);
  lb_arena_init(&c->scratch, 16 << 10);
  lb_arena_init(&c->keys, 4 << 10);
  lb_arena_init(&c->parts, 4 << 10);
  return LB_OK;
}

static void drop_remotes(lb_context *c) {
  for (size_t i = 0; i < c->n_remotes; i++)
    lb_device_free(c->device, c->alloc, c->remotes[i].data, c->remotes[i].cap);
  free(c->remotes);
  c->remotes = NULL;
  c->n_remotes = 0;
}

size_t lb_context_trim(lb_context *c) {
  size_t bytes = c->budget->kept;
  for (; c; c = c->inner) {
    bytes += c->scratch.used + c->keys.used + c->parts.used;
    bytes += lb_plan_workspace_bytes(&c->workspace);
    for (uint32_t i = 0; i < c->n_buffers; i++)
      lb_alloc_drop(c->alloc, c->buffers[i].tensor.data, c->buffers[i].cap);
    free(c->buffers);
    c->buffers = NULL;
    c->n_buffers = 0;
    free(c->operands);
    free(c->bases);
    c->operands = NULL;
    c->bases = NULL;
    c->n_operands = c->n_bases = 0;
    lb_plan_release(c->last);
    free(c->last_key);
    c->last = NULL;
    c->last_key = NULL;
    c->last_size = c->last_cap = 0;
    drop_remotes(c);
    lb_device_free(c->device, c->alloc, c->arena, c->arena_cap);
    c->arena = NULL;
    c->arena_cap = c->arena_kept = 0;
    c->underused_runs = 0;
    c->budget->kept = 0;
    lb_plan_workspace_fini(&c->workspace);  // it can be used again
    lb_arena_fini(&c->scratch);
    lb_arena_fini(&c->keys);
    lb_arena_fini(&c->parts);
  }
  return bytes;
}

void lb_context_free(lb_context *c) {
  if (c) lb_context_trim(c);
  while (c) {
    lb_context *inner = c->inner;
    free(c);
    c = inner;
  }
}

lb_status lb_context_inner(lb_context *c, lb_context **out) {
  if (!c->inner) LB_TRY(lb_context_new(c->alloc, c->device, &c->inner));
  c->inner->version = c->version;
  c->inner->program = c->program;
  c->inner->workspace.in_warmup = c->workspace.in_warmup;
  c->inner->budget = c->budget;
  c->inner->reader = c->reader;
  c->inner->watcher = c->watcher;
  c->inner->limits = c->limits;
  c->inner->pool = c->pool;
  c->inner->results = c->alloc;
  *out = c->inner;
  return LB_OK;
}

void lb_context_begin(lb_context *c, size_t limit) {
  if (limit && c->budget->kept) lb_context_trim(c);
  c->budget->limit = limit;
  c->budget->outputs = 0;
  for (; c; c = c->inner) {
    c->arena_used = 0;
    for (uint32_t i = 0; i < c->n_buffers; i++) c->buffers[i].used = 0;
  }
}

static size_t bytes_used(const lb_context *c) {
  size_t bytes = 0;
  for (; c; c = c->inner) {
    bytes += c->arena_used;
    for (uint32_t i = 0; i < c->n_buffers; i++) bytes += c->buffers[i].used;
  }
  return bytes;
}

size_t lb_context_end(lb_context *c) {
  size_t kept = c->budget->kept;
  if (kept < MIN_TRIM_BYTES || bytes_used(c) >= kept / 2) {
    c->underused_runs = 0;
    return 0;
  }
  return ++c->underused_runs < LB_UNDERUSED_RUNS ? 0 : lb_context_trim(c);
}

lb_status lb_budget_check(const lb_budget *b, size_t bytes) {
  size_t used = b->kept + b->outputs;
  if (!b->limit || (used <= b->limit && bytes <= b->limit - used)) return LB_OK;
  return lb_error(LB_OOM,
                  "this run has %zu bytes of values and needs %zu more, over "
                  "the memory limit of %zu",
                  used, bytes, b->limit);
}

static lb_status no_memory(size_t bytes) {
  return lb_error(LB_OOM, "out of memory: %zu bytes for values of this run",
                  bytes);
}

// Reserves more than `bytes`, so that slowly growing shapes do not move the
// arena each time, with all pages to fault in anew. Under a limit it reserves
// what the run needs.
static lb_status move_arena(lb_context *c, size_t bytes) {
  size_t cap = c->budget->limit ? bytes : lb_alloc_pages(c->alloc, bytes);
  void *p = lb_device_alloc(c->device, c->alloc, cap);
  if (!p && cap > bytes) p = lb_device_alloc(c->device, c->alloc, cap = bytes);
  if (!p) return no_memory(bytes);
  lb_stream q = {.device = c->device};
  lb_status st = lb_device_copy(&q, LB_COPY_WITHIN, p, c->arena, c->arena_used);
  lb_device_free(c->device, c->alloc, c->arena, c->arena_cap);
  c->arena = p;
  c->arena_cap = cap;
  return st;
}

lb_status lb_context_arena(lb_context *c, size_t bytes) {
  if (c->lends && bytes > c->lent_bytes)
    return lb_error(LB_INVALID,
                    "scratch: the run needs %zu bytes for values between its "
                    "steps, and has %zu",
                    bytes, c->lent_bytes);
  if (c->lends && lb_device_shares(c->device)) return LB_OK;
  if (bytes > c->arena_kept) {
    LB_TRY(lb_budget_check(c->budget, bytes - c->arena_kept));
    if (bytes > c->arena_cap) LB_TRY(move_arena(c, bytes));
    c->budget->kept += bytes - c->arena_kept;
    c->arena_kept = bytes;
  }
  if (bytes > c->arena_used) c->arena_used = bytes;
  return LB_OK;
}

void lb_context_prefault(lb_context *c, size_t bytes) {
  lb_status st = lb_context_arena(c, bytes);
  volatile char *to = lb_device_shares(c->device) ? c->arena : NULL;
  for (size_t at = 0; to && !lb_failed(st) && at < bytes; at += PAGE)
    to[at] = 0;
  lb_status_drop(st);
}

lb_status lb_context_reserve_buffers(lb_context *c, uint32_t n) {
  if (n <= c->n_buffers) return LB_OK;
  lb_dynamic_buffer *buffers = realloc(c->buffers, n * sizeof *buffers);
  if (!buffers) return lb_oom();
  memset(buffers + c->n_buffers, 0, (n - c->n_buffers) * sizeof *buffers);
  c->buffers = buffers;
  c->n_buffers = n;
  return LB_OK;
}

void lb_context_cache_plan(lb_context *c, const void *key, size_t size,
                           lb_plan *plan) {
  lb_plan_release(c->last);
  c->last = NULL;
  if (size > c->last_cap) {
    free(c->last_key);
    c->last_key = malloc(size);
    c->last_cap = c->last_key ? size : 0;
    if (!c->last_key) return;
  }
  memcpy(c->last_key, key, size);
  c->last_size = size;
  c->last = lb_plan_retain(plan);
}

void lb_context_drop_plan(lb_context *c) {
  for (; c; c = c->inner) {
    lb_plan_release(c->last);
    c->last = NULL;
  }
}

lb_status lb_context_reserve_operands(lb_context *c, size_t operands,
                                      size_t bases) {
  if (operands > c->n_operands) {
    free(c->operands);
    c->n_operands = 0;
    c->operands = malloc(operands * sizeof *c->operands);
    if (!c->operands) return lb_oom();
    c->n_operands = operands;
  }
  if (bases > c->n_bases) {
    free(c->bases);
    c->n_bases = 0;
    c->bases = malloc(bases * sizeof *c->bases);
    if (!c->bases) return lb_oom();
    c->n_bases = bases;
  }
  return LB_OK;
}

lb_status lb_context_resize_buffer(lb_context *c, uint32_t i,
                                   const lb_tensor *t, size_t spare) {
  lb_dynamic_buffer *o = &c->buffers[i];
  size_t bytes = lb_tensor_bytes(t), old = lb_tensor_bytes(&o->tensor);
  void *data = o->tensor.data;
  if (!data || bytes > o->cap) {
    size_t cap = bytes > SIZE_MAX - spare ? bytes : bytes + spare;
    LB_TRY(lb_budget_check(c->budget, cap - o->cap));
    void *p = lb_alloc_get(c->alloc, cap);
    if (!p) return no_memory(cap);
    if (data) memcpy(p, data, old < bytes ? old : bytes);
    lb_alloc_put(c->alloc, data);
    c->budget->kept += cap - o->cap;
    o->cap = cap;
    data = p;
  }
  if (bytes > o->used) o->used = bytes;
  o->tensor = *t;
  lb_tensor_dense(&o->tensor);
  o->tensor.data = data;
  return LB_OK;
}
