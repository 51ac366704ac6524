// partition/window_test.c -- all zones together compute the convolution or
// pool: the test executes every binding as a kernel would.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "partition/partition.h"
#include "partition/weights.h"
#include "partition/window.h"

static void must(lb_status st) {
  if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
  assert_false(lb_failed(st));
}

static uint32_t seed;

static int64_t draw(int64_t n) {
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % n;
}

// -- a convolution or pool ---------------------------------------------------

typedef struct sample {
  lb_op op;
  int64_t n, channels, out_channels, groups;
  int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pads[4];
  bool planar, count_pads;
  lb_tensor x, y, w;
  lb_graph *graph;
  lb_node *node;
  const lb_partition *part;
} sample;

static bool is_conv(const sample *s) {
  return s->op == LB_OP_Conv || s->op == LB_OP_ConvTranspose;
}

static void draw_channels(sample *s) {
  s->groups = is_conv(s) && !s->planar && draw(3) == 0 ? 1 + draw(3) : 1;
  s->channels = s->groups * (1 + draw(5));
  if (s->planar) s->channels |= 1;  // else some would be K2-interleaved
  s->out_channels = is_conv(s) ? s->groups * (1 + draw(20)) : s->channels;
  if (s->op == LB_OP_Conv && !s->planar && draw(4) == 0)
    s->groups = s->out_channels = s->channels;  // depthwise
}

static void draw_axis(sample *s, int i) {
  bool transposed = s->op == LB_OP_ConvTranspose;
  s->kernel[i] = 1 + draw(4);
  s->stride[i] = 1 + draw(3);
  s->dilation[i] = transposed || draw(3) ? 1 : 2;
  int64_t extent = (s->kernel[i] - 1) * s->dilation[i] + 1;
  for (int side = 0; side < 2; side++)
    s->pads[2 * side + i] = draw(s->kernel[i]);
  int64_t pads = s->pads[i] + s->pads[2 + i];
  do {
    s->in[i] = 1 + draw(draw(8) ? 9 : 60);
    s->out[i] = transposed ? (s->in[i] - 1) * s->stride[i] + extent - pads
                           : (s->in[i] + pads - extent) / s->stride[i] + 1;
  } while (s->out[i] < 1 || (!transposed && s->in[i] + pads < extent));
}

