// graph/rules_attention.c -- sequence operators: attention, recurrences and
// others that carry a state.
#include <string.h>

#include "graph/rules.h"

// -- Attention ---------------------------------------------------------------

// Q, K or V as [batch, heads, length, size].
typedef struct head_dims {
  lb_dim batch, n, length, size;
} head_dims;

static lb_status split_heads(const lb_infer *c, int i, const char *attr,
                             head_dims *h) {
  const lb_vinfo *x = &c->in[i];
  const lb_dim *d = x->dims;
  if (x->rank == 4) {
    *h = (head_dims){d[0], d[1], d[2], d[3]};
    return LB_OK;
  }
  int64_t n = lb_attr_int(c->node, attr, 0);
  if (n < 1)
    return lb_infer_error(c, "a 3-D input needs the attribute %s", attr);
  if (lb_dim_is_const(d[2]) && d[2].k % n != 0)
    return lb_infer_error(c,
                          "input %d is %s; its last dim must split into "
                          "%lld heads",
                          i, lb_rule_text(c, i), (long long)n);
  *h = (head_dims){d[0], lb_dim_const(n), d[1], {0}};
  return lb_rule_divexact(c, d[2], lb_dim_const(n), &h->size);
}

static lb_status check_heads(const lb_infer *c, const head_dims *q,
                             const head_dims *k, const head_dims *v) {
  if (lb_rule_differ(q->batch, k->batch) || lb_rule_differ(q->batch, v->batch))
    return lb_infer_error(c, "Q %s, K %s and V %s differ in batch",
                          lb_rule_text(c, 0), lb_rule_text(c, 1),
                          lb_rule_text(c, 2));
  if (lb_rule_differ(q->size, k->size))
    return lb_infer_error(c, "heads of Q have size %s, those of K %s",
                          lb_rule_dim(c, q->size), lb_rule_dim(c, k->size));
  if (lb_rule_differ(k->n, v->n) || lb_rule_differ(k->length, v->length))
    return lb_infer_error(c, "K %s and V %s differ in heads or length",
                          lb_rule_text(c, 1), lb_rule_text(c, 2));
  if (lb_dim_is_const(q->n) && lb_dim_is_const(k->n) &&
      (k->n.k == 0 || q->n.k % k->n.k != 0))
    return lb_infer_error(c,
                          "%s heads of Q are not a multiple of %s heads of K",
                          lb_rule_dim(c, q->n), lb_rule_dim(c, k->n));
  return LB_OK;
}

// Past keys and values must be given together; *total is past and new length.
static lb_status add_past(const lb_infer *c, const head_dims *k,
                          const head_dims *v, lb_dim *total) {
  *total = k->length;
  if (lb_rule_has(c, 4) != lb_rule_has(c, 5))
    return lb_infer_error(c, "past_key and past_value must be given together");
  if (!lb_rule_has(c, 4)) return LB_OK;
  LB_TRY(lb_rule_rank(c, 4, 4, 4));
  if (c->in[4].rank < 0) return lb_rule_fresh(c, total);
  lb_dim past = c->in[4].dims[2];
  LB_TRY(lb_rule_expect(c, 4, "past_key", 4,
                        (lb_dim[]){k->batch, k->n, past, k->size}));
  LB_TRY(lb_rule_expect(c, 5, "past_value", 4,
                        (lb_dim[]){v->batch, v->n, past, v->size}));
  return lb_rule_add(c, past, k->length, total);
}

// The mask broadcasts to the scores, but may be shorter in its last dim.
static lb_status check_mask(const lb_infer *c, const lb_dim *scores) {
  const lb_vinfo *m = &c->in[3];
  if (!lb_rule_ranked(c, 3) || m->rank == 0) return LB_OK;
  lb_dim want[4];
  memcpy(want, scores, sizeof want);
  lb_dim last = m->dims[m->rank - 1];
  if (lb_dim_known(last).at_least <= lb_dim_known(scores[3]).at_most)
    want[3] = last;
  return lb_rule_fits(c, 3, "attn_mask", 4, want);
}

