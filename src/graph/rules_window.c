// graph/rules_window.c -- sliding windows: convolution and pooling.
//
// Terms. The spatial dims are all dims after batch and channels. The extent of
// a kernel is its size including the gaps of dilation: dilation * (kernel - 1)
// + 1.
#include <string.h>

#include "graph/rules.h"

typedef enum pad_mode { EXPLICIT, VALID, SAME } pad_mode;

typedef struct graph_window {
  int n;  // number of spatial dims
  pad_mode mode;
  bool ceil;
  bool may_overhang;  // pools: a window may be larger than the input
  lb_dim kernel[LB_MAX_RANK];
  int64_t stride[LB_MAX_RANK], dilation[LB_MAX_RANK];
  int64_t before[LB_MAX_RANK], after[LB_MAX_RANK];
} graph_window;

// -- reading attributes ------------------------------------------------------

// A list of n numbers in [lo, 2^31); `dflt` if absent.
static lb_status small_list(const lb_infer *c, const char *name, int n,
                            int64_t lo, int64_t dflt, int64_t *out) {
  const int64_t *list;
  LB_TRY(lb_rule_list(c, name, n, &list));
  for (int i = 0; i < n; i++) {
    out[i] = list ? list[i] : dflt;
    if (out[i] < lo)
      return lb_infer_error(c, "%s[%d] is %lld; it must be at least %lld", name,
                            i, (long long)out[i], (long long)lo);
    if (out[i] > INT32_MAX)
      return lb_infer_error(c, "%s[%d] is %lld; it must be less than 2^31",
                            name, i, (long long)out[i]);
  }
  return LB_OK;
}

static lb_status read_mode(const lb_infer *c, pad_mode *out) {
  const char *s = lb_attr_str(c->node, "auto_pad", "NOTSET");
  *out = EXPLICIT;
  if (strcmp(s, "VALID") == 0) *out = VALID;
  if (strncmp(s, "SAME_", 5) == 0) *out = SAME;
  bool known = *out != EXPLICIT || strcmp(s, "NOTSET") == 0 || !*s;
  if (known) return LB_OK;
  return lb_infer_error(c, "auto_pad '%.32s' is not known", s);
}

// Reads everything but the kernel.
static lb_status read_window(const lb_infer *c, int n, graph_window *w) {
  int64_t pads[2 * LB_MAX_RANK];
  w->n = n;
  w->may_overhang = false;
  w->ceil = lb_attr_int(c->node, "ceil_mode", 0) != 0;
  LB_TRY(read_mode(c, &w->mode));
  LB_TRY(small_list(c, "strides", n, 1, 1, w->stride));
  LB_TRY(small_list(c, "dilations", n, 1, 1, w->dilation));
  LB_TRY(small_list(c, "pads", 2 * n, 0, 0, pads));
  bool none = w->mode != EXPLICIT;
  for (int i = 0; i < n; i++) {
    w->before[i] = none ? 0 : pads[i];
    w->after[i] = none ? 0 : pads[n + i];
  }
  return LB_OK;
}

// Reads the kernel sizes from the attribute, which is required for pools.
static lb_status read_kernel(const lb_infer *c, graph_window *w) {
  int64_t sizes[LB_MAX_RANK];
  if (!lb_attr_has(c->node, "kernel_shape"))
    return lb_infer_error(c, "the attribute kernel_shape is missing");
  LB_TRY(small_list(c, "kernel_shape", w->n, 1, 1, sizes));
  for (int i = 0; i < w->n; i++) w->kernel[i] = lb_dim_const(sizes[i]);
  return LB_OK;
}

// Reads the kernel sizes from the weights; the attribute, if present, must
// agree.
static lb_status weight_kernel(const lb_infer *c, int iw, graph_window *w) {
  const lb_vinfo *x = &c->in[iw];
  const int64_t *attr;
  LB_TRY(lb_rule_list(c, "kernel_shape", w->n, &attr));
  for (int i = 0; i < w->n; i++) {
    w->kernel[i] = x->dims[2 + i];
    if (attr && lb_rule_differ(w->kernel[i], lb_dim_const(attr[i])))
      return lb_infer_error(c,
                            "kernel_shape[%d] is %lld but the weights are "
                            "%s",
                            i, (long long)attr[i], lb_rule_text(c, iw));
    if (attr) w->kernel[i] = lb_dim_const(attr[i]);
    if (lb_dim_is(w->kernel[i], 0))
      return lb_infer_error(c, "the kernel of weights %s is empty",
                            lb_rule_text(c, iw));
  }
  return LB_OK;
}

