// device/cpu/testobject.h -- for tests: writes valid and invalid ELF objects,
// and reads the object that the build compiles from sample.c.
#ifndef LB_DEVICE_CPU_TESTOBJECT_H
#define LB_DEVICE_CPU_TESTOBJECT_H

#include <elf.h>
#include <stdint.h>
#include <string.h>

#include "base/file.h"

enum { TO_SECTIONS = 16, TO_ENTRIES = 32, TO_BYTES = 4096, TO_TEXT = 512 };

typedef struct testobject {
  uint8_t bytes[2 * TO_BYTES];
  size_t size;
  Elf64_Ehdr header;
  Elf64_Shdr sections[TO_SECTIONS];
  int n_sections;
  Elf64_Sym symbols[TO_ENTRIES];
  int n_symbols;
  Elf64_Rela relas[TO_ENTRIES];  // all for one section
  int n_relas, target;
  char text[TO_TEXT];  // all names
  uint32_t text_size;
} testobject;

static inline uint32_t testobject_text(testobject *o, const char *text) {
  uint32_t at = o->text_size;
  size_t len = strlen(text) + 1;
  memcpy(o->text + at, text, len);
  o->text_size += (uint32_t)len;
  return at;
}

static inline uint64_t testobject_put(testobject *o, const void *p, size_t n) {
  size_t at = o->size;
  if (p && n) memcpy(o->bytes + at, p, n);
  o->size += n;
  return at;
}

static inline void testobject_init(testobject *o) {
  memset(o, 0, sizeof *o);
  o->header = (Elf64_Ehdr){
      .e_ident = {0x7F, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
      .e_type = ET_REL,
      .e_machine = EM_X86_64,
      .e_version = EV_CURRENT,
      .e_ehsize = sizeof(Elf64_Ehdr),
      .e_shentsize = sizeof(Elf64_Shdr)};
  o->size = sizeof o->header;
  o->n_sections = o->n_symbols = 1;
  testobject_text(o, "");
}

// Adds an allocated section and returns its index.
static inline int testobject_section(testobject *o, const char *name,
                                     uint64_t flags, uint64_t align,
                                     const void *data, size_t size) {
  o->sections[o->n_sections] =
      (Elf64_Shdr){.sh_name = testobject_text(o, name),
                   .sh_type = SHT_PROGBITS,
                   .sh_flags = SHF_ALLOC | flags,
                   .sh_offset = testobject_put(o, data, size),
                   .sh_size = size,
                   .sh_addralign = align};
  return o->n_sections++;
}

static inline int testobject_symbol(testobject *o, const char *name, int type,
                                    int section, uint64_t value,
                                    uint64_t size) {
  o->symbols[o->n_symbols] =
      (Elf64_Sym){.st_name = testobject_text(o, name),
                  .st_info = (unsigned char)ELF64_ST_INFO(STB_GLOBAL, type),
                  .st_shndx = (Elf64_Section)section,
                  .st_value = value,
                  .st_size = size};
  return o->n_symbols++;
}

static inline void testobject_rela(testobject *o, int section, uint64_t offset,
                                   uint32_t type, int symbol, int64_t addend) {
  o->target = section;
  o->relas[o->n_relas++] =
      (Elf64_Rela){.r_offset = offset,
                   .r_info = ELF64_R_INFO((uint64_t)symbol, (uint64_t)type),
                   .r_addend = addend};
}

// Writes the object and returns its bytes, which are borrowed. Fields of the
// header and the sections may be changed before.
static inline lb_span testobject_bytes(testobject *o) {
  int rela = o->n_sections, symtab = rela + 1, strtab = rela + 2;
  uint32_t relas_name = testobject_text(o, ".rela");
  size_t relas = (size_t)o->n_relas * sizeof *o->relas;
  size_t symbols = (size_t)o->n_symbols * sizeof *o->symbols;
  o->sections[rela] =
      (Elf64_Shdr){.sh_name = relas_name,
                   .sh_type = SHT_RELA,
                   .sh_offset = testobject_put(o, o->relas, relas),
                   .sh_size = relas,
                   .sh_link = (uint32_t)symtab,
                   .sh_info = (uint32_t)o->target,
                   .sh_entsize = sizeof *o->relas};
  o->sections[symtab] =
      (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                   .sh_offset = testobject_put(o, o->symbols, symbols),
                   .sh_size = symbols,
                   .sh_link = (uint32_t)strtab,
                   .sh_entsize = sizeof *o->symbols};
  o->sections[strtab] =
      (Elf64_Shdr){.sh_type = SHT_STRTAB,
                   .sh_offset = testobject_put(o, o->text, o->text_size),
                   .sh_size = o->text_size};
  int n = o->n_sections + 3;
  o->header.e_shnum = (uint16_t)n;
  o->header.e_shstrndx = (uint16_t)strtab;
  o->header.e_shoff =
      testobject_put(o, o->sections, (size_t)n * sizeof *o->sections);
  memcpy(o->bytes, &o->header, sizeof o->header);
  return (lb_span){o->bytes, o->size};
}

// An object with `int limber_kernel(void)` that returns `value`: 6 bytes of
// code.
static inline void testobject_number(testobject *o, uint32_t value) {
  uint8_t code[6] = {0xB8, 0, 0, 0, 0, 0xC3};  // mov eax, value; ret
  memcpy(code + 1, &value, sizeof value);
  testobject_init(o);
  int text = testobject_section(o, ".text", SHF_EXECINSTR, 16, code, 6);
  testobject_symbol(o, "limber_kernel", STT_FUNC, text, 0, 6);
}

#endif
