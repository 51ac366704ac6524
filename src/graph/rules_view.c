// graph/rules_view.c -- views: the same elements with other dims or strides.
#include <string.h>

#include "graph/rules.h"

// -- Reshape -----------------------------------------------------------------

typedef struct target {
  lb_dim dims[LB_MAX_RANK];
  int n;
  int inferred;    // index of the -1; -1: none
  bool uncertain;  // some dim could be anything
} target;

// The message mentions copied dims: a model that computed a 0 from an empty
// size did not mean to copy a dim.
static lb_status reshape_error(const lb_infer *c, const lb_dim *requested,
                               const target *t) {
  const lb_vinfo *x = &c->in[0];
  lb_dim count;
  bool copied = false;
  LB_TRY(lb_rule_product(c, x->dims, x->rank, &count));
  for (int i = 0; i < t->n; i++)
    copied = copied || !lb_dim_equal(requested[i], t->dims[i]);
  return lb_infer_error(
      c, "%s elements of %s do not fit %s%s%s%s", lb_rule_dim(c, count),
      lb_rule_text(c, 0), lb_rule_dims(c, t->n, t->dims),
      copied ? "; a 0 in " : "", copied ? lb_rule_dims(c, t->n, requested) : "",
      copied ? " copies the input's dim at the same index" : "");
}

// A symbol that may be negative (read from an input) may also be -1 or 0, so it
// gives no information about a dim, unless it equals the input's dim at this
// index.
static lb_status reshape_dim(const lb_infer *c, int i, bool allow_zero,
                             target *t) {
  lb_dim *d = &t->dims[i];
  const lb_vinfo *x = &c->in[0];
  if (!lb_dim_is_const(*d)) {
    bool same = i < x->rank && lb_dim_equal(*d, x->dims[i]);
    if (same || lb_dim_known(*d).at_least >= 0) return LB_OK;
    t->uncertain = true;
    return lb_rule_fresh(c, d);
  }
  if (d->k > 0 || (d->k == 0 && allow_zero)) return LB_OK;
  if (d->k == 0) {
    if (x->rank < 0) {
      t->uncertain = true;
      return lb_rule_fresh(c, d);
    }
    if (i >= x->rank)
      return lb_infer_error(c,
                            "0 at index %d copies a dim that %s does not have",
                            i, lb_rule_text(c, 0));
    *d = x->dims[i];
    return LB_OK;
  }
  if (d->k < -1)
    return lb_infer_error(c, "%lld is not a valid size", (long long)d->k);
  if (t->inferred >= 0)
    return lb_infer_error(c, "-1 appears more than once in %s",
                          lb_rule_dims(c, t->n, t->dims));
  t->inferred = i;
  return LB_OK;
}

static bool is_empty(const lb_vinfo *x) {
  for (int i = 0; i < x->rank; i++)
    if (lb_dim_is(x->dims[i], 0)) return true;
  return false;
}

// Infers the dim that is -1 from the number of elements. Equal dims of input
// and output cancel, so that a batch of 0 gives the same sizes as any other
// batch; if that is impossible and there are no elements, the dim is 0.
static lb_status reshape_infer(const lb_infer *c, const lb_dim *requested,
                               target *t) {
  const lb_vinfo *x = &c->in[0];
  lb_dim *d = &t->dims[t->inferred];
  if (x->rank < 0 || t->uncertain) return lb_rule_fresh(c, d);
  lb_dim from[LB_MAX_RANK], to[LB_MAX_RANK], all, remaining;
  int n_from = x->rank, n_to = 0;
  memcpy(from, x->dims, (size_t)n_from * sizeof *from);
  for (int i = 0; i < t->n; i++) {
    if (i == t->inferred) continue;
    int k = 0;
    while (k < n_from && !lb_dim_equal(from[k], t->dims[i])) k++;
    if (k < n_from)
      from[k] = from[--n_from];
    else
      to[n_to++] = t->dims[i];
  }
  LB_TRY(lb_rule_product(c, from, n_from, &all));
  LB_TRY(lb_rule_product(c, to, n_to, &remaining));
  bool sizes = lb_dim_is_const(all) && lb_dim_is_const(remaining);
  if (lb_dim_is(remaining, 0) || (sizes && all.k % remaining.k != 0)) {
    if (!is_empty(x)) return reshape_error(c, requested, t);
    *d = lb_dim_const(0);
    return LB_OK;
  }
  return lb_rule_divexact(c, all, remaining, d);
}

