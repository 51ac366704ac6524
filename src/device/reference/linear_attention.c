// device/reference/linear_attention.c -- LinearAttention and RotaryEmbedding.
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"

// -- LinearAttention ---------------------------------------------------------
//
// Each key head carries a state [dk, dv] from token to token:
//   state *= exp(decay);  v = beta * (v - state^T k);  state += k v^T;
//   y = scale * q^T state
// The decay applies to gated rules only, the update of v to delta rules only.

enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };

typedef struct linear {
  int64_t batch, tokens, q_heads, kv_heads, dk, dv;
  int64_t decays, betas;                   // elements per token
  const lb_f32 *q, *k, *v, *decay, *beta;  // decay and beta may be NULL
  lb_f32 *y, *state;
  float *buffers;  // per worker: one updated value vector
  float scale;
} linear;

static void decay_state(const linear *l, int64_t token, int64_t head,
                        lb_f32 *state) {
  const lb_f32 *g = l->decay + token * l->decays;
  bool per_key = l->decays != l->kv_heads;
  for (int64_t i = 0; i < l->dk; i++) {
    float f = expf(per_key ? g[head * l->dk + i] : g[head]);
    for (int64_t j = 0; j < l->dv; j++) state[i * l->dv + j] *= f;
  }
}

// to[j] = sum over i of a[i] * state[i][j].
static void read_state(const linear *l, const lb_f32 *a, const lb_f32 *state,
                       lb_f32 *to) {
  for (int64_t j = 0; j < l->dv; j++) to[j] = 0;
  for (int64_t i = 0; i < l->dk; i++)
    for (int64_t j = 0; j < l->dv; j++) {
      float x = a[i] * state[i * l->dv + j];
      to[j] = i == 0 ? x : to[j] + x;
    }
}

static void step(const linear *l, int64_t token, int64_t head, lb_f32 *state,
                 float *v) {
  const lb_f32 *k = l->k + (token * l->kv_heads + head) * l->dk;
  const lb_f32 *value = l->v + (token * l->kv_heads + head) * l->dv;
  if (l->decay) decay_state(l, token, head, state);
  if (l->beta) {
    float beta = l->beta[token * l->betas + (l->betas == 1 ? 0 : head)];
    read_state(l, k, state, (lb_f32 *)v);
    for (int64_t j = 0; j < l->dv; j++) v[j] = beta * (value[j] - v[j]);
  } else {
    for (int64_t j = 0; j < l->dv; j++) v[j] = value[j];
  }
  for (int64_t i = 0; i < l->dk; i++)
    for (int64_t j = 0; j < l->dv; j++) state[i * l->dv + j] += k[i] * v[j];
  int64_t group = l->q_heads / l->kv_heads;
  for (int64_t h = head * group; h < (head + 1) * group; h++) {
    lb_f32 *y = l->y + (token * l->q_heads + h) * l->dv;
    read_state(l, l->q + (token * l->q_heads + h) * l->dk, state, y);
    for (int64_t j = 0; j < l->dv; j++) y[j] *= l->scale;
  }
}

static void linear_task(void *user, int64_t begin, int64_t end, int worker) {
  const linear *l = user;
  for (int64_t i = begin; i < end; i++) {
    int64_t b = i / l->kv_heads, head = i % l->kv_heads;
    lb_f32 *state = l->state + i * l->dk * l->dv;
    for (int64_t t = 0; t < l->tokens; t++)
      step(l, b * l->tokens + t, head, state, l->buffers + worker * l->dv);
  }
}

static lb_status linear_dims(lb_reference_call *c, linear *l) {
  const lb_tensor *q = &c->in[QUERY], *k = &c->in[KEY], *v = &c->in[VALUE];
  l->q_heads = lb_attr_int(c->node, "q_num_heads", 0);
  l->kv_heads = lb_attr_int(c->node, "kv_num_heads", 0);
  if (l->q_heads < 1 || l->kv_heads < 1 || l->q_heads % l->kv_heads != 0 ||
      q->rank != 3 || k->rank != 3 || v->rank != 3 ||
      q->dims[2] % l->q_heads != 0 || v->dims[2] % l->kv_heads != 0)
    return lb_error(LB_INVALID,
                    "%lld query heads and %lld key heads do not "
                    "split the inputs",
                    (long long)l->q_heads, (long long)l->kv_heads);
  l->batch = q->dims[0], l->tokens = q->dims[1];
  l->dk = q->dims[2] / l->q_heads, l->dv = v->dims[2] / l->kv_heads;
  for (int d = 0; d < 2; d++)
    if (k->dims[d] != q->dims[d] || v->dims[d] != q->dims[d])
      return lb_error(LB_INVALID, "query, key and value differ in dim %d", d);
  if (k->dims[2] != l->dk * l->kv_heads)
    return lb_error(LB_INVALID, "keys have %lld elements per token, not %lld",
                    (long long)k->dims[2], (long long)(l->dk * l->kv_heads));
  return LB_OK;
}

