// device/reference/matmul.c -- MatMul, Gemm and their quantised forms.
//
// A *mat* is a tensor viewed as a batch of matrices: strides of its rows and
// columns, and of each batch axis of the result (0 where it is broadcast).
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"

typedef struct mat {
  const char *data;  // borrowed
  lb_dtype dtype;
  int64_t rows, cols, row, col;
  int64_t batch[LB_MAX_RANK];
} mat;

static int64_t stride_of(const lb_tensor *t, int axis) {
  return t->dims[axis] == 1 ? 0 : t->strides[axis];
}

// Dims before the last two are aligned with the last of `batch_rank` axes. A
// vector is one row, or one column.
static mat mat_of(const lb_tensor *t, int batch_rank, bool vector_is_row) {
  mat m = {.data = t->data, .dtype = t->dtype, .rows = 1, .cols = 1};
  int r = t->rank;
  if (r >= 2 || (r == 1 && vector_is_row)) {
    m.cols = t->dims[r - 1];
    m.col = stride_of(t, r - 1);
  }
  if (r >= 2 || (r == 1 && !vector_is_row)) {
    int axis = r >= 2 ? r - 2 : 0;
    m.rows = t->dims[axis];
    m.row = stride_of(t, axis);
  }
  for (int d = 0; d < r - 2; d++) {
    int at = batch_rank - (r - 2) + d;
    if (at >= 0) m.batch[at] = stride_of(t, d);
  }
  return m;
}

static const char *mat_at(const mat *m, int64_t offset) {
  if (!m->data) return NULL;  // no elements
  return m->data + offset * (int64_t)lb_dtype_size(m->dtype);
}

// The batch axes of a matmul: the dims of A and B before the last two,
// broadcast.
typedef struct batch {
  int rank;
  int64_t dims[LB_MAX_RANK];
  int64_t count;
} batch;

static batch batch_of(const lb_tensor *a, const lb_tensor *b) {
  batch s = {.count = 1};
  int ra = a->rank > 2 ? a->rank - 2 : 0, rb = b->rank > 2 ? b->rank - 2 : 0;
  s.rank = ra > rb ? ra : rb;
  for (int d = 0; d < s.rank; d++) {
    int da = d - (s.rank - ra), db = d - (s.rank - rb);
    int64_t x = da < 0 ? 1 : a->dims[da], y = db < 0 ? 1 : b->dims[db];
    s.dims[d] = x == 1 ? y : x;
    s.count *= s.dims[d];
  }
  return s;
}

static int64_t batch_offset(const batch *s, int64_t i, const mat *m) {
  int64_t offset = 0;
  for (int d = s->rank - 1; d >= 0; d--) {
    offset += i % s->dims[d] * m->batch[d];
    i /= s->dims[d];
  }
  return offset;
}

// -- batched matmul ----------------------------------------------------------

typedef struct batched_matmul {
  batch s;
  mat a, b, zero_point;  // zero point of B, int32; data NULL: none
  lb_gemm_matrix *mats;  // one per batch item
  char *out;
} batched_matmul;

static void batched_matmul_get(const void *user, int64_t i, lb_gemm *g) {
  const batched_matmul *p = user;
  g->a = mat_at(&p->a, batch_offset(&p->s, i, &p->a));
  g->b = &p->mats[i];
  g->c = p->out + i * g->m * g->n * (int64_t)lb_dtype_size(g->dtype);
}

// Merges batch axes into the rows where B does not depend on them and the rows
// of A are evenly spaced, so that B is packed once.
static void batched_matmul_fold(batched_matmul *p) {
  while (p->s.rank > 0) {
    int last = p->s.rank - 1;
    if (p->b.batch[last] != 0 || p->zero_point.batch[last] != 0) return;
    if (p->s.dims[last] != 1) {
      if (p->a.rows == 1)
        p->a.row = p->a.batch[last];
      else if (p->a.batch[last] != p->a.rows * p->a.row)
        return;
    }
    p->a.rows *= p->s.dims[last];
    if (p->s.dims[last] != 0) p->s.count /= p->s.dims[last];
    p->s.rank--;
  }
}

