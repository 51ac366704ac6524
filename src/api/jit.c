// api/jit.c -- LIMBER_JIT, LIMBER_ISA and what belongs to them.
#include "api/jit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "api/cache.h"
#include "device/cpu/isa.h"
#include "limber/limber.h"

// -- what is asked for -------------------------------------------------------

bool lb_kernels_may_compile(const lb_log *log) {
  const char *text = getenv("LIMBER_JIT");
  if (!text || !*text || strcmp(text, "process") == 0) return true;
  if (strcmp(text, "off") == 0) return false;
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_JIT=%s is ignored: it must be process or off", text);
  return true;
}

lb_isa lb_kernels_isa(const lb_log *log) {
  const char *text = getenv("LIMBER_ISA");
  lb_isa isa = lb_isa_host();
  lb_status st = text && *text ? lb_isa_restrict(&isa, text) : LB_OK;
  if (lb_failed(st))
    lb_log_line(log, LB_LOG_WARN, "LIMBER_ISA=%s is ignored: %s", text,
                lb_status_message(st));
  lb_status_drop(st);
  return isa;
}

// What makes us write files is not looked at in set-user-id programs.
static const char *writes_to(const char *name) {
  const char *text = secure_getenv(name);
  return text && *text && strcmp(text, "0") != 0 ? text : NULL;
}

// Beside the file that holds this very function: the library, or the program
// that it is linked into.
static void find_beside(lb_strbuf *out) {
  Dl_info info;
  if (!dladdr((void *)(uintptr_t)limber_version, &info) || !info.dli_fname)
    return;
  const char *slash = strrchr(info.dli_fname, '/');
  if (slash)
    lb_strbuf_putn(out, info.dli_fname, (size_t)(slash - info.dli_fname) + 1);
  lb_strbuf_puts(out, "limber-jit");
}

void lb_kernels_worker(lb_strbuf *out) {
  const char *given = secure_getenv("LIMBER_JIT_PATH");
  if (given && *given) {
    lb_strbuf_puts(out, given);
  } else {
    find_beside(out);
  }
}

// -- the pack ----------------------------------------------------------------

// Tables that jit/pack makes; cmake/pack.cmake says which there are.
#ifdef LIMBER_PACK_V3
extern const lb_pack lb_pack_v3;
#define PACK_V3 &lb_pack_v3
#else
#define PACK_V3 NULL
#endif
#ifdef LIMBER_PACK_V4
extern const lb_pack lb_pack_v4;
#define PACK_V4 &lb_pack_v4
#else
#define PACK_V4 PACK_V3
#endif

static const lb_pack *pack_of(lb_isa_level level) {
  const lb_pack *p = level >= LB_ISA_V4 ? PACK_V4 : PACK_V3;
  return p && p->magic == LB_PACK_MAGIC ? p : NULL;
}

const char *lb_kernels_levels(void) {
#ifdef LIMBER_PACK_V3
  static const char levels[] =
      "x86-64-v3"
#ifdef LIMBER_PACK_V4
      " x86-64-v4"
#endif
      ;
  return levels;
#elif defined(LIMBER_PACK_V4)
  return "x86-64-v4";
#else
  return "";
#endif
}

// -- opening -----------------------------------------------------------------

static lb_status open_slots(lb_kernels *k, lb_isa_level level,
                            const lb_pack *pack, const lb_log *log) {
  lb_slots *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  lb_status st = lb_slots_init(s, level == LB_ISA_V4 ? 16 : 8, pack);
  if (lb_failed(st)) {
    free(s);
    return st;
  }
  k->slots = s;
  return lb_process_shelf(log, &s->shelf);
}

static lb_status open_compiler(lb_kernels *k, lb_isa isa, const lb_log *log) {
  lb_strbuf path = {0};
  lb_kernels_worker(&path);
  lb_compiler_options o = {.worker = lb_strbuf_str(&path),
                           .slots = k->slots,
                           .isa = isa,
                           .log = log,
                           .events = k->slots->events,
                           .dump = writes_to("LIMBER_DUMP_OBJECTS"),
                           .perf = writes_to("LIMBER_PERF") != NULL};
  lb_status st = lb_strbuf_status(&path);
  if (!lb_failed(st)) st = lb_compiler_new(&o, &k->compiler);
  lb_strbuf_fini(&path);
  return st;
}

void lb_kernels_open(lb_kernels *k, const lb_log *log, lb_events *events) {
  bool compiles = lb_kernels_may_compile(log);
  lb_isa isa = lb_kernels_isa(log);
  const lb_pack *pack = pack_of(isa.level);
  *k = (lb_kernels){0};
  if (isa.level < LB_ISA_V3) {
    lb_log_line(log, LB_LOG_WARN,
                "fast kernels need x86-64-v3 or more, this is %s: everything "
                "runs, slowly",
                lb_isa_level_name(isa.level));
    return;
  }
  if (!compiles && !pack) return;
  lb_status st = open_slots(k, isa.level, pack, log);
  if (k->slots) k->slots->events = events;
  if (!lb_failed(st) && compiles) st = open_compiler(k, isa, log);
  if (lb_failed(st))
    lb_log_line(log, LB_LOG_WARN, "no kernels will be compiled: %s",
                lb_status_message(st));
  lb_status_drop(st);
}

void lb_kernels_close(lb_kernels *k) {
  lb_compiler_free(k->compiler);
  if (k->slots) lb_slots_fini(k->slots);
  free(k->slots);
  *k = (lb_kernels){0};
}
