// device/cpu/pack.c -- finds a kernel in a pack.
#include "device/cpu/pack.h"

#include <string.h>

// Binary search for the first entry with a hash of at least `hash`.
static uint32_t first_of(const lb_pack *p, uint64_t hash) {
  uint32_t low = 0, high = p->n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (lb_pack_entries(p)[middle].hash < hash)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool implies(const lb_facts *known, lb_sfact x) {
  lb_sdim dim = (lb_sdim)x.dim;
  int equal = lb_facts_get(known, LB_ASSUME_EQUAL, dim, -1);
  switch (x.kind) {
    case LB_ASSUME_MULTIPLE: return lb_facts_divides(known, dim, x.value);
    case LB_ASSUME_AT_MOST: {
      int max = lb_facts_get(known, LB_ASSUME_AT_MOST, dim, equal);
      return max >= 0 && max <= x.value;
    }
    default: return equal == x.value;
  }
}

// The distance between a kernel's facts `have` and the facts `want`: choices
// count first, then assumptions that could have been made and were not. A tile
// that is too small is worse than one that is too large, which handles the
// remainder with smaller tiles. -1: the kernel is not valid here.
static int distance(const lb_facts *have, const lb_facts *want) {
  int choices = 0, assumed = 0;
  for (int i = 0; i < LB_MAX_FACTS && have->list[i].kind; i++) {
    lb_sfact x = have->list[i];
    if (x.kind == LB_CHOOSE_TILE) {
      int over =
          x.value - lb_facts_get(want, LB_CHOOSE_TILE, (lb_sdim)x.dim, 0);
      choices += over < 0 ? -2 * over : over;
    } else if (implies(want, x)) {
      assumed++;
    } else {
      return -1;
    }
  }
  return choices * (LB_MAX_FACTS + 1) + LB_MAX_FACTS - assumed;
}

lb_kernel_fn *lb_pack_find(const lb_pack *p, const lb_spec *spec,
                           const lb_facts *facts) {
  size_t size = lb_spec_bytes(spec);
  uint64_t hash = lb_hash(spec, size);
  const lb_pack_entry *best = NULL;
  int best_distance = -1;
  for (uint32_t i = first_of(p, hash); i < p->n; i++) {
    const lb_pack_entry *e = &lb_pack_entries(p)[i];
    if (e->hash != hash) break;
    int d = distance(&e->facts, facts);
    bool better = d >= 0 && (best_distance < 0 || d < best_distance);
    if (!better || memcmp((const char *)p + e->spec, spec, size) != 0) continue;
    best = e;
    best_distance = d;
  }
  if (!best) return NULL;
  return (lb_kernel_fn *)((uintptr_t)p + (uintptr_t)(intptr_t)p->code +
                          best->code);
}
