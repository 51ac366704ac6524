// tools/case_draw.c -- draws random cases of every kind, biased towards sizes
// at the edges of vectors and tiles.
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "draw.h"

typedef struct text {
  char *at;
  size_t left;
  uint64_t state;
} text;

static void put(text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  int n = vsnprintf(t->at, t->left, format, ap);
  va_end(ap);
  if (n < 0 || (size_t)n >= t->left) n = (int)t->left - 1;
  t->at += n;
  t->left -= (size_t)n;
}

static int64_t draw_int(text *t, int64_t low, int64_t high) {
  return low + (int64_t)(draw_next(&t->state) % (uint64_t)(high - low + 1));
}

static bool chance(text *t, int percent) {
  return draw_int(t, 1, 100) <= percent;
}

// Draws a dim up to `most`, often a power of two or a neighbour of one.
static int64_t dim(text *t, int64_t most) {
  int64_t n = draw_int(t, 1, most);
  if (chance(t, 50)) n = ((int64_t)1 << draw_int(t, 0, 8)) + draw_int(t, -1, 1);
  if (chance(t, 1)) return 0;
  return n < 1 ? 1 : n > most ? most : n;
}

static void put_dim(text *t, bool first, int64_t n, bool runtime) {
  put(t, "%s%s%" PRId64, first ? "" : "x", runtime ? "?" : "", n);
}

static void put_dims(text *t, int rank, const int64_t *dims, bool runtime) {
  for (int i = 0; i < rank; i++)
    put_dim(t, i == 0, dims[i], runtime && chance(t, 50));
}

static const char *float_type(text *t) {
  static const char *const others[] = {"f64", "f16", "bf16"};
  return chance(t, 85) ? "f32" : others[draw_int(t, 0, 2)];
}

static int alg_of(text *t, int kind) {
  int n = 0, which;
  for (int i = 1; i < LIMBER_ALGS; i++) n += limber_alg_kind(i) == kind;
  which = (int)draw_int(t, 0, n - 1);
  for (int i = 1; i < LIMBER_ALGS; i++)
    if (limber_alg_kind(i) == kind && which-- == 0) return i;
  return 0;
}

// Continuous operators: a rounding error of the operand changes the result
// only slightly.
static const char *const smooth[] = {
    "relu",
    "gelu",
    "gelu_tanh",
    "sigmoid",
    "tanh",
    "silu",
    "elu:0.5",
    "hard_swish",
    "leaky_relu:0.1",
    "softplus",
    "abs",
    "mish",
    "clip:-1:1",
    "hard_sigmoid:0.2:0.5",
    "neg",
    "square",
    "linear:2:1",
};

static void put_post(text *t, const char *dtype, int rank,
                     const int64_t *dims) {
  static const char *const binary[] = {"add", "sub", "mul", "max", "min"};
  int n = (int)draw_int(t, -1, 3);
  for (int i = 0; i < n; i++) {
    put(t, "%s", i ? "," : " post=");
    if (chance(t, 50)) {
      put(t, "%s", smooth[draw_int(t, 0, sizeof smooth / sizeof *smooth - 1)]);
    } else if (chance(t, 30)) {
      put(t, chance(t, 50) ? "sum" : "sum:0.5");
    } else {
      int64_t own[LIMBER_MAX_RANK];
      int skip = (int)draw_int(t, 0, rank);
      for (int k = skip; k < rank; k++)
        own[k - skip] = chance(t, 60) ? dims[k] : 1;
      put(t, "%s:%s:", binary[draw_int(t, 0, 4)], dtype);
      put_dims(t, rank - skip, own, false);
      if (chance(t, 20)) put(t, ":const");
    }
  }
}

// -- the kinds ---------------------------------------------------------------

static void draw_matmul(text *t) {
  int64_t m = dim(t, 200), k = dim(t, 300), n = dim(t, 200), batch = 0;
  const char *dtype = float_type(t);
  int transpose = chance(t, 30) ? (int)draw_int(t, 1, 3) : 0;
  bool runtime = chance(t, 30), constant = chance(t, 60);
  if (chance(t, 25)) batch = draw_int(t, 1, 5);
  put(t, " in=%s:", dtype);
  if (batch) put(t, "%" PRId64 "x", batch);
  put_dim(t, true, transpose & 1 ? k : m, runtime);
  put_dim(t, false, transpose & 1 ? m : k, false);
  put(t, ",%s:", dtype);
  if (batch && !constant && chance(t, 50)) put(t, "%" PRId64 "x", batch);
  put_dim(t, true, transpose & 2 ? n : k, false);
  put_dim(t, false, transpose & 2 ? k : n, runtime && !constant);
  if (constant) put(t, ":const");
  if (chance(t, 40))
    put(t, ",%s:%" PRId64 "%s", dtype, n, constant ? ":const" : "");
  if (transpose) put(t, " transpose=%d", transpose);
  int64_t dims[3] = {batch, m, n};
  put_post(t, dtype, batch ? 3 : 2, dims + !batch);
}

