// worker/jit.c -- Lowers, renders, compiles and checks.
#include "worker/jit.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lower/lower.h"
#include "render/render.h"
#include "spec/generator.h"

enum { MAX_USES = 200 };  // of a toolchain, because its memory grows with each

struct lb_jit {
  const lb_loader *loader;  // borrowed; may be NULL
  lb_toolchain *toolchain;  // owned; for `target`
  lb_target target;
  int uses;
};

lb_status lb_jit_new(const lb_loader *loader, lb_jit **out) {
  lb_jit *j = calloc(1, sizeof *j);
  *out = j;
  if (!j) return lb_oom();
  j->loader = loader;
  return LB_OK;
}

void lb_jit_free(lb_jit *j) {
  if (!j) return;
  lb_toolchain_free(j->toolchain);
  free(j);
}

// CPU time, not wall time: the worker may have to wait for a processor.
static uint32_t cpu_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint32_t)(t.tv_sec * 1000000 + t.tv_nsec / 1000);
}

static lb_status get_toolchain(lb_jit *j, const lb_target *t) {
  bool reusable =
      j->toolchain && lb_target_equal(&j->target, t) && j->uses < MAX_USES;
  j->uses++;
  if (reusable) return LB_OK;
  lb_toolchain_free(j->toolchain);
  j->toolchain = NULL;
  j->target = *t;
  j->uses = 0;
  return lb_toolchain_new(t, &j->toolchain);
}

// The kernel, with the entry name that loaders expect.
static lb_status lower(const lb_request *r, const lb_facts *f,
                       const lb_target *t, lb_kernel *out) {
  LB_TRY(lb_lower(&r->spec, f, t, out));
  memset(out->name, 0, sizeof out->name);
  memcpy(out->name, LB_KERNEL_ENTRY, sizeof LB_KERNEL_ENTRY);
  return LB_OK;
}

// The speed of matmuls depends on accumulators in registers, so counting spills
// is worth its time.
static bool is_matmul(const lb_spec *s) {
  return s->form == LB_FORM_MATMUL || s->form == LB_FORM_CONV;
}

static size_t local_bytes(const lb_kernel *k) {
  size_t n = 0;
  for (uint32_t i = 0; i < k->n_insts; i++)
    if (k->insts[i].op == LB_K_LOCAL)
      n += (size_t)k->insts[i].imm * lb_dtype_size(k->insts[i].dtype);
  return n;
}

static lb_status build_object(lb_jit *j, const lb_request *r, const lb_facts *f,
                              const lb_target *t, lb_kernel *kernel,
                              lb_blob *out, lb_object_info *info) {
  lb_strbuf text = {0};
  lb_compile_stats stats = {.check_spills = is_matmul(&r->spec)};
  uint32_t start = cpu_us();
  lb_status st = get_toolchain(j, t);
  if (!lb_failed(st)) st = lower(r, f, t, kernel);
  if (!lb_failed(st)) st = lb_render_llvm(kernel, t, &text);
  if (!lb_failed(st)) st = lb_strbuf_status(&text);
  if (lb_failed(st)) goto done;
  info->compile_us += cpu_us() - start;
  stats.local_bytes = local_bytes(kernel);
  st = lb_toolchain_compile(j->toolchain, lb_strbuf_str(&text), out, &stats);
  info->compile_us += (uint32_t)(stats.ns / 1000);
  info->spills = stats.loop_spills;

done:
  lb_strbuf_fini(&text);
  return st;
}

// If accumulators are spilled, compiles again with a tile of fewer rows. The
// tile does not change results, and equal requests end with equal tiles.
static lb_status build_without_spills(lb_jit *j, const lb_request *r,
                                      const lb_target *t, lb_kernel *kernel,
                                      lb_blob *out, lb_object_info *info) {
  lb_facts f = r->facts;
  for (;;) {
    LB_TRY(build_object(j, r, &f, t, kernel, out, info));
    int rows = lb_facts_get(&f, LB_CHOOSE_TILE, LB_DIM_ROWS,
                            (int)lb_lower_tile_of(t).rows);
    if (info->spills == 0 || rows <= 1) return LB_OK;
    lb_facts_add(&f, LB_CHOOSE_TILE, LB_DIM_ROWS,
                 (uint16_t)(rows - rows / 4 - 1));
    lb_kernel_fini(kernel);
    lb_blob_fini(out);
  }
}

static lb_status check_object(lb_jit *j, const lb_request *r,
                              const lb_kernel *kernel, const lb_blob *object,
                              lb_object_info *info) {
  lb_kernel_fn *code;
  void *handle;
  uint32_t start = cpu_us();
  LB_TRY(
      j->loader->load(j->loader->user, lb_blob_span(object), &code, &handle));
  lb_status st =
      lb_check_code(&r->spec, &r->facts, kernel, code, &info->checks);
  j->loader->unload(j->loader->user, handle);
  info->check_us = cpu_us() - start;
  return st;
}

static void describe(const lb_request *r, lb_object_info *info) {
  info->generator = LB_GENERATOR_VERSION;
  info->abi = LB_KERNEL_ABI;
  memcpy(info->entry, LB_KERNEL_ENTRY, sizeof LB_KERNEL_ENTRY);
  memcpy(info->target, r->target, sizeof info->target);
}

lb_status lb_jit_compile(lb_jit *j, const lb_request *r, lb_blob *out,
                         lb_object_info *info) {
  lb_kernel kernel = {0};
  lb_target target;
  *out = (lb_blob){0};
  *info = (lb_object_info){0};
  LB_TRY(lb_target_parse(r->target, &target));
  LB_TRY(lb_target_check(&target));
  describe(r, info);
  lb_status st = build_without_spills(j, r, &target, &kernel, out, info);
  if (lb_failed(st)) goto done;
  if (j->loader && lb_target_runs(&target))
    st = check_object(j, r, &kernel, out, info);
  if (!lb_failed(st) && out->size > LB_MAX_OBJECT)
    st = lb_error(LB_UNSUPPORTED,
                  "the object of %zu bytes exceeds the size limit", out->size);

done:
  lb_kernel_fini(&kernel);
  if (lb_failed(st)) lb_blob_fini(out);
  return st;
}
