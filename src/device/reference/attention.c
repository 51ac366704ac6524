// device/reference/attention.c -- Attention.
//
// Queries of one head are processed in blocks of rows: scores = q k^T, then
// each row becomes probabilities, then y = p v. A row without any allowed key
// gives zeros. Everything is computed in float, or in double if an input is
// float64, which satisfies every softmax_precision.
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };  // inputs
enum { Y, PRESENT_K, PRESENT_V, SCORES };         // outputs
enum { QUERY_ROWS = 32 };                         // rows of a block

// The heads of Q, K, V or Y; the elements of a head are contiguous.
typedef struct ref_heads {
  char *data;
  int64_t batch, head, seq;  // strides
} ref_heads;

typedef struct ref_attention {
  lb_dtype work;
  size_t size;  // of an element
  int64_t batch, q_heads, kv_heads, q_len, total, dim, v_dim;
  ref_heads q, k, v, y;
  double scale, softcap;
  bool causal;
  int64_t left, right;      // window; -1: unlimited
  const int64_t *offset;    // per batch item: keys before the first query
  const int64_t *length;    // per batch item: number of valid keys
  const void *mask;         // added to the scores; or NULL
  const lb_u8 *flags;       // boolean mask, true: allowed; or NULL
  double masked_score;      // the score of keys that the boolean mask forbids
  int64_t mask_strides[4];  // 0 where it is broadcast
  int64_t mask_cols;
  void *scores;  // output, or NULL
  int scores_mode;
  char *buffers;        // per worker: scores of a block and one row of bias
  size_t buffer_bytes;  // of one buffer
} ref_attention;

#define T float
#define S lb_f32
#define NAME(x) f32_##x
#define TANH tanhf
#define EXP expf
#include "device/reference/attention_row.h"

#define T double
#define S lb_f64
#define NAME(x) f64_##x
#define TANH tanh
#define EXP exp
#include "device/reference/attention_row.h"

// -- blocks ------------------------------------------------------------------

static char *at(const ref_attention *v, const ref_heads *h, int64_t b,
                int64_t head, int64_t s) {
  if (!h->data) return NULL;  // no elements
  return h->data +
         (b * h->batch + head * h->head + s * h->seq) * (int64_t)v->size;
}

static void block(const ref_attention *v, int64_t b, int64_t h, int64_t i0,
                  char *buffer) {
  int64_t rows = v->q_len - i0 < QUERY_ROWS ? v->q_len - i0 : QUERY_ROWS;
  int64_t kv = h / (v->q_heads / v->kv_heads);
  char *bias = buffer + QUERY_ROWS * v->total * (int64_t)v->size;
  lb_gemm_matrix k = {v->work, v->work, at(v, &v->k, b, kv, 0), 1, v->k.seq,
                      NULL,    0};
  lb_gemm qk = {v->work,
                rows,
                v->total,
                v->dim,
                at(v, &v->q, b, h, i0),
                v->q.seq,
                1,
                lb_gemm_pack_matrix,
                &k,
                buffer,
                v->total};
  lb_gemm_run(&qk);
  for (int64_t i = 0; i < rows; i++) {
    char *row = buffer + i * v->total * (int64_t)v->size;
    if (v->work == LB_F32)
      f32_row(v, b, h, i0 + i, (float *)(void *)row, (float *)(void *)bias);
    else
      f64_row(v, b, h, i0 + i, (double *)(void *)row, (double *)(void *)bias);
  }
  lb_gemm_matrix values = {
      v->work, v->work, at(v, &v->v, b, kv, 0), v->v.seq, 1, NULL, 0};
  lb_gemm pv = {v->work,  rows,
                v->v_dim, v->total,
                buffer,   v->total,
                1,        lb_gemm_pack_matrix,
                &values,  at(v, &v->y, b, h, i0),
                v->y.seq};
  lb_gemm_run(&pv);
}

static void block_task(void *user, int64_t begin, int64_t end, int worker) {
  const ref_attention *v = user;
  int64_t blocks = (v->q_len + QUERY_ROWS - 1) / QUERY_ROWS;
  for (int64_t t = begin; t < end; t++) {
    int64_t head = t / blocks;
    block(v, head / v->q_heads, head % v->q_heads, t % blocks * QUERY_ROWS,
          v->buffers + (size_t)worker * v->buffer_bytes);
  }
}

static lb_status run_blocks(lb_reference_call *c, ref_attention *v) {
  int64_t row;
  if (__builtin_mul_overflow(v->total, (QUERY_ROWS + 1) * (int64_t)v->size,
                             &row) ||
      row > INT64_MAX / 2)
    return lb_oom();
  v->buffer_bytes = ((size_t)row + 63) / 64 * 64;
  size_t threads = (size_t)lb_pool_threads(c->pool);
  v->buffers =
      lb_arena_alloc(c->scratch, lb_mul_sat(v->buffer_bytes, threads), 64);
  if (!v->buffers) return lb_oom();
  int64_t blocks = (v->q_len + QUERY_ROWS - 1) / QUERY_ROWS;
  lb_pool_for(c->pool, v->batch * v->q_heads * blocks, 1, block_task, v);
  return LB_OK;
}

