// base/strbuf.c -- a growable string; its capacity doubles.
#include "base/strbuf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ensures space for n more bytes and the NUL.
static bool reserve(lb_strbuf *s, size_t n) {
  if (s->failed) return false;
  if (n < s->cap - s->len) return true;  // both 0 while there is no data
  s->failed = true;
  if (n >= SIZE_MAX / 2 - s->len) return false;
  size_t cap = s->cap ? s->cap : 64;
  while (cap <= s->len + n) cap *= 2;
  char *data = realloc(s->data, cap);
  if (!data) return false;
  s->data = data;
  s->cap = cap;
  s->failed = false;
  return true;
}

void lb_strbuf_fini(lb_strbuf *s) {
  free(s->data);
  *s = (lb_strbuf){0};
}

void lb_strbuf_putc(lb_strbuf *s, char c) { lb_strbuf_putn(s, &c, 1); }

void lb_strbuf_puts(lb_strbuf *s, const char *text) {
  lb_strbuf_putn(s, text, strlen(text));
}

void lb_strbuf_putn(lb_strbuf *s, const char *text, size_t n) {
  if (!reserve(s, n)) return;
  if (n) memcpy(s->data + s->len, text, n);
  s->len += n;
  s->data[s->len] = '\0';
}

void lb_strbuf_printf(lb_strbuf *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  lb_strbuf_vprintf(s, fmt, ap);
  va_end(ap);
}

void lb_strbuf_vprintf(lb_strbuf *s, const char *fmt, va_list ap) {
  va_list measure;
  va_copy(measure, ap);
  int n = vsnprintf(NULL, 0, fmt, measure);
  va_end(measure);
  if (n < 0) s->failed = true;
  if (n < 0 || !reserve(s, (size_t)n)) return;
  vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap);
  s->len += (size_t)n;
}

const char *lb_strbuf_str(const lb_strbuf *s) { return s->data ? s->data : ""; }

lb_status lb_strbuf_status(const lb_strbuf *s) {
  return s->failed ? lb_oom() : LB_OK;
}
