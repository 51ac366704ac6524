// partition/bind.c -- a partition at concrete shapes: its spec, and the loops
// around the kernel.
//
// Every operand is broadcast to the dims of the result; dims that all operands
// walk evenly are joined. What is left are cols (innermost), rows, and loops
// that run around the kernel. A reduction or a product keeps its last dim as
// cols whatever could be joined.
#include <string.h>

#include "partition/emit.h"
#include "partition/partition.h"

#define MAX_OPERANDS (LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN)

typedef struct walker {  // operands over the dims of the result
  const lb_partition *part;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  int rank;
  int64_t dims[LB_MAX_RANK];
  int64_t strides[MAX_OPERANDS][LB_MAX_RANK];
  uint32_t n;  // operands so far; the first is the result
} walker;

// Past the result, and past a and b of a product: a is walked along k there.
static int find(const walker *w, const lb_value *v) {
  uint32_t first = w->part->form == LB_FORM_MATMUL ? 3 : 1;
  for (uint32_t i = first; i < w->n; i++)
    if (w->out->operands[i].value == v) return (int)i;
  return -1;
}

static bool is_scalar(const lb_value *v) {
  const lb_tensor *t = lb_value_const(v);
  return t && lb_tensor_count(t) == 1;
}

// An operand walked along the dims of the result; false if it does not fit.
static bool add_strides(walker *w, const lb_value *v, const lb_tensor *t) {
  if (w->n == MAX_OPERANDS || t->rank > w->rank) return false;
  int shift = w->rank - t->rank;
  for (int i = 0; i < w->rank; i++) {
    int64_t d = i < shift ? 1 : t->dims[i - shift];
    if (d != 1 && d != w->dims[i]) return false;
    w->strides[w->n][i] = d == 1 ? 0 : t->strides[i - shift];
  }
  w->out->operands[w->n++].value = v;
  return true;
}

static lb_status add_value(walker *w, const lb_value *v, bool *ok) {
  lb_tensor t;
  if (!v || is_scalar(v) || find(w, v) >= 0) return LB_OK;
  LB_TRY(w->tensor(w->user, v, &t));
  *ok = *ok && add_strides(w, v, &t);
  return LB_OK;
}

// a of a product: rows as the result has them, then k.
static lb_status add_product(walker *w, bool *ok) {
  const lb_node *n = w->part->nodes[0];
  lb_tensor a;
  LB_TRY(w->tensor(w->user, n->in[0], &a));
  int64_t k = a.dims[a.rank - 1];
  *ok = *ok && a.strides[a.rank - 1] == 1 && a.rank == w->rank && k > 0;
  a.dims[a.rank - 1] = 1;
  *ok = *ok && add_strides(w, n->in[0], &a);
  if (!*ok) return LB_OK;
  w->out->dims[LB_DIM_K] = k;
  memset(w->strides[w->n], 0, sizeof w->strides[w->n]);
  w->out->operands[w->n++].value = NULL;
  return LB_OK;
}

static lb_status collect(walker *w, bool *ok) {
  const lb_partition *p = w->part;
  const lb_value *result = p->nodes[p->n_nodes - 1]->out[0];
  lb_tensor t;
  LB_TRY(w->tensor(w->user, result, &t));
  w->rank = t.rank;
  memcpy(w->dims, t.dims, sizeof t.dims);
  *ok = t.rank > 0 && lb_tensor_count(&t) > 0 && add_strides(w, result, &t);
  if (*ok && p->form == LB_FORM_MATMUL) LB_TRY(add_product(w, ok));
  for (uint32_t i = 0; *ok && i < p->n_nodes; i++) {
    const lb_node *n = p->nodes[i];
    if (i == 0 && p->form == LB_FORM_MATMUL) continue;
    for (uint32_t k = 0; *ok && k < n->n_in; k++)
      if (i == 0 || n->in[k] != p->nodes[i - 1]->out[0])
        LB_TRY(add_value(w, n->in[k], ok));
  }
  return LB_OK;
}

// -- loops
// -----------------------------------------------------------------------------

static bool joins(const walker *w, int outer, int inner) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->strides[i][outer] != w->strides[i][inner] * w->dims[inner])
      return false;
  return true;
}

static void move_dim(walker *w, int to, int from) {
  w->dims[to] = w->dims[from];
  for (uint32_t i = 0; i < w->n; i++) w->strides[i][to] = w->strides[i][from];
}

// Joins dims from the innermost outwards; dims of 1 vanish. With keep_last the
// last dim stays as it is.
static void join_dims(walker *w, bool keep_last) {
  int at = w->rank - 1;  // the dim being grown; those above it are done
  for (int i = w->rank - 2; i >= 0; i--) {
    bool fixed = keep_last && at == w->rank - 1;
    if (w->dims[i] == 1) continue;
    if (!fixed && w->dims[at] == 1) {
      move_dim(w, at, i);
    } else if (!fixed && joins(w, i, at)) {
      w->dims[at] *= w->dims[i];
    } else {
      move_dim(w, --at, i);
    }
  }
  int n = w->rank - at;
  for (int i = 0; i < n; i++) move_dim(w, i, at + i);
  w->rank = n;
}