static lb_status reshape_check(const lb_infer *c, const lb_dim *requested,
                               const target *t) {
  const lb_vinfo *x = &c->in[0];
  if (x->rank < 0 || t->uncertain) return LB_OK;
  lb_dim have, want;
  LB_TRY(lb_rule_product(c, x->dims, x->rank, &have));
  LB_TRY(lb_rule_product(c, t->dims, t->n, &want));
  if (!lb_dim_is_const(have) || !lb_dim_is_const(want) || have.k == want.k)
    return LB_OK;
  return reshape_error(c, requested, t);
}

lb_status lb_shape_reshape(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INDEX));
  LB_TRY(lb_rule_rank(c, 1, 0, 1));
  lb_rule_type(c, 0, x->dtype);
  target t = {.inferred = -1};
  lb_dim requested[LB_MAX_RANK];
  t.n = lb_infer_ints(c, 1, t.dims, LB_MAX_RANK);
  if (t.n < 0) {
    int length = lb_rule_length(c, 1);
    LB_TRY(lb_rule_max_rank(c, length));
    return lb_rule_unknown(c, 0, x->dtype, length);
  }
  memcpy(requested, t.dims, (size_t)t.n * sizeof *requested);
  bool allow_zero = lb_attr_int(c->node, "allowzero", 0) != 0;
  for (int i = 0; i < t.n; i++) LB_TRY(reshape_dim(c, i, allow_zero, &t));
  if (t.inferred >= 0)
    LB_TRY(reshape_infer(c, requested, &t));
  else
    LB_TRY(reshape_check(c, requested, &t));
  lb_rule_set(c, 0, x->dtype, t.n, t.dims);
  return lb_content_copy(c, 0, 0);
}

lb_status lb_shape_flatten(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  if (x->rank < 0) return lb_rule_unknown(c, 0, x->dtype, 2);
  int64_t axis = lb_attr_int(c->node, "axis", 1);
  if (axis < -x->rank || axis > x->rank)
    return lb_infer_error(c, "axis %lld is out of range for %s",
                          (long long)axis, lb_rule_text(c, 0));
  int a = (int)(axis < 0 ? axis + x->rank : axis);
  lb_dim dims[2];
  LB_TRY(lb_rule_product(c, x->dims, a, &dims[0]));
  LB_TRY(lb_rule_product(c, x->dims + a, x->rank - a, &dims[1]));
  lb_rule_set(c, 0, x->dtype, 2, dims);
  return LB_OK;
}

// -- Squeeze, Unsqueeze, Transpose -------------------------------------------

static lb_status check_squeezed(const lb_infer *c, const bool *removed) {
  for (int i = 0; i < c->in[0].rank; i++) {
    if (removed[i] && lb_rule_differ(c->in[0].dims[i], lb_dim_const(1)))
      return lb_infer_error(c, "dim %d of %s is not 1", i, lb_rule_text(c, 0));
  }
  return LB_OK;
}

// Without axes, all dims of 1 are removed; if a dim may or may not be 1, even
// the rank is unknown.
static bool find_ones(const lb_vinfo *x, bool *removed) {
  bool certain = true;
  for (int i = 0; i < x->rank; i++) {
    removed[i] = lb_dim_is(x->dims[i], 1);
    if (!lb_dim_is_const(x->dims[i]) && lb_dim_known(x->dims[i]).at_least <= 1)
      certain = false;
  }
  return certain;
}

lb_status lb_shape_squeeze(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  lb_rule_type(c, 0, x->dtype);
  bool removed[LB_MAX_RANK], all = !lb_rule_has(c, 1);
  lb_dim axes[LB_MAX_RANK], dims[LB_MAX_RANK];
  int n = all ? 0 : lb_rule_axes_in(c, 1, axes), rank = 0;
  if (x->rank < 0) return LB_OK;
  if (n < 0) {
    int length = lb_rule_length(c, 1);
    bool fits = length >= 0 && length <= x->rank;
    return fits ? lb_rule_unknown(c, 0, x->dtype, x->rank - length) : LB_OK;
  }
  if (all && !find_ones(x, removed)) return LB_OK;
  if (!all) LB_TRY(lb_rule_axes(c, axes, n, x->rank, removed));
  LB_TRY(check_squeezed(c, removed));
  for (int i = 0; i < x->rank; i++)
    if (!removed[i]) dims[rank++] = x->dims[i];
  lb_rule_set(c, 0, x->dtype, rank, dims);
  return lb_content_copy(c, 0, 0);
}

