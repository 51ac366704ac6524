// device/reference/order.h -- one order for elements of all dtypes.
//
// A key is an unsigned number whose order is that of the elements. -0 is 0;
// NaN is above everything, and all NaNs are one. ~key reverses the order.
#ifndef LB_DEVICE_REFERENCE_ORDER_H
#define LB_DEVICE_REFERENCE_ORDER_H

#include "device/reference/reference.h"

// Keys of n elements, `step` bytes apart.
void lb_order_keys(lb_dtype t, int64_t n, const void *from, int64_t step,
                   uint64_t *out);

// Sorts n numbers of rows by the rows' keys, `len` a row, compared from the
// first on; stable. `temp` has room for n. O(n log n) comparisons always.
void lb_order_sort(const uint64_t *keys, int64_t len, int64_t n, int64_t *rows,
                   int64_t *temp);

// A heap of n numbers of elements has the one with the greatest key on top, of
// equal ones the greatest number. Puts the one at `at` where it belongs among
// those below it.
void lb_order_sink(const uint64_t *keys, int64_t *heap, int64_t n, int64_t at);

// Makes a heap of n numbers in any order.
void lb_order_heap(const uint64_t *keys, int64_t *heap, int64_t n);

// Same keys in both rows.
bool lb_order_equal(const uint64_t *keys, int64_t len, int64_t a, int64_t b);

#endif