static lb_tensor tensor_of(const int64_t *dims) {
  lb_tensor t = {.dtype = LB_F32, .rank = 4};
  memcpy(t.dims, dims, 4 * sizeof *dims);
  lb_tensor_dense(&t);
  int64_t n = lb_tensor_count(&t);
  float *p = calloc((size_t)n, sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = (float)draw(15) - 7;
  t.data = p;
  return t;
}

static float *at(const lb_tensor *t, int64_t a, int64_t b, int64_t c,
                 int64_t d) {
  return (float *)t->data + a * t->strides[0] + b * t->strides[1] +
         c * t->strides[2] + d * t->strides[3];
}

// The feature map in the order of its axes, or with channels first in memory.
static void make_tensors(sample *s) {
  int64_t first[] = {s->n, s->channels, s->in[0], s->in[1]};
  int64_t last[] = {s->n, s->in[0], s->in[1], s->channels};
  bool transposed = s->op == LB_OP_ConvTranspose;
  s->x = tensor_of(s->planar ? first : last);
  if (s->planar) {
    int64_t strides[] = {s->x.strides[0], s->x.strides[2], s->x.strides[3],
                         s->x.strides[1]};
    memcpy(s->x.dims, last, sizeof last);
    memcpy(s->x.strides, strides, sizeof strides);
  }
  s->y = tensor_of((int64_t[]){s->n, s->out[0], s->out[1], s->out_channels});
  s->w = tensor_of(
      (int64_t[]){transposed ? s->channels : s->out_channels,
                  (transposed ? s->out_channels : s->channels) / s->groups,
                  s->kernel[0], s->kernel[1]});
}

static lb_value *value_like(lb_graph *g, const char *name, const lb_tensor *t) {
  lb_value *v;
  must(lb_value_new(g, name, &v));
  v->info.dtype = LB_F32;
  v->info.rank = t->rank;
  for (int i = 0; i < t->rank; i++) v->info.dims[i] = lb_dim_const(t->dims[i]);
  return v;
}

static void make_node(sample *s) {
  lb_graph *g;
  lb_node *transpose = NULL;
  must(lb_graph_new(&g));
  lb_value *x = value_like(g, "x", &s->x), *in = x, *w;
  if (s->planar) {
    in = value_like(g, "first", &s->x);
    must(lb_region_add_param(g->main, in));
    must(lb_node_new(g->main, LB_OP_Transpose, NULL, 1, 1, &transpose));
    transpose->in[0] = in;
    lb_node_set_out(transpose, 0, x);
    must(lb_node_set_ints(g, transpose, "perm", (int64_t[]){0, 2, 3, 1}, 4));
  } else {
    must(lb_region_add_param(g->main, x));
  }
  must(lb_node_new(g->main, s->op, NULL, is_conv(s) ? 2 : 1, 1, &s->node));
  must(lb_const_new(g, "w", &s->w, &w));
  s->node->in[0] = x;
  if (is_conv(s)) s->node->in[1] = w;
  lb_node_set_out(s->node, 0, value_like(g, "y", &s->y));
  must(lb_region_add_result(g->main, s->node->out[0]));
  must(lb_node_set_int(g, s->node, "channels_last", 1));
  must(lb_node_set_int(g, s->node, "group", s->groups));
  must(lb_node_set_int(g, s->node, "count_include_pad", s->count_pads));
  must(lb_node_set_ints(g, s->node, "kernel_shape", s->kernel, 2));
  must(lb_node_set_ints(g, s->node, "strides", s->stride, 2));
  must(lb_node_set_ints(g, s->node, "dilations", s->dilation, 2));
  must(lb_node_set_ints(g, s->node, "pads", s->pads, 4));
  s->graph = g;
}

static void sample_make(sample *s, lb_op op, uint32_t number) {
  seed = number * 2654435761u + op;
  *s = (sample){.op = op, .n = 1 + draw(draw(3) ? 2 : 12)};
  s->planar = op == LB_OP_Conv && draw(4) == 0;
  s->count_pads = draw(2);
  draw_channels(s);
  for (int i = 0; i < 2; i++) draw_axis(s, i);
  if (s->planar) s->dilation[1] = 1, s->kernel[1] = 1 + draw(2);
  if (s->planar) {
    int64_t pads = s->pads[1] + s->pads[3];
    s->out[1] = (s->in[1] + pads - s->kernel[1]) / s->stride[1] + 1;
    if (s->in[1] + pads < s->kernel[1]) s->pads[1]++, s->out[1] = 1;
  }
  make_tensors(s);
  make_node(s);
}

static void sample_free(sample *s) {
  lb_graph_free(s->graph);
  free(s->x.data);
  free(s->y.data);
  free(s->w.data);
}

// -- expected results ---------------------------------------------------------

// The input position that tap t of output position o reads; false if it is
// outside or, for a transposed convolution, between two.
static bool input_of(const sample *s, int i, int64_t o, int64_t t,
                     int64_t *in) {
  int64_t back = o + s->pads[i] - t;
  *in = o * s->stride[i] - s->pads[i] + t * s->dilation[i];
  if (s->op == LB_OP_ConvTranspose) {
    if (back < 0 || back % s->stride[i] != 0) return false;
    *in = back / s->stride[i];
  }
  return *in >= 0 && *in < s->in[i];
}

static double dot_product(const sample *s, int64_t n, const int64_t *in,
                          const int64_t *t, int64_t c) {
  int64_t ins = s->channels / s->groups, outs = s->out_channels / s->groups;
  int64_t g = c / outs;
  double sum = 0;
  for (int64_t k = 0; k < ins; k++) {
    const float *w = s->op == LB_OP_Conv
                         ? at(&s->w, c, k, t[0], t[1])
                         : at(&s->w, g * ins + k, c % outs, t[0], t[1]);
    sum += (double)*at(&s->x, n, in[0], in[1], g * ins + k) * (double)*w;
  }
  return sum;
}

static double expected(const sample *s, int64_t n, const int64_t *o,
                       int64_t c) {
  double sum = 0, max = -INFINITY, count = 0;
  for (int64_t i = 0; i < s->kernel[0] * s->kernel[1]; i++) {
    int64_t t[] = {i / s->kernel[1], i % s->kernel[1]}, in[2];
    bool inside = input_of(s, 0, o[0], t[0], &in[0]);
    if (!input_of(s, 1, o[1], t[1], &in[1])) inside = false;
    if (!inside) continue;
    if (is_conv(s)) {
      sum += dot_product(s, n, in, t, c);
      continue;
    }
    double x = (double)*at(&s->x, n, in[0], in[1], c);
    sum += x;
    max = x > max ? x : max;
    count++;
  }
  if (s->op == LB_OP_MaxPool) return max;
  if (s->op != LB_OP_AveragePool) return sum;
  return sum / (s->count_pads ? (double)(s->kernel[0] * s->kernel[1]) : count);
}

// -- executing bindings -------------------------------------------------------

static lb_status tensor_fn(void *user, const lb_value *v, lb_tensor *out) {
  const sample *s = user;
  *out = strcmp(v->name, "y") == 0 ? s->y : s->x;
  return LB_OK;
}

typedef struct position {
  const lb_binding *b;
  const float *x, *w;
  float *y;
  int64_t row, col;
} position;

// The weight of column p->col at k of a piece.
static double weight_at(const position *p, int64_t piece, int64_t k) {
  const lb_bind_operand *w = &p->b->operands[2];
  if (p->b->spec.in[1].layout == LB_LAYOUT_PANEL_K2)
    return (double)
        p->w[piece + p->col / 8 * w->row + k / 2 * 16 + p->col % 8 * 2 + k % 2];
  return (double)p->w[piece + p->col / 16 * w->row + k * 16 + p->col % 16];
}

static double element(const position *p) {
  const lb_binding *b = p->b;
  lb_acc kind = LB_ACC_DOT;
  for (int i = 0; i < b->spec.n_nodes; i++)
    if (b->spec.nodes[i].op == LB_S_ACC) kind = b->spec.nodes[i].arg;
  bool conv = b->spec.form == LB_FORM_CONV;
  double acc = kind == LB_ACC_MAX ? -INFINITY : 0;
  const lb_bind_operand *x = &b->operands[1];
  for (int64_t r = 0; r < b->dims[LB_DIM_TAPS_Y]; r++)
    for (int64_t s = 0; s < b->dims[LB_DIM_TAPS_X]; s++)
      for (int64_t k = 0; k < (conv ? b->dims[LB_DIM_K] : 1); k++) {
        int64_t i = p->row * x->row + r * b->taps[0] + s * b->taps[1];
        int64_t j = r * b->taps[2] + s * b->taps[3];
        double v = (double)p->x[i + (conv ? k : p->col)];
        if (conv)
          v *= weight_at(p, j, k);
        else if (kind == LB_ACC_DOT)
          v *= (double)p->w[j + p->col];
        acc = kind == LB_ACC_MAX ? (v > acc ? v : acc) : acc + v;
      }
  float by;
  memcpy(&by, &b->scalars[0], sizeof by);
  return kind == LB_ACC_SUM ? acc / (double)by : acc;
}

static void run_iteration(const lb_partition *part, const sample *s,
                          const lb_binding *b, const int64_t *index) {
  const float *base[3] = {s->y.data, s->x.data, part->packed};
  for (uint32_t i = 0; i < b->n_operands; i++) {
    const lb_bind_operand *o = &b->operands[i];
    base[i] += base[i] ? o->offset : 0;
    for (int k = 0; k < b->n_outer; k++)
      base[i] += base[i] ? index[k] * o->outer[k] : 0;
  }
  position p = {.b = b, .x = base[1], .w = base[2]};
  for (p.row = 0; p.row < b->dims[LB_DIM_ROWS]; p.row++)
    for (p.col = 0; p.col < b->dims[LB_DIM_COLS]; p.col++) {
      float *y = (float *)base[0] + p.row * b->operands[0].row + p.col;
      assert_true(isnan(*y));  // not written before
      *y = (float)element(&p);
    }
}

static void run_zone(const lb_partition *part, const sample *s,
                     const lb_binding *b) {
  int64_t index[LB_BIND_LOOPS] = {0};
  for (;;) {
    run_iteration(part, s, b, index);
    int k = b->n_outer;
    while (k > 0 && ++index[k - 1] == b->outer[k - 1]) index[--k] = 0;
    if (k == 0) return;
  }
}

static void compare(const sample *s, uint32_t number) {
  int64_t total = lb_tensor_count(&s->y);
  for (int64_t i = 0; i < total; i++) {
    int64_t c = i % s->out_channels, p = i / s->out_channels;
    int64_t o[] = {p / s->out[1] % s->out[0], p % s->out[1]};
    int64_t n = p / s->out[1] / s->out[0];
    double want = expected(s, n, o, c),
           got = (double)*at(&s->y, n, o[0], o[1], c);
    if (want == got || (isnan(want) && isnan(got))) continue;
    if (fabs(want - got) <= 1e-4 * fabs(want)) continue;
    fail_msg("%s %u: [%lld,%lld,%lld,%lld] is %g, not %g",
             lb_op_infos[s->op].name, number, (long long)n, (long long)o[0],
             (long long)o[1], (long long)c, got, want);
  }
}

static lb_status run_other_zone(void *user, const lb_binding *zone) {
  sample *s = user;
  run_zone(s->part, s, zone);
  return LB_OK;
}

static void run_sample(lb_op op, uint32_t number) {
  sample s;
  lb_partitioning parts;
  lb_weights weights;
  lb_binding b;
  bool ok;
  sample_make(&s, op, number);
  must(lb_weights_init(&weights, lb_device_none()));
  must(lb_partitioning_init(&parts, s.graph, &(lb_partition_options){0},
                            &weights));
  const lb_partition *part = parts.of_node[s.node->id];
  assert_non_null(part);
  s.part = part;
  for (int64_t i = 0; i < lb_tensor_count(&s.y); i++)
    ((float *)s.y.data)[i] = NAN;
  must(lb_partition_bind(part, tensor_fn, &s, &b, &ok));
  assert_true(ok);
  run_zone(part, &s, &b);
  must(lb_partition_bind_zones(part, &b, run_other_zone, &s));
  compare(&s, number);
  lb_partitioning_fini(&parts);
  lb_weights_fini(&weights);
  sample_free(&s);
}

static void zones_compute_convolutions(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 400; i++) run_sample(LB_OP_Conv, i);
}

