// device/reference/signal.c -- DFT, STFT, windows, MelWeightMatrix.
//
// Transforms are computed in double. A length whose prime factors are small
// uses a mixed-radix FFT; any other length uses a convolution whose size is a
// power of two (Bluestein), so that no length takes quadratic time.
#include <complex.h>
#include <math.h>
#include <string.h>

#include "device/reference/gemm.h"
#include "device/reference/iter.h"
#include "device/reference/window.h"

typedef double complex cplx;

enum { MAX_RADIX = 61 };

static const double PI = 3.14159265358979323846;

// -- the transform -----------------------------------------------------------

typedef struct fft {
  int64_t n;     // length
  int64_t size;  // of the mixed-radix transform: n, or a power of two
  cplx *roots;   // [size]: exp(-2 pi i k / size)
  cplx *chirp;   // [n]: exp(-pi i k^2 / n), or NULL
  cplx *filter;  // [size]: transform of the inverse chirp
  cplx *a, *b;   // [size]: scratch
} fft;

static int64_t smallest_factor(int64_t n) {
  for (int64_t p = 2; p * p <= n && p <= MAX_RADIX; p++)
    if (n % p == 0) return p;
  return n;
}

static bool has_small_factors(int64_t n) {
  while (n > 1) {
    int64_t p = smallest_factor(n);
    if (p > MAX_RADIX) return false;
    n /= p;
  }
  return true;
}

// a * b, without C's special handling of infinities.
static cplx times(cplx a, cplx b) {
  return creal(a) * creal(b) - cimag(a) * cimag(b) +
         I * (creal(a) * cimag(b) + cimag(a) * creal(b));
}

// The radix-2 butterfly, which does most of the work: the other square root of
// one is -1.
static void butterfly_2(const fft *f, int64_t m, int64_t step, cplx *out) {
  for (int64_t k = 0; k < m; k++) {
    cplx a = out[k], b = times(out[m + k], f->roots[k * step]);
    out[k] = a + b;
    out[m + k] = a - b;
  }
}

// out[k] = sum over j of in[j * stride] * root^(jk); n divides f->size.
static void mixed_radix(const fft *f, int64_t n, const cplx *in, int64_t stride,
                        cplx *out) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  int64_t p = smallest_factor(n), m = n / p, step = f->size / n;
  for (int64_t r = 0; r < p; r++)
    mixed_radix(f, m, in + r * stride, stride * p, out + r * m);
  if (p == 2) {
    butterfly_2(f, m, step, out);
    return;
  }
  for (int64_t k = 0; k < m; k++) {
    cplx t[MAX_RADIX];
    for (int64_t r = 0; r < p; r++)
      t[r] = times(out[r * m + k], f->roots[r * k * step]);
    for (int64_t q = 0; q < p; q++) {
      cplx sum = t[0];
      for (int64_t r = 1; r < p; r++)
        sum += times(t[r], f->roots[r * q % p * m * step]);
      out[q * m + k] = sum;
    }
  }
}

static cplx root_of_unity(double part) {
  return cos(2 * PI * part) - I * sin(2 * PI * part);
}

static lb_status fft_init(lb_reference_call *c, int64_t n, fft *f) {
  if (n < 1 || n > (int64_t)1 << 40)
    return lb_error(LB_INVALID, "a transform of length %lld is not supported",
                    (long long)n);
  *f = (fft){.n = n, .size = n};
  bool direct = has_small_factors(n);
  if (!direct)
    for (f->size = 1; f->size < 2 * n - 1;) f->size *= 2;
  size_t size = (size_t)f->size;
  f->roots = lb_arena_new(c->scratch, cplx, size);
  f->a = lb_arena_new(c->scratch, cplx, size);
  f->b = lb_arena_new(c->scratch, cplx, size);
  if (!f->roots || !f->a || !f->b) return lb_oom();
  for (int64_t k = 0; k < f->size; k++)
    f->roots[k] = root_of_unity((double)k / (double)f->size);
  if (direct) return LB_OK;
  f->chirp = lb_arena_new(c->scratch, cplx, (size_t)n);
  f->filter = lb_arena_new(c->scratch, cplx, size);
  if (!f->chirp || !f->filter) return lb_oom();
  for (int64_t k = 0, square = 0; k < n; k++) {
    f->chirp[k] = root_of_unity((double)square / (double)(2 * n));
    square = (square + 2 * k + 1) % (2 * n);  // (k + 1)^2
  }
  for (int64_t k = 0; k < n; k++) {
    f->a[k] = conj(f->chirp[k]);
    if (k > 0) f->a[f->size - k] = f->a[k];
  }
  mixed_radix(f, f->size, f->a, 1, f->filter);
  return LB_OK;
}

