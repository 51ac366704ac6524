// device/reference/recurrent.c -- LSTM, GRU, RNN, and Within, the mask of valid
// time steps.
//
// The three differ in the number of gates and in the computation of a time
// step; everything else is shared. The product of input and weights is one GEMM
// for all time steps of a direction; the product of state and recurrent weights
// is one GEMM per time step. A *cell* is the state of one direction: [batch,
// hidden]. Time steps beyond the length of a sequence leave its state unchanged
// and give zeros.
#include <math.h>
#include <string.h>
#include <strings.h>

#include "device/reference/elem.h"
#include "device/reference/gemm.h"
#include "device/reference/iter.h"

enum { X, W, R, B, LENGTHS, H0, C0, P };  // inputs; C0 and P for LSTM only
enum { Y, Y_H, Y_C };                     // outputs

typedef enum kind {
  KIND_RNN = 1,
  KIND_GRU = 3,
  KIND_LSTM = 4
} kind;  // number of gates

typedef double activation_fn(double x, double alpha, double beta);

typedef struct ref_activation {
  activation_fn *fn;
  double alpha, beta;
} ref_activation;

typedef struct ref_recurrent {
  kind kind;
  lb_dtype work;
  int64_t size;  // of an element
  int64_t steps, batch, inputs, hidden, gates;
  int directions;
  bool first_reversed;  // direction 0 runs backwards
  bool batch_first;     // layout 1
  bool linear_before_reset, input_forget;
  bool projected;  // x has been multiplied by w already
  double clip;     // infinity: none
  ref_activation act[2][3];
  const int64_t *lengths;  // or NULL
  lb_tensor x, w, r, b, p, h0,
      c0;                 // dense, in the work dtype; data may be NULL
  char *from_x;           // [steps * batch, gates * hidden]; projected: x
  int64_t x_row, x_dir;   // strides of its rows and directions, in elements
  char *from_h;           // [batch, gates * hidden]
  char *h, *c, *reset;    // cells; reset: r * h for GRU
  lb_tensor y, y_h, y_c;  // in the work dtype
} ref_recurrent;

// -- activations -------------------------------------------------------------

static double relu(double x, double a, double b) {
  (void)a, (void)b;
  return x < 0 ? 0 : x;
}
static double tanh_of(double x, double a, double b) {
  (void)a, (void)b;
  return tanh(x);
}
static double sigmoid(double x, double a, double b) {
  (void)a, (void)b;
  return 1 / (1 + exp(-x));
}
static double affine(double x, double a, double b) { return a * x + b; }
static double leaky(double x, double a, double b) {
  (void)b;
  return x >= 0 ? x : a * x;
}
static double thresholded(double x, double a, double b) {
  (void)b;
  return x >= a ? x : 0;
}
static double scaled_tanh(double x, double a, double b) {
  return a * tanh(b * x);
}
static double hard_sigmoid(double x, double a, double b) {
  double y = a * x + b;
  return y < 0 ? 0 : y > 1 ? 1 : y;
}
static double elu(double x, double a, double b) {
  (void)b;
  return x >= 0 ? x : a * expm1(x);
}
static double softsign(double x, double a, double b) {
  (void)a, (void)b;
  return x / (1 + fabs(x));
}
static double softplus(double x, double a, double b) {
  (void)a, (void)b;
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

typedef struct known_activation {
  const char *name;
  ref_activation fn;
  bool has_alpha,
      has_beta;  // uses the next element of activation_alpha, activation_beta
} known_activation;

static const known_activation known[] = {
    {"Relu", {relu, 0, 0}, false, false},
    {"Tanh", {tanh_of, 0, 0}, false, false},
    {"Sigmoid", {sigmoid, 0, 0}, false, false},
    {"Affine", {affine, 1, 0}, true, true},
    {"LeakyRelu", {leaky, 0.01, 0}, true, false},
    {"ThresholdedRelu", {thresholded, 1, 0}, true, false},
    {"ScaledTanh", {scaled_tanh, 1, 1}, true, true},
    {"HardSigmoid", {hard_sigmoid, 0.2, 0.5}, true, true},
    {"Elu", {elu, 1, 0}, true, false},
    {"Softsign", {softsign, 0, 0}, false, false},
    {"Softplus", {softplus, 0, 0}, false, false},
};

static const known_activation *find_activation(const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcasecmp(name, known[i].name)) return &known[i];
  return NULL;
}

