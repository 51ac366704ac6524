// partition/attention.c -- binds Attention and RaggedAttention: q, k, v and the
// mask with their strides.
//
// Loops around the kernel are the batch, the heads of k and v, and the heads of
// q that share one of those. In a tensor of rank 3 a row contains all heads;
// one of rank 4 may be a view (a transpose). The elements of a head must be
// contiguous.
#include "partition/attention.h"

#include <math.h>
#include <string.h>

#include "partition/known.h"

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS, MAX_IN };  // inputs of the node
enum { MAX_HEAD = 256 };  // max elements of a head that kernels support

// -- which nodes qualify ------------------------------------------------------

static const lb_value *input(const lb_node *n, uint32_t i) {
  return i < n->n_in ? n->in[i] : NULL;
}

// The segments of a RaggedAttention; else NULL.
static const lb_value *segments_of(const lb_node *n) {
  return n->op == LB_OP_RaggedAttention ? n->in[3] : NULL;
}

static const lb_value *mask_of(const lb_node *n) {
  return segments_of(n) ? NULL : input(n, MASK);
}

static bool is_f32(const lb_value *v) { return v && v->info.dtype == LB_F32; }

static bool has_plain_inputs(const lb_node *n) {
  const lb_value *mask = mask_of(n);
  return is_f32(input(n, Q)) && is_f32(input(n, K)) && is_f32(input(n, V)) &&
         (!mask || is_f32(mask) || mask->info.dtype == LB_BOOL) &&
         !input(n, PAST_K) && !input(n, PAST_V) && !input(n, LENGTHS);
}

bool lb_attention_is(const lb_node *n) {
  if (n->op != LB_OP_Attention && n->op != LB_OP_RaggedAttention) return false;
  if (!has_plain_inputs(n)) return false;
  for (uint32_t i = 1; i < n->n_out; i++)
    if (n->out[i]) return false;
  return n->out[0] && !lb_attr_int(n, "is_causal", 0) &&
         lb_attr_int(n, "left_window_size", -1) == -1 &&
         lb_attr_int(n, "right_window_size", -1) == -1;
}

// -- operands ----------------------------------------------------------------

// Heads of sequences: [batch, heads, rows, size]; columns are contiguous.
typedef struct attention_heads {
  int64_t batch, n, rows, size;
  int64_t batch_step, step, row_step;
} attention_heads;

typedef struct attention_binder {
  const lb_node *node;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  const lb_partition *part;
  attention_heads q, k, v, y;
  int64_t shared;  // heads of q per head of k and v
} attention_binder;

// False if the tensor does not have these strides.
static bool heads_of(const lb_tensor *t, int64_t n, attention_heads *out) {
  if (t->rank != 3 && t->rank != 4) return false;
  int row = t->rank - 2, col = t->rank - 1;
  *out = (attention_heads){.batch = t->dims[0],
                           .rows = t->dims[row],
                           .batch_step = t->strides[0],
                           .row_step = t->strides[row]};
  if (t->rank == 3 && (n < 1 || t->dims[col] % n != 0)) return false;
  out->n = t->rank == 3 ? n : t->dims[1];
  out->size = t->rank == 3 ? t->dims[col] / n : t->dims[col];
  out->step = t->rank == 3 ? out->size : t->strides[1];
  return t->strides[col] == 1 || t->dims[col] == 1;
}

static lb_status read_heads(attention_binder *b, const lb_value *v,
                            const char *attr, attention_heads *out, bool *ok) {
  lb_tensor t;
  LB_TRY(b->tensor(b->user, v, &t));
  *ok = *ok && heads_of(&t, lb_attr_int(b->node, attr, 0), out);
  return LB_OK;
}

static bool fits(const attention_binder *b) {
  const attention_heads *q = &b->q, *k = &b->k, *v = &b->v, *y = &b->y;
  return k->n > 0 && q->n % k->n == 0 && k->n == v->n && y->n == q->n &&
         q->batch == k->batch && q->batch == v->batch && y->batch == q->batch &&
         k->rows == v->rows && y->rows == q->rows && q->size == k->size &&
         y->size == v->size && q->size <= MAX_HEAD && q->batch > 0 &&
         q->n > 0 && q->rows > 0 && q->size > 0 && k->rows > 0 && v->size > 0;
}

