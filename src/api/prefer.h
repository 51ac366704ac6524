// api/prefer.h -- whether reusable kernels are preferred, and which setting
// decided it.
//
// If they are, no kernel that assumes more about sizes than divisibility is
// chosen or requested where a reusable one serves. The order of precedence is:
// the attribute of a primitive, the option of a session, the environment
// (LIMBER_PREFER_REUSABLE_KERNELS=0|1), the build option of the library.
#ifndef LB_API_PREFER_H
#define LB_API_PREFER_H

#include "base/log.h"

typedef struct lb_prefer {
  bool reusable;
  const char *from;  // "attribute", "session", "environment", "build"; static
} lb_prefer;

// Returns the preference of the environment, else of the build. An invalid
// variable causes one warning per process.
lb_prefer lb_prefer_read(const lb_log *log);

// `given` is 1 (on), -1 (off) or 0 (use `others`). `who` becomes the `from` of
// a preference that `given` decides.
lb_prefer lb_prefer_of(int given, const char *who, lb_prefer others);

#endif