// One spatial axis of a window; `size` is large enough for the window.
typedef struct window_axis {
  int64_t size, kernel, stride, dilation, before, after;
} window_axis;

static window_axis draw_axis(text *t, int64_t most) {
  window_axis a = {.kernel = chance(t, 40) ? 1 : draw_int(t, 1, 5),
                   .stride = 1};
  a.dilation = chance(t, 80) ? 1 : draw_int(t, 1, 3);
  if (chance(t, 40)) a.stride = draw_int(t, 1, 3);
  int64_t reach = (a.kernel - 1) * a.dilation;
  if (chance(t, 60)) a.before = draw_int(t, 0, reach / 2);
  if (chance(t, 60)) a.after = draw_int(t, 0, reach / 2);
  a.size = reach + draw_int(t, 1, most);
  return a;
}

static void put_window(text *t, const window_axis *a, int n) {
  put(t, " strides=");
  for (int i = 0; i < n; i++) put_dim(t, i == 0, a[i].stride, false);
  put(t, " dilations=");
  for (int i = 0; i < n; i++) put_dim(t, i == 0, a[i].dilation, false);
  put(t, " pads=");
  for (int i = 0; i < n; i++) put_dim(t, i == 0, a[i].before, false);
  for (int i = 0; i < n; i++) put_dim(t, false, a[i].after, false);
}

static int draw_spatial(text *t, window_axis *a) {
  int n_spatial = chance(t, 75) ? 2 : chance(t, 70) ? 1 : 3;
  for (int i = 0; i < n_spatial; i++)
    a[i] = draw_axis(t, n_spatial == 3 ? 5 : n_spatial == 2 ? 16 : 60);
  return n_spatial;
}

static void put_feature_map(text *t, const char *dtype, int64_t channels,
                            const window_axis *a, int n_spatial, bool runtime,
                            bool last) {
  put(t, "%s:", dtype);
  put_dim(t, true, chance(t, 70) ? 1 : draw_int(t, 1, 3),
          runtime && chance(t, 50));
  put_dim(t, false, channels, runtime && chance(t, 30));
  for (int i = 0; i < n_spatial; i++)
    put_dim(t, false, a[i].size, runtime && chance(t, 50));
  if (last) put(t, ":last");
}

static void draw_convolution(text *t) {
  window_axis a[3];
  int n_spatial = draw_spatial(t, a);
  bool transposed = chance(t, 15), depthwise = !transposed && chance(t, 25);
  int64_t groups = depthwise       ? dim(t, 40)
                   : chance(t, 80) ? 1
                                   : draw_int(t, 1, 3);
  if (!groups) groups = 1;
  int64_t each = depthwise ? 1 : draw_int(t, 1, 24),
          out = depthwise ? 1 : draw_int(t, 1, 40);
  bool constant = chance(t, 85), last = chance(t, 40);
  bool runtime = !constant && chance(t, 60);
  const char *dtype = chance(t, 95) ? "f32" : "f64";
  if (transposed) put(t, " alg=transposed");
  put(t, " in=");
  put_feature_map(t, dtype, each * groups, a, n_spatial, chance(t, 30), last);
  put(t, ",%s:", dtype);
  int64_t first = transposed ? each * groups : out * groups;
  put_dim(t, true, first, runtime && chance(t, 50));
  put_dim(t, false, transposed ? out : each, runtime && chance(t, 50));
  for (int i = 0; i < n_spatial; i++)
    put_dim(t, false, a[i].kernel, runtime && chance(t, 50));
  if (constant) put(t, ":const");
  if (chance(t, 50)) {
    put(t, ",%s:", dtype);
    put_dim(t, true, out * groups, runtime && chance(t, 50));
    if (constant) put(t, ":const");
  }
  put_window(t, a, n_spatial);
  if (groups > 1) put(t, " groups=%" PRId64, groups);
  int64_t dims[4] = {out * groups, 1, 1, 1};
  put_post(t, dtype, n_spatial + 1, dims);
}

