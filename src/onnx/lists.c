// onnx/lists.c -- lists of tensors that are only stacked become tensors.
//
// A loop of a scripted model appends to a list, which is stacked behind it:
//
//   e = SequenceEmpty()
//   s = Loop(.., e) {.., p: q = SequenceInsert(p, x) -> .., q}
//   y = ConcatFromSequence{axis, new_axis=1}(s)
//
// Loop itself stacks what a body gives beyond its states; an Einsum then moves
// the new axis to its place:
//
//   s = Loop(..) {.. -> .., x}
//   y = Einsum(s)
//
// So it goes with what SplitToSequence has cut along the first axis and a
// ConcatFromSequence stacks again. Every other sequence is left as it is, for
// the survey to report.
#include <string.h>

#include "onnx/import.h"

enum { DEAD = -1 };  // version of a node that is to be left out

typedef struct spot {  // what is known of a name in a graph
  lb_pb_node *maker;   // NULL: an input, or from outside
  uint32_t place;      // among the maker's outputs
  uint32_t reads;      // by nodes, by their subgraphs, and as results
} spot;

typedef struct finder {
  lb_arena *scratch;
  lb_map spots;  // graph and name -> spot
} finder;

// -- names -------------------------------------------------------------------

static lb_status spot_of(finder *f, const lb_pb_graph *g, lb_pb_str name,
                         spot **out) {
  size_t size = sizeof g + name.n;
  char *key = lb_arena_alloc(f->scratch, size, 1);
  if (!key) return lb_oom();
  memcpy(key, &g, sizeof g);
  if (name.n) memcpy(key + sizeof g, name.p, name.n);
  *out = lb_map_get(&f->spots, key, size);
  if (*out) return LB_OK;
  *out = lb_arena_zalloc(f->scratch, sizeof **out, _Alignof(spot));
  if (!*out) return lb_oom();
  return lb_map_put(&f->spots, key, size, *out, NULL);
}

static lb_status index_graph(finder *f, lb_pb_graph *g);

static lb_status index_node(finder *f, lb_pb_graph *g, lb_pb_node *n) {
  spot *s;
  for (uint32_t i = 0; i < n->n_refs; i++) {
    LB_TRY(spot_of(f, g, n->refs[i], &s));
    s->reads++;
  }
  for (uint32_t i = 0; i < n->n_out; i++) {
    LB_TRY(spot_of(f, g, n->out[i], &s));
    s->maker = n;
    s->place = i;
  }
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].graph) LB_TRY(index_graph(f, n->attrs[i].graph));
  return LB_OK;
}

// Recursion ends: the reader has limited how deep subgraphs are nested.
static lb_status index_graph(finder *f, lb_pb_graph *g) {
  spot *s;
  for (uint32_t i = 0; i < g->nodes.n; i++)
    LB_TRY(index_node(f, g, &g->nodes.at[i]));
  for (uint32_t i = 0; i < g->n_out; i++) {
    LB_TRY(spot_of(f, g, g->out[i].name, &s));
    s->reads++;
  }
  return LB_OK;
}

// -- nodes -------------------------------------------------------------------

static bool is_node(const lb_pb_node *n, const char *type, uint32_t n_in) {
  return n && n->domain.n == 0 && lb_pb_is(n->op_type, type) &&
         n->n_in == n_in && n->n_out == 1 && n->version != DEAD;
}

static int64_t int_attr(const lb_pb_node *n, const char *name, int64_t dflt) {
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].plain && n->attrs[i].attr.kind == LB_ATTR_INT &&
        lb_pb_is(n->attrs[i].name, name))
      return n->attrs[i].attr.i;
  return dflt;
}

static lb_pb_graph *body_of(const lb_pb_node *n) {
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].graph && lb_pb_is(n->attrs[i].name, "body"))
      return n->attrs[i].graph;
  return NULL;
}

static lb_pb_str str(const char *text) {
  return (lb_pb_str){text, strlen(text)};
}

// How the first axis gets to `axis`; NULL: too far.
static const char *equation(int64_t axis) {
  static const char *const ahead[] = {"a...->a...", "ab...->ba...",
                                      "abc...->bca...", "abcd...->bcda..."};
  static const char *const behind[] = {"a...->...a", "a...b->...ab",
                                       "a...bc->...abc"};
  if (axis >= 0) return axis < 4 ? ahead[axis] : NULL;
  return axis >= -3 ? behind[-axis - 1] : NULL;
}

static lb_status become_einsum(finder *f, lb_pb_node *n, const char *text) {
  lb_pb_attr *a = lb_arena_new(f->scratch, lb_pb_attr, 1);
  if (!a) return lb_oom();
  *a = (lb_pb_attr){.name = str("equation"), .plain = true};
  a->attr = (lb_attr){.name = "equation",
                      .kind = LB_ATTR_STRING,
                      .n = (uint32_t)strlen(text),
                      .s = text};
  n->op_type = str("Einsum");
  n->attrs = a;
  n->n_attrs = 1;
  return LB_OK;
}

// -- lists that grow ---------------------------------------------------------

typedef struct list {  // state number `place` of a Loop
  lb_pb_node *loop;
  uint32_t place;
  lb_pb_graph *body;
  spot *empty;         // what it is at first
  lb_pb_node *insert;  // what makes it longer
} list;