static void set_loops(const walker *w) {
  lb_binding *b = w->out;
  int cols = w->rank - 1, rows = w->rank - 2;
  b->n_operands = w->n;
  b->dims[LB_DIM_COLS] = w->dims[cols];
  b->dims[LB_DIM_ROWS] = rows >= 0 ? w->dims[rows] : 1;
  b->n_outer = rows > 0 ? rows : 0;
  for (int i = 0; i < b->n_outer; i++) b->outer[i] = w->dims[i];
  for (uint32_t k = 0; k < w->n; k++) {
    lb_bind_operand *o = &b->operands[k];
    o->col = w->strides[k][cols];
    o->row = rows >= 0 ? w->strides[k][rows] : 0;
    for (int i = 0; i < b->n_outer; i++) o->outer[i] = w->strides[k][i];
  }
}

// -- the spec
// --------------------------------------------------------------------------

static lb_layout layout_of(const lb_binding *b, const lb_bind_operand *o) {
  bool one_row = b->dims[LB_DIM_ROWS] == 1;
  if (o->col == 1)
    return o->row == 0 && !one_row ? LB_LAYOUT_COLS : LB_LAYOUT_FULL;
  if (o->col != 0) return LB_LAYOUT_STRIDED;
  return o->row == 0 ? LB_LAYOUT_ONE : LB_LAYOUT_ROWS;
}

static void add_inputs(lb_emitter *e, const walker *w, uint8_t *nodes) {
  const lb_binding *b = w->out;
  for (uint32_t i = 1; i < w->n; i++) {
    lb_layout layout = layout_of(b, &b->operands[i]);
    if (w->part->form == LB_FORM_MATMUL && i < 3)
      layout = i == 1 ? LB_LAYOUT_FULL : LB_LAYOUT_PACKED;
    nodes[i] = lb_spec_input(&e->b, LB_F32, layout);
  }
}

static uint8_t source_of(lb_emitter *e, const walker *w, const uint8_t *nodes,
                         const lb_value *v, const lb_value *before,
                         uint8_t chain) {
  if (!v) return LB_SPEC_NO_NODE;
  if (v == before) return chain;
  if (!is_scalar(v)) return nodes[find(w, v)];
  float x;
  memcpy(&x, lb_value_const(v)->data, sizeof x);
  return lb_emit_scalar(e, x);
}

static uint8_t emit_chain(lb_emitter *e, const walker *w,
                          const uint8_t *nodes) {
  const lb_partition *p = w->part;
  uint8_t chain = LB_SPEC_NO_NODE;
  const lb_value *before = NULL;
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const lb_node *n = p->nodes[i];
    uint8_t src[8];
    if (i == 0 && p->form == LB_FORM_MATMUL) {
      chain = lb_spec_node(&e->b, LB_S_ACC, LB_F32, NULL, 0);
    } else {
      for (uint32_t k = 0; k < n->n_in; k++)
        src[k] = source_of(e, w, nodes, n->in[k], before, chain);
      chain = lb_emit_node(e, n, src);
    }
    before = n->out[0];
  }
  return chain;
}

// A spec past a limit is no error: the nodes run one by one.
static lb_status build_spec(const walker *w, bool *ok) {
  lb_binding *b = w->out;
  lb_emitter e = {0};
  uint8_t nodes[MAX_OPERANDS] = {0};
  lb_spec_begin(&e.b, w->part->form);
  add_inputs(&e, w, nodes);
  lb_spec_output(&e.b, emit_chain(&e, w, nodes), LB_LAYOUT_FULL);
  lb_status st = lb_memo_finish(w->part->memo, &e.b, &b->spec);
  *ok = !lb_failed(st);
  if (lb_status_code(st) == LB_UNSUPPORTED) {
    lb_status_drop(st);
    return LB_OK;
  }
  for (uint8_t i = 0; *ok && i < b->spec.n_scalars; i++) {
    uint32_t bits;
    memcpy(&bits, &e.scalars[i], sizeof bits);
    b->scalars[i] = bits;
  }
  return st;
}

lb_status lb_partition_bind(const lb_partition *p, lb_tensor_fn *tensor,
                            void *user, lb_binding *out, bool *ok) {
  *out = (lb_binding){0};
  walker w = {.part = p, .tensor = tensor, .user = user, .out = out};
  LB_TRY(collect(&w, ok));
  if (!*ok) return LB_OK;
  join_dims(&w, p->form != LB_FORM_MAP);
  set_loops(&w);
  return build_spec(&w, ok);
}