static lb_status read_all(attention_binder *b, bool *ok) {
  const lb_node *n = b->node;
  *ok = true;
  LB_TRY(read_heads(b, n->in[Q], "q_num_heads", &b->q, ok));
  LB_TRY(read_heads(b, n->in[K], "kv_num_heads", &b->k, ok));
  LB_TRY(read_heads(b, n->in[V], "kv_num_heads", &b->v, ok));
  LB_TRY(read_heads(b, n->out[0], "q_num_heads", &b->y, ok));
  *ok = *ok && fits(b);
  if (*ok) b->shared = b->q.n / b->k.n;
  return LB_OK;
}

// Strides are along batch, heads of k and v, and heads of q that share one.
static lb_bind_operand *add_operand(attention_binder *b, const lb_value *v,
                                    const int64_t steps[3], int64_t row) {
  lb_bind_operand *o = &b->out->operands[b->out->n_operands++];
  *o = (lb_bind_operand){.value = v, .row = row, .col = 1};
  memcpy(o->outer, steps, 3 * sizeof *steps);
  return o;
}

static void add_heads(attention_binder *b, const lb_value *v,
                      const attention_heads *h) {
  bool own = h->n == b->q.n;  // one head per head of q
  int64_t steps[3] = {h->batch_step, h->step * (own ? b->shared : 1),
                      own ? h->step : 0};
  add_operand(b, v, steps, h->row_step);
}

static lb_layout layout_of(const lb_bind_operand *o) {
  if (o->col == 1) return o->row ? LB_LAYOUT_FULL : LB_LAYOUT_PER_COL;
  if (o->col != 0) return LB_LAYOUT_STRIDED;
  return o->row ? LB_LAYOUT_PER_ROW : LB_LAYOUT_BROADCAST;
}

// Strides along [batch, heads, rows, keys]. A mask that is shorter than the
// keys is not supported.
static lb_status add_mask(attention_binder *b, bool *ok) {
  const lb_value *v = mask_of(b->node);
  lb_tensor t;
  if (!v) return LB_OK;
  LB_TRY(b->tensor(b->user, v, &t));
  int64_t full[] = {b->q.batch, b->q.n, b->q.rows, b->k.rows}, step[4] = {0};
  *ok = t.rank >= 1 && t.rank <= 4;
  for (int i = 0; *ok && i < t.rank; i++) {
    int to = 4 - t.rank + i;
    *ok = t.dims[i] == 1 || t.dims[i] == full[to];
    step[to] = t.dims[i] == 1 ? 0 : t.strides[i];
  }
  int64_t steps[3] = {step[0], step[1] * b->shared, step[1]};
  add_operand(b, v, steps, step[2])->col = step[3];
  return LB_OK;
}

// -- the spec ----------------------------------------------------------------

static uint8_t op(lb_spec_builder *s, lb_sop sop, uint8_t x, uint8_t y) {
  uint8_t src[] = {x, y};
  return lb_spec_node(s, sop, LB_F32, src, lb_sop_infos[sop].n_src);
}

// cap * tanh(score / cap)
static uint8_t capped(lb_spec_builder *s, uint8_t score, uint8_t cap) {
  score = op(s, LB_S_TANH, op(s, LB_S_DIV, score, cap), 0);
  return op(s, LB_S_MUL, score, cap);
}

