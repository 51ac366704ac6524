// compile/kernel_store_test.c
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "base/testdir.h"
#include "compile/kernel_store.h"

static testdir dir;
static lb_store *store;

static int set_up(void **state) {
  (void)state;
  if (testdir_init(&dir)) return -1;
  lb_store_options o = {.directory = testdir_at(&dir, "store")};
  lb_status st = lb_store_new(&o, &store);
  return lb_failed(st) ? -1 : 0;
}

static int tear_down(void **state) {
  (void)state;
  lb_store_free(store);
  testdir_fini(&dir);
  return 0;
}

static const lb_span object = {(const uint8_t *)"OBJECT", 6};
static const lb_object_info info = {
    .generator = 7, .abi = LB_KERNEL_ABI, .entry = "kernel", .target = "any"};

static lb_request request_of(const lb_facts *facts, const char *target) {
  lb_spec_builder b;
  lb_spec spec;
  lb_request r;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_EXP, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &spec)));
  assert_false(lb_failed(lb_request_init(&r, &spec, facts, target)));
  return r;
}

static bool found(const lb_request *r, uint64_t generator) {
  lb_stored_kernel stored;
  bool hit = lb_kernel_store_get(store, r, generator, &stored);
  if (hit) {
    assert_int_equal(stored.object.size, object.size);
    assert_memory_equal(stored.object.data, object.data, object.size);
    assert_memory_equal(&stored.info, &info, sizeof info);
  } else {
    assert_null(stored.object.data);
  }
  lb_stored_kernel_fini(&stored);
  return hit;
}

static void a_kernel_is_found_by_its_full_request_only(void **state) {
  (void)state;
  lb_facts none = {0}, some = {0};
  lb_facts_add(&some, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  lb_request r = request_of(&none, "x86-64-v3");
  lb_request wider = request_of(&none, "x86-64-v4");
  lb_request tiled = request_of(&some, "x86-64-v3");
  assert_false(found(&r, 7));
  assert_false(lb_failed(lb_kernel_store_put(store, &r, &info, object)));
  assert_true(found(&r, 7));
  assert_false(found(&r, 8));
  assert_false(found(&wider, 7));
  assert_false(found(&tiled, 7));
}

static void an_object_with_another_abi_is_not_found(void **state) {
  (void)state;
  lb_request r = request_of(&(lb_facts){0}, "x86-64-v3");
  lb_object_info other = info;
  other.abi++;
  assert_false(lb_failed(lb_kernel_store_put(store, &r, &other, object)));
  assert_false(found(&r, 7));
  other = info;
  memset(other.entry, 'x', sizeof other.entry);
  assert_false(lb_failed(lb_kernel_store_put(store, &r, &other, object)));
  assert_false(found(&r, 7));
}

typedef struct seen {
  int n;
  char form[16], spec[200], assume[50], target[50];
  bool reusable;
} seen;

// Asserts nothing: the store is locked meanwhile.
static bool note_texts(void *user, const lb_store_entry *e) {
  seen *x = user;
  x->n++;
  x->reusable = e->reusable;
  snprintf(x->form, sizeof x->form, "%s", e->form);
  snprintf(x->spec, sizeof x->spec, "%s", e->spec);
  snprintf(x->assume, sizeof x->assume, "%s", e->assume);
  snprintf(x->target, sizeof x->target, "%s", e->target);
  return true;
}

static void entry_texts_describe_the_kernel(void **state) {
  (void)state;
  lb_facts facts = {0};
  seen x = {0};
  lb_facts_add(&facts, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  lb_facts_add(&facts, LB_ASSUME_AT_MOST, LB_DIM_COLS, 128);
  lb_facts_add(&facts, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 64);
  lb_request r = request_of(&facts, "x86-64-v3");
  assert_false(lb_failed(lb_kernel_store_put(store, &r, &info, object)));
  assert_false(lb_failed(lb_store_each(store, note_texts, &x)));
  assert_int_equal(x.n, 1);
  assert_string_equal(x.form, "eltwise");
  assert_non_null(strstr(x.spec, "exp"));
  assert_non_null(strstr(x.spec, "| rows:6"));
  assert_string_equal(x.assume, "cols%64 cols<=128");
  assert_string_equal(x.target, "x86-64-v3");
  assert_false(x.reusable);
}

static void without_a_store_nothing_is_stored(void **state) {
  (void)state;
  lb_stored_kernel stored;
  lb_request r = request_of(&(lb_facts){0}, "x86-64-v3");
  assert_false(lb_failed(lb_kernel_store_put(NULL, &r, &info, object)));
  assert_false(lb_kernel_store_get(NULL, &r, 7, &stored));
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      T(a_kernel_is_found_by_its_full_request_only),
      T(an_object_with_another_abi_is_not_found),
      T(entry_texts_describe_the_kernel),
      T(without_a_store_nothing_is_stored),
  };
  return cmocka_run_group_tests_name("kernel_store", tests, NULL, NULL);
}