// A and `out` have the work dtype; `out` is dense.
static lb_status batched_matmul_run(lb_reference_call *c, batched_matmul *p,
                                    lb_dtype work) {
  if (p->s.count == 0 || p->a.rows == 0 || p->b.cols == 0) return LB_OK;
  batched_matmul_fold(p);
  p->mats = lb_arena_new(c->scratch, lb_gemm_matrix, (size_t)p->s.count);
  if (!p->mats) return lb_oom();
  for (int64_t i = 0; i < p->s.count; i++) {
    p->mats[i] = (lb_gemm_matrix){
        .dtype = p->b.dtype,
        .acc = work,
        .data = mat_at(&p->b, batch_offset(&p->s, i, &p->b)),
        .row = p->b.row,
        .col = p->b.col,
        .zero_point_col = p->zero_point.col,
    };
    if (p->zero_point.data)
      p->mats[i].zero_point = (const int32_t *)p->zero_point.data +
                              batch_offset(&p->s, i, &p->zero_point);
  }
  lb_gemm g = {
      .dtype = work,
      .m = p->a.rows,
      .n = p->b.cols,
      .k = p->a.cols,
      .a_row = p->a.row,
      .a_col = p->a.col,
      .pack = lb_gemm_pack_matrix,
      .c_row = p->b.cols,
  };
  lb_gemm_batch(c->pool, &g, p->s.count, batched_matmul_get, p);
  return LB_OK;
}

// Returns A itself if it has the accumulator type, else a converted copy.
static lb_status left_operand(lb_reference_call *c, const lb_tensor *a,
                              lb_dtype work, lb_tensor *out) {
  *out = *a;
  if (lb_dtype_size(a->dtype) == lb_dtype_size(work) &&
      lb_dtype_is_float(a->dtype) == lb_dtype_is_float(work))
    return LB_OK;
  return lb_reference_dense(c, a, work, out);
}

lb_status lb_reference_MatMul(lb_reference_call *c) {
  const lb_tensor *b = &c->in[1];
  lb_dtype work = lb_work_dtype(c->in[0].dtype);
  if (c->in[0].dtype == LB_BOOL) return lb_reference_bad_dtype(c, LB_BOOL);
  lb_tensor a, out;
  LB_TRY(left_operand(c, &c->in[0], work, &a));
  LB_TRY(lb_work_out(c, 0, work, &out));
  batched_matmul p = {.s = batch_of(&a, b), .out = out.data};
  p.a = mat_of(&a, p.s.rank, true);
  p.b = mat_of(b, p.s.rank, false);
  LB_TRY(batched_matmul_run(c, &p, work));
  return lb_work_done(c, 0, &out);
}

// -- parameters that broadcast -----------------------------------------------

// Returns whether t broadcasts to `to` without changing its dims.
static bool fits(const lb_tensor *t, const lb_tensor *to) {
  if (t->rank > to->rank) return false;
  for (int d = 1; d <= t->rank; d++)
    if (t->dims[t->rank - d] != 1 &&
        t->dims[t->rank - d] != to->dims[to->rank - d])
      return false;
  return true;
}

static lb_status bad_parameter(const lb_reference_call *c, int i,
                               const lb_tensor *of) {
  char dims[128], whole[128];
  lb_dims_print(c->in[i].rank, c->in[i].dims, dims, sizeof dims);
  lb_dims_print(of->rank, of->dims, whole, sizeof whole);
  return lb_error(LB_INVALID, "input %d of dims %s does not broadcast to %s", i,
                  dims, whole);
}

// -- Gemm --------------------------------------------------------------------

typedef struct gemm_scale {
  double alpha, beta;
} gemm_scale;

// y = alpha * y + beta * c over a row.
#define GEMM_ROW(id, S, T)                                               \
  static void gemm_row_##id(const void *user, int64_t n, char *const *p, \
                            const int64_t *step) {                       \
    const gemm_scale *s = user;                                          \
    const T alpha = (T)s->alpha, beta = (T)s->beta;                      \
    for (int64_t i = 0; i < n; i++) {                                    \
      S *y = (S *)(p[0] + i * step[0]);                                  \
      *y = (T)(alpha * *y + beta * *(const S *)(p[1] + i * step[1]));    \
    }                                                                    \
  }
