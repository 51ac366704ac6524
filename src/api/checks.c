// api/checks.c -- reads LIMBER_CHECK_MEMORY.
#include "api/checks.h"

#include <stdlib.h>
#include <string.h>

#include "plan/memory.h"

static unsigned check_of(const char *entry, size_t length) {
  static const struct {
    const char *name;
    lb_memory_check check;
  } checks[] = {{"separate", LB_CHECK_SEPARATE}, {"poison", LB_CHECK_POISON}};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
    if (strlen(checks[i].name) == length &&
        !memcmp(checks[i].name, entry, length))
      return checks[i].check;
  return 0;
}

unsigned lb_checks_read(const lb_log *log) {
  const char *at = getenv("LIMBER_CHECK_MEMORY");
  unsigned checks = 0;
  if (!at || !*at) return 0;
  for (;; at++) {
    size_t length = strcspn(at, ",");
    unsigned check = check_of(at, length);
    if (!check)
      lb_log_line(log, LB_LOG_WARN,
                  "LIMBER_CHECK_MEMORY: '%.*s' is ignored: entries are "
                  "separate and poison, with a comma between them",
                  (int)(length < 64 ? length : 64), at);
    checks |= check;
    at += length;
    if (!*at) return checks;
  }
}
