// device/reference/move.c -- see move.h.
#include "device/reference/move.h"

#include <string.h>

#include "device/reference/iter.h"

lb_tensor lb_narrow(const lb_tensor *t, int axis, int64_t begin, int64_t n) {
  lb_tensor view = *t;
  view.dims[axis] = n;
  // The address of an empty view is not changed: its memory may not exist.
  if (lb_tensor_count(&view) > 0)
    view.data = (char *)t->data +
                begin * t->strides[axis] * (int64_t)lb_dtype_size(t->dtype);
  return view;
}

void lb_byte_strides(const lb_tensor *t, int64_t *out) {
  bool empty = lb_tensor_count(t) == 0;
  int64_t size = (int64_t)lb_dtype_size(t->dtype);
  for (int i = 0; i < t->rank; i++)
    out[i] = empty || t->dims[i] == 1 ? 0 : t->strides[i] * size;
}

// -- rows --------------------------------------------------------------------

// Copies n elements of one width, `step` bytes apart; a step of 0 repeats the
// first.
#define COPY(S)                                                                \
  static void copy_##S(int64_t n, const char *from, int64_t from_step,         \
                       char *to, int64_t to_step) {                            \
    for (int64_t k = 0; k < n; k++)                                            \
      *(S *)(to + k * to_step) = *(const S *)(from + k * from_step);           \
  }                                                                            \
  static void repeat_##S(int64_t n, const char *from, char *to) {              \
    S x = *(const S *)from;                                                    \
    for (int64_t k = 0; k < n; k++) ((S *)to)[k] = x;                          \
  }                                                                            \
  static void gather_##S(int64_t n, const char *from, const int64_t *at,       \
                         char *to) {                                           \
    for (int64_t k = 0; k < n; k++) ((S *)to)[k] = *(const S *)(from + at[k]); \
  }
COPY(lb_u8)
COPY(lb_u16)
COPY(lb_u32)
COPY(lb_u64)

#define BY_SIZE(size, fn, ...)               \
  switch (size) {                            \
    case 1: fn##_lb_u8(__VA_ARGS__); break;  \
    case 2: fn##_lb_u16(__VA_ARGS__); break; \
    case 4: fn##_lb_u32(__VA_ARGS__); break; \
    default: fn##_lb_u64(__VA_ARGS__);       \
  }

static void copy_row(size_t size, int64_t n, const char *from,
                     int64_t from_step, char *to, int64_t to_step) {
  int64_t dense = (int64_t)size;
  if (to_step == dense && from_step == dense)
    memcpy(to, from, (size_t)n * size);
  else if (to_step == dense && from_step == 0)
    BY_SIZE(size, repeat, n, from, to)
  else
    BY_SIZE(size, copy, n, from, from_step, to, to_step)
}

static void move_row(const void *user, int64_t n, char *const *p,
                     const int64_t *step) {
  copy_row(*(const size_t *)user, n, p[1], step[1], p[0], step[0]);
}

// -- transposing -------------------------------------------------------------

#define TILE 32
#define SHORT_ROW 8  // rows that are too short for a call each
#define BAND_ROWS 8  // rows of the output that are written alternately

// The output is contiguous along one axis and the input along another, or the
// rows of both are short; a tile of these two axes fits into L1 on both sides.
typedef struct tile_job {
  lb_iter outer;  // iterates over the other axes
  size_t size;
  int64_t rows,
      cols;  // lengths of the input's and the output's contiguous axis
  int64_t row_step[2], col_step[2];  // bytes, of output and input
  int64_t bands;                     // number of tiles along rows
} tile_job;

// Four 4-byte elements at any address.
typedef uint32_t vec4 __attribute__((vector_size(16), aligned(1), may_alias));

#define PAIRS(x, y, a, b) __builtin_shufflevector(x, y, a, b, (a) + 4, (b) + 4)

// Transposes a block of four by four: four columns of the input, `from` bytes
// apart, are the rows of the output.
static void transpose_4x4(const char *p, int64_t from, char *q, int64_t to) {
  vec4 a = *(const vec4 *)p, b = *(const vec4 *)(p + from);
  vec4 c = *(const vec4 *)(p + 2 * from), d = *(const vec4 *)(p + 3 * from);
  vec4 low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  vec4 high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  vec4 lower = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  vec4 higher = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(vec4 *)q = PAIRS(low, lower, 0, 1);
  *(vec4 *)(q + to) = PAIRS(low, lower, 2, 3);
  *(vec4 *)(q + 2 * to) = PAIRS(high, higher, 0, 1);
  *(vec4 *)(q + 3 * to) = PAIRS(high, higher, 2, 3);
}