static lb_status check_attention_types(const lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 2, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 1, 4));
  LB_TRY(lb_rule_same_type(c, 2, 5));
  LB_TRY(lb_rule_takes(c, 6, LB_BIT(I64)));
  for (int i = 0; i < 3; i++) LB_TRY(lb_rule_rank(c, i, 3, 4));
  return LB_OK;
}

lb_status lb_shape_attention(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dtype tv = c->in[2].dtype;
  LB_TRY(check_attention_types(c));
  LB_TRY(lb_rule_unknown(c, 1, x->dtype, 4));
  LB_TRY(lb_rule_unknown(c, 2, tv, 4));
  LB_TRY(lb_rule_unknown(c, 3, x->dtype, 4));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0 || c->in[1].rank < 0 || c->in[2].rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, x->rank);
  head_dims q, k, v;
  lb_dim total;
  LB_TRY(split_heads(c, 0, "q_num_heads", &q));
  LB_TRY(split_heads(c, 1, "kv_num_heads", &k));
  LB_TRY(split_heads(c, 2, "kv_num_heads", &v));
  LB_TRY(check_heads(c, &q, &k, &v));
  LB_TRY(add_past(c, &k, &v, &total));
  lb_dim scores[4] = {q.batch, q.n, q.length, total};
  LB_TRY(check_mask(c, scores));
  LB_TRY(lb_rule_expect(c, 6, "nonpad_kv_seqlen", 1, &q.batch));
  lb_dim y[4] = {q.batch, q.n, q.length, v.size};
  if (x->rank == 3) {
    y[1] = q.length;
    LB_TRY(lb_rule_mul(c, q.n, v.size, &y[2]));
  }
  lb_rule_set(c, 0, x->dtype, x->rank, y);
  lb_rule_set(c, 1, x->dtype, 4, (lb_dim[]){k.batch, k.n, total, k.size});
  lb_rule_set(c, 2, tv, 4, (lb_dim[]){v.batch, v.n, total, v.size});
  lb_rule_set(c, 3, x->dtype, 4, scores);
  return LB_OK;
}

// The dims of Attention without past keys; the segments do not change them.
lb_status lb_shape_ragged_attention(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  for (int i = 0; i < 3; i++) LB_TRY(lb_rule_takes(c, i, LB_BIT(F32)));
  LB_TRY(lb_rule_takes(c, 3, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 3, 1, 1));
  for (int i = 0; i < 3; i++) LB_TRY(lb_rule_rank(c, i, 3, 4));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0 || c->in[1].rank < 0 || c->in[2].rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, x->rank);
  head_dims q, k, v;
  LB_TRY(split_heads(c, 0, "q_num_heads", &q));
  LB_TRY(split_heads(c, 1, "kv_num_heads", &k));
  LB_TRY(split_heads(c, 2, "kv_num_heads", &v));
  LB_TRY(check_heads(c, &q, &k, &v));
  lb_dim y[4] = {q.batch, q.n, q.length, v.size};
  if (x->rank == 3) {
    y[1] = q.length;
    LB_TRY(lb_rule_mul(c, q.n, v.size, &y[2]));
  }
  lb_rule_set(c, 0, x->dtype, x->rank, y);
  return LB_OK;
}

// -- LinearAttention ---------------------------------------------------------

// Decay and beta are [batch, length, width] with one of two widths.
static lb_status check_gate(const lb_infer *c, int i, const char *what,
                            const head_dims *k, lb_dim a, lb_dim b) {
  if (!lb_rule_ranked(c, i)) return LB_OK;
  LB_TRY(lb_rule_rank(c, i, 3, 3));
  bool first = !lb_rule_differ(c->in[i].dims[2], a);
  return lb_rule_expect(c, i, what, 3,
                        (lb_dim[]){k->batch, k->length, first ? a : b});
}

