// graph/rules_contraction.c -- matmuls, Einsum and Fourier transforms.
#include <ctype.h>
#include <string.h>

#include "graph/rules.h"

// -- matrices ----------------------------------------------------------------

// numpy.matmul of inputs a and b: a vector gets a dim of 1, which is removed
// from the result; leading dims broadcast.
static lb_status matmul(lb_infer *c, int ia, int ib, lb_dtype t) {
  const lb_vinfo *a = &c->in[ia], *b = &c->in[ib];
  LB_TRY(lb_rule_rank(c, ia, 1, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, ib, 1, LB_MAX_RANK));
  lb_rule_type(c, 0, t);
  if (a->rank < 0 || b->rank < 0) return LB_OK;
  lb_dim inner_b = b->dims[b->rank == 1 ? 0 : b->rank - 2];
  if (lb_rule_differ(a->dims[a->rank - 1], inner_b))
    return lb_infer_error(c, "inner dims differ: %s times %s",
                          lb_rule_text(c, ia), lb_rule_text(c, ib));
  lb_vinfo batch[2] = {*a, *b};
  batch[0].rank = a->rank > 2 ? a->rank - 2 : 0;
  batch[1].rank = b->rank > 2 ? b->rank - 2 : 0;
  lb_infer leading = *c;
  leading.in = batch;
  lb_dim dims[LB_MAX_RANK];
  int rank;
  lb_status st = lb_rule_broadcast(&leading, (int[]){0, 1}, 2, &rank, dims);
  if (lb_failed(st))
    return lb_status_note(st, "leading dims of %s and %s", lb_rule_text(c, ia),
                          lb_rule_text(c, ib));
  if (a->rank > 1) dims[rank++] = a->dims[a->rank - 2];
  if (b->rank > 1) dims[rank++] = b->dims[b->rank - 1];
  lb_rule_set(c, 0, t, rank, dims);
  return LB_OK;
}

lb_status lb_shape_matmul(lb_infer *c) {
  if (c->node->op == LB_OP_MatMulInteger) {
    LB_TRY(lb_rule_takes(c, 0, LB_TYPES_INT8));
    LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INT8));
    LB_TRY(lb_rule_same_type(c, 0, 2));
    LB_TRY(lb_rule_same_type(c, 1, 3));
    return matmul(c, 0, 1, LB_I32);
  }
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  return matmul(c, 0, 1, c->in[0].dtype);
}

lb_status lb_shape_qlinear_matmul(lb_infer *c) {
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_INT8));
  LB_TRY(lb_rule_takes(c, 3, LB_TYPES_INT8));
  LB_TRY(lb_rule_takes(c, 7, LB_TYPES_INT8));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_same_type(c, 3, 5));
  static const int scales[] = {1, 4, 6};
  for (int i = 0; i < 3; i++)
    LB_TRY(lb_rule_takes(c, scales[i], LB_TYPES_FLOAT));
  return matmul(c, 0, 3, c->in[7].dtype);
}

lb_status lb_shape_gemm(lb_infer *c) {
  const lb_vinfo *a = &c->in[0], *b = &c->in[1];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 2, 2));
  LB_TRY(lb_rule_rank(c, 1, 2, 2));
  if (a->rank < 0 || b->rank < 0) return lb_rule_unknown(c, 0, a->dtype, 2);
  int ta = lb_attr_int(c->node, "transA", 0) != 0;
  int tb = lb_attr_int(c->node, "transB", 0) != 0;
  if (lb_rule_differ(a->dims[1 - ta], b->dims[tb]))
    return lb_infer_error(c, "inner dims differ: %s%s times %s%s",
                          lb_rule_text(c, 0), ta ? " transposed" : "",
                          lb_rule_text(c, 1), tb ? " transposed" : "");
  lb_dim dims[2] = {a->dims[ta], b->dims[1 - tb]};
  LB_TRY(lb_rule_fits(c, 2, "C", 2, dims));
  lb_rule_set(c, 0, a->dtype, 2, dims);
  return LB_OK;
}