lb_status lb_shape_unsqueeze(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  lb_rule_type(c, 0, x->dtype);
  lb_dim axes[LB_MAX_RANK], dims[LB_MAX_RANK];
  int n = lb_rule_axes_in(c, 1, axes);
  if (n < 0) n = lb_rule_length(c, 1);
  if (x->rank < 0 || n < 0) return LB_OK;
  LB_TRY(lb_rule_max_rank(c, n > LB_MAX_RANK ? n : x->rank + n));
  int rank = x->rank + n;
  if (lb_rule_axes_in(c, 1, axes) < 0)
    return lb_rule_unknown(c, 0, x->dtype, rank);
  bool fresh[LB_MAX_RANK];
  LB_TRY(lb_rule_axes(c, axes, n, rank, fresh));
  for (int i = 0, from = 0; i < rank; i++)
    dims[i] = fresh[i] ? lb_dim_const(1) : x->dims[from++];
  lb_rule_set(c, 0, x->dtype, rank, dims);
  return lb_content_copy(c, 0, 0);
}

lb_status lb_shape_transpose(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_rule_type(c, 0, x->dtype);
  const int64_t *perm;
  uint32_t length;
  if (x->rank < 0) {
    perm = lb_attr_ints(c->node, "perm", &length);
    bool fits = perm && length <= LB_MAX_RANK;
    return fits ? lb_rule_unknown(c, 0, x->dtype, (int)length) : LB_OK;
  }
  LB_TRY(lb_rule_list(c, "perm", x->rank, &perm));
  lb_dim dims[LB_MAX_RANK];
  bool seen[LB_MAX_RANK] = {false};
  for (int i = 0; i < x->rank; i++) {
    int from = x->rank - 1 - i;
    if (perm) LB_TRY(lb_rule_axis(c, perm[i], x->rank, &from));
    if (seen[from]) return lb_infer_error(c, "perm names axis %d twice", from);
    seen[from] = true;
    dims[i] = x->dims[from];
  }
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return x->rank <= 1 ? lb_content_copy(c, 0, 0) : LB_OK;
}

// -- Slice -------------------------------------------------------------------

// For numbers: as ONNX specifies, ends are clamped to the dim. They are first
// limited to [-LB_DIM_LIMIT, LB_DIM_LIMIT], so that nothing overflows.
static int64_t limited(int64_t v) {
  if (v > LB_DIM_LIMIT) return LB_DIM_LIMIT;
  return v < -LB_DIM_LIMIT ? -LB_DIM_LIMIT : v;
}

static int64_t clamped(int64_t v, int64_t d, int64_t lo, int64_t hi) {
  v = limited(v);
  if (v < 0) v += d;
  return v < lo ? lo : v > hi ? hi : v;
}

static int64_t slice_start(int64_t start, int64_t step, int64_t d) {
  return step > 0 ? clamped(start, d, 0, d) : clamped(start, d, 0, d - 1);
}

static int64_t slice_count(int64_t start, int64_t end, int64_t step,
                           int64_t d) {
  int64_t s = slice_start(start, step, d);
  int64_t e = step > 0 ? clamped(end, d, 0, d) : clamped(end, d, -1, d - 1);
  int64_t span = step > 0 ? e - s : s - e;
  int64_t by = step > 0 ? limited(step) : -limited(step);
  return d <= 0 || span <= 0 ? 0 : (span - 1) / by + 1;
}

// Sign of an end: 1 if >= 0, -1 if < 0, 0 if it depends on the symbols.
static int sign_of(lb_dim d) {
  lb_dim_range f = lb_dim_known(d);
  return f.at_least >= 0 ? 1 : f.at_most < 0 ? -1 : 0;
}

// max(d, 0), which is d itself if that is known to be >= 0.
static lb_status at_least_zero(const lb_infer *c, lb_dim d, lb_dim *out) {
  *out = d;
  if (lb_dim_known(d).at_least >= 0) return LB_OK;
  return lb_rule_max(c, d, lb_dim_const(0), out);
}

// Exporters write "to the end" as INT64_MAX, INT32_MAX or 10^9; no symbolic dim
// gets that large.
enum { TO_THE_END = 1000000000 };

static bool is_to_the_end(lb_dim end) {
  return lb_dim_is_const(end) && end.k >= TO_THE_END;
}

