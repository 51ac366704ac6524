// base/tensor.c -- views: counting, printing, copying.
#include "base/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// The strides of an empty tensor are never used, so overflow is harmless there;
// for others, checked dims do not overflow.
void lb_tensor_dense(lb_tensor *t) {
  int64_t stride = 1;
  for (int i = t->rank - 1; i >= 0; i--) {
    t->strides[i] = stride;
    int64_t dim = t->dims[i] > 0 ? t->dims[i] : 1;
    (void)__builtin_mul_overflow(stride, dim, &stride);
  }
}

bool lb_tensor_is_dense(const lb_tensor *t) {
  int64_t stride = 1;
  bool dense = true;
  for (int i = t->rank - 1; i >= 0; i--) {
    if (t->dims[i] == 0) return true;
    if (t->dims[i] != 1 && t->strides[i] != stride) dense = false;
    (void)__builtin_mul_overflow(stride, t->dims[i], &stride);
  }
  return dense;
}

int64_t lb_tensor_count(const lb_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->rank; i++)
    (void)__builtin_mul_overflow(count, t->dims[i], &count);
  return count;
}

size_t lb_tensor_bytes(const lb_tensor *t) {
  return (size_t)lb_tensor_count(t) * lb_dtype_size(t->dtype);
}

lb_status lb_dims_count(int rank, const int64_t *dims, int64_t *out) {
  char text[160];
  int64_t count = 1;
  bool empty = false, fits = true;
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 0)
      return lb_error(LB_INVALID, "dims %s: dim %d is negative",
                      lb_dims_print(rank, dims, text, sizeof text), i);
    if (dims[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(count, dims[i], &count))
      fits = false;
  }
  if (!fits || count > LB_MAX_COUNT)
    return lb_error(LB_INVALID, "dims %s: too many elements to address",
                    lb_dims_print(rank, dims, text, sizeof text));
  *out = empty ? 0 : count;
  return LB_OK;
}

lb_status lb_tensor_reach(const lb_tensor *t, size_t *bytes, size_t *before) {
  int64_t size = (int64_t)lb_dtype_size(t->dtype), low = 0, high = size;
  bool fits = true;
  *bytes = *before = 0;
  if (lb_tensor_count(t) == 0) return LB_OK;
  for (int i = 0; i < t->rank; i++) {
    int64_t span;
    if (t->dims[i] == 1) continue;
    fits &= !__builtin_mul_overflow(t->dims[i] - 1, t->strides[i], &span) &&
            !__builtin_mul_overflow(span, size, &span) && span != INT64_MIN;
    if (!fits) break;
    int64_t *end = span < 0 ? &low : &high;
    fits = !__builtin_add_overflow(*end, span, end);
  }
  char dims[160], strides[300];
  if (!fits || __builtin_sub_overflow(high, low, &size))
    return lb_error(
        LB_INVALID, "dims %s with strides %s: too far apart to address",
        lb_dims_print(t->rank, t->dims, dims, sizeof dims),
        lb_dims_print(t->rank, t->strides, strides, sizeof strides));
  *bytes = (size_t)size;
  *before = (size_t)-low;
  return LB_OK;
}

// The axis with the smallest stride among those not done yet, or -1.
static int next_axis(const lb_tensor *t, const bool *done) {
  int best = -1;
  for (int i = 0; i < t->rank; i++)
    if (!done[i] && t->dims[i] > 1 &&
        (best < 0 || t->strides[i] < t->strides[best]))
      best = i;
  return best;
}

bool lb_tensor_is_nonoverlapping(const lb_tensor *t) {
  bool done[LB_MAX_RANK] = {false};
  int64_t reach = 1;  // extent of the axes so far, in elements
  if (lb_tensor_count(t) == 0) return true;
  for (int i; (i = next_axis(t, done)) >= 0; done[i] = true) {
    int64_t span;
    if (t->strides[i] < reach ||
        __builtin_mul_overflow(t->dims[i] - 1, t->strides[i], &span) ||
        __builtin_add_overflow(reach, span, &reach))
      return false;
  }
  return true;
}

char *lb_dims_print(int rank, const int64_t *dims, char *buf, size_t cap) {
  size_t len = 0;
  buf[0] = '\0';
  for (int i = 0; i < rank && len < cap; i++) {
    int n =
        snprintf(buf + len, cap - len, "%s%" PRId64, i ? "," : "[", dims[i]);
    if (n > 0) len += (size_t)n;
  }
  if (len < cap) snprintf(buf + len, cap - len, rank > 0 ? "]" : "[]");
  return buf;
}

// One loop of a copy; strides in bytes.
typedef struct copy_loop {
  int64_t dim, from, to;
} copy_loop;

// True if the end of `inner` is the next position of `outer` in both views, so
// that the two can be merged to one longer loop.
static bool loops_join(const copy_loop *outer, const copy_loop *inner) {
  return outer->from == inner->from * inner->dim &&
         outer->to == inner->to * inner->dim;
}

// Computes the loops of a non-empty copy, outermost first, merged where
// possible. Returns their number (0 for a single element).
static int copy_loops(const lb_tensor *from, const lb_tensor *to,
                      copy_loop *loops) {
  int64_t size = (int64_t)lb_dtype_size(from->dtype);
  int n = 0;
  for (int i = 0; i < from->rank; i++) {
    if (from->dims[i] == 1) continue;
    copy_loop l = {from->dims[i], from->strides[i] * size,
                   to->strides[i] * size};
    if (n > 0 && loops_join(&loops[n - 1], &l)) {
      l.dim *= loops[n - 1].dim;
      n--;
    }
    loops[n++] = l;
  }
  return n;
}

// Copies the innermost loop. memcpy of a constant size is one move, aligned or
// not.
#define COPY_ROW(bytes)                \
  for (int64_t i = 0; i < l->dim; i++) \
  memcpy(to + i * l->to, from + i * l->from, bytes)

static void copy_row(const copy_loop *l, size_t size, const char *from,
                     char *to) {
  if (l->from == (int64_t)size && l->to == (int64_t)size) {
    memcpy(to, from, (size_t)l->dim * size);
    return;
  }
  switch (size) {
    case 1: COPY_ROW(1); break;
    case 2: COPY_ROW(2); break;
    case 4: COPY_ROW(4); break;
    case 8: COPY_ROW(8); break;
    default: assert(false);  // no dtype has another size
  }
}

// Advances the outer loops like an odometer; false at the end.
static bool next_row(const copy_loop *loops, int n, int64_t *at,
                     const char **from, char **to) {
  for (int i = n - 1; i >= 0; i--) {
    const copy_loop *l = &loops[i];
    if (++at[i] < l->dim) {
      *from += l->from;
      *to += l->to;
      return true;
    }
    at[i] = 0;
    *from -= l->from * (l->dim - 1);
    *to -= l->to * (l->dim - 1);
  }
  return false;
}

void lb_tensor_copy(const lb_tensor *from, const lb_tensor *to) {
  assert(from->dtype == to->dtype && from->rank == to->rank);
  size_t size = lb_dtype_size(from->dtype);
  for (int i = 0; i < from->rank; i++) {
    assert(from->dims[i] == to->dims[i]);
    if (from->dims[i] == 0) return;
  }
  if (size == 0) return;
  copy_loop loops[LB_MAX_RANK];
  int n = copy_loops(from, to, loops);
  const char *f = from->data;
  char *t = to->data;
  if (n == 0) {
    memcpy(t, f, size);
    return;
  }
  int64_t at[LB_MAX_RANK] = {0};
  do copy_row(&loops[n - 1], size, f, t);
  while (next_row(loops, n - 1, at, &f, &t));
}