static lb_status read_activations(const lb_reference_call *c,
                                  ref_recurrent *v) {
  static const char *const dflt[] = {"Sigmoid", "Tanh", "Tanh"};
  const lb_attr *names = lb_attr_find(c->node, "activations", LB_ATTR_STRINGS);
  uint32_t n_alpha, n_beta, alpha = 0, beta = 0;
  const float *alphas = lb_attr_floats(c->node, "activation_alpha", &n_alpha);
  const float *betas = lb_attr_floats(c->node, "activation_beta", &n_beta);
  int per_direction = v->kind == KIND_LSTM ? 3 : v->kind == KIND_GRU ? 2 : 1;
  if (names && names->n > 0 &&
      names->n != (uint32_t)(per_direction * v->directions))
    return lb_error(LB_INVALID, "%u activations, but %d are required", names->n,
                    per_direction * v->directions);
  for (int i = 0; i < per_direction * v->directions; i++) {
    const char *name = v->kind == KIND_RNN ? "Tanh" : dflt[i % per_direction];
    if (names && names->n > 0) name = names->strings[i];
    const known_activation *k = find_activation(name);
    if (!k) return lb_error(LB_INVALID, "activation '%s' is not known", name);
    ref_activation *a = &v->act[i / per_direction][i % per_direction];
    *a = k->fn;
    if (k->has_alpha && alpha < n_alpha) a->alpha = (double)alphas[alpha++];
    if (k->has_beta && beta < n_beta) a->beta = (double)betas[beta++];
  }
  return LB_OK;
}

// Gates are clipped; the cell state that is passed to the output is not.
static double activate(const ref_recurrent *v, const ref_activation *a,
                       double x) {
  x = x > v->clip ? v->clip : x < -v->clip ? -v->clip : x;
  return a->fn(x, a->alpha, a->beta);
}

// -- one time step of one batch item -----------------------------------------

