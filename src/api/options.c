// api/options.c -- reads and writes public structs that start with their size.
#include "api/options.h"

#include <string.h>

static lb_status size_of(const char *name, const void *p, size_t *out) {
  memcpy(out, p, sizeof *out);
  if (*out > sizeof *out) return LB_OK;
  return lb_error(LB_INVALID, "%s: set its field size to sizeof(%s)", name,
                  name);
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

lb_status lb_options_read(const char *name, const void *in, size_t known,
                          void *out) {
  size_t size;
  memset(out, 0, known);
  if (!in) return LB_OK;
  LB_TRY(size_of(name, in, &size));
  const char *bytes = in;
  for (size_t i = known; i < size; i++) {
    if (!bytes[i]) continue;
    return lb_error(LB_UNSUPPORTED,
                    "%s: a field is set that this version of the library does "
                    "not have; it is older than the program's header",
                    name);
  }
  memcpy(out, in, min_size(size, known));
  return LB_OK;
}

lb_status lb_options_write(const char *name, const void *in, size_t known,
                           void *out) {
  size_t size;
  if (!out) return lb_error(LB_INVALID, "%s: is NULL", name);
  LB_TRY(size_of(name, out, &size));
  memset(out, 0, size);
  memcpy(out, in, min_size(size, known));
  memcpy(out, &size, sizeof size);
  return LB_OK;
}
