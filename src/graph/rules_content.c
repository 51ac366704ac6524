// graph/rules_content.c -- tracks the contents of small integer vectors as
// expressions.
//
// Exporters compute shapes in the graph (Shape, Gather, Mul, Concat, Reshape).
// Tracking these integers keeps the shapes that they determine symbolic.
// Contents are optional: where they are not known, the output has none, or a
// fresh symbol for that element.
#include <string.h>

#include "graph/rules.h"

// -- reading -----------------------------------------------------------------

// Offset in elements of the i-th element in row-major order.
static int64_t offset_of(const lb_tensor *t, int64_t i) {
  int64_t at = 0;
  for (int d = t->rank - 1; d >= 0; d--) {
    at += i % t->dims[d] * t->strides[d];
    i /= t->dims[d];
  }
  return at;
}

static const char *element(const lb_tensor *t, int64_t i) {
  return (const char *)t->data +
         offset_of(t, i) * (int64_t)lb_dtype_size(t->dtype);
}

static bool read_int(const lb_tensor *t, int64_t i, int64_t *out) {
  const char *p = element(t, i);
  switch (t->dtype) {
#define INT(id, ctype)       \
  case LB_##id: {            \
    ctype v;                 \
    memcpy(&v, p, sizeof v); \
    *out = (int64_t)v;       \
    return true;             \
  }
    INT(I8, int8_t)
    INT(I16, int16_t)
    INT(I32, int32_t)
    INT(I64, int64_t)
    INT(U8, uint8_t)
    INT(U16, uint16_t)
    INT(U32, uint32_t)
#undef INT
    case LB_U64: {
      uint64_t v;
      memcpy(&v, p, sizeof v);
      *out = (int64_t)(v & INT64_MAX);
      return v <= INT64_MAX;
    }
    case LB_BOOL: *out = *p != 0; return true;
    default: return false;
  }
}

static bool read_float(const lb_tensor *t, int64_t i, double *out) {
  const char *p = element(t, i);
  float f;
  uint16_t h;
  int64_t n;
  switch (t->dtype) {
    case LB_F64: memcpy(out, p, sizeof *out); return true;
    case LB_F32:
      memcpy(&f, p, sizeof f);
      *out = (double)f;
      return true;
    case LB_F16:
      memcpy(&h, p, sizeof h);
      *out = (double)lb_f16_to_f32(h);
      return true;
    case LB_BF16:
      memcpy(&h, p, sizeof h);
      *out = (double)lb_bf16_to_f32(h);
      return true;
    default:
      if (!read_int(t, i, &n)) return false;
      *out = (double)n;
      return true;
  }
}

// Number of elements of t, or -1 if more than cap.
static int small_count(const lb_tensor *t, int cap) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++) {
    if (t->dims[d] == 0) return 0;
    if (t->dims[d] > cap) return -1;
    n *= t->dims[d];
    if (n > cap) return -1;
  }
  return (int)n;
}

int lb_infer_ints(const lb_infer *c, int i, lb_dim *out, int cap) {
  if (!lb_rule_has(c, i)) return -1;
  const lb_vinfo *x = &c->in[i];
  if (x->data) {
    int n = small_count(x->data, cap);
    for (int k = 0; k < n; k++) {
      int64_t v;
      if (!read_int(x->data, k, &v)) return -1;
      out[k] = lb_dim_const(v);
    }
    return n;
  }
  if (!x->known || x->n_known > cap) return -1;
  memcpy(out, x->known, (size_t)x->n_known * sizeof *out);
  return x->n_known;
}

int lb_rule_const_ints(const lb_infer *c, int i, int64_t *out, int cap) {
  lb_dim v[LB_MAX_KNOWN];
  int n = lb_infer_ints(c, i, v, cap < LB_MAX_KNOWN ? cap : LB_MAX_KNOWN);
  for (int k = 0; k < n; k++) {
    if (!lb_dim_is_const(v[k])) return -1;
    out[k] = v[k].k;
  }
  return n;
}

int lb_rule_const_int(const lb_infer *c, int i, int64_t *out) {
  if (!lb_rule_has(c, i)) return 0;
  return lb_rule_const_ints(c, i, out, 1) == 1 ? 1 : -1;
}

int lb_rule_floats(const lb_infer *c, int i, double *out, int cap) {
  if (!lb_rule_has(c, i) || !c->in[i].data) return -1;
  int n = small_count(c->in[i].data, cap);
  for (int k = 0; k < n; k++)
    if (!read_float(c->in[i].data, k, &out[k])) return -1;
  return n;
}