lb_status lb_shape_linear_attention(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_dtype ts = lb_rule_has(c, 3) ? c->in[3].dtype : x->dtype;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  for (int i = 1; i < 6; i++) {
    if (i != 3) LB_TRY(lb_rule_same_type(c, 0, i));
  }
  LB_TRY(lb_rule_takes(c, 3, LB_TYPES_FLOAT));
  for (int i = 0; i < 3; i++) {
    LB_TRY(lb_rule_rank(c, i, 3, 3));
    if (c->in[i].rank >= 0) continue;
    LB_TRY(lb_rule_unknown(c, 1, ts, 4));
    return lb_rule_unknown(c, 0, x->dtype, 3);
  }
  head_dims q, k, v;
  LB_TRY(split_heads(c, 0, "q_num_heads", &q));
  LB_TRY(split_heads(c, 1, "kv_num_heads", &k));
  LB_TRY(split_heads(c, 2, "kv_num_heads", &v));
  LB_TRY(check_heads(c, &q, &k, &v));
  if (lb_rule_differ(q.length, k.length))
    return lb_infer_error(c, "query %s and key %s differ in length",
                          lb_rule_text(c, 0), lb_rule_text(c, 1));
  lb_dim state[4] = {k.batch, k.n, k.size, v.size};
  lb_dim y[3] = {q.batch, q.length};
  LB_TRY(lb_rule_expect(c, 3, "past_state", 4, state));
  LB_TRY(check_gate(c, 4, "decay", &k, c->in[1].dims[2], k.n));
  LB_TRY(check_gate(c, 5, "beta", &k, k.n, lb_dim_const(1)));
  LB_TRY(lb_rule_mul(c, q.n, v.size, &y[2]));
  lb_rule_set(c, 0, x->dtype, 3, y);
  lb_rule_set(c, 1, ts, 4, state);
  return LB_OK;
}

// -- CausalConvWithState -----------------------------------------------------

lb_status lb_shape_causal_conv(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *w = &c->in[1];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  for (int i = 1; i < 4; i++) LB_TRY(lb_rule_same_type(c, 0, i));
  LB_TRY(lb_rule_rank(c, 0, 3, 3));
  LB_TRY(lb_rule_rank(c, 1, 3, 3));
  lb_rule_like(c, 0, x->dtype, x);
  if (x->rank < 0 || w->rank < 0) return lb_rule_unknown(c, 1, x->dtype, 3);
  lb_dim ch = x->dims[1], state[3] = {x->dims[0], ch};
  LB_TRY(lb_rule_expect(c, 1, "weight", 3,
                        (lb_dim[]){ch, lb_dim_const(1), w->dims[2]}));
  if (lb_dim_is(w->dims[2], 0))
    return lb_infer_error(c, "weight %s has no taps", lb_rule_text(c, 1));
  LB_TRY(lb_rule_plus(c, w->dims[2], -1, &state[2]));
  LB_TRY(lb_rule_expect(c, 2, "bias", 1, &ch));
  LB_TRY(lb_rule_expect(c, 3, "past_state", 3, state));
  lb_rule_set(c, 1, x->dtype, 3, state);
  return LB_OK;
}

// -- LSTM, GRU, RNN ----------------------------------------------------------

typedef struct rnn {
  lb_dim seq, batch, input, hidden, dirs;
  int64_t gates;
  bool batch_first;
} rnn;

static lb_status rnn_sizes(const lb_infer *c, rnn *r) {
  const char *direction = lb_attr_str(c->node, "direction", "forward");
  const lb_vinfo *x = &c->in[0], *rec = &c->in[2];
  lb_op op = c->node->op;
  r->gates = op == LB_OP_LSTM ? 4 : op == LB_OP_GRU ? 3 : 1;
  r->dirs = lb_dim_const(strcmp(direction, "bidirectional") == 0 ? 2 : 1);
  r->batch_first = lb_attr_int(c->node, "layout", 0) != 0;
  int64_t hidden = lb_attr_int(c->node, "hidden_size", -1);
  r->hidden = rec->rank == 3 ? rec->dims[2] : lb_dim_const(hidden);
  if (hidden >= 0) {
    lb_dim given = lb_dim_const(hidden);
    if (lb_rule_differ(given, r->hidden))
      return lb_infer_error(c, "hidden_size is %lld but R is %s",
                            (long long)hidden, lb_rule_text(c, 2));
    r->hidden = given;
  }
  r->seq = x->dims[r->batch_first];
  r->batch = x->dims[!r->batch_first];
  r->input = x->dims[2];
  return LB_OK;
}

