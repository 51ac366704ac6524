// primitive/key_test.c -- tests that the key covers every field of a descriptor
// and its attributes.
//
// The tests change one word of the structs after the other, whichever field it
// belongs to, so that a field added later is covered without a change here.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

#include "primitive/fields.h"

#define MAX_KEYS 1024

typedef struct key_bytes {
  size_t size;
  uint8_t bytes[LB_KEY_MAX];
} key_bytes;

typedef struct fixture {
  limber_primitive_desc desc;
  limber_attr attr;
  float weights[4];
  key_bytes *keys;
  size_t n_keys;
} fixture;

static void fill_operand(limber_operand *o) {
  o->dtype = LIMBER_F32;
  o->layout = LIMBER_LAYOUT_ROW_MAJOR;
  o->rank = LIMBER_MAX_RANK - 1;  // one more is still within dims
  for (int i = 0; i < LIMBER_MAX_RANK; i++) o->dims[i] = 2;
}

// All operands are present and have almost the maximum rank, and so has the
// operand of each post-operation, so that every word is in use.
static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  if (!f) return -1;
  f->desc.size = sizeof f->desc;
  f->desc.kind = LIMBER_CONCAT;
  for (int i = 0; i < LIMBER_MAX_OPERANDS; i++) fill_operand(&f->desc.in[i]);
  f->attr.n_post = 2;
  for (uint32_t i = 0; i < f->attr.n_post; i++) {
    f->attr.post[i] = (lb_post){.kind = LB_POST_BINARY, .alg = LIMBER_ALG_ADD};
    fill_operand(&f->attr.post[i].in);
  }
  f->keys = calloc(MAX_KEYS, sizeof *f->keys);
  *state = f;
  return f->keys ? 0 : -1;
}

static int teardown(void **state) {
  fixture *f = *state;
  free(f->keys);
  free(f);
  return 0;
}

static bool equal(const key_bytes *a, const key_bytes *b) {
  return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

// Adds the current key of the fixture, which must be new.
static void expect_new_key(fixture *f, const char *what, size_t at) {
  key_bytes *k = &f->keys[f->n_keys];
  assert_true(f->n_keys < MAX_KEYS);
  k->size = lb_desc_key(&(lb_desc){&f->desc, &f->attr}, k->bytes);
  assert_true(k->size <= LB_KEY_MAX);
  for (size_t i = 0; i < f->n_keys; i++) {
    if (!equal(&f->keys[i], k)) continue;
    print_error("%s, byte %zu: its key is also the key of change %zu\n", what,
                at, i);
    fail();
  }
  f->n_keys++;
}

// Words of an operand that are not in the key: `reserved` must be 0, `data` is
// a pointer, and the last dim is beyond the rank.
static bool is_part_of_key(size_t in_operand) {
  return in_operand / 4 != offsetof(limber_operand, reserved) / 4 &&
         in_operand < offsetof(limber_operand, dims[LIMBER_MAX_RANK - 1]);
}

// Changes and restores every word of `size` bytes at `base`. Operands begin at
// `operands` and are `stride` bytes apart.
static void change_words(fixture *f, const char *what, void *base, size_t size,
                         size_t operands, size_t n, size_t stride) {
  for (size_t at = 0; at < size; at += sizeof(uint32_t)) {
    uint32_t old, changed;
    size_t behind = at - operands;
    bool inside = at >= operands && behind < n * stride &&
                  behind % stride < sizeof(limber_operand);
    if (inside && !is_part_of_key(behind % stride)) continue;
    memcpy(&old, (char *)base + at, sizeof old);
    changed = old + 1;
    memcpy((char *)base + at, &changed, sizeof changed);
    expect_new_key(f, what, at);
    memcpy((char *)base + at, &old, sizeof old);
  }
}

static void each_word_of_a_descriptor_is_in_the_key(void **state) {
  fixture *f = *state;
  size_t from = offsetof(limber_primitive_desc, kind);
  expect_new_key(f, "unchanged", 0);
  change_words(f, "limber_primitive_desc from `kind` on", &f->desc.kind,
               sizeof f->desc - from,
               offsetof(limber_primitive_desc, in) - from, LIMBER_MAX_OPERANDS,
               sizeof(limber_operand));
}

// There may be padding after n_post, the last field before the
// post-operations.
static void each_word_of_the_attributes_is_in_the_key(void **state) {
  fixture *f = *state;
  expect_new_key(f, "unchanged", 0);
  change_words(f, "limber_attr up to its post-operations", &f->attr,
               offsetof(limber_attr, n_post) + sizeof f->attr.n_post,
               sizeof f->attr, 0, 1);
  change_words(f, "limber_attr.post", f->attr.post,
               f->attr.n_post * sizeof(lb_post), offsetof(lb_post, in),
               f->attr.n_post, sizeof(lb_post));
}

// The scale of a sum and the parameters of an eltwise post-operation are in the
// key too, with or without an operand.
static void parameters_of_every_post_operation_are_in_the_key(void **state) {
  fixture *f = *state;
  for (int kind = LB_POST_ELTWISE; kind <= LB_POST_SUM; kind++) {
    f->attr.post[1] = (lb_post){.kind = kind, .alg = LIMBER_ALG_CLIP};
    expect_new_key(f, "kind", (size_t)kind);
    f->attr.post[1].alpha = 2;
    expect_new_key(f, "alpha of kind", (size_t)kind);
    f->attr.post[1].beta = 3;
    expect_new_key(f, "beta of kind", (size_t)kind);
  }
}

static void elements_of_constants_are_in_the_key(void **state) {
  fixture *f = *state;
  limber_operand *constants[] = {&f->desc.in[1], &f->attr.post[1].in};
  expect_new_key(f, "no constant", 0);
  for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
    constants[i]->rank = 1;
    constants[i]->dims[0] = 4;
    expect_new_key(f, "not constant", i);
    constants[i]->data = f->weights;
    for (size_t byte = 0; byte < sizeof f->weights; byte++) {
      ((uint8_t *)f->weights)[byte] ^= 1;
      expect_new_key(f, "constant", byte);
      ((uint8_t *)f->weights)[byte] ^= 1;
    }
    expect_new_key(f, "constant", sizeof f->weights);
  }
}