int lb_rule_length(const lb_infer *c, int i) {
  const lb_vinfo *x = &c->in[i];
  if (!lb_rule_has(c, i) || x->rank < 0 || x->rank > 1) return -1;
  if (x->rank == 0) return 1;
  if (!lb_dim_is_const(x->dims[0]) || x->dims[0].k > INT32_MAX) return -1;
  return (int)x->dims[0].k;
}

// -- writing -----------------------------------------------------------------

// Symbolic sizes are assumed to fit into int32 where models use it; narrower
// types are for data.
static bool can_hold(lb_dtype t, lb_dim v) {
  if (!lb_dim_is_const(v)) return t == LB_I64 || t == LB_I32 || t == LB_BOOL;
  switch (t) {
    case LB_I64: return true;
    case LB_I32: return v.k >= INT32_MIN && v.k <= INT32_MAX;
    case LB_I16: return v.k >= INT16_MIN && v.k <= INT16_MAX;
    case LB_I8: return v.k >= INT8_MIN && v.k <= INT8_MAX;
    case LB_U64: return v.k >= 0;
    case LB_U32: return v.k >= 0 && v.k <= UINT32_MAX;
    case LB_U16: return v.k >= 0 && v.k <= UINT16_MAX;
    case LB_U8: return v.k >= 0 && v.k <= UINT8_MAX;
    case LB_BOOL: return v.k == 0 || v.k == 1;
    default: return false;
  }
}

// Number of elements of output o, or -1 if its contents cannot be tracked.
static int capacity_of(const lb_infer *c, int o) {
  if (!lb_rule_wants(c, o)) return -1;
  const lb_vinfo *x = &c->out[o];
  if (lb_dtype_is_float(x->dtype) || x->rank < 0 || x->rank > 1) return -1;
  if (x->rank == 0) return 1;
  if (!lb_dim_is_const(x->dims[0]) || x->dims[0].k > LB_MAX_KNOWN) return -1;
  return (int)x->dims[0].k;
}

lb_status lb_content_set(lb_infer *c, int o, const lb_dim *v, int n) {
  if (n < 0 || n > LB_MAX_KNOWN || capacity_of(c, o) != n) return LB_OK;
  for (int i = 0; i < n; i++)
    if (!can_hold(c->out[o].dtype, v[i])) return LB_OK;
  lb_dim *known = lb_arena_alloc(c->arena, (size_t)(n ? n : 1) * sizeof *known,
                                 _Alignof(lb_dim));
  if (!known) return lb_oom();
  memcpy(known, v, (size_t)n * sizeof *known);
  c->out[o].known = known;
  c->out[o].n_known = n;
  return LB_OK;
}

lb_status lb_content_copy(lb_infer *c, int o, int i) {
  lb_dim v[LB_MAX_KNOWN];
  if (capacity_of(c, o) < 0) return LB_OK;
  int n = lb_infer_ints(c, i, v, LB_MAX_KNOWN);
  if (c->out[o].dtype == LB_BOOL && c->in[i].dtype != LB_BOOL) {
    for (int k = 0; k < n; k++) {
      lb_dim_range f = lb_dim_known(v[k]);
      bool zero = lb_dim_is(v[k], 0);
      if (!zero && f.at_least <= 0 && f.at_most >= 0) return LB_OK;
      v[k] = lb_dim_const(!zero);
    }
  }
  return lb_content_set(c, o, v, n);
}

// -- arithmetic --------------------------------------------------------------

// Whether r is no failure. Contents that overflow are unknown; only running out
// of memory is an error, returned in *st.
static bool succeeded(lb_status r, lb_status *st) {
  if (!lb_failed(r)) return true;
  if (lb_status_code(r) == LB_OOM && !lb_failed(*st))
    *st = r;
  else
    lb_status_drop(r);
  return false;
}

// 1: true, 0: false, -1: depends on the symbols.
static int is_less(lb_dim a, lb_dim b) {
  lb_dim_range fa = lb_dim_known(a), fb = lb_dim_known(b);
  if (fa.at_most < fb.at_least) return 1;
  if (lb_dim_equal(a, b) || fa.at_least >= fb.at_most) return 0;
  return -1;
}

static int is_equal(lb_dim a, lb_dim b) {
  if (lb_dim_equal(a, b)) return 1;
  return lb_rule_differ(a, b) ? 0 : -1;
}

static int negated(int x) { return x < 0 ? -1 : !x; }

