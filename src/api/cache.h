// api/cache.h -- the byte budget of this process, for compiled kernels and
// primitives.
//
//   LIMBER_CACHE_CAPACITY  how many bytes: "64M" (the default), "1G", "0"
#ifndef LB_API_CACHE_H
#define LB_API_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

// What the variable says, or the default. A bad one is a warning.
uint64_t lb_cache_first_capacity(const lb_log *log);

// Reads "64M": bytes, or K, M, G of them. False if it is something else, or
// more than fits.
bool lb_bytes_parse(const char *text, uint64_t *out);

#endif
