// device/cpu/pack_test.c -- the best valid kernel of a pack is found.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "device/cpu/pack.h"

#include <string.h>

enum { MAX = 8 };

// A pack built by hand. Its code is a row of bytes: the address of a kernel
// says which one it is.
typedef struct fixture {
  struct {
    lb_pack header;
    lb_pack_entry entries[MAX];
    lb_spec specs[MAX];
  } bytes;
  uint8_t code[MAX];
} fixture;
_Static_assert(offsetof(fixture, bytes.entries) == sizeof(lb_pack),
               "entries follow the header");

static lb_spec spec_of(lb_sop op) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, op, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &s)));
  return s;
}

static void begin(fixture *f) {
  memset(f, 0, sizeof *f);
  f->bytes.header.magic = LB_PACK_MAGIC;
  f->bytes.header.code = (int32_t)(f->code - (uint8_t *)&f->bytes);
}

// Entries are sorted by hash: the new one goes before the first greater one.
static void add(fixture *f, lb_sop op, lb_facts facts) {
  uint32_t n = f->bytes.header.n++, at = n;
  lb_spec s = spec_of(op);
  uint64_t hash = lb_hash(&s, lb_spec_bytes(&s));
  for (; at > 0 && f->bytes.entries[at - 1].hash > hash; at--)
    f->bytes.entries[at] = f->bytes.entries[at - 1];
  f->bytes.specs[n] = s;
  f->bytes.entries[at] = (lb_pack_entry){
      .hash = hash,
      .spec = (uint32_t)((uint8_t *)&f->bytes.specs[n] - (uint8_t *)&f->bytes),
      .code = n,
      .facts = facts};
}

// Returns the number of the kernel found, in order of adding; -1: none.
static int find(fixture *f, lb_sop op, lb_facts facts) {
  lb_spec s = spec_of(op);
  lb_kernel_fn *k = lb_pack_find(&f->bytes.header, &s, &facts);
  return k ? (int)((uintptr_t)k - (uintptr_t)f->code) : -1;
}

static lb_facts tile(uint16_t rows) {
  lb_facts f = {0};
  lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS, rows);
  return f;
}

static lb_facts multiple(lb_facts f, uint16_t of) {
  lb_facts_add(&f, LB_ASSUME_MULTIPLE, LB_DIM_COLS, of);
  return f;
}

static const lb_facts none = {0};

static void a_kernel_is_found_by_its_spec(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  assert_int_equal(find(&f, LB_S_EXP, none), -1);
  add(&f, LB_S_EXP, none);
  add(&f, LB_S_LOG, none);
  add(&f, LB_S_SQRT, none);
  assert_int_equal(find(&f, LB_S_EXP, none), 0);
  assert_int_equal(find(&f, LB_S_LOG, none), 1);
  assert_int_equal(find(&f, LB_S_SQRT, none), 2);
  assert_int_equal(find(&f, LB_S_TANH, none), -1);
}

static void a_hash_collision_is_not_a_match(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  add(&f, LB_S_EXP, none);
  f.bytes.specs[0] = spec_of(LB_S_LOG);
  assert_int_equal(find(&f, LB_S_EXP, none), -1);
}

static void kernels_assume_only_known_facts(void **state) {
  (void)state;
  fixture f;
  lb_facts equal = {0};
  lb_facts_add(&equal, LB_ASSUME_EQUAL, LB_DIM_COLS, 128);
  begin(&f);
  add(&f, LB_S_EXP, multiple(none, 64));
  assert_int_equal(find(&f, LB_S_EXP, none), -1);
  assert_int_equal(find(&f, LB_S_EXP, multiple(none, 32)), -1);
  assert_int_equal(find(&f, LB_S_EXP, multiple(none, 128)), 0);
  assert_int_equal(find(&f, LB_S_EXP, equal), 0);
  begin(&f);
  add(&f, LB_S_EXP, equal);
  assert_int_equal(find(&f, LB_S_EXP, multiple(none, 128)), -1);
  assert_int_equal(find(&f, LB_S_EXP, equal), 0);
}

static void smaller_bounds_imply_larger_ones(void **state) {
  (void)state;
  fixture f;
  lb_facts at_most[3] = {0}, equal = {0};
  for (int i = 0; i < 3; i++)
    lb_facts_add(&at_most[i], LB_ASSUME_AT_MOST, LB_DIM_K, (uint16_t)(32 << i));
  lb_facts_add(&equal, LB_ASSUME_EQUAL, LB_DIM_K, 48);
  begin(&f);
  add(&f, LB_S_EXP, at_most[1]);
  assert_int_equal(find(&f, LB_S_EXP, none), -1);
  assert_int_equal(find(&f, LB_S_EXP, at_most[0]), 0);
  assert_int_equal(find(&f, LB_S_EXP, at_most[1]), 0);
  assert_int_equal(find(&f, LB_S_EXP, at_most[2]), -1);
  assert_int_equal(find(&f, LB_S_EXP, equal), 0);
}

static void the_nearest_valid_kernel_is_chosen(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  add(&f, LB_S_EXP, tile(1));
  add(&f, LB_S_EXP, tile(6));
  add(&f, LB_S_EXP, multiple(tile(6), 64));
  add(&f, LB_S_EXP, multiple(tile(1), 64));
  assert_int_equal(find(&f, LB_S_EXP, tile(1)), 0);
  assert_int_equal(find(&f, LB_S_EXP, tile(5)), 1);
  assert_int_equal(find(&f, LB_S_EXP, multiple(tile(7), 64)), 2);
  assert_int_equal(find(&f, LB_S_EXP, multiple(tile(2), 64)), 3);
  assert_int_equal(find(&f, LB_S_EXP, multiple(tile(2), 16)), 0);
}

static void the_larger_of_two_equally_near_tiles_is_chosen(void **state) {
  (void)state;
  fixture f;
  begin(&f);
  add(&f, LB_S_EXP, tile(7));
  add(&f, LB_S_EXP, tile(9));
  assert_int_equal(find(&f, LB_S_EXP, tile(7)), 0);
  assert_int_equal(find(&f, LB_S_EXP, tile(8)), 1);
  assert_int_equal(find(&f, LB_S_EXP, tile(2)), 0);
  begin(&f);
  add(&f, LB_S_EXP, tile(9));
  add(&f, LB_S_EXP, tile(7));
  assert_int_equal(find(&f, LB_S_EXP, tile(8)), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_kernel_is_found_by_its_spec),
      cmocka_unit_test(a_hash_collision_is_not_a_match),
      cmocka_unit_test(kernels_assume_only_known_facts),
      cmocka_unit_test(smaller_bounds_imply_larger_ones),
      cmocka_unit_test(the_nearest_valid_kernel_is_chosen),
      cmocka_unit_test(the_larger_of_two_equally_near_tiles_is_chosen),
  };
  return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