static lb_status match_list(finder *f, const lb_pb_graph *g, lb_pb_node *loop,
                            uint32_t place, list *out, bool *ok) {
  lb_pb_graph *b = body_of(loop);
  spot *before, *after;
  *ok = false;
  *out = (list){.loop = loop, .place = place, .body = b};
  if (loop->domain.n || !lb_pb_is(loop->op_type, "Loop") || !b ||
      place + 2 >= loop->n_in || b->n_in != loop->n_in ||
      b->n_out != loop->n_out + 1)
    return LB_OK;
  lb_pb_str given = b->in[place + 2].name, made = b->out[place + 1].name;
  LB_TRY(spot_of(f, g, loop->refs[place + 2], &out->empty));
  LB_TRY(spot_of(f, b, given, &before));
  LB_TRY(spot_of(f, b, made, &after));
  out->insert = after->maker;
  *ok = is_node(out->empty->maker, "SequenceEmpty", 0) &&
        is_node(out->insert, "SequenceInsert", 2) &&
        lb_pb_same(out->insert->refs[0], given) && !before->maker &&
        before->reads == 1 && after->reads == 1;
  return LB_OK;
}

// The list is no state any more; its elements are the last output.
static lb_status unlist(finder *f, const lb_pb_graph *g, const list *l) {
  lb_pb_node *loop = l->loop;
  lb_pb_graph *b = l->body;
  uint32_t k = l->place;
  lb_pb_str name = loop->out[k];
  spot *s;
  memmove(&loop->refs[k + 2], &loop->refs[k + 3],
          (loop->n_refs - k - 3) * sizeof *loop->refs);
  memmove(&b->in[k + 2], &b->in[k + 3], (b->n_in - k - 3) * sizeof *b->in);
  memmove(&loop->out[k], &loop->out[k + 1],
          (loop->n_out - k - 1) * sizeof *loop->out);
  memmove(&b->out[k + 1], &b->out[k + 2], (b->n_out - k - 2) * sizeof *b->out);
  loop->n_in--, loop->n_refs--, b->n_in--;
  loop->out[loop->n_out - 1] = name;
  b->out[b->n_out - 1] = (lb_pb_value){.name = l->insert->refs[1], .rank = -1};
  for (uint32_t i = k; i < loop->n_out; i++) {
    LB_TRY(spot_of(f, g, loop->out[i], &s));
    s->place = i;
  }
  l->insert->version = DEAD;
  if (--l->empty->reads == 0) l->empty->maker->version = DEAD;
  return LB_OK;
}

// -- what is stacked ---------------------------------------------------------

static lb_status stack(finder *f, const lb_pb_graph *g, lb_pb_node *n) {
  const char *text = equation(int_attr(n, "axis", 0));
  spot *s;
  list l;
  bool ok;
  if (!is_node(n, "ConcatFromSequence", 1) || !text ||
      int_attr(n, "new_axis", 0) != 1)
    return LB_OK;
  LB_TRY(spot_of(f, g, n->refs[0], &s));
  if (!s->maker || s->reads != 1) return LB_OK;
  if (is_node(s->maker, "SplitToSequence", 1) &&
      int_attr(s->maker, "keepdims", 1) == 0 &&
      int_attr(s->maker, "axis", 0) == 0) {
    s->maker->op_type = str("Identity");
    s->maker->n_attrs = 0;
    return become_einsum(f, n, text);
  }
  LB_TRY(match_list(f, g, s->maker, s->place, &l, &ok));
  if (!ok) return LB_OK;
  LB_TRY(unlist(f, g, &l));
  return become_einsum(f, n, text);
}

static lb_status stack_all(finder *f, lb_pb_graph *g) {
  for (uint32_t i = 0; i < g->nodes.n; i++) {
    lb_pb_node *n = &g->nodes.at[i];
    LB_TRY(stack(f, g, n));
    for (uint32_t k = 0; k < n->n_attrs; k++)
      if (n->attrs[k].graph) LB_TRY(stack_all(f, n->attrs[k].graph));
  }
  return LB_OK;
}

static void drop_dead(lb_pb_graph *g) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < g->nodes.n; i++) {
    lb_pb_node *n = &g->nodes.at[i];
    for (uint32_t k = 0; k < n->n_attrs; k++)
      if (n->attrs[k].graph) drop_dead(n->attrs[k].graph);
    if (n->version != DEAD) g->nodes.at[kept++] = *n;
  }
  g->nodes.n = kept;
}

static bool has_stacks(const lb_pb_graph *g) {
  for (uint32_t i = 0; i < g->nodes.n; i++) {
    const lb_pb_node *n = &g->nodes.at[i];
    if (lb_pb_is(n->op_type, "ConcatFromSequence")) return true;
    for (uint32_t k = 0; k < n->n_attrs; k++)
      if (n->attrs[k].graph && has_stacks(n->attrs[k].graph)) return true;
  }
  return false;
}

lb_status lb_pb_stack_lists(lb_pb_graph *g, lb_arena *scratch) {
  finder f = {.scratch = scratch};
  if (!has_stacks(g)) return LB_OK;
  lb_status st = index_graph(&f, g);
  if (!lb_failed(st)) st = stack_all(&f, g);
  if (!lb_failed(st)) drop_dead(g);
  lb_map_fini(&f.spots);
  return st;
}
