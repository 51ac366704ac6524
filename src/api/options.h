// api/options.h -- reads and writes public structs that start with their size,
// so that programs and libraries of different versions work together.
#ifndef LB_API_OPTIONS_H
#define LB_API_OPTIONS_H

#include <stddef.h>

#include "base/status.h"

// Fills `out`, of `known` bytes, from the caller's struct. Fields that the
// caller's struct does not have become zero; fields that this version does not
// know must be zero. `in` may be NULL: all defaults. `name` is for the error.
lb_status lb_options_read(const char *name, const void *in, size_t known,
                          void *out);

// Writes `in`, of `known` bytes, into the caller's struct, up to the size that
// the caller set, which is left as it is. Fields that this version does not
// know become zero.
lb_status lb_options_write(const char *name, const void *in, size_t known,
                           void *out);

#endif
