// api/jit.c -- LIMBER_JIT, LIMBER_COMPILE, LIMBER_ISA and what belongs to them.
#include "api/jit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cache.h"
#include "api/store.h"
#include "spec/target.h"

// -- what is asked for -------------------------------------------------------

// The place in `words` of what the variable says, or 0: the first word is what
// stands for it if it says nothing.
static int choice(const char *name, const char *const words[2],
                  const lb_log *log) {
  const char *text = getenv(name);
  if (!text || !*text || strcmp(text, words[0]) == 0) return 0;
  if (strcmp(text, words[1]) == 0) return 1;
  lb_log_line(log, LB_LOG_WARN, "%s=%s is ignored: it must be %s or %s", name,
              text, words[0], words[1]);
  return 0;
}

bool lb_kernels_may_compile(const lb_log *log) {
  return !choice("LIMBER_JIT", (const char *const[]){"process", "off"}, log);
}

static bool in_background(const limber_runtime_options *o, const lb_log *log) {
  if (o->compile) return o->compile == LIMBER_COMPILE_BACKGROUND;
  return !choice("LIMBER_COMPILE",
                 (const char *const[]){"background", "settle"}, log);
}

static bool critical_alone(const limber_runtime_options *o, const lb_log *log) {
  if (o->compile_ops) return o->compile_ops == LIMBER_COMPILE_CRITICAL;
  return choice("LIMBER_COMPILE_OPS", (const char *const[]){"all", "critical"},
                log);
}

// For measuring what the order is worth.
static bool in_turn(const lb_log *log) {
  return choice("LIMBER_COMPILE_ORDER", (const char *const[]){"worth", "fifo"},
                log);
}

static bool judges(const lb_log *log) {
  return !choice("LIMBER_JUDGE", (const char *const[]){"on", "off"}, log);
}

static bool unpaced(const lb_log *log) {
  return choice("LIMBER_COMPILE_PACE", (const char *const[]){"on", "off"}, log);
}

static unsigned sightings(const limber_runtime_options *o, const lb_log *log) {
  const char *text = getenv("LIMBER_SIGHTINGS");
  if (o->sightings) return (unsigned)o->sightings;
  if (!text || !*text) return 0;
  char *end;
  long n = strtol(text, &end, 10);
  if (!*end && n >= 1 && n <= 1000000) return (unsigned)n;
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_SIGHTINGS=%s is ignored: it must be a number from 1 to "
              "1000000",
              text);
  return 0;
}

lb_target lb_kernels_target(const lb_log *log) {
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

static lb_status open_slots(lb_kernels *k, const lb_target *target,
                            const lb_pack *pack, const lb_log *log) {
  lb_slots *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  lb_status st = lb_slots_init(s, lb_target_lanes(target), pack);
  if (lb_failed(st)) {
    free(s);
    return st;
  }
  k->slots = s;
  return lb_process_shelf(log, &s->shelf);
}

// A library that was built without the program is no reason for a warning: it
// has settle say so.
static bool is_there(const char *path, const lb_log *log) {
  if (access(path, X_OK) == 0) return true;
  lb_log_line(log, LB_LOG_INFO,
              "nothing is compiled in the background: there is no '%s'", path);
  return false;
}

static lb_status open_service(lb_kernels *k, const lb_service_options *service,
                              lb_target target, const lb_log *log) {
  lb_strbuf path = {0};
  lb_service_options o = *service;
  const char *given = secure_getenv("LIMBER_JIT_PATH");
  lb_kernels_worker(&path);
  lb_status_drop(lb_store_of_environment(log, &k->store));
  if (!given || !*given) o.find_only = !is_there(lb_strbuf_str(&path), log);
  if (o.find_only && !k->store) o.background = false;
  o.maker = (lb_maker_options){.worker = lb_strbuf_str(&path),
                               .slots = k->slots,
                               .store = k->store,
                               .target = target,
                               .judges = service->maker.judges,
                               .log = log,
                               .events = k->slots->events,
                               .dump = writes_to("LIMBER_DUMP_OBJECTS"),
                               .perf = writes_to("LIMBER_PERF") != NULL};
  lb_status st = lb_strbuf_status(&path);
  if (!lb_failed(st)) st = lb_service_new(&o, &k->service);
  lb_strbuf_fini(&path);
  return st;
}

void lb_kernels_open(lb_kernels *k, const limber_runtime_options *o,
                     const lb_kernels_with *with) {
  const lb_log *log = with->log;
  bool compiles = lb_kernels_may_compile(log);
  lb_service_options service = {.pool = with->pool,
                                .maker = {.judges = judges(log)},
                                .in_turn = in_turn(log),
                                .background = in_background(o, log),
                                .unpaced = unpaced(log),
                                .sightings = sightings(o, log)};
  lb_target target = lb_kernels_target(log);
  const lb_pack *pack = pack_of(target.level);
  *k = (lb_kernels){.critical = critical_alone(o, log)};
  if (target.level < LB_LEVEL_V3) {
    lb_log_line(log, LB_LOG_WARN,
                "fast kernels need x86-64-v3 or more, this is %s: everything "
                "runs, slowly",
                lb_level_name(target.level));
    return;
  }
  if (!compiles && !pack) return;
  lb_status st = open_slots(k, &target, pack, log);
  if (k->slots) k->slots->events = with->events;
  if (!lb_failed(st) && compiles) st = open_service(k, &service, target, log);
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
  *k = (lb_kernels){0};
}
