// spec/facts.c -- what code may assume about sizes.
#include <assert.h>
#include <string.h>

#include "spec/spec.h"

_Static_assert(LB_MAX_FACTS == (LB_SFACT_KINDS - 1) * LB_SDIMS,
               "every fact fits");

static bool is_fact(lb_sfact x) {
  return x.kind > LB_SFACT_NONE && x.kind < LB_SFACT_KINDS &&
         x.dim < LB_SDIMS && (x.value || x.kind == LB_ASSUME_EQUAL);
}

static int count(const lb_facts *f) {
  int n = 0;
  while (n < LB_MAX_FACTS && f->list[n].kind) n++;
  return n;
}

// Sort key: kind and dim, not the value, because there is one fact per kind and
// dim.
static int order(lb_sfact x) { return x.kind * LB_SDIMS + x.dim; }

void lb_facts_add(lb_facts *f, lb_sfact_kind kind, lb_sdim dim,
                  uint16_t value) {
  lb_sfact x = {(uint8_t)kind, (uint8_t)dim, value};
  int n = count(f), at = 0;
  assert(is_fact(x));
  while (at < n && order(f->list[at]) < order(x)) at++;
  if (at == n || order(f->list[at]) != order(x))
    memmove(&f->list[at + 1], &f->list[at], (size_t)(n - at) * sizeof *f->list);
  f->list[at] = x;
}

lb_status lb_facts_verify(const lb_facts *f) {
  static const lb_sfact none = {0};
  int n = count(f);
  for (int i = 0; i < LB_MAX_FACTS; i++) {
    if (i < n ? !is_fact(f->list[i])
              : memcmp(&f->list[i], &none, sizeof none) != 0)
      return lb_error(LB_INVALID, "facts: entry %d is not a fact", i);
    if (i > 0 && i < n && order(f->list[i - 1]) >= order(f->list[i]))
      return lb_error(LB_INVALID, "facts: entry %d is out of order", i);
  }
  return LB_OK;
}

bool lb_facts_reusable(const lb_facts *f) {
  for (int i = 0; i < count(f); i++)
    if (f->list[i].kind == LB_ASSUME_EQUAL ||
        f->list[i].kind == LB_ASSUME_AT_MOST)
      return false;
  return true;
}

bool lb_facts_hold(const lb_facts *f, const int64_t dims[LB_SDIMS]) {
  for (int i = 0; i < count(f); i++) {
    lb_sfact x = f->list[i];
    if (x.kind == LB_ASSUME_MULTIPLE && dims[x.dim] % x.value) return false;
    if (x.kind == LB_ASSUME_EQUAL && dims[x.dim] != x.value) return false;
    if (x.kind == LB_ASSUME_AT_MOST && dims[x.dim] > x.value) return false;
  }
  return true;
}

int lb_facts_get(const lb_facts *f, lb_sfact_kind kind, lb_sdim dim, int dflt) {
  for (int i = 0; i < count(f); i++)
    if (f->list[i].kind == kind && f->list[i].dim == dim)
      return f->list[i].value;
  return dflt;
}

bool lb_facts_divides(const lb_facts *f, lb_sdim dim, int n) {
  int equal = lb_facts_get(f, LB_ASSUME_EQUAL, dim, -1);
  if (equal >= 0) return equal % n == 0;
  return lb_facts_get(f, LB_ASSUME_MULTIPLE, dim, 1) % n == 0;
}

void lb_facts_print(const lb_facts *f, lb_strbuf *out) {
  static const char *const dims[] = {"rows", "cols", "k", "taps_y", "taps_x"};
  static const char *const signs[] = {"", "%", "=", "<=", ":"};
  for (int i = 0; i < count(f); i++)
    lb_strbuf_printf(out, "%s%s%s%u", i ? " " : "", dims[f->list[i].dim],
                     signs[f->list[i].kind], (unsigned)f->list[i].value);
}
