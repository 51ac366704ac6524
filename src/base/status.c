// base/status.c -- errors: creation, trail, notes, release.
#include "base/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lb_error {
  lb_code code;
  char *message;    // owned
  char where[240];  // locations that do not fit are left out
};

// Returned if an error cannot be allocated. Shared: never changed or freed.
static char no_memory_text[] = "out of memory";
static struct lb_error no_memory = {
    .code = LB_OOM, .message = no_memory_text, .where = ""};

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// Appends complete locations only: a truncated line number would mislead.
static void add_location(struct lb_error *e, const char *file, int line) {
  size_t len = strlen(e->where), space = sizeof e->where - len;
  int n = snprintf(e->where + len, space, "%s%s:%d", len ? " < " : "",
                   base_name(file), line);
  if (n < 0 || (size_t)n >= space) e->where[len] = '\0';
}

lb_status lb_error_at(const char *file, int line, lb_code code, const char *fmt,
                      ...) {
  assert(code != LB_CODE_OK);
  struct lb_error *e = malloc(sizeof *e);
  if (!e) return (lb_status){&no_memory};
  e->code = code;
  e->where[0] = '\0';
  va_list ap;
  va_start(ap, fmt);
  int n = vasprintf(&e->message, fmt, ap);
  va_end(ap);
  if (n < 0) {
    free(e);
    return (lb_status){&no_memory};
  }
  add_location(e, file, line);
  return (lb_status){e};
}

lb_status lb_status_trail(lb_status s, const char *file, int line) {
  if (s.err && s.err != &no_memory) add_location(s.err, file, line);
  return s;
}

// If there is no memory for the note the message is unchanged.
lb_status lb_status_note(lb_status s, const char *fmt, ...) {
  if (!s.err || s.err == &no_memory) return s;
  char *note = NULL, *joined = NULL;
  va_list ap;
  va_start(ap, fmt);
  int n = vasprintf(&note, fmt, ap);
  va_end(ap);
  if (n < 0) return s;
  if (asprintf(&joined, "%s: %s", note, s.err->message) >= 0) {
    free(s.err->message);
    s.err->message = joined;
  }
  free(note);
  return s;
}

lb_code lb_status_code(lb_status s) { return s.err ? s.err->code : LB_CODE_OK; }

const char *lb_status_message(lb_status s) {
  return s.err ? s.err->message : "";
}

const char *lb_status_where(lb_status s) { return s.err ? s.err->where : ""; }

const char *lb_code_name(lb_code code) {
  static const char *const names[] = {
      [LB_CODE_OK] = "ok",
      [LB_INVALID] = "invalid",
      [LB_UNSUPPORTED] = "unsupported",
      [LB_OOM] = "out of memory",
      [LB_IO] = "input/output",
      [LB_DEVICE] = "device",
      [LB_CANCELLED] = "cancelled",
      [LB_INTERNAL] = "internal",
  };
  size_t i = (size_t)code;
  return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

void lb_status_drop(lb_status s) {
  if (!s.err || s.err == &no_memory) return;
  free(s.err->message);
  free(s.err);
}
