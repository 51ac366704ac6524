// pack/main.c -- limber-pack: builds the kernels that the library contains.
//
//   limber-pack LEVEL OUT    writes OUT.bin, the bytes, and OUT.s, which an
//                            assembler turns into an object with the table
//                            lb_pack_v3 or lb_pack_v4
//   limber-pack LEVEL        lists the kernels that it would build
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/exec.h"
#include "pack/image.h"
#include "worker/jit.h"

enum { CODE_BYTES = 32 << 20 };

typedef struct pack_builder {
  lb_jit *jit;
  const char *level;
  lb_pack_image image;
  uint64_t compile_us, check_us;
  size_t unsupported;
} pack_builder;

// -- compiling ---------------------------------------------------------------

static lb_status load(void *user, lb_span object, lb_kernel_fn **out,
                      void **handle) {
  lb_cpu_exec *exec;
  LB_TRY(lb_cpu_exec_create(user, NULL, object, "check", &exec));
  *out = lb_cpu_function(&exec->base);
  *handle = exec;
  return LB_OK;
}

static void unload(void *user, void *handle) {
  (void)user;
  lb_exec_release(handle);
}

// Kernels that the generator does not support are omitted; a kernel that fails
// its check is an error.
static lb_status compile_item(pack_builder *m, const lb_pack_item *item) {
  lb_request r;
  lb_blob object = {0};
  lb_object_info info;
  LB_TRY(lb_request_init(&r, &item->spec, &item->facts, m->level));
  lb_status st = lb_jit_compile(m->jit, &r, &object, &info);
  if (lb_status_code(st) == LB_UNSUPPORTED) {
    m->unsupported++;
    lb_status_drop(st);
    return LB_OK;
  }
  if (!lb_failed(st)) {
    m->compile_us += info.compile_us;
    m->check_us += info.check_us;
    st = lb_pack_image_add(&m->image, item, lb_blob_span(&object));
  }
  lb_blob_fini(&object);
  return st;
}

