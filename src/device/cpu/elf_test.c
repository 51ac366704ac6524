// device/cpu/elf_test.c -- valid objects are laid out and relocated as the
// format says; all others are rejected.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "device/cpu/elf.h"
#include "device/cpu/testobject.h"

#define RUN UINT64_C(0x7F1234567000)

static uint64_t u64_at(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

static int32_t i32_at(const uint8_t *p) {
  int32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

// Parses and links into memory of just the right size; the caller frees it.
static lb_status load(lb_span object, uint64_t run, lb_elf *elf,
                      uint8_t **image) {
  *image = NULL;
  LB_TRY(lb_elf_parse(object, elf));
  *image = malloc(elf->size);
  assert_non_null(*image);
  return lb_elf_link(elf, *image, run);
}

static void assert_refused(lb_span object, lb_code code, const char *because) {
  lb_elf elf;
  uint8_t *image;
  lb_status st = load(object, RUN, &elf, &image);
  free(image);
  assert_int_equal(lb_status_code(st), code);
  if (!strstr(lb_status_message(st), because))
    fail_msg("'%s' does not say '%s'", lb_status_message(st), because);
  lb_status_drop(st);
}

static void assert_loads(lb_span object, lb_elf *elf, uint8_t **image) {
  lb_status st = load(object, RUN, elf, image);
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
}

// 32 bytes of code and 16 of constants, aligned to 32, with a symbol each.
typedef struct pair {
  testobject o;
  int text, data;  // sections
  int f, c;        // symbols: code at 4, constants at 8
} pair;

static void pair_init(pair *p) {
  uint8_t code[32], constants[16];
  memset(code, 0x90, sizeof code);
  memset(constants, 0x11, sizeof constants);
  testobject_init(&p->o);
  p->text = testobject_section(&p->o, ".text", SHF_EXECINSTR, 16, code, 20);
  p->data = testobject_section(&p->o, ".rodata", 0, 32, constants, 16);
  p->f = testobject_symbol(&p->o, "f", STT_FUNC, p->text, 4, 10);
  p->c = testobject_symbol(&p->o, "c", STT_OBJECT, p->data, 8, 8);
}

static void sections_are_aligned_in_one_image(void **state) {
  (void)state;
  pair p;
  lb_elf elf;
  lb_elf_symbol s;
  uint8_t *image;
  pair_init(&p);
  assert_loads(testobject_bytes(&p.o), &elf, &image);
  assert_int_equal(elf.size, 48);
  assert_int_equal(image[19], 0x90);
  assert_int_equal(image[20], 0xCC);
  assert_int_equal(image[32], 0x11);
  assert_true(lb_elf_find(&elf, "f", &s));
  assert_int_equal(s.offset, 4);
  assert_int_equal(s.size, 10);
  assert_true(s.code);
  assert_true(lb_elf_find(&elf, "c", &s));
  assert_int_equal(s.offset, 40);
  assert_false(s.code);
  assert_false(lb_elf_find(&elf, "g", &s));
  free(image);
}

static void relocations_hold_the_address_of_their_target(void **state) {
  (void)state;
  pair p;
  lb_elf elf;
  uint8_t *image;
  pair_init(&p);
  testobject_rela(&p.o, p.text, 0, R_X86_64_64, p.c, 3);
  testobject_rela(&p.o, p.text, 8, R_X86_64_PC32, p.c, -4);
  testobject_rela(&p.o, p.text, 12, R_X86_64_PLT32, p.f, -4);
  testobject_rela(&p.o, p.text, 16, R_X86_64_NONE, 0, 0);
  assert_loads(testobject_bytes(&p.o), &elf, &image);
  assert_int_equal(u64_at(image), RUN + 40 + 3);
  assert_int_equal(i32_at(image + 8), 40 - 4 - 8);
  assert_int_equal(i32_at(image + 12), 4 - 4 - 12);
  assert_int_equal(image[16], 0x90);
  free(image);
}

static void loads_and_calls_through_a_got_become_direct(void **state) {
  (void)state;
  static const struct {
    uint8_t from[3], to[3];
    uint32_t type;
  } forms[] = {
      {{0x48, 0x8B, 0x05}, {0x48, 0x8D, 0x05}, R_X86_64_REX_GOTPCRELX},
      {{0x4C, 0x8B, 0x3D}, {0x4C, 0x8D, 0x3D}, R_X86_64_REX_GOTPCRELX},
      {{0x90, 0xFF, 0x15}, {0x90, 0x67, 0xE8}, R_X86_64_GOTPCRELX},
      {{0x90, 0xFF, 0x25}, {0x90, 0x90, 0xE9}, R_X86_64_GOTPCRELX},
  };
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    pair p;
    lb_elf elf;
    uint8_t *image;
    pair_init(&p);
    memcpy(p.o.bytes + p.o.sections[p.text].sh_offset, forms[i].from, 3);
    testobject_rela(&p.o, p.text, 3, forms[i].type, p.c, -4);
    assert_loads(testobject_bytes(&p.o), &elf, &image);
    assert_memory_equal(image, forms[i].to, 3);
    assert_int_equal(i32_at(image + 3), 40 - 4 - 3);
    free(image);
  }
}

static void other_uses_of_a_got_are_refused(void **state) {
  (void)state;
  for (uint64_t at = 1; at < 4; at += 2) {  // no space for an instruction; nops
    pair p;
    pair_init(&p);
    testobject_rela(&p.o, p.text, at, R_X86_64_REX_GOTPCRELX, p.c, -4);
    lb_code code = at < 2 ? LB_INVALID : LB_UNSUPPORTED;
    assert_refused(testobject_bytes(&p.o), code, at < 2 ? "no instr" : "GOT");
  }
  pair p;
  pair_init(&p);
  testobject_rela(&p.o, p.text, 4, R_X86_64_GOTPCREL, p.c, -4);
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, "type 9");
}

