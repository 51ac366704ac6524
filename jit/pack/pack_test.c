// pack/pack_test.c -- From samples to code that the library finds and runs.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "spec/target.h"
#include "pack/image.h"
#include "worker/jit.h"

enum { LANES = 8 };

static void ok(lb_status st) {
  if (!lb_failed(st)) return;
  print_error("%s\n", lb_status_message(st));
  lb_status_drop(st);
  fail();
}

static lb_pack_list list_of(const char *text, lb_dtype t) {
  lb_pack_list l = {0};
  ok(lb_pack_sample(&l, text, t, LANES));
  return l;
}

// Equal except for the layout of b.
static bool is_like(const lb_spec *a, const lb_spec *b) {
  lb_spec x = *a;
  x.in[1].layout = b->in[1].layout;
  return lb_spec_equal(&x, b);
}

// Weights in panels, plain and K2-interleaved.
static void a_chain_is_two_specs_with_every_tile(void **state) {
  (void)state;
  lb_pack_list l = list_of("MatMul x w; Add . c; Relu .", LB_F32);
  assert_in_range(lb_pack_list_count(&l), 2, 2 * LB_MAX_FACTS_OF);
  const lb_pack_item *first = lb_pack_list_at(&l, 0);
  int count[LB_LAYOUT_COUNT] = {0};
  for (size_t i = 0; i < lb_pack_list_count(&l); i++) {
    const lb_pack_item *x = lb_pack_list_at(&l, i);
    assert_int_equal(x->spec.form, LB_FORM_MATMUL);
    count[x->spec.in[1].layout]++;
    assert_true(is_like(&x->spec, &first->spec));
    for (int k = 0; k < LB_MAX_FACTS; k++)
      assert_int_not_equal(x->facts.list[k].kind, LB_ASSUME_MULTIPLE);
  }
  assert_true(count[LB_LAYOUT_PANEL] > 1 && count[LB_LAYOUT_PANEL_K2] > 1);
  assert_int_equal(count[LB_LAYOUT_PANEL] + count[LB_LAYOUT_PANEL_K2],
                   lb_pack_list_count(&l));
  lb_pack_list_fini(&l);
}

static int rows_of(const lb_facts *f) {
  return lb_facts_get(f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0);
}

// The tile for each size is in the list, or a similar one.
static void every_tile_is_covered(void **state) {
  (void)state;
  lb_pack_list l = list_of("MatMul x w; Add . c", LB_F32);
  bool other = false;
  for (int64_t rows = 1; rows < 40; rows++) {
    const lb_spec *spec = &lb_pack_list_at(&l, 0)->spec;
    lb_facts f = lb_facts_of(spec, LANES, (int64_t[LB_SDIMS]){rows, 384, 64});
    int best = 0;
    for (size_t i = 0; i < lb_pack_list_count(&l); i++) {
      int has = rows_of(&lb_pack_list_at(&l, i)->facts);
      if (has >= rows_of(&f) && (!best || has < best)) best = has;
    }
    assert_in_range(best, rows_of(&f), 2 * rows_of(&f));
    other = other || best != rows_of(&f);
  }
  assert_true(other);
  lb_pack_list_fini(&l);
}

static void row_reductions_have_code_for_any_columns_only(void **state) {
  (void)state;
  lb_pack_list l = list_of("Add x f; Softmax .", LB_F32);
  assert_int_equal(lb_pack_list_count(&l), 1);
  lb_facts none = {0};
  const lb_pack_item *x = lb_pack_list_at(&l, 0);
  assert_int_equal(x->spec.form, LB_FORM_ROW_REDUCE);
  assert_memory_equal(&x->facts, &none, sizeof none);
  lb_pack_list_fini(&l);
}

