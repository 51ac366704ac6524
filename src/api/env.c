// api/env.c -- environment variables that choose one of two words.
#include "api/env.h"

#include <stdlib.h>
#include <string.h>

int lb_env_choice(const char *name, const char *const words[2],
                  const lb_log *log) {
  const char *text = getenv(name);
  if (!text || !*text || strcmp(text, words[0]) == 0) return 0;
  if (strcmp(text, words[1]) == 0) return 1;
  lb_log_line(log, LB_LOG_WARN, "%s=%s is ignored: it must be %s or %s", name,
              text, words[0], words[1]);
  return 0;
}