// -- sizes -------------------------------------------------------------------

static lb_status extent(const lb_infer *c, const graph_window *w, int i,
                        lb_dim *out) {
  LB_TRY(lb_rule_plus(c, w->kernel[i], -1, out));
  LB_TRY(lb_rule_mul(c, *out, lb_dim_const(w->dilation[i]), out));
  return lb_rule_plus(c, *out, 1, out);
}

static lb_status too_large(const lb_infer *c, int i, lb_dim ext,
                           lb_dim padded) {
  return lb_infer_error(
      c,
      "a kernel spanning %s is larger than the padded input of %s along axis "
      "%d; the input must be larger",
      lb_rule_dim(c, ext), lb_rule_dim(c, padded), i + 2);
}

// Number of windows along spatial dim i, whose size is d. With ceil the last
// window may overhang, but it must start inside the input or its left padding:
// there are at most ceil((d + before) / stride). Other engines round the
// division towards zero, so that a pool whose only window is larger than the
// input, by less than a stride, pools the whole input; models rely on it. (The
// symbolic dim is 0 in that case.)
static lb_status window_count(const lb_infer *c, const graph_window *w, int i,
                              lb_dim d, lb_dim *out) {
  lb_dim stride = lb_dim_const(w->stride[i]), ext, padded, slack, inside;
  if (w->mode == SAME) return lb_rule_ceildiv(c, d, stride, out);
  LB_TRY(extent(c, w, i, &ext));
  LB_TRY(lb_rule_plus(c, d, w->before[i] + w->after[i], &padded));
  LB_TRY(lb_rule_sub(c, padded, ext, &slack));
  if (lb_dim_is_const(slack) && slack.k < 0) {
    bool one = w->may_overhang && !lb_dim_is(d, 0) && slack.k > -w->stride[i];
    if (!one && !lb_dim_is(d, 0)) return too_large(c, i, ext, padded);
    *out = one ? lb_dim_const(1) : d;
    return LB_OK;
  }
  if (!w->ceil) {
    LB_TRY(lb_rule_floordiv(c, slack, stride, out));
    return lb_rule_plus(c, *out, 1, out);
  }
  LB_TRY(lb_rule_ceildiv(c, slack, stride, out));
  LB_TRY(lb_rule_plus(c, *out, 1, out));
  LB_TRY(lb_rule_plus(c, d, w->before[i], &inside));
  LB_TRY(lb_rule_ceildiv(c, inside, stride, &inside));
  return lb_rule_min(c, *out, inside, out);
}

// -- Conv --------------------------------------------------------------------

// Input [N,C,spatial...], weights [M,C/group,kernel...].
static lb_status check_channels(const lb_infer *c, int ix, int iw,
                                int64_t group) {
  lb_dim ch = c->in[ix].dims[1], own = c->in[iw].dims[1];
  lb_dim m = c->in[iw].dims[0], want;
  if (group < 1 || group > INT32_MAX)
    return lb_infer_error(c, "group is %lld; it must be positive",
                          (long long)group);
  LB_TRY(lb_rule_mul(c, own, lb_dim_const(group), &want));
  if (lb_rule_differ(ch, want))
    return lb_infer_error(
        c, "input %s has %s channels; weights %s in %lld group%s need %s",
        lb_rule_text(c, ix), lb_rule_dim(c, ch), lb_rule_text(c, iw),
        (long long)group, group == 1 ? "" : "s", lb_rule_dim(c, want));
  if (lb_dim_is_const(m) && m.k % group != 0)
    return lb_infer_error(c, "%s output channels do not split into %lld groups",
                          lb_rule_dim(c, m), (long long)group);
  return LB_OK;
}

// One tap of a window that spans several positions (pass_window.c) has an empty
// input if the original input was smaller than the window.
static lb_status check_span(const lb_infer *c) {
  int64_t span = lb_attr_int(c->node, "span", 1);
  if (span == 1 || !lb_dim_is(c->in[0].dims[2], 0)) return LB_OK;
  return lb_infer_error(c,
                        "a kernel spanning %lld is larger than the padded "
                        "input along axis 2; the input must be larger",
                        (long long)span);
}

