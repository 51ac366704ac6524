// onnx/lists.c -- replaces lists of tensors that are only stacked by tensors.
//
// A loop of a scripted model appends to a list, which is stacked after it:
//
//   e = SequenceEmpty()
//   s = Loop(.., e) {.., p: q = SequenceInsert(p, x) -> .., q}
//   y = ConcatFromSequence{axis, new_axis=1}(s)
//
// A scan output of the loop has the same elements stacked along axis 0; an
// Einsum then moves that axis to its position:
//
//   s = Loop(..) {.. -> .., x}
//   y = Einsum(s)
//
// The same is done if ConcatFromSequence stacks the result of SplitToSequence
// along the first axis. All other sequences are left unchanged, and survey.c
// reports them as unsupported.
#include <string.h>

#include "onnx/import.h"

enum { DEAD = -1 };  // version of a node that will be removed

typedef struct name_info {  // of a name in a graph
  lb_pb_node *producer;     // NULL: an input, or an outer name
  uint32_t index;           // among the producer's outputs
  uint32_t reads;           // by nodes, by their subgraphs, and as results
} name_info;

typedef struct lists_finder {
  lb_arena *scratch;
  lb_map infos;  // graph and name -> name_info
} lists_finder;

// -- names -------------------------------------------------------------------

static lb_status info_of(lists_finder *f, const lb_pb_graph *g, lb_pb_str name,
                         name_info **out) {
  size_t size = sizeof g + name.n;
  char *key = lb_arena_alloc(f->scratch, size, 1);
  if (!key) return lb_oom();
  memcpy(key, &g, sizeof g);
  if (name.n) memcpy(key + sizeof g, name.p, name.n);
  *out = lb_map_get(&f->infos, key, size);
  if (*out) return LB_OK;
  *out = lb_arena_zalloc(f->scratch, sizeof **out, _Alignof(name_info));
  if (!*out) return lb_oom();
  return lb_map_put(&f->infos, key, size, *out, NULL);
}

static lb_status index_graph(lists_finder *f, lb_pb_graph *g);

static lb_status index_node(lists_finder *f, lb_pb_graph *g, lb_pb_node *n) {
  name_info *s;
  for (uint32_t i = 0; i < n->n_refs; i++) {
    LB_TRY(info_of(f, g, n->refs[i], &s));
    s->reads++;
  }
  for (uint32_t i = 0; i < n->n_out; i++) {
    LB_TRY(info_of(f, g, n->out[i], &s));
    s->producer = n;
    s->index = i;
  }
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].graph) LB_TRY(index_graph(f, n->attrs[i].graph));
  return LB_OK;
}

// Recursion is bounded: the reader limits the nesting of subgraphs.
static lb_status index_graph(lists_finder *f, lb_pb_graph *g) {
  name_info *s;
  for (uint32_t i = 0; i < g->nodes.n; i++)
    LB_TRY(index_node(f, g, &g->nodes.at[i]));
  for (uint32_t i = 0; i < g->n_out; i++) {
    LB_TRY(info_of(f, g, g->out[i].name, &s));
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

// The Einsum equation that moves the first axis to `axis`; NULL: unsupported.
static const char *equation(int64_t axis) {
  static const char *const ahead[] = {"a...->a...", "ab...->ba...",
                                      "abc...->bca...", "abcd...->bcda..."};
  static const char *const behind[] = {"a...->...a", "a...b->...ab",
                                       "a...bc->...abc"};
  if (axis >= 0) return axis < 4 ? ahead[axis] : NULL;
  return axis >= -3 ? behind[-axis - 1] : NULL;
}

static lb_status become_einsum(lists_finder *f, lb_pb_node *n,
                               const char *text) {
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

// -- lists that a loop appends to --------------------------------------------

typedef struct list {  // loop-carried value number `index` of a Loop
  lb_pb_node *loop;
  uint32_t index;
  lb_pb_graph *body;
  name_info *empty;    // its initial value, an empty list
  lb_pb_node *insert;  // the node that appends
} list;

static lb_status match_list(lists_finder *f, const lb_pb_graph *g,
                            lb_pb_node *loop, uint32_t index, list *out,
                            bool *ok) {
  lb_pb_graph *b = body_of(loop);
  name_info *before, *after;
  *ok = false;
  *out = (list){.loop = loop, .index = index, .body = b};
  if (loop->domain.n || !lb_pb_is(loop->op_type, "Loop") || !b ||
      index + 2 >= loop->n_in || b->n_in != loop->n_in ||
      b->n_out != loop->n_out + 1)
    return LB_OK;
  lb_pb_str given = b->in[index + 2].name, made = b->out[index + 1].name;
  LB_TRY(info_of(f, g, loop->refs[index + 2], &out->empty));
  LB_TRY(info_of(f, b, given, &before));
  LB_TRY(info_of(f, b, made, &after));
  out->insert = after->producer;
  *ok = is_node(out->empty->producer, "SequenceEmpty", 0) &&
        is_node(out->insert, "SequenceInsert", 2) &&
        lb_pb_same(out->insert->refs[0], given) && !before->producer &&
        before->reads == 1 && after->reads == 1;
  return LB_OK;
}

// Removes the list from the loop-carried values; its elements become the last
// scan output.
static lb_status replace_list(lists_finder *f, const lb_pb_graph *g,
                              const list *l) {
  lb_pb_node *loop = l->loop;
  lb_pb_graph *b = l->body;
  uint32_t k = l->index;
  lb_pb_str name = loop->out[k];
  name_info *s;
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
    LB_TRY(info_of(f, g, loop->out[i], &s));
    s->index = i;
  }
  l->insert->version = DEAD;
  if (--l->empty->reads == 0) l->empty->producer->version = DEAD;
  return LB_OK;
}

// -- stacking ----------------------------------------------------------------

static lb_status stack(lists_finder *f, const lb_pb_graph *g, lb_pb_node *n) {
  const char *text = equation(int_attr(n, "axis", 0));
  name_info *s;
  list l;
  bool ok;
  if (!is_node(n, "ConcatFromSequence", 1) || !text ||
      int_attr(n, "new_axis", 0) != 1)
    return LB_OK;
  LB_TRY(info_of(f, g, n->refs[0], &s));
  if (!s->producer || s->reads != 1) return LB_OK;
  if (is_node(s->producer, "SplitToSequence", 1) &&
      int_attr(s->producer, "keepdims", 1) == 0 &&
      int_attr(s->producer, "axis", 0) == 0) {
    s->producer->op_type = str("Identity");
    s->producer->n_attrs = 0;
    return become_einsum(f, n, text);
  }
  LB_TRY(match_list(f, g, s->producer, s->index, &l, &ok));
  if (!ok) return LB_OK;
  LB_TRY(replace_list(f, g, &l));
  return become_einsum(f, n, text);
}

static lb_status stack_all(lists_finder *f, lb_pb_graph *g) {
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
  lists_finder f = {.scratch = scratch};
  if (!has_stacks(g)) return LB_OK;
  lb_status st = index_graph(&f, g);
  if (!lb_failed(st)) st = stack_all(&f, g);
  if (!lb_failed(st)) drop_dead(g);
  lb_map_fini(&f.infos);
  return st;
}