static bool truth(int x, lb_dim *out) {
  *out = lb_dim_const(x);
  return x >= 0;
}

// And, Or, Xor of bools, each 0, 1 or unknown.
static int logic(lb_op op, lb_dim a, lb_dim b) {
  int absorbing = op == LB_OP_Or;
  if (op != LB_OP_Xor && (lb_dim_is(a, absorbing) || lb_dim_is(b, absorbing)))
    return absorbing;
  if (!lb_dim_is_const(a) || !lb_dim_is_const(b)) return -1;
  return op == LB_OP_Xor ? a.k != b.k : !absorbing;
}

static bool divide(lb_symtab *t, lb_op op, lb_dim a, lb_dim b, bool c_like,
                   lb_dim *out, lb_status *st) {
  bool constant = lb_dim_is_const(a) && lb_dim_is_const(b);
  if (lb_dim_is(b, 0) || (lb_dim_is(b, -1) && lb_dim_is(a, INT64_MIN)))
    return false;
  if (constant && op == LB_OP_Div) return *out = lb_dim_const(a.k / b.k), true;
  if (constant && c_like) return *out = lb_dim_const(a.k % b.k), true;
  // Floor and truncation agree for non-negative operands.
  if (op == LB_OP_Div || c_like) {
    if (lb_dim_known(a).at_least < 0 || lb_dim_known(b).at_least < 0)
      return false;
  }
  return succeeded(op == LB_OP_Div ? lb_dim_floordiv(t, a, b, out)
                                   : lb_dim_mod(t, a, b, out),
                   st);
}

static bool combine(const lb_infer *c, lb_dim a, lb_dim b, lb_dim *out,
                    lb_status *st) {
  lb_symtab *t = c->syms;
  lb_op op = c->node->op;
  switch (op) {
    case LB_OP_Add: return succeeded(lb_dim_add(t, a, b, out), st);
    case LB_OP_Sub: return succeeded(lb_dim_sub(t, a, b, out), st);
    case LB_OP_Mul: return succeeded(lb_dim_mul(t, a, b, out), st);
    case LB_OP_Min: return succeeded(lb_dim_min(t, a, b, out), st);
    case LB_OP_Max: return succeeded(lb_dim_max(t, a, b, out), st);
    case LB_OP_Div: return divide(t, op, a, b, true, out, st);
    case LB_OP_Mod: {
      bool c_like = lb_attr_int(c->node, "fmod", 0) != 0;
      return divide(t, op, a, b, c_like, out, st);
    }
    case LB_OP_Equal: return truth(is_equal(a, b), out);
    case LB_OP_Less: return truth(is_less(a, b), out);
    case LB_OP_Greater: return truth(is_less(b, a), out);
    case LB_OP_LessOrEqual: return truth(negated(is_less(b, a)), out);
    case LB_OP_GreaterOrEqual: return truth(negated(is_less(a, b)), out);
    case LB_OP_And:
    case LB_OP_Or:
    case LB_OP_Xor: return truth(logic(op, a, b), out);
    default: return false;
  }
}

// An unknown element: a fresh symbol, if there is a symbol table.
static bool unknown_element(const lb_infer *c, lb_dim *out, lb_status *st) {
  return c->syms && succeeded(lb_symtab_fresh_int(c->syms, out), st);
}

lb_status lb_content_nary(lb_infer *c) {
  int n = capacity_of(c, 0);
  if (n < 0) return LB_OK;
  lb_dim sum[LB_MAX_KNOWN], next[LB_MAX_KNOWN];
  int n_sum = lb_infer_ints(c, 0, sum, n);
  if (n_sum != n && n_sum != 1) return LB_OK;
  for (int k = n - 1; k >= 0 && n_sum == 1; k--) sum[k] = sum[0];
  lb_status st = LB_OK;
  for (int i = 1; i < (int)c->node->n_in; i++) {
    int n_next = lb_infer_ints(c, i, next, n);
    if (n_next != n && n_next != 1) return LB_OK;
    for (int k = 0; k < n; k++) {
      if (!combine(c, sum[k], next[n_next == 1 ? 0 : k], &sum[k], &st))
        return st;
    }
  }
  return lb_content_set(c, 0, sum, n);
}

