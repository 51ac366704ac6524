// device/cpu/split.c -- what is worth a part of its own, and where parts begin.
#include "device/cpu/split.h"

#define ALONE_NS 5000  // what takes less stays on the caller
#define PART_NS 2500   // the least of a part
#define MAX_PARTS 32   // of a launch, where its loops do not ask for more
#define LINE_COLS 128  // of a band of columns, so that no two share a line
#define MIN_ROWS 24    // of a product's band: each reads all of b's band
#define ENOUGH_COLS 8  // bands of columns, so that rows stay whole
#define MAX_QUERIES 128
#define NEAR_COLS 8192        // elements that the first cache holds
#define LEAST_COLS 32         // of a band of them
#define SMALL_IMAGE 100000    // ... and the second
#define NEAR_BYTES 524288     // of weights that stay there, beside an image
#define STRIP_COLS 64         // four lines of each position
#define STRIP_ELEMENTS 5000   // that a turn of a strip reads
#define WIDE_COLS 192         // of an image that is worth strips,
#define MOST_ELEMENTS 300000  // ... all of which the second cache holds,
#define HIGH_LEN 5            // ... whose windows have so many lines
#define HIGHEST_LEN 7         // ... up to so many

// -- estimates ---------------------------------------------------------------

#define FLOPS_PER_NS 70.0
#define BYTES_PER_NS 16.0

static bool is_slow(lb_sop op) { return op >= LB_S_EXP && op <= LB_S_POW; }

