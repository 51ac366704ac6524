// base/log.c -- log lines with a level, to a callback or to standard error.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/strbuf.h"

static void to_stderr(lb_log_level level, const char *line) {
  static const char *const names[] = {
      [LB_LOG_ERROR] = "error",
      [LB_LOG_WARN] = "warning",
      [LB_LOG_INFO] = "info",
      [LB_LOG_DEBUG] = "debug",
  };
  fprintf(stderr, "limber: %s: %s\n", names[level], line);
}

void lb_log_line(const lb_log *log, lb_log_level level, const char *fmt, ...) {
  if (!log || level > log->level) return;
  lb_strbuf line = {0};
  va_list ap;
  va_start(ap, fmt);
  lb_strbuf_vprintf(&line, fmt, ap);
  va_end(ap);
  const char *text = line.failed ? fmt : lb_strbuf_str(&line);
  if (log->fn) {
    log->fn(log->user, (int)level, text);
  } else {
    to_stderr(level, text);
  }
  lb_strbuf_fini(&line);
}
