// device/reference/einsum.c -- Einsum.
//
// A *label* is a letter of the equation, or one axis of the ellipsis. In terms
// of labels an operand is a set of strides: 0 for a label that it does not have
// or broadcasts along, a sum of strides for one that it has twice (a diagonal).
// A label that only one operand has is summed there first; then operands are
// contracted pairwise, each pair as a GEMM, because the cost of contracting all
// of them at once grows exponentially with their number. Anything that does not
// fit this scheme is summed naively.
#include <ctype.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

enum { LETTERS = 128, MAX_LABELS = LETTERS + LB_MAX_RANK };
enum {
  MAX_OPERANDS = 16,
  MAX_INTERMEDIATE = 1 << 24
};  // elements of an intermediate result

typedef struct operand {
  const char *data;
  int64_t strides[MAX_LABELS];
  bool has[MAX_LABELS];
} operand;

typedef struct equation {
  int n_in;
  operand in[MAX_OPERANDS];
  int64_t dims[MAX_LABELS];  // valid where `seen`
  bool seen[MAX_LABELS];
  int count[MAX_LABELS];           // occurrences on the left
  int out[MAX_LABELS], n_out;      // labels of the output, in order
  int sum[MAX_LABELS], n_sum;      // summed labels, in order of appearance
  int order[MAX_LABELS], n_order;  // labels by first appearance
  int dots;                        // maximum number of axes of the ellipsis
} equation;

static lb_status bad_term(const char *what) {
  return lb_error(LB_INVALID, "the equation %s", what);
}

// Binds an axis of size `dim` and stride `stride` to `label`.
static lb_status bind(equation *e, operand *o, int label, int64_t dim,
                      int64_t stride) {
  bool ellipsis = label >= LETTERS;
  if (!e->seen[label]) {
    e->seen[label] = true;
    e->dims[label] = dim;
    e->order[e->n_order++] = label;
  } else if (e->dims[label] != dim) {
    if (e->dims[label] != 1 && dim != 1)
      return lb_error(LB_INVALID, "a label has the sizes %lld and %lld",
                      (long long)e->dims[label], (long long)dim);
    if (!ellipsis && o->has[label])
      return bad_term("has a diagonal of unequal sizes");
    if (e->dims[label] == 1) e->dims[label] = dim;
  }
  e->count[label]++;
  o->has[label] = true;
  if (dim != 1) o->strides[label] += stride;
  return LB_OK;
}

// Parses one term such as "b...ij" against tensor t; *at ends up behind it.
static lb_status read_term(equation *e, const char **at, const lb_tensor *t,
                           operand *o) {
  int letters = 0, axis = 0;
  for (const char *s = *at; *s && *s != ',' && *s != '-'; s++)
    letters += isalpha((unsigned char)*s) != 0;
  int dots = t->rank - letters;
  o->data = t->data;
  for (; **at && **at != ',' && **at != '-'; ++*at) {
    const char *s = *at;
    if (*s == ' ') continue;
    if (!strncmp(s, "...", 3)) {
      if (dots < 0) return bad_term("has more letters than an input has axes");
      for (int d = 0; d < dots; d++, axis++)
        LB_TRY(bind(e, o, LETTERS + LB_MAX_RANK - dots + d, t->dims[axis],
                    t->strides[axis]));
      if (dots > e->dots) e->dots = dots;
      dots = 0;
      *at += 2;
      continue;
    }
    if (!isalpha((unsigned char)*s) || axis >= t->rank)
      return bad_term("does not fit the ranks of the inputs");
    LB_TRY(bind(e, o, *s, t->dims[axis], t->strides[axis]));
    axis++;
  }
  return axis == t->rank ? LB_OK
                         : bad_term("does not fit the ranks of the inputs");
}

static lb_status add_out(equation *e, int label) {
  for (int i = 0; i < e->n_out; i++)
    if (e->out[i] == label) return bad_term("repeats a label of the output");
  if (!e->seen[label]) return bad_term("has an output label of no input");
  e->out[e->n_out++] = label;
  return LB_OK;
}

static lb_status add_dots(equation *e) {
  for (int d = e->dots; d > 0; d--)
    LB_TRY(add_out(e, LETTERS + LB_MAX_RANK - d));
  return LB_OK;
}