// Transposes all 4x4 blocks of a tile whose input is contiguous along rows and
// whose output is contiguous along columns. Few rows are processed at a time:
// if they are a power of two apart, more would not fit into L1.
static void transpose_blocks(const tile_job *job, int64_t rows, int64_t cols,
                             const char *from, char *to) {
  int64_t next = job->col_step[1], below = job->row_step[0];
  for (int64_t row = 0; row + 4 <= rows; row += BAND_ROWS)
    for (int64_t c = 0; c + 4 <= cols; c += 4)
      for (int64_t r = row; r + 4 <= rows && r < row + BAND_ROWS; r += 4)
        transpose_4x4(from + c * next + r * 4, next, to + r * below + c * 4,
                      below);
}

// Copies rows x cols elements; the longer dimension is the inner loop.
static void copy_tile(const tile_job *job, int64_t rows, int64_t cols,
                      const char *from, char *to) {
  const int64_t *step = job->col_step, *next = job->row_step;
  int64_t inner = cols, outer = rows;
  if (rows > cols) {
    step = job->row_step, next = job->col_step;
    inner = rows, outer = cols;
  }
  for (int64_t i = 0; i < outer; i++)
    BY_SIZE(job->size, copy, inner, from + i * next[1], step[1],
            to + i * next[0], step[0])
}

static void move_tile(const tile_job *job, int64_t rows, int64_t cols,
                      const char *from, char *to) {
  bool is_transpose =
      job->size == 4 && job->row_step[1] == 4 && job->col_step[0] == 4;
  int64_t r = is_transpose ? rows & ~INT64_C(3) : 0, c = cols & ~INT64_C(3);
  if (is_transpose) transpose_blocks(job, rows, cols, from, to);
  if (r < rows)
    copy_tile(job, rows - r, cols, from + r * job->row_step[1],
              to + r * job->row_step[0]);
  if (r > 0 && c < cols)
    copy_tile(job, r, cols - c, from + c * job->col_step[1],
              to + c * job->col_step[0]);
}

static void move_band(const tile_job *job, int64_t rows, const char *from,
                      char *to) {
  for (int64_t col = 0; col < job->cols; col += TILE) {
    int64_t cols = job->cols - col < TILE ? job->cols - col : TILE;
    move_tile(job, rows, cols, from + col * job->col_step[1],
              to + col * job->col_step[0]);
  }
}

static void move_bands(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const tile_job *job = user;
  for (int64_t i = begin; i < end; i++) {
    lb_iter_pos w;
    lb_iter_pos_seek(&job->outer, i / job->bands, &w);
    int64_t row = i % job->bands * TILE;
    int64_t n = job->rows - row < TILE ? job->rows - row : TILE;
    move_band(job, n, w.p[1] + row * job->row_step[1],
              w.p[0] + row * job->row_step[0]);
  }
}

// The axis along which the input is contiguous, if that is not the last one;
// else -1.
static int input_axis(const lb_iter *it, int64_t size) {
  int last = it->rank - 1;
  int64_t step = it->strides[1][last];
  if (step == size || step == -size || step == 0) return -1;
  for (int i = 0; i < last; i++)
    if (it->strides[1][i] == size || it->strides[1][i] == -size) return i;
  return -1;
}

// The axis before the last one, if it is longer and the last one is short
// (pixels of three channels, blocks of DepthToSpace); else -1.
static int short_row_axis(const lb_iter *it) {
  int last = it->rank - 1;
  bool is_short = last > 0 && it->dims[last] <= SHORT_ROW;
  return is_short && it->dims[last - 1] > it->dims[last] ? last - 1 : -1;
}

static void drop_axis(lb_iter *it, int axis) {
  it->rank--;
  it->count /= it->dims[axis];
  for (int i = axis; i < it->rank; i++) {
    it->dims[i] = it->dims[i + 1];
    for (int k = 0; k < it->n; k++) it->strides[k][i] = it->strides[k][i + 1];
  }
}

static void move_tiles(lb_pool *pool, const lb_iter *it, int axis,
                       size_t size) {
  int last = it->rank - 1;
  tile_job job = {.outer = *it, .size = size};
  job.rows = it->dims[axis];
  job.cols = it->dims[last];
  for (int k = 0; k < 2; k++) {
    job.row_step[k] = it->strides[k][axis];
    job.col_step[k] = it->strides[k][last];
  }
  job.bands = (job.rows + TILE - 1) / TILE;
  drop_axis(&job.outer, last);
  drop_axis(&job.outer, axis);
  int64_t n = job.outer.count * job.bands;
  lb_pool_for(pool, n, lb_grain(job.cols * TILE), move_bands, &job);
}