static void absolute_32_bit_addresses_must_be_in_range(void **state) {
  (void)state;
  static const struct {
    uint32_t type;
    uint64_t run;
    bool fits;
  } cases[] = {
      {R_X86_64_32, 0x80000000, true},
      {R_X86_64_32, 0x100000000, false},
      {R_X86_64_32S, 0x70000000, true},
      {R_X86_64_32S, 0x80000000, false},
      {R_X86_64_32S, UINT64_C(0xFFFFFFFF80000000), true},
      {R_X86_64_32, UINT64_C(0xFFFFFFFF80000000), false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pair p;
    lb_elf elf;
    uint8_t *image;
    pair_init(&p);
    testobject_rela(&p.o, p.text, 4, cases[i].type, p.f, 0);
    lb_status st = load(testobject_bytes(&p.o), cases[i].run, &elf, &image);
    assert_int_equal(lb_status_code(st),
                     cases[i].fits ? LB_CODE_OK : LB_UNSUPPORTED);
    if (cases[i].fits)
      assert_int_equal((uint32_t)i32_at(image + 4), (uint32_t)cases[i].run + 4);
    lb_status_drop(st);
    free(image);
  }
}

static void relocations_outside_their_section_are_refused(void **state) {
  (void)state;
  static const struct {
    uint64_t at;
    uint32_t type;
  } cases[] = {{17, R_X86_64_PC32},       {20, R_X86_64_PC32},
               {13, R_X86_64_64},         {21, R_X86_64_64},
               {UINT64_MAX, R_X86_64_64}, {UINT64_MAX - 3, R_X86_64_PC32}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pair p;
    pair_init(&p);
    testobject_rela(&p.o, p.text, cases[i].at, cases[i].type, p.c, 0);
    assert_refused(testobject_bytes(&p.o), LB_INVALID,
                   "is outside its section");
  }
}

static void relocations_need_a_target_in_reach(void **state) {
  (void)state;
  pair p;
  pair_init(&p);
  testobject_rela(&p.o, p.text, 4, R_X86_64_PC32, p.c, INT64_C(1) << 31);
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "does not reach");
  pair_init(&p);
  testobject_rela(&p.o, p.text, 4, R_X86_64_PC32, 99, 0);
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "no symbol");
  pair_init(&p);
  testobject_rela(&p.o, p.text, 4, R_X86_64_PC32, 0, 0);
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "no symbol");
  pair_init(&p);
  p.o.symbols[p.c].st_value = 17;
  testobject_rela(&p.o, p.text, 4, R_X86_64_PC32, p.c, 0);
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "outside its section");
  pair_init(&p);
  p.o.symbols[p.c].st_shndx = SHN_ABS;
  testobject_rela(&p.o, p.text, 4, R_X86_64_PC32, p.c, 0);
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, "not loaded");
}

static void undefined_symbols_are_refused_by_name(void **state) {
  (void)state;
  pair p;
  pair_init(&p);
  testobject_symbol(&p.o, "memcpy", STT_NOTYPE, SHN_UNDEF, 0, 0);
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED,
                 "undefined symbol 'memcpy'");
  pair_init(&p);
  testobject_symbol(&p.o, "counter", STT_OBJECT, SHN_COMMON, 8, 8);
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, "counter");
  pair_init(&p);
  testobject_symbol(&p.o, "pick", STT_GNU_IFUNC, p.text, 0, 8);
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, "pick");
  pair_init(&p);
  testobject_symbol(&p.o, "far", STT_FUNC, 40, 0, 8);
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "invalid section index");
}