static lb_status rnn_check_input(const lb_infer *c, const rnn *r, lb_dim rows) {
  const lb_vinfo *x = &c->in[0];
  lb_dim all;
  if (!lb_op_projected(c->node))
    return lb_rule_expect(c, 1, "W", 3, (lb_dim[]){r->dirs, rows, r->input});
  LB_TRY(lb_rule_mul(c, r->dirs, rows, &all));
  return lb_rule_expect(c, 0, "X", 3, (lb_dim[]){x->dims[0], x->dims[1], all});
}

static lb_status rnn_check_lengths(const lb_infer *c, const rnn *r) {
  if (!lb_op_projected(c->node))
    return lb_rule_expect(c, 4, "sequence_lens", 1, &r->batch);
  return lb_rule_expect(c, 4, "Within", 2, (lb_dim[]){r->seq, r->batch});
}

static lb_status rnn_check(const lb_infer *c, const rnn *r) {
  lb_dim rows, both, peep;
  LB_TRY(lb_rule_mul(c, r->hidden, lb_dim_const(r->gates), &rows));
  LB_TRY(lb_rule_mul(c, rows, lb_dim_const(2), &both));
  LB_TRY(lb_rule_mul(c, r->hidden, lb_dim_const(3), &peep));
  LB_TRY(rnn_check_input(c, r, rows));
  LB_TRY(lb_rule_expect(c, 2, "R", 3, (lb_dim[]){r->dirs, rows, r->hidden}));
  LB_TRY(lb_rule_expect(c, 3, "B", 2, (lb_dim[]){r->dirs, both}));
  LB_TRY(rnn_check_lengths(c, r));
  lb_dim state[3] = {r->batch_first ? r->batch : r->dirs,
                     r->batch_first ? r->dirs : r->batch, r->hidden};
  LB_TRY(lb_rule_expect(c, 5, "initial_h", 3, state));
  LB_TRY(lb_rule_expect(c, 6, "initial_c", 3, state));
  return lb_rule_expect(c, 7, "P", 2, (lb_dim[]){r->dirs, peep});
}

lb_status lb_shape_rnn(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  bool masked = lb_op_projected(c->node);
  if (!masked) LB_TRY(lb_rule_takes(c, 4, LB_BIT(I32)));
  for (int i = 1; i < 8; i++) {
    if (i != 4 || masked) LB_TRY(lb_rule_same_type(c, 0, i));
  }
  for (int i = 0; i < 3; i++) LB_TRY(lb_rule_rank(c, i, 3, 3));
  bool has_hidden_size = lb_attr_int(c->node, "hidden_size", -1) >= 0;
  if (x->rank < 0 || (c->in[2].rank < 0 && !has_hidden_size)) {
    LB_TRY(lb_rule_unknown(c, 0, x->dtype, 4));
    LB_TRY(lb_rule_unknown(c, 1, x->dtype, 3));
    return lb_rule_unknown(c, 2, x->dtype, 3);
  }
  rnn r;
  LB_TRY(rnn_sizes(c, &r));
  LB_TRY(rnn_check(c, &r));
  lb_dim y[4] = {r.seq, r.dirs, r.batch, r.hidden};
  if (r.batch_first) y[0] = r.batch, y[1] = r.seq, y[2] = r.dirs;
  lb_dim last[3] = {r.batch_first ? r.batch : r.dirs,
                    r.batch_first ? r.dirs : r.batch, r.hidden};
  lb_rule_set(c, 0, x->dtype, 4, y);
  lb_rule_set(c, 1, x->dtype, 3, last);
  lb_rule_set(c, 2, x->dtype, 3, last);
  return LB_OK;
}

lb_status lb_shape_within(lb_infer *c) {
  const lb_vinfo *x = &c->in[1];
  bool first = lb_attr_int(c->node, "layout", 0) != 0;
  LB_TRY(lb_rule_takes(c, 0, LB_BIT(I32)));
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_rank(c, 1, 3, 3));
  if (x->rank < 0) return lb_rule_unknown(c, 0, x->dtype, 2);
  lb_dim dims[2] = {x->dims[first], x->dims[!first]};
  LB_TRY(lb_rule_expect(c, 0, "sequence_lens", 1, &dims[1]));
  lb_rule_set(c, 0, x->dtype, 2, dims);
  return LB_OK;
}
