// api/primitive_test.h -- short helpers for descriptors and tensors in tests.
#ifndef LB_API_PRIMITIVE_TEST_H
#define LB_API_PRIMITIVE_TEST_H

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <limber/limber.h>
#include <stdio.h>
#include <string.h>

#define ANY LIMBER_RUNTIME_DIM
#define TEST(f) cmocka_unit_test(f)

static inline void ok(limber_status st) {
  if (st) print_error("%s\n", limber_last_error());
  assert_int_equal(st, LIMBER_OK);
}

static inline void expect_rejected(limber_status st, limber_status code,
                                   const char *text) {
  assert_int_equal(st, code);
  if (!strstr(limber_last_error(), text))
    print_error("said: %s\nnot: %s\n", limber_last_error(), text);
  assert_non_null(strstr(limber_last_error(), text));
}

static inline limber_operand operand(int rank, ...) {
  limber_operand o = {.dtype = LIMBER_F32, .rank = rank};
  va_list ap;
  va_start(ap, rank);
  for (int i = 0; i < rank; i++) o.dims[i] = va_arg(ap, int64_t);
  va_end(ap);
  return o;
}
#define L(n) ((int64_t)(n))

static inline limber_tensor tensor(void *data, int rank, ...) {
  limber_tensor t = {.dtype = LIMBER_F32, .rank = rank, .data = data};
  va_list ap;
  va_start(ap, rank);
  for (int i = 0; i < rank; i++) t.dims[i] = va_arg(ap, int64_t);
  va_end(ap);
  return t;
}

static inline limber_primitive_desc desc_of(int kind, int alg) {
  return (limber_primitive_desc){
      .size = sizeof(limber_primitive_desc), .kind = kind, .alg = alg};
}

static inline limber_primitive *create(const limber_primitive_desc *d,
                                       const limber_attr *a) {
  limber_primitive *p;
  ok(limber_primitive_create(NULL, d, a, &p));
  return p;
}

static inline void fill(float *x, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)((int)(seed >> 24) % 17 - 8) / 8;
  }
}

#endif