static void sections_that_are_not_code_or_constants_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint32_t type;
    uint64_t flags, align;
  } cases[] = {
      {".data", SHT_PROGBITS, SHF_WRITE, 8},
      {".bss", SHT_NOBITS, SHF_WRITE, 8},
      {".tdata", SHT_PROGBITS, SHF_TLS, 8},
      {".init_array", SHT_INIT_ARRAY, 0, 8},
      {".packed", SHT_PROGBITS, SHF_COMPRESSED, 8},
      {".data.rel.ro", SHT_PROGBITS, SHF_WRITE | SHF_EXECINSTR, 8},
      {".wide", SHT_PROGBITS, 0, 128},
      {".odd", SHT_PROGBITS, 0, 24},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pair p;
    pair_init(&p);
    int s = testobject_section(&p.o, cases[i].name, cases[i].flags,
                               cases[i].align, "12345678", 8);
    p.o.sections[s].sh_type = cases[i].type;
    assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, cases[i].name);
  }
}

static void constants_with_addresses_are_loaded_and_unwind_tables_are_not(
    void **state) {
  (void)state;
  pair p;
  lb_elf elf;
  uint8_t *image;
  pair_init(&p);
  int frame = testobject_section(&p.o, ".eh_frame", 0, 8, "12345678", 8);
  int unwind = testobject_section(&p.o, ".unwind", 0, 8, "12345678", 8);
  p.o.sections[unwind].sh_type = 0x70000001;
  int note = testobject_section(&p.o, ".note", 0, 8, "12345678", 8);
  p.o.sections[note].sh_type = SHT_NOTE;
  testobject_section(&p.o, ".data", SHF_WRITE, 8, NULL, 0);
  testobject_section(&p.o, ".data.rel.ro.local", SHF_WRITE, 8, "abcdefgh", 8);
  testobject_rela(&p.o, frame, 1000, R_X86_64_PC32, 1000, 0);  // ignored
  assert_loads(testobject_bytes(&p.o), &elf, &image);
  assert_int_equal(elf.size, 56);
  assert_memory_equal(image + 48, "abcdefgh", 8);
  free(image);
}

static void symbols_reach_no_further_than_their_section(void **state) {
  (void)state;
  pair p;
  lb_elf elf;
  lb_elf_symbol s;
  uint8_t *image;
  pair_init(&p);
  testobject_symbol(&p.o, "end", STT_FUNC, p.text, 20, 0);
  testobject_symbol(&p.o, "long", STT_FUNC, p.text, 12, 9);
  testobject_symbol(&p.o, "wrap", STT_FUNC, p.text, 12, UINT64_MAX - 3);
  testobject_symbol(&p.o, "file.c", STT_FILE, SHN_ABS, 0, 0);
  assert_loads(testobject_bytes(&p.o), &elf, &image);
  assert_false(lb_elf_find(&elf, "end", &s));
  assert_false(lb_elf_find(&elf, "long", &s));
  assert_false(lb_elf_find(&elf, "wrap", &s));
  assert_false(lb_elf_find(&elf, "file.c", &s));
  free(image);
}

static void other_files_are_refused(void **state) {
  (void)state;
  pair p;
  assert_refused((lb_span){(const uint8_t *)"", 0}, LB_INVALID, "0 bytes");
  pair_init(&p);
  p.o.header.e_ident[1] = 'e';
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "not an ELF");
  pair_init(&p);
  p.o.header.e_machine = EM_AARCH64;
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, "x86-64");
  pair_init(&p);
  p.o.header.e_type = ET_DYN;
  assert_refused(testobject_bytes(&p.o), LB_UNSUPPORTED, "relocatable");
  testobject_init(&p.o);
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "nothing to load");
}

