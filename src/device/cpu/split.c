// device/cpu/split.c -- decides how many parts a launch is worth, and where
// they begin.
#include "device/cpu/split.h"

#define ONE_THREAD_NS 5000  // shorter launches stay on the calling thread
#define MIN_PART_NS 2500    // minimum length of a part
#define MAX_PARTS 32  // of a launch, unless its loops have more iterations
// Minimum column band, so that no two bands share a cache line.
#define MIN_BAND_COLS 128
// Minimum row band of a matmul: each band reads all of its columns of B.
#define MATMUL_MIN_ROWS 24
#define ENOUGH_COL_BANDS 8  // with this many column bands, rows are not split
#define MAX_QUERIES 128
#define L1_ELEMENTS 8192        // elements that L1 holds
#define L1_MIN_COLS 32          // minimum column band for it
#define L2_ELEMENTS 100000      // elements of a feature map that L2 holds
#define L2_WEIGHT_BYTES 524288  // weights that stay in L2 beside a feature map
#define STRIP_COLS 64           // four cache lines per position
#define STRIP_ELEMENTS 5000     // read by one iteration of a strip
// Strips are used for feature maps with at least STRIP_MIN_COLS channels that
// fit in L2, and for windows of this height; the maximum limits the width too.
#define STRIP_MIN_COLS 192
#define STRIP_MAX_ELEMENTS 300000
#define STRIP_MIN_TAPS 5
#define STRIP_MAX_TAPS 7

// -- estimates ---------------------------------------------------------------

#define FLOPS_PER_NS 70.0
#define BYTES_PER_NS 16.0

static bool is_transcendental(lb_sop op) {
  return op >= LB_S_EXP && op <= LB_S_POW;
}

// The nodes of one element: one vector operation each, more for transcendental
// functions.
static double nodes_ns(const lb_spec *s) {
  double ns = 0;
  for (int i = 0; i < s->n_nodes; i++)
    if (lb_sop_infos[s->nodes[i].op].n_src)
      ns += is_transcendental(s->nodes[i].op) ? 0.5 : 0.03;
  return ns;
}

static double traffic_ns(const lb_spec *s, int first_in) {
  size_t bytes = 0;
  for (int i = first_in; i < s->n_in; i++)
    if (s->in[i].layout == LB_LAYOUT_FULL ||
        s->in[i].layout == LB_LAYOUT_STRIDED)
      bytes += lb_dtype_size((lb_dtype)s->in[i].dtype);
  for (int i = 0; i < s->n_out; i++)
    bytes += lb_dtype_size((lb_dtype)s->out[i].dtype);
  return (double)bytes / BYTES_PER_NS;
}

static double element_ns(const lb_spec *s) {
  return nodes_ns(s) + traffic_ns(s, lb_spec_factors(s));
}

static double iteration_ns(lb_form form, double ns_per_element,
                           const int64_t dims[LB_SDIMS]) {
  double rows = (double)dims[LB_DIM_ROWS], cols = (double)dims[LB_DIM_COLS];
  double taps = 1;
  if (form == LB_FORM_CONV || form == LB_FORM_WINDOW)
    taps = (double)dims[LB_DIM_TAPS_Y] * (double)dims[LB_DIM_TAPS_X];
  if (form == LB_FORM_MATMUL || form == LB_FORM_CONV) {
    double k = (double)dims[LB_DIM_K] * taps;
    double compute = 2 * rows * k * cols / FLOPS_PER_NS;
    double reads = k * cols * 4 / BYTES_PER_NS;
    return (compute > reads ? compute : reads) + rows * cols * ns_per_element;
  }
  if (form == LB_FORM_ATTENTION) {
    double k = (double)dims[LB_DIM_K], len = (double)dims[LB_DIM_KEYS];
    return rows * len * (2 * (k + cols) / FLOPS_PER_NS + 0.5 + ns_per_element);
  }
  if (form == LB_FORM_WINDOW) ns_per_element += taps * 2 / FLOPS_PER_NS;
  return rows * cols * ns_per_element;
}

double lb_split_estimate(const lb_spec *s, const int64_t dims[LB_SDIMS]) {
  return iteration_ns(s->form, element_ns(s), dims);
}

// -- bands -------------------------------------------------------------------

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int64_t lcm(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t r = x % y;
    x = y;
    y = r;
  }
  return a / x * b;
}

// Bands of a dim are multiples of this, so that the assumptions hold in each
// band and only the last one has a partial tile.
static int64_t basis_of(const lb_facts *f, lb_sdim dim) {
  if (lb_facts_get(f, LB_ASSUME_EQUAL, dim, -1) >= 0) return 0;
  return lcm(lb_facts_get(f, LB_ASSUME_MULTIPLE, dim, 1),
             lb_facts_get(f, LB_CHOOSE_TILE, dim, 1));
}

