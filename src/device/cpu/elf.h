// device/cpu/elf.h -- loads relocatable ELF objects for x86-64.
//
// An object is *parsed* once, which decides where its sections lie in one
// contiguous image, then *linked*: copied and relocated for the address it will
// run at. Objects come from caches and pipes, so every offset and size is
// checked. Broken ones are LB_INVALID; sound ones that need what kernels do not
// have (other symbols, writable data, absolute addresses) LB_UNSUPPORTED.
//
// What is loaded: sections with code and constants, .data.rel.ro included.
// What is left out: unwind tables, notes, debug information.
//
// No allocation, no lock: any thread may use its own lb_elf.
#ifndef LB_DEVICE_CPU_ELF_H
#define LB_DEVICE_CPU_ELF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"

#define LB_ELF_ALIGN 64               // of an image, and of sections at most
#define LB_ELF_MAX_BYTES (16u << 20)  // of an image
#define LB_ELF_MAX_SECTIONS 64

typedef struct lb_elf {
  size_t size;  // of the image, not 0

  // -- for elf.c only
  lb_span bytes;  // borrowed; must not change
  lb_span symbols, names, section_names;
  uint64_t table;  // of sections
  uint32_t n_sections, symtab;
  uint32_t place[LB_ELF_MAX_SECTIONS];  // offsets in the image
} lb_elf;

// The bytes are borrowed for as long as `out` is used.
lb_status lb_elf_parse(lb_span object, lb_elf *out);

// Writes all elf->size bytes of `image`, for running at the address `run`.
// After a failure what was written is of no use.
lb_status lb_elf_link(const lb_elf *elf, uint8_t *image, uint64_t run);

typedef struct lb_elf_symbol {
  size_t offset;  // in the image
  size_t size;    // from there, inside its section; 0 if the object omits it
  bool code;      // in a section that is executed
} lb_elf_symbol;

// False if no loaded section defines it.
bool lb_elf_find(const lb_elf *elf, const char *name, lb_elf_symbol *out);

#endif
