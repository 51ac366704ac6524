// graph/rules.c -- checks and steps that many shape rules share.
#include "graph/rules.h"

#include "base/strbuf.h"

// -- text --------------------------------------------------------------------

static const char *finish_text(const lb_infer *c, lb_strbuf *s) {
  const char *text = lb_arena_strdup(c->arena, lb_strbuf_str(s));
  lb_strbuf_fini(s);
  return text ? text : "?";
}

const char *lb_rule_dims(const lb_infer *c, int rank, const lb_dim *dims) {
  lb_strbuf s = {0};
  lb_strbuf_putc(&s, '[');
  if (rank < 0) lb_strbuf_puts(&s, "...");
  for (int i = 0; i < rank; i++) {
    if (i) lb_strbuf_putc(&s, ',');
    lb_dim_print(dims[i], &s);
  }
  lb_strbuf_putc(&s, ']');
  return finish_text(c, &s);
}

const char *lb_rule_text(const lb_infer *c, int i) {
  return lb_rule_dims(c, c->in[i].rank, c->in[i].dims);
}

const char *lb_rule_dim(const lb_infer *c, lb_dim d) {
  lb_strbuf s = {0};
  lb_dim_print(d, &s);
  return finish_text(c, &s);
}

// -- outputs -----------------------------------------------------------------

void lb_rule_type(lb_infer *c, int o, lb_dtype t) {
  if (lb_rule_wants(c, o)) c->out[o].dtype = t;
}

void lb_rule_set(lb_infer *c, int o, lb_dtype t, int rank, const lb_dim *dims) {
  if (!lb_rule_wants(c, o)) return;
  c->out[o].dtype = t;
  c->out[o].rank = rank;
  for (int i = 0; i < rank; i++) c->out[o].dims[i] = dims[i];
}

void lb_rule_like(lb_infer *c, int o, lb_dtype t, const lb_vinfo *x) {
  lb_rule_set(c, o, t, x->rank, x->dims);
}

lb_status lb_rule_unknown(lb_infer *c, int o, lb_dtype t, int rank) {
  lb_rule_type(c, o, t);
  if (!lb_rule_wants(c, o) || !c->syms || rank < 0) return LB_OK;
  return lb_infer_fresh(c, o, rank);
}

lb_status lb_rule_max_rank(const lb_infer *c, int rank) {
  if (rank <= LB_MAX_RANK) return LB_OK;
  return lb_infer_error(c, "rank %d is more than the %d supported", rank,
                        LB_MAX_RANK);
}

// -- dtypes ------------------------------------------------------------------

static lb_status bad_type(const lb_infer *c, int i, unsigned types) {
  lb_strbuf s = {0};
  for (int t = 1; t < LB_DTYPE_COUNT; t++) {
    if (!(types >> t & 1)) continue;
    if (s.len) lb_strbuf_puts(&s, ", ");
    lb_strbuf_puts(&s, lb_dtype_name((lb_dtype)t));
  }
  return lb_infer_error(c, "input %d is %s; it must be one of %s", i,
                        lb_dtype_name(c->in[i].dtype), finish_text(c, &s));
}

lb_status lb_rule_takes(const lb_infer *c, int i, unsigned types) {
  if (!lb_rule_has(c, i) || (types >> c->in[i].dtype & 1)) return LB_OK;
  return bad_type(c, i, types);
}

lb_status lb_rule_same_type(const lb_infer *c, int i, int j) {
  if (!lb_rule_has(c, i) || !lb_rule_has(c, j)) return LB_OK;
  if (c->in[i].dtype == c->in[j].dtype) return LB_OK;
  return lb_infer_error(c, "input %d is %s but input %d is %s", i,
                        lb_dtype_name(c->in[i].dtype), j,
                        lb_dtype_name(c->in[j].dtype));
}

lb_status lb_rule_type_attr(const lb_infer *c, const char *name, lb_dtype dflt,
                            lb_dtype *out) {
  int64_t code = lb_attr_int(c->node, name, 0);
  *out = code ? lb_attr_dtype(code) : dflt;
  if (*out != LB_NONE) return LB_OK;
  return lb_error(LB_UNSUPPORTED,
                  "%s is %lld, a data type that Limber does not support", name,
                  (long long)code);
}

// -- ranks and axes ----------------------------------------------------------

lb_status lb_rule_rank(const lb_infer *c, int i, int lo, int hi) {
  if (!lb_rule_ranked(c, i)) return LB_OK;
  int rank = c->in[i].rank;
  if (rank >= lo && rank <= hi) return LB_OK;
  const char *text = lb_rule_text(c, i);
  if (lo == hi)
    return lb_infer_error(c, "input %d is %s; its rank must be %d", i, text,
                          lo);
  if (hi == LB_MAX_RANK)
    return lb_infer_error(c, "input %d is %s; its rank must be at least %d", i,
                          text, lo);
  return lb_infer_error(c, "input %d is %s; its rank must be %d to %d", i, text,
                        lo, hi);
}