void lb_move(lb_pool *pool, const lb_tensor *from, const lb_tensor *to) {
  const lb_tensor *operands[] = {to, from};
  size_t size = lb_dtype_size(to->dtype);
  lb_iter it;
  lb_iter_init(&it, 2, operands);
  if (it.count == 0) return;
  int axis = input_axis(&it, (int64_t)size);
  if (axis < 0) axis = short_row_axis(&it);
  if (axis >= 0)
    move_tiles(pool, &it, axis, size);
  else
    lb_iter_run(&it, pool, LB_ITER_GRAIN, move_row, &size);
}

void lb_fill(lb_pool *pool, const lb_tensor *to, const void *element) {
  uint64_t value = 0;
  if (element) memcpy(&value, element, lb_dtype_size(to->dtype));
  lb_tensor one = {.dtype = to->dtype, .data = &value};
  lb_move(pool, &one, to);
}

// -- gathering ---------------------------------------------------------------

static void gather_add(lb_gather *p, int64_t dim, int64_t step,
                       const int64_t *at) {
  p->count = p->rank == 0 ? dim : p->count * dim;
  p->axes[p->rank].dim = dim;
  p->axes[p->rank].step = step;
  p->axes[p->rank++].at = at;
}

void lb_gather_strided(lb_gather *p, int64_t dim, int64_t step) {
  if (dim == 1 && p->rank > 0) return;
  int last = p->rank - 1;
  bool empty = dim == 0 || (p->rank > 0 && p->count == 0);
  if (p->rank > 0 && !empty && !p->axes[last].at &&
      p->axes[last].step == step * dim) {
    p->axes[last].dim *= dim;
    p->axes[last].step = step;
    p->count *= dim;
  } else {
    gather_add(p, dim, step, NULL);
  }
}

void lb_gather_table(lb_gather *p, int64_t dim, const int64_t *at) {
  gather_add(p, dim, 0, at);
}

void lb_gather_axes(lb_gather *p, const lb_tensor *t, int begin, int end) {
  int64_t steps[LB_MAX_RANK];
  lb_byte_strides(t, steps);
  for (int i = begin; i < end; i++) lb_gather_strided(p, t->dims[i], steps[i]);
}

typedef struct gather_job {
  const lb_gather *gather;
  size_t size;
  const char *from;
  char *to;
} gather_job;

static int64_t offset_of(const lb_gather *p, int axis, int64_t i) {
  return p->axes[axis].at ? p->axes[axis].at[i] : i * p->axes[axis].step;
}

// The offset of row number `row` in the input.
static int64_t row_offset(const lb_gather *p, int64_t row) {
  int64_t offset = 0;
  for (int i = p->rank - 2; i > 0; i--) {
    offset += offset_of(p, i, row % p->axes[i].dim);
    row /= p->axes[i].dim;
  }
  return p->rank > 1 ? offset + offset_of(p, 0, row) : offset;
}

static void gather_piece(const gather_job *job, int64_t row, int64_t begin,
                         int64_t n) {
  const lb_gather *p = job->gather;
  int last = p->rank - 1;
  int64_t size = (int64_t)job->size, step = p->axes[last].step;
  const char *from = job->from + row_offset(p, row);
  char *to = job->to + (row * p->axes[last].dim + begin) * size;
  if (p->axes[last].at)
    BY_SIZE(job->size, gather, n, from, p->axes[last].at + begin, to)
  else
    copy_row(job->size, n, from + begin * step, step, to, size);
}

// Tasks are split by elements, not rows, because there may be only one row.
static void gather_pieces(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const gather_job *job = user;
  int64_t dim = job->gather->axes[job->gather->rank - 1].dim;
  int64_t row = begin / dim, at = begin % dim;
  for (int64_t n; begin < end; begin += n, row++, at = 0) {
    n = dim - at;
    if (n > end - begin) n = end - begin;
    gather_piece(job, row, at, n);
  }
}

void lb_gather_run(lb_pool *pool, const lb_gather *p, size_t size,
                   const void *from, void *to) {
  lb_gather own = *p;
  if (own.rank == 0) lb_gather_strided(&own, 1, 0);
  if (own.count == 0) return;
  gather_job job = {&own, size, from, to};
  lb_pool_for(pool, own.count, LB_ITER_GRAIN, gather_pieces, &job);
}

lb_status lb_reference_ints_temp(lb_reference_call *c, int64_t n,
                                 int64_t **out) {
  size_t bytes = lb_mul_sat((size_t)n, sizeof **out);
  *out = lb_arena_alloc(c->scratch, bytes, _Alignof(int64_t));
  return *out ? LB_OK : lb_oom();
}