// Parses the part after "->"; without one, the output has every letter that
// occurs once.
static lb_status read_output(equation *e, const char *at) {
  if (!*at) {
    LB_TRY(add_dots(e));
    for (int label = 0; label < LETTERS; label++)
      if (e->count[label] == 1) LB_TRY(add_out(e, label));
    return LB_OK;
  }
  if (strncmp(at, "->", 2)) return bad_term("has more terms than inputs");
  for (at += 2; *at; at++) {
    if (*at == ' ') continue;
    if (!strncmp(at, "...", 3)) {
      LB_TRY(add_dots(e));
      at += 2;
    } else if (isalpha((unsigned char)*at)) {
      LB_TRY(add_out(e, *at));
    } else {
      return bad_term("has a stray character");
    }
  }
  return LB_OK;
}

static bool in_output(const equation *e, int label) {
  for (int i = 0; i < e->n_out; i++)
    if (e->out[i] == label) return true;
  return false;
}

static lb_status parse(lb_reference_call *c, const lb_tensor *in, equation *e) {
  const char *at = lb_attr_str(c->node, "equation", "");
  e->n_in = (int)c->node->n_in;
  if (e->n_in > MAX_OPERANDS)
    return lb_error(LB_UNSUPPORTED, "%d inputs; the maximum is %d", e->n_in,
                    MAX_OPERANDS);
  for (int i = 0; i < e->n_in; i++) {
    if (i > 0 && *at++ != ',') return bad_term("has fewer terms than inputs");
    LB_TRY(read_term(e, &at, &in[i], &e->in[i]));
  }
  LB_TRY(read_output(e, at));
  for (int i = 0; i < e->n_order; i++)
    if (!in_output(e, e->order[i])) e->sum[e->n_sum++] = e->order[i];
  const lb_tensor *out = &c->out[0];
  if (e->n_out != out->rank) return bad_term("gives another rank");
  for (int i = 0; i < e->n_out; i++)
    if (e->dims[e->out[i]] != out->dims[i]) return bad_term("gives other dims");
  return LB_OK;
}

// -- two operands ------------------------------------------------------------

typedef struct labels {
  int n, label[MAX_LABELS];
  int64_t size;
} labels;

static void labels_add(const equation *e, labels *l, int label) {
  l->label[l->n++] = label;
  if (__builtin_mul_overflow(l->size, e->dims[label], &l->size))
    l->size = INT64_MAX;  // the allocation in arrange() will fail
}

// A dense copy of operand i with its axes in the order of `parts`.
static lb_status arrange(lb_reference_call *c, const equation *e, int i,
                         lb_dtype dtype, const labels *const parts[3],
                         lb_tensor *out) {
  lb_tensor from = {.dtype = dtype, .data = (void *)(uintptr_t)e->in[i].data};
  for (int p = 0; p < 3; p++)
    for (int k = 0; k < parts[p]->n; k++) {
      int label = parts[p]->label[k];
      from.dims[from.rank] = e->dims[label];
      from.strides[from.rank++] = e->in[i].strides[label];
    }
  LB_TRY(lb_reference_temp(c, dtype, from.rank, from.dims, out));
  lb_convert(c->pool, &from, out);
  return LB_OK;
}

typedef struct batch_gemm {
  lb_gemm_matrix *b;
  const char *a;
  char *c;
} batch_gemm;

static void batch_gemm_get(const void *user, int64_t i, lb_gemm *g) {
  const batch_gemm *s = user;
  int64_t size = (int64_t)lb_dtype_size(g->dtype);
  g->a = s->a + i * g->m * g->k * size;
  g->b = &s->b[i];
  g->c = s->c + i * g->m * g->n * size;
}

// Transposes the dense result [batch, rows, cols] to the output's order of
// labels.
static void write_output(lb_reference_call *c, const equation *e,
                         const labels *const parts[3], const lb_tensor *sums,
                         const lb_tensor *out) {
  int64_t stride[MAX_LABELS] = {0}, step = 1;
  for (int p = 2; p >= 0; p--)
    for (int k = parts[p]->n - 1; k >= 0; k--) {
      stride[parts[p]->label[k]] = step;
      step *= e->dims[parts[p]->label[k]];
    }
  lb_tensor from = *out;
  from.dtype = sums->dtype;
  from.data = sums->data;
  for (int d = 0; d < from.rank; d++) from.strides[d] = stride[e->out[d]];
  lb_convert(c->pool, &from, out);
}