// The nodes of one element: one operation of a vector each, more for functions.
static double nodes_ns(const lb_spec *s) {
  double ns = 0;
  for (int i = 0; i < s->n_nodes; i++)
    if (lb_sop_infos[s->nodes[i].op].n_src)
      ns += is_slow(s->nodes[i].op) ? 0.5 : 0.03;
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

static double each_ns(const lb_spec *s) {
  return nodes_ns(s) + traffic_ns(s, lb_spec_factors(s));
}

static double turn_ns(lb_form form, double each, const int64_t dims[LB_SDIMS]) {
  double rows = (double)dims[LB_DIM_ROWS], cols = (double)dims[LB_DIM_COLS];
  double taps = 1;
  if (form == LB_FORM_CONV || form == LB_FORM_WINDOW)
    taps = (double)dims[LB_DIM_LEN] * (double)dims[LB_DIM_STEPS];
  if (form == LB_FORM_MATMUL || form == LB_FORM_CONV) {
    double k = (double)dims[LB_DIM_K] * taps;
    double sums = 2 * rows * k * cols / FLOPS_PER_NS;
    double reads = k * cols * 4 / BYTES_PER_NS;
    return (sums > reads ? sums : reads) + rows * cols * each;
  }
  if (form == LB_FORM_ATTENTION) {
    double k = (double)dims[LB_DIM_K], len = (double)dims[LB_DIM_LEN];
    return rows * len * (2 * (k + cols) / FLOPS_PER_NS + 0.5 + each);
  }
  if (form == LB_FORM_WINDOW) each += taps * 2 / FLOPS_PER_NS;
  return rows * cols * each;
}

double lb_split_ns(const lb_spec *s, const int64_t dims[LB_SDIMS]) {
  return turn_ns(s->form, each_ns(s), dims);
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

// Bands of a dim are multiples of this: assumptions hold in each of them, and
// tiles are whole but in the last.
static int64_t basis_of(const lb_facts *f, lb_sdim dim) {
  if (lb_facts_get(f, LB_ASSUME_EQUAL, dim, -1) >= 0) return 0;
  return lcm(lb_facts_get(f, LB_ASSUME_MULTIPLE, dim, 1),
             lb_facts_get(f, LB_CHOOSE_TILE, dim, 1));
}

lb_split_basis lb_split_basis_of(const lb_spec *s, const lb_facts *f) {
  return (lb_split_basis){.form = s->form,
                          .each = each_ns(s),
                          .rows = basis_of(f, LB_DIM_ROWS),
                          .cols = basis_of(f, LB_DIM_COLS)};
}

static int64_t unit_of(int64_t unit, int64_t size, int64_t at_least) {
  if (unit == 0) return size;
  return unit < at_least ? ceil_div(at_least, unit) * unit : unit;
}

// About `want` bands of whole units.
static void cut(int64_t size, int64_t unit, int64_t want, int64_t *band,
                int64_t *bands) {
  int64_t units = ceil_div(size, unit);
  int64_t each = ceil_div(units, want < 1 ? 1 : want);
  *band = each >= units ? size : each * unit;
  *bands = ceil_div(size, *band);
}

// Columns first: a thread then reads its own share of b and no other.
static void cut_product(const lb_split_basis *b, const int64_t *dims,
                        int64_t want, lb_split *out) {
  int64_t rows = dims[LB_DIM_ROWS], cols = dims[LB_DIM_COLS];
  int64_t unit = lcm(unit_of(b->cols, cols, 1), LB_PANEL_COLS);
  cut(cols, unit, want, &out->col_band, &out->col_bands);
  if (out->col_bands >= ENOUGH_COLS) return;
  cut(rows, unit_of(b->rows, rows, MIN_ROWS), ceil_div(want, out->col_bands),
      &out->row_band, &out->row_bands);
}

// Rows first; columns where rows are few, unless they are reduced.
static void cut_rows(const lb_split_basis *b, const int64_t *dims, int64_t want,
                     lb_split *out) {
  int64_t rows = dims[LB_DIM_ROWS], cols = dims[LB_DIM_COLS];
  cut(rows, unit_of(b->rows, rows, 1), want, &out->row_band, &out->row_bands);
  if (b->form == LB_FORM_ROW_REDUCE) return;
  cut(cols, unit_of(b->cols, cols, LINE_COLS), ceil_div(want, out->row_bands),
      &out->col_band, &out->col_bands);
}

// Columns of a turn of windows that the first cache holds.
static int64_t near_cols(const int64_t *dims) {
  int64_t high = dims[LB_DIM_LEN] * (dims[LB_DIM_ROWS] + dims[LB_DIM_STEPS]);
  return NEAR_COLS / high;
}

// From further away an image comes in better row by row, and so do long rows: a
// line of each position at a time is slow.
static bool is_small_image(lb_form form, const int64_t *dims, int64_t outer) {
  return form == LB_FORM_WINDOW && outer > 1 && dims[LB_DIM_LEN] > 1 &&
         outer * dims[LB_DIM_ROWS] * dims[LB_DIM_COLS] <= SMALL_IMAGE &&
         near_cols(dims) >= LEAST_COLS;
}

// Windows of neighbouring turns overlap: columns are cut so that what a turn
// reads is still near at the next one.
static void cut_windows(const lb_split_basis *b, const int64_t *dims,
                        lb_split *out) {
  int64_t cols = dims[LB_DIM_COLS], unit = unit_of(b->cols, cols, 16);
  int64_t units = near_cols(dims) / unit;
  cut(cols, unit, ceil_div(ceil_div(cols, unit), units < 1 ? 1 : units),
      &out->col_band, &out->col_bands);
  out->cols_first = true;
}

// High windows read each line of an image as often as they are high, all of
// them from the second cache where rows are long. What a strip leaves of it
// must still be there for the next one.
static bool is_wide_image(lb_form form, const int64_t *dims, int64_t outer) {
  return form == LB_FORM_WINDOW && outer > 1 &&
         dims[LB_DIM_COLS] >= WIDE_COLS &&
         outer * dims[LB_DIM_ROWS] * dims[LB_DIM_COLS] <= MOST_ELEMENTS &&
         dims[LB_DIM_LEN] >= HIGH_LEN && dims[LB_DIM_LEN] <= HIGHEST_LEN &&
         dims[LB_DIM_STEPS] <= HIGHEST_LEN;
}

// Some positions and columns, through all turns.
static void cut_strips(const lb_split_basis *b, const int64_t *dims,
                       lb_split *out) {
  int64_t cols = dims[LB_DIM_COLS], rows = dims[LB_DIM_ROWS];
  int64_t near =
      STRIP_ELEMENTS / STRIP_COLS / dims[LB_DIM_LEN] - dims[LB_DIM_STEPS];
  cut(cols, unit_of(b->cols, cols, STRIP_COLS), cols, &out->col_band,
      &out->col_bands);
  cut(rows, unit_of(b->rows, rows, 1), ceil_div(rows, near), &out->row_band,
      &out->row_bands);
  out->cols_first = true;
}

static double weight_bytes(const int64_t *dims) {
  return 4.0 * (double)dims[LB_DIM_COLS] * (double)dims[LB_DIM_K] *
         (double)dims[LB_DIM_LEN] * (double)dims[LB_DIM_STEPS];
}

// Each turn of a convolution reads all weights: many do not stay near.
static bool is_heavy(lb_form form, const int64_t *dims, int64_t outer) {
  return form == LB_FORM_CONV && outer > 1 && weight_bytes(dims) > NEAR_BYTES;
}

// As many columns as have weights that stay, through all turns.
static void cut_weights(const lb_split_basis *b, const int64_t *dims,
                        lb_split *out) {
  int64_t cols = dims[LB_DIM_COLS];
  int64_t unit = lcm(unit_of(b->cols, cols, 1), LB_PANEL_COLS);
  int64_t bands = (int64_t)(weight_bytes(dims) / NEAR_BYTES) + 1;
  cut(cols, unit, bands, &out->col_band, &out->col_bands);
  out->cols_first = out->together = true;
}

static void cut_queries(const lb_split_basis *b, const int64_t *dims,
                        int64_t want, lb_split *out) {
  int64_t rows = dims[LB_DIM_ROWS];
  int64_t least = ceil_div(rows, MAX_QUERIES);
  cut(rows, unit_of(b->rows, rows, 1), want > least ? want : least,
      &out->row_band, &out->row_bands);
}

static void cut_bands(const lb_split_basis *b, const int64_t *dims,
                      int64_t want, lb_split *out) {
  if (b->form == LB_FORM_MATMUL || b->form == LB_FORM_CONV)
    cut_product(b, dims, want, out);
  else
    cut_rows(b, dims, want, out);
}

void lb_split_at(const lb_split_basis *b, const int64_t dims[LB_SDIMS],
                 int64_t outer, lb_split *out) {
  double ns = turn_ns(b->form, b->each, dims) * (double)outer;
  int64_t want = ns < ALONE_NS              ? 1
                 : ns > PART_NS * MAX_PARTS ? MAX_PARTS
                                            : (int64_t)(ns / PART_NS);
  bool near = is_small_image(b->form, dims, outer);
  out->outer = out->parts = out->grain = outer;
  out->row_band = dims[LB_DIM_ROWS];
  out->col_band = dims[LB_DIM_COLS];
  out->row_bands = out->col_bands = 1;
  out->cols_first = out->together = false;
  if (want == 1 && b->form != LB_FORM_ATTENTION && !near) return;
  int64_t bands = ceil_div(want, outer);
  if (b->form == LB_FORM_ATTENTION)
    cut_queries(b, dims, bands, out);
  else if (near)
    cut_windows(b, dims, out);
  else if (is_wide_image(b->form, dims, outer))
    cut_strips(b, dims, out);
  else if (is_heavy(b->form, dims, outer))
    cut_weights(b, dims, out);
  else if (bands > 1)
    cut_bands(b, dims, bands, out);
  out->parts = outer * out->col_bands * out->row_bands;
  out->grain = ceil_div(out->parts, want);
}

void lb_split_follow(const lb_split *first, int64_t rows, lb_split *out) {
  if (!first->together) return;
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