static void draw_eltwise(text *t) {
  int64_t dims[4];
  int rank = (int)draw_int(t, 1, 4), alg = alg_of(t, LIMBER_ELTWISE);
  const char *dtype = float_type(t);
  for (int i = 0; i < rank; i++) dims[i] = dim(t, i == rank - 1 ? 300 : 9);
  put(t, " alg=%s in=%s:", limber_alg_name(alg), dtype);
  put_dims(t, rank, dims, chance(t, 30));
  if (alg == LIMBER_ALG_ELU || alg == LIMBER_ALG_LEAKY_RELU)
    put(t, " alpha=0.25");
  if (alg == LIMBER_ALG_CLIP) put(t, " alpha=-0.5 beta=0.75");
  if (alg == LIMBER_ALG_LINEAR) put(t, " alpha=1.5 beta=-0.5");
  if (alg == LIMBER_ALG_HARD_SIGMOID) put(t, " alpha=0.2 beta=0.5");
}

static void draw_binary(text *t) {
  static const char *const ints[] = {"i32", "i64", "i8", "u8"};
  int64_t a[4], b[4];
  int rank = (int)draw_int(t, 1, 4), alg = alg_of(t, LIMBER_BINARY);
  bool whole = alg != LIMBER_ALG_PRELU && alg != LIMBER_ALG_POW &&
               alg != LIMBER_ALG_DIV && chance(t, 15);
  const char *dtype = whole ? ints[draw_int(t, 0, 3)] : float_type(t);
  for (int i = 0; i < rank; i++) {
    a[i] = b[i] = dim(t, i == rank - 1 ? 200 : 9);
    if (chance(t, 20)) b[i] = 1;
    if (chance(t, 10) && alg != LIMBER_ALG_PRELU) a[i] = 1;
  }
  bool runtime = chance(t, 30);
  put(t, " alg=%s in=%s:", limber_alg_name(alg), dtype);
  put_dims(t, rank, a, runtime);
  put(t, ",%s:", dtype);
  int skip = (int)draw_int(t, 0, rank - 1);
  if (alg != LIMBER_ALG_PRELU && chance(t, 60)) skip = 0;
  put_dims(t, rank - skip, b + skip, runtime);
}

static void draw_reduction(text *t) {
  int64_t dims[4];
  int rank = (int)draw_int(t, 1, 4), n = 0;
  const char *dtype = float_type(t);
  for (int i = 0; i < rank; i++) dims[i] = dim(t, i == rank - 1 ? 300 : 9);
  for (int i = 0; i < rank; i++) dims[i] += dims[i] == 0;
  put(t, " alg=%s in=%s:", limber_alg_name(alg_of(t, LIMBER_REDUCTION)), dtype);
  put_dims(t, rank, dims, chance(t, 30));
  for (int i = 0; i < rank; i++)
    if (chance(t, 50)) put(t, n++ ? "x%d" : " axes=%d", i);
  if (chance(t, 50)) put(t, " keep_dims=1");
}

static void draw_softmax(text *t) {
  int64_t dims[4];
  int rank = (int)draw_int(t, 1, 4);
  for (int i = 0; i < rank; i++) dims[i] = dim(t, i == rank - 1 ? 300 : 9);
  if (chance(t, 20)) put(t, " alg=log_softmax");
  put(t, " in=%s:", float_type(t));
  put_dims(t, rank, dims, chance(t, 30));
  put(t, " axis=%d", chance(t, 70) ? rank - 1 : (int)draw_int(t, 0, rank - 1));
}

static void draw_norm(text *t) {
  int alg = alg_of(t, LIMBER_NORMALIZATION), rank = (int)draw_int(t, 2, 4);
  bool rows = alg == LIMBER_ALG_LAYER_NORM || alg == LIMBER_ALG_RMS_NORM;
  bool constant = chance(t, 60);
  int64_t dims[4], groups = 1;
  const char *dtype = chance(t, 90) ? "f32" : "f64";
  if (!rows && rank < 3) rank = 3;
  for (int i = 0; i < rank; i++) dims[i] = dim(t, i == rank - 1 ? 300 : 9);
  for (int i = 0; i < rank; i++) dims[i] += dims[i] == 0;
  if (alg == LIMBER_ALG_GROUP_NORM) dims[1] *= groups = draw_int(t, 1, 3);
  put(t, " alg=%s in=%s:", limber_alg_name(alg), dtype);
  put_dim(t, true, dims[0], chance(t, 30));
  for (int i = 1; i < rank; i++) put_dim(t, false, dims[i], false);
  int n = alg == LIMBER_ALG_RMS_NORM ? 1 : alg == LIMBER_ALG_BATCH_NORM ? 4 : 2;
  if (alg == LIMBER_ALG_LAYER_NORM && chance(t, 30)) n = 1;
  for (int i = 0; i < n; i++)
    put(t, ",%s:%" PRId64 "%s", dtype, rows ? dims[rank - 1] : dims[1],
        constant ? ":const" : "");
  if (rows) put(t, " axis=-1");
  if (groups > 1) put(t, " groups=%" PRId64, groups);
}