static lb_status contract_pair(lb_reference_call *c, const equation *e,
                               lb_dtype work, const lb_tensor *out) {
  labels batch = {.size = 1}, rows = batch, cols = batch, sum = batch;
  for (int i = 0; i < e->n_out; i++) {
    int label = e->out[i];
    bool a = e->in[0].has[label], b = e->in[1].has[label];
    labels_add(e, a && b ? &batch : a ? &rows : &cols, label);
  }
  for (int i = 0; i < e->n_sum; i++) labels_add(e, &sum, e->sum[i]);
  if (batch.n + rows.n + sum.n > LB_MAX_RANK ||
      batch.n + cols.n + sum.n > LB_MAX_RANK)
    return lb_error(LB_UNSUPPORTED, "more than %d labels in an input",
                    LB_MAX_RANK);
  lb_tensor a, b, sums;
  LB_TRY(arrange(c, e, 0, work, (const labels *[]){&batch, &rows, &sum}, &a));
  LB_TRY(arrange(c, e, 1, work, (const labels *[]){&batch, &sum, &cols}, &b));
  const int64_t dims[] = {batch.size, rows.size, cols.size};
  LB_TRY(lb_reference_temp(c, work, 3, dims, &sums));
  int64_t size = (int64_t)lb_dtype_size(work);
  batch_gemm s = {lb_arena_new(c->scratch, lb_gemm_matrix, (size_t)batch.size),
                  a.data, sums.data};
  if (!s.b) return lb_oom();
  for (int64_t i = 0; i < batch.size; i++)
    s.b[i] = (lb_gemm_matrix){
        work,      work, (char *)b.data + i * sum.size * cols.size * size,
        cols.size, 1,    NULL,
        0};
  lb_gemm g = {.dtype = work,
               .m = rows.size,
               .n = cols.size,
               .k = sum.size,
               .a_row = sum.size,
               .a_col = 1,
               .pack = lb_gemm_pack_matrix,
               .c_row = cols.size};
  lb_gemm_batch(c->pool, &g, batch.size, batch_gemm_get, &s);
  write_output(c, e, (const labels *[]){&batch, &rows, &cols}, &sums, out);
  return LB_OK;
}

// -- any number of operands --------------------------------------------------

typedef struct sums_job {
  const equation *e;
  void *out;
  int64_t sum_dims[MAX_LABELS], out_dims[MAX_LABELS], terms;
} sums_job;

static int64_t offset_of(const operand *o, int n, const int *list,
                         const int64_t *index) {
  int64_t offset = 0;
  for (int i = 0; i < n; i++) offset += index[i] * o->strides[list[i]];
  return offset;
}

// A is the accumulator type. Floats are accumulated in double: see reference.h.
#define SUMS(id, S, T, A)                                                     \
  static void sums_##id(void *user, int64_t begin, int64_t end, int worker) { \
    (void)worker;                                                             \
    const sums_job *job = user;                                               \
    const equation *e = job->e;                                               \
    for (int64_t o = begin; o < end; o++) {                                   \
      int64_t at[MAX_LABELS], k[MAX_LABELS] = {0};                            \
      lb_index_of(o, e->n_out, job->out_dims, at);                            \
      A sum = 0;                                                              \
      for (int64_t t = 0; t < job->terms; t++) {                              \
        T x = 1;                                                              \
        for (int i = 0; i < e->n_in; i++) {                                   \
          const operand *p = &e->in[i];                                       \
          T y = ((const S *)p->data)[offset_of(p, e->n_out, e->out, at) +     \
                                     offset_of(p, e->n_sum, e->sum, k)];      \
          x = i == 0 ? y : x * y;                                             \
        }                                                                     \
        sum = t == 0 ? x : sum + x;                                           \
        lb_next_index(e->n_sum, job->sum_dims, k);                            \
      }                                                                       \
      ((S *)job->out)[o] = (T)sum;                                            \
    }                                                                         \
  }
SUMS(f32, lb_f32, float, double)
SUMS(f64, lb_f64, double, double)
SUMS(i32, lb_u32, uint32_t, uint32_t)
SUMS(i64, lb_u64, uint64_t, uint64_t)

// `out` has the operands' dtype.
static lb_status sum_naively(lb_reference_call *c, const equation *e,
                             const lb_tensor *out) {
  lb_dtype work = out->dtype;
  sums_job job = {.e = e, .out = out->data, .terms = 1};
  for (int i = 0; i < e->n_out; i++) job.out_dims[i] = e->dims[e->out[i]];
  for (int i = 0; i < e->n_sum; i++) {
    job.sum_dims[i] = e->dims[e->sum[i]];
    if (__builtin_mul_overflow(job.terms, job.sum_dims[i], &job.terms))
      return lb_error(LB_INVALID, "too many products to sum");
  }
  lb_pool_fn *fn = work == LB_F32   ? sums_f32
                   : work == LB_F64 ? sums_f64
                   : work == LB_I32 ? sums_i32
                                    : sums_i64;
  int64_t grain = job.terms < LB_ITER_GRAIN ? LB_ITER_GRAIN : 1;
  if (job.terms > 0 && grain > 1) grain = 1 + LB_ITER_GRAIN / job.terms;
  lb_pool_for(c->pool, lb_tensor_count(out), grain, fn, &job);
  return LB_OK;
}