static void print_item(const lb_pack_item *item, FILE *to) {
  lb_strbuf text = {0};
  lb_spec_print(&item->spec, &text);
  lb_strbuf_puts(&text, "  ");
  lb_facts_print(&item->facts, &text);
  fprintf(to, "%s\n", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
}

static lb_status compile_all(pack_builder *m, const lb_pack_list *list) {
  lb_cpu_code *code = NULL;
  lb_status st = lb_cpu_code_create(CODE_BYTES, LB_CPU_SHARED, &code);
  bool can_load = !lb_failed(st);
  lb_status_drop(st);  // where no code can be mapped, none can be checked
  lb_loader loader = {.user = code, .load = load, .unload = unload};
  st = lb_jit_new(can_load ? &loader : NULL, &m->jit);
  for (size_t i = 0; !lb_failed(st) && i < lb_pack_list_count(list); i++) {
    st = compile_item(m, lb_pack_list_at(list, i));
    if (lb_failed(st)) print_item(lb_pack_list_at(list, i), stderr);
  }
  lb_jit_free(m->jit);
  lb_cpu_code_release(code);
  return st;
}

// -- writing -----------------------------------------------------------------

static lb_status write_file(const char *out, const char *suffix,
                            const lb_strbuf *a, const lb_strbuf *b) {
  char path[4096];
  snprintf(path, sizeof path, "%s%s", out, suffix);
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(a->data, 1, a->len, f) == a->len;
  ok = ok && (!b || fwrite(b->data, 1, b->len, f) == b->len);
  if (f) ok = fclose(f) == 0 && ok;
  return ok ? LB_OK : lb_error(LB_IO, "cannot write '%s'", path);
}

// The start of a kernel's code, and its entry in the index.
typedef struct symbol {
  uint32_t code;
  size_t entry;
} symbol;

static int by_code(const void *a, const void *b) {
  uint32_t x = ((const symbol *)a)->code, y = ((const symbol *)b)->code;
  return (x > y) - (x < y);
}

// A symbol for each kernel, up to the next one: without its own size it would
// have that of all code, and tools that read symbols rely on the size.
static lb_status write_symbols(const pack_builder *m, const char *name,
                               lb_strbuf *out) {
  size_t n = m->image.n;
  symbol *symbols = calloc(n + 1, sizeof *symbols);
  if (!symbols) return lb_oom();
  for (size_t i = 0; i < n; i++)
    symbols[i] = (symbol){m->image.entries[i].code, i};
  qsort(symbols, n, sizeof *symbols, by_code);
  symbols[n].code = (uint32_t)m->image.code.len;
  for (size_t i = 0; i < n; i++)
    lb_strbuf_printf(out,
                     "  .type limber_%s_%zu, @function\n"
                     "  .set limber_%s_%zu, limber_pack_%s + %u\n"
                     "  .size limber_%s_%zu, %u\n",
                     name, symbols[i].entry, name, symbols[i].entry, name,
                     symbols[i].code, name, symbols[i].entry,
                     symbols[i + 1].code - symbols[i].code);
  free(symbols);
  return LB_OK;
}

// The last field of the header is the distance to the code, which the linker
// knows.
static lb_status write_assembly(const pack_builder *m, const char *bytes,
                                size_t index, lb_strbuf *out) {
  const char *name = strrchr(m->level, 'v');
  size_t field = offsetof(lb_pack, code), after = field + sizeof(int32_t);
  lb_strbuf_printf(out,
                   "  .section .rodata\n  .balign 64\n"
                   "  .globl lb_pack_%s\n  .hidden lb_pack_%s\n"
                   "  .type lb_pack_%s, @object\nlb_pack_%s:\n"
                   "  .incbin \"%s.bin\", 0, %zu\n"
                   "  .long limber_pack_%s - lb_pack_%s\n"
                   "  .incbin \"%s.bin\", %zu, %zu\n"
                   "  .size lb_pack_%s, %zu\n",
                   name, name, name, name, bytes, field, name, name, bytes,
                   after, index - after, name, index);
  lb_strbuf_printf(out,
                   "  .section .text.limber_pack, \"ax\", @progbits\n"
                   "  .balign 64\n  .type limber_pack_%s, @function\n"
                   "limber_pack_%s:\n  .incbin \"%s.bin\", %zu\n"
                   "  .size limber_pack_%s, . - limber_pack_%s\n",
                   name, name, bytes, index, name, name);
  LB_TRY(write_symbols(m, name, out));
  lb_strbuf_puts(out, "  .section .note.GNU-stack, \"\", @progbits\n");
  return lb_strbuf_status(out);
}

static lb_status write_all(pack_builder *m, const char *out) {
  lb_strbuf index = {0}, text = {0};
  lb_status st = lb_pack_image_index(&m->image, &index);
  if (lb_failed(st)) goto done;
  st = write_assembly(m, out, index.len, &text);
  if (!lb_failed(st)) st = write_file(out, ".bin", &index, &m->image.code);
  if (!lb_failed(st)) st = write_file(out, ".s", &text, NULL);
  if (!lb_failed(st))
    printf(
        "pack %s: %zu kernels, %zu not supported, %zu KB of code, %zu KB of "
        "index, %.1f s compiling, %.1f s checking\n",
        m->level, m->image.n, m->unsupported, m->image.code.len >> 10,
        index.len >> 10, 1e-6 * (double)m->compile_us,
        1e-6 * (double)m->check_us);

done:
  lb_strbuf_fini(&index);
  lb_strbuf_fini(&text);
  return st;
}

// -- the program -------------------------------------------------------------

static lb_status run(const char *level, const char *out) {
  lb_target target;
  lb_pack_list list = {0};
  pack_builder m = {.level = level};
  LB_TRY(lb_target_parse(level, &target));
  LB_TRY(lb_target_check(&target));
  lb_status st = lb_pack_samples(&list, lb_target_lanes(&target));
  for (size_t i = 0; !lb_failed(st) && !out && i < lb_pack_list_count(&list);
       i++)
    print_item(lb_pack_list_at(&list, i), stdout);
  if (!lb_failed(st) && out) st = compile_all(&m, &list);
  if (!lb_failed(st) && out) st = write_all(&m, out);
  lb_pack_image_fini(&m.image);
  lb_pack_list_fini(&list);
  return st;
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 3) {
    fputs("usage: limber-pack x86-64-v3|x86-64-v4 [OUT]\n", stderr);
    return 2;
  }
  lb_status st = run(argv[1], argv[2]);
  if (lb_failed(st))
    fprintf(stderr, "limber-pack: %s (%s)\n", lb_status_message(st),
            lb_status_where(st));
  int code = lb_failed(st) ? 1 : 0;
  lb_status_drop(st);
  return code;
}
