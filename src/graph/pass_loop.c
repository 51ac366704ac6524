// graph/pass_loop.c -- what a loop hands from turn to turn unchanged is not
// carried.
//
// Exporters that know no captures carry all that a body reads, weights too:
// these were copied with every turn, and nobody knew that they are constants.
// Such a value is captured instead, and behind the loop it is what it was
// before, however many turns there were.
#include "graph/rewrite.h"

// Where what a Loop or a Scan carries begins, in each of its lists.
typedef struct places {
  uint32_t in, result, n;
} places;

static places carried(const lb_node *n) {
  uint32_t own = n->n_in - n->n_captures;
  if (n->op == LB_OP_Loop) return (places){.in = 2, .result = 1, .n = own - 2};
  uint32_t scanned = (uint32_t)lb_attr_int(n, "num_scan_inputs", 0);
  return (places){.n = scanned < own ? own - scanned : 0};
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

static void capture(lb_rewrite *rw, lb_node *n, places at, uint32_t i) {
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

// The only output stays.
static bool is_unchanged(const lb_node *n, places at, uint32_t i) {
  const lb_region *body = n->regions[0];
  bool all = n->n_out == 1 && i == 0;
  return n->in[at.in + i] && !all &&
         body->results[at.result + i] == body->params[at.in + i];
}

static lb_status free_carried(lb_rewrite *rw, lb_node *n) {
  if (n->op != LB_OP_Loop && n->op != LB_OP_Scan) return LB_OK;
  places at = carried(n);
  for (uint32_t i = at.n; i-- > 0;)
    if (is_unchanged(n, at, i)) capture(rw, n, at, i);
  return LB_OK;
}

lb_status lb_pass_loop(lb_rewrite *rw) {
  return lb_rewrite_walk(rw, free_carried);
}
