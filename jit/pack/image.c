// pack/image.c -- Combines objects into one block of code, with an index.
#include "pack/image.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/elf.h"
#include "device/cpu/exec.h"

// Links an object for address `run` and appends its image.
static lb_status append_image(const lb_elf *elf, uint64_t run, lb_strbuf *out) {
  uint8_t *image = malloc(elf->size);
  if (!image) return lb_oom();
  lb_status st = lb_elf_link(elf, image, run);
  if (!lb_failed(st)) lb_strbuf_putn(out, (const char *)image, elf->size);
  free(image);
  return lb_failed(st) ? st : lb_strbuf_status(out);
}

// Code that is the same at two addresses is the same at all.
static lb_status check_position_independent(const lb_elf *elf,
                                            const char *image) {
  lb_strbuf moved = {0};
  lb_status st = append_image(elf, UINT64_C(0x5a5a5a5a5000), &moved);
  if (!lb_failed(st) && memcmp(moved.data, image, elf->size) != 0)
    st = lb_error(LB_UNSUPPORTED, "the kernel contains an absolute address");
  lb_strbuf_fini(&moved);
  return st;
}

static lb_status grow(lb_pack_image *p) {
  if (p->n < p->cap) return LB_OK;
  size_t cap = p->cap ? 2 * p->cap : 256;
  lb_pack_entry *entries = realloc(p->entries, cap * sizeof *entries);
  if (!entries) return lb_oom();
  p->entries = entries;
  p->cap = cap;
  return LB_OK;
}

static void pad(lb_strbuf *s, size_t align) {
  while (s->len % align && !s->failed) lb_strbuf_putc(s, 0);
}

lb_status lb_pack_image_add(lb_pack_image *p, const lb_pack_item *item,
                            lb_span object) {
  lb_elf elf;
  lb_elf_symbol entry;
  size_t at = p->code.len, size = lb_spec_bytes(&item->spec);
  LB_TRY(grow(p));
  LB_TRY(lb_elf_parse(object, &elf));
  if (!lb_elf_find(&elf, LB_KERNEL_ENTRY, &entry))
    return lb_error(LB_INTERNAL, "the object has no symbol " LB_KERNEL_ENTRY);
  LB_TRY(append_image(&elf, 0, &p->code));
  LB_TRY(check_position_independent(&elf, p->code.data + at));
  pad(&p->code, LB_ELF_ALIGN);
  lb_pack_entry *e = &p->entries[p->n++];
  memset(e, 0, sizeof *e);
  e->hash = lb_hash(&item->spec, size);
  e->spec = (uint32_t)p->specs.len;
  e->code = (uint32_t)(at + entry.offset);
  e->facts = item->facts;
  lb_strbuf_putn(&p->specs, (const char *)&item->spec, size);
  LB_TRY(lb_strbuf_status(&p->code));
  return lb_strbuf_status(&p->specs);
}

static int by_hash(const void *a, const void *b) {
  const lb_pack_entry *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return x->spec < y->spec ? -1 : 1;
}

lb_status lb_pack_image_index(lb_pack_image *p, lb_strbuf *out) {
  lb_pack header = {.magic = LB_PACK_MAGIC, .n = (uint32_t)p->n};
  size_t specs = sizeof header + p->n * sizeof *p->entries;
  if (p->n) qsort(p->entries, p->n, sizeof *p->entries, by_hash);
  lb_strbuf_putn(out, (const char *)&header, sizeof header);
  for (size_t i = 0; i < p->n; i++) {
    lb_pack_entry e = p->entries[i];
    e.spec += (uint32_t)specs;
    lb_strbuf_putn(out, (const char *)&e, sizeof e);
  }
  lb_strbuf_putn(out, p->specs.data, p->specs.len);
  return lb_strbuf_status(out);
}

void lb_pack_image_fini(lb_pack_image *p) {
  free(p->entries);
  lb_strbuf_fini(&p->specs);
  lb_strbuf_fini(&p->code);
  *p = (lb_pack_image){0};
}