static void draw_pooling(text *t) {
  int alg = alg_of(t, LIMBER_POOLING);
  bool global = alg == LIMBER_ALG_POOL_GLOBAL_MAX ||
                alg == LIMBER_ALG_POOL_GLOBAL_AVERAGE;
  window_axis a[3];
  int n_spatial = draw_spatial(t, a);
  put(t, " alg=%s in=", limber_alg_name(alg));
  put_feature_map(t, chance(t, 90) ? "f32" : "f64", draw_int(t, 1, 40), a,
                  n_spatial, chance(t, 30), chance(t, 40));
  if (global) return;
  put(t, " kernel=");
  for (int i = 0; i < n_spatial; i++) put_dim(t, i == 0, a[i].kernel, false);
  put_window(t, a, n_spatial);
}

static void draw_reorder(text *t) {
  static const char *const types[] = {"f32", "f64", "f16", "bf16", "i8",
                                      "i32", "i64", "u8",  "bool"};
  int64_t dims[4];
  int rank = (int)draw_int(t, 1, 4), axes[4] = {0, 1, 2, 3};
  for (int i = 0; i < rank; i++) dims[i] = dim(t, 60);
  if (rank == 4) dims[0] = draw_int(t, 1, 3);
  put(t, " in=%s:", types[draw_int(t, 0, 8)]);
  put_dims(t, rank, dims, chance(t, 30));
  for (int i = rank - 1; i > 0; i--) {
    int k = (int)draw_int(t, 0, i), was = axes[i];
    axes[i] = axes[k];
    axes[k] = was;
  }
  if (chance(t, 80))
    for (int i = 0; i < rank; i++) put(t, i ? "x%d" : " axes=%d", axes[i]);
  if (chance(t, 40)) put(t, " out_dtype=%s", types[draw_int(t, 0, 8)]);
  if (rank >= 3 && chance(t, 30))
    put(t, " out_layout=%d", (int)draw_int(t, 1, 2));
}

static void draw_concat(text *t) {
  int64_t dims[4];
  int rank = (int)draw_int(t, 1, 4), along = (int)draw_int(t, 0, rank - 1);
  int n = (int)draw_int(t, 1, 5);
  const char *dtype = chance(t, 80) ? "f32" : chance(t, 50) ? "i64" : "u8";
  bool runtime = chance(t, 30);
  for (int i = 0; i < rank; i++) dims[i] = dim(t, 30);
  for (int i = 0; i < n; i++) {
    dims[along] = dim(t, 30);
    put(t, i ? ",%s:" : " in=%s:", dtype);
    for (int k = 0; k < rank; k++)
      put_dim(t, k == 0, dims[k], runtime && k == along);
  }
  put(t, " axis=%d", along);
}

static void draw_resampling(text *t) {
  static const char *const factors[] = {"2", "0.5", "1.5", "3", "1", "0.75"};
  window_axis a[3];
  int n_spatial = chance(t, 80) ? 2 : 1;
  for (int i = 0; i < n_spatial; i++)
    a[i] = (window_axis){.size = draw_int(t, 2, 20)};
  put(t, " alg=%s in=", limber_alg_name(alg_of(t, LIMBER_RESAMPLING)));
  put_feature_map(t, "f32", draw_int(t, 1, 20), a, n_spatial, chance(t, 30),
                  chance(t, 40));
  bool by_factor = chance(t, 50);
  put(t, by_factor ? " factors=" : " sizes=");
  for (int i = 0; i < n_spatial; i++) {
    if (by_factor) {
      put(t, "%s%s", i ? "x" : "", factors[draw_int(t, 0, 5)]);
    } else {
      put_dim(t, i == 0, draw_int(t, 1, 30), false);
    }
  }
}