GEMM_ROW(f32, lb_f32, float)
GEMM_ROW(f64, lb_f64, double)
GEMM_ROW(i32, lb_u32, uint32_t)
GEMM_ROW(i64, lb_u64, uint64_t)

static lb_row_fn *gemm_row_of(lb_dtype work) {
  switch (work) {
    case LB_F32: return gemm_row_f32;
    case LB_F64: return gemm_row_f64;
    case LB_I32: return gemm_row_i32;
    default: return gemm_row_i64;
  }
}

static lb_status gemm_epilogue(lb_reference_call *c, gemm_scale s,
                               lb_tensor *out) {
  bool has_c = lb_reference_given(c, 2);
  if (has_c && !fits(&c->in[2], out)) return bad_parameter(c, 2, out);
  if (!has_c && s.alpha == 1) return LB_OK;
  lb_tensor bias = {.dtype = out->dtype, .data = (int64_t[]){0}};
  if (has_c) LB_TRY(lb_reference_dense(c, &c->in[2], out->dtype, &bias));
  const lb_tensor *operands[] = {out, &bias};
  lb_iter_all(c->pool, 2, operands, gemm_row_of(out->dtype), &s);
  return LB_OK;
}

static lb_tensor transposed(const lb_tensor *t, bool transpose) {
  lb_tensor r = *t;
  if (!transpose) return r;
  r.dims[0] = t->dims[1], r.dims[1] = t->dims[0];
  r.strides[0] = t->strides[1], r.strides[1] = t->strides[0];
  return r;
}

lb_status lb_reference_Gemm(lb_reference_call *c) {
  gemm_scale s = {(double)lb_attr_float(c->node, "alpha", 1),
                  (double)lb_attr_float(c->node, "beta", 1)};
  lb_dtype work = lb_work_dtype(c->in[0].dtype);
  // Integers that are scaled by alpha or beta are computed in double.
  bool plain = (s.alpha == 1) && (s.beta == 1);
  if (lb_dtype_is_integer(c->in[0].dtype) && !plain) work = LB_F64;
  lb_tensor a, b = c->in[1], out;
  LB_TRY(left_operand(c, &c->in[0], work, &a));
  if (work == LB_F64) LB_TRY(lb_reference_dense(c, &c->in[1], work, &b));
  LB_TRY(lb_work_out(c, 0, work, &out));
  a = transposed(&a, lb_attr_int(c->node, "transA", 0) != 0);
  b = transposed(&b, lb_attr_int(c->node, "transB", 0) != 0);
  batched_matmul p = {.s = {.count = 1},
                      .a = mat_of(&a, 0, true),
                      .b = mat_of(&b, 0, false),
                      .out = out.data};
  LB_TRY(batched_matmul_run(c, &p, work));
  LB_TRY(gemm_epilogue(c, s, &out));
  return lb_work_done(c, 0, &out);
}

// -- quantised ---------------------------------------------------------------

static void subtract_row(const void *user, int64_t n, char *const *p,
                         const int64_t *step) {
  (void)user;
  for (int64_t i = 0; i < n; i++)
    *(lb_i32 *)(p[0] + i * step[0]) -= *(const lb_i32 *)(p[1] + i * step[1]);
}

// A per-row parameter is a vector or [..., rows, 1].
static lb_tensor per_row(const lb_tensor *t) {
  lb_tensor r = *t;
  if (r.rank != 1) return r;
  r.rank = 2;
  r.dims[1] = 1;
  r.strides[1] = 1;
  return r;
}

// A minus its zero point, in int32, in scratch.
static lb_status subtract_zero_point(lb_reference_call *c, int a,
                                     int zero_point, lb_tensor *out) {
  LB_TRY(lb_reference_dense(c, &c->in[a], LB_I32, out));
  if (!lb_reference_given(c, zero_point)) return LB_OK;
  lb_tensor z;
  LB_TRY(lb_reference_dense(c, &c->in[zero_point], LB_I32, &z));
  if (lb_tensor_count(&z) == 1)
    z.rank = 0;
  else if (out->rank >= 2)
    z = per_row(&z);
  if (!fits(&z, out)) return bad_parameter(c, zero_point, out);
  const lb_tensor *operands[] = {out, &z};
  lb_iter_all(c->pool, 2, operands, subtract_row, NULL);
  return LB_OK;
}