lb_status lb_rule_axis(const lb_infer *c, int64_t axis, int rank, int *out) {
  *out = 0;
  if (axis < -rank || axis >= rank)
    return lb_infer_error(c, "axis %lld is out of range for rank %d",
                          (long long)axis, rank);
  *out = (int)(axis < 0 ? axis + rank : axis);
  return LB_OK;
}

lb_status lb_rule_elements(const lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *ix = &c->in[1];
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_rank(c, 0, 1, LB_MAX_RANK));
  if (x->rank < 0) return LB_OK;
  int axis;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  LB_TRY(lb_rule_rank(c, 1, x->rank, x->rank));
  for (int i = 0; i < ix->rank; i++) {
    if (i != axis &&
        lb_dim_known(ix->dims[i]).at_least > lb_dim_known(x->dims[i]).at_most)
      return lb_infer_error(c, "indices %s exceed data %s in dim %d",
                            lb_rule_text(c, 1), lb_rule_text(c, 0), i);
  }
  return LB_OK;
}

int lb_rule_axes_in(const lb_infer *c, int i, lb_dim *out) {
  int n = lb_infer_ints(c, i, out, LB_MAX_RANK);
  for (int k = 0; k < n; k++)
    if (!lb_dim_is_const(out[k])) return -1;
  return n;
}

lb_status lb_rule_axes(const lb_infer *c, const lb_dim *axes, int n, int rank,
                       bool *marked) {
  for (int i = 0; i < rank; i++) marked[i] = false;
  for (int i = 0; i < n; i++) {
    int axis;
    LB_TRY(lb_rule_axis(c, axes[i].k, rank, &axis));
    if (marked[axis]) return lb_infer_error(c, "axis %d is named twice", axis);
    marked[axis] = true;
  }
  return LB_OK;
}

lb_status lb_rule_list(const lb_infer *c, const char *name, int n,
                       const int64_t **out) {
  uint32_t count;
  *out = lb_attr_ints(c->node, name, &count);
  if (!*out || (int64_t)count == n) return LB_OK;
  return lb_infer_error(c, "%s has %u elements; it needs %d", name, count, n);
}

// -- dims --------------------------------------------------------------------

lb_status lb_rule_fresh(const lb_infer *c, lb_dim *out) {
  if (!c->syms)
    return lb_error(LB_INTERNAL, "a size is unknown while planning");
  return lb_symtab_fresh(c->syms, out);
}

bool lb_rule_differ(lb_dim a, lb_dim b) {
  if (lb_dim_equal(a, b)) return false;
  if (lb_dim_is_const(a) && lb_dim_is_const(b)) return true;
  lb_dim_range fa = lb_dim_known(a), fb = lb_dim_known(b);
  return fa.at_most < fb.at_least || fb.at_most < fa.at_least;
}

lb_status lb_rule_expect(const lb_infer *c, int i, const char *what, int rank,
                         const lb_dim *dims) {
  if (!lb_rule_ranked(c, i)) return LB_OK;
  bool same = c->in[i].rank == rank;
  for (int d = 0; same && d < rank; d++)
    same = !lb_rule_differ(c->in[i].dims[d], dims[d]);
  if (same) return LB_OK;
  return lb_infer_error(c, "%s is %s; it must be %s", what, lb_rule_text(c, i),
                        lb_rule_dims(c, rank, dims));
}

lb_status lb_rule_fits(const lb_infer *c, int i, const char *what, int rank,
                       const lb_dim *dims) {
  if (!lb_rule_ranked(c, i)) return LB_OK;
  const lb_vinfo *x = &c->in[i];
  bool fits = x->rank <= rank;
  for (int d = 0; fits && d < x->rank; d++)
    fits = !lb_rule_differ(x->dims[d], lb_dim_const(1)) ||
           !lb_rule_differ(x->dims[d], dims[rank - x->rank + d]);
  if (fits) return LB_OK;
  return lb_infer_error(c, "%s %s does not broadcast to %s", what,
                        lb_rule_text(c, i), lb_rule_dims(c, rank, dims));
}

lb_status lb_rule_scalar(const lb_infer *c, int i, const char *what) {
  if (!lb_rule_ranked(c, i)) return LB_OK;
  const lb_vinfo *x = &c->in[i];
  if (x->rank == 0) return LB_OK;
  if (x->rank == 1 && !lb_rule_differ(x->dims[0], lb_dim_const(1)))
    return LB_OK;
  return lb_infer_error(c, "%s is %s; it must be a single element", what,
                        lb_rule_text(c, i));
}

// A fresh symbol for an expression over a and b that is too large to keep.
static lb_status fresh_for(const lb_infer *c, lb_dim a, lb_dim b, bool minus,
                           lb_dim *out) {
  bool size =
      !minus && lb_dim_known(a).at_least >= 0 && lb_dim_known(b).at_least >= 0;
  return size ? lb_symtab_fresh(c->syms, out)
              : lb_symtab_fresh_int(c->syms, out);
}

