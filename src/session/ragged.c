// session/ragged.c -- the guard of ragged batches, and their runs.
#include "session/ragged.h"

#include <stdlib.h>
#include <string.h>

#include "fuse/ragged.h"
#include "session/eval.h"
#include "session/ragged_groups.h"

// A run has a tenth of padding or more, or it is that of the original: reading
// and writing rows, and a plan for each number of tokens, cost time too.
#define MIN_PADDING 10

// Values of fewer tokens are mostly padding of the values themselves.
#define ENOUGH_TOKENS 64

typedef struct lb_ragged_version {
  lb_ragged ragged;
  lb_version *version;
  atomic_ullong runs;
  atomic_size_t token_bytes;  // of values between steps; 0: not known yet
} ragged_version;

lb_status lb_ragged_version_new(lb_session *s, ragged_version **out) {
  const lb_session_options *o = &s->options;
  *out = NULL;
  if (o->fusion != LB_FUSION_LIVE || o->deterministic || !o->slots ||
      !lb_device_shares(o->slots->device))
    return LB_OK;
  ragged_version *v = calloc(1, sizeof *v);
  if (!v) return lb_oom();
  lb_status st = lb_ragged_find(s->graph, lb_eval_node, &v->ragged);
  if (!lb_failed(st) && v->ragged.graph)
    st = lb_version_build(s, v->ragged.graph, &(lb_partition_options){0},
                          &v->version);
  if (!lb_failed(st) && v->version) {
    *out = v;
    return st;
  }
  if (!lb_failed(st))
    lb_log_line(o->log, LB_LOG_DEBUG, "padding is not left out: %s",
                v->ragged.refusal);
  lb_ragged_version_free(s, v);
  return st;
}

void lb_ragged_version_free(lb_session *s, ragged_version *v) {
  if (!v) return;
  lb_session_release_version(s, v->version);
  lb_ragged_fini(&v->ragged);
  free(v);
}

uint64_t lb_ragged_version_runs(const ragged_version *v) {
  return v ? atomic_load(&v->runs) : 0;
}

// -- the guard ---------------------------------------------------------------

// `valid` of all elements; false if one is neither 0 nor 1.
#define READ(T)                                      \
  for (int64_t i = 0; i < n; i++) {                  \
    const T x = ((const T *)t->data)[i];             \
    valid[i] = x != 0;                               \
    others |= (uint8_t)(x != 0) & (uint8_t)(x != 1); \
  }

static bool read_mask(const lb_tensor *t, uint8_t *valid) {
  int64_t n = lb_tensor_count(t);
  uint8_t others = 0;
  switch (t->dtype) {
    case LB_I64: READ(int64_t) break;
    case LB_I32: READ(int32_t) break;
    case LB_F32: READ(float) break;
    case LB_BOOL: READ(uint8_t) break;
    default: return false;
  }
  return !others;
}

// False if there is no token, or not the one that is selected of each sequence.
static bool count_tokens(lb_ragged_batch *b, const uint8_t *valid, bool first) {
  b->tokens = 0;
  for (int64_t i = 0; i < b->sequences; i++, valid += b->length) {
    int64_t n = 0;
    for (int64_t k = 0; k < b->length; k++) n += valid[k];
    if (first && !valid[0]) return false;
    b->segments[i] = b->tokens;
    b->tokens += n;
  }
  b->segments[b->sequences] = b->tokens;
  return b->tokens > 0;
}

static void list_tokens(const lb_ragged_batch *b, const uint8_t *valid) {
  int64_t at = 0;
  for (int64_t i = 0; i < b->sequences; i++)
    for (int64_t k = 0; k < b->length; k++) {
      if (!valid[i * b->length + k]) continue;
      b->rows[at] = i * b->length + k;
      b->positions[at++] = k;
    }
}

// Whether no wanted result differs from that of the original.
static bool suits_results(const ragged_version *v, uint32_t n,
                          const lb_output *out) {
  for (uint32_t i = 0; i < n; i++)
    if (out[i].wanted && v->ragged.differs[i]) return false;
  return true;
}

static lb_status check(const ragged_version *v, lb_context *c,
                       const lb_tensor *mask, lb_ragged_batch *b, bool *ok) {
  *b = (lb_ragged_batch){.sequences = mask->dims[0], .length = mask->dims[1]};
  int64_t all = lb_tensor_count(mask);
  *ok = all > 0 && lb_tensor_is_dense(mask);
  if (!*ok) return LB_OK;
  uint8_t *valid = lb_arena_alloc(&c->parts, (size_t)all, 1);
  b->segments = lb_arena_new(&c->parts, int64_t, (size_t)b->sequences + 1);
  if (!valid || !b->segments) return lb_oom();
  *ok = read_mask(mask, valid) && count_tokens(b, valid, v->ragged.first) &&
        (all - b->tokens) * MIN_PADDING >= all;
  if (!*ok) return LB_OK;
  b->rows = lb_arena_new(&c->parts, int64_t, (size_t)b->tokens);
  b->positions = lb_arena_new(&c->parts, int64_t, (size_t)b->tokens);
  if (!b->rows || !b->positions) return lb_oom();
  list_tokens(b, valid);
  return LB_OK;
}

// -- runs --------------------------------------------------------------------

static lb_status run_tokens(lb_session *s, ragged_version *v, lb_context *c,
                            const lb_tensor *in, const lb_ragged_batch *b,
                            lb_output *out) {
  lb_ragged_run r = {.s = s,
                     .c = c,
                     .program = v->version->program,
                     .batch = b,
                     .in = in,
                     .out = out,
                     .token_bytes = atomic_load_explicit(&v->token_bytes,
                                                         memory_order_relaxed)};
  size_t token_bytes;
  bool ran;
  atomic_fetch_add_explicit(&v->runs, 1, memory_order_relaxed);
  LB_TRY(lb_ragged_run_groups(&r, &ran));
  if (ran) return LB_OK;
  LB_TRY(lb_ragged_run_whole(&r, &token_bytes));
  if (b->tokens >= ENOUGH_TOKENS && token_bytes > r.token_bytes)
    atomic_store_explicit(&v->token_bytes, token_bytes, memory_order_relaxed);
  return LB_OK;
}

lb_status lb_ragged_try(lb_session *s, lb_context *c, const lb_tensor *in,
                        lb_output *out, bool *ran) {
  ragged_version *v = s->ragged;
  lb_ragged_batch b;
  *ran = false;
  if (!v || !suits_results(v, s->graph->main->n_results, out)) return LB_OK;
  lb_status st = check(v, c, &in[v->ragged.mask], &b, ran);
  if (!lb_failed(st) && *ran) st = run_tokens(s, v, c, in, &b, out);
  lb_arena_reset(&c->parts);
  return st;
}
