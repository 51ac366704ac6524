// toolchain/inspect.c -- Reads ELF symbols, and comments in assembly.
#include "toolchain/inspect.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

// -- objects -----------------------------------------------------------------

// Copies the n-th record of `size` bytes at `offset`; false if out of bounds.
static bool read_record(lb_span o, uint64_t offset, uint64_t n, void *to,
                        size_t size) {
  if (offset > o.size || n >= (o.size - offset) / size) return false;
  memcpy(to, o.data + offset + n * size, size);
  return true;
}

static const char *string_at(lb_span o, const Elf64_Shdr *table, uint32_t at) {
  uint64_t position = table->sh_offset + at;
  if (position < at || position >= o.size) return "?";
  if (!memchr(o.data + position, 0, o.size - position)) return "?";
  return (const char *)o.data + position;
}

static void list_missing(lb_span o, const Elf64_Shdr *symbols,
                         const Elf64_Shdr *names, lb_strbuf *out) {
  uint64_t n = symbols->sh_size / sizeof(Elf64_Sym);
  for (uint64_t i = 1; i < n; i++) {  // the first is empty
    Elf64_Sym s;
    if (!read_record(o, symbols->sh_offset, i, &s, sizeof s)) return;
    if (s.st_shndx != SHN_UNDEF) continue;
    lb_strbuf_printf(out, "%s%s", out->len ? ", " : "",
                     string_at(o, names, s.st_name));
  }
}

lb_status lb_inspect_object(lb_span object) {
  Elf64_Ehdr header;
  if (!read_record(object, 0, 0, &header, sizeof header) ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return lb_error(LB_INTERNAL, "LLVM's object is not an ELF file");
  lb_strbuf missing = {0};
  for (unsigned i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr s, names;
    if (!read_record(object, header.e_shoff, i, &s, sizeof s)) break;
    if (s.sh_type != SHT_SYMTAB) continue;
    if (read_record(object, header.e_shoff, s.sh_link, &names, sizeof names))
      list_missing(object, &s, &names, &missing);
  }
  lb_status st = lb_strbuf_status(&missing);
  if (!lb_failed(st) && missing.len)
    st = lb_error(LB_INTERNAL, "the kernel needs undefined symbols: %s",
                  lb_strbuf_str(&missing));
  lb_strbuf_fini(&missing);
  return st;
}

// The size of the register stored by the instruction whose opcode is at i: 0 if
// it is not AVX or AVX-512, or stores 16 bytes.
static uint32_t bytes_stored(lb_span o, size_t i) {
  const uint8_t *p = o.data;
  if (i >= 4 && p[i - 4] == 0x62)
    return p[i - 1] & 0x40 ? 64 : p[i - 1] & 0x20 ? 32 : 0;
  bool vex = (i >= 2 && p[i - 2] == 0xc5) || (i >= 3 && p[i - 3] == 0xc4);
  return vex && (p[i - 1] & 4) ? 32 : 0;
}

// VMOVUPS, VMOVAPS or VMOVDQU of a register to memory at rsp without an index;
// *at is the displacement, *size the number of bytes. AVX-512 scales short
// displacements by the register size.
static bool stores_to_stack(lb_span o, size_t i, int64_t *at, uint32_t *size) {
  if (i + 7 > o.size) return false;
  uint8_t op = o.data[i], mode = o.data[i + 1], base = o.data[i + 2];
  bool stores = op == 0x11 || op == 0x29 || op == 0x7f;
  if (!stores || (mode & 7) != 4 || mode >= 0xc0 || base != 0x24) return false;
  *size = bytes_stored(o, i);
  int32_t disp;
  memcpy(&disp, o.data + i + 3, sizeof disp);
  int64_t unit = i >= 4 && o.data[i - 4] == 0x62 ? *size : 1;
  *at = mode < 0x40 ? 0 : mode < 0x80 ? (int8_t)o.data[i + 3] * unit : disp;
  return *size != 0;
}

// Other bytes may match by chance; then the assembly is checked needlessly.
bool lb_inspect_may_spill(lb_span o, size_t local_bytes) {
  int64_t first = INT64_MAX, end = INT64_MIN, at;
  uint32_t size;
  for (size_t i = 0; i < o.size; i++) {
    if (!stores_to_stack(o, i, &at, &size)) continue;
    if (at < first) first = at;
    if (at + size > end) end = at + size;
  }
  return first < end && end - first > (int64_t)local_bytes;
}

// -- assembly ----------------------------------------------------------------

static bool contains(const char *line, size_t n, const char *word) {
  return memmem(line, n, word, strlen(word)) != NULL;
}

// "# 64-byte Spill", "# 32-byte Folded Reload"; 16 bytes and less are scalars.
static bool is_of_vector(const char *line, size_t n, const char *word) {
  if (!contains(line, n, word)) return false;
  return contains(line, n, " 64-byte ") || contains(line, n, " 32-byte ");
}

// A block begins with its label, or with a comment in place of one; the
// comments after it name the loops that contain it.
static bool begins_block(const char *line, size_t n) {
  return (n > 4 && memcmp(line, ".LBB", 4) == 0) || contains(line, n, "# %bb.");
}

// Whether the line says that its block is in an innermost loop, that is, a loop
// that no other loop names as its parent.
static bool in_inner_loop(lb_span all, const char *line, size_t n) {
  static const char word[] = "in Loop: Header=";
  if (contains(line, n, "This Inner Loop Header: ")) return true;
  const char *name = memmem(line, n, word, sizeof word - 1);
  if (!name) return false;
  char parent[64];
  name += sizeof word - 1;
  int size = (int)(line + n - name), end = 0;
  while (end < size && name[end] != ' ') end++;
  snprintf(parent, sizeof parent, "Parent Loop %.*s ", end, name);
  return !contains((const char *)all.data, all.size, parent);
}

void lb_inspect_spills(lb_span assembly, uint32_t *all, uint32_t *in_loops) {
  const char *p = (const char *)assembly.data, *end = p + assembly.size;
  bool loop = false;
  *all = *in_loops = 0;
  while (p < end) {
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    size_t n = (size_t)((stop ? stop : end) - p);
    if (begins_block(p, n)) loop = false;
    if (in_inner_loop(assembly, p, n)) loop = true;
    bool spill = is_of_vector(p, n, " Spill");
    *all += spill;
    *in_loops += loop && (spill || is_of_vector(p, n, " Reload"));
    p += n + 1;
  }
}