lb_split_basis lb_split_basis_of(const lb_spec *s, const lb_facts *f) {
  return (lb_split_basis){.form = s->form,
                          .ns_per_element = element_ns(s),
                          .rows = basis_of(f, LB_DIM_ROWS),
                          .cols = basis_of(f, LB_DIM_COLS)};
}

static int64_t unit_of(int64_t unit, int64_t size, int64_t at_least) {
  if (unit == 0) return size;
  return unit < at_least ? ceil_div(at_least, unit) * unit : unit;
}

// Splits `size` into about `want` bands of whole units.
static void split_dim(int64_t size, int64_t unit, int64_t want, int64_t *band,
                      int64_t *bands) {
  int64_t units = ceil_div(size, unit);
  int64_t band_units = ceil_div(units, want < 1 ? 1 : want);
  *band = band_units >= units ? size : band_units * unit;
  *bands = ceil_div(size, *band);
}

// Splits columns first, so that a thread reads its own share of B only.
static void split_matmul(const lb_split_basis *b, const int64_t *dims,
                         int64_t want, lb_split *out) {
  int64_t rows = dims[LB_DIM_ROWS], cols = dims[LB_DIM_COLS];
  int64_t unit = lcm(unit_of(b->cols, cols, 1), LB_PANEL_COLS);
  split_dim(cols, unit, want, &out->col_band, &out->col_bands);
  if (out->col_bands >= ENOUGH_COL_BANDS) return;
  split_dim(rows, unit_of(b->rows, rows, MATMUL_MIN_ROWS),
            ceil_div(want, out->col_bands), &out->row_band, &out->row_bands);
}

// Splits rows first; also columns where rows are few, unless they are reduced.
static void split_rows(const lb_split_basis *b, const int64_t *dims,
                       int64_t want, lb_split *out) {
  int64_t rows = dims[LB_DIM_ROWS], cols = dims[LB_DIM_COLS];
  split_dim(rows, unit_of(b->rows, rows, 1), want, &out->row_band,
            &out->row_bands);
  if (b->form == LB_FORM_ROW_REDUCE) return;
  split_dim(cols, unit_of(b->cols, cols, MIN_BAND_COLS),
            ceil_div(want, out->row_bands), &out->col_band, &out->col_bands);
}

// The number of columns for which L1 holds the inputs of one iteration of
// windows.
static int64_t l1_cols(const int64_t *dims) {
  int64_t window_elements =
      dims[LB_DIM_TAPS_Y] * (dims[LB_DIM_ROWS] + dims[LB_DIM_TAPS_X]);
  return L1_ELEMENTS / window_elements;
}

// A feature map that does not fit in L2, and one with long rows, is better read
// row by row: reading one cache line per position is slow.
static bool is_small_feature_map(lb_form form, const int64_t *dims,
                                 int64_t outer) {
  return form == LB_FORM_WINDOW && outer > 1 && dims[LB_DIM_TAPS_Y] > 1 &&
         outer * dims[LB_DIM_ROWS] * dims[LB_DIM_COLS] <= L2_ELEMENTS &&
         l1_cols(dims) >= L1_MIN_COLS;
}

// Windows of consecutive iterations overlap: columns are split so that the
// inputs of an iteration are still in L1 at the next one.
static void split_windows(const lb_split_basis *b, const int64_t *dims,
                          lb_split *out) {
  int64_t cols = dims[LB_DIM_COLS], unit = unit_of(b->cols, cols, 16);
  int64_t units = l1_cols(dims) / unit;
  split_dim(cols, unit, ceil_div(ceil_div(cols, unit), units < 1 ? 1 : units),
            &out->col_band, &out->col_bands);
  out->band_major = true;
}

// High windows read each row of a feature map as many times as they are high,
// always from L2 where rows are long. The feature map must stay in L2 from one
// strip to the next.
static bool is_wide_feature_map(lb_form form, const int64_t *dims,
                                int64_t outer) {
  return form == LB_FORM_WINDOW && outer > 1 &&
         dims[LB_DIM_COLS] >= STRIP_MIN_COLS &&
         outer * dims[LB_DIM_ROWS] * dims[LB_DIM_COLS] <= STRIP_MAX_ELEMENTS &&
         dims[LB_DIM_TAPS_Y] >= STRIP_MIN_TAPS &&
         dims[LB_DIM_TAPS_Y] <= STRIP_MAX_TAPS &&
         dims[LB_DIM_TAPS_X] <= STRIP_MAX_TAPS;
}