// Transforms x of length n in place. The inverse omits the factor 1/n.
static void fft_run(const fft *f, cplx *x, bool inverse) {
  int64_t n = f->n;
  if (inverse)
    for (int64_t k = 0; k < n; k++) x[k] = conj(x[k]);
  if (!f->chirp) {
    mixed_radix(f, n, x, 1, f->b);
    memcpy(x, f->b, (size_t)n * sizeof *x);
  } else {
    memset(f->a, 0, (size_t)f->size * sizeof *f->a);
    for (int64_t k = 0; k < n; k++) f->a[k] = x[k] * f->chirp[k];
    mixed_radix(f, f->size, f->a, 1, f->b);
    for (int64_t k = 0; k < f->size; k++)
      f->a[k] = conj(f->b[k] * f->filter[k]);
    mixed_radix(f, f->size, f->a, 1, f->b);
    for (int64_t k = 0; k < n; k++)
      x[k] = conj(f->b[k]) / (double)f->size * f->chirp[k];
  }
  if (inverse)
    for (int64_t k = 0; k < n; k++) x[k] = conj(x[k]);
}

// -- DFT ---------------------------------------------------------------------

// One line along the axis: elements `stride` apart, `parts` numbers each (real,
// or real and imaginary).
typedef struct line {
  lb_f64 *data;
  int64_t n, stride;
  int parts;
} line;

static void read_line(const line *l, int64_t n, cplx *x) {
  for (int64_t k = 0; k < n; k++) {
    const lb_f64 *p = l->data + k * l->stride;
    x[k] = k >= l->n ? 0 : l->parts == 2 ? p[0] + I * p[1] : p[0];
  }
}

static void write_line(const line *l, double scale, const cplx *x) {
  for (int64_t k = 0; k < l->n; k++) {
    lb_f64 *p = l->data + k * l->stride;
    p[0] = creal(x[k]) * scale;
    if (l->parts == 2) p[1] = cimag(x[k]) * scale;
  }
}

// Completes the spectrum of a real signal from its first half.
static void mirror(cplx *x, int64_t n) {
  x[0] = creal(x[0]);
  if (n % 2 == 0) x[n / 2] = creal(x[n / 2]);
  for (int64_t k = n / 2 + 1; k < n; k++) x[k] = conj(x[n - k]);
}

static lb_status dft_length(lb_reference_call *c, int64_t in, bool mirrored,
                            int64_t *out) {
  const int64_t *given;
  int64_t n;
  LB_TRY(lb_reference_ints(c, 1, &given, &n));
  *out = given && n > 0 ? given[0] : mirrored ? 2 * (in - 1) : in;
  return LB_OK;
}