lb_status lb_shape_det(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  if (lb_rule_differ(x->dims[x->rank - 2], x->dims[x->rank - 1]))
    return lb_infer_error(c, "the matrices of %s are not square",
                          lb_rule_text(c, 0));
  lb_rule_set(c, 0, x->dtype, x->rank - 2, x->dims);
  return LB_OK;
}

// -- Einsum ------------------------------------------------------------------

enum { LETTERS = 52 };

typedef struct contraction_einsum {
  lb_dim size[LETTERS];
  int seen[LETTERS];  // how often a letter occurs on the left
  lb_dim dots[LB_MAX_RANK];
  int n_dots;  // rank of "..."; -1: it does not occur
} contraction_einsum;

static int letter(char ch) {
  if (ch >= 'A' && ch <= 'Z') return ch - 'A';
  return ch >= 'a' && ch <= 'z' ? ch - 'a' + 26 : -1;
}

// Merges a dim into the size of its label: both must agree, or one is 1.
static lb_status merge_size(const lb_infer *c, const char *name, lb_dim d,
                            lb_dim *size) {
  if (lb_dim_is(d, 1)) return LB_OK;
  if (lb_dim_is(*size, 1) || lb_dim_is_const(d)) {
    lb_dim old = *size;
    *size = d;
    if (lb_dim_is(old, 1) || !lb_rule_differ(old, d)) return LB_OK;
    return lb_infer_error(c, "%s is %s in one input and %s in another", name,
                          lb_rule_dim(c, old), lb_rule_dim(c, d));
  }
  if (!lb_rule_differ(*size, d)) return LB_OK;
  return lb_infer_error(c, "%s is %s in one input and %s in another", name,
                        lb_rule_dim(c, *size), lb_rule_dim(c, d));
}

// "..." of one input stands for `n` dims, aligned at the right.
static lb_status einsum_dots(const lb_infer *c, const lb_dim *dims, int n,
                             contraction_einsum *e) {
  int old = e->n_dots < 0 ? 0 : e->n_dots, more = n - old;
  if (more > 0) {
    memmove(e->dots + more, e->dots, (size_t)old * sizeof *e->dots);
    for (int i = 0; i < more; i++) e->dots[i] = lb_dim_const(1);
  }
  e->n_dots = more > 0 ? n : old;
  for (int i = 0; i < n; i++)
    LB_TRY(merge_size(c, "'...'", dims[i], &e->dots[e->n_dots - n + i]));
  return LB_OK;
}

// Reads the term of input i from *p up to ',', '-' or the end.
static lb_status einsum_term(const lb_infer *c, int i, const char **p,
                             contraction_einsum *e) {
  const lb_vinfo *x = &c->in[i];
  const char *q = *p;
  int letters = 0, at = 0;
  bool dots = false;
  for (; *q && *q != ',' && *q != '-'; q++) letters += letter(*q) >= 0;
  if (letters > x->rank)
    return lb_infer_error(c, "term %d names %d dims, but the input is %s", i,
                          letters, lb_rule_text(c, i));
  for (q = *p; *q && *q != ',' && *q != '-'; q++) {
    int l = letter(*q);
    if (isspace((unsigned char)*q)) continue;
    if (l >= 0) {
      char name[4] = {'\'', *q, '\'', 0};
      if (at >= x->rank) break;
      if (!e->seen[l]++) e->size[l] = lb_dim_const(1);
      LB_TRY(merge_size(c, name, x->dims[at++], &e->size[l]));
    } else if (strncmp(q, "...", 3) == 0 && !dots) {
      LB_TRY(einsum_dots(c, x->dims + at, x->rank - letters, e));
      at += x->rank - letters;
      q += 2;
      dots = true;
    } else {
      return lb_infer_error(c, "unexpected '%c' in the equation", *q);
    }
  }
  if (at != x->rank)
    return lb_infer_error(c, "term %d names %d dims, but the input is %s", i,
                          at, lb_rule_text(c, i));
  *p = q;
  return LB_OK;
}

