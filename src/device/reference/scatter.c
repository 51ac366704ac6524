// device/reference/scatter.c -- ScatterElements, ScatterND and TensorScatter.
//
// The output starts as a copy of the data; then the update of every index is
// applied in row-major order: a contiguous run of elements, because the output
// is dense.
#include <math.h>
#include <string.h>

#include "device/reference/elem.h"
#include "device/reference/index.h"
#include "device/reference/move.h"

// Applies n runs of `len` consecutive updates to to + at[i].
typedef void scatter_fn(int64_t n, const int64_t *at, int64_t len,
                        const char *from, char *to);

#define SCATTER(id, S, T, load, store, name, expr)                   \
  static void name##_##id(int64_t n, const int64_t *at, int64_t len, \
                          const char *from, char *to) {              \
    const S *u = (const S *)from;                                    \
    for (int64_t i = 0; i < n; i++) {                                \
      S *p = (S *)(to + at[i]);                                      \
      for (int64_t k = 0; k < len; k++, u++) {                       \
        T x = load(p[k]), y = load(*u);                              \
        p[k] = (S)store(expr);                                       \
      }                                                              \
    }                                                                \
  }

// Without arithmetic, only the element size matters.
LB_UNSIGNED(SCATTER, put, ((void)x, y))
LB_FLOATS(SCATTER, add, x + y)
LB_INTS(SCATTER, add, (uint64_t)x + (uint64_t)y)
LB_BOOLS(SCATTER, add, x | y)
LB_FLOATS(SCATTER, mul, x *y)
LB_INTS(SCATTER, mul, (uint64_t)x *(uint64_t)y)
LB_BOOLS(SCATTER, mul, x &y)
// NaN is propagated.
LB_FLOATS(SCATTER, min, x < y || isnan(x) ? x : y)
LB_INTS(SCATTER, min, x < y ? x : y)
LB_BOOLS(SCATTER, min, x &y)
LB_FLOATS(SCATTER, max, x > y || isnan(x) ? x : y)
LB_INTS(SCATTER, max, x > y ? x : y)
LB_BOOLS(SCATTER, max, x | y)

#define ENTRY(id, S, T, load, store, name) [LB_##id] = name##_##id,
#define ROW(name) \
  { LB_NUMBERS(ENTRY, name) LB_BOOLS(ENTRY, name) }

typedef struct scatter_reduction {
  const char *name;
  scatter_fn *fns[LB_DTYPE_COUNT];
} scatter_reduction;

static const scatter_reduction reductions[] = {
    {"add", ROW(add)}, {"mul", ROW(mul)}, {"min", ROW(min)}, {"max", ROW(max)}};

static scatter_fn *put_of_size(size_t size) {
  switch (size) {
    case 1: return put_U8;
    case 2: return put_U16;
    case 4: return put_U32;
    default: return put_U64;
  }
}

static lb_status find_scatter(const lb_reference_call *c, scatter_fn **out) {
  const char *name = lb_attr_str(c->node, "reduction", "none");
  lb_dtype dtype = c->out[0].dtype;
  *out = put_of_size(lb_dtype_size(dtype));
  if (strcmp(name, "none") == 0) return LB_OK;
  for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
    *out = reductions[i].fns[dtype];
    if (strcmp(name, reductions[i].name) == 0)
      return *out ? LB_OK : lb_reference_bad_dtype(c, dtype);
  }
  return lb_error(LB_INVALID,
                  "reduction '%s' is not none, add, mul, min or max", name);
}

// The updates are n runs of `len` elements each.
static lb_status scatter(lb_reference_call *c, int64_t n, const int64_t *at,
                         int64_t len) {
  scatter_fn *fn;
  lb_tensor updates;
  LB_TRY(find_scatter(c, &fn));
  if (c->in[2].dtype != c->out[0].dtype)
    return lb_error(LB_INVALID, "data is %s, updates are %s",
                    lb_dtype_name(c->out[0].dtype),
                    lb_dtype_name(c->in[2].dtype));
  int64_t count;
  if (__builtin_mul_overflow(n, len, &count) ||
      lb_tensor_count(&c->in[2]) != count)
    return lb_error(LB_INVALID, "%lld updates for %lld indices of %lld each",
                    (long long)lb_tensor_count(&c->in[2]), (long long)n,
                    (long long)len);
  LB_TRY(lb_reference_dense(c, &c->in[2], c->out[0].dtype, &updates));
  lb_move(c->pool, &c->in[0], &c->out[0]);
  if (count > 0) fn(n, at, len, updates.data, c->out[0].data);
  return LB_OK;
}

// Advances to the next element of `indices`; returns the change of the offset
// into the data, to which `axis` does not contribute.
static int64_t next_offset(const lb_tensor *indices, int axis,
                           const int64_t *steps, int64_t *index_pos) {
  int64_t by = 0;
  for (int i = indices->rank - 1; i >= 0; i--) {
    int64_t step = i == axis ? 0 : steps[i];
    if (++index_pos[i] < indices->dims[i]) return by + step;
    by -= step * (index_pos[i] - 1);
    index_pos[i] = 0;
  }
  return by;
}

