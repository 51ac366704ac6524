// shape/symtab.c -- the table: symbols, and interning of atoms, products and
// sums, which expr.h defines.
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shape/expr.h"

const lb_prod lb_prod_one = {.range = {1, 1, 1}};

lb_status lb_symtab_new(lb_symtab **out) {
  *out = NULL;
  lb_symtab *t = calloc(1, sizeof *t);
  if (!t) return lb_oom();
  lb_arena_init(&t->arena, 4096);
  *out = t;
  return LB_OK;
}

void lb_symtab_free(lb_symtab *t) {
  if (!t) return;
  lb_map_fini(&t->names);
  lb_map_fini(&t->atoms);
  lb_map_fini(&t->prods);
  lb_map_fini(&t->exprs);
  lb_arena_fini(&t->arena);
  free(t->symbols);
  free(t);
}

static lb_fail remember(lb_map *m, const void *key, size_t size, void *value) {
  lb_status st = lb_map_put(m, key, size, value, NULL);
  bool failed = lb_failed(st);
  lb_status_drop(st);
  return failed ? LB_FAIL_MEMORY : LB_FAIL_NONE;
}

static int depth_of(lb_dim d) { return d.e ? d.e->depth : 0; }
static int size_of(lb_dim d) { return d.e ? d.e->size : 1; }
static int max_int(int a, int b) { return a > b ? a : b; }

static lb_fail wrap_atom(lb_symtab *t, const lb_atom *a, const lb_prod **out) {
  return lb_prod_intern(t, &a, 1, out);
}

lb_fail lb_atom_intern(lb_symtab *t, lb_atom_kind kind, lb_dim a, lb_dim b,
                       const lb_prod **out) {
  lb_atom key = {.a = a, .b = b, .kind = kind};
  size_t key_size = offsetof(lb_atom, range);
  lb_atom *found = lb_map_get(&t->atoms, &key, key_size);
  if (found) return wrap_atom(t, found, out);
  key.depth = 1 + max_int(depth_of(a), depth_of(b));
  key.size = 1 + size_of(a) + size_of(b);
  if (key.depth > LB_MAX_DEPTH || key.size > LB_MAX_SIZE) return LB_FAIL_SIZE;
  key.range = lb_range_atom(kind, a, b);
  lb_atom *made =
      lb_arena_memdup(&t->arena, &key, sizeof key, _Alignof(lb_atom));
  if (!made) return LB_FAIL_MEMORY;
  LB_FIT(remember(&t->atoms, made, key_size, made));
  return wrap_atom(t, made, out);
}

lb_fail lb_prod_intern(lb_symtab *t, const lb_atom *const *atoms, int n,
                       const lb_prod **out) {
  *out = &lb_prod_one;
  if (n == 0) return LB_FAIL_NONE;
  size_t bytes = (size_t)n * sizeof *atoms;
  lb_prod *p = lb_map_get(&t->prods, atoms, bytes);
  if (!p) {
    p = lb_arena_zalloc(&t->arena, sizeof *p + bytes, _Alignof(lb_prod));
    if (!p) return LB_FAIL_MEMORY;
    p->n = n;
    p->range = lb_prod_one.range;
    for (int i = 0; i < n; i++) {
      p->atoms[i] = atoms[i];
      p->depth = max_int(p->depth, atoms[i]->depth);
      p->size += atoms[i]->size;
      p->range = lb_range_mul(p->range, atoms[i]->range);
    }
    LB_FIT(remember(&t->prods, p->atoms, bytes, p));
  }
  *out = p;
  return LB_FAIL_NONE;
}