// Equal descriptors have equal keys, wherever their constants are in memory.
static void equal_descriptors_have_equal_keys(void **state) {
  fixture *f = *state;
  const float copy[4] = {0};
  key_bytes a, b;
  f->desc.in[1].rank = 1;
  f->desc.in[1].dims[0] = 4;
  f->desc.in[1].data = f->weights;
  a.size = lb_desc_key(&(lb_desc){&f->desc, &f->attr}, a.bytes);
  f->desc.in[1].data = copy;
  for (int i = 1; i < LIMBER_MAX_RANK; i++) f->desc.in[1].dims[i] = 7;
  b.size = lb_desc_key(&(lb_desc){&f->desc, &f->attr}, b.bytes);
  assert_true(equal(&a, &b));
}

// The text that users see names each field that is set.
static void each_field_is_in_the_text(void **state) {
  fixture *f = *state;
  for (int i = 0; i < LB_DESC_FIELD_COUNT; i++) {
    const lb_desc_field_info *info = &lb_desc_field_infos[i];
    limber_primitive_desc d = f->desc;
    lb_strbuf text = {0};
    char name[40] = " ";
    if (i == LB_DESC_FIELD_N_AXES) continue;
    d.n_axes = i == LB_DESC_FIELD_AXES;
    if (info->type == LB_I64) {
      memcpy((char *)&d + info->offset, &(int64_t){1}, sizeof(int64_t));
    } else {  // the bits are not 0 as a float either
      memcpy((char *)&d + info->offset, &(int32_t){1}, sizeof(int32_t));
    }
    lb_desc_print(&(lb_desc){&d, &f->attr}, &text);
    strcat(strcat(name, info->name), "=");
    if (!strstr(lb_strbuf_str(&text), name))
      print_error("no%s in '%s'\n", name, lb_strbuf_str(&text));
    assert_non_null(strstr(lb_strbuf_str(&text), name));
    lb_strbuf_fini(&text);
  }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(each_word_of_a_descriptor_is_in_the_key),
      TEST(each_word_of_the_attributes_is_in_the_key),
      TEST(parameters_of_every_post_operation_are_in_the_key),
      TEST(elements_of_constants_are_in_the_key),
      TEST(equal_descriptors_have_equal_keys),
      TEST(each_field_is_in_the_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
