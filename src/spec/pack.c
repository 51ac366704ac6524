// spec/pack.c -- matrices into panels of 16 columns.
#include "spec/pack.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "spec/spec.h"

static int64_t panels(const lb_matrix *b) {
  return b->cols / LB_PACK_COLS + (b->cols % LB_PACK_COLS != 0);
}

bool lb_pack_size(const lb_matrix *b, size_t *out) {
  size_t row = b->elem * LB_PACK_COLS;
  return b->rows >= 0 && b->cols >= 0 &&
         !__builtin_mul_overflow(row, (size_t)b->rows, &row) &&
         !__builtin_mul_overflow(row, (size_t)panels(b), out);
}

void lb_pack_flush(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    x[i] = fabsf(x[i]) < FLT_MIN ? copysignf(0, x[i]) : x[i];
}

// One row of a panel of n columns.
static void pack_row(const lb_matrix *b, const char *from, int64_t n,
                     char *to) {
  size_t size = b->elem;
  if (b->col_stride == 1) {
    memcpy(to, from, (size_t)n * size);
  } else {
    for (int64_t j = 0; j < n; j++)
      memcpy(to + (size_t)j * size, from + j * b->col_stride * (int64_t)size,
             size);
  }
  if (b->flush) lb_pack_flush((float *)to, n);
  memset(to + (size_t)n * size, 0, (size_t)(LB_PACK_COLS - n) * size);
}

void lb_pack_b(const lb_matrix *b, void *to) {
  char *at = to;
  int64_t size = (int64_t)b->elem;
  for (int64_t col = 0; col < b->cols; col += LB_PACK_COLS) {
    int64_t left = b->cols - col;
    int64_t n = left < LB_PACK_COLS ? left : LB_PACK_COLS;
    const char *from = (const char *)b->data + col * b->col_stride * size;
    for (int64_t k = 0; k < b->rows; k++) {
      pack_row(b, from + k * b->row_stride * size, n, at);
      at += LB_PACK_COLS * size;
    }
  }
}