static void draw_recurrent(text *t) {
  int alg = alg_of(t, LIMBER_RECURRENT), direction = (int)draw_int(t, 0, 2);
  int64_t gates = alg == LIMBER_ALG_LSTM ? 4 : alg == LIMBER_ALG_GRU ? 3 : 1;
  int64_t seq = draw_int(t, 1, 6), batch = draw_int(t, 1, 5),
          in = draw_int(t, 1, 20);
  int64_t units = draw_int(t, 1, 24), n_directions = direction == 2 ? 2 : 1;
  const char *constant = chance(t, 70) ? ":const" : "";
  bool bias = chance(t, 60), lengths = chance(t, 20), hidden = chance(t, 30);
  bool runtime = chance(t, 30);
  put(t, " alg=%s in=f32:", limber_alg_name(alg));
  put_dim(t, true, seq, runtime);
  put_dim(t, false, batch, runtime && chance(t, 50));
  put_dim(t, false, in, false);
  put(t, ",f32:%" PRId64 "x%" PRId64 "x%" PRId64 "%s", n_directions,
      gates * units, in, constant);
  put(t, ",f32:%" PRId64 "x%" PRId64 "x%" PRId64 "%s", n_directions,
      gates * units, units, constant);
  if (bias)
    put(t, ",f32:%" PRId64 "x%" PRId64 "%s", n_directions, 2 * gates * units,
        constant);
  if (!bias && (lengths || hidden)) put(t, ",-");
  if (lengths) put(t, ",i32:%" PRId64, batch);
  if (!lengths && hidden) put(t, ",-");
  if (hidden)
    put(t, ",f32:%" PRId64 "x%" PRId64 "x%" PRId64, n_directions, batch, units);
  if (hidden && alg == LIMBER_ALG_LSTM && chance(t, 60))
    put(t, ",f32:%" PRId64 "x%" PRId64 "x%" PRId64, n_directions, batch, units);
  if (direction) put(t, " direction=%d", direction);
  if (alg == LIMBER_ALG_GRU && chance(t, 50)) put(t, " reset_after=1");
}

// Keys and values have as many heads as the query, or one for several of its
// heads.
static void draw_attention(text *t) {
  int64_t batch = draw_int(t, 1, 3), kv = draw_int(t, 1, 3), times = 1;
  int64_t rows = dim(t, 40), keys = dim(t, 70), size = dim(t, 70);
  int64_t own = chance(t, 80) ? size : dim(t, 70);
  const char *dtype = chance(t, 90) ? "f32" : "f64";
  bool runtime = chance(t, 40), heads = runtime && chance(t, 30);
  if (chance(t, 20)) times = draw_int(t, 2, 3);
  keys += keys == 0;
  size += size == 0;
  put(t, " in=");
  const int64_t dims[3][4] = {{batch, kv * times, rows, size},
                              {batch, kv, keys, size},
                              {batch, kv, keys, own}};
  for (int i = 0; i < 3; i++) {
    put(t, "%s%s:", i ? "," : "", dtype);
    put_dim(t, true, dims[i][0], runtime);
    put_dim(t, false, dims[i][1], heads);
    put_dim(t, false, dims[i][2], runtime);
    put_dim(t, false, dims[i][3], false);
  }
  if (chance(t, 40)) {
    put(t, ",%s:", dtype);
    put_dim(t, true, chance(t, 50) ? 1 : batch, false);
    put_dim(t, false, chance(t, 50) ? 1 : kv * times, false);
    put_dim(t, false, chance(t, 50) ? 1 : rows, false);
    put_dim(t, false, keys, runtime);
  }
  if (chance(t, 30)) put(t, " alpha=0.25");
  if (chance(t, 30)) put(t, " causal=1");
}

static void (*const drawers[LIMBER_PRIMITIVE_KINDS])(text *) = {
    [LIMBER_MATMUL] = draw_matmul,
    [LIMBER_CONVOLUTION] = draw_convolution,
    [LIMBER_ELTWISE] = draw_eltwise,
    [LIMBER_BINARY] = draw_binary,
    [LIMBER_REDUCTION] = draw_reduction,
    [LIMBER_SOFTMAX] = draw_softmax,
    [LIMBER_NORMALIZATION] = draw_norm,
    [LIMBER_POOLING] = draw_pooling,
    [LIMBER_REORDER] = draw_reorder,
    [LIMBER_CONCAT] = draw_concat,
    [LIMBER_RESAMPLING] = draw_resampling,
    [LIMBER_RECURRENT] = draw_recurrent,
    [LIMBER_ATTENTION] = draw_attention,
};

void case_draw(uint64_t seed, uint64_t number, int kind, char *out,
               size_t cap) {
  text t = {out, cap, seed * 0x9e3779b97f4a7c15 + number};
  draw_next(&t.state);
  if (!kind) kind = (int)draw_int(&t, 1, LIMBER_PRIMITIVE_KINDS - 1);
  put(&t, "%s", limber_primitive_kind_name(kind));
  drawers[kind](&t);
}