// Forward slices of a symbolic dim d: max(0, ceil((end' - start') / step)).
// start' need not be clamped from above, nor end' from below, because of the
// outer max.
static lb_status slice_forward(const lb_infer *c, lb_dim start, lb_dim end,
                               int64_t step, lb_dim d, lb_dim *out) {
  lb_dim from, to, span;
  bool whole = is_to_the_end(end);
  if (lb_dim_is_const(start)) start.k = limited(start.k);
  if (lb_dim_is_const(end)) end.k = limited(end.k);
  if (whole && sign_of(start) < 0) {  // the last elements
    LB_TRY(lb_rule_sub(c, lb_dim_const(0), start, &span));
    LB_TRY(lb_rule_min(c, span, d, &span));
  } else {
    from = start;
    if (sign_of(start) < 0) {
      LB_TRY(lb_rule_add(c, d, start, &from));
      LB_TRY(at_least_zero(c, from, &from));
    }
    if (whole)
      to = d;
    else if (sign_of(end) < 0)
      LB_TRY(lb_rule_add(c, d, end, &to));
    else
      LB_TRY(lb_rule_min(c, end, d, &to));
    LB_TRY(lb_rule_sub(c, to, from, &span));
  }
  LB_TRY(lb_rule_ceildiv(c, span, lb_dim_const(step), &span));
  return at_least_zero(c, span, out);
}

static lb_status slice_dim(const lb_infer *c, lb_dim start, lb_dim end,
                           lb_dim step, lb_dim d, lb_dim *out) {
  if (lb_dim_is(step, 0)) return lb_infer_error(c, "a step is 0");
  bool numbers =
      lb_dim_is_const(start) && lb_dim_is_const(end) && lb_dim_is_const(step);
  if (numbers && lb_dim_is_const(d)) {
    *out = lb_dim_const(slice_count(start.k, end.k, step.k, d.k));
    return LB_OK;
  }
  if (!lb_dim_is_const(step) || sign_of(start) == 0 || sign_of(end) == 0)
    return lb_rule_fresh(c, out);
  if (step.k > 0) return slice_forward(c, start, end, limited(step.k), d, out);
  bool from_last = lb_dim_is(start, -1) || is_to_the_end(start);
  bool to_first = lb_dim_is_const(end) && end.k <= -TO_THE_END;
  if (!from_last || !to_first) return lb_rule_fresh(c, out);
  return lb_rule_ceildiv(c, d, lb_dim_const(-limited(step.k)), out);
}

typedef struct slice {
  lb_dim start[LB_MAX_RANK], end[LB_MAX_RANK], step[LB_MAX_RANK];
  int axis[LB_MAX_RANK];
  int n;  // -1: axes not known
} slice;

static lb_status slice_axes(const lb_infer *c, int n, slice *s) {
  int rank = c->in[0].rank;
  lb_dim axes[LB_MAX_RANK];
  bool seen[LB_MAX_RANK];
  for (int i = 0; i < n; i++) axes[i] = lb_dim_const(i);
  if (lb_rule_has(c, 3)) {
    int given = lb_rule_axes_in(c, 3, axes);
    if (given < 0) return s->n = -1, LB_OK;
    if (given != n) return lb_infer_error(c, "%d axes for %d starts", given, n);
  }
  LB_TRY(lb_rule_axes(c, axes, n, rank, seen));
  for (int i = 0; i < n; i++)
    s->axis[i] = (int)(axes[i].k < 0 ? axes[i].k + rank : axes[i].k);
  s->n = n;
  return LB_OK;
}

// An unknown end is a fresh symbol, which determines nothing.
static lb_status slice_list(const lb_infer *c, int i, int n, lb_dim *out) {
  int got = lb_infer_ints(c, i, out, LB_MAX_RANK);
  if (got >= 0 && got != n)
    return lb_infer_error(c, "input %d has %d elements for %d starts", i, got,
                          n);
  for (int k = 0; got < 0 && k < n; k++)
    LB_TRY(lb_symtab_fresh_int(c->syms, &out[k]));
  return LB_OK;
}

