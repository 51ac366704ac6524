// api/cache.h -- the byte budget of the process for compiled kernels and
// primitives.
//
//   LIMBER_CACHE_CAPACITY  the budget in bytes: "64M" (the default), "1G", "0"
#ifndef LB_API_CACHE_H
#define LB_API_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

// Returns the value of the variable, or the default. An invalid value is
// ignored with a warning.
uint64_t lb_cache_first_capacity(const lb_log *log);

// Parses a number of bytes with an optional suffix K, M or G: "64M". Returns
// false if the text is malformed or the number does not fit.
bool lb_bytes_parse(const char *text, uint64_t *out);

#endif
