// session/ragged.c -- the guard of ragged batches, and their runs.
#include "session/ragged.h"

#include <stdlib.h>
#include <string.h>

#include "fuse/ragged.h"
#include "session/eval.h"

// A run has a tenth of padding or more, or it is that of the original: reading
// and writing rows, and a plan for each number of tokens, cost time too.
#define MIN_PADDING 10

typedef struct lb_ragged_version {
  lb_ragged ragged;
  lb_version *version;
  atomic_ullong runs;
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

typedef struct batch {
  int64_t sequences, length, tokens;
  uint8_t *valid;  // by position of all sequences
  int64_t *rows, *positions, *segments;
} batch;

// `valid` of all elements; false if one is neither 0 nor 1.
#define READ(T)                                   \
  for (int64_t i = 0; i < n; i++) {               \
    const T x = ((const T *)t->data)[i];          \
    valid[i] = x != 0;                            \
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

// False if a sequence has no token, or not the one that is selected.
static bool count_tokens(batch *b, bool first) {
  b->tokens = 0;
  for (int64_t i = 0; i < b->sequences; i++) {
    const uint8_t *valid = b->valid + i * b->length;
    int64_t n = 0;
    for (int64_t k = 0; k < b->length; k++) n += valid[k];
    if (n == 0 || (first && !valid[0])) return false;
    b->segments[i] = b->tokens;
    b->tokens += n;
  }
  b->segments[b->sequences] = b->tokens;
  return true;
}

static void list_tokens(batch *b) {
  int64_t at = 0;
  for (int64_t i = 0; i < b->sequences; i++)
    for (int64_t k = 0; k < b->length; k++) {
      if (!b->valid[i * b->length + k]) continue;
      b->rows[at] = i * b->length + k;
      b->positions[at++] = k;
    }
}

// Whether no wanted result differs from that of the original, and all results
// are dense.
static bool suits_results(const ragged_version *v, uint32_t n,
                          const lb_output *out) {
  for (uint32_t i = 0; i < n; i++)
    if (out[i].wanted && v->ragged.differs[i]) return false;
  return true;
}

static lb_status check(const ragged_version *v, lb_context *c,
                       const lb_tensor *mask, batch *b, bool *ok) {
  *b = (batch){.sequences = mask->dims[0], .length = mask->dims[1]};
  int64_t all = lb_tensor_count(mask);
  *ok = all > 0 && lb_tensor_is_dense(mask);
  if (!*ok) return LB_OK;
  b->valid = lb_arena_alloc(&c->parts, (size_t)all, 1);
  b->segments = lb_arena_new(&c->parts, int64_t, (size_t)b->sequences + 1);
  if (!b->valid || !b->segments) return lb_oom();
  *ok = read_mask(mask, b->valid) && count_tokens(b, v->ragged.first) &&
        (all - b->tokens) * MIN_PADDING >= all;
  if (!*ok) return LB_OK;
  b->rows = lb_arena_new(&c->parts, int64_t, (size_t)b->tokens);
  b->positions = lb_arena_new(&c->parts, int64_t, (size_t)b->tokens);
  if (!b->rows || !b->positions) return lb_oom();
  list_tokens(b);
  return LB_OK;
}

// -- runs --------------------------------------------------------------------

static lb_tensor vector(int64_t *v, int64_t n) {
  lb_tensor t = {.dtype = LB_I64, .rank = 1, .dims = {n}, .data = v};
  lb_tensor_dense(&t);
  return t;
}

static lb_status run_tokens(lb_session *s, ragged_version *v, lb_context *c,
                            const lb_tensor *in, const batch *b,
                            lb_output *out) {
  const lb_region *r = v->ragged.graph->main;
  uint32_t n = r->n_params - LB_RAGGED_PARAMS;
  lb_tensor *all = lb_arena_new(&c->parts, lb_tensor, r->n_params);
  lb_program *program = c->program;
  if (!all) return lb_oom();
  memcpy(all, in, n * sizeof *in);
  all[n + LB_RAGGED_ROWS] = vector(b->rows, b->tokens);
  all[n + LB_RAGGED_POSITIONS] = vector(b->positions, b->tokens);
  all[n + LB_RAGGED_SEGMENTS] = vector(b->segments, b->sequences + 1);
  c->program = v->version->program;
  lb_status st = lb_run_region(s, c, r, all, out);
  c->program = program;
  atomic_fetch_add_explicit(&v->runs, 1, memory_order_relaxed);
  return st;
}

lb_status lb_ragged_run(lb_session *s, lb_context *c, const lb_tensor *in,
                        lb_output *out, bool *ran) {
  ragged_version *v = s->ragged;
  batch b;
  *ran = false;
  if (!v || !suits_results(v, s->graph->main->n_results, out)) return LB_OK;
  lb_status st = check(v, c, &in[v->ragged.mask], &b, ran);
  if (!lb_failed(st) && *ran) st = run_tokens(s, v, c, in, &b, out);
  lb_arena_reset(&c->parts);
  return st;
}
