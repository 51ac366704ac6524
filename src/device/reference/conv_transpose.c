// device/reference/conv_transpose.c -- ConvTranspose and Col2Im.
//
// ConvTranspose is computed as a gather, so that every output is accumulated by
// one thread: output o receives tap t of input i where i*stride + t*dilation -
// pad == o. With weights reordered to [group, output channels, input channels x
// taps] it is a GEMM whose columns are gathered.
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

// -- ConvTranspose -----------------------------------------------------------

typedef struct conv_transpose_input {
  const lb_window_geometry *w;  // `in` are dims of x, `out` of y
  const char *x;                // dense [channels, in...]
  size_t size;
  int64_t plane;
} conv_transpose_input;

// The input position that contributes to output `at` through `tap` along axis
// d, or -1.
static int64_t source(const lb_window_geometry *w, int d, int64_t at,
                      int64_t tap) {
  int64_t x = at + w->pad[d] - tap * w->dilation[d];
  if (x < 0 || x % w->stride[d] != 0) return -1;
  x /= w->stride[d];
  return x < w->in[d] ? x : -1;
}

static int64_t source_offset(const lb_window_geometry *w, const int64_t *at,
                             const int64_t *tap) {
  int64_t offset = 0;
  for (int d = 0; d < w->n; d++) {
    int64_t x = source(w, d, at[d], tap[d]);
    if (x < 0) return -1;
    offset = offset * w->in[d] + x;
  }
  return offset;
}

static void pack_sources(const void *b, int64_t k0, int64_t kn, int64_t j0,
                         int64_t jn, void *panel) {
  const conv_transpose_input *m = b;
  const lb_window_geometry *w = m->w;
  int64_t at[LB_GEMM_COLS][LB_MAX_RANK], tap[LB_MAX_RANK];
  int64_t taps = lb_window_taps(w), channel = k0 / taps;
  for (int64_t j = 0; j < jn; j++) lb_index_of(j0 + j, w->n, w->out, at[j]);
  lb_index_of(k0 % taps, w->n, w->kernel, tap);
  char *to = panel;
  for (int64_t k = 0; k < kn; k++, to += LB_GEMM_COLS * m->size) {
    const char *x = m->x + channel * m->plane * (int64_t)m->size;
    memset(to, 0, (size_t)jn * m->size);
    for (int64_t j = 0; j < jn; j++) {
      int64_t offset = source_offset(w, at[j], tap);
      if (offset >= 0)
        memcpy(to + j * (int64_t)m->size, x + offset * (int64_t)m->size,
               m->size);
    }
    if (!lb_next_index(w->n, w->kernel, tap)) channel++;
  }
}

typedef struct conv_transpose {
  lb_window_geometry w;
  int64_t groups, channels_in, channels_out;  // channels per group
  conv_transpose_input *inputs;
  const char *weights;
  char *out;
} conv_transpose;

static void conv_transpose_get(const void *user, int64_t i, lb_gemm *g) {
  const conv_transpose *v = user;
  int64_t size = (int64_t)lb_dtype_size(g->dtype);
  g->a = v->weights + i % v->groups * g->m * g->k * size;
  g->b = &v->inputs[i];
  g->c = v->out + i * g->m * g->n * size;
}

// Derives pads from the output's dims where output_shape or auto_pad is given.
static lb_status conv_transpose_pads(const lb_reference_call *c,
                                     lb_window_geometry *w) {
  uint32_t n_adj, n_shape;
  const int64_t *adj = lb_attr_ints(c->node, "output_padding", &n_adj);
  lb_attr_ints(c->node, "output_shape", &n_shape);
  const char *mode = lb_attr_str(c->node, "auto_pad", "NOTSET");
  bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER");
  if (!strcmp(mode, "VALID"))
    for (int d = 0; d < w->n; d++) w->pad[d] = 0;
  if (n_shape == 0 && !upper && !lower) return LB_OK;
  for (int d = 0; d < w->n; d++) {
    int64_t extra = n_adj > (uint32_t)d ? adj[d] : 0;
    if (extra < 0 || extra > INT32_MAX)
      return lb_error(LB_INVALID, "output_padding[%d] is %lld", d,
                      (long long)extra);
    int64_t total = (w->in[d] - 1) * w->stride[d] + extra +
                    (w->kernel[d] - 1) * w->dilation[d] + 1 - w->out[d];
    if (total < 0) total = 0;
    w->pad[d] = upper ? total / 2 : total - total / 2;
  }
  return LB_OK;
}

