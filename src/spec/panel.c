// spec/panel.c -- packs matrices into panels of columns.
#include "spec/panel.h"

#include <float.h>
#include <math.h>
#include <string.h>

// Min K at which K2-interleaving is faster although adding the even and odd
// sums takes time: if it halves the number of FMAs, if it needs three instead
// of four, and if it needs as many.
enum { MAX_COLS = 24, MIN_HALF = 8, MIN_THREE = 16, MIN_EQUAL = 32 };

bool lb_panel_prefers_k2(int64_t k, int64_t cols) {
  int64_t min_k = cols <= LB_PANEL_K2_COLS ? MIN_HALF
                  : cols <= LB_PANEL_COLS  ? MIN_EQUAL
                                           : MIN_THREE;
  return k % 2 == 0 && k >= min_k && cols <= MAX_COLS;
}

static int64_t panels(const lb_matrix *b) {
  int64_t width = lb_panel_cols((uint8_t)b->layout);
  return b->cols / width + (b->cols % width != 0);
}

bool lb_panel_size(const lb_matrix *b, size_t *out) {
  size_t row = b->elem * (size_t)lb_panel_cols((uint8_t)b->layout);
  return b->rows >= 0 && b->cols >= 0 &&
         !__builtin_mul_overflow(row, (size_t)b->rows, &row) &&
         !__builtin_mul_overflow(row, (size_t)panels(b), out);
}

void lb_panel_flush(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    x[i] = fabsf(x[i]) < FLT_MIN ? copysignf(0, x[i]) : x[i];
}

// Copies n columns of one row, `interleave` elements from each other in the
// destination.
static void move_row(const lb_matrix *b, const char *from, int64_t n,
                     int64_t interleave, char *to) {
  int64_t size = (int64_t)b->elem;
  if (b->col_stride == 1 && interleave == 1) {
    memcpy(to, from, (size_t)(n * size));
    return;
  }
  for (int64_t j = 0; j < n; j++)
    memcpy(to + j * interleave * size, from + j * b->col_stride * size,
           b->elem);
}

// Packs one line of a panel of n columns: one row, or several interleaved ones.
static void pack_line(const lb_matrix *b, const char *from, int64_t n,
                      char *to) {
  int64_t size = (int64_t)b->elem, rows = lb_panel_rows((uint8_t)b->layout);
  int64_t width = lb_panel_cols((uint8_t)b->layout);
  for (int64_t i = 0; i < rows; i++)
    move_row(b, from + i * b->row_stride * size, n, rows, to + i * size);
  if (b->flush) lb_panel_flush((float *)to, rows * n);
  memset(to + rows * n * size, 0, (size_t)(rows * (width - n) * size));
}

void lb_panel_pack(const lb_matrix *b, void *to) {
  char *at = to;
  int64_t size = (int64_t)b->elem;
  int64_t width = lb_panel_cols((uint8_t)b->layout);
  int64_t rows = lb_panel_rows((uint8_t)b->layout);
  for (int64_t col = 0; col < b->cols; col += width) {
    int64_t left = b->cols - col, n = left < width ? left : width;
    const char *from = (const char *)b->data + col * b->col_stride * size;
    for (int64_t k = 0; k < b->rows; k += rows) {
      pack_line(b, from + k * b->row_stride * size, n, at);
      at += rows * width * size;
    }
  }
}
