// api/cache.h -- the shelf of this process: one byte budget for the compiled
// kernels and the primitives of all runtimes.
//
//   LIMBER_CACHE_CAPACITY  how many bytes: "64M" (the default), "1G", "0"
#ifndef LB_API_CACHE_H
#define LB_API_CACHE_H

#include "base/log.h"
#include "cache/shelf.h"

// The shelf, made at first use; lives for ever. A bad variable is one warning.
lb_status lb_process_shelf(const lb_log *log, lb_shelf **out);

// Reads "64M": bytes, or K, M, G of them. False if it is something else, or
// more than fits.
bool lb_bytes_parse(const char *text, uint64_t *out);

#endif
