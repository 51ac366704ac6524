// spec/canon.c -- the canonical form of a spec, independent of the order of the
// calls that built it.
//
// Nodes are numbered depth by depth: the sources of a node get their new
// numbers before it, and its bytes determine its order among nodes of its
// depth. Equal nodes have equal depth, so they become adjacent there and are
// merged.
#include "spec/canon.h"

#include <string.h>

typedef struct canon {
  const lb_spec *from;
  lb_spec *to;
  bool live[LB_SPEC_MAX_NODES];
  uint8_t depth[LB_SPEC_MAX_NODES];  // 0: INPUT, SCALAR
  uint8_t map[LB_SPEC_MAX_NODES];
} canon;

typedef struct candidate {
  lb_snode node;
  uint8_t old;
} candidate;

static bool is_argument(const lb_snode *n) {
  return n->op == LB_S_INPUT || n->op == LB_S_SCALAR;
}

static bool is_copy(const lb_spec *s, const lb_snode *n) {
  return n->op == LB_S_CAST && s->nodes[n->src[0]].dtype == n->dtype;
}

static void mark_live(canon *c) {
  const lb_spec *s = c->from;
  for (int i = 0; i < s->n_out; i++) c->live[s->out[i].node] = true;
  for (int i = s->n_nodes - 1; i >= 0; i--)
    for (int j = 0; c->live[i] && j < s->nodes[i].n_src; j++)
      c->live[s->nodes[i].src[j]] = true;
}

// Returns the max depth.
static int find_depths(canon *c) {
  int most = 0;
  for (int i = 0; i < c->from->n_nodes; i++) {
    const lb_snode *n = &c->from->nodes[i];
    uint8_t deepest = 0;
    for (int j = 0; j < n->n_src; j++)
      if (c->depth[n->src[j]] > deepest) deepest = c->depth[n->src[j]];
    bool same = is_argument(n) || is_copy(c->from, n);
    c->depth[i] = (uint8_t)(deepest + !same);
    if (c->depth[i] > most) most = c->depth[i];
  }
  return most;
}

static void put_arguments(canon *c) {
  const lb_spec *s = c->from;
  for (int i = 0; i < s->n_nodes; i++) {
    const lb_snode *n = &s->nodes[i];
    if (!is_argument(n)) continue;
    uint8_t at = (uint8_t)(n->arg + (n->op == LB_S_SCALAR ? s->n_in : 0));
    c->to->nodes[at] =
        (lb_snode){.op = n->op, .dtype = n->dtype, .arg = n->arg};
    c->map[i] = at;
  }
  c->to->n_nodes = (uint8_t)(s->n_in + s->n_scalars);
}

static lb_snode renumbered(const canon *c, const lb_snode *n) {
  lb_snode x = {.op = n->op, .dtype = n->dtype, .n_src = n->n_src};
  if (n->op == LB_S_ACC) x.arg = n->arg;
  for (int j = 0; j < n->n_src; j++) x.src[j] = c->map[n->src[j]];
  if (lb_sop_infos[n->op].commutative && x.src[0] > x.src[1]) {
    uint8_t first = x.src[0];
    x.src[0] = x.src[1];
    x.src[1] = first;
  }
  return x;
}

static void insert(candidate *list, int n, candidate x) {
  for (; n > 0 && memcmp(&list[n - 1].node, &x.node, sizeof x.node) > 0; n--)
    list[n] = list[n - 1];
  list[n] = x;
}

static void append(canon *c, const candidate *list, int n) {
  for (int i = 0; i < n; i++) {
    if (i == 0 || memcmp(&list[i - 1].node, &list[i].node, sizeof(lb_snode)))
      c->to->nodes[c->to->n_nodes++] = list[i].node;
    c->map[list[i].old] = (uint8_t)(c->to->n_nodes - 1);
  }
}

// A copy has the depth of its source, which is appended before it.
static void put_depth(canon *c, int depth) {
  candidate list[LB_SPEC_MAX_NODES];
  int n = 0;
  for (int i = 0; i < c->from->n_nodes; i++) {
    const lb_snode *node = &c->from->nodes[i];
    if (c->depth[i] != depth || !c->live[i] || is_argument(node)) continue;
    if (is_copy(c->from, node)) continue;
    insert(list, n++, (candidate){renumbered(c, node), (uint8_t)i});
  }
  append(c, list, n);
  for (int i = 0; i < c->from->n_nodes; i++) {
    const lb_snode *node = &c->from->nodes[i];
    if (c->depth[i] == depth && is_copy(c->from, node))
      c->map[i] = c->map[node->src[0]];
  }
}

static uint8_t form_of(const lb_spec *s) {
  if (s->form != LB_FORM_ROW_REDUCE) return s->form;
  for (int i = 0; i < s->n_nodes; i++)
    if (lb_sop_infos[s->nodes[i].op].rule == LB_SR_REDUCE)
      return LB_FORM_ROW_REDUCE;
  return LB_FORM_ELTWISE;
}

void lb_spec_canonical(const lb_spec *s, lb_spec *out) {
  canon c = {.from = s, .to = out};
  *out = (lb_spec){.n_in = s->n_in, .n_out = s->n_out};
  out->n_scalars = s->n_scalars;
  mark_live(&c);
  int deepest = find_depths(&c);
  put_arguments(&c);
  for (int depth = 0; depth <= deepest; depth++) put_depth(&c, depth);
  for (int i = 0; i < s->n_in; i++)
    out->in[i] =
        (lb_soperand){.dtype = s->in[i].dtype, .layout = s->in[i].layout};
  for (int i = 0; i < s->n_out; i++)
    out->out[i] = (lb_soperand){.dtype = s->out[i].dtype,
                                .layout = s->out[i].layout,
                                .node = c.map[s->out[i].node]};
  out->form = s->form;
  out->form = form_of(out);
}
