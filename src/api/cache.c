// api/cache.c -- the shelf of this process, and the public functions about it.
#include "api/cache.h"

#include <stdlib.h>
#include <string.h>

#include "api/error.h"
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

static uint64_t first_capacity(const lb_log *log) {
  const char *text = getenv("LIMBER_CACHE_CAPACITY");
  uint64_t bytes;
  if (!text || !*text) return DEFAULT_CAPACITY;
  if (lb_bytes_parse(text, &bytes)) return bytes;
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_CACHE_CAPACITY=%s is ignored: it must be a number of "
              "bytes, or of K, M or G",
              text);
  return DEFAULT_CAPACITY;
}

// What is one per process can hang off nothing that a program destroys.
lb_status lb_process_shelf(const lb_log *log, lb_shelf **out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static _Atomic(lb_shelf *) made;
  static lb_shelf shelf;
  lb_status st = LB_OK;
  *out = atomic_load_explicit(&made, memory_order_acquire);
  if (*out) return LB_OK;
  pthread_mutex_lock(&lock);
  *out = atomic_load_explicit(&made, memory_order_relaxed);
  if (!*out) {
    st = lb_shelf_init(&shelf, first_capacity(log));
    if (!lb_failed(st)) {
      atomic_store_explicit(&made, &shelf, memory_order_release);
      *out = &shelf;
    }
  }
  pthread_mutex_unlock(&lock);
  return st;
}

// -- the public functions -----------------------------------------------------

// A program that asks before it has a runtime hears of a bad variable on
// standard error.
static lb_status shelf_of(lb_shelf **out) {
  static const lb_log log = {.level = LB_LOG_WARN};
  return lb_process_shelf(&log, out);
}

limber_status limber_set_cache_capacity(uint64_t bytes) {
  lb_shelf *shelf;
  lb_status st = shelf_of(&shelf);
  if (!lb_failed(st)) lb_shelf_set_capacity(shelf, bytes);
  return lb_report(st, NULL);
}

limber_status limber_get_cache_capacity(uint64_t *out) {
  lb_shelf *shelf;
  lb_status st = shelf_of(&shelf);
  *out = lb_failed(st) ? 0 : lb_shelf_capacity(shelf);
  return lb_report(st, NULL);
}