static lb_status einsum_put(const lb_infer *c, lb_dim d, lb_dim *dims, int *n) {
  LB_TRY(lb_rule_max_rank(c, *n + 1));
  dims[(*n)++] = d;
  return LB_OK;
}

static lb_status einsum_result(const lb_infer *c, const char *p,
                               const contraction_einsum *e, lb_dim *dims,
                               int *n) {
  bool used[LETTERS] = {false};
  for (; *p; p++) {
    int l = letter(*p);
    if (isspace((unsigned char)*p)) continue;
    if (strncmp(p, "...", 3) == 0) {
      for (int i = 0; i < e->n_dots; i++)
        LB_TRY(einsum_put(c, e->dots[i], dims, n));
      p += 2;
    } else if (l >= 0 && e->seen[l] && !used[l]) {
      LB_TRY(einsum_put(c, e->size[l], dims, n));
      used[l] = true;
    } else {
      return lb_infer_error(c, "'%c' is not allowed in the equation's result",
                            *p);
    }
  }
  return LB_OK;
}

// Without "->": the dots, then every letter that occurs once, in alphabetical
// order.
static lb_status einsum_implicit(const lb_infer *c, const contraction_einsum *e,
                                 lb_dim *dims, int *n) {
  for (int i = 0; i < e->n_dots; i++)
    LB_TRY(einsum_put(c, e->dots[i], dims, n));
  for (int l = 0; l < LETTERS; l++)
    if (e->seen[l] == 1) LB_TRY(einsum_put(c, e->size[l], dims, n));
  return LB_OK;
}

lb_status lb_shape_einsum(lb_infer *c) {
  const char *p = lb_attr_str(c->node, "equation", "");
  contraction_einsum e = {.n_dots = -1};
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_NUMBER));
  lb_rule_type(c, 0, c->in[0].dtype);
  for (int i = 0; i < (int)c->node->n_in; i++) {
    LB_TRY(lb_rule_same_type(c, 0, i));
    if (!lb_rule_ranked(c, i)) return LB_OK;
  }
  for (int i = 0; i < (int)c->node->n_in; i++) {
    if (i && *p++ != ',')
      return lb_infer_error(c, "the equation has fewer terms than inputs");
    LB_TRY(einsum_term(c, i, &p, &e));
  }
  lb_dim dims[LB_MAX_RANK];
  int n = 0;
  if (strncmp(p, "->", 2) == 0)
    LB_TRY(einsum_result(c, p + 2, &e, dims, &n));
  else if (*p)
    return lb_infer_error(c, "unexpected text after the terms of the equation");
  else
    LB_TRY(einsum_implicit(c, &e, dims, &n));
  lb_rule_set(c, 0, c->in[0].dtype, n, dims);
  return LB_OK;
}

// -- Fourier transforms ------------------------------------------------------

// floor(n / 2) + 1: the number of bins of a real signal.
static lb_status half_spectrum(const lb_infer *c, lb_dim n, lb_dim *out) {
  LB_TRY(lb_rule_floordiv(c, n, lb_dim_const(2), out));
  return lb_rule_plus(c, *out, 1, out);
}

// The last dim has size 1 (real) or 2 (complex).
static lb_status check_complex(const lb_infer *c, bool want_real,
                               bool want_complex) {
  lb_dim last = c->in[0].dims[c->in[0].rank - 1];
  bool real = !lb_rule_differ(last, lb_dim_const(1));
  bool pair = !lb_rule_differ(last, lb_dim_const(2));
  if (want_real ? real : want_complex ? pair : real || pair) return LB_OK;
  return lb_infer_error(c, "the last dim of %s must be %s", lb_rule_text(c, 0),
                        want_real      ? "1 (real)"
                        : want_complex ? "2 (complex)"
                                       : "1 (real) or 2 (complex)");
}

