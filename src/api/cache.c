// api/cache.c -- the byte budget of the process and its public functions.
#include "api/cache.h"

#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/shared.h"
#include "limber/limber.h"

#define DEFAULT_CAPACITY (UINT64_C(64) << 20)

bool lb_bytes_parse(const char *text, uint64_t *out) {
  static const char units[] = "KMG";
  uint64_t n = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9'; p++) {
    uint64_t digit = (uint64_t)(*p - '0');
    if (n > (UINT64_MAX - digit) / 10) return false;
    n = n * 10 + digit;
  }
  if (p == text) return false;
  const char *unit = *p ? strchr(units, *p & ~0x20) : NULL;
  int shift = unit ? 10 * (int)(unit - units + 1) : 0;
  if (p[unit != NULL] || n > UINT64_MAX >> shift) return false;
  *out = n << shift;
  return true;
}

uint64_t lb_cache_first_capacity(const lb_log *log) {
  const char *text = getenv("LIMBER_CACHE_CAPACITY");
  uint64_t bytes;
  if (!text || !*text) return DEFAULT_CAPACITY;
  if (lb_bytes_parse(text, &bytes)) return bytes;
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_CACHE_CAPACITY=%s is ignored: it must be a number of "
              "bytes, with an optional suffix K, M or G",
              text);
  return DEFAULT_CAPACITY;
}

// -- the public functions -----------------------------------------------------

limber_status limber_set_cache_capacity(uint64_t bytes) {
  lb_shared *shared;
  lb_status st = lb_shared_get(&shared);
  if (!lb_failed(st)) lb_lru_set_capacity(&shared->lru, bytes);
  return lb_report(st, NULL);
}

limber_status limber_get_cache_capacity(uint64_t *out) {
  lb_shared *shared;
  lb_status st = lb_shared_get(&shared);
  *out = lb_failed(st) ? 0 : lb_lru_capacity(&shared->lru);
  return lb_report(st, NULL);
}