// One time step of direction d for one batch item: gx and gh are the products
// with input and state.
#define STEPS(id, S, T, load, store, ...)                                      \
  static T bias_##id(const ref_recurrent *v, int d, int64_t at) {              \
    if (!v->b.data) return 0;                                                  \
    return ((const S *)v->b.data)[d * 2 * v->gates * v->hidden + at];          \
  }                                                                            \
  static T sum_##id(const ref_recurrent *v, int d, const S *gx, const S *gh,   \
                    int64_t at) {                                              \
    T sum = gx[at] + gh[at];                                                   \
    if (!v->b.data) return sum;                                                \
    return sum +                                                               \
           (bias_##id(v, d, at) + bias_##id(v, d, v->gates * v->hidden + at)); \
  }                                                                            \
  static T peephole_##id(const ref_recurrent *v, int d, int gate, int64_t i) { \
    if (!v->p.data) return 0;                                                  \
    return ((const S *)v->p.data)[(d * 3 + gate) * v->hidden + i];             \
  }                                                                            \
  static void lstm_##id(const ref_recurrent *v, int d, const S *gx,            \
                        const S *gh, S *h, S *c) {                             \
    const ref_activation *a = v->act[d];                                       \
    int64_t n = v->hidden;                                                     \
    for (int64_t i = 0; i < n; i++) {                                          \
      T si = sum_##id(v, d, gx, gh, i), so = sum_##id(v, d, gx, gh, n + i);    \
      T sf = sum_##id(v, d, gx, gh, 2 * n + i);                                \
      T sc = sum_##id(v, d, gx, gh, 3 * n + i);                                \
      if (v->p.data) {                                                         \
        si += peephole_##id(v, d, 0, i) * c[i];                                \
        sf += peephole_##id(v, d, 2, i) * c[i];                                \
      }                                                                        \
      T in = (T)activate(v, &a[0], (double)si);                                \
      T forget = v->input_forget ? 1 - in : (T)activate(v, &a[0], (double)sf); \
      T cell = forget * c[i] + in * (T)activate(v, &a[1], (double)sc);         \
      if (v->p.data) so += peephole_##id(v, d, 1, i) * cell;                   \
      T out = (T)activate(v, &a[0], (double)so);                               \
      c[i] = cell;                                                             \
      h[i] = out * (T)a[2].fn((double)cell, a[2].alpha, a[2].beta);            \
    }                                                                          \
  }                                                                            \
  static void rnn_##id(const ref_recurrent *v, int d, const S *gx,             \
                       const S *gh, S *h) {                                    \
    for (int64_t i = 0; i < v->hidden; i++)                                    \
      h[i] = (T)activate(v, &v->act[d][0], (double)sum_##id(v, d, gx, gh, i)); \
  }                                                                            \
  /* The update gate stays in gh, for gru_finish. */                           \
  static void gru_gates_##id(const ref_recurrent *v, int d, const S *gx,       \
                             S *gh, const S *h, S *reset) {                    \
    const ref_activation *a = v->act[d];                                       \
    int64_t n = v->hidden;                                                     \
    for (int64_t i = 0; i < n; i++) {                                          \
      T r = (T)activate(v, &a[0], (double)sum_##id(v, d, gx, gh, n + i));      \
      gh[i] = (T)activate(v, &a[0], (double)sum_##id(v, d, gx, gh, i));        \
      reset[i] = v->linear_before_reset                                        \
                     ? r * (gh[2 * n + i] + bias_##id(v, d, 5 * n + i))        \
                     : r * h[i];                                               \
    }                                                                          \
  }                                                                            \
  static void gru_finish_##id(const ref_recurrent *v, int d, const S *gx,      \
                              const S *gh, const S *reset, S *h) {             \
    int64_t n = v->hidden;                                                     \
    for (int64_t i = 0; i < n; i++) {                                          \
      T sum = gx[2 * n + i] + bias_##id(v, d, 2 * n + i);                      \
      if (v->linear_before_reset)                                              \
        sum += reset[i];                                                       \
      else                                                                     \
        sum += gh[2 * n + i] + bias_##id(v, d, 5 * n + i);                     \
      T z = gh[i], next = (T)activate(v, &v->act[d][1], (double)sum);          \
      h[i] = (1 - z) * next + z * h[i];                                        \
    }                                                                          \
  }
LB_WIDE_FLOATS(STEPS, )

// -- one direction -----------------------------------------------------------

static void keep_gemm(const void *user, int64_t i, lb_gemm *g) {
  (void)user, (void)i, (void)g;
}

// c[rows, n] = a[rows, k] * w[n, k]^T, where w starts at row `skip` of t.
static void gemm(lb_pool *pool, const ref_recurrent *v, const void *a,
                 int64_t rows, int64_t k, int64_t a_row, const lb_tensor *t,
                 int64_t skip, int64_t n, void *c, int64_t c_row) {
  lb_gemm_matrix w = {
      v->work,
      v->work,
      t->data ? (const char *)t->data + skip * k * v->size : NULL,
      1,
      k,
      NULL,
      0};
  lb_gemm g = {v->work, rows, n,    k, a, a_row, 1, lb_gemm_pack_matrix,
               &w,      c,    c_row};
  lb_gemm_batch(pool, &g, 1, keep_gemm, NULL);
}

static bool is_active(const ref_recurrent *v, int64_t n, int64_t t) {
  return !v->lengths || t < v->lengths[n];
}

// The time step that a sequence processes as its t-th; backward directions
// count from the end of the sequence.
static int64_t time_of(const ref_recurrent *v, bool backwards, int64_t n,
                       int64_t t) {
  int64_t length = v->lengths ? v->lengths[n] : v->steps;
  return backwards ? length - 1 - t : t;
}

static char *y_at(const ref_recurrent *v, int64_t t, int d, int64_t n) {
  int64_t row = v->batch_first ? (n * v->steps + t) * v->directions + d
                               : (t * v->directions + d) * v->batch + n;
  return (char *)v->y.data + row * v->hidden * v->size;
}

typedef struct rnn_row {  // one batch item at one time step
  const char *gx;
  char *gh, *h, *c, *reset;
} rnn_row;

static rnn_row row_of(const ref_recurrent *v, int d, bool backwards, int64_t n,
                      int64_t t) {
  int64_t time = time_of(v, backwards, n, t), cell = v->hidden * v->size;
  int64_t in = v->batch_first ? n * v->steps + time : time * v->batch + n;
  return (rnn_row){v->from_x + (in * v->x_row + d * v->x_dir) * v->size,
                   v->from_h + n * v->gates * cell, v->h + n * cell,
                   v->c + n * cell, v->reset + n * cell};
}

static void gru_gates(const ref_recurrent *v, int d, const rnn_row *r) {
  if (v->work == LB_F32)
    gru_gates_F32(v, d, (const void *)r->gx, (void *)r->gh, (void *)r->h,
                  (void *)r->reset);
  else
    gru_gates_F64(v, d, (const void *)r->gx, (void *)r->gh, (void *)r->h,
                  (void *)r->reset);
}

static void step_row_f32(const ref_recurrent *v, int d, const rnn_row *r) {
  const void *gx = r->gx, *gh = r->gh;
  switch (v->kind) {
    case KIND_LSTM: lstm_F32(v, d, gx, gh, (void *)r->h, (void *)r->c); break;
    case KIND_GRU:
      gru_finish_F32(v, d, gx, gh, (void *)r->reset, (void *)r->h);
      break;
    case KIND_RNN: rnn_F32(v, d, gx, gh, (void *)r->h); break;
  }
}

static void step_row_f64(const ref_recurrent *v, int d, const rnn_row *r) {
  const void *gx = r->gx, *gh = r->gh;
  switch (v->kind) {
    case KIND_LSTM: lstm_F64(v, d, gx, gh, (void *)r->h, (void *)r->c); break;
    case KIND_GRU:
      gru_finish_F64(v, d, gx, gh, (void *)r->reset, (void *)r->h);
      break;
    case KIND_RNN: rnn_F64(v, d, gx, gh, (void *)r->h); break;
  }
}

static void step(lb_pool *pool, const ref_recurrent *v, int d, bool backwards,
                 int64_t t) {
  int64_t n = v->hidden, wide = v->gates * n;
  gemm(pool, v, v->h, v->batch, n, n, &v->r, d * wide, wide, v->from_h, wide);
  if (v->kind == KIND_GRU) {
    for (int64_t i = 0; i < v->batch; i++) {
      rnn_row r = row_of(v, d, backwards, i, t);
      if (is_active(v, i, t)) gru_gates(v, d, &r);
    }
    if (!v->linear_before_reset)
      gemm(pool, v, v->reset, v->batch, n, n, &v->r, d * wide + 2 * n, n,
           v->from_h + 2 * n * v->size, wide);
  }
  for (int64_t i = 0; i < v->batch; i++) {
    rnn_row r = row_of(v, d, backwards, i, t);
    if (!is_active(v, i, t)) continue;
    if (v->work == LB_F32)
      step_row_f32(v, d, &r);
    else
      step_row_f64(v, d, &r);
    memcpy(y_at(v, time_of(v, backwards, i, t), d, i), r.h,
           (size_t)(n * v->size));
  }
}

// The address of a cell in [directions, batch, hidden], or batch first.
static char *state_at(const ref_recurrent *v, const lb_tensor *t, int d,
                      int64_t n) {
  int64_t at = v->batch_first ? n * v->directions + d : d * v->batch + n;
  return (char *)t->data + at * v->hidden * v->size;
}

static void load_cell(const ref_recurrent *v, const lb_tensor *t, int d,
                      char *cell) {
  size_t bytes = (size_t)(v->hidden * v->size);
  for (int64_t n = 0; n < v->batch; n++) {
    if (t->data)
      memcpy(cell + (size_t)n * bytes, state_at(v, t, d, n), bytes);
    else
      memset(cell + (size_t)n * bytes, 0, bytes);
  }
}

static void save_cell(const ref_recurrent *v, const lb_tensor *t, int d,
                      const char *cell) {
  size_t bytes = (size_t)(v->hidden * v->size);
  for (int64_t n = 0; t->data && n < v->batch; n++)
    memcpy(state_at(v, t, d, n), cell + (size_t)n * bytes, bytes);
}

static void direction(lb_pool *pool, const ref_recurrent *v, int d) {
  bool backwards = v->first_reversed || d == 1;
  int64_t wide = v->gates * v->hidden;
  if (!v->projected)
    gemm(pool, v, v->x.data, v->steps * v->batch, v->inputs, v->inputs, &v->w,
         d * wide, wide, v->from_x, wide);
  load_cell(v, &v->h0, d, v->h);
  load_cell(v, &v->c0, d, v->c);
  for (int64_t t = 0; t < v->steps; t++) step(pool, v, d, backwards, t);
  save_cell(v, &v->y_h, d, v->h);
  save_cell(v, &v->y_c, d, v->c);
}

// -- inputs and outputs ------------------------------------------------------

static bool input_fits(ref_recurrent *v, const lb_tensor *w,
                       const lb_tensor *r) {
  v->x_row = v->projected ? v->inputs : r->dims[1];
  v->x_dir = v->projected ? r->dims[1] : 0;
  if (v->projected)
    return v->inputs % v->directions == 0 &&
           v->inputs / v->directions == r->dims[1];
  return w->dims[0] == v->directions && w->dims[1] == r->dims[1] &&
         w->dims[2] == v->inputs;
}

static lb_status read_dims(lb_reference_call *c, ref_recurrent *v) {
  const lb_tensor *x = &c->in[X], *w = &c->in[W], *r = &c->in[R];
  const char *dir = lb_attr_str(c->node, "direction", "forward");
  v->directions = !strcasecmp(dir, "bidirectional") ? 2 : 1;
  v->first_reversed = !strcasecmp(dir, "reverse");
  if (v->directions == 1 && !v->first_reversed && strcasecmp(dir, "forward"))
    return lb_error(LB_INVALID, "direction '%s' is not known", dir);
  v->batch_first = lb_attr_int(c->node, "layout", 0) != 0;
  v->projected = lb_op_projected(c->node);
  if (x->rank != 3 || (w->rank != 3 && !v->projected) || r->rank != 3)
    return lb_error(LB_INVALID, "X, W and R must have rank 3");
  v->steps = x->dims[v->batch_first ? 1 : 0];
  v->batch = x->dims[v->batch_first ? 0 : 1];
  v->inputs = x->dims[2];
  v->hidden = r->dims[2];
  v->gates = (int64_t)v->kind;
  if (r->dims[0] != v->directions || r->dims[1] % v->gates != 0 ||
      r->dims[1] / v->gates != v->hidden || !input_fits(v, w, r))
    return lb_error(LB_INVALID,
                    "weights do not fit %d directions of %lld hidden elements "
                    "and %lld inputs",
                    v->directions, (long long)v->hidden, (long long)v->inputs);
  return LB_OK;
}

static lb_status read_input(lb_reference_call *c, const ref_recurrent *v, int i,
                            int64_t count, lb_tensor *out) {
  *out = (lb_tensor){0};
  if (!lb_reference_given(c, i)) return LB_OK;
  if (lb_tensor_count(&c->in[i]) != count)
    return lb_error(LB_INVALID, "input %d has %lld elements, not %lld", i,
                    (long long)lb_tensor_count(&c->in[i]), (long long)count);
  return lb_reference_dense(c, &c->in[i], v->work, out);
}

static lb_status read_lengths(lb_reference_call *c, int input, int64_t steps,
                              int64_t batch, const int64_t **out) {
  int64_t n;
  LB_TRY(lb_reference_ints(c, input, out, &n));
  if (*out && n != batch)
    return lb_error(LB_INVALID, "%lld sequence_lens for a batch of %lld",
                    (long long)n, (long long)batch);
  for (int64_t i = 0; i < n; i++)
    if ((*out)[i] < 0 || (*out)[i] > steps)
      return lb_error(
          LB_INVALID,
          "sequence_lens[%lld] is %lld, but there are %lld time steps",
          (long long)i, (long long)(*out)[i], (long long)steps);
  return LB_OK;
}

// Recomputes the lengths from the mask that Within computed.
static lb_status count_lengths(lb_reference_call *c, ref_recurrent *v) {
  lb_tensor mask, lengths;
  if (!lb_reference_given(c, LENGTHS)) return LB_OK;
  if (lb_tensor_count(&c->in[LENGTHS]) != v->steps * v->batch)
    return lb_error(LB_INVALID, "the mask has %lld elements, not %lld",
                    (long long)lb_tensor_count(&c->in[LENGTHS]),
                    (long long)(v->steps * v->batch));
  LB_TRY(lb_reference_dense(c, &c->in[LENGTHS], LB_I64, &mask));
  LB_TRY(lb_reference_temp(c, LB_I64, 1, &v->batch, &lengths));
  int64_t *sums = lengths.data;
  memset(sums, 0, lb_tensor_bytes(&lengths));
  for (int64_t i = 0; i < v->steps * v->batch; i++)
    sums[i % v->batch] += ((const int64_t *)mask.data)[i];
  v->lengths = sums;
  return LB_OK;
}

static lb_status read_inputs(lb_reference_call *c, ref_recurrent *v) {
  int64_t cells = v->directions * v->hidden, states = cells * v->batch;
  LB_TRY(lb_reference_dense(c, &c->in[X], v->work, &v->x));
  if (v->projected)
    v->from_x = v->x.data;
  else
    LB_TRY(lb_reference_dense(c, &c->in[W], v->work, &v->w));
  LB_TRY(lb_reference_dense(c, &c->in[R], v->work, &v->r));
  LB_TRY(read_input(c, v, B, 2 * v->gates * cells, &v->b));
  LB_TRY(read_input(c, v, H0, states, &v->h0));
  if (v->kind == KIND_LSTM) {
    LB_TRY(read_input(c, v, C0, states, &v->c0));
    LB_TRY(read_input(c, v, P, 3 * cells, &v->p));
  }
  return v->projected
             ? count_lengths(c, v)
             : read_lengths(c, LENGTHS, v->steps, v->batch, &v->lengths);
}

static lb_status alloc_buffers(lb_reference_call *c, ref_recurrent *v) {
  const int64_t y[] = {v->steps, v->directions, v->batch, v->hidden};
  const int64_t from_x[] = {v->steps, v->batch, v->gates, v->hidden};
  const int64_t from_h[] = {v->batch, v->gates, v->hidden};
  const int64_t cell[] = {v->batch, v->hidden};
  lb_tensor t;
  LB_TRY(lb_work_out_or_temp(c, Y, v->work, 4, y, &v->y));
  if (lb_reference_wanted(c, Y_H))
    LB_TRY(lb_work_out(c, Y_H, v->work, &v->y_h));
  if (v->kind == KIND_LSTM && lb_reference_wanted(c, Y_C))
    LB_TRY(lb_work_out(c, Y_C, v->work, &v->y_c));
  if (!v->projected) {
    LB_TRY(lb_reference_temp(c, v->work, 4, from_x, &t));
    v->from_x = t.data;
  }
  LB_TRY(lb_reference_temp(c, v->work, 3, from_h, &t));
  v->from_h = t.data;
  char **cells[] = {&v->h, &v->c, &v->reset};
  for (int i = 0; i < 3; i++) {
    LB_TRY(lb_reference_temp(c, v->work, 2, cell, &t));
    memset(t.data, 0, lb_tensor_bytes(&t));
    *cells[i] = t.data;
  }
  return LB_OK;
}

static lb_status run(lb_reference_call *c, kind k) {
  if (!lb_dtype_is_float(c->in[X].dtype))
    return lb_reference_bad_dtype(c, c->in[X].dtype);
  ref_recurrent v = {.kind = k, .work = lb_work_dtype(c->in[X].dtype)};
  v.size = (int64_t)lb_dtype_size(v.work);
  v.clip = (double)lb_attr_float(c->node, "clip", 0);
  if (!(v.clip > 0)) v.clip = INFINITY;
  v.linear_before_reset = lb_attr_int(c->node, "linear_before_reset", 0) != 0;
  v.input_forget = lb_attr_int(c->node, "input_forget", 0) != 0;
  LB_TRY(read_dims(c, &v));
  LB_TRY(read_activations(c, &v));
  // Before inputs: it checks that sizes do not overflow.
  LB_TRY(alloc_buffers(c, &v));
  LB_TRY(read_inputs(c, &v));
  if (v.batch == 0 || v.hidden == 0) return LB_OK;  // for any number of steps
  if (v.y.data) memset(v.y.data, 0, lb_tensor_bytes(&v.y));
  for (int d = 0; d < v.directions; d++) direction(c->pool, &v, d);
  if (v.y_h.data) LB_TRY(lb_work_done(c, Y_H, &v.y_h));
  if (v.y_c.data) LB_TRY(lb_work_done(c, Y_C, &v.y_c));
  return lb_work_done(c, Y, &v.y);
}

lb_status lb_reference_LSTM(lb_reference_call *c) { return run(c, KIND_LSTM); }
lb_status lb_reference_GRU(lb_reference_call *c) { return run(c, KIND_GRU); }
lb_status lb_reference_RNN(lb_reference_call *c) { return run(c, KIND_RNN); }

lb_status lb_reference_Within(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0];
  int64_t steps = y->dims[0], batch = y->dims[1];
  const int64_t *lengths;
  lb_tensor mask;
  LB_TRY(read_lengths(c, 0, steps, batch, &lengths));
  LB_TRY(lb_reference_temp(c, LB_I64, 2, y->dims, &mask));
  int64_t *m = mask.data;
  for (int64_t t = 0; t < steps; t++)
    for (int64_t n = 0; n < batch; n++) m[t * batch + n] = t < lengths[n];
  lb_convert(c->pool, &mask, y);
  return LB_OK;
}