// Splits into strips of positions and columns; each strip runs through all
// iterations.
static void split_strips(const lb_split_basis *b, const int64_t *dims,
                         lb_split *out) {
  int64_t cols = dims[LB_DIM_COLS], rows = dims[LB_DIM_ROWS];
  int64_t cached =
      STRIP_ELEMENTS / STRIP_COLS / dims[LB_DIM_TAPS_Y] - dims[LB_DIM_TAPS_X];
  split_dim(cols, unit_of(b->cols, cols, STRIP_COLS), cols, &out->col_band,
            &out->col_bands);
  split_dim(rows, unit_of(b->rows, rows, 1), ceil_div(rows, cached),
            &out->row_band, &out->row_bands);
  out->band_major = true;
}

static double weight_bytes(const int64_t *dims) {
  return 4.0 * (double)dims[LB_DIM_COLS] * (double)dims[LB_DIM_K] *
         (double)dims[LB_DIM_TAPS_Y] * (double)dims[LB_DIM_TAPS_X];
}

// Each iteration of a convolution reads all weights; many weights do not stay
// in L2.
static bool weights_exceed_l2(lb_form form, const int64_t *dims,
                              int64_t outer) {
  return form == LB_FORM_CONV && outer > 1 &&
         weight_bytes(dims) > L2_WEIGHT_BYTES;
}

// Splits columns so that the weights of a band stay in L2 while it runs through
// all iterations.
static void split_weights(const lb_split_basis *b, const int64_t *dims,
                          lb_split *out) {
  int64_t cols = dims[LB_DIM_COLS];
  int64_t unit = lcm(unit_of(b->cols, cols, 1), LB_PANEL_COLS);
  int64_t bands = (int64_t)(weight_bytes(dims) / L2_WEIGHT_BYTES) + 1;
  split_dim(cols, unit, bands, &out->col_band, &out->col_bands);
  out->band_major = out->across_zones = true;
}

static void split_queries(const lb_split_basis *b, const int64_t *dims,
                          int64_t want, lb_split *out) {
  int64_t rows = dims[LB_DIM_ROWS];
  int64_t min_bands = ceil_div(rows, MAX_QUERIES);
  split_dim(rows, unit_of(b->rows, rows, 1),
            want > min_bands ? want : min_bands, &out->row_band,
            &out->row_bands);
}

static void split_bands(const lb_split_basis *b, const int64_t *dims,
                        int64_t want, lb_split *out) {
  if (b->form == LB_FORM_MATMUL || b->form == LB_FORM_CONV)
    split_matmul(b, dims, want, out);
  else
    split_rows(b, dims, want, out);
}

void lb_split_at(const lb_split_basis *b, const int64_t dims[LB_SDIMS],
                 int64_t outer, lb_split *out) {
  double ns = iteration_ns(b->form, b->ns_per_element, dims) * (double)outer;
  int64_t want = ns < ONE_THREAD_NS             ? 1
                 : ns > MIN_PART_NS * MAX_PARTS ? MAX_PARTS
                                                : (int64_t)(ns / MIN_PART_NS);
  bool cached = is_small_feature_map(b->form, dims, outer);
  out->outer = out->parts = out->grain = outer;
  out->row_band = dims[LB_DIM_ROWS];
  out->col_band = dims[LB_DIM_COLS];
  out->row_bands = out->col_bands = 1;
  out->band_major = out->across_zones = false;
  if (want == 1 && b->form != LB_FORM_ATTENTION && !cached) return;
  int64_t bands = ceil_div(want, outer);
  if (b->form == LB_FORM_ATTENTION)
    split_queries(b, dims, bands, out);
  else if (cached)
    split_windows(b, dims, out);
  else if (is_wide_feature_map(b->form, dims, outer))
    split_strips(b, dims, out);
  else if (weights_exceed_l2(b->form, dims, outer))
    split_weights(b, dims, out);
  else if (bands > 1)
    split_bands(b, dims, bands, out);
  out->parts = outer * out->col_bands * out->row_bands;
  out->grain = ceil_div(out->parts, want);
}

void lb_split_zone(const lb_split *first, int64_t rows, lb_split *out) {
  if (!first->across_zones) return;
  int64_t outer = out->outer;
  *out = *first;
  out->outer = outer;
  out->row_band = rows;
  out->parts = outer * out->col_bands;
  out->grain = out->parts;
}

lb_split lb_split_of(const lb_spec *s, const lb_facts *f,
                     const int64_t dims[LB_SDIMS], int64_t outer) {
  lb_split_basis b = lb_split_basis_of(s, f);
  lb_split out;
  lb_split_at(&b, dims, outer, &out);
  return out;
}