lb_status lb_reference_DFT(lb_reference_call *c) {
  const lb_tensor *in = &c->in[0], *out = &c->out[0];
  bool inverse = lb_attr_int(c->node, "inverse", 0) != 0;
  bool mirrored = inverse && lb_attr_int(c->node, "onesided", 0) != 0;
  const int64_t *given;
  int axis, last = in->rank - 1;
  int64_t n;
  if (!lb_dtype_is_float(in->dtype))
    return lb_reference_bad_dtype(c, in->dtype);
  LB_TRY(lb_reference_ints(c, 2, &given, &n));
  LB_TRY(lb_reference_axis(c, given && n > 0 ? given[0] : -2, in->rank, &axis));
  if (axis == last || in->dims[last] < 1 || in->dims[last] > 2 ||
      out->dims[last] < 1 || out->dims[last] > 2)
    return lb_error(LB_INVALID,
                    "the last axis must hold 1 or 2 numbers and "
                    "cannot be transformed");
  if (lb_tensor_count(out) == 0) return LB_OK;
  LB_TRY(dft_length(c, in->dims[axis], mirrored, &n));
  if (out->dims[axis] > n)
    return lb_error(LB_INVALID, "%lld outputs of a transform of length %lld",
                    (long long)out->dims[axis], (long long)n);
  fft f = {0};
  lb_tensor x, y;
  LB_TRY(fft_init(c, n, &f));
  LB_TRY(lb_reference_dense(c, in, LB_F64, &x));
  LB_TRY(lb_work_out(c, 0, LB_F64, &y));
  if (!x.data) {  // no elements: the signal is all padding
    memset(y.data, 0, lb_tensor_bytes(&y));
    return lb_work_done(c, 0, &y);
  }
  cplx *buffer = lb_arena_new(c->scratch, cplx, (size_t)n);
  if (!buffer) return lb_oom();
  line from = {x.data, in->dims[axis], x.strides[axis], (int)in->dims[last]};
  line to = {y.data, out->dims[axis], y.strides[axis], (int)out->dims[last]};
  int64_t inner = lb_reference_product(last - axis - 1, in->dims + axis + 1);
  int64_t lines = lb_reference_product(axis, in->dims) * inner;
  for (int64_t i = 0; i < lines; i++) {
    from.data = (lb_f64 *)x.data + i / inner * inner * from.n * from.parts +
                i % inner * from.parts;
    to.data = (lb_f64 *)y.data + i / inner * inner * to.n * to.parts +
              i % inner * to.parts;
    read_line(&from, n, buffer);
    if (mirrored) mirror(buffer, n);
    fft_run(&f, buffer, inverse);
    write_line(&to, inverse ? 1 / (double)n : 1, buffer);
  }
  return lb_work_done(c, 0, &y);
}

// -- STFT --------------------------------------------------------------------

typedef struct stft {
  int64_t length, step, frames, bins, parts;
  const lb_f64 *window;  // or NULL
} stft;

static lb_status stft_init(lb_reference_call *c, stft *s, lb_tensor *window) {
  const lb_tensor *x = &c->in[0], *out = &c->out[0];
  const int64_t *step, *length;
  int64_t n_step, n_length;
  LB_TRY(lb_reference_ints(c, 1, &step, &n_step));
  LB_TRY(lb_reference_ints(c, 3, &length, &n_length));
  int64_t parts = x->rank == 2 ? 1 : x->rank == 3 ? x->dims[2] : 0;
  if (parts < 1 || parts > 2 || out->rank != 4 || n_step < 1)
    return lb_error(LB_INVALID,
                    "the signal must be [batch, length] or "
                    "[batch, length, 1 or 2]");
  *s = (stft){.length = x->dims[1],
              .step = step[0],
              .frames = out->dims[1],
              .bins = out->dims[2],
              .parts = parts};
  if (lb_reference_given(c, 2)) {
    LB_TRY(lb_reference_dense(c, &c->in[2], LB_F64, window));
    s->window = window->data;
    s->length = lb_tensor_count(window);
  }
  if (length && n_length > 0) {
    if (s->window && length[0] != s->length)
      return lb_error(LB_INVALID,
                      "the window has %lld elements, but frames have %lld",
                      (long long)s->length, (long long)length[0]);
    s->length = length[0];
  }
  int64_t end;
  if (s->step < 1 || s->length < 1 || s->bins > s->length ||
      __builtin_mul_overflow(s->frames - 1, s->step, &end) ||
      __builtin_add_overflow(end, s->length, &end) ||
      (s->frames > 0 && end > x->dims[1]))
    return lb_error(
        LB_INVALID,
        "%lld frames of length %lld, %lld apart, do not fit a signal "
        "of length %lld",
        (long long)s->frames, (long long)s->length, (long long)s->step,
        (long long)x->dims[1]);
  return LB_OK;
}

