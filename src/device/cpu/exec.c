// device/cpu/exec.c -- loads an object as an executable kernel.
#include "device/cpu/exec.h"

#include <stdlib.h>

#include "device/cpu/elf.h"

_Static_assert(LB_ELF_ALIGN <= LB_CPU_ALIGN,
               "blocks are aligned as images need");

static lb_status link_image(void *user, uint8_t *write, const uint8_t *run) {
  return lb_elf_link(user, write, (uintptr_t)run);
}

static void unload(lb_exec *base) {
  lb_cpu_exec *e = (lb_cpu_exec *)base;
  lb_cpu_code_free(e->code, e->block);
  lb_cpu_code_release(e->code);
  free(e);
}

lb_status lb_cpu_exec_create(lb_cpu_code *code, lb_perf *perf, lb_span object,
                             const char *name, lb_cpu_exec **out) {
  *out = NULL;
  lb_elf elf;
  LB_TRY(lb_elf_parse(object, &elf));
  lb_elf_symbol entry, header = {0};
  if (!lb_elf_find(&elf, LB_KERNEL_ENTRY, &entry) || !entry.code)
    return lb_error(LB_INVALID,
                    "object: does not define the function " LB_KERNEL_ENTRY);
  lb_elf_find(&elf, LB_CPU_HEADER, &header);
  lb_cpu_exec *e = calloc(1, sizeof *e);
  if (!e) return lb_oom();
  lb_status st = lb_cpu_code_add(code, elf.size, link_image, &elf, &e->block);
  if (lb_failed(st)) {
    free(e);
    return st;
  }
  lb_cpu_code_retain(code);
  e->code = code;
  e->base = (lb_exec){.entry = (uintptr_t)(e->block->run + entry.offset),
                      .bytes = e->block->size,
                      .unload = unload};
  e->header = (lb_span){e->block->run + header.offset, header.size};
  lb_perf_add(perf, e->block->run, elf.size, name);
  *out = e;
  return LB_OK;
}
