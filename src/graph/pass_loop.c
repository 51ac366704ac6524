// graph/pass_loop.c -- captures loop-invariant carried values.
//
// Exporters that do not use captures carry everything that a body reads,
// weights included: these are then copied in every iteration, and are not known
// to be constants. Such a value is captured instead, and after the loop it is
// replaced by its initial value, whatever the number of iterations.
#include "graph/rewrite.h"

// The index of the first carried value of a Loop or Scan among the node's
// inputs (and the body's parameters) and among the body's results, and their
// number.
typedef struct carried_at {
  uint32_t in, result, n;
} carried_at;

static carried_at carried(const lb_node *n) {
  uint32_t own = n->n_in - n->n_captures;
  if (n->op == LB_OP_Loop)
    return (carried_at){.in = 2, .result = 1, .n = own - 2};
  uint32_t scanned = (uint32_t)lb_attr_int(n, "num_scan_inputs", 0);
  return (carried_at){.n = scanned < own ? own - scanned : 0};
}

static void drop(lb_value **list, uint32_t i, uint32_t n) {
  for (; i + 1 < n; i++) list[i] = list[i + 1];
}

static void move_last(lb_value **list, uint32_t i, uint32_t n) {
  lb_value *v = list[i];
  drop(list, i, n);
  list[n - 1] = v;
}

static void drop_output(lb_node *n, uint32_t i) {
  if (i >= n->n_out) return;
  drop(n->out, i, n->n_out--);
  for (; i < n->n_out; i++)
    if (n->out[i]) lb_node_set_out(n, i, n->out[i]);
}

static void capture(lb_rewrite *rw, lb_node *n, carried_at at, uint32_t i) {
  lb_region *body = n->regions[0];
  if (lb_node_output(n, i)) {
    lb_rewrite_replace(rw, n->out[i], n->in[at.in + i]);
    n->out[i]->producer = NULL;
  }
  drop_output(n, i);
  lb_rewrite_use(rw, body->params[at.in + i], -1);
  drop(body->results, at.result + i, body->n_results--);
  move_last(n->in, at.in + i, n->n_in);
  move_last(body->params, at.in + i, body->n_params);
  n->n_captures++;
  rw->changes++;
}

// A node keeps its only output.
static bool is_unchanged(const lb_node *n, carried_at at, uint32_t i) {
  const lb_region *body = n->regions[0];
  bool all = n->n_out == 1 && i == 0;
  return n->in[at.in + i] && !all &&
         body->results[at.result + i] == body->params[at.in + i];
}

static lb_status capture_invariants(lb_rewrite *rw, lb_node *n) {
  if (n->op != LB_OP_Loop && n->op != LB_OP_Scan) return LB_OK;
  carried_at at = carried(n);
  for (uint32_t i = at.n; i-- > 0;)
    if (is_unchanged(n, at, i)) capture(rw, n, at, i);
  return LB_OK;
}

lb_status lb_pass_loop(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, capture_invariants);
}
