// base/strbuf.h -- a growable string.
//
// {0} is the empty string. A failed allocation sets `failed`, and later appends
// do nothing, so a chain of appends needs one check at its end.
#ifndef LB_BASE_STRBUF_H
#define LB_BASE_STRBUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct lb_strbuf {
  char *data;  // owned; NUL-terminated, or NULL while empty
  size_t len;
  size_t cap;
  bool failed;
} lb_strbuf;

void lb_strbuf_fini(lb_strbuf *s);
void lb_strbuf_putc(lb_strbuf *s, char c);
void lb_strbuf_puts(lb_strbuf *s, const char *text);
void lb_strbuf_putn(lb_strbuf *s, const char *text, size_t n);
void lb_strbuf_printf(lb_strbuf *s, const char *fmt, ...) LB_PRINTF(2, 3);
void lb_strbuf_vprintf(lb_strbuf *s, const char *fmt, va_list ap);
const char *lb_strbuf_str(const lb_strbuf *s);   // "" while empty; borrowed
lb_status lb_strbuf_status(const lb_strbuf *s);  // LB_OOM if anything failed

#endif
