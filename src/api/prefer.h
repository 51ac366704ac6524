// api/prefer.h -- whether reusable kernels are preferred, and who says so.
//
// On: no kernel that takes more than divisibility for granted is chosen or
// asked for where another serves. What stands nearest to its use decides: the
// attribute of a primitive, the option of a session, the environment
// (LIMBER_PREFER_REUSABLE_KERNELS=0|1), the option that the library was built
// with.
#ifndef LB_API_PREFER_H
#define LB_API_PREFER_H

#include "base/log.h"

typedef struct lb_prefer {
  bool reusable;
  const char *from;  // "attribute", "session", "environment", "build"; static
} lb_prefer;

// From the environment and the build. A bad variable is one warning.
lb_prefer lb_prefer_read(const lb_log *log);

// `given`: 1 and -1 decide, on and off; 0 leaves it to `others`. `who` says so.
lb_prefer lb_prefer_of(int given, const char *who, lb_prefer others);

#endif