static lb_status conv_transpose_init(lb_reference_call *c, conv_transpose *v) {
  const lb_tensor *x = &c->in[0], *weights = &c->in[1];
  int64_t group = lb_attr_int(c->node, "group", 1);
  if (group < 1 || x->rank < 3 || weights->rank != x->rank ||
      x->dims[1] % group != 0 || weights->dims[0] != x->dims[1])
    return lb_error(LB_INVALID, "group %lld does not divide the channels",
                    (long long)group);
  v->groups = group;
  v->channels_in = x->dims[1] / group;
  v->channels_out = weights->dims[1];
  lb_window_geometry *w = &v->w;
  w->n = x->rank - 2;
  for (int d = 0; d < w->n; d++) {
    w->in[d] =
        c->out[0].dims[2 + d];  // exchanged for the check: strides apply to x
    w->out[d] = x->dims[2 + d];
    w->kernel[d] = weights->dims[2 + d];
  }
  LB_TRY(lb_window_attrs(c, w));
  LB_TRY(lb_window_check(c, w));
  memcpy(w->in, x->dims + 2, (size_t)w->n * sizeof *w->in);
  memcpy(w->out, c->out[0].dims + 2, (size_t)w->n * sizeof *w->out);
  return conv_transpose_pads(c, w);
}

// Transposes weights from [in, out, taps] to [group, out, in, taps].
static lb_status reorder(lb_reference_call *c, const conv_transpose *v,
                         lb_dtype work, lb_tensor *out) {
  lb_tensor dense, from = {.dtype = work, .rank = 4};
  LB_TRY(lb_reference_dense(c, &c->in[1], work, &dense));
  int64_t taps = lb_window_taps(&v->w);
  from.data = dense.data;
  memcpy(from.dims,
         (int64_t[]){v->groups, v->channels_out, v->channels_in, taps},
         4 * sizeof(int64_t));
  memcpy(from.strides,
         (int64_t[]){v->channels_in * v->channels_out * taps, taps,
                     v->channels_out * taps, 1},
         4 * sizeof(int64_t));
  LB_TRY(lb_reference_temp(c, work, 4, from.dims, out));
  lb_convert(c->pool, &from, out);
  return LB_OK;
}

static lb_status conv_transpose_run(lb_reference_call *c, conv_transpose *v,
                                    const lb_tensor *x, lb_tensor *out) {
  if (lb_tensor_count(out) == 0) return LB_OK;
  if (lb_tensor_count(x) == 0 || lb_tensor_count(&c->in[1]) == 0) {
    memset(out->data, 0, lb_tensor_bytes(out));
    return LB_OK;
  }
  lb_tensor weights;
  LB_TRY(reorder(c, v, x->dtype, &weights));
  int64_t count = x->dims[0] * v->groups,
          plane = lb_reference_product(v->w.n, v->w.in);
  size_t size = lb_dtype_size(x->dtype);
  v->inputs = lb_arena_new(c->scratch, conv_transpose_input, (size_t)count);
  if (!v->inputs) return lb_oom();
  for (int64_t i = 0; i < count; i++)
    v->inputs[i] = (conv_transpose_input){
        &v->w,
        (const char *)x->data + i * v->channels_in * plane * (int64_t)size,
        size, plane};
  v->weights = weights.data;
  v->out = out->data;
  lb_gemm g = {
      .dtype = x->dtype,
      .m = v->channels_out,
      .n = lb_reference_product(v->w.n, v->w.out),
      .k = v->channels_in * lb_window_taps(&v->w),
      .a_col = 1,
      .pack = pack_sources,
  };
  g.a_row = g.k;
  g.c_row = g.n;
  lb_gemm_batch(c->pool, &g, count, conv_transpose_get, v);
  return LB_OK;
}

