// api/prefer.c -- whether reusable kernels are preferred, and which setting
// decided it.
#include "api/prefer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

lb_prefer lb_prefer_read(const lb_log *log) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  const char *text = getenv("LIMBER_PREFER_REUSABLE_KERNELS");
  if (!text || !*text) return (lb_prefer){LIMBER_PREFER_REUSABLE != 0, "build"};
  bool known = strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
  if (!known && !atomic_flag_test_and_set(&warned))
    lb_log_line(log, LB_LOG_WARN,
                "LIMBER_PREFER_REUSABLE_KERNELS=%s acts as 1: it must be 0 or "
                "1",
                text);
  return (lb_prefer){strcmp(text, "0") != 0, "environment"};
}

lb_prefer lb_prefer_of(int given, const char *who, lb_prefer others) {
  return given ? (lb_prefer){given > 0, who} : others;
}
