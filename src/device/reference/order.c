// device/reference/order.c -- see order.h.
#include "device/reference/order.h"

#include <math.h>
#include <string.h>

#include "device/reference/elem.h"

#define TOP_BIT ((uint64_t)1 << 63)

// The bits of positive floats compare as the floats do, and those of negative
// floats in reverse. -0 becomes 0 first.
static uint64_t float_key(double x) {
  uint64_t bits;
  if (isnan(x)) return UINT64_MAX;
  if (x == 0) x = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits & TOP_BIT ? ~bits : bits | TOP_BIT;
}

static uint64_t signed_key(int64_t x) { return (uint64_t)x ^ TOP_BIT; }
static uint64_t bool_key(uint8_t x) { return x != 0; }

typedef void keys_fn(int64_t n, const char *from, int64_t step, uint64_t *out);

#define KEYS(id, S, T, load, store, key)                           \
  static void keys_##id(int64_t n, const char *from, int64_t step, \
                        uint64_t *out) {                           \
    for (int64_t i = 0; i < n; i++)                                \
      out[i] = key(load(*(const S *)(from + i * step)));           \
  }
LB_FLOATS(KEYS, float_key)
LB_SIGNED(KEYS, signed_key)
LB_UNSIGNED(KEYS, LB_IDENTITY)
LB_BOOLS(KEYS, bool_key)

void lb_order_keys(lb_dtype t, int64_t n, const void *from, int64_t step,
                   uint64_t *out) {
  static keys_fn *const fns[LB_DTYPE_COUNT] = {
#define X(id, ...) [LB_##id] = keys_##id,
      LB_DTYPES(X)
#undef X
  };
  fns[t](n, from, step, out);
}

static int compare(const uint64_t *keys, int64_t len, int64_t a, int64_t b) {
  const uint64_t *x = keys + a * len, *y = keys + b * len;
  for (int64_t i = 0; i < len; i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

bool lb_order_equal(const uint64_t *keys, int64_t len, int64_t a, int64_t b) {
  return compare(keys, len, a, b) == 0;
}

// Merges from[begin, mid) and from[mid, end), both sorted, into to[begin, end).
static void merge(const uint64_t *keys, int64_t len, const int64_t *from,
                  int64_t begin, int64_t mid, int64_t end, int64_t *to) {
  int64_t a = begin, b = mid;
  for (int64_t i = begin; i < end; i++) {
    bool first =
        b == end || (a < mid && compare(keys, len, from[a], from[b]) <= 0);
    to[i] = first ? from[a++] : from[b++];
  }
}

void lb_order_sort(const uint64_t *keys, int64_t len, int64_t n, int64_t *rows,
                   int64_t *temp) {
  int64_t *from = rows, *to = temp;
  for (int64_t run = 1; run < n; run *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * run) {
      int64_t mid = n - begin < run ? n : begin + run;
      int64_t end = n - mid < run ? n : mid + run;
      merge(keys, len, from, begin, mid, end, to);
    }
    int64_t *last = from;
    from = to;
    to = last;
  }
  if (from != rows) memcpy(rows, from, (size_t)n * sizeof *rows);
}

static bool is_above(const uint64_t *keys, int64_t a, int64_t b) {
  return keys[a] != keys[b] ? keys[a] > keys[b] : a > b;
}

void lb_order_sink(const uint64_t *keys, int64_t *heap, int64_t n, int64_t at) {
  int64_t moved = heap[at];
  for (int64_t below; (below = 2 * at + 1) < n; at = below) {
    if (below + 1 < n && is_above(keys, heap[below + 1], heap[below])) below++;
    if (!is_above(keys, heap[below], moved)) break;
    heap[at] = heap[below];
  }
  heap[at] = moved;
}

void lb_order_heap(const uint64_t *keys, int64_t *heap, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;) lb_order_sink(keys, heap, n, i);
}