static void recurrences_have_a_matmul_and_gates(void **state) {
  (void)state;
  lb_pack_list l = list_of("LSTM[projected=1,hidden_size=1] s _ q", LB_F32);
  size_t n = lb_pack_list_count(&l);
  assert_true(n > 1);
  assert_int_equal(lb_pack_list_at(&l, 0)->spec.form, LB_FORM_MATMUL);
  assert_int_equal(lb_pack_list_at(&l, n - 1)->spec.form, LB_FORM_ELTWISE);
  assert_int_equal(lb_pack_list_at(&l, n - 1)->spec.n_out, 3);
  lb_pack_list_fini(&l);
}

static void operand_letters_select_layouts(void **state) {
  (void)state;
  static const struct {
    const char *text;
    lb_layout layout;
  } cases[] = {
      {"Add x f", LB_LAYOUT_FULL},      {"Add x t", LB_LAYOUT_STRIDED},
      {"Add x c", LB_LAYOUT_PER_COL},   {"Add x r", LB_LAYOUT_PER_ROW},
      {"Add x o", LB_LAYOUT_BROADCAST},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_pack_list l = list_of(cases[i].text, LB_F32);
    assert_int_equal(lb_pack_list_count(&l), 1);
    const lb_spec *s = &lb_pack_list_at(&l, 0)->spec;
    assert_int_equal(s->n_in, 2);
    assert_int_equal(s->in[1].layout, cases[i].layout);
    lb_pack_list_fini(&l);
  }
}