// The offset of every element that has an index, in scratch.
static lb_status element_offsets(lb_reference_call *c, const lb_tensor *x,
                                 const lb_tensor *indices, int axis,
                                 int64_t **out, int64_t *n) {
  const int64_t *ints;
  LB_TRY(lb_check_elements(x, indices, axis));
  LB_TRY(lb_reference_ints(c, 1, &ints, n));
  LB_TRY(lb_reference_ints_temp(c, *n, out));
  int64_t index_pos[LB_MAX_RANK] = {0}, offset = 0, index = 0;
  int64_t steps[LB_MAX_RANK];
  lb_byte_strides(x, steps);
  for (int64_t k = 0; k < *n; k++) {
    LB_TRY(lb_reference_index(ints[k], axis, x->dims[axis], &index));
    (*out)[k] = offset + index * steps[axis];
    offset += next_offset(indices, axis, steps, index_pos);
  }
  return LB_OK;
}

lb_status lb_reference_ScatterElements(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0];
  int axis;
  int64_t *at, n;
  LB_TRY(lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), y->rank, &axis));
  LB_TRY(element_offsets(c, y, &c->in[1], axis, &at, &n));
  return scatter(c, n, at, 1);
}

lb_status lb_reference_ScatterND(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0], *indices = &c->in[1];
  int64_t *at, n, len;
  LB_TRY(lb_tuple_offsets(c, y, indices, 0, &at, &n));
  int inner = (int)indices->dims[indices->rank - 1];
  LB_TRY(lb_dims_count(y->rank - inner, y->dims + inner, &len));
  return scatter(c, n, at, len);
}

// -- TensorScatter -----------------------------------------------------------

// Copies n elements of the update of one batch item, from `begin` on, to `at`.
static void write_part(lb_reference_call *c, int64_t batch, int axis,
                       int64_t begin, int64_t at, int64_t n) {
  lb_tensor from = lb_narrow(&c->in[1], 0, batch, 1);
  lb_tensor to = lb_narrow(&c->out[0], 0, batch, 1);
  from = lb_narrow(&from, axis, begin, n);
  to = lb_narrow(&to, axis, at, n);
  lb_move(c->pool, &from, &to);
}

static lb_status check_update(const lb_reference_call *c, int axis) {
  const lb_tensor *y = &c->out[0], *update = &c->in[1];
  if (axis == 0) return lb_error(LB_INVALID, "axis 0 is the batch");
  if (update->rank != y->rank)
    return lb_error(LB_INVALID, "update has rank %d, the cache %d",
                    update->rank, y->rank);
  for (int i = 0; i < y->rank; i++)
    if (i == axis ? update->dims[i] > y->dims[i]
                  : update->dims[i] != y->dims[i])
      return lb_error(
          LB_INVALID,
          "axis %d: an update of size %lld does not fit the cache's %lld", i,
          (long long)update->dims[i], (long long)y->dims[i]);
  return LB_OK;
}

// The position in [0, size) at which the update is written.
static lb_status write_position(int64_t index, bool circular, int64_t len,
                                int64_t size, int64_t *out) {
  if (circular && size > 0) {
    *out = index % size;
    if (*out < 0) *out += size;
    return LB_OK;
  }
  if (index < 0 || index > size - len)
    return lb_error(LB_INVALID,
                    "write index %lld: an update of %lld exceeds the cache of "
                    "%lld",
                    (long long)index, (long long)len, (long long)size);
  *out = index;
  return LB_OK;
}

lb_status lb_reference_TensorScatter(lb_reference_call *c) {
  const lb_tensor *y = &c->out[0];
  const char *mode = lb_attr_str(c->node, "mode", "linear");
  bool circular = strcmp(mode, "circular") == 0;
  int axis;
  LB_TRY(
      lb_reference_axis(c, lb_attr_int(c->node, "axis", -2), y->rank, &axis));
  LB_TRY(check_update(c, axis));
  if (!circular && strcmp(mode, "linear") != 0)
    return lb_error(LB_INVALID, "mode '%s' is not linear or circular", mode);
  const int64_t *indices;
  int64_t n, len = c->in[1].dims[axis], size = y->dims[axis];
  LB_TRY(lb_reference_ints(c, 2, &indices, &n));
  if (indices && n != y->dims[0])
    return lb_error(LB_INVALID, "%lld write indices for %lld batches",
                    (long long)n, (long long)y->dims[0]);
  lb_move(c->pool, &c->in[0], y);
  if (lb_tensor_count(&c->in[1]) == 0) return LB_OK;
  for (int64_t i = 0; i < y->dims[0]; i++) {
    int64_t at = 0;
    LB_TRY(write_position(indices ? indices[i] : 0, circular, len, size, &at));
    int64_t fits = len < size - at ? len : size - at;
    write_part(c, i, axis, 0, at, fits);
    write_part(c, i, axis, fits, 0, len - fits);
  }
  return LB_OK;
}