#define ADD_BIAS(id, S, T, load, store, ...)                                  \
  static void add_bias_##id(S *y, const S *bias, int64_t rows,                \
                            int64_t channels, int64_t plane) {                \
    for (int64_t i = 0; i < rows; i++)                                        \
      for (int64_t j = 0; j < plane; j++)                                     \
        y[i * plane + j] = load(y[i * plane + j]) + load(bias[i % channels]); \
  }
LB_WIDE_FLOATS(ADD_BIAS, )

static lb_status add_bias(lb_reference_call *c, const lb_tensor *out) {
  if (c->node->n_in < 3 || c->in[2].dtype == LB_NONE) return LB_OK;
  lb_tensor bias;
  LB_TRY(lb_reference_dense(c, &c->in[2], out->dtype, &bias));
  int64_t rows = out->dims[0] * out->dims[1];
  int64_t plane = lb_reference_product(out->rank - 2, out->dims + 2);
  if (lb_tensor_count(&bias) != out->dims[1])
    return lb_error(LB_INVALID, "the bias has %lld elements, not %lld",
                    (long long)lb_tensor_count(&bias), (long long)out->dims[1]);
  if (out->dtype == LB_F32)
    add_bias_F32(out->data, bias.data, rows, out->dims[1], plane);
  else
    add_bias_F64(out->data, bias.data, rows, out->dims[1], plane);
  return LB_OK;
}

lb_status lb_reference_ConvTranspose(lb_reference_call *c) {
  if (!lb_dtype_is_float(c->in[0].dtype))
    return lb_reference_bad_dtype(c, c->in[0].dtype);
  lb_dtype work = lb_work_dtype(c->in[0].dtype);
  conv_transpose v = {0};
  lb_tensor x, out;
  LB_TRY(conv_transpose_init(c, &v));
  LB_TRY(lb_reference_dense(c, &c->in[0], work, &x));
  LB_TRY(lb_work_out(c, 0, work, &out));
  LB_TRY(conv_transpose_run(c, &v, &x, &out));
  LB_TRY(add_bias(c, &out));
  return lb_work_done(c, 0, &out);
}

// -- Col2Im ------------------------------------------------------------------

// Computes one plane: each element is the sum of the taps that fall on it, in
// row-major order of the taps.
#define FOLD(id, S, T, load, store, ...)                               \
  static void fold_##id(const lb_window_geometry *w, const void *cols, \
                        void *image_) {                                \
    const S *from = cols;                                              \
    S *to = image_;                                                    \
    int64_t at[LB_MAX_RANK] = {0},                                     \
            blocks = lb_reference_product(w->n, w->out);               \
    int64_t i = 0;                                                     \
    do {                                                               \
      int64_t tap[LB_MAX_RANK] = {0}, k = 0;                           \
      T sum = 0;                                                       \
      bool any = false;                                                \
      do {                                                             \
        int64_t block = block_at(w, at, tap);                          \
        if (block >= 0) {                                              \
          T x = load(from[k * blocks + block]);                        \
          sum = any ? (T)(sum + x) : x;                                \
          any = true;                                                  \
        }                                                              \
        k++;                                                           \
      } while (lb_next_index(w->n, w->kernel, tap));                   \
      to[i++] = store(sum);                                            \
    } while (lb_next_index(w->n, w->in, at));                          \
  }

