// device/reference/case_test.h -- for tests: one call of a reference operator
// on random tensors in unusual layouts, with a seed that reproduces a failing
// case.
//
// Every tensor has its own memory, of exactly the size it needs, so that the
// sanitizers see every access out of bounds. A failure prints "LB_SEED=7 name":
// with that in the environment the test runs this case only.
#ifndef LB_DEVICE_REFERENCE_CASE_TEST_H
#define LB_DEVICE_REFERENCE_CASE_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "device/reference/reference.h"

#define CASE_TENSORS 8

typedef struct test_case {
  const char *name;
  uint64_t seed, state;
  lb_node node;
  lb_attr attrs[8];
  lb_value *values[CASE_TENSORS];  // of its inputs; they have no producer
  lb_tensor in[CASE_TENSORS], out[CASE_TENSORS];
  void *blocks[64];  // owned
  int n_blocks;
  lb_arena scratch;
  lb_reference_call call;
} test_case;

// -- random ------------------------------------------------------------------

static inline uint64_t case_bits(test_case *t) {
  t->state = t->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  uint64_t x = t->state ^ t->state >> 29;
  return x * UINT64_C(0x9fb21c651e98df25) >> 16;
}

// A random integer in [lo, hi].
static inline int64_t case_int(test_case *t, int64_t lo, int64_t hi) {
  return lo + (int64_t)(case_bits(t) % (uint64_t)(hi - lo + 1));
}

static inline int64_t case_dim(test_case *t) {
  static const int64_t dims[] = {0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 33};
  int64_t i = case_int(t, 0, 11);
  // Empty tensors hide everything else, so they are rare.
  if (i == 0 && case_int(t, 0, 2) > 0) i = 1;
  return dims[i];
}

static inline lb_dtype case_dtype(test_case *t) {
  return (lb_dtype)case_int(t, LB_NONE + 1, LB_DTYPE_COUNT - 1);
}

// -- tensors -----------------------------------------------------------------

static inline void *case_alloc(test_case *t, size_t size) {
  assert_true(t->n_blocks < 64);
  void *p = malloc(size ? size : 1);
  assert_non_null(p);
  t->blocks[t->n_blocks++] = p;
  return p;
}

static inline lb_tensor case_dense(test_case *t, lb_dtype dtype, int rank,
                                   const int64_t *dims) {
  lb_tensor x = {.dtype = dtype, .rank = rank};
  if (rank > 0) memcpy(x.dims, dims, (size_t)rank * sizeof *dims);
  lb_tensor_dense(&x);
  if (lb_tensor_count(&x) > 0) x.data = case_alloc(t, lb_tensor_bytes(&x));
  return x;
}

static inline void case_randomize(test_case *t, const lb_tensor *dense) {
  char *p = dense->data;
  for (size_t i = 0; i < lb_tensor_bytes(dense); i++)
    p[i] = (char)(dense->dtype == LB_BOOL ? case_bits(t) & 1 : case_bits(t));
}

// Copies x into another layout: axes in any order in memory, some reversed,
// some with gaps, starting at an unaligned address.
static inline lb_tensor case_scatter(test_case *t, const lb_tensor *x) {
  lb_tensor y = *x;
  int order[LB_MAX_RANK];
  int64_t extent = 1, size = (int64_t)lb_dtype_size(x->dtype), origin = 0;
  if (lb_tensor_count(x) == 0 || case_int(t, 0, 3) == 0) return y;
  for (int i = 0; i < x->rank; i++) order[i] = i;
  for (int i = x->rank - 1; i > 0 && case_int(t, 0, 2) > 0; i--) {
    int k = (int)case_int(t, 0, i), swap = order[i];
    order[i] = order[k];
    order[k] = swap;
  }
  for (int i = x->rank - 1; i >= 0; i--) {
    int axis = order[i];
    int64_t step = extent * (case_int(t, 0, 5) == 0 ? 2 : 1);
    bool back = case_int(t, 0, 5) == 0;
    y.strides[axis] = back ? -step : step;
    if (back) origin += step * (x->dims[axis] - 1);
    extent = step * (x->dims[axis] - 1) + extent;
  }
  int64_t odd = case_int(t, 0, 1);
  char *block = case_alloc(t, (size_t)(extent * size + odd));
  y.data = block + odd + origin * size;
  lb_tensor_copy(x, &y);
  return y;
}

static inline lb_tensor case_random(test_case *t, lb_dtype dtype, int rank,
                                    const int64_t *dims) {
  lb_tensor x = case_dense(t, dtype, rank, dims);
  case_randomize(t, &x);
  return case_scatter(t, &x);
}

// A vector of integers.
static inline lb_tensor case_ints(test_case *t, const int64_t *v, int64_t n) {
  lb_tensor x = case_dense(t, LB_I64, 1, &n);
  if (n > 0) memcpy(x.data, v, (size_t)n * sizeof *v);
  return case_scatter(t, &x);
}

static inline char *case_at(const lb_tensor *x, const int64_t *index) {
  int64_t offset = 0;
  for (int i = 0; i < x->rank; i++) offset += index[i] * x->strides[i];
  return (char *)x->data + offset * (int64_t)lb_dtype_size(x->dtype);
}