lb_status lb_reference_STFT(lb_reference_call *c) {
  if (!lb_dtype_is_float(c->in[0].dtype))
    return lb_reference_bad_dtype(c, c->in[0].dtype);
  stft s = {0};
  fft f = {0};
  lb_tensor x, y, window = {0};
  if (lb_tensor_count(&c->out[0]) == 0) return LB_OK;
  LB_TRY(stft_init(c, &s, &window));
  LB_TRY(fft_init(c, s.length, &f));
  LB_TRY(lb_reference_dense(c, &c->in[0], LB_F64, &x));
  LB_TRY(lb_work_out(c, 0, LB_F64, &y));
  cplx *buffer = lb_arena_new(c->scratch, cplx, (size_t)s.length);
  if (!buffer) return lb_oom();
  int64_t signal = x.dims[1] * s.parts;
  for (int64_t i = 0; i < x.dims[0] * s.frames; i++) {
    line from = {(lb_f64 *)x.data + i / s.frames * signal +
                     i % s.frames * s.step * s.parts,
                 s.length, s.parts, (int)s.parts};
    line to = {(lb_f64 *)y.data + i * s.bins * 2, s.bins, 2, 2};
    read_line(&from, s.length, buffer);
    for (int64_t k = 0; s.window && k < s.length; k++) buffer[k] *= s.window[k];
    fft_run(&f, buffer, false);
    write_line(&to, 1, buffer);
  }
  return lb_work_done(c, 0, &y);
}

// -- windows -----------------------------------------------------------------

// a - b cos(x) + d cos(2x), for x from 0 to 2 pi.
static lb_status cosines(lb_reference_call *c, double a, double b, double d) {
  lb_tensor y;
  LB_TRY(lb_work_out(c, 0, LB_F64, &y));
  int64_t n = lb_tensor_count(&y);
  bool periodic = lb_attr_int(c->node, "periodic", 1) != 0;
  double length = (double)(periodic ? n : n - 1);
  for (int64_t i = 0; i < n; i++) {
    double x = length > 0 ? 2 * PI * (double)i / length : PI;
    // In this order of operations the middle of a Blackman window is exactly 1.
    ((lb_f64 *)y.data)[i] = a + d * cos(2 * x) - b * cos(x);
  }
  return lb_work_done(c, 0, &y);
}

lb_status lb_reference_BlackmanWindow(lb_reference_call *c) {
  return cosines(c, 0.42, 0.5, 0.08);
}

lb_status lb_reference_HammingWindow(lb_reference_call *c) {
  return cosines(c, 25.0 / 46, 21.0 / 46, 0);
}

lb_status lb_reference_HannWindow(lb_reference_call *c) {
  return cosines(c, 0.5, 0.5, 0);
}

// -- MelWeightMatrix ---------------------------------------------------------

static double to_mel(double hertz) { return 2595 * log10(1 + hertz / 700); }
static double to_hertz(double mel) { return 700 * (pow(10, mel / 2595) - 1); }

// One triangle: rises from bin lo to mid, falls to hi.
static void triangle(lb_f64 *column, int64_t bins, int64_t stride, int64_t lo,
                     int64_t mid, int64_t hi) {
  for (int64_t j = 0; j < bins; j++) {
    double v = 0;
    if (lo == mid && j == mid)
      v = 1;
    else if (lo != mid && j >= lo && j <= mid)
      v = (double)(j - lo) / (double)(mid - lo);
    if (hi > mid && j >= mid && j < hi)
      v = (double)(hi - j) / (double)(hi - mid);
    column[j * stride] = v;
  }
}

lb_status lb_reference_MelWeightMatrix(lb_reference_call *c) {
  double length, rate, low, high;
  LB_TRY(lb_reference_scalar(c, 1, 0, &length));
  LB_TRY(lb_reference_scalar(c, 2, 1, &rate));
  LB_TRY(lb_reference_scalar(c, 3, 0, &low));
  LB_TRY(lb_reference_scalar(c, 4, 0, &high));
  lb_tensor y;
  LB_TRY(lb_work_out(c, 0, LB_F64, &y));
  int64_t bins = y.dims[0], bands = y.dims[1], edges[3] = {0};
  double from = to_mel(low), step = (to_mel(high) - from) / (double)(bands + 2);
  for (int64_t i = 0; i < bands + 2 && lb_tensor_count(&y) > 0; i++) {
    double hertz = to_hertz(from + (double)i * step);
    double bin = floor((length + 1) * hertz / rate);
    if (!(bin >= 0 && bin < (double)bins))
      return lb_error(LB_INVALID,
                      "an edge of %g Hz is in bin %g, but there are %lld bins",
                      hertz, bin, (long long)bins);
    edges[0] = edges[1], edges[1] = edges[2], edges[2] = (int64_t)bin;
    if (i >= 2)
      triangle((lb_f64 *)y.data + i - 2, bins, bands, edges[0], edges[1],
               edges[2]);
  }
  return lb_work_done(c, 0, &y);
}
