// pack/list.c -- specs and facts, each once.
#include "pack/list.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static lb_status add(lb_pack_list *l, const lb_spec *spec,
                     const lb_facts *facts) {
  lb_pack_item *item = calloc(1, sizeof *item);
  if (!item) return lb_oom();
  memcpy(&item->spec, spec, lb_spec_bytes(spec));
  item->facts = *facts;
  lb_status st = LB_OK;
  bool known = lb_map_has(&l->map, item, sizeof *item);
  if (!known) st = lb_map_put(&l->map, item, sizeof *item, item, NULL);
  if (known || lb_failed(st)) free(item);
  return st;
}

static lb_facts without_divisibility(const lb_facts *f) {
  lb_facts out = {0};
  for (int i = 0; i < LB_MAX_FACTS && f->list[i].kind; i++) {
    lb_sfact x = f->list[i];
    if (x.kind != LB_ASSUME_MULTIPLE)
      lb_facts_add(&out, (lb_sfact_kind)x.kind, (lb_sdim)x.dim, x.value);
  }
  return out;
}

// Sizes at which choices change, and some between.
static const int64_t some_rows[] = {1,  2,  3,  4,  5,  6,   7,   8,
                                    9,  10, 11, 12, 13, 14,  15,  16,
                                    17, 24, 25, 31, 64, 100, 127, 1024};
static const int64_t some_cols[] = {1,  2,  7,  15,  16,  17,  31,   32,
                                    33, 48, 64, 100, 128, 384, 1000, 1536};
static const int64_t some_more[] = {1, 7, 32, 64, 128, 256, 384, 1024, 4096};

static lb_facts facts_at(const lb_spec *spec, uint32_t lanes, int64_t rows,
                         int64_t cols, int64_t more) {
  int64_t dims[LB_SDIMS] = {rows, cols};
  for (int i = LB_DIM_K; i < LB_SDIMS; i++) dims[i] = more;
  lb_facts facts = lb_facts_of(spec, lanes, dims);
  return without_divisibility(&facts);
}

lb_status lb_pack_list_add(lb_pack_list *l, const lb_spec *spec,
                           uint32_t lanes) {
  lb_facts last = facts_at(spec, lanes, 1, 1, 1);
  LB_TRY(add(l, spec, &last));
  for (size_t i = 0; i < COUNT(some_rows); i++) {
    for (size_t j = 0; j < COUNT(some_cols); j++) {
      for (size_t k = 0; k < COUNT(some_more); k++) {
        lb_facts f =
            facts_at(spec, lanes, some_rows[i], some_cols[j], some_more[k]);
        if (memcmp(&f, &last, sizeof f) == 0) continue;
        LB_TRY(add(l, spec, &f));
        last = f;
      }
    }
  }
  return LB_OK;
}

size_t lb_pack_list_count(const lb_pack_list *l) { return l->map.count; }

const lb_pack_item *lb_pack_list_at(const lb_pack_list *l, size_t i) {
  return l->map.entries[i].value;
}

void lb_pack_list_fini(lb_pack_list *l) {
  for (size_t i = 0; i < l->map.count; i++) free(l->map.entries[i].value);
  lb_map_fini(&l->map);
}
