// plan/guard.c -- finds and checks guards.
#include "plan/guard.h"

#include <string.h>

// -- finding -----------------------------------------------------------------

// The parameter whose elements v has, in the same order; else NULL.
static const lb_value *param_of(const lb_value *v) {
  while (v && v->producer && v->producer->in_order)
    v = v->producer->in[v->producer->proof.input];
  return v && !v->producer && !v->info.data ? v : NULL;
}

static void want(lb_guard *g, uint64_t bits) {
  for (uint32_t i = 0; i < g->n_wanted; i++)
    if (g->wanted[i] == bits) return;
  if (g->n_wanted < LB_GUARD_VALUES) g->wanted[g->n_wanted++] = bits;
}

// An input that rules of both kinds ask about is guarded for the first one.
static void add(lb_guard *g, lb_op op, lb_dtype dtype) {
  uint64_t bits[LB_SKIP_WANTED];
  lb_content_kind kind = lb_skip_content(op);
  if (g->kind != LB_CONTENT_ANY && g->kind != kind) return;
  uint32_t n = lb_skip_wanted(op, dtype, bits);
  if (kind == LB_CONTENT_UNIFORM && n == 0) return;
  g->kind = kind;
  for (uint32_t i = 0; i < n; i++) want(g, bits[i]);
}

static uint32_t index_of(const lb_region *r, const lb_value *param) {
  uint32_t i = 0;
  while (i < r->n_params && r->params[i] != param) i++;
  return i;
}

uint32_t lb_guards_find(const lb_graph *g, lb_guard *out) {
  const lb_region *r = g->main;
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *node = r->nodes[i];
    uint32_t reads = lb_skip_reads(node->op);
    for (uint32_t k = 0; k < node->n_in && node->runtime_skippable; k++) {
      const lb_value *param = reads >> k & 1 ? param_of(node->in[k]) : NULL;
      uint32_t at = param ? index_of(r, param) : r->n_params;
      if (at < r->n_params) add(&out[at], node->op, node->in[k]->info.dtype);
    }
  }
  for (uint32_t i = 0; i < r->n_params; i++) n += out[i].kind != LB_CONTENT_ANY;
  return n;
}

// -- checking ----------------------------------------------------------------

// Failures after which a guard is dropped, if at least one check in four
// failed.
#define MAX_FAILURES 16

bool lb_guard_is_dropped(const lb_guard *guard) {
  unsigned failures =
      atomic_load_explicit(&guard->failures, memory_order_relaxed);
  unsigned checks = atomic_load_explicit(&guard->checks, memory_order_relaxed);
  return failures >= MAX_FAILURES && failures > checks / 4;
}

static uint64_t bits_at(const char *p, size_t size) {
  uint64_t bits = 0;
  memcpy(&bits, p, size);
  return bits;
}

static bool is_uniform(const lb_guard *g, const lb_tensor *t, lb_content *out) {
  size_t size = lb_dtype_size(t->dtype), bytes = lb_tensor_bytes(t);
  const char *p = t->data;
  uint64_t bits = bits_at(p, size);
  bool wanted = false;
  for (uint32_t i = 0; i < g->n_wanted; i++) wanted |= g->wanted[i] == bits;
  // All elements are equal if each equals the next one.
  if (!wanted || memcmp(p, p + size, bytes - size) != 0) return false;
  *out = (lb_content){LB_CONTENT_UNIFORM, (int64_t)bits};
  return true;
}

static int64_t index_at(const lb_tensor *t, int64_t i) {
  int64_t wide;
  int32_t narrow;
  if (t->dtype == LB_I64) {
    memcpy(&wide, (const char *)t->data + i * 8, sizeof wide);
    return wide;
  }
  memcpy(&narrow, (const char *)t->data + i * 4, sizeof narrow);
  return narrow;
}

static bool is_range(const lb_tensor *t, lb_content *out) {
  if (t->rank > 1 || (t->dtype != LB_I64 && t->dtype != LB_I32)) return false;
  int64_t n = lb_tensor_count(t), first = index_at(t, 0);
  for (int64_t i = 1; i < n; i++)
    if (index_at(t, i) - i != first) return false;
  *out = (lb_content){LB_CONTENT_RANGE, first};
  return true;
}

lb_content lb_guard_check(lb_guard *guard, const lb_tensor *t) {
  lb_content found = {LB_CONTENT_ANY, 0};
  if (guard->kind == LB_CONTENT_ANY || !t->data || lb_guard_is_dropped(guard))
    return found;
  size_t bytes = lb_tensor_bytes(t);
  if (bytes == 0 || bytes > LB_GUARD_BYTES || !lb_tensor_is_dense(t))
    return found;
  bool holds = guard->kind == LB_CONTENT_RANGE ? is_range(t, &found)
                                               : is_uniform(guard, t, &found);
  bool moved = holds && guard->kind == LB_CONTENT_RANGE &&
               atomic_exchange_explicit(&guard->last, found.bits,
                                        memory_order_relaxed) != found.bits;
  atomic_fetch_add_explicit(&guard->checks, 1, memory_order_relaxed);
  if (!holds || moved)
    atomic_fetch_add_explicit(&guard->failures, 1, memory_order_relaxed);
  return found;
}