// Contents of scalar input i as a size; *known is false if they are unknown.
static lb_status scalar_size(const lb_infer *c, int i, const char *what,
                             lb_dim *out, bool *known) {
  LB_TRY(lb_rule_takes(c, i, LB_TYPES_INDEX));
  LB_TRY(lb_rule_scalar(c, i, what));
  *known = lb_infer_ints(c, i, out, 1) == 1;
  if (!*known || !lb_dim_is_const(*out) || out->k >= 1) return LB_OK;
  return lb_infer_error(c, "%s is %lld; it must be positive", what,
                        (long long)out->k);
}

lb_status lb_shape_dft(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  bool one_sided = lb_attr_int(c->node, "onesided", 0) != 0;
  bool inverse = lb_attr_int(c->node, "inverse", 0) != 0, known = true;
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 2, LB_TYPES_INDEX));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  LB_TRY(check_complex(c, one_sided && !inverse, one_sided && inverse));
  int64_t a = -2;
  int axis;
  if (lb_rule_const_int(c, 2, &a) < 0)
    return lb_rule_unknown(c, 0, x->dtype, x->rank);
  LB_TRY(lb_rule_axis(c, a, x->rank, &axis));
  if (axis == x->rank - 1)
    return lb_infer_error(c, "axis %d holds the complex parts", axis);
  lb_dim n = x->dims[axis], dims[LB_MAX_RANK];
  if (lb_rule_has(c, 1))
    LB_TRY(scalar_size(c, 1, "dft_length", &n, &known));
  else if (one_sided && inverse) {
    LB_TRY(lb_rule_plus(c, n, -1, &n));
    LB_TRY(lb_rule_mul(c, n, lb_dim_const(2), &n));
  }
  if (!known) return lb_rule_unknown(c, 0, x->dtype, x->rank);
  if (one_sided && !inverse) LB_TRY(half_spectrum(c, n, &n));
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  dims[axis] = n;
  dims[x->rank - 1] = lb_dim_const(one_sided && inverse ? 1 : 2);
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

// Length of a frame: as given, or that of the window, or of the whole signal.
static lb_status frame_length(const lb_infer *c, lb_dim *out, bool *known) {
  const lb_vinfo *window = &c->in[2];
  bool has_window = lb_rule_has(c, 2);
  LB_TRY(lb_rule_rank(c, 2, 1, 1));
  *known = true;
  *out = c->in[0].dims[1];
  if (lb_rule_has(c, 3)) {
    LB_TRY(scalar_size(c, 3, "frame_length", out, known));
    return *known ? lb_rule_expect(c, 2, "window", 1, out) : LB_OK;
  }
  if (has_window && window->rank == 1) *out = window->dims[0];
  *known = !has_window || window->rank == 1;
  return LB_OK;
}

lb_status lb_shape_stft(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 2, 3));
  lb_dim step, frame, remaining, dims[4];
  bool step_known, frame_known;
  LB_TRY(scalar_size(c, 1, "frame_step", &step, &step_known));
  if (x->rank < 0) return lb_rule_unknown(c, 0, x->dtype, 4);
  if (x->rank == 3) LB_TRY(check_complex(c, false, false));
  LB_TRY(frame_length(c, &frame, &frame_known));
  if (!step_known || !frame_known) return lb_rule_unknown(c, 0, x->dtype, 4);
  LB_TRY(lb_rule_sub(c, x->dims[1], frame, &remaining));
  if (lb_dim_known(remaining).at_most < 0)
    return lb_infer_error(c, "a frame of %s is longer than the signal of %s",
                          lb_rule_dim(c, frame), lb_rule_dim(c, x->dims[1]));
  LB_TRY(lb_rule_floordiv(c, remaining, step, &dims[1]));
  LB_TRY(lb_rule_plus(c, dims[1], 1, &dims[1]));
  dims[0] = x->dims[0];
  dims[2] = frame;
  if (lb_attr_int(c->node, "onesided", 1))
    LB_TRY(half_spectrum(c, frame, &dims[2]));
  dims[3] = lb_dim_const(2);
  lb_rule_set(c, 0, x->dtype, 4, dims);
  return LB_OK;
}
