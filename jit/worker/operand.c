// worker/operand.c -- Memory, layout and contents of operands for the check.
#include "worker/operand.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "kir/num.h"

enum {
  PAGE = 4096,
  MAX_COUNT = 1 << 22,  // elements of an operand
  GAP = 3,              // elements between rows
};

// -- layout ------------------------------------------------------------------

// Sets the number of elements from the first to the last; false if there are
// too many.
static bool set_count(lb_test_operand *o, int64_t rows, int64_t cols) {
  int64_t last = 0;
  o->count = 0;
  if (rows == 0 || cols == 0) return true;
  if (__builtin_mul_overflow(rows - 1, o->row_stride, &last) ||
      last > MAX_COUNT)
    return false;
  last += (cols - 1) * o->col_stride;
  o->count = (size_t)last + 1;
  return last < MAX_COUNT;
}

bool lb_test_operand_shape(lb_test_operand *o, lb_soperand s, int64_t rows,
                           int64_t cols) {
  o->dtype = s.dtype;
  o->row_stride = o->col_stride = INT64_MIN / 3;  // must not be used
  if (rows > MAX_COUNT || cols > MAX_COUNT) return false;
  switch (s.layout) {
    case LB_LAYOUT_BROADCAST: o->count = 1; return true;
    case LB_LAYOUT_PER_COL: o->count = (size_t)cols; return true;
    case LB_LAYOUT_PER_ROW:
      o->row_stride = 2;
      o->count = rows ? (size_t)(2 * rows - 1) : 0;
      return true;
    case LB_LAYOUT_STRIDED:
      o->row_stride = 2;
      o->col_stride = 2 * rows + 1;
      return set_count(o, rows, cols);
    default:
      o->row_stride = cols + GAP;
      o->col_stride = 1;
      return set_count(o, rows, cols);
  }
}

bool lb_test_operand_pack(lb_test_operand *o, lb_soperand s, int64_t k,
                          int64_t cols) {
  o->dtype = s.dtype;
  int64_t width = lb_panel_cols(s.layout);
  o->row_stride = k * width;
  o->col_stride = INT64_MIN / 3;
  if (k > MAX_COUNT || cols > MAX_COUNT) return false;
  int64_t panels = (cols + width - 1) / width, count;
  if (__builtin_mul_overflow(panels, o->row_stride, &count)) return false;
  o->count = (size_t)count;
  return count <= MAX_COUNT;
}

// -- memory ------------------------------------------------------------------

static lb_status map_pages(lb_test_operand *o, size_t size) {
  size_t all = size + 2 * PAGE;
  uint8_t *p = mmap(NULL, all, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return lb_oom();
  if (mprotect(p + PAGE, size, PROT_READ | PROT_WRITE) != 0) {
    munmap(p, all);
    return lb_oom();
  }
  o->base = p;
  o->mapped = size;
  return LB_OK;
}

lb_status lb_test_operand_map(lb_test_operand *o, bool low) {
  size_t bytes = lb_test_operand_bytes(o);
  size_t size = (bytes + PAGE) / PAGE * PAGE;  // at least one page
  if (size > o->mapped) {
    lb_test_operand_fini(o);
    LB_TRY(map_pages(o, size));
  }
  o->data = o->base + PAGE + (low ? 0 : o->mapped - bytes);
  return LB_OK;
}

void lb_test_operand_fini(lb_test_operand *o) {
  if (o->base) munmap(o->base, o->mapped + 2 * PAGE);
  o->base = NULL;
  o->mapped = 0;
}

// -- contents ----------------------------------------------------------------

uint64_t lb_random_next(lb_random *r) {
  uint64_t x = r->state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return r->state = x;
}

static double any_float(lb_random *r, bool special) {
  static const double specials[] = {0.0,       -0.0, 1.0,   -1.0,   INFINITY,
                                    -INFINITY, NAN,  1e-41, -3e-45, 70000.5};
  uint64_t x = lb_random_next(r);
  if (special && x % 4 == 0)
    return specials[(x >> 8) % (sizeof specials / sizeof *specials)];
  return (double)(x >> 11) * 0x1p-53 * 8.0 - 4.0;
}

uint64_t lb_random_bits(lb_random *r, lb_dtype t, bool special) {
  if (lb_dtype_is_float(t)) return lb_knum_bits(t, any_float(r, special));
  uint64_t x = lb_random_next(r);
  if (t == LB_BOOL) return x >> 20 & 1;
  uint64_t small = (x >> 8) % 19 - 9;
  unsigned bits = 8 * (unsigned)lb_dtype_size(t);
  uint64_t any = special && x % 2 ? x * 0x9e3779b97f4a7c15u : small;
  return any << (64 - bits) >> (64 - bits);
}

void lb_test_operand_fill(lb_test_operand *o, lb_random *r, bool special) {
  size_t size = lb_dtype_size(o->dtype);
  for (size_t i = 0; i < o->count; i++) {
    uint64_t bits = lb_random_bits(r, o->dtype, special);
    memcpy(o->data + i * size, &bits, size);
  }
}

// A row of a panel has one k, or several interleaved.
void lb_test_operand_pad(lb_test_operand *o, lb_soperand s, int64_t k,
                         int64_t cols) {
  size_t size = lb_dtype_size(o->dtype);
  int64_t width = lb_panel_cols(s.layout), used = cols % width;
  if (used == 0 || o->count == 0) return;
  uint8_t *panel = o->data + (size_t)(cols / width * o->row_stride) * size;
  int64_t rows = lb_panel_rows(s.layout);
  size_t panel_row = (size_t)(width * rows), from = (size_t)(used * rows);
  for (int64_t i = 0; i < k / rows; i++, panel += panel_row * size)
    memset(panel + from * size, 0, (panel_row - from) * size);
}