static bool is_planar(int64_t channels, int64_t dilation) {
  sample s = {.op = LB_OP_Conv, .n = 1, .channels = channels};
  s.out_channels = 4;
  s.groups = s.in[0] = s.out[0] = s.kernel[0] = 1;
  s.stride[0] = s.stride[1] = s.dilation[0] = 1;
  s.in[1] = 9, s.kernel[1] = 3, s.dilation[1] = dilation;
  s.out[1] = 9 - 2 * dilation;
  s.planar = true;
  make_tensors(&s);
  make_node(&s);
  lb_window_desc w;
  lb_window_describe(s.node, &w);
  sample_free(&s);
  return w.planar;
}

// Dilated taps are not contiguous: with channels first, only the reference
// kernel supports them.
static void dilated_taps_need_channels_last(void **state) {
  (void)state;
  assert_true(is_planar(3, 1));
  assert_false(is_planar(3, 2));
}

static void k2_interleaving_needs_channels_last(void **state) {
  (void)state;
  assert_true(is_planar(2, 1));  // K too short for K2-interleaving
  assert_false(is_planar(4, 1));
}

static void zones_compute_transposed_convolutions(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 200; i++) run_sample(LB_OP_ConvTranspose, i);
}

static void zones_compute_pools(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 200; i++) run_sample(LB_OP_MaxPool, i);
  for (uint32_t i = 0; i < 200; i++) run_sample(LB_OP_AveragePool, i);
}

