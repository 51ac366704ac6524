// graph/pass_merge.c -- common subexpression elimination.
//
// Two nodes of a region with the same operator, inputs and attributes compute
// the same, so the later one is replaced. Small constants with equal bytes
// count as one, because exporters write each list of axes anew. Nodes are
// looked up by a key, a byte string of all these; a node whose contents are
// known is looked up by its contents.
//
// A Concat of the inputs of an earlier Concat and one more value becomes a
// Concat of the earlier result and that value, so that all of them can share
// one buffer.
#include <string.h>

#include "base/map.h"
#include "graph/rewrite.h"

#define SMALL_CONST 256  // bytes

typedef struct merger {
  lb_rewrite *rw;
  lb_map consts;  // key -> lb_value
  lb_strbuf key;
} merger;

static void put(lb_strbuf *k, const void *p, size_t n) {
  if (n) lb_strbuf_putn(k, p, n);
}

static void put_u32(lb_strbuf *k, uint32_t x) { put(k, &x, sizeof x); }

static void put_text(lb_strbuf *k, const char *s) { put(k, s, strlen(s) + 1); }

// A large or strided tensor is only equal to itself.
static void put_tensor(lb_strbuf *k, const lb_tensor *t) {
  put_u32(k, (uint32_t)t->dtype);
  put_u32(k, (uint32_t)t->rank);
  put(k, t->dims, (size_t)t->rank * sizeof *t->dims);
  if (lb_tensor_is_dense(t) && lb_tensor_bytes(t) <= SMALL_CONST)
    put(k, t->data, lb_tensor_bytes(t));
  else
    put(k, &t, sizeof t);
}

static void put_attr(lb_strbuf *k, const lb_attr *a) {
  put_text(k, a->name);
  put_u32(k, (uint32_t)a->kind);
  put_u32(k, a->n);
  switch (a->kind) {
    case LB_ATTR_INT: put(k, &a->i, sizeof a->i); break;
    case LB_ATTR_FLOAT: put(k, &a->f, sizeof a->f); break;
    case LB_ATTR_STRING: put(k, a->s, a->n); break;
    case LB_ATTR_INTS: put(k, a->ints, a->n * sizeof *a->ints); break;
    case LB_ATTR_FLOATS: put(k, a->floats, a->n * sizeof *a->floats); break;
    case LB_ATTR_STRINGS:
      for (uint32_t i = 0; i < a->n; i++) put_text(k, a->strings[i]);
      break;
    case LB_ATTR_TENSOR: put_tensor(k, a->tensor); break;
  }
}

// Nodes with equal symbolic contents are equal: exporters repeat the shape
// arithmetic for every layer.
static bool put_known(lb_strbuf *k, const lb_node *n) {
  const lb_vinfo *v = n->n_out == 1 && n->out[0] ? &n->out[0]->info : NULL;
  if (!v || !v->known || v->rank < 0 || v->rank > 1) return false;
  put_text(k, "known");
  put_u32(k, (uint32_t)v->dtype);
  put_u32(k, (uint32_t)v->rank);
  put(k, v->known, (size_t)v->n_known * sizeof *v->known);
  return true;
}

// Writes the key of n as if it had only its first `n_in` inputs.
static void put_node(lb_strbuf *k, const lb_node *n, uint32_t n_in) {
  if (n_in == n->n_in && put_known(k, n)) return;
  put_u32(k, (uint32_t)n->op);
  put_u32(k, n_in);
  put_u32(k, n->n_out);
  for (uint32_t i = 0; i < n_in; i++)
    put_u32(k, n->in[i] ? n->in[i]->id : UINT32_MAX);
  for (uint32_t i = 0; i < n->n_attrs; i++) put_attr(k, &n->attrs[i]);
}