static lb_status conv(lb_infer *c, int ix, int iw, int ib, lb_dtype t) {
  const lb_vinfo *x = &c->in[ix], *weights = &c->in[iw];
  LB_TRY(lb_rule_rank(c, ix, 3, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, iw, 3, LB_MAX_RANK));
  lb_rule_type(c, 0, t);
  if (x->rank < 0 || weights->rank < 0)
    return lb_rule_unknown(c, 0, t, x->rank > 0 ? x->rank : weights->rank);
  LB_TRY(lb_rule_rank(c, iw, x->rank, x->rank));
  graph_window w;
  LB_TRY(read_window(c, x->rank - 2, &w));
  LB_TRY(weight_kernel(c, iw, &w));
  LB_TRY(check_channels(c, ix, iw, lb_attr_int(c->node, "group", 1)));
  LB_TRY(check_span(c));
  if (ib >= 0) LB_TRY(lb_rule_expect(c, ib, "bias", 1, &weights->dims[0]));
  lb_dim dims[LB_MAX_RANK] = {x->dims[0], weights->dims[0]};
  for (int i = 0; i < w.n; i++)
    LB_TRY(window_count(c, &w, i, x->dims[2 + i], &dims[2 + i]));
  lb_rule_set(c, 0, t, x->rank, dims);
  return LB_OK;
}

lb_status lb_shape_conv(lb_infer *c) {
  if (c->node->op == LB_OP_ConvInteger) {
    LB_TRY(lb_rule_takes(c, 0, LB_TYPES_INT8));
    LB_TRY(lb_rule_takes(c, 1, LB_TYPES_INT8));
    LB_TRY(lb_rule_same_type(c, 0, 2));
    LB_TRY(lb_rule_same_type(c, 1, 3));
    return conv(c, 0, 1, -1, LB_I32);
  }
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  return conv(c, 0, 1, 2, c->in[0].dtype);
}

lb_status lb_shape_qlinear_conv(lb_infer *c) {
  static const int scales[] = {1, 4, 6};
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_INT8));
  LB_TRY(lb_rule_takes(c, 3, LB_TYPES_INT8));
  LB_TRY(lb_rule_takes(c, 7, LB_TYPES_INT8));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_same_type(c, 3, 5));
  LB_TRY(lb_rule_takes(c, 8, LB_BIT(I32)));
  for (int i = 0; i < 3; i++) LB_TRY(lb_rule_takes(c, scales[i], LB_BIT(F32)));
  return conv(c, 0, 3, 8, c->in[7].dtype);
}

