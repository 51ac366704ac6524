// pack/list.c -- Specs and facts, each pair once.
#include "pack/list.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 16 };  // of a tile

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

// The facts found for one spec.
typedef struct found {
  lb_facts facts[LB_MAX_FACTS_OF];
  int n;
} found;

static bool has(const found *all, const lb_facts *f) {
  for (int i = 0; i < all->n; i++)
    if (memcmp(&all->facts[i], f, sizeof *f) == 0) return true;
  return false;
}

static bool is_narrow(const lb_facts *f) {
  return lb_facts_get(f, LB_ASSUME_AT_MOST, LB_DIM_COLS, 0) > 0;
}

static int rows_of(const lb_facts *f) {
  return lb_facts_get(f, LB_CHOOSE_TILE, LB_DIM_ROWS, 0);
}

// Whether another kernel of the list serves as well: the code of a matmul also
// has tiles of one row less, of three and of one. Little is lost if its tile is
// not much larger, or if columns are few and rows so few that there is little
// to compute.
static bool is_served(const found *all, const lb_facts *f) {
  for (int rows = rows_of(f) + 1; rows <= MAX_ROWS; rows++) {
    lb_facts larger = *f;
    lb_facts_add(&larger, LB_CHOOSE_TILE, LB_DIM_ROWS, (uint16_t)rows);
    bool similar = 3 * rows_of(f) > 2 * rows;
    bool small = is_narrow(f) && 2 * rows_of(f) < rows;
    if ((similar || small) && has(all, &larger) && !is_served(all, &larger))
      return true;
  }
  return false;
}

static bool is_matmul(const lb_spec *s) {
  return s->form == LB_FORM_MATMUL || s->form == LB_FORM_CONV;
}

// Short rows use the code for any number of columns until their own kernels are
// compiled: these would take a tenth of the pack.
static bool is_omitted(const found *all, const lb_spec *spec,
                       const lb_facts *f) {
  if (is_matmul(spec)) return is_served(all, f);
  return spec->form == LB_FORM_ROW_REDUCE && is_narrow(f);
}

// Sizes at which choices change, and some in between.
static const int64_t sample_rows[] = {1,  2,  3,  4,  5,  6,   7,   8,
                                      9,  10, 11, 12, 13, 14,  15,  16,
                                      17, 24, 25, 31, 64, 100, 127, 1024};
static const int64_t sample_cols[] = {1,  2,  7,  15,  16,  17,  31,   32,  33,
                                      48, 56, 64, 100, 128, 384, 1000, 1536};
static const int64_t sample_others[] = {1,   7,   32,   64,  128,
                                        256, 384, 1024, 4096};

static lb_facts facts_at(const lb_spec *spec, uint32_t lanes, int64_t rows,
                         int64_t cols, int64_t others) {
  int64_t dims[LB_SDIMS] = {rows, cols};
  for (int i = LB_DIM_K; i < LB_SDIMS; i++) dims[i] = others;
  lb_facts facts = lb_facts_of(spec, lanes, dims);
  return without_divisibility(&facts);
}

static lb_status find_facts(const lb_spec *spec, uint32_t lanes, found *out) {
  for (size_t i = 0; i < COUNT(sample_rows); i++) {
    for (size_t j = 0; j < COUNT(sample_cols); j++) {
      for (size_t k = 0; k < COUNT(sample_others); k++) {
        lb_facts f = facts_at(spec, lanes, sample_rows[i], sample_cols[j],
                              sample_others[k]);
        if (has(out, &f)) continue;
        if (out->n == LB_MAX_FACTS_OF)
          return lb_error(LB_INTERNAL,
                          "the sizes tried give more than %d sets of facts",
                          LB_MAX_FACTS_OF);
        out->facts[out->n++] = f;
      }
    }
  }
  return LB_OK;
}

lb_status lb_pack_list_add(lb_pack_list *l, const lb_spec *spec,
                           uint32_t lanes) {
  found all = {.n = 0};
  LB_TRY(find_facts(spec, lanes, &all));
  for (int i = 0; i < all.n; i++)
    if (!is_omitted(&all, spec, &all.facts[i]))
      LB_TRY(add(l, spec, &all.facts[i]));
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