// Looks up the key just written; if it is new, stores and returns `mine`.
static lb_status find_or_put(merger *m, lb_map *map, void *mine, void **out) {
  LB_TRY(lb_strbuf_status(&m->key));
  *out = lb_map_get(map, m->key.data, m->key.len);
  if (*out) return LB_OK;
  void *key = lb_arena_memdup(&m->rw->scratch, m->key.data, m->key.len, 1);
  if (!key) return lb_oom();
  *out = mine;
  return lb_map_put(map, key, m->key.len, mine, NULL);
}

static lb_status merge_constant(merger *m, lb_value **in) {
  const lb_tensor *t = lb_value_const(*in);
  if (!t || !lb_tensor_is_dense(t) || lb_tensor_bytes(t) > SMALL_CONST)
    return LB_OK;
  m->key.len = 0;
  put_tensor(&m->key, t);
  void *first;
  LB_TRY(find_or_put(m, &m->consts, *in, &first));
  *in = first;
  return LB_OK;
}

static bool may_merge(const lb_node *n) {
  return lb_op_infos[n->op].cls != LB_CLASS_CONTROL && !lb_rewrite_random(n);
}

// Replaces the outputs of n by those of `first`, which computes the same.
static void merge_into(lb_rewrite *rw, lb_node *first, lb_node *n) {
  for (uint32_t i = 0; i < n->n_out; i++) {
    lb_value *v = n->out[i];
    if (!v) continue;
    if (first->out[i]) {
      if (lb_rewrite_uses(rw, v) > 0) lb_rewrite_replace(rw, v, first->out[i]);
      continue;
    }
    n->out[i] = NULL;
    lb_node_set_out(first, i, v);
    rw->changes++;
  }
}

static void apply(lb_rewrite *rw, lb_value **v) {
  if (!*v || (*v)->id >= rw->n_state) return;
  lb_value *to = rw->state[(*v)->id].to;
  if (to) *v = to;
}

static lb_status extend_concat(merger *m, const lb_map *seen, lb_node *n) {
  m->key.len = 0;
  put_node(&m->key, n, n->n_in - 1);
  LB_TRY(lb_strbuf_status(&m->key));
  const lb_node *earlier = lb_map_get(seen, m->key.data, m->key.len);
  if (!earlier || !earlier->out[0]) return LB_OK;
  lb_rewrite_use(m->rw, earlier->out[0], 1);
  n->in[0] = earlier->out[0];
  n->in[1] = n->in[n->n_in - 1];
  n->n_in = 2;
  m->rw->changes++;
  return LB_OK;
}

// Not for shape vectors, whose elements share no buffer.
static bool may_extend(const lb_node *n) {
  return n->op == LB_OP_Concat && n->n_in > 2 && n->out[0] &&
         n->out[0]->info.rank > 1;
}

static lb_status merge_node(merger *m, lb_map *seen, lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    apply(m->rw, &n->in[i]);
    if (n->in[i]) LB_TRY(merge_constant(m, &n->in[i]));
  }
  if (!may_merge(n)) return LB_OK;
  m->key.len = 0;
  put_node(&m->key, n, n->n_in);
  void *first;
  LB_TRY(find_or_put(m, seen, n, &first));
  if (first != n) merge_into(m->rw, first, n);
  return first == n && may_extend(n) ? extend_concat(m, seen, n) : LB_OK;
}

static lb_status merge_region(merger *m, lb_region *r) {
  lb_map seen = {0};  // key -> lb_node
  lb_status st = LB_OK;
  for (uint32_t i = 0; i < r->n_nodes && !lb_failed(st); i++) {
    lb_node *n = r->nodes[i];
    st = merge_node(m, &seen, n);
    for (uint32_t k = 0; k < n->n_regions && !lb_failed(st); k++)
      st = merge_region(m, n->regions[k]);
  }
  for (uint32_t i = 0; i < r->n_results; i++) apply(m->rw, &r->results[i]);
  lb_map_fini(&seen);
  return st;
}

lb_status lb_pass_merge(lb_rewrite *rw) {
  merger m = {.rw = rw};
  lb_status st = merge_region(&m, rw->graph->main);
  lb_map_fini(&m.consts);
  lb_strbuf_fini(&m.key);
  return st;
}
