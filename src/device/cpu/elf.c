// device/cpu/elf.c -- loads relocatable ELF objects for x86-64.
//
// (1) After parsing, sections, symbols and string tables are inside the file,
//     string tables end with a NUL, and every symbol names a section that
//     exists. Linking relies on this and checks the rest: relocations.
// (2) Structures are copied before they are read, because nothing in an object
//     need be aligned.
#include "device/cpu/elf.h"

#include <elf.h>
#include <inttypes.h>
#include <string.h>

#define ABSENT UINT32_MAX  // the offset of a section that is not loaded
#define TRAP 0xCC          // int3, between sections

// SHT_X86_64_UNWIND, which older elf.h lack.
enum { UNWIND = 0x70000001 };

static bool fits(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

static bool starts_with(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

static Elf64_Shdr section_at(const lb_elf *e, uint32_t i) {
  Elf64_Shdr s;
  memcpy(&s, e->bytes.data + e->section_table + i * sizeof s, sizeof s);
  return s;
}

static size_t n_symbols(const lb_elf *e) {
  return e->symbols.size / sizeof(Elf64_Sym);
}

static Elf64_Sym symbol_at(const lb_elf *e, size_t i) {
  Elf64_Sym s;
  memcpy(&s, e->symbols.data + i * sizeof s, sizeof s);
  return s;
}

// An offset outside the table gives an empty name.
static const char *text_at(lb_span section_table, uint32_t offset) {
  return offset < section_table.size ? (const char *)section_table.data + offset
                                     : "";
}

static const char *section_name(const lb_elf *e, const Elf64_Shdr *s) {
  return text_at(e->section_names, s->sh_name);
}

// -- parsing -----------------------------------------------------------------

// Returns the bytes of section `i`, which must have type `type` and be inside
// the file.
static lb_status read_section(const lb_elf *e, uint32_t i, uint32_t type,
                              lb_span *out) {
  if (i >= e->n_sections)
    return lb_error(LB_INVALID, "object: there is no section %" PRIu32, i);
  Elf64_Shdr s = section_at(e, i);
  if (s.sh_type != type || !fits(s.sh_offset, s.sh_size, e->bytes.size))
    return lb_error(LB_INVALID,
                    "object: section %" PRIu32
                    " has the wrong type or is outside the file",
                    i);
  *out = (lb_span){e->bytes.data + s.sh_offset, s.sh_size};
  return LB_OK;
}

static lb_status read_strings(const lb_elf *e, uint32_t i, lb_span *out) {
  LB_TRY(read_section(e, i, SHT_STRTAB, out));
  if (out->size == 0 || out->data[out->size - 1] != 0)
    return lb_error(LB_INVALID,
                    "object: string table %" PRIu32 " is not NUL-terminated",
                    i);
  return LB_OK;
}

static lb_status read_header(lb_elf *e) {
  Elf64_Ehdr h;
  if (e->bytes.size < sizeof h)
    return lb_error(LB_INVALID,
                    "object: %zu bytes are too few for an ELF header",
                    e->bytes.size);
  memcpy(&h, e->bytes.data, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
    return lb_error(LB_INVALID, "object: not an ELF file");
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
      h.e_type != ET_REL || h.e_machine != EM_X86_64)
    return lb_error(LB_UNSUPPORTED,
                    "object: not a relocatable file for x86-64 (class %d, type "
                    "%d, machine %d)",
                    h.e_ident[EI_CLASS], h.e_type, h.e_machine);
  if (h.e_shnum == 0 || h.e_shnum > LB_ELF_MAX_SECTIONS)
    return lb_error(LB_UNSUPPORTED, "object: %d sections; a kernel has 1 to %d",
                    h.e_shnum, LB_ELF_MAX_SECTIONS);
  if (h.e_shentsize != sizeof(Elf64_Shdr) ||
      !fits(h.e_shoff, h.e_shnum * sizeof(Elf64_Shdr), e->bytes.size))
    return lb_error(LB_INVALID,
                    "object: the section header table is malformed");
  e->section_table = h.e_shoff;
  e->n_sections = h.e_shnum;
  LB_TRY(read_strings(e, h.e_shstrndx, &e->section_names));
  return LB_OK;
}

// Code and constants are loaded. Unwind tables and notes are skipped because
// kernels do not need them; check_loaded rejects other allocated sections.
static bool is_loaded(const lb_elf *e, const Elf64_Shdr *s) {
  if (!(s->sh_flags & SHF_ALLOC) || s->sh_size == 0) return false;
  if (s->sh_type == UNWIND || s->sh_type == SHT_NOTE) return false;
  return strcmp(section_name(e, s), ".eh_frame") != 0;
}

static lb_status check_loaded(const lb_elf *e, const Elf64_Shdr *s) {
  const char *name = section_name(e, s);
  uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
  bool constant =
      !(s->sh_flags & SHF_WRITE) ||
      (starts_with(name, ".data.rel.ro") && !(s->sh_flags & SHF_EXECINSTR));
  if (s->sh_type != SHT_PROGBITS || !constant ||
      (s->sh_flags & (SHF_TLS | SHF_COMPRESSED)))
    return lb_error(LB_UNSUPPORTED,
                    "object: section '%s' (type %" PRIu32 ", flags %" PRIx64
                    "); kernels have code and constants only",
                    name, s->sh_type, s->sh_flags);
  if ((align & (align - 1)) != 0 || align > LB_ELF_ALIGN)
    return lb_error(LB_UNSUPPORTED,
                    "object: section '%s' is aligned to %" PRIu64
                    " bytes; the maximum is %d",
                    name, align, LB_ELF_ALIGN);
  if (!fits(s->sh_offset, s->sh_size, e->bytes.size))
    return lb_error(LB_INVALID, "object: section '%s' is outside the file",
                    name);
  return LB_OK;
}

static lb_status lay_out_section(lb_elf *e, uint32_t i) {
  Elf64_Shdr s = section_at(e, i);
  e->offsets[i] = ABSENT;
  if (!is_loaded(e, &s)) return LB_OK;
  LB_TRY(check_loaded(e, &s));
  size_t align = s.sh_addralign ? (size_t)s.sh_addralign : 1;
  size_t at = (e->size + align - 1) & ~(align - 1);
  if (!fits(at, s.sh_size, LB_ELF_MAX_BYTES))
    return lb_error(LB_UNSUPPORTED, "object: more than %u bytes to load",
                    LB_ELF_MAX_BYTES);
  e->offsets[i] = (uint32_t)at;
  e->size = at + s.sh_size;
  return LB_OK;
}

static lb_status lay_out_sections(lb_elf *e) {
  for (uint32_t i = 0; i < e->n_sections; i++) LB_TRY(lay_out_section(e, i));
  if (e->size == 0)
    return lb_error(LB_INVALID, "object: there is nothing to load");
  return LB_OK;
}

static lb_status check_symbol(const lb_elf *e, size_t i) {
  Elf64_Sym s = symbol_at(e, i);
  const char *name = text_at(e->names, s.st_name);
  int type = ELF64_ST_TYPE(s.st_info);
  if (s.st_shndx == SHN_UNDEF)
    return lb_error(
        LB_UNSUPPORTED,
        "object: undefined symbol '%s'; a kernel must define all it calls",
        name);
  if (s.st_shndx == SHN_COMMON || type == STT_TLS || type == STT_GNU_IFUNC)
    return lb_error(LB_UNSUPPORTED,
                    "object: '%s' is not a function or a constant", name);
  if (s.st_shndx == SHN_ABS) return LB_OK;  // names of source files
  if (s.st_shndx >= e->n_sections)
    return lb_error(LB_INVALID, "object: '%s' has an invalid section index",
                    name);
  return LB_OK;
}

static lb_status read_symbols(lb_elf *e) {
  for (uint32_t i = 0; i < e->n_sections; i++) {
    if (section_at(e, i).sh_type != SHT_SYMTAB) continue;
    if (e->symtab)
      return lb_error(LB_INVALID, "object: more than one symbol table");
    LB_TRY(read_section(e, i, SHT_SYMTAB, &e->symbols));
    LB_TRY(read_strings(e, section_at(e, i).sh_link, &e->names));
    e->symtab = i;
  }
  for (size_t i = 1; i < n_symbols(e); i++) LB_TRY(check_symbol(e, i));
  return LB_OK;
}

lb_status lb_elf_parse(lb_span object, lb_elf *out) {
  *out = (lb_elf){.bytes = object};
  LB_TRY(read_header(out));
  LB_TRY(lay_out_sections(out));
  LB_TRY(read_symbols(out));
  return LB_OK;
}

// -- linking -----------------------------------------------------------------

typedef struct patch {  // one location to relocate
  uint8_t *at;          // in the image
  uint64_t run;         // its run-time address
  uint64_t before;      // bytes of its section before `at`
  uint64_t left;        // bytes of its section from `at` on
} patch;

static lb_status bad_relocation(const char *why, uint32_t type) {
  return lb_error(LB_INVALID, "object: a relocation of type %" PRIu32 " %s",
                  type, why);
}

static lb_status put_signed32(const patch *p, uint64_t value, uint32_t type) {
  int64_t v = (int64_t)value;
  int32_t narrow = (int32_t)v;
  if (narrow != v) return bad_relocation("does not reach its target", type);
  memcpy(p->at, &narrow, sizeof narrow);
  return LB_OK;
}

// 32-bit absolute addresses reach the lowest 2 or 4 GB only.
static lb_status put_absolute32(const patch *p, uint64_t value, uint32_t type) {
  uint32_t narrow = (uint32_t)value;
  bool same = type == R_X86_64_32 ? narrow == value
                                  : (uint64_t)(int64_t)(int32_t)narrow == value;
  if (!same)
    return lb_error(
        LB_UNSUPPORTED,
        "object: a 32-bit absolute address is out of range; compile kernels "
        "as position-independent code");
  memcpy(p->at, &narrow, sizeof narrow);
  return LB_OK;
}

// There is no global offset table (GOT). An instruction that loads its operand
// from the GOT is rewritten to use it directly; all three rewrites keep the
// length of the instruction.
static lb_status relax(const patch *p, uint32_t type) {
  static const struct {
    uint8_t mask, from[2], to[2];
  } forms[] = {
      {0xC7, {0x8B, 0x05}, {0x8D, 0}},     // mov sym@GOT(%rip), r: lea
      {0xFF, {0xFF, 0x15}, {0x67, 0xE8}},  // call *sym@GOT(%rip): call sym
      {0xFF, {0xFF, 0x25}, {0x90, 0xE9}},  // jmp *sym@GOT(%rip): nop; jmp sym
  };
  if (p->before < 2)
    return bad_relocation("has no instruction before it", type);
  uint8_t *op = p->at - 2;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    if (op[0] != forms[i].from[0]) continue;
    if ((op[1] & forms[i].mask) != forms[i].from[1]) continue;
    op[0] = forms[i].to[0];
    if (forms[i].to[1]) op[1] = forms[i].to[1];
    return LB_OK;
  }
  return lb_error(LB_UNSUPPORTED,
                  "object: cannot relax a GOT access (opcode %02x %02x); give "
                  "kernel symbols internal linkage",
                  op[0], op[1]);
}

static lb_status apply(const patch *p, uint32_t type, uint64_t value) {
  if (p->left < (type == R_X86_64_64 ? 8 : 4))
    return bad_relocation("is outside its section", type);
  switch (type) {
    case R_X86_64_64: memcpy(p->at, &value, sizeof value); return LB_OK;
    case R_X86_64_PC32:
    case R_X86_64_PLT32: return put_signed32(p, value - p->run, type);
    case R_X86_64_32:
    case R_X86_64_32S: return put_absolute32(p, value, type);
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      LB_TRY(relax(p, type));
      return put_signed32(p, value - p->run, type);
    default:
      return lb_error(LB_UNSUPPORTED,
                      "object: relocation type %" PRIu32 " is not supported",
                      type);
  }
}

static lb_status resolve(const lb_elf *e, uint64_t i, uint64_t run,
                         uint64_t *out) {
  if (i == 0 || i >= n_symbols(e))
    return lb_error(LB_INVALID, "object: a relocation has no symbol");
  Elf64_Sym s = symbol_at(e, i);
  if (s.st_shndx == SHN_ABS || e->offsets[s.st_shndx] == ABSENT)
    return lb_error(LB_UNSUPPORTED,
                    "object: refers to '%s', which is not loaded",
                    text_at(e->names, s.st_name));
  if (s.st_value > section_at(e, s.st_shndx).sh_size)
    return lb_error(LB_INVALID, "object: '%s' is outside its section",
                    text_at(e->names, s.st_name));
  *out = run + e->offsets[s.st_shndx] + s.st_value;
  return LB_OK;
}

// Relocates section `target` with the entries of one relocation table.
static lb_status relocate(const lb_elf *e, uint32_t target, lb_span entries,
                          uint8_t *image, uint64_t run) {
  uint64_t size = section_at(e, target).sh_size;
  for (size_t i = 0; i < entries.size / sizeof(Elf64_Rela); i++) {
    Elf64_Rela r;
    memcpy(&r, entries.data + i * sizeof r, sizeof r);
    uint32_t type = ELF64_R_TYPE(r.r_info);
    if (type == R_X86_64_NONE) continue;
    if (r.r_offset > size)
      return bad_relocation("is outside its section", type);
    uint64_t at = e->offsets[target] + r.r_offset, value = 0;
    LB_TRY(resolve(e, ELF64_R_SYM(r.r_info), run, &value));
    patch p = {image + at, run + at, r.r_offset, size - r.r_offset};
    LB_TRY(apply(&p, type, value + (uint64_t)r.r_addend));
  }
  return LB_OK;
}

// Applies section `i` if it is a relocation table for a loaded section.
static lb_status apply_table(const lb_elf *e, uint32_t i, uint8_t *image,
                             uint64_t run) {
  Elf64_Shdr s = section_at(e, i);
  if (s.sh_type != SHT_RELA && s.sh_type != SHT_REL) return LB_OK;
  if (s.sh_info >= e->n_sections)
    return lb_error(LB_INVALID,
                    "object: relocations for a section that does not exist");
  if (e->offsets[s.sh_info] == ABSENT) return LB_OK;
  lb_span entries;
  LB_TRY(read_section(e, i, SHT_RELA, &entries));
  if (!e->symtab || s.sh_link != e->symtab)
    return lb_error(LB_INVALID, "object: relocations without a symbol table");
  return relocate(e, s.sh_info, entries, image, run);
}

lb_status lb_elf_link(const lb_elf *elf, uint8_t *image, uint64_t run) {
  memset(image, TRAP, elf->size);
  for (uint32_t i = 0; i < elf->n_sections; i++) {
    if (elf->offsets[i] == ABSENT) continue;
    Elf64_Shdr s = section_at(elf, i);
    memcpy(image + elf->offsets[i], elf->bytes.data + s.sh_offset, s.sh_size);
  }
  for (uint32_t i = 0; i < elf->n_sections; i++)
    LB_TRY(apply_table(elf, i, image, run));
  return LB_OK;
}

bool lb_elf_find(const lb_elf *elf, const char *name, lb_elf_symbol *out) {
  for (size_t i = 1; i < n_symbols(elf); i++) {
    Elf64_Sym s = symbol_at(elf, i);
    if (s.st_shndx == SHN_ABS || elf->offsets[s.st_shndx] == ABSENT) continue;
    if (strcmp(text_at(elf->names, s.st_name), name) != 0) continue;
    Elf64_Shdr in = section_at(elf, s.st_shndx);
    if (s.st_value >= in.sh_size || !fits(s.st_value, s.st_size, in.sh_size))
      continue;
    *out = (lb_elf_symbol){.offset = elf->offsets[s.st_shndx] + s.st_value,
                           .size = s.st_size,
                           .code = (in.sh_flags & SHF_EXECINSTR) != 0};
    return true;
  }
  return false;
}