lb_status lb_shape_deform_conv(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *o = &c->out[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  for (int i = 1; i < 5; i++) LB_TRY(lb_rule_same_type(c, 0, i));
  LB_TRY(conv(c, 0, 1, 3, x->dtype));
  if (x->rank < 0 || o->rank < 0 || c->in[1].rank < 0) return LB_OK;
  int64_t groups = lb_attr_int(c->node, "offset_group", 1);
  if (groups < 1 || groups > INT32_MAX)
    return lb_infer_error(c, "offset_group is %lld; it must be positive",
                          (long long)groups);
  if (lb_dim_is_const(x->dims[1]) && x->dims[1].k % groups != 0)
    return lb_infer_error(c,
                          "channels of %s do not split into %lld offset "
                          "groups",
                          lb_rule_text(c, 0), (long long)groups);
  lb_dim taps, want[LB_MAX_RANK];
  LB_TRY(lb_rule_product(c, c->in[1].dims + 2, x->rank - 2, &taps));
  LB_TRY(lb_rule_mul(c, taps, lb_dim_const(groups), &taps));
  memcpy(want, o->dims, sizeof want);
  LB_TRY(lb_rule_mul(c, taps, lb_dim_const(x->rank - 2), &want[1]));
  LB_TRY(lb_rule_expect(c, 2, "offset", x->rank, want));
  want[1] = taps;
  return lb_rule_expect(c, 4, "mask", x->rank, want);
}

// -- ConvTranspose -----------------------------------------------------------

// Size along spatial dim i: stride * (d - 1) + extra + extent - pads.
static lb_status transposed_size(const lb_infer *c, const graph_window *w,
                                 int i, lb_dim d, int64_t extra, lb_dim *out) {
  lb_dim stride = lb_dim_const(w->stride[i]), ext;
  if (w->mode == SAME) return lb_rule_mul(c, d, stride, out);
  LB_TRY(extent(c, w, i, &ext));
  LB_TRY(lb_rule_plus(c, d, -1, out));
  LB_TRY(lb_rule_mul(c, *out, stride, out));
  LB_TRY(lb_rule_add(c, *out, ext, out));
  LB_TRY(lb_rule_plus(c, *out, extra - w->before[i] - w->after[i], out));
  if (!lb_dim_is_const(*out) || out->k >= 0) return LB_OK;
  if (lb_dim_is(d, 0)) return *out = d, LB_OK;
  return lb_infer_error(c, "pads remove more than the output has along axis %d",
                        i + 2);
}

static lb_status transposed_sizes(const lb_infer *c, const graph_window *w,
                                  lb_dim *dims) {
  int64_t extra[LB_MAX_RANK], sizes[LB_MAX_RANK];
  LB_TRY(small_list(c, "output_padding", w->n, 0, 0, extra));
  LB_TRY(small_list(c, "output_shape", w->n, 0, 0, sizes));
  bool given = lb_attr_has(c->node, "output_shape");
  for (int i = 0; i < w->n; i++) {
    if (given)
      dims[2 + i] = lb_dim_const(sizes[i]);
    else
      LB_TRY(transposed_size(c, w, i, c->in[0].dims[2 + i], extra[i],
                             &dims[2 + i]));
  }
  return LB_OK;
}

lb_status lb_shape_conv_transpose(lb_infer *c) {
  const lb_vinfo *x = &c->in[0], *weights = &c->in[1];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_same_type(c, 0, 1));
  LB_TRY(lb_rule_same_type(c, 0, 2));
  LB_TRY(lb_rule_rank(c, 0, 3, LB_MAX_RANK));
  LB_TRY(lb_rule_rank(c, 1, 3, LB_MAX_RANK));
  if (x->rank < 0 || weights->rank < 0)
    return lb_rule_unknown(c, 0, x->dtype,
                           x->rank > 0 ? x->rank : weights->rank);
  LB_TRY(lb_rule_rank(c, 1, x->rank, x->rank));
  graph_window w;
  LB_TRY(read_window(c, x->rank - 2, &w));
  LB_TRY(weight_kernel(c, 1, &w));
  int64_t group = lb_attr_int(c->node, "group", 1);
  if (group < 1 || group > INT32_MAX ||
      (lb_dim_is_const(x->dims[1]) && x->dims[1].k % group != 0))
    return lb_infer_error(c, "channels of %s do not split into %lld groups",
                          lb_rule_text(c, 0), (long long)group);
  if (lb_rule_differ(x->dims[1], weights->dims[0]))
    return lb_infer_error(c, "input %s and weights %s differ in channels",
                          lb_rule_text(c, 0), lb_rule_text(c, 1));
  lb_dim dims[LB_MAX_RANK] = {x->dims[0]};
  LB_TRY(lb_rule_mul(c, weights->dims[1], lb_dim_const(group), &dims[1]));
  LB_TRY(lb_rule_expect(c, 2, "bias", 1, &dims[1]));
  LB_TRY(transposed_sizes(c, &w, dims));
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

// -- Col2Im ------------------------------------------------------------------

// Number of blocks of an image: the product of the windows along each dim.
static lb_status count_blocks(const lb_infer *c, graph_window *w,
                              const lb_dim *image, lb_dim *out) {
  lb_dim p = lb_dim_const(1), n;
  w->ceil = false;
  w->mode = EXPLICIT;
  for (int i = 0; i < w->n; i++) {
    LB_TRY(window_count(c, w, i, image[i], &n));
    LB_TRY(lb_rule_mul(c, p, n, &p));
  }
  *out = p;
  return LB_OK;
}

lb_status lb_shape_col2im(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  graph_window w;
  lb_dim image[LB_MAX_RANK], taps, blocks;
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_takes(c, 2, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 3, 3));
  lb_rule_type(c, 0, x->dtype);
  int n = lb_infer_ints(c, 1, image, LB_MAX_RANK - 2);
  int k = lb_infer_ints(c, 2, w.kernel, LB_MAX_RANK - 2);
  int length = lb_rule_length(c, 1);
  LB_TRY(lb_rule_max_rank(c, length > LB_MAX_RANK ? length : length + 2));
  if (n < 0 || k < 0 || x->rank < 0)
    return lb_rule_unknown(c, 0, x->dtype, length < 0 ? -1 : length + 2);
  if (n != k)
    return lb_infer_error(c, "image_shape has %d dims, block_shape %d", n, k);
  LB_TRY(read_window(c, n, &w));
  LB_TRY(lb_rule_product(c, w.kernel, n, &taps));
  for (int i = 0; i < n; i++) {
    if (lb_dim_known(w.kernel[i]).at_most < 1)
      return lb_infer_error(c, "block_shape[%d] must be positive", i);
  }
  if (lb_dim_is_const(x->dims[1]) && lb_dim_is_const(taps) &&
      x->dims[1].k % taps.k != 0)
    return lb_infer_error(c,
                          "dim 1 of %s is not a multiple of the block size %s",
                          lb_rule_text(c, 0), lb_rule_dim(c, taps));
  LB_TRY(count_blocks(c, &w, image, &blocks));
  if (lb_rule_differ(blocks, x->dims[2]))
    return lb_infer_error(c, "the image has %s blocks, but the input is %s",
                          lb_rule_dim(c, blocks), lb_rule_text(c, 0));
  lb_dim dims[LB_MAX_RANK] = {x->dims[0]};
  LB_TRY(lb_rule_divexact(c, x->dims[1], taps, &dims[1]));
  memcpy(dims + 2, image, (size_t)n * sizeof *dims);
  lb_rule_set(c, 0, x->dtype, n + 2, dims);
  return LB_OK;
}