// The block whose `tap` falls on element `at`, or -1.
static int64_t block_at(const lb_window_geometry *w, const int64_t *at,
                        const int64_t *tap) {
  int64_t block = 0;
  for (int d = 0; d < w->n; d++) {
    int64_t x = at[d] + w->pad[d] - tap[d] * w->dilation[d];
    if (x < 0 || x % w->stride[d] != 0 || x / w->stride[d] >= w->out[d])
      return -1;
    block = block * w->out[d] + x / w->stride[d];
  }
  return block;
}

LB_FLOATS(FOLD, )
LB_UNSIGNED(FOLD, )

typedef void fold_fn(const lb_window_geometry *w, const void *cols,
                     void *image);

static fold_fn *fold_of(lb_dtype t) {
  switch (t) {
    case LB_F32: return fold_F32;
    case LB_F64: return fold_F64;
    case LB_F16: return fold_F16;
    case LB_BF16: return fold_BF16;
    case LB_I8:
    case LB_U8: return fold_U8;
    case LB_I16:
    case LB_U16: return fold_U16;
    case LB_I32:
    case LB_U32: return fold_U32;
    case LB_I64:
    case LB_U64: return fold_U64;
    default: return NULL;
  }
}

typedef struct fold_job {
  const lb_window_geometry *w;
  fold_fn *fn;
  const char *cols;
  char *image;
  int64_t cols_bytes, image_bytes;
} fold_job;

static void fold_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const fold_job *job = user;
  for (int64_t i = begin; i < end; i++)
    job->fn(job->w, job->cols + i * job->cols_bytes,
            job->image + i * job->image_bytes);
}

lb_status lb_reference_Col2Im(lb_reference_call *c) {
  const lb_tensor *out = &c->out[0];
  lb_window_geometry w = {.n = out->rank - 2};
  const int64_t *block;
  int64_t n_block;
  LB_TRY(lb_reference_ints(c, 2, &block, &n_block));
  if (n_block != w.n)
    return lb_error(LB_INVALID, "block_shape has %lld elements, not %d",
                    (long long)n_block, w.n);
  for (int d = 0; d < w.n; d++)
    w.in[d] = out->dims[2 + d], w.kernel[d] = block[d], w.out[d] = 0;
  LB_TRY(lb_window_attrs(c, &w));
  LB_TRY(lb_window_check(c, &w));
  if (lb_tensor_count(out) == 0) return LB_OK;
  for (int d = 0; d < w.n; d++) {
    int64_t reach = w.in[d] + w.pad[d] + w.pad_end[d] -
                    (w.kernel[d] - 1) * w.dilation[d] - 1;
    w.out[d] = reach < 0 ? 0 : reach / w.stride[d] + 1;
  }
  int64_t blocks, rows, taps = lb_window_taps(&w);
  LB_TRY(lb_dims_count(w.n, w.out, &blocks));
  if (blocks != c->in[0].dims[2] ||
      __builtin_mul_overflow(out->dims[1], taps, &rows) ||
      rows != c->in[0].dims[1])
    return lb_error(LB_INVALID,
                    "%lld blocks of %lld taps are required, but the input has "
                    "%lld columns of %lld",
                    (long long)blocks, (long long)taps,
                    (long long)c->in[0].dims[2], (long long)c->in[0].dims[1]);
  lb_tensor x;
  LB_TRY(lb_reference_dense(c, &c->in[0], out->dtype, &x));
  if (lb_tensor_count(&x) == 0) {
    memset(out->data, 0, lb_tensor_bytes(out));
    return LB_OK;
  }
  int64_t size = (int64_t)lb_dtype_size(x.dtype);
  fold_job job = {
      &w,        fold_of(x.dtype),     x.data,
      out->data, blocks * taps * size, lb_reference_product(w.n, w.in) * size};
  if (!job.fn) return lb_reference_bad_dtype(c, x.dtype);
  lb_pool_for(c->pool, out->dims[0] * out->dims[1], 1, fold_task, &job);
  return LB_OK;
}
