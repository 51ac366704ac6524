// plan/sizes.c -- numbers the distinct dim expressions of a graph.
#include "plan/sizes.h"

#include <stdlib.h>

#include "base/map.h"

static size_t count_dims(const lb_graph *g) {
  size_t n = 0;
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_vinfo *info = &g->values[i]->info;
    if (info->rank > 0) n += (size_t)info->rank;
    if (info->known) n += (size_t)info->n_known;
  }
  return n;
}

// `map` maps a dim to a pointer into `known`.
static lb_status number_of(lb_sizes *s, lb_map *map, const lb_dim *d,
                           uint32_t *out) {
  int64_t *at = lb_map_get(map, d, sizeof *d);
  if (!at) {
    s->dims[s->n] = *d;
    at = &s->known[s->n];
    *at = lb_dim_is_const(*d) ? d->k : -1;
    LB_TRY(lb_map_put(map, &s->dims[s->n], sizeof *d, at, NULL));
    s->n++;
  }
  *out = (uint32_t)(at - s->known);
  return LB_OK;
}

static lb_status number_all(lb_sizes *s, lb_map *map, const lb_graph *g) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_vinfo *info = &g->values[i]->info;
    s->first[i] = at;
    for (int k = 0; k < info->rank; k++)
      LB_TRY(number_of(s, map, &info->dims[k], &s->numbers[at++]));
    for (int k = 0; info->known && k < info->n_known; k++)
      LB_TRY(number_of(s, map, &info->known[k], &s->numbers[at++]));
  }
  return LB_OK;
}

lb_status lb_sizes_init(lb_sizes *s, const lb_graph *g) {
  size_t n = count_dims(g) + 1, values = (size_t)g->n_values + 1;
  lb_map map = {0};
  *s = (lb_sizes){.dims = calloc(n, sizeof *s->dims),
                  .known = calloc(n, sizeof *s->known),
                  .numbers = calloc(n, sizeof *s->numbers),
                  .first = calloc(values, sizeof *s->first),
                  .n_symbols = lb_symtab_count(g->syms)};
  bool ok = s->dims && s->known && s->numbers && s->first;
  lb_status st = ok ? number_all(s, &map, g) : lb_oom();
  lb_map_fini(&map);
  if (lb_failed(st)) lb_sizes_fini(s);
  return st;
}

void lb_sizes_fini(lb_sizes *s) {
  free(s->dims);
  free(s->known);
  free(s->numbers);
  free(s->first);
  *s = (lb_sizes){0};
}
