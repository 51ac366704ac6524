// session/ragged.c -- see ragged.h.
#include "session/ragged.h"

// In percent. Reading and writing rows, and a plan for each number of tokens,
// cost time too.
#define MIN_PADDING 10
// Values of fewer tokens are mostly padding of the values themselves.
#define ENOUGH_TOKENS 64

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
static bool suits_results(const lb_ragged *r, const lb_output *out) {
  for (uint32_t i = 0; i < r->graph->main->n_results; i++)
    if (out[i].wanted && r->differs[i]) return false;
  return true;
}

static lb_status make_dense(lb_context *c, lb_tensor *mask) {
  lb_tensor from = *mask;
  if (lb_tensor_is_dense(mask)) return LB_OK;
  lb_tensor_dense(mask);
  mask->data = lb_arena_alloc(&c->parts, lb_tensor_bytes(mask), 8);
  if (!mask->data) return lb_oom();
  lb_tensor_copy(&from, mask);
  return LB_OK;
}

lb_status lb_ragged_check(const lb_ragged *r, lb_context *c,
                          const lb_tensor *in, const lb_output *out,
                          lb_ragged_guard *guard) {
  lb_tensor mask = in[r->mask];
  lb_ragged_batch *b = &guard->batch;
  int64_t all = lb_tensor_count(&mask);
  *guard = (lb_ragged_guard){
      .batch = {.sequences = mask.dims[0], .length = mask.dims[1]}};
  if (all == 0 || !suits_results(r, out)) return LB_OK;
  LB_TRY(make_dense(c, &mask));
  uint8_t *valid = lb_arena_alloc(&c->parts, (size_t)all, 1);
  b->segments = lb_arena_new(&c->parts, int64_t, (size_t)b->sequences + 1);
  if (!valid || !b->segments) return lb_oom();
  guard->holds = read_mask(&mask, valid) && count_tokens(b, valid, r->first);
  if (!guard->holds) return LB_OK;
  guard->padding = (double)(all - b->tokens) / (double)all;
  guard->pays = guard->padding * 100 >= MIN_PADDING;
  if (!guard->pays) return LB_OK;
  b->rows = lb_arena_new(&c->parts, int64_t, (size_t)b->tokens);
  b->positions = lb_arena_new(&c->parts, int64_t, (size_t)b->tokens);
  if (!b->rows || !b->positions) return lb_oom();
  list_tokens(b, valid);
  return LB_OK;
}

// -- runs --------------------------------------------------------------------

lb_status lb_ragged_run_main(lb_session *s, lb_context *c, lb_program *program,
                             const lb_ragged_guard *guard, const lb_tensor *in,
                             lb_output *out, atomic_size_t *token_bytes) {
  lb_ragged_run r = {
      .s = s,
      .c = c,
      .program = program,
      .batch = &guard->batch,
      .in = in,
      .out = out,
      .token_bytes = atomic_load_explicit(token_bytes, memory_order_relaxed)};
  size_t bytes;
  bool ran;
  LB_TRY(lb_ragged_run_groups(&r, &ran));
  if (ran) return LB_OK;
  LB_TRY(lb_ragged_run_whole(&r, &bytes));
  if (guard->batch.tokens >= ENOUGH_TOKENS && bytes > r.token_bytes)
    atomic_store_explicit(token_bytes, bytes, memory_order_relaxed);
  return LB_OK;
}
