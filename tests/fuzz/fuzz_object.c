// tests/fuzz/fuzz_object.c -- Loads arbitrary bytes as an object: the result is
// an error or an image, which is parsed and relocated but not run.
#include <stdint.h>
#include <stdlib.h>

#include "device/cpu/elf.h"
#include "device/cpu/exec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find(const lb_elf *elf, const char *name) {
  lb_elf_symbol s;
  if (!lb_elf_find(elf, name, &s)) return;
  if (s.offset >= elf->size || s.size > elf->size - s.offset) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  lb_elf elf;
  lb_status st = lb_elf_parse((lb_span){data, size}, &elf);
  if (!lb_failed(st)) {
    uint8_t *image = malloc(elf.size);
    if (!image) abort();
    uint64_t run = size & 1 ? 0x400000 : UINT64_C(0x7F0000000000);
    st = lb_elf_link(&elf, image, run);
    find(&elf, LB_KERNEL_ENTRY);
    find(&elf, LB_CPU_HEADER);
    free(image);
  }
  lb_status_drop(st);
  return 0;
}