static uint8_t emit_score(lb_specgen *e, const attention_binder *b,
                          double scale, const lb_memo_key *key) {
  lb_spec_builder *s = &e->b;
  const lb_value *mask = mask_of(b->node);
  bool flags = mask && mask->info.dtype == LB_BOOL;
  uint8_t m = LB_SPEC_NO_NODE, cap = LB_SPEC_NO_NODE, low = LB_SPEC_NO_NODE;
  for (int i = 0; i < 3; i++) lb_spec_input(s, LB_F32, LB_LAYOUT_FULL);
  if (mask) m = lb_spec_input(s, mask->info.dtype, key->layouts[1 + MASK]);
  double softcap = (double)lb_attr_float(b->node, "softcap", 0);
  uint8_t by = lb_specgen_size_scalar(e, LB_F32, scale);
  if (softcap > 0) cap = lb_specgen_size_scalar(e, LB_F32, softcap);
  double hidden = (double)lb_attr_float(b->node, "masked", -INFINITY);
  if (flags) low = lb_specgen_size_scalar(e, LB_F32, hidden);
  e->size_scalars = 1;
  uint8_t acc = lb_spec_node(s, LB_S_ACC, LB_F32, NULL, 0);
  uint8_t score = op(s, LB_S_MUL, acc, by);
  if (softcap > 0) score = capped(s, score, cap);
  if (flags)
    return lb_spec_node(s, LB_S_SELECT, LB_F32, (uint8_t[]){m, score, low}, 3);
  return mask ? op(s, LB_S_ADD, score, m) : score;
}

// The scale depends on sizes unless the node has the attribute.
static lb_status build_spec(attention_binder *b, bool *ok) {
  const lb_node *n = b->node;
  lb_memo_key key = {.nodes = b->part->nodes,
                     .n_nodes = 1,
                     .form = LB_FORM_ATTENTION,
                     .n_operands = (uint8_t)b->out->n_operands};
  if (mask_of(n))
    key.layouts[1 + MASK] = (uint8_t)layout_of(&b->out->operands[1 + MASK]);
  double scale = 1 / sqrt((double)b->q.size);
  if (lb_attr_has(n, "scale")) scale = (double)lb_attr_float(n, "scale", 1);
  *ok = lb_bind_known(b->part, &key, scale, b->out);
  if (*ok) return LB_OK;
  lb_specgen e = {0};
  lb_spec_begin(&e.b, LB_FORM_ATTENTION);
  lb_spec_output(&e.b, emit_score(&e, b, scale, &key), LB_LAYOUT_FULL);
  return lb_bind_new(b->part, &key, &e, b->out, ok);
}

static void set_dims(attention_binder *b) {
  lb_binding *o = b->out;
  o->dims[LB_DIM_ROWS] = b->q.rows;
  o->dims[LB_DIM_COLS] = b->v.size;
  o->dims[LB_DIM_K] = b->q.size;
  o->dims[LB_DIM_KEYS] = b->k.rows;
  o->n_outer = 3;
  o->outer[0] = b->q.batch;
  o->outer[1] = b->k.n;
  o->outer[2] = b->shared;
}

// The outermost loop goes through the segments, whose dims are those of an
// average one.
static lb_status set_segments(attention_binder *b, bool *ok) {
  lb_binding *o = b->out;
  lb_tensor t;
  o->segments = segments_of(b->node);
  if (!o->segments) return LB_OK;
  LB_TRY(b->tensor(b->user, o->segments, &t));
  int64_t n = t.dims[0] - 1;
  *ok = *ok && b->q.batch == 1 && b->q.rows == b->k.rows && n > 0 &&
        lb_tensor_is_dense(&t);
  if (!*ok) return LB_OK;
  int64_t rows = b->q.rows < n ? 1 : b->q.rows / n;
  o->dims[LB_DIM_ROWS] = o->dims[LB_DIM_KEYS] = rows;
  o->outer[0] = n;
  for (uint32_t i = 0; i < o->n_operands; i++) o->operands[i].outer[0] = 0;
  return LB_OK;
}

lb_status lb_attention_bind(const lb_partition *p, lb_tensor_fn *tensor,
                            void *user, lb_binding *out, bool *ok) {
  const lb_node *n = p->nodes[0];
  attention_binder b = {
      .node = n, .tensor = tensor, .user = user, .out = out, .part = p};
  lb_bind_begin(out);
  LB_TRY(read_all(&b, ok));
  if (!*ok) return LB_OK;
  set_dims(&b);
  add_heads(&b, n->out[0], &b.y);
  add_heads(&b, n->in[Q], &b.q);
  add_heads(&b, n->in[K], &b.k);
  add_heads(&b, n->in[V], &b.v);
  LB_TRY(add_mask(&b, ok));
  LB_TRY(set_segments(&b, ok));
  return *ok ? build_spec(&b, ok) : LB_OK;
}