// -- pairwise contraction ----------------------------------------------------

static bool has_label(const equation *e, int begin, int end, int label) {
  for (int i = begin; i < end; i++)
    if (e->in[i].has[label]) return true;
  return false;
}

// The equation of operands [begin, end) only: labels that neither the output
// nor another operand has are summed.
static void subequation(const equation *e, int begin, int end, equation *out) {
  out->n_in = end - begin;
  memcpy(out->in, e->in + begin, (size_t)out->n_in * sizeof *out->in);
  memcpy(out->dims, e->dims, sizeof out->dims);
  for (int i = 0; i < e->n_order; i++) {
    int label = e->order[i];
    if (!has_label(e, begin, end, label)) continue;
    if (in_output(e, label) || has_label(e, 0, begin, label) ||
        has_label(e, end, e->n_in, label))
      out->out[out->n_out++] = label;
    else
      out->sum[out->n_sum++] = label;
  }
}

// Replaces operands [begin, end) by their contraction, unless that would be too
// large; a single operand without labels to sum is left alone.
static lb_status combine(lb_reference_call *c, equation *e, int begin, int end,
                         lb_dtype work) {
  equation *part = lb_arena_new(c->scratch, equation, 1);
  if (!part) return lb_oom();
  subequation(e, begin, end, part);
  if (part->n_out + part->n_sum > LB_MAX_RANK) return LB_OK;
  if (part->n_in == 1 && part->n_sum == 0) return LB_OK;
  lb_tensor result = {.rank = part->n_out};
  int64_t count = 1;
  for (int i = 0; i < result.rank; i++) {
    result.dims[i] = part->dims[part->out[i]];
    if (__builtin_mul_overflow(count, result.dims[i], &count)) return LB_OK;
  }
  if (count > MAX_INTERMEDIATE) return LB_OK;
  LB_TRY(lb_reference_temp(c, work, result.rank, result.dims, &result));
  LB_TRY(part->n_in == 1 ? sum_naively(c, part, &result)
                         : contract_pair(c, part, work, &result));
  operand *o = &e->in[begin];
  *o = (operand){.data = result.data};
  for (int i = 0; i < result.rank; i++) {
    o->has[part->out[i]] = true;
    o->strides[part->out[i]] = result.strides[i];
  }
  memmove(o + 1, e->in + end, (size_t)(e->n_in - end) * sizeof *o);
  e->n_in -= part->n_in - 1;
  return LB_OK;
}

static lb_status simplify(lb_reference_call *c, equation *e, lb_dtype work) {
  if (e->n_in == 1) return LB_OK;
  for (int i = 0; i < e->n_in; i++) LB_TRY(combine(c, e, i, i + 1, work));
  for (int n = e->n_in + 1; e->n_in > 2 && e->n_in < n;) {
    n = e->n_in;
    LB_TRY(combine(c, e, 0, 2, work));
  }
  int left = 0;  // labels that remain to be summed
  for (int i = 0; i < e->n_sum; i++)
    if (has_label(e, 0, e->n_in, e->sum[i])) e->sum[left++] = e->sum[i];
  e->n_sum = left;
  return LB_OK;
}

lb_status lb_reference_Einsum(lb_reference_call *c) {
  lb_dtype work = lb_work_dtype(c->in[0].dtype);
  if (c->in[0].dtype == LB_BOOL) return lb_reference_bad_dtype(c, LB_BOOL);
  size_t n = c->node->n_in;
  lb_tensor *in = lb_arena_new(c->scratch, lb_tensor, n);
  equation *e = lb_arena_new(c->scratch, equation, 1);
  if (!in || !e) return lb_oom();
  for (size_t i = 0; i < n; i++)
    LB_TRY(lb_reference_dense(c, &c->in[i], work, &in[i]));
  LB_TRY(parse(c, in, e));
  if (lb_tensor_count(&c->out[0]) == 0) return LB_OK;
  LB_TRY(simplify(c, e, work));
  if (e->n_in == 2) return contract_pair(c, e, work, &c->out[0]);
  lb_tensor out;
  LB_TRY(lb_work_out(c, 0, work, &out));
  LB_TRY(sum_naively(c, e, &out));
  return lb_work_done(c, 0, &out);
}
