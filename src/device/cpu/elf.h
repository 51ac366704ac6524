// device/cpu/elf.h -- loads relocatable ELF objects for x86-64.
//
// An object is *parsed* once, which assigns its sections to offsets in one
// contiguous image, then *linked*: copied and relocated for the address it will
// run at. Objects come from caches and pipes, so every offset and size is
// checked. Corrupt objects are LB_INVALID; valid ones that use features that
// kernels may not use (undefined symbols, writable data, absolute addresses)
// are LB_UNSUPPORTED.
//
// Sections with code and constants are loaded, .data.rel.ro included. Unwind
// tables, notes and debug information are skipped.
//
// Nothing is allocated or locked; threads may use separate lb_elf objects
// concurrently.
#ifndef LB_DEVICE_CPU_ELF_H
#define LB_DEVICE_CPU_ELF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

#define LB_ELF_ALIGN 64               // of an image; the maximum of a section
#define LB_ELF_MAX_BYTES (16u << 20)  // maximum size of an image
#define LB_ELF_MAX_SECTIONS 64

typedef struct lb_elf {
  size_t size;  // of the image in bytes, not 0

  // -- for elf.c only
  lb_span bytes;  // borrowed; must not change
  lb_span symbols, names, section_names;
  uint64_t section_table;  // file offset of the section header table
  uint32_t n_sections, symtab;
  uint32_t offsets[LB_ELF_MAX_SECTIONS];  // of sections in the image
} lb_elf;

// `object` is borrowed as long as `out` is used.
lb_status lb_elf_parse(lb_span object, lb_elf *out);

// Writes all elf->size bytes of `image`, relocated for the address `run`. After
// a failure the contents of `image` are undefined.
lb_status lb_elf_link(const lb_elf *elf, uint8_t *image, uint64_t run);

typedef struct lb_elf_symbol {
  size_t offset;  // in the image
  size_t size;    // within its section; 0 if the object does not say
  bool code;      // its section is executable
} lb_elf_symbol;

// Returns false if no loaded section defines `name`.
bool lb_elf_find(const lb_elf *elf, const char *name, lb_elf_symbol *out);

#endif
