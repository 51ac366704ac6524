// api/env.h -- variables of the environment that choose among words.
#ifndef LB_API_ENV_H
#define LB_API_ENV_H

#include "base/log.h"

// The place in `words` of what the variable says, or 0: the first word is what
// stands for it if it says nothing. What is neither is a warning.
int lb_env_choice(const char *name, const char *const words[2],
                  const lb_log *log);

#endif
