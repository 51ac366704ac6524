// render/access.h -- Loads, stores, gathers and scatters as LLVM IR.
#ifndef LB_RENDER_ACCESS_H
#define LB_RENDER_ACCESS_H

#include "kir/kir.h"
#include "render/emit.h"

// A scalar or vector in memory, where a bool is a byte.
typedef struct lb_access {
  lb_lv pointer;
  lb_lv index;  // GATHER, SCATTER: in elements
  lb_lv mask;   // a bool per lane; poison: all lanes
  lb_lv other;  // loads: value of masked-off lanes; poison: 0
  uint32_t align;
  lb_dtype dtype;
  uint16_t lanes;
  bool invariant;  // loads: not written while the kernel runs
  bool stream;     // stores: non-temporal
} lb_access;

lb_lv lb_access_load(lb_em *e, const lb_access *a);
void lb_access_store(lb_em *e, const lb_access *a, lb_lv value);
lb_lv lb_access_gather(lb_em *e, const lb_access *a);
void lb_access_scatter(lb_em *e, const lb_access *a, lb_lv value);

#endif