static lb_fail make_expr(lb_symtab *t, const lb_poly *p, lb_dim *out) {
  int depth = 0, size = 0;
  for (int i = 0; i < p->n; i++) {
    depth = max_int(depth, p->t[i].prod->depth);
    size += 1 + p->t[i].prod->size;
  }
  if (size > LB_MAX_SIZE) return LB_FAIL_SIZE;
  lb_dim_range range = lb_range_poly(p);
  if (range.at_least == range.at_most) {
    *out = lb_dim_const(range.at_least);
    return LB_FAIL_NONE;
  }
  size_t bytes = (size_t)p->n * sizeof *p->t;
  lb_expr *e = lb_arena_alloc(&t->arena, sizeof *e + bytes, _Alignof(lb_expr));
  if (!e) return LB_FAIL_MEMORY;
  *e = (lb_expr){.range = range, .depth = depth, .size = size, .n = p->n};
  memcpy(e->terms, p->t, bytes);
  LB_FIT(remember(&t->exprs, e->terms, bytes, e));
  *out = (lb_dim){0, e};
  return LB_FAIL_NONE;
}

lb_fail lb_poly_intern(lb_symtab *t, const lb_poly *p, lb_dim *out) {
  *out = lb_dim_const(lb_poly_constant(p));
  if (p->n == 0 || p->t[0].prod == &lb_prod_one) return LB_FAIL_NONE;
  const lb_expr *e = lb_map_get(&t->exprs, p->t, (size_t)p->n * sizeof *p->t);
  if (!e) return make_expr(t, p, out);
  *out = (lb_dim){0, e};
  return LB_FAIL_NONE;
}

static lb_status reserve_symbol(lb_symtab *t) {
  if (t->count < t->cap) return LB_OK;
  if (t->cap > INT_MAX / 2) return lb_error(LB_INVALID, "too many symbols");
  int cap = t->cap ? t->cap * 2 : 8;
  const lb_atom **grown = realloc(t->symbols, (size_t)cap * sizeof *t->symbols);
  if (!grown) return lb_oom();
  t->symbols = grown;
  t->cap = cap;
  return LB_OK;
}

static lb_status add_symbol(lb_symtab *t, const char *name, int64_t at_least,
                            lb_dim *out) {
  LB_TRY(reserve_symbol(t));
  lb_atom *a = lb_arena_new(&t->arena, lb_atom, 1);
  if (!a) return lb_oom();
  *a = (lb_atom){.a = lb_dim_const(t->count),
                 .kind = LB_ATOM_SYMBOL,
                 .range = {1, at_least, INT64_MAX},
                 .name = lb_arena_strdup(&t->arena, name),
                 .size = 1};
  if (!a->name) return lb_oom();
  lb_poly p = {.n = 1, .t = {{1, NULL}}};
  if (wrap_atom(t, a, &p.t[0].prod) || lb_poly_intern(t, &p, out))
    return lb_oom();
  t->symbols[t->count++] = a;
  return LB_OK;
}

lb_status lb_symtab_named(lb_symtab *t, const char *name, lb_dim *out) {
  const lb_expr *e = lb_map_gets(&t->names, name);
  if (!e) {
    LB_TRY(add_symbol(t, name, 0, out));
    int symbol = t->count - 1;
    return lb_map_puts(&t->names, t->symbols[symbol]->name, (void *)out->e);
  }
  *out = (lb_dim){0, e};
  return LB_OK;
}

static lb_status add_fresh(lb_symtab *t, int64_t at_least, lb_dim *out) {
  char name[16];
  snprintf(name, sizeof name, "?%d", t->fresh + 1);
  LB_TRY(add_symbol(t, name, at_least, out));
  t->fresh++;
  return LB_OK;
}

lb_status lb_symtab_fresh(lb_symtab *t, lb_dim *out) {
  return add_fresh(t, 0, out);
}

lb_status lb_symtab_fresh_int(lb_symtab *t, lb_dim *out) {
  return add_fresh(t, INT64_MIN, out);
}

int lb_symtab_count(const lb_symtab *t) { return t->count; }

const char *lb_symtab_name(const lb_symtab *t, int symbol) {
  return t->symbols[symbol]->name;
}
