// session/explain.c -- nodes that took no step in a run, and why.
#include "session/explain.h"

#include <stdlib.h>

#include "session/run.h"

typedef struct marks {  // owned, by id
  bool *done;           // node: a step stood for it
  bool *needed;         // value: an output that was asked for depends on it
  bool *data;           // value: depends on more than shapes
} marks;

// A node of a partition is done with all others of it: by the partition's
// kernel, or by what covers it.
static void mark_done(const lb_program *p, const lb_node *n, marks *m) {
  const lb_partition *part = p->parts ? p->parts->of_node[n->id] : NULL;
  m->done[n->id] = true;
  for (uint32_t i = 0; part && i < part->n_nodes; i++)
    m->done[part->nodes[i]->id] = true;
}

static void mark_needed(const lb_region *r, const lb_output *outputs,
                        marks *m) {
  for (uint32_t i = 0; i < r->n_results; i++)
    if (outputs[i].wanted) m->needed[r->results[i]->id] = true;
  for (uint32_t i = r->n_nodes; i-- > 0;) {
    const lb_node *n = r->nodes[i];
    bool needed = false;
    for (uint32_t k = 0; k < n->n_out; k++)
      needed |= n->out[k] && m->needed[n->out[k]->id];
    for (uint32_t k = 0; needed && k < n->n_in; k++)
      if (n->in[k]) m->needed[n->in[k]->id] = true;
  }
}

static void mark_data(const lb_program *p, const lb_tensor *inputs, marks *m) {
  const lb_region *r = p->graph->main;
  for (uint32_t i = 0; i < r->n_params; i++)
    m->data[r->params[i]->id] = !lb_program_reads(p, r->params[i], &inputs[i]);
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    bool data = false;
    for (uint32_t k = 0; k < n->n_in; k++)
      data |= n->in[k] && m->data[n->in[k]->id];
    if (lb_op_has(n->op, LB_TRAIT_DIMS_ONLY)) data = false;
    for (uint32_t k = 0; k < n->n_out; k++)
      if (n->out[k]) m->data[n->out[k]->id] = data;
  }
}

static lb_reason why_skipped(const lb_node *n, const marks *m) {
  bool needed = false, data = false;
  for (uint32_t k = 0; k < n->n_out; k++) {
    if (!n->out[k]) continue;
    needed |= m->needed[n->out[k]->id];
    data |= m->data[n->out[k]->id];
  }
  if (!needed) return LB_REASON_NOT_ASKED;
  if (n->op == LB_OP_If) return LB_REASON_BRANCH;
  return data ? LB_REASON_VIEW : LB_REASON_KNOWN;
}

lb_status lb_session_skips(lb_session *s, const lb_tensor *inputs,
                           const lb_output *outputs,
                           const lb_step_event *events, size_t n,
                           lb_skip_fn *fn, void *user) {
  const lb_graph *g = s->graph;
  lb_version *v = lb_version_take(s);
  marks m = {.done = calloc(g->n_nodes + 1u, 1),
             .needed = calloc(g->n_values + 1u, 1),
             .data = calloc(g->n_values + 1u, 1)};
  lb_status st = m.done && m.needed && m.data ? LB_OK : lb_oom();
  if (lb_failed(st)) goto done;
  for (size_t i = 0; i < n; i++)
    if (events[i].node) mark_done(v->program, events[i].node, &m);
  mark_needed(g->main, outputs, &m);
  mark_data(v->program, inputs, &m);
  for (uint32_t i = 0; i < g->main->n_nodes; i++) {
    const lb_node *node = g->main->nodes[i];
    bool loop = node->op == LB_OP_Loop || node->op == LB_OP_Scan;
    if (m.done[node->id] || loop) continue;
    st = fn(user, node, why_skipped(node, &m));
    if (lb_failed(st)) break;
  }

done:
  lb_session_leave(s, v);
  free(m.done);
  free(m.needed);
  free(m.data);
  return st;
}
