// api/options.h -- structs that start with their size, across versions.
#ifndef LB_API_OPTIONS_H
#define LB_API_OPTIONS_H

#include <stddef.h>

#include "base/status.h"

// Fills `out`, of `known` bytes, from the caller's struct: fields it does not
// have are zero; fields that this version does not know must be zero. `in` may
// be NULL: all defaults. `name` is for the error.
lb_status lb_options_read(const char *name, const void *in, size_t known,
                          void *out);

// Writes `in`, of `known` bytes, into the caller's struct, as far as that
// reaches. The caller's size stays; what this version does not know is zero.
lb_status lb_options_write(const char *name, const void *in, size_t known,
                           void *out);

#endif