static bool apply(const lb_infer *c, lb_dim a, lb_dim *out, lb_status *st) {
  lb_dim minus;
  switch (c->node->op) {
    case LB_OP_Identity: *out = a; return true;
    case LB_OP_Not: return truth(lb_dim_is_const(a) ? !a.k : -1, out);
    case LB_OP_Neg:
      return succeeded(lb_dim_sub(c->syms, lb_dim_const(0), a, out), st);
    case LB_OP_Abs:
      if (!succeeded(lb_dim_sub(c->syms, lb_dim_const(0), a, &minus), st))
        return false;
      return succeeded(lb_dim_max(c->syms, a, minus, out), st);
    case LB_OP_Sign:
      *out = lb_dim_const((a.k > 0) - (a.k < 0));
      return lb_dim_is_const(a);
    default: return false;
  }
}

lb_status lb_content_unary(lb_infer *c) {
  lb_dim v[LB_MAX_KNOWN];
  if (capacity_of(c, 0) < 0) return LB_OK;
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN);
  lb_status st = LB_OK;
  for (int i = 0; i < n; i++)
    if (!apply(c, v[i], &v[i], &st)) return st;
  return lb_content_set(c, 0, v, n);
}

static bool choose(const lb_infer *c, const lb_dim *cond, lb_dim a, lb_dim b,
                   lb_dim *out, lb_status *st) {
  if (cond && lb_dim_is_const(*cond)) {
    *out = cond->k ? a : b;
    return true;
  }
  *out = a;
  return lb_dim_equal(a, b) || unknown_element(c, out, st);
}

lb_status lb_content_where(lb_infer *c) {
  int n = capacity_of(c, 0);
  if (n < 0) return LB_OK;
  lb_dim cond[LB_MAX_KNOWN], a[LB_MAX_KNOWN], b[LB_MAX_KNOWN];
  int nc = lb_infer_ints(c, 0, cond, n);
  int na = lb_infer_ints(c, 1, a, n), nb = lb_infer_ints(c, 2, b, n);
  if ((na != n && na != 1) || (nb != n && nb != 1)) return LB_OK;
  lb_dim out[LB_MAX_KNOWN];
  lb_status st = LB_OK;
  for (int k = 0; k < n; k++) {
    const lb_dim *q = nc == n || nc == 1 ? &cond[nc == 1 ? 0 : k] : NULL;
    if (!choose(c, q, a[na == 1 ? 0 : k], b[nb == 1 ? 0 : k], &out[k], &st))
      return st;
  }
  return lb_content_set(c, 0, out, n);
}

lb_status lb_content_reduce(lb_infer *c) {
  lb_dim v[LB_MAX_KNOWN], sum;
  if (capacity_of(c, 0) != 1) return LB_OK;
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN);
  if (n < 0) return LB_OK;
  lb_symtab *t = c->syms;
  lb_op op = c->node->op;
  bool extremum = op == LB_OP_ReduceMax || op == LB_OP_ReduceMin;
  if (n == 0 && extremum) return LB_OK;
  sum = extremum ? v[0] : lb_dim_const(op == LB_OP_ReduceProd);
  lb_status st = LB_OK;
  for (int i = extremum; i < n; i++) {
    lb_status r;
    switch (op) {
      case LB_OP_ReduceProd: r = lb_dim_mul(t, sum, v[i], &sum); break;
      case LB_OP_ReduceSum: r = lb_dim_add(t, sum, v[i], &sum); break;
      case LB_OP_ReduceMax: r = lb_dim_max(t, sum, v[i], &sum); break;
      case LB_OP_ReduceMin: r = lb_dim_min(t, sum, v[i], &sum); break;
      default: return LB_OK;
    }
    if (!succeeded(r, &st)) return st;
  }
  bool is_tracked = extremum || op == LB_OP_ReduceProd || op == LB_OP_ReduceSum;
  return is_tracked ? lb_content_set(c, 0, &sum, 1) : LB_OK;
}

lb_status lb_content_concat(lb_infer *c) {
  int capacity = capacity_of(c, 0), at = 0;
  if (capacity < 0) return LB_OK;
  lb_dim v[LB_MAX_KNOWN];
  lb_status st = LB_OK;
  bool any = false;
  for (int i = 0; i < (int)c->node->n_in; i++) {
    int len = lb_rule_length(c, i);
    if (len < 0 || len > capacity - at) return LB_OK;
    if (lb_infer_ints(c, i, v + at, len) != len) {
      for (int k = 0; k < len; k++)
        if (!unknown_element(c, &v[at + k], &st)) return st;
    } else {
      any = true;
    }
    at += len;
  }
  return any ? lb_content_set(c, 0, v, at) : LB_OK;
}