// Reads a gate per token: input i must be present if and only if the rule has
// this gate.
static lb_status read_gate(lb_reference_call *c, const linear *l, int i,
                           bool needed, const lb_f32 **out, int64_t *n) {
  lb_tensor t;
  if (lb_reference_given(c, i) != needed)
    return lb_error(LB_INVALID, "update_rule %s input %d",
                    needed ? "needs" : "forbids", i);
  if (!needed) return LB_OK;
  LB_TRY(lb_reference_dense(c, &c->in[i], LB_F32, &t));
  if (t.rank != 3 || t.dims[0] != l->batch || t.dims[1] != l->tokens)
    return lb_error(LB_INVALID, "input %d is not [batch, tokens, ...]", i);
  *n = t.dims[2];
  *out = t.data;
  return LB_OK;
}

static lb_status read_gates(lb_reference_call *c, linear *l) {
  const char *rule = lb_attr_str(c->node, "update_rule", "gated_delta");
  bool gated = !strncmp(rule, "gated", 5);
  bool delta = strstr(rule, "delta") != NULL;
  if (strcmp(rule, "linear") && strcmp(rule, "gated") &&
      strcmp(rule, "delta") && strcmp(rule, "gated_delta"))
    return lb_error(LB_INVALID, "update_rule '%s' is not known", rule);
  LB_TRY(read_gate(c, l, DECAY, gated, &l->decay, &l->decays));
  LB_TRY(read_gate(c, l, BETA, delta, &l->beta, &l->betas));
  if (gated && l->decays != l->kv_heads && l->decays != l->kv_heads * l->dk)
    return lb_error(LB_INVALID, "decay has %lld elements per token",
                    (long long)l->decays);
  if (delta && l->betas != l->kv_heads && l->betas != 1)
    return lb_error(LB_INVALID, "beta has %lld elements per token",
                    (long long)l->betas);
  return LB_OK;
}

// Initialises the state from past_state, or with zeros.
static lb_status first_state(lb_reference_call *c, linear *l, lb_tensor *out) {
  const int64_t dims[] = {l->batch, l->kv_heads, l->dk, l->dv};
  LB_TRY(lb_reference_temp(c, LB_F32, 4, dims, out));
  l->state = out->data;
  if (!lb_reference_given(c, PAST)) {
    memset(out->data, 0, lb_tensor_bytes(out));
    return LB_OK;
  }
  const lb_tensor *past = &c->in[PAST];
  if (past->rank != 4 || memcmp(past->dims, dims, sizeof dims) != 0)
    return lb_error(LB_INVALID, "past_state has other dims than the state");
  lb_convert(c->pool, past, out);
  return LB_OK;
}

lb_status lb_reference_LinearAttention(lb_reference_call *c) {
  linear l = {0};
  lb_tensor q, k, v, y, state;
  if (c->in[QUERY].dtype == LB_F64) return lb_reference_bad_dtype(c, LB_F64);
  LB_TRY(linear_dims(c, &l));
  LB_TRY(lb_reference_dense(c, &c->in[QUERY], LB_F32, &q));
  LB_TRY(lb_reference_dense(c, &c->in[KEY], LB_F32, &k));
  LB_TRY(lb_reference_dense(c, &c->in[VALUE], LB_F32, &v));
  LB_TRY(read_gates(c, &l));
  LB_TRY(first_state(c, &l, &state));
  const int64_t y_dims[] = {l.batch, l.tokens, l.q_heads * l.dv};
  LB_TRY(lb_work_out_or_temp(c, 0, LB_F32, 3, y_dims, &y));
  l.q = q.data, l.k = k.data, l.v = v.data, l.y = y.data;
  l.scale = lb_attr_float(c->node, "scale", 0);
  if (l.scale == 0) l.scale = (float)(1 / sqrt((double)l.dk));
  size_t threads = (size_t)lb_pool_threads(c->pool);
  l.buffers =
      lb_arena_new(c->scratch, float, lb_mul_sat(threads, (size_t)l.dv));
  if (!l.buffers) return lb_oom();
  if (l.dk > 0 && l.dv > 0)
    lb_pool_for(c->pool, l.batch * l.kv_heads, 1, linear_task, &l);
  else if (y.data)
    memset(y.data, 0, lb_tensor_bytes(&y));
  if (lb_reference_wanted(c, 1)) lb_convert(c->pool, &state, &c->out[1]);
  return lb_work_done(c, 0, &y);
}

// -- RotaryEmbedding ---------------------------------------------------------

typedef struct ref_rotary {
  int64_t heads, tokens, size,
      rotated;                 // elements of a head; number of rotated ones
  int64_t head, token, batch;  // strides
  bool interleaved;
  const lb_f32 *x, *cos, *sin;
  lb_f32 *y;
  // Row of the caches per token; NULL: the token's index.
  const int64_t *positions;
} ref_rotary;

