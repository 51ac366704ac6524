// onnx/tensor_test.c -- weights: all sources of their bytes, without copies.
#include "base/testdir.h"
#include "onnx/model_test.h"

// A model with the tensor as its output.
static pb model_of(pb tensor, unsigned field) {
  pb g = pb_graph("", (pb){0}, "w");
  pb_msg(&g, field, tensor);
  return pb_model(g, 13);
}

static void expect_elements(pb tensor, const char *text) {
  expect_graph(model_of(tensor, 5), text);
}

static bool inside(const pb *m, const void *p) {
  const char *at = p;
  return at >= m->b.data && at < m->b.data + m->b.len;
}

static void raw_data_stays_where_it_is(void **state) {
  (void)state;
  static const float w[] = {1, 2, 3};
  pb m = model_of(pb_floats("w", 3, w), 5);
  lb_model model;
  parse(&m, &model);
  const lb_tensor *t = model.graph->main->results[0]->info.data;
  assert_true(inside(&m, t->data));
  assert_memory_equal(t->data, w, sizeof w);
  assert_int_equal(model.weight_bytes, 12);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void packed_floats_stay_where_they_are(void **state) {
  (void)state;
  static const float w[] = {1, 2, 3};
  static const int64_t dims[] = {3, 1};
  pb t = pb_tensor("w", T_FLOAT, 2, dims);
  pb_raw(&t, 4, w, sizeof w);
  pb m = model_of(t, 5);
  lb_model model;
  parse(&m, &model);
  assert_true(inside(&m, model.graph->main->results[0]->info.data->data));
  lb_model_fini(&model);
  expect_graph(m, " -> [1,2,3]");
}

static void copied_weights_outlive_the_bytes(void **state) {
  (void)state;
  static const float w[] = {1, 2, 3};
  pb m = model_of(pb_floats("w", 3, w), 5);
  lb_onnx_options o = {.copy_weights = true};
  lb_model model;
  expect_success(lb_onnx_parse(span_of(&m), NULL, &o, &model));
  lb_strbuf_fini(&m.b);
  const lb_tensor *t = model.graph->main->results[0]->info.data;
  assert_memory_equal(t->data, w, sizeof w);
  assert_string_equal(model.graph->output_names[0], "w");
  lb_model_fini(&model);
}

static void numbers_written_one_by_one_are_decoded(void **state) {
  (void)state;
  static const int64_t three = 3, two = 2;
  pb f = pb_tensor("w", T_FLOAT, 1, &two), i = pb_tensor("w", T_INT64, 1, &two);
  pb_float(&f, 4, 1.5f);
  pb_float(&f, 4, -2);
  expect_elements(f, " -> [1.5,-2]");
  pb_int(&i, 7, -1);
  pb_int(&i, 7, INT64_MAX);
  expect_elements(i, " -> [-1,9223372036854775807]");
  pb b = pb_tensor("w", T_BOOL, 1, &three);
  pb_raw(&b, 5, "\x05\0\1", 3);
  expect_elements(b, " -> [1,0,1]");
  pb h = pb_tensor("w", 10, 1, &two);  // float16: bits
  pb_int(&h, 5, 0x3c00);
  pb_int(&h, 5, 0xffff);
  expect_elements(h, " -> [15360,65535]");
  pb u = pb_tensor("w", 12, 1, &two);  // uint32 is in uint64_data
  pb_int(&u, 11, UINT32_MAX);
  pb_int(&u, 11, 7);
  expect_elements(u, " -> [4294967295,7]");
}

static void negative_int8_in_int32_data_keeps_its_bits(void **state) {
  (void)state;
  static const int64_t one = 1;
  pb t = pb_tensor("w", 3, 1, &one);
  pb_int(&t, 5, -2);
  pb m = model_of(t, 5);
  lb_model model;
  parse(&m, &model);
  const lb_tensor *w = model.graph->main->results[0]->info.data;
  assert_int_equal(w->dtype, LB_I8);
  assert_int_equal(*(int8_t *)w->data, -2);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void expect_bytes(pb tensor, lb_dtype dtype, size_t n,
                         const void *want) {
  pb m = model_of(tensor, 5);
  lb_model model;
  parse(&m, &model);
  const lb_tensor *w = model.graph->main->results[0]->info.data;
  assert_int_equal(w->dtype, dtype);
  assert_int_equal(lb_tensor_bytes(w), n);
  assert_memory_equal(w->data, want, n);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void four_bit_integers_become_bytes(void **state) {
  (void)state;
  enum { UINT4 = 21, INT4 = 22 };
  static const int64_t three = 3;
  pb u = pb_tensor("w", UINT4, 1, &three), i = pb_tensor("w", INT4, 1, &three);
  pb_raw(&u, 9, "\xf1\x08", 2);
  expect_bytes(u, LB_U8, 3, "\x01\x0f\x08");
  pb_int(&i, 5, 0xf1);
  pb_int(&i, 5, 8);
  expect_bytes(i, LB_I8, 3, "\x01\xff\xf8");
  u = pb_tensor("w", UINT4, 1, &three);
  pb_raw(&u, 9, "\1\2\3", 3);
  expect_error(model_of(u, 5), LB_INVALID,
               "tensor 'w': uint8 of dims [3] need 2 bytes, but it has 3");
}

static void bools_are_0_or_1(void **state) {
  (void)state;
  static const int64_t three = 3;
  pb t = pb_tensor("w", T_BOOL, 1, &three);
  pb_raw(&t, 9, "\0\xff\2", 3);
  expect_elements(t, " -> [0,1,1]");
}

static void empty_and_scalar_tensors_are_fine(void **state) {
  (void)state;
  static const int64_t dims[] = {0, 5};
  pb t = pb_tensor("w", T_FLOAT, 2, dims), s = pb_tensor("w", T_FLOAT, 0, NULL);
  expect_elements(t, " -> []");
  pb_raw(&s, 9, "\0\0\x80\x3f", 4);
  expect_elements(s, " -> 1");
}

static void wrong_sizes_are_named(void **state) {
  (void)state;
  static const int64_t dims[] = {2, 3}, huge[] = {INT64_MAX, 4}, minus = -1;
  pb t = pb_tensor("w", T_FLOAT, 2, dims);
  pb_raw(&t, 9, "01234567890123456789", 20);
  expect_error(model_of(t, 5), LB_INVALID,
               "tensor 'w': float32 of dims [2,3] need 24 bytes, but it has "
               "20");
  t = pb_tensor("w", T_INT64, 2, dims);
  pb_raw(&t, 7, "\1\2\3", 3);
  expect_error(model_of(t, 5), LB_INVALID,
               "tensor 'w': int64 of dims [2,3] need 6 elements, but it has 3");
  expect_error(model_of(pb_tensor("w", T_FLOAT, 2, huge), 5), LB_INVALID,
               "tensor 'w': dims [9223372036854775807,4]: too many elements to "
               "address");
  expect_error(model_of(pb_tensor("w", T_FLOAT, 1, &minus), 5), LB_INVALID,
               "tensor 'w': dims [-1]: dim 0 is negative");
}

static void unsupported_types_are_named(void **state) {
  (void)state;
  static const struct {
    int type;
    const char *name;
  } types[] = {{8, "string"},  {14, "complex64"},  {17, "float8e4m3fn"},
               {25, "uint2"},  {23, "float4e2m1"}, {26, "int2"},
               {99, "unknown"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char text[120];
    snprintf(text, sizeof text,
             "tensor 'w' has elements of type %s (%d), which Limber does not "
             "have",
             types[i].name, types[i].type);
    expect_error(model_of(pb_tensor("w", types[i].type, 0, NULL), 5),
                 LB_UNSUPPORTED, text);
  }
}

static pb sparse(int64_t size, int64_t n, const int64_t *at, const float *v) {
  pb s = {0};
  pb_msg(&s, 1, pb_floats("w", n, v));
  pb_msg(&s, 2, pb_int64s("", n, at));
  pb_int(&s, 3, size);
  return s;
}

static void sparse_tensors_become_dense(void **state) {
  (void)state;
  static const int64_t at[] = {1, 3}, outside[] = {1, 4};
  static const float v[] = {7, 8};
  expect_graph(model_of(sparse(4, 2, at, v), 15), " -> [0,7,0,8]");
  expect_error(model_of(sparse(4, 2, outside, v), 15), LB_INVALID,
               "sparse tensor 'w': index of element 1 is out of range");
  expect_error(model_of(sparse(INT64_C(1) << 40, 2, at, v), 15), LB_UNSUPPORTED,
               "sparse tensor 'w' would take 4398046511104 bytes; all sparse "
               "tensors together may take 268435456");
}

static void sparse_indices_may_have_one_column_per_dim(void **state) {
  (void)state;
  static const int64_t at[] = {0, 1, 1, 0}, dims[] = {2, 2};
  static const float v[] = {7, 8};
  pb s = {0}, i = pb_tensor("", T_INT64, 2, dims);
  pb_raw(&i, 9, at, sizeof at);
  pb_msg(&s, 1, pb_floats("w", 2, v));
  pb_msg(&s, 2, i);
  pb_raw(&s, 3, "\2\2", 2);
  expect_graph(model_of(s, 15), " -> [0,7,8,0]");
}

// -- external data -----------------------------------------------------------

static void entry(pb *t, const char *key, const char *value) {
  pb e = {0};
  pb_str(&e, 1, key);
  pb_str(&e, 2, value);
  pb_msg(t, 13, e);
}

static pb external(const char *file, const char *offset, const char *length) {
  static const int64_t two = 2;
  pb t = pb_tensor("w", T_FLOAT, 1, &two);
  entry(&t, "location", file);
  if (offset) entry(&t, "offset", offset);
  if (length) entry(&t, "length", length);
  pb_int(&t, 14, 1);
  return t;
}

static void expect_external(testdir *d, pb tensor, lb_code code,
                            const char *text) {
  pb m = model_of(tensor, 5);
  lb_model model;
  lb_status st = lb_onnx_parse(span_of(&m), d->path, NULL, &model);
  assert_int_equal(lb_status_code(st), code);
  if (!strstr(lb_status_message(st), text))
    assert_string_equal(lb_status_message(st), text);
  lb_status_drop(st);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
}

static void external_data_is_mapped_once(void **state) {
  (void)state;
  testdir d;
  assert_int_equal(testdir_init(&d), 0);
  testdir_write(&d, "w.bin", "....abcdefgh");
  pb g = pb_graph("", (pb){0}, "w,v");
  pb_msg(&g, 5, external("w.bin", "4", "8"));
  pb v = external("w.bin", NULL, NULL);
  pb_str(&v, 8, "v");
  pb_msg(&g, 5, v);
  pb m = pb_model(g, 13);
  lb_model model;
  expect_success(lb_onnx_parse(span_of(&m), d.path, NULL, &model));
  assert_int_equal(model.n_files, 1);
  lb_value **r = model.graph->main->results;
  assert_memory_equal(r[0]->info.data->data, "abcdefgh", 8);
  assert_ptr_equal((char *)r[1]->info.data->data + 4, r[0]->info.data->data);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
  testdir_fini(&d);
}

static void a_model_file_finds_its_data_beside_it(void **state) {
  (void)state;
  testdir d;
  assert_int_equal(testdir_init(&d), 0);
  testdir_write(&d, "w.bin", "abcdefgh");
  pb m = model_of(external("w.bin", NULL, NULL), 5);
  FILE *f = fopen(testdir_at(&d, "m.onnx"), "wb");
  fwrite(m.b.data, 1, m.b.len, f);
  fclose(f);
  lb_model model;
  expect_success(lb_onnx_load(testdir_at(&d, "m.onnx"), NULL, &model));
  assert_int_equal(model.n_files, 2);
  lb_model_fini(&model);
  lb_onnx_options o = {.copy_weights = true};
  expect_success(lb_onnx_load(testdir_at(&d, "m.onnx"), &o, &model));
  assert_int_equal(model.n_files, 0);
  assert_memory_equal(model.graph->main->results[0]->info.data->data,
                      "abcdefgh", 8);
  lb_model_fini(&model);
  lb_strbuf_fini(&m.b);
  testdir_fini(&d);
}

static void missing_external_data_is_named(void **state) {
  (void)state;
  testdir d;
  assert_int_equal(testdir_init(&d), 0);
  testdir_write(&d, "w.bin", "abcdefgh");
  expect_external(&d, external("w.bin", "4", NULL), LB_INVALID,
                  "tensor 'w': 'w.bin' is too short: it has 8 bytes, but 8 "
                  "at offset 4 are needed");
  expect_external(&d, external("w.bin", "9000000000000000000", NULL),
                  LB_INVALID, "is too short");
  expect_external(&d, external("w.bin", NULL, "4"), LB_INVALID,
                  "tensor 'w' needs 8 bytes, but the model gives it 4 bytes of "
                  "'w.bin'");
  expect_external(&d, external("w.bin", "-4", NULL), LB_INVALID,
                  "tensor 'w': '-4' is not a valid offset or length of "
                  "external data");
  expect_external(&d, external("../w.bin", NULL, NULL), LB_INVALID,
                  "refused to open '../w.bin'");
  expect_external(&d, external("/etc/passwd", NULL, NULL), LB_INVALID,
                  "refused to open '/etc/passwd'");
  expect_external(&d, external("gone.bin", NULL, NULL), LB_IO, "tensor 'w'");
  expect_error(
      model_of(external("w.bin", NULL, NULL), 5), LB_INVALID,
      "tensor 'w' is in the file 'w.bin', but a model loaded from bytes "
      "has no directory; specify the directory of its files");
  testdir_fini(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(raw_data_stays_where_it_is),
      cmocka_unit_test(packed_floats_stay_where_they_are),
      cmocka_unit_test(copied_weights_outlive_the_bytes),
      cmocka_unit_test(numbers_written_one_by_one_are_decoded),
      cmocka_unit_test(negative_int8_in_int32_data_keeps_its_bits),
      cmocka_unit_test(four_bit_integers_become_bytes),
      cmocka_unit_test(bools_are_0_or_1),
      cmocka_unit_test(empty_and_scalar_tensors_are_fine),
      cmocka_unit_test(wrong_sizes_are_named),
      cmocka_unit_test(unsupported_types_are_named),
      cmocka_unit_test(sparse_tensors_become_dense),
      cmocka_unit_test(sparse_indices_may_have_one_column_per_dim),
      cmocka_unit_test(external_data_is_mapped_once),
      cmocka_unit_test(a_model_file_finds_its_data_beside_it),
      cmocka_unit_test(missing_external_data_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
