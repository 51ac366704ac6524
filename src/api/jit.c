// api/jit.c -- LIMBER_JIT and what belongs to it.
#include "api/jit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "limber/limber.h"

static bool asked_for(const lb_log *log) {
  const char *text = getenv("LIMBER_JIT");
  if (!text || !*text || strcmp(text, "off") == 0) return false;
  if (strcmp(text, "process") == 0) return true;
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_JIT=%s is ignored: it must be process or off", text);
  return false;
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

static lb_status open_with(const char *worker, const lb_log *log,
                           lb_compiler **out) {
  const char *isa = getenv("LIMBER_ISA");
  lb_compiler_options o = {.worker = worker, .isa = lb_isa_host(), .log = log};
  if (isa && *isa) LB_TRY(lb_isa_restrict(&o.isa, isa));
  if (o.isa.level < LB_ISA_V3)
    return lb_error(LB_UNSUPPORTED, "kernels need x86-64-v3 or more");
  return lb_compiler_new(&o, out);
}

lb_compiler *lb_jit_open(const lb_log *log) {
  lb_compiler *c = NULL;
  lb_strbuf path = {0};
  if (!asked_for(log)) return NULL;
  const char *given = secure_getenv("LIMBER_JIT_PATH");
  if (given && *given) {
    lb_strbuf_puts(&path, given);
  } else {
    find_beside(&path);
  }
  lb_status st = lb_strbuf_status(&path);
  if (!lb_failed(st)) st = open_with(lb_strbuf_str(&path), log, &c);
  if (lb_failed(st))
    lb_log_line(log, LB_LOG_WARN, "no kernels will be compiled: %s",
                lb_status_message(st));
  lb_status_drop(st);
  lb_strbuf_fini(&path);
  return c;
}