static void rotate(const ref_rotary *r, const lb_f32 *x, const lb_f32 *cos,
                   const lb_f32 *sin, lb_f32 *y) {
  int64_t half = r->rotated / 2;
  for (int64_t i = 0; i < half; i++) {
    int64_t a = r->interleaved ? 2 * i : i;
    int64_t b = r->interleaved ? 2 * i + 1 : i + half;
    float p = x[a], q = x[b];
    y[a] = cos[i] * p - sin[i] * q;
    y[b] = sin[i] * p + cos[i] * q;
  }
  for (int64_t i = r->rotated; i < r->size; i++) y[i] = x[i];
}

static void rotary_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const ref_rotary *r = user;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = (r->positions ? r->positions[i] : i) * (r->rotated / 2);
    for (int64_t h = 0; h < r->heads; h++) {
      int64_t at =
          i / r->tokens * r->batch + i % r->tokens * r->token + h * r->head;
      rotate(r, r->x + at, r->cos + row, r->sin + row, r->y + at);
    }
  }
}

// The number of elements that a row of the caches rotates.
static int64_t cache_width(const lb_tensor *cos) {
  return cos->rank < 1 ? 0 : 2 * cos->dims[cos->rank - 1];
}

static int64_t rotary_heads(const lb_reference_call *c) {
  const lb_tensor *x = &c->in[0];
  int64_t width = cache_width(&c->in[1]);
  if (x->rank == 4) return x->dims[1];
  int64_t n = lb_attr_int(c->node, "num_heads", 0);
  return n == -1 && x->rank == 3 && width > 0 ? x->dims[2] / width : n;
}

static lb_status rotary_layout(lb_reference_call *c, ref_rotary *r) {
  const lb_tensor *x = &c->in[0];
  r->heads = rotary_heads(c);
  if ((x->rank != 3 && x->rank != 4) || r->heads < 0 ||
      (x->rank == 3 && (r->heads < 1 || x->dims[2] % r->heads != 0)))
    return lb_error(LB_INVALID, "%lld heads do not split the input",
                    (long long)r->heads);
  bool split = x->rank == 4;
  r->tokens = split ? x->dims[2] : x->dims[1];
  r->size = split ? x->dims[3] : x->dims[2] / r->heads;
  r->head = split ? r->tokens * r->size : r->size;
  r->token = split ? r->size : x->dims[2];
  r->batch = r->heads * r->tokens * r->size;
  r->rotated = lb_attr_int(c->node, "rotary_embedding_dim", 0);
  if (r->rotated == 0) r->rotated = r->size;
  if (r->rotated == -1) r->rotated = cache_width(&c->in[1]);
  if (r->rotated < 0 || r->rotated > r->size || r->rotated % 2 != 0)
    return lb_error(LB_INVALID, "%lld of %lld elements cannot be rotated",
                    (long long)r->rotated, (long long)r->size);
  r->interleaved = lb_attr_int(c->node, "interleaved", 0) != 0;
  return LB_OK;
}

// Checks the rows of the caches: one per position, or one per token.
static lb_status rotary_rows(lb_reference_call *c, ref_rotary *r,
                             int64_t tokens) {
  const lb_tensor *cos = &c->in[1], *sin = &c->in[2];
  int64_t n, half = r->rotated / 2;
  if (cos->rank < 1 || cos->dims[cos->rank - 1] != half ||
      lb_tensor_count(cos) != lb_tensor_count(sin))
    return lb_error(LB_INVALID, "the caches must have rows of %lld elements",
                    (long long)half);
  int64_t rows = half > 0 ? lb_tensor_count(cos) / half : 0;
  LB_TRY(lb_reference_ints(c, 3, &r->positions, &n));
  if (!r->positions) {
    if (rows == tokens || half == 0) return LB_OK;
    return lb_error(LB_INVALID, "the caches have %lld rows for %lld tokens",
                    (long long)rows, (long long)tokens);
  }
  if (n != tokens)
    return lb_error(LB_INVALID, "%lld position_ids for %lld tokens",
                    (long long)n, (long long)tokens);
  for (int64_t i = 0; i < n && half > 0; i++)
    if (r->positions[i] < 0 || r->positions[i] >= rows)
      return lb_error(LB_INVALID, "position %lld is not in [0, %lld)",
                      (long long)r->positions[i], (long long)rows);
  return LB_OK;
}

lb_status lb_reference_RotaryEmbedding(lb_reference_call *c) {
  ref_rotary r = {0};
  lb_tensor x, cos, sin, y;
  if (c->in[0].dtype == LB_F64) return lb_reference_bad_dtype(c, LB_F64);
  LB_TRY(rotary_layout(c, &r));
  int64_t tokens = c->in[0].dims[0] * r.tokens;
  LB_TRY(rotary_rows(c, &r, tokens));
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F32, &x));
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F32, &cos));
  LB_TRY(lb_reference_dense(c, &c->in[2], LB_F32, &sin));
  LB_TRY(lb_work_out(c, 0, LB_F32, &y));
  r.x = x.data, r.cos = cos.data, r.sin = sin.data, r.y = y.data;
  if (lb_tensor_count(&x) > 0)
    lb_pool_for(c->pool, tokens, 16, rotary_task, &r);
  return lb_work_done(c, 0, &y);
}