static lb_status slice_read(const lb_infer *c, slice *s) {
  for (int i = 1; i < 5; i++) {
    LB_TRY(lb_rule_takes(c, i, LB_TYPES_INDEX));
    LB_TRY(lb_rule_rank(c, i, 0, 1));
  }
  int n = lb_rule_length(c, 1);
  s->n = -1;
  if (n < 0) n = lb_rule_length(c, 2);
  if (n < 0) return LB_OK;
  if (n > c->in[0].rank)
    return lb_infer_error(c, "%d starts for rank %d", n, c->in[0].rank);
  bool unknown = false;
  for (int i = 1; i < 5; i++) {
    lb_dim v[LB_MAX_RANK];
    if (lb_rule_has(c, i) && lb_infer_ints(c, i, v, LB_MAX_RANK) < 0)
      unknown = true;
  }
  if (unknown && !c->syms) return LB_OK;
  LB_TRY(slice_axes(c, n, s));
  if (s->n < 0) return LB_OK;
  LB_TRY(slice_list(c, 1, n, s->start));
  LB_TRY(slice_list(c, 2, n, s->end));
  for (int i = 0; i < n; i++) s->step[i] = lb_dim_const(1);
  return lb_rule_has(c, 4) ? slice_list(c, 4, n, s->step) : LB_OK;
}

// Contents of a sliced vector.
static lb_status slice_content(lb_infer *c, const slice *s) {
  lb_dim v[LB_MAX_KNOWN], out[LB_MAX_KNOWN];
  const lb_vinfo *o = &c->out[0];
  if (c->in[0].rank != 1 || !lb_dim_is_const(o->dims[0])) return LB_OK;
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN);
  int64_t count = o->dims[0].k;
  if (n <= 0 || count > n) return LB_OK;
  if (s->n == 0) return lb_content_copy(c, 0, 0);
  if (!lb_dim_is_const(s->start[0]) || !lb_dim_is_const(s->step[0]))
    return LB_OK;
  int64_t step = limited(s->step[0].k);
  int64_t at = slice_start(s->start[0].k, step, n);
  for (int64_t i = 0; i < count; i++) {
    int64_t from = at + i * step;
    if (from < 0 || from >= n) return LB_OK;
    out[i] = v[from];
  }
  return lb_content_set(c, 0, out, (int)count);
}

lb_status lb_shape_slice(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  slice s;
  LB_TRY(slice_read(c, &s));
  if (s.n < 0) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  lb_dim dims[LB_MAX_RANK];
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  for (int i = 0; i < s.n; i++)
    LB_TRY(slice_dim(c, s.start[i], s.end[i], s.step[i], x->dims[s.axis[i]],
                     &dims[s.axis[i]]));
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return slice_content(c, &s);
}

// -- Split -------------------------------------------------------------------

// The given sizes along the axis; *known is false if they are not known.
static lb_status split_given(const lb_infer *c, lb_dim d, lb_dim *sizes,
                             bool *known) {
  int outs = (int)c->node->n_out, n = lb_infer_ints(c, 1, sizes, outs);
  int length = lb_rule_length(c, 1);
  if (n < 0 && length >= 0) n = length;
  *known = lb_infer_ints(c, 1, sizes, outs) == outs;
  if (n >= 0 && n != outs)
    return lb_infer_error(c, "split gives %d sizes for %d outputs", n, outs);
  lb_dim sum = lb_dim_const(0);
  for (int i = 0; *known && i < outs; i++) {
    if (lb_dim_known(sizes[i]).at_most < 0)
      return lb_infer_error(c, "split[%d] is negative", i);
    LB_TRY(lb_rule_add(c, sum, sizes[i], &sum));
  }
  if (!*known || !lb_rule_differ(sum, d)) return LB_OK;
  return lb_infer_error(c, "the sizes in split add up to %s, but the dim is %s",
                        lb_rule_dim(c, sum), lb_rule_dim(c, d));
}

// Equal parts; the last one may be smaller.
static lb_status split_evenly(const lb_infer *c, lb_dim d, lb_dim *sizes) {
  int outs = (int)c->node->n_out;
  int64_t n = lb_attr_int(c->node, "num_outputs", outs);
  if (n != outs)
    return lb_infer_error(c, "num_outputs is %lld but there are %d outputs",
                          (long long)n, outs);
  lb_dim part, remaining;
  LB_TRY(lb_rule_ceildiv(c, d, lb_dim_const(n), &part));
  LB_TRY(lb_rule_mul(c, part, lb_dim_const(n - 1), &remaining));
  LB_TRY(lb_rule_sub(c, d, remaining, &remaining));
  for (int i = 0; i < outs; i++) sizes[i] = i < outs - 1 ? part : remaining;
  if (!lb_dim_is_const(remaining) || remaining.k >= 0) return LB_OK;
  return lb_infer_error(c, "%s does not split into %d parts of %s",
                        lb_rule_dim(c, d), outs, lb_rule_dim(c, part));
}