#define MATH(name, minus)                                                  \
  lb_status lb_rule_##name(const lb_infer *c, lb_dim a, lb_dim b,          \
                           lb_dim *out) {                                  \
    lb_status st = lb_dim_##name(c->syms, a, b, out);                      \
    if (!lb_failed(st) || lb_status_code(st) != LB_UNSUPPORTED) return st; \
    lb_status_drop(st);                                                    \
    return fresh_for(c, a, b, minus, out);                                 \
  }
MATH(add, false)
MATH(sub, true)
MATH(mul, false)
MATH(floordiv, false)
MATH(ceildiv, false)
MATH(min, false)
MATH(max, false)
MATH(divexact, false)
#undef MATH

lb_status lb_rule_plus(const lb_infer *c, lb_dim a, int64_t k, lb_dim *out) {
  return lb_rule_add(c, a, lb_dim_const(k), out);
}

lb_status lb_rule_product(const lb_infer *c, const lb_dim *dims, int n,
                          lb_dim *out) {
  lb_dim p = lb_dim_const(1);
  for (int i = 0; i < n; i++) LB_TRY(lb_rule_mul(c, p, dims[i], &p));
  *out = p;
  return LB_OK;
}

// -- broadcasting ------------------------------------------------------------

static bool min_is(const lb_infer *c, lb_dim a, lb_dim b, lb_dim *out) {
  lb_status st = lb_dim_min(c->syms, a, b, out);
  bool ok = !lb_failed(st);
  lb_status_drop(st);
  return ok;
}

// Whether b is never more than a, and 0 only where a is: then a is the result
// wherever the two broadcast (such as seq against min(seq,512)).
static bool covers(const lb_infer *c, lb_dim a, lb_dim b) {
  lb_dim smaller, a1, b1, one = lb_dim_const(1);
  return min_is(c, a, b, &smaller) && lb_dim_equal(smaller, b) &&
         min_is(c, a, one, &a1) && min_is(c, b, one, &b1) &&
         lb_dim_equal(a1, b1);
}

// A dim that is known not to be 1 is the result, because the other one must be
// 1 or equal. If both may be 1, neither is known to be the result.
static lb_status broadcast_dims(const lb_infer *c, lb_dim a, lb_dim b,
                                lb_dim *out, bool *clash) {
  *clash = false;
  *out = a;
  if (lb_dim_equal(a, b) || lb_dim_is(b, 1)) return LB_OK;
  *out = b;
  if (lb_dim_is(a, 1)) return LB_OK;
  *clash = lb_dim_is_const(a) && lb_dim_is_const(b);
  if (*clash) return LB_OK;
  lb_dim_range fa = lb_dim_known(a), fb = lb_dim_known(b);
  bool a_wins = fa.at_least > 1 || fa.at_most < 1;
  bool b_wins = fb.at_least > 1 || fb.at_most < 1;
  *clash = a_wins && b_wins && lb_rule_differ(a, b);
  if (b_wins && (lb_dim_is_const(b) || !a_wins)) return LB_OK;
  if (!a_wins && covers(c, b, a)) return LB_OK;
  *out = a;
  return a_wins || covers(c, a, b) ? LB_OK : lb_rule_fresh(c, out);
}

// With two inputs, names both shapes; with more, `before` is the result so far.
static lb_status clash_error(const lb_infer *c, const char *before, lb_dim ours,
                             int i, int axis, int rank) {
  const lb_vinfo *x = &c->in[i];
  lb_dim theirs = x->dims[axis - (rank - x->rank)];
  return lb_infer_error(
      c, "shapes %s and %s do not broadcast (dim %d: %s against %s)", before,
      lb_rule_text(c, i), axis, lb_rule_dim(c, ours), lb_rule_dim(c, theirs));
}

lb_status lb_rule_broadcast(lb_infer *c, const int *inputs, int n, int *rank,
                            lb_dim *dims) {
  int r = 0;
  bool ranked = true;
  for (int k = 0; k < n; k++) {
    int rk = c->in[inputs[k]].rank;
    ranked = ranked && rk >= 0;
    if (rk > r) r = rk;
  }
  *rank = ranked ? r : -1;
  if (!ranked) return LB_OK;
  for (int i = 0; i < r; i++) dims[i] = lb_dim_const(1);
  for (int k = 0; k < n; k++) {
    const lb_vinfo *x = &c->in[inputs[k]];
    for (int i = 0, at = r - x->rank; i < x->rank; i++, at++) {
      bool clash;
      lb_dim merged;
      LB_TRY(broadcast_dims(c, dims[at], x->dims[i], &merged, &clash));
      if (clash)
        return clash_error(
            c, n == 2 ? lb_rule_text(c, inputs[0]) : lb_rule_dims(c, r, dims),
            dims[at], inputs[k], at, r);
      dims[at] = merged;
    }
  }
  return LB_OK;
}
