// tools/npy_test.c -- tests .npy files.
#include "npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/testdir.h"

static void every_dtype_and_rank_round_trips(void **state) {
  testdir *d = *state;
  problem p;
  for (int dtype = LIMBER_F32; dtype <= LIMBER_BOOL; dtype++) {
    for (int rank = 0; rank <= LIMBER_MAX_RANK; rank++) {
      unsigned char bytes[16] = {1, 0, 1, 1, 0, 1, 7, 8, 9};
      limber_tensor t = {.dtype = (limber_dtype)dtype, .rank = rank}, back;
      for (int i = 0; i < rank; i++) t.dims[i] = i == 1 ? 2 : 1;
      t.data = bytes;
      t.bytes = limber_dtype_size(t.dtype) * (rank > 1 ? 2 : 1);
      const char *path = testdir_at(d, "t.npy");
      assert_true(npy_write(path, &t, &p));
      assert_true(npy_read(path, &back, &p));
      assert_int_equal(back.dtype, t.dtype);
      assert_int_equal(back.rank, t.rank);
      assert_memory_equal(back.dims, t.dims, sizeof t.dims);
      assert_int_equal(back.bytes, t.bytes);
      assert_memory_equal(back.data, bytes, t.bytes);
      free(back.data);
    }
  }
}

static void empty_arrays_round_trip(void **state) {
  const char *path = testdir_at(*state, "t.npy");
  limber_tensor t = {.dtype = LIMBER_F32, .rank = 2, .dims = {0, 5}}, back;
  problem p;
  assert_true(npy_write(path, &t, &p));
  assert_true(npy_read(path, &back, &p));
  assert_int_equal(back.dims[1], 5);
  assert_int_equal(back.bytes, 0);
  free(back.data);
}

// Writes a version 1 file with this header and `size` bytes of elements.
static const char *with_header(testdir *d, const char *header, size_t size) {
  const char *path = testdir_at(d, "t.npy");
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  fprintf(f, "\x93NUMPY%c%c%c%c%s", 1, 0, (int)strlen(header), 0, header);
  while (size--) fputc(0, f);
  fclose(f);
  return path;
}

static void expect_rejected(testdir *d, const char *header, size_t size,
                            const char *why) {
  limber_tensor t;
  problem p = {0};
  assert_false(npy_read(with_header(d, header, size), &t, &p));
  assert_int_equal(p.exit, EXIT_BAD);
  if (!strstr(p.text, why)) fail_msg("'%s' does not contain '%s'", p.text, why);
  assert_null(t.data);
}

static void invalid_files_are_rejected_with_a_reason(void **state) {
  testdir *d = *state;
  expect_rejected(d,
                  "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
                  16, "Fortran order");
  expect_rejected(d,
                  "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
                  8, "big endian");
  expect_rejected(d,
                  "{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }",
                  16, "'<c8' is not supported");
  expect_rejected(d,
                  "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                  7, "ends after 7 of 8 bytes");
  expect_rejected(d,
                  "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
                  8, "shape is not readable");
  expect_rejected(d, "{'descr': '<f4', 'fortran_order': False, 'shape': (2", 8,
                  "shape is not readable");
  expect_rejected(d,
                  "{'descr': '<f4', 'fortran_order': False, 'shape': "
                  "(4611686018427387904, 4611686018427387904), }",
                  8, "not too many");
  expect_rejected(d, "{'descr': [('a', '<f4')], 'fortran_order': False}", 8,
                  "simple");
}

static void other_files_are_rejected(void **state) {
  limber_tensor t;
  problem p;
  testdir_write(*state, "t.npy", "PK");
  assert_false(npy_read(testdir_at(*state, "t.npy"), &t, &p));
  assert_non_null(strstr(p.text, "not a .npy file"));
  assert_false(npy_read(testdir_at(*state, "none.npy"), &t, &p));
  assert_non_null(strstr(p.text, "No such file"));
}

static int set_up(void **state) {
  static testdir d;
  *state = &d;
  return testdir_init(&d);
}

static int tear_down(void **state) {
  testdir_fini(*state);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_dtype_and_rank_round_trips),
      cmocka_unit_test(empty_arrays_round_trip),
      cmocka_unit_test(invalid_files_are_rejected_with_a_reason),
      cmocka_unit_test(other_files_are_rejected),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