static void feature_maps_give_convolutions_and_windows(void **state) {
  (void)state;
  static const struct {
    const char *text;
    lb_form form;
    int n_in;
  } cases[] = {
      {"Conv[channels_last=1] p k", LB_FORM_CONV, 2},
      {"Conv[channels_last=1] p k c; Swish .; Add . f", LB_FORM_CONV, 4},
      {"Conv[channels_last=1,group=21] p d c; Relu .", LB_FORM_WINDOW, 3},
      {"MaxPool[channels_last=1,kernel_shape=1x1] p", LB_FORM_WINDOW, 1},
      {"ReduceMean x a0", LB_FORM_WINDOW, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_pack_list l = list_of(cases[i].text, LB_F32);
    assert_true(lb_pack_list_count(&l) > 0);
    const lb_spec *first = &lb_pack_list_at(&l, 0)->spec;
    assert_int_equal(first->form, cases[i].form);
    assert_int_equal(first->n_in, cases[i].n_in);
    for (size_t k = 1; k < lb_pack_list_count(&l); k++)
      assert_true(is_like(&lb_pack_list_at(&l, k)->spec, first));
    lb_pack_list_fini(&l);
  }
}

static void a_letter_with_a_digit_is_one_value(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int n_in;
  } cases[] = {{"Add x x", 1},   {"Add f f", 2},   {"Add f1 f1", 1},
               {"Add f1 f2", 2}, {"Add f1 t1", 2}, {"Add f1 f", 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_pack_list l = list_of(cases[i].text, LB_F32);
    assert_int_equal(lb_pack_list_count(&l), 1);
    assert_int_equal(lb_pack_list_at(&l, 0)->spec.n_in, cases[i].n_in);
    lb_pack_list_fini(&l);
  }
}

static void duplicates_are_not_added(void **state) {
  (void)state;
  lb_pack_list l = list_of("Exp x", LB_F32);
  ok(lb_pack_sample(&l, "Exp f", LB_F32, LANES));
  assert_int_equal(lb_pack_list_count(&l), 1);
  ok(lb_pack_sample(&l, "Exp t", LB_F32, LANES));
  assert_int_equal(lb_pack_list_count(&l), 2);
  lb_pack_list_fini(&l);
}

static void invalid_graphs_give_nothing(void **state) {
  (void)state;
  lb_pack_list l = list_of("Not x", LB_F32);
  ok(lb_pack_sample(&l, "MatMul x f", LB_F32, LANES));
  assert_int_equal(lb_pack_list_count(&l), 0);
  lb_status st = lb_pack_sample(&l, "NoSuch x", LB_F32, LANES);
  assert_int_equal(lb_status_code(st), LB_INVALID);
  lb_status_drop(st);
  lb_pack_list_fini(&l);
}

static void all_samples_are_valid(void **state) {
  (void)state;
  lb_pack_list l = {0};
  ok(lb_pack_samples(&l, 16));
  assert_in_range(lb_pack_list_count(&l), 200, 20000);
  lb_pack_list_fini(&l);
}

// -- code --------------------------------------------------------------------

// Compiles a whole list for x86-64-v3 into one image.
static void compile(const lb_pack_list *l, lb_pack_image *out) {
  lb_jit *jit;
  ok(lb_jit_new(NULL, &jit));
  for (size_t i = 0; i < lb_pack_list_count(l); i++) {
    const lb_pack_item *x = lb_pack_list_at(l, i);
    lb_request r;
    lb_blob object;
    lb_object_info info;
    ok(lb_request_init(&r, &x->spec, &x->facts, "x86-64-v3"));
    ok(lb_jit_compile(jit, &r, &object, &info));
    ok(lb_pack_image_add(out, x, lb_blob_span(&object)));
    lb_blob_fini(&object);
  }
  lb_jit_free(jit);
}

// The image as the linker would lay it out: index, then code.
static lb_pack *link_image(lb_pack_image *image, size_t *size) {
  lb_strbuf bytes = {0};
  ok(lb_pack_image_index(image, &bytes));
  while (bytes.len % 64) lb_strbuf_putc(&bytes, 0);
  int32_t code = (int32_t)bytes.len;
  lb_strbuf_putn(&bytes, image->code.data, image->code.len);
  *size = bytes.len;
  lb_pack *p = mmap(NULL, *size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED);
  memcpy(p, bytes.data, bytes.len);
  p->code = code;
  assert_int_equal(mprotect(p, *size, PROT_READ | PROT_EXEC), 0);
  lb_strbuf_fini(&bytes);
  return p;
}

static void kernels_are_found_and_run(void **state) {
  (void)state;
  if (lb_target_host().level < LB_LEVEL_V3) skip();
  lb_pack_image image = {0};
  lb_pack_list l = list_of("Relu x", LB_F32);
  ok(lb_pack_sample(&l, "Neg x", LB_F32, LANES));
  ok(lb_pack_sample(&l, "Abs x", LB_F32, LANES));
  compile(&l, &image);
  size_t size;
  lb_pack *p = link_image(&image, &size);
  static const float want[][3] = {{0, 2, 0}, {1, -2, 3}, {1, 2, 3}};
  for (size_t i = 0; i < 3; i++) {
    const lb_spec *s = &lb_pack_list_at(&l, i)->spec;
    float in[3] = {-1, 2, -3}, out[3] = {9, 9, 9};
    uint64_t args[LB_SPEC_MAX_ARGS] = {
        (uintptr_t)out, (uintptr_t)in, 1, 3, 3, 1, 3, 1};
    lb_kernel_fn *k = lb_pack_find(p, s, &(lb_facts){0});
    assert_true(k != NULL);
    k(args);
    assert_memory_equal(out, want[i], sizeof out);
  }
  munmap(p, size);
  lb_pack_image_fini(&image);
  lb_pack_list_fini(&l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chain_is_two_specs_with_every_tile),
      cmocka_unit_test(every_tile_is_covered),
      cmocka_unit_test(row_reductions_have_code_for_any_columns_only),
      cmocka_unit_test(recurrences_have_a_matmul_and_gates),
      cmocka_unit_test(operand_letters_select_layouts),
      cmocka_unit_test(feature_maps_give_convolutions_and_windows),
      cmocka_unit_test(a_letter_with_a_digit_is_one_value),
      cmocka_unit_test(duplicates_are_not_added),
      cmocka_unit_test(invalid_graphs_give_nothing),
      cmocka_unit_test(all_samples_are_valid),
      cmocka_unit_test(kernels_are_found_and_run),
  };
  return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