// -- inputs ------------------------------------------------------------------

// Views t, dense, of rank 3 [batch, seq, heads*dim] or 4 [batch, heads, seq,
// dim], as rank 4.
static lb_tensor as_heads(const lb_tensor *t, int64_t n) {
  lb_tensor r = *t;
  if (t->rank == 4) return r;
  int64_t seq = t->dims[1], dim = t->dims[2] / n;
  r.rank = 4;
  r.dims[1] = n, r.dims[2] = seq, r.dims[3] = dim;
  r.strides[1] = dim, r.strides[2] = t->dims[2], r.strides[3] = 1;
  return r;
}

static ref_heads heads_of(const lb_tensor *t) {
  return (ref_heads){t->data, t->strides[0], t->strides[1], t->strides[2]};
}

static lb_status split_heads(lb_reference_call *c, int i, const char *attr,
                             lb_dtype work, lb_tensor *out) {
  const lb_tensor *t = &c->in[i];
  int64_t n = t->rank == 4 ? t->dims[1] : lb_attr_int(c->node, attr, 0);
  if (t->rank != 3 && t->rank != 4)
    return lb_error(LB_INVALID, "input %d has rank %d, not 3 or 4", i, t->rank);
  if (n < 1 || (t->rank == 3 && t->dims[2] % n != 0))
    return lb_error(LB_INVALID, "%s is %lld, which does not split input %d",
                    attr, (long long)n, i);
  lb_tensor dense;
  LB_TRY(lb_reference_dense(c, t, work, &dense));
  *out = as_heads(&dense, n);
  return LB_OK;
}

// Concatenates [past, now] along the sequence; writes it to output `out` if
// that is wanted.
static lb_status append_past(lb_reference_call *c, int past, int out,
                             lb_tensor *now) {
  if (!lb_reference_given(c, past) && !lb_reference_wanted(c, out))
    return LB_OK;
  lb_tensor all, before = {.rank = 4};
  int64_t dims[4] = {now->dims[0], now->dims[1], now->dims[2], now->dims[3]};
  if (lb_reference_given(c, past)) before = c->in[past];
  for (int d = 0; d < 4; d++)
    if (before.rank != 4 ||
        (lb_reference_given(c, past) && d != 2 && before.dims[d] != dims[d]))
      return lb_error(LB_INVALID, "input %d does not fit the keys or values",
                      past);
  if (__builtin_add_overflow(dims[2], before.dims[2], &dims[2]))
    return lb_oom();
  LB_TRY(lb_reference_temp(c, now->dtype, 4, dims, &all));
  lb_tensor to = all;
  if (lb_reference_given(c, past)) {
    to.dims[2] = before.dims[2];
    lb_convert(c->pool, &before, &to);
  }
  to.dims[2] = now->dims[2];
  to.data = (char *)all.data +
            before.dims[2] * all.strides[2] * (int64_t)lb_dtype_size(all.dtype);
  lb_convert(c->pool, now, &to);
  if (lb_reference_wanted(c, out)) lb_convert(c->pool, &all, &c->out[out]);
  *now = all;
  return LB_OK;
}

static lb_status read_mask(lb_reference_call *c, ref_attention *v) {
  if (!lb_reference_given(c, MASK)) return LB_OK;
  const lb_tensor *in = &c->in[MASK];
  bool flags = in->dtype == LB_BOOL;
  lb_tensor t;
  LB_TRY(lb_reference_dense(c, in, flags ? LB_BOOL : v->work, &t));
  const int64_t full[4] = {v->batch, v->q_heads, v->q_len, v->total};
  if (t.rank > 4 || t.rank < 1)
    return lb_error(LB_INVALID, "attn_mask has rank %d", t.rank);
  v->mask_cols = t.dims[t.rank - 1];
  if (v->mask_cols == 1) v->mask_cols = v->total;
  for (int d = 0; d < t.rank; d++) {
    int to = 4 - t.rank + d;
    bool cut = to == 3 && t.dims[d] < full[3];
    if (t.dims[d] != 1 && t.dims[d] != full[to] && !cut)
      return lb_error(LB_INVALID,
                      "dim %d of attn_mask is %lld; it must be 1 or %lld", d,
                      (long long)t.dims[d], (long long)full[to]);
    v->mask_strides[to] = t.dims[d] == 1 ? 0 : t.strides[d];
  }
  v->flags = flags ? t.data : NULL;
  v->mask = flags ? NULL : t.data;
  return LB_OK;
}