// -- pooling -----------------------------------------------------------------

lb_status lb_shape_pool(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  bool max = c->node->op == LB_OP_MaxPool;
  LB_TRY(lb_rule_takes(c, 0,
                       max ? LB_TYPES_FLOAT | LB_TYPES_INT8 : LB_TYPES_FLOAT));
  LB_TRY(lb_rule_rank(c, 0, 3, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  lb_rule_type(c, 1, LB_I64);
  if (x->rank < 0) return LB_OK;
  graph_window w;
  LB_TRY(read_window(c, x->rank - 2, &w));
  w.may_overhang = true;
  LB_TRY(read_kernel(c, &w));
  lb_dim dims[LB_MAX_RANK] = {x->dims[0], x->dims[1]};
  for (int i = 0; i < w.n; i++)
    LB_TRY(window_count(c, &w, i, x->dims[2 + i], &dims[2 + i]));
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  lb_rule_set(c, 1, LB_I64, x->rank, dims);
  return LB_OK;
}

lb_status lb_shape_max_unpool(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_takes(c, 1, LB_BIT(I64)));
  LB_TRY(lb_rule_takes(c, 2, LB_BIT(I64)));
  LB_TRY(lb_rule_rank(c, 0, 3, LB_MAX_RANK));
  lb_rule_type(c, 0, x->dtype);
  if (x->rank < 0) return LB_OK;
  LB_TRY(lb_rule_expect(c, 1, "indices", x->rank, x->dims));
  lb_dim dims[LB_MAX_RANK] = {x->dims[0], x->dims[1]};
  if (lb_rule_has(c, 2)) {
    int n = lb_infer_ints(c, 2, dims, LB_MAX_RANK);
    if (n < 0) return lb_rule_unknown(c, 0, x->dtype, x->rank);
    if (n != x->rank)
      return lb_infer_error(c, "output_shape has %d elements for %s", n,
                            lb_rule_text(c, 0));
  } else {
    graph_window w;
    LB_TRY(read_window(c, x->rank - 2, &w));
    LB_TRY(read_kernel(c, &w));
    for (int i = 0; i < w.n; i++)
      LB_TRY(transposed_size(c, &w, i, x->dims[2 + i], 0, &dims[2 + i]));
  }
  lb_rule_set(c, 0, x->dtype, x->rank, dims);
  return LB_OK;
}

lb_status lb_shape_global_pool(lb_infer *c) {
  const lb_vinfo *x = &c->in[0];
  LB_TRY(lb_rule_takes(c, 0, LB_TYPES_FLOAT));
  LB_TRY(lb_rule_rank(c, 0, 2, LB_MAX_RANK));
  lb_rule_like(c, 0, x->dtype, x);
  for (int i = 2; i < x->rank; i++) c->out[0].dims[i] = lb_dim_const(1);
  return LB_OK;
}
