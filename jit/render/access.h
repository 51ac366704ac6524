// render/access.h -- loads, stores, gathers and scatters as LLVM IR.
#ifndef LB_RENDER_ACCESS_H
#define LB_RENDER_ACCESS_H

#include "kir/kir.h"
#include "render/emit.h"

// A scalar or vector in memory; a bool there is a byte.
typedef struct lb_access {
  lb_lv pointer;
  lb_lv index;  // GATHER, SCATTER: in elements
  lb_lv mask;   // bools a lane; poison: all
  lb_lv other;  // loads: lanes that are off; poison: 0
  uint32_t align;
  lb_dtype dtype;
  uint16_t lanes;
  bool fixed;   // loads: nobody writes there while the kernel runs
  bool stream;  // stores: past the caches
} lb_access;

lb_lv lb_access_load(lb_em *e, const lb_access *a);
void lb_access_store(lb_em *e, const lb_access *a, lb_lv value);
lb_lv lb_access_gather(lb_em *e, const lb_access *a);
void lb_access_scatter(lb_em *e, const lb_access *a, lb_lv value);

#endif
