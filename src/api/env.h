// api/env.h -- environment variables that choose one of two words.
#ifndef LB_API_ENV_H
#define LB_API_ENV_H

#include "base/log.h"

// Returns the index in `words` of the variable's value. The first word is the
// default, for a variable that is unset or empty. Any other value is ignored
// with a warning.
int lb_env_choice(const char *name, const char *const words[2],
                  const lb_log *log);

#endif