// The number of keys before the first query and in total, per batch item.
static lb_status read_lengths(lb_reference_call *c, ref_attention *v,
                              int64_t past) {
  int64_t *both = lb_arena_new(c->scratch, int64_t, 2 * (size_t)v->batch);
  const int64_t *given;
  int64_t n;
  if (!both) return lb_oom();
  LB_TRY(lb_reference_ints(c, LENGTHS, &given, &n));
  if (given && n != v->batch)
    return lb_error(LB_INVALID, "nonpad_kv_seqlen has %lld elements, not %lld",
                    (long long)n, (long long)v->batch);
  for (int64_t b = 0; b < v->batch; b++) {
    if (given && (given[b] < 0 || given[b] > v->total))
      return lb_error(LB_INVALID,
                      "nonpad_kv_seqlen is %lld, but there are %lld keys",
                      (long long)given[b], (long long)v->total);
    both[b] = given ? given[b] - v->q_len : past;
    both[v->batch + b] = given ? given[b] : v->total;
  }
  v->offset = both;
  v->length = both + v->batch;
  return LB_OK;
}

static lb_status read_attrs(lb_reference_call *c, ref_attention *v) {
  v->softcap = (double)lb_attr_float(c->node, "softcap", 0);
  v->masked_score = (double)lb_attr_float(c->node, "masked", -INFINITY);
  v->causal = lb_attr_int(c->node, "is_causal", 0) != 0;
  v->left = lb_attr_int(c->node, "left_window_size", -1);
  v->right = lb_attr_int(c->node, "right_window_size", -1);
  v->scores_mode = (int)lb_attr_int(c->node, "qk_matmul_output_mode", 0);
  v->scale = 1 / sqrt((double)v->dim);
  if (lb_attr_has(c->node, "scale"))
    v->scale = (double)lb_attr_float(c->node, "scale", 1);
  if (v->left < -1 || v->right < -1)
    return lb_error(LB_INVALID,
                    "window sizes %lld and %lld must be at least -1",
                    (long long)v->left, (long long)v->right);
  return LB_OK;
}

static lb_status check_heads(const ref_attention *v, const lb_tensor *q,
                             const lb_tensor *k, const lb_tensor *values) {
  if (q->dims[0] != k->dims[0] || q->dims[0] != values->dims[0] ||
      k->dims[1] != values->dims[1] || k->dims[2] != values->dims[2] ||
      q->dims[3] != k->dims[3] || v->q_heads % v->kv_heads != 0)
    return lb_error(LB_INVALID,
                    "%lld query heads of %lld elements do not fit %lld key "
                    "heads of %lld",
                    (long long)v->q_heads, (long long)q->dims[3],
                    (long long)v->kv_heads, (long long)k->dims[3]);
  return LB_OK;
}

lb_status lb_reference_Attention(lb_reference_call *c) {
  ref_attention v = {.work = lb_work_dtype(c->in[Q].dtype)};
  if (c->in[K].dtype == LB_F64 || c->in[V].dtype == LB_F64) v.work = LB_F64;
  v.size = lb_dtype_size(v.work);
  lb_tensor q, k, values, y = {0}, scores = {0};
  LB_TRY(split_heads(c, Q, "q_num_heads", v.work, &q));
  LB_TRY(split_heads(c, K, "kv_num_heads", v.work, &k));
  LB_TRY(split_heads(c, V, "kv_num_heads", v.work, &values));
  v.batch = q.dims[0], v.q_heads = q.dims[1], v.kv_heads = k.dims[1];
  v.q_len = q.dims[2], v.dim = q.dims[3], v.v_dim = values.dims[3];
  LB_TRY(check_heads(&v, &q, &k, &values));
  int64_t now = k.dims[2];
  LB_TRY(append_past(c, PAST_K, PRESENT_K, &k));
  LB_TRY(append_past(c, PAST_V, PRESENT_V, &values));
  if (k.dims[2] != values.dims[2])
    return lb_error(LB_INVALID, "%lld keys for %lld values",
                    (long long)k.dims[2], (long long)values.dims[2]);
  v.total = k.dims[2];
  LB_TRY(read_attrs(c, &v));
  LB_TRY(read_mask(c, &v));
  LB_TRY(read_lengths(c, &v, v.total - now));
  const int64_t y_dims[] = {v.batch, v.q_heads, v.q_len, v.v_dim};
  LB_TRY(lb_work_out_or_temp(c, Y, v.work, 4, y_dims, &y));
  if (lb_reference_wanted(c, SCORES))
    LB_TRY(lb_work_out(c, SCORES, v.work, &scores));
  lb_tensor split = as_heads(&y, v.q_heads);
  v.q = heads_of(&q), v.k = heads_of(&k), v.v = heads_of(&values);
  v.y = heads_of(&split);
  v.scores = scores.data;
  LB_TRY(run_blocks(c, &v));
  if (lb_reference_wanted(c, SCORES)) LB_TRY(lb_work_done(c, SCORES, &scores));
  return lb_work_done(c, Y, &y);
}
