// api/jit.c -- LIMBER_JIT, LIMBER_ISA and what belongs to them.
#include "api/jit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/env.h"
#include "api/store.h"
#include "device/cpu/pack.h"
#include "limber/limber.h"

// -- what is asked for -------------------------------------------------------

static bool may_compile(const lb_log *log) {
  return !lb_env_choice("LIMBER_JIT", (const char *const[]){"process", "off"},
                        log);
}

// For measuring what the order is worth.
static bool in_turn(const lb_log *log) {
  return lb_env_choice("LIMBER_COMPILE_ORDER",
                       (const char *const[]){"worth", "fifo"}, log);
}

static bool judges(const lb_log *log) {
  return !lb_env_choice("LIMBER_KERNEL_TRIALS",
                        (const char *const[]){"on", "off"}, log);
}

static bool unpaced(const lb_log *log) {
  return lb_env_choice("LIMBER_COMPILE_PACE",
                       (const char *const[]){"on", "off"}, log);
}

static lb_target read_target(const lb_log *log) {
  const char *text = getenv("LIMBER_ISA");
  lb_target target = lb_target_host();
  lb_status st = text && *text ? lb_target_restrict(&target, text) : LB_OK;
  if (lb_failed(st))
    lb_log_line(log, LB_LOG_WARN, "LIMBER_ISA=%s is ignored: %s", text,
                lb_status_message(st));
  lb_status_drop(st);
  return target;
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

static void find_worker(lb_strbuf *out) {
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

static const lb_pack *pack_of(lb_level level) {
  const lb_pack *p = level >= LB_LEVEL_V4 ? PACK_V4 : PACK_V3;
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

static lb_status open_slots(lb_kernels *k, lb_lru *lru, lb_hub *hub) {
  lb_slots *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  lb_status st = lb_slots_init(s, lb_target_lanes(&k->target), k->device);
  if (lb_failed(st)) {
    free(s);
    return st;
  }
  s->lru = lru;
  s->hub = hub;
  k->slots = s;
  return LB_OK;
}

// A library that was built without the program is no reason for a warning: it
// has settle say so.
static bool is_there(const char *path, const lb_log *log) {
  if (access(path, X_OK) == 0) return true;
  lb_log_line(log, LB_LOG_INFO,
              "nothing is compiled in the background: there is no '%s'", path);
  return false;
}

static lb_status open_service(lb_kernels *k, const lb_log *log) {
  const char *given = secure_getenv("LIMBER_JIT_PATH");
  const char *path = lb_strbuf_str(&k->worker);
  LB_TRY(lb_strbuf_status(&k->worker));
  lb_status_drop(lb_store_of_environment(log, &k->store));
  lb_service_options o = {.maker = {.worker = path,
                                    .slots = k->slots,
                                    .store = k->store,
                                    .target = k->target,
                                    .log = log,
                                    .hub = k->slots->hub,
                                    .dump = writes_to("LIMBER_DUMP_OBJECTS")},
                          .judges = judges(log),
                          .in_turn = in_turn(log),
                          .unpaced = unpaced(log)};
  if (!given || !*given) o.find_only = !is_there(path, log);
  return lb_service_new(&o, &k->service);
}

void lb_kernels_open(lb_kernels *k, lb_lru *lru, lb_hub *hub,
                     const lb_log *log) {
  *k =
      (lb_kernels){.target = read_target(log), .may_compile = may_compile(log)};
  find_worker(&k->worker);
  const lb_pack *pack = pack_of(k->target.level);
  if (k->target.level < LB_LEVEL_V3) {
    lb_log_line(log, LB_LOG_WARN,
                "fast kernels need x86-64-v3 or more, this is %s: everything "
                "runs, slowly",
                lb_level_name(k->target.level));
    return;
  }
  if (!k->may_compile && !pack) return;
  bool perf = k->may_compile && writes_to("LIMBER_PERF") != NULL;
  lb_status st = lb_device_open(pack, perf, log, &k->device);
  if (!lb_failed(st)) st = open_slots(k, lru, hub);
  if (!lb_failed(st) && k->may_compile) st = open_service(k, log);
  if (lb_failed(st))
    lb_log_line(log, LB_LOG_WARN, "no kernels will be compiled: %s",
                lb_status_message(st));
  lb_status_drop(st);
}

void lb_kernels_close(lb_kernels *k) {
  lb_service_free(k->service);
  lb_store_free(k->store);
  if (k->slots) lb_slots_fini(k->slots);
  free(k->slots);
  lb_device_close(k->device);
  lb_strbuf_fini(&k->worker);
  *k = (lb_kernels){0};
}
