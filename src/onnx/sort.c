// onnx/sort.c -- topological sort of nodes.
//
// A depth-first search with an explicit stack starts at nodes in the order of
// the file and visits the producers of a node's inputs before the node itself.
// A sorted file, as ONNX requires it, keeps its order.
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "onnx/proto.h"

enum { WHITE, GREY, BLACK };  // not visited, on the stack, done

typedef struct sorter {
  const lb_pb_nodes *nodes;
  lb_map producers;  // output name -> index of the node + 1
  uint8_t *colour;   // by node
  uint32_t *next;    // by node: the next ref to follow
  uint32_t *stack;
  uint32_t *order;
  uint32_t n_stack, n_order;
} sorter;

static lb_status find_producers(sorter *s) {
  for (uint32_t i = 0; i < s->nodes->n; i++) {
    const lb_pb_node *n = &s->nodes->at[i];
    for (uint32_t k = 0; k < n->n_out; k++) {
      if (!n->out[k].n) continue;
      void *old;
      LB_TRY(lb_map_put(&s->producers, n->out[k].p, n->out[k].n,
                        (void *)(uintptr_t)(i + 1u), &old));
      if (!old) continue;
      const lb_pb_node *first = &s->nodes->at[(uintptr_t)old - 1];
      return lb_error(LB_INVALID,
                      "value '%.*s' is defined twice: by node '%.*s' (%.*s) "
                      "and by node '%.*s' (%.*s)",
                      LB_STR(n->out[k]), LB_STR(first->name),
                      LB_STR(first->op_type), LB_STR(n->name),
                      LB_STR(n->op_type));
    }
  }
  return LB_OK;
}

// The part of the stack from `from` to the top is a cycle.
static lb_status cycle_error(const sorter *s, uint32_t from) {
  lb_strbuf text = {0};
  uint32_t i = s->n_stack;
  while (s->stack[i - 1] != from) i--;
  uint32_t shown = 0;
  for (i = i - 1; i < s->n_stack && shown < 8; i++, shown++) {
    const lb_pb_node *n = &s->nodes->at[s->stack[i]];
    lb_strbuf_printf(&text, "%s'%.*s'", shown ? ", " : "", LB_STR(n->name));
  }
  if (i < s->n_stack) lb_strbuf_printf(&text, " and %u more", s->n_stack - i);
  lb_status st = lb_error(LB_INVALID, "the graph has a cycle through node %s",
                          lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return st;
}

static void push(sorter *s, uint32_t i) {
  s->colour[i] = GREY;
  s->stack[s->n_stack++] = i;
}

static lb_status visit(sorter *s, uint32_t root) {
  push(s, root);
  while (s->n_stack) {
    uint32_t i = s->stack[s->n_stack - 1];
    const lb_pb_node *n = &s->nodes->at[i];
    if (s->next[i] == n->n_refs) {
      s->colour[i] = BLACK;
      s->order[s->n_order++] = i;
      s->n_stack--;
      continue;
    }
    lb_pb_str ref = n->refs[s->next[i]++];
    void *producer = ref.n ? lb_map_get(&s->producers, ref.p, ref.n) : NULL;
    if (!producer) continue;
    uint32_t from = (uint32_t)((uintptr_t)producer - 1);
    if (s->colour[from] == GREY) return cycle_error(s, from);
    if (s->colour[from] == WHITE) push(s, from);
  }
  return LB_OK;
}

static lb_status apply(const sorter *s, lb_pb_nodes *nodes, lb_arena *scratch) {
  lb_pb_node *sorted = lb_arena_new(scratch, lb_pb_node, nodes->n);
  if (!sorted) return lb_oom();
  for (uint32_t i = 0; i < nodes->n; i++) sorted[i] = nodes->at[s->order[i]];
  nodes->at = sorted;
  return LB_OK;
}

lb_status lb_pb_sort(lb_pb_nodes *nodes, lb_arena *scratch) {
  if (nodes->sorted) return LB_OK;
  sorter s = {
      .nodes = nodes,
      .colour = lb_arena_new(scratch, uint8_t, nodes->n),
      .next = lb_arena_new(scratch, uint32_t, nodes->n),
      .stack = lb_arena_new(scratch, uint32_t, nodes->n),
      .order = lb_arena_new(scratch, uint32_t, nodes->n),
  };
  if (!s.colour || !s.next || !s.stack || !s.order) return lb_oom();
  lb_status st = find_producers(&s);
  for (uint32_t i = 0; i < nodes->n && !lb_failed(st); i++)
    if (s.colour[i] == WHITE) st = visit(&s, i);
  bool moved = false;
  for (uint32_t i = 0; i < s.n_order; i++) moved |= s.order[i] != i;
  if (!lb_failed(st) && moved) st = apply(&s, nodes, scratch);
  nodes->sorted = !lb_failed(st);
  lb_map_fini(&s.producers);
  return st;
}
