// device/reference/order.h -- a total order for elements of all dtypes.
//
// A key is an unsigned integer; keys compare as the elements do. -0 equals 0;
// NaN is greater than everything, and all NaNs are equal. ~key reverses the
// order.
#ifndef LB_DEVICE_REFERENCE_ORDER_H
#define LB_DEVICE_REFERENCE_ORDER_H

#include "device/reference/reference.h"

// Computes the keys of n elements, `step` bytes apart.
void lb_order_keys(lb_dtype t, int64_t n, const void *from, int64_t step,
                   uint64_t *out);

// Sorts n row numbers by the keys of the rows, `len` per row, compared
// lexicographically; stable. `temp` has space for n. Always O(n log n)
// comparisons.
void lb_order_sort(const uint64_t *keys, int64_t len, int64_t n, int64_t *rows,
                   int64_t *temp);

// A heap of n element numbers has the element with the largest key on top, and
// the largest number among equal keys. Sifts the element at `at` down to its
// position.
void lb_order_sink(const uint64_t *keys, int64_t *heap, int64_t n, int64_t at);

// Builds a heap from n numbers in any order.
void lb_order_heap(const uint64_t *keys, int64_t *heap, int64_t n);

// Returns whether rows a and b have the same keys.
bool lb_order_equal(const uint64_t *keys, int64_t len, int64_t a, int64_t b);

#endif