// A planar feature map is read in pieces of its last axis, even with one
// channel.
static void strided_columns_are_not_bound(void **state) {
  (void)state;
  int single = 0;
  for (uint32_t i = 0; i < 400; i++) {
    sample s;
    lb_partitioning parts;
    lb_weights weights;
    lb_binding b;
    bool ok;
    sample_make(&s, LB_OP_Conv, i);
    must(lb_weights_init(&weights, lb_device_none()));
    must(lb_partitioning_init(&parts, s.graph, &(lb_partition_options){0},
                              &weights));
    const lb_partition *part = parts.of_node[s.node->id];
    if (part->window->planar && s.in[1] > 1) {
      s.x.strides[2] *= 2;
      must(lb_partition_bind(part, tensor_fn, &s, &b, &ok));
      assert_false(ok);
      single += s.channels == 1;
    }
    lb_partitioning_fini(&parts);
    lb_weights_fini(&weights);
    sample_free(&s);
  }
  assert_true(single > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(zones_compute_convolutions),
      cmocka_unit_test(strided_columns_are_not_bound),
      cmocka_unit_test(dilated_taps_need_channels_last),
      cmocka_unit_test(k2_interleaving_needs_channels_last),
      cmocka_unit_test(zones_compute_transposed_convolutions),
      cmocka_unit_test(zones_compute_pools),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