static lb_status split_content(lb_infer *c, const lb_dim *sizes) {
  lb_dim v[LB_MAX_KNOWN];
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN), at = 0;
  for (int o = 0; o < (int)c->node->n_out && n >= 0; o++) {
    if (!lb_dim_is_const(sizes[o]) || sizes[o].k > n - at) return LB_OK;
    LB_TRY(lb_content_set(c, o, v + at, (int)sizes[o].k));
    at += (int)sizes[o].k;
  }
  return LB_OK;
}

lb_status lb_shape_split(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  int outs = (int)c->node->n_out, axis;
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  for (int o = 0; o < outs; o++) lb_rule_type(c, o, x->dtype);
  if (x->rank < 0 || outs == 0) return LB_OK;
  LB_TRY(lb_rule_axis(c, lb_attr_int(c->node, "axis", 0), x->rank, &axis));
  lb_dim *sizes = lb_arena_new(c->arena, lb_dim, (size_t)outs);
  if (!sizes) return lb_oom();
  bool known = true;
  if (lb_rule_has(c, 1))
    LB_TRY(split_given(c, x->dims[axis], sizes, &known));
  else
    LB_TRY(split_evenly(c, x->dims[axis], sizes));
  if (!known && !c->syms) return LB_OK;
  for (int o = 0; o < outs; o++) {
    if (!known) LB_TRY(lb_rule_fresh(c, &sizes[o]));
    lb_rule_like(c, o, x->dtype, x);
    c->out[o].dims[axis] = sizes[o];
  }
  return x->rank == 1 ? split_content(c, sizes) : LB_OK;
}

// -- Expand ------------------------------------------------------------------

lb_status lb_shape_expand(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 1, 0, 1));
  lb_vinfo to = {.dtype = x->dtype};
  to.rank = lb_infer_ints(c, 1, to.dims, LB_MAX_RANK);
  if (to.rank < 0) {
    int length = lb_rule_length(c, 1);
    LB_TRY(lb_rule_max_rank(c, length));
    int rank = length > x->rank ? length : x->rank;
    return lb_rule_unknown(c, 0, x->dtype,
                           x->rank < 0 || length < 0 ? -1 : rank);
  }
  for (int i = 0; i < to.rank; i++) {
    if (lb_dim_is_const(to.dims[i]) && to.dims[i].k < 0)
      return lb_infer_error(c, "%lld is not a valid size",
                            (long long)to.dims[i].k);
    if (lb_dim_known(to.dims[i]).at_least < 0)
      LB_TRY(lb_rule_fresh(c, &to.dims[i]));
  }
  lb_vinfo both[2] = {*x, to};
  lb_infer pair = *c;
  pair.in = both;
  int rank;
  lb_dim dims[LB_MAX_RANK];
  LB_TRY(lb_rule_broadcast(&pair, (int[]){0, 1}, 2, &rank, dims));
  lb_rule_set(c, 0, x->dtype, rank, dims);
  lb_dim v[LB_MAX_KNOWN];
  int n = lb_infer_ints(c, 0, v, LB_MAX_KNOWN);
  if (n != 1 || rank != 1 || !lb_dim_is_const(dims[0]) ||
      dims[0].k > LB_MAX_KNOWN)
    return lb_content_copy(c, 0, 0);
  for (int i = 0; i < dims[0].k; i++) v[i] = v[0];
  return lb_content_set(c, 0, v, (int)dims[0].k);
}

// -- Unfold ------------------------------------------------------------------

lb_status lb_shape_unfold(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  int64_t size = lb_attr_int(c->node, "size", 1);
  int64_t step = lb_attr_int(c->node, "step", 1);
  lb_dim dims[LB_MAX_RANK];
  if (size < 1 || step < 1 || size > INT32_MAX || step > INT32_MAX)
    return lb_infer_error(c, "size %lld and step %lld must be positive",
                          (long long)size, (long long)step);
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  lb_dim *rows = &dims[x->rank - 2], *cols = &dims[x->rank - 1];
  LB_TRY(lb_rule_plus(c, *rows, -size, rows));
  if (lb_dim_is_const(*rows) && rows->k < 0)
    return lb_infer_error(c, "windows of %lld rows do not fit %s",
                          (long long)size, lb_rule_text(c, 0));
  LB_TRY(lb_rule_floordiv(c, *rows, lb_dim_const(step), rows));
  LB_TRY(lb_rule_plus(c, *rows, 1, rows));
  LB_TRY(lb_rule_mul(c, *cols, lb_dim_const(size), cols));
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}