static void tables_outside_the_file_or_unterminated_are_refused(void **state) {
  (void)state;
  pair p;
  pair_init(&p);
  p.o.sections[p.data].sh_offset = UINT64_MAX - 4;
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "is outside the file");
  pair_init(&p);
  p.o.sections[p.data].sh_size = sizeof p.o.bytes;
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "is outside the file");
  pair_init(&p);
  p.o.sections[p.data].sh_size = UINT64_C(1) << 40;
  assert_refused(testobject_bytes(&p.o), LB_INVALID, "is outside the file");
  pair_init(&p);
  testobject_bytes(&p.o);
  uint8_t *header = p.o.bytes;
  memset(header + offsetof(Elf64_Ehdr, e_shoff), 0xFF, 8);
  assert_refused((lb_span){p.o.bytes, p.o.size}, LB_INVALID, "section header");
  pair_init(&p);
  testobject_bytes(&p.o);
  const Elf64_Shdr *names = &p.o.sections[p.o.header.e_shstrndx];
  p.o.bytes[names->sh_offset + names->sh_size - 1] = 'x';
  assert_refused((lb_span){p.o.bytes, p.o.size}, LB_INVALID,
                 "not NUL-terminated");
}

// -- corrupt objects ---------------------------------------------------------

// Copies the object into memory of exactly its size, so that a sanitizer sees
// any read past its end.
static bool try_bytes(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1), *image = NULL;
  lb_elf elf;
  lb_elf_symbol s;
  assert_non_null(copy);
  memcpy(copy, data, size);
  lb_status st = load((lb_span){copy, size}, RUN, &elf, &image);
  if (!lb_failed(st) && lb_elf_find(&elf, "limber_kernel", &s))
    assert_true(s.offset < elf.size && s.size <= elf.size - s.offset);
  bool loaded = !lb_failed(st);
  lb_status_drop(st);
  free(image);
  free(copy);
  return loaded;
}

static lb_file sample(void) {
  lb_file f;
  lb_status st = lb_file_map(LB_SAMPLE_OBJECT, &f);
  assert_false(lb_failed(st));
  return f;
}

static void the_compiled_sample_loads(void **state) {
  (void)state;
  lb_file f = sample();
  lb_elf elf;
  lb_elf_symbol s;
  uint8_t *image;
  assert_loads(f.bytes, &elf, &image);
  assert_true(lb_elf_find(&elf, "limber_kernel", &s) && s.code);
  assert_true(lb_elf_find(&elf, "limber_header", &s) && !s.code);
  assert_memory_equal(image + s.offset, "limber", 6);
  free(image);
  lb_file_close(&f);
}

static void truncated_objects_are_refused(void **state) {
  (void)state;
  lb_file f = sample();
  for (size_t n = 0; n < f.bytes.size; n++)
    assert_false(try_bytes(f.bytes.data, n));
  lb_file_close(&f);
}

static void flipped_bits_do_not_crash(void **state) {
  (void)state;
  lb_file f = sample();
  uint8_t *bytes = malloc(f.bytes.size);
  uint64_t random = 42;
  int loaded = 0;
  assert_non_null(bytes);
  for (int iteration = 0; iteration < 20000; iteration++) {
    memcpy(bytes, f.bytes.data, f.bytes.size);
    for (int flips = iteration % 4; flips >= 0; flips--) {
      random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
      uint64_t roll = random >> 24;
      size_t at = roll % f.bytes.size;
      if (iteration &
          1) {  // the section header table, where most fields matter
        size_t table = f.bytes.size < 1024 ? f.bytes.size : 1024;
        at = f.bytes.size - 1 - roll % table;
      }
      bytes[at] ^= (uint8_t)(1u << (random >> 60 & 7));
    }
    loaded += try_bytes(bytes, f.bytes.size);
  }
  assert_in_range(loaded, 100, 19900);  // both outcomes occur
  free(bytes);
  lb_file_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sections_are_aligned_in_one_image),
      cmocka_unit_test(relocations_hold_the_address_of_their_target),
      cmocka_unit_test(loads_and_calls_through_a_got_become_direct),
      cmocka_unit_test(other_uses_of_a_got_are_refused),
      cmocka_unit_test(absolute_32_bit_addresses_must_be_in_range),
      cmocka_unit_test(relocations_outside_their_section_are_refused),
      cmocka_unit_test(relocations_need_a_target_in_reach),
      cmocka_unit_test(undefined_symbols_are_refused_by_name),
      cmocka_unit_test(sections_that_are_not_code_or_constants_are_refused),
      cmocka_unit_test(
          constants_with_addresses_are_loaded_and_unwind_tables_are_not),
      cmocka_unit_test(symbols_reach_no_further_than_their_section),
      cmocka_unit_test(other_files_are_refused),
      cmocka_unit_test(tables_outside_the_file_or_unterminated_are_refused),
      cmocka_unit_test(the_compiled_sample_loads),
      cmocka_unit_test(truncated_objects_are_refused),
      cmocka_unit_test(flipped_bits_do_not_crash),
  };
  return cmocka_run_group_tests_name("elf", tests, NULL, NULL);
}
