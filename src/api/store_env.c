// api/store_env.c -- reads the environment variables of the kernel store.
#include <stdlib.h>
#include <string.h>

#include "api/cache.h"
#include "api/store.h"

static const char *variable(const char *name) {
  const char *text = secure_getenv(name);
  return text && *text ? text : NULL;
}

void lb_store_directory(lb_strbuf *out, const char **why) {
  const char *given = variable("LIMBER_CACHE_DIR");
  const char *xdg = variable("XDG_CACHE_HOME"), *home = variable("HOME");
  *why = NULL;
  if (given && strcmp(given, "off") == 0) {
    *why = "LIMBER_CACHE_DIR=off";
  } else if (given) {
    lb_strbuf_puts(out, given);
  } else if (xdg && *xdg == '/') {
    lb_strbuf_printf(out, "%s/limber", xdg);
  } else if (home && *home == '/') {
    lb_strbuf_printf(out, "%s/.cache/limber", home);
  } else {
    *why = "none of LIMBER_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
  }
}

uint64_t lb_store_capacity(const lb_log *log) {
  const char *text = variable("LIMBER_STORE_CAPACITY");
  uint64_t bytes = LB_STORE_CAPACITY;
  if (text && !lb_bytes_parse(text, &bytes))
    lb_log_line(log, LB_LOG_WARN,
                "LIMBER_STORE_CAPACITY=%s is ignored: it must be a number of "
                "bytes, with an optional suffix K, M or G",
                text);
  return bytes;
}

// Splits `list` in place.
static size_t split_layers(char *list, const char *out[LB_STORE_MAX_LAYERS],
                           const lb_log *log) {
  size_t n = 0;
  char *rest = NULL;
  for (char *p = strtok_r(list, ":", &rest); p;
       p = strtok_r(NULL, ":", &rest)) {
    if (n == LB_STORE_MAX_LAYERS) {
      lb_log_line(log, LB_LOG_WARN,
                  "LIMBER_CACHE_READONLY: only the first %d layers are used",
                  LB_STORE_MAX_LAYERS);
      break;
    }
    out[n++] = p;
  }
  return n;
}

static lb_status create(lb_store_options *o, const lb_log *log,
                        lb_store **out) {
  const char *layers[LB_STORE_MAX_LAYERS];
  const char *text = variable("LIMBER_CACHE_READONLY");
  char *list = strdup(text ? text : "");
  if (!list) return lb_oom();
  o->layers = layers;
  o->n_layers = split_layers(list, layers, log);
  lb_status st = LB_OK;
  if (o->directory || o->n_layers) st = lb_store_new(o, out);
  free(list);
  return st;
}

lb_status lb_store_from_env(const lb_log *log, lb_store **out) {
  lb_strbuf directory = {0};
  const char *why;
  lb_store_options o = {.capacity = lb_store_capacity(log), .log = log};
  *out = NULL;
  lb_store_directory(&directory, &why);
  bool off = variable("LIMBER_CACHE_DIR") && why;
  if (why && !off)
    lb_log_line(log, LB_LOG_WARN, "kernels are not stored on disk: %s", why);
  if (!why && o.capacity) o.directory = lb_strbuf_str(&directory);
  lb_status st = lb_strbuf_status(&directory);
  if (!lb_failed(st)) st = create(&o, log, out);
  lb_strbuf_fini(&directory);
  return st;
}
