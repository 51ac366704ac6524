// base/log.h -- log lines with a level, to a callback or to standard error.
//
// A log belongs to a runtime; there is no global one. A NULL log is silent.
#ifndef LB_BASE_LOG_H
#define LB_BASE_LOG_H

#include "base/status.h"

typedef enum lb_log_level {
  LB_LOG_ERROR,
  LB_LOG_WARN,
  LB_LOG_INFO,
  LB_LOG_DEBUG,
} lb_log_level;

typedef void lb_log_fn(void *user, int level, const char *line);

typedef struct lb_log {
  lb_log_fn *fn;  // NULL: standard error
  void *user;
  lb_log_level level;  // more detailed lines are dropped
} lb_log;

void lb_log_line(const lb_log *log, lb_log_level level, const char *fmt, ...)
    LB_PRINTF(3, 4);

#endif