static inline int64_t case_int_at(const lb_tensor *x, const int64_t *index) {
  int64_t v;
  memcpy(&v, case_at(x, index), sizeof v);
  return v;
}

// Advances to the next element in row-major order; false after the last one.
static inline bool case_next(const lb_tensor *x, int64_t *index) {
  for (int i = x->rank - 1; i >= 0; i--) {
    if (++index[i] < x->dims[i]) return true;
    index[i] = 0;
  }
  return false;
}

// Loops over all elements of x, with their index.
#define CASE_EACH(x, index)                                      \
  int64_t index[LB_MAX_RANK] = {0};                              \
  for (bool more_##index = lb_tensor_count(x) > 0; more_##index; \
       more_##index = case_next(x, index))

// -- the call ----------------------------------------------------------------

static inline lb_status case_grow(lb_reference_call *c, int i, int rank,
                                  const int64_t *dims) {
  lb_tensor grown =
      case_dense((test_case *)c->user, c->out[i].dtype, rank, dims);
  c->out[i] = grown;
  return LB_OK;
}

static inline void case_begin(test_case *t, lb_op op) {
  t->node = (lb_node){
      .op = op, .name = "node", .attrs = t->attrs, .in = t->values, .n_out = 1};
  lb_arena_init(&t->scratch, 4096);
  t->call = (lb_reference_call){.node = &t->node,
                                .in = t->in,
                                .out = t->out,
                                .scratch = &t->scratch,
                                .grow = case_grow,
                                .user = t};
}

static inline void case_attr_int(test_case *t, const char *name, int64_t v) {
  t->attrs[t->node.n_attrs++] =
      (lb_attr){.name = name, .kind = LB_ATTR_INT, .i = v};
}

static inline void case_attr_float(test_case *t, const char *name, float v) {
  t->attrs[t->node.n_attrs++] =
      (lb_attr){.name = name, .kind = LB_ATTR_FLOAT, .f = v};
}

static inline void case_attr_str(test_case *t, const char *name,
                                 const char *v) {
  t->attrs[t->node.n_attrs++] = (lb_attr){
      .name = name, .kind = LB_ATTR_STRING, .n = (uint32_t)strlen(v), .s = v};
}

static inline void case_attr_ints(test_case *t, const char *name,
                                  const int64_t *v, int n) {
  t->attrs[t->node.n_attrs++] = (lb_attr){
      .name = name, .kind = LB_ATTR_INTS, .n = (uint32_t)n, .ints = v};
}

static inline void case_in(test_case *t, lb_tensor x) {
  t->in[t->node.n_in++] = x;
}

static inline lb_code case_run(test_case *t, lb_reference_fn *fn) {
  lb_status st = fn(&t->call);
  lb_code code = lb_status_code(st);
  lb_status_drop(st);
  return code;
}

static inline void case_end(test_case *t) {
  lb_arena_fini(&t->scratch);
  for (int i = 0; i < t->n_blocks; i++) free(t->blocks[i]);
}

// -- running -----------------------------------------------------------------

// Fails with a message that says how to reproduce the case.
#define CASE_CHECK(t, ok)                                 \
  do {                                                    \
    if (!(ok))                                            \
      fail_msg("%s: rerun with LB_SEED=%llu %s", #ok,     \
               (unsigned long long)(t)->seed, (t)->name); \
  } while (0)

#define CASE_SAME(t, x, ix, y, iy)                     \
  CASE_CHECK(t, memcmp(case_at(x, ix), case_at(y, iy), \
                       lb_dtype_size((x)->dtype)) == 0)

// Repeats the call once per output, with all other outputs unwanted, and checks
// that the result is the same.
static inline void case_each_alone(test_case *t, lb_reference_fn *fn) {
  lb_tensor all[CASE_TENSORS];
  memcpy(all, t->out, sizeof all);
  for (uint32_t i = 0; i < t->node.n_out; i++) {
    memset(t->out, 0, sizeof t->out);
    t->out[i] = case_dense(t, all[i].dtype, all[i].rank, all[i].dims);
    CASE_CHECK(t, case_run(t, fn) == LB_CODE_OK);
    CASE_EACH(&all[i], at) CASE_SAME(t, &t->out[i], at, &all[i], at);
  }
  memcpy(t->out, all, sizeof all);
}

static inline void case_repeat(const char *name, int n,
                               void (*one)(test_case *)) {
  const char *only = getenv("LB_SEED");
  for (int i = 0; i < (only ? 1 : n); i++) {
    test_case t = {.name = name};
    t.seed = only ? (uint64_t)strtoull(only, NULL, 10) : (uint64_t)i;
    t.state = t.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    one(&t);
    case_end(&t);
  }
}

// A cmocka test that runs `one` on n random cases.
#define CASE_TEST(claim, n, one)    \
  static void claim(void **state) { \
    (void)state;                    \
    case_repeat(#claim, n, one);    \
  }

// A dense int64 tensor, for fixed examples.
static inline lb_tensor case_i64(test_case *t, int rank, const int64_t *dims,
                                 const int64_t *v) {
  lb_tensor x = case_dense(t, LB_I64, rank, dims);
  if (x.data) memcpy(x.data, v, lb_tensor_bytes(&x));
  return x;
}

#endif