// `in` are the inputs A, its zero point, B, and its zero point. `out` is dense
// int32.
static lb_status int8_matmul(lb_reference_call *c, const int in[4],
                             batched_matmul *p, lb_tensor *out) {
  lb_tensor a, zero_point;
  for (int i = 0; i < 3; i += 2) {
    lb_dtype t = c->in[in[i]].dtype;
    if (t != LB_I8 && t != LB_U8) return lb_reference_bad_dtype(c, t);
  }
  LB_TRY(subtract_zero_point(c, in[0], in[1], &a));
  p->s = batch_of(&a, &c->in[in[2]]);
  p->a = mat_of(&a, p->s.rank, true);
  p->b = mat_of(&c->in[in[2]], p->s.rank, false);
  p->out = out->data;
  if (lb_reference_given(c, in[3])) {
    LB_TRY(lb_reference_dense(c, &c->in[in[3]], LB_I32, &zero_point));
    if (lb_tensor_count(&zero_point) == 1) zero_point.rank = 0;
    if (!fits(&zero_point, &c->in[in[2]]) ||
        (zero_point.rank >= 2 && zero_point.dims[zero_point.rank - 2] != 1))
      return bad_parameter(c, in[3], &c->in[in[2]]);
    p->zero_point = mat_of(&zero_point, p->s.rank, true);
  }
  return batched_matmul_run(c, p, LB_I32);
}

lb_status lb_reference_MatMulInteger(lb_reference_call *c) {
  batched_matmul p = {0};
  return int8_matmul(c, (const int[]){0, 2, 1, 3}, &p, &c->out[0]);
}

typedef struct matmul_requant {
  float y_scale;
  double zero_point, lo, hi;
} matmul_requant;

static void requant_row(const void *user, int64_t n, char *const *p,
                        const int64_t *step) {
  const matmul_requant *q = user;
  for (int64_t i = 0; i < n; i++) {
    float scale = *(const lb_f32 *)(p[2] + i * step[2]) *
                  *(const lb_f32 *)(p[3] + i * step[3]) / q->y_scale;
    float x = (float)*(const lb_i32 *)(p[1] + i * step[1]) * scale;
    double y = rint((double)x) + q->zero_point;
    y = y > q->lo ? y : q->lo;  // also for NaN
    *(lb_i32 *)(p[0] + i * step[0]) = (int32_t)(y < q->hi ? y : q->hi);
  }
}

lb_status lb_reference_QLinearMatMul(lb_reference_call *c) {
  batched_matmul p = {0};
  lb_tensor acc, a_scale, b_scale;
  double y_scale;
  matmul_requant q = {.lo = 0, .hi = 255};
  if (c->out[0].dtype == LB_I8) q.lo = -128, q.hi = 127;
  LB_TRY(lb_reference_temp(c, LB_I32, c->out[0].rank, c->out[0].dims, &acc));
  LB_TRY(int8_matmul(c, (const int[]){0, 2, 3, 5}, &p, &acc));
  LB_TRY(lb_reference_dense(c, &c->in[1], LB_F32, &a_scale));
  LB_TRY(lb_reference_dense(c, &c->in[4], LB_F32, &b_scale));
  LB_TRY(lb_reference_scalar(c, 6, 1, &y_scale));
  LB_TRY(lb_reference_scalar(c, 7, 0, &q.zero_point));
  q.y_scale = (float)y_scale;
  if (lb_tensor_count(&a_scale) == 1) a_scale.rank = 0;
  if (lb_tensor_count(&b_scale) == 1) b_scale.rank = 0;
  if (c->in[0].rank >= 2 && c->in[3].rank >= 2) a_scale = per_row(&a_scale);
  if (!fits(&a_scale, &acc)) return bad_parameter(c, 1, &acc);
  if (!fits(&b_scale, &acc)) return bad_parameter(c, 4, &acc);
  const lb_tensor *operands[] = {&acc, &acc, &a_scale, &b_scale};
  lb_iter_all(c->pool, 4, operands, requant_row, &q);
  lb_convert(c->pool, &acc, &c->out[0]);
  return LB_OK;
}
