// api/profile.c -- profiles a run step by step, and explains it node by node.
// Step events are collected during the run and reported to the callback
// afterwards, so that the callback does not count in the times.
#include <stdlib.h>

#include "api/error.h"
#include "api/session.h"
#include "session/explain.h"

typedef struct events {
  lb_step_event *list;  // owned
  size_t n, cap;
  // Where the events of the last micro-batch begin, and where those of the next
  // one would. A run without micro-batches has one.
  size_t last, next;
  lb_plan *plan;  // of the last micro-batch; retained; NULL: not needed
} events;

static lb_status add_event(void *user, const lb_step_event *e) {
  events *all = user;
  if (all->n == all->cap) {
    size_t cap = all->cap ? all->cap * 2 : 256;
    lb_step_event *list = realloc(all->list, cap * sizeof *list);
    if (!list) return lb_oom();
    all->list = list;
    all->cap = cap;
  }
  all->list[all->n++] = *e;
  return LB_OK;
}

static lb_status retain_plan(void *user, lb_plan *plan) {
  events *all = user;
  lb_plan_release(all->plan);
  all->plan = lb_plan_retain(plan);
  all->last = all->next;
  all->next = all->n;
  return LB_OK;
}

// -- steps -------------------------------------------------------------------

static void print_kernel(const lb_slot *slot, lb_strbuf *out) {
  lb_spec_print(&slot->key.spec, out);
  lb_strbuf_puts(out, " | ");
  lb_facts_print(&slot->key.facts, out);
}

static void report_step(const lb_step_event *e, limber_step_fn *fn,
                        void *user) {
  lb_strbuf text = {0};
  if (e->slot) print_kernel(e->slot, &text);
  limber_step step = {
      .size = sizeof step,
      .name = e->node && e->node->name ? e->node->name : "",
      .op = e->node ? lb_op_infos[e->node->op].name : "Copy",
      .tier = lb_tier_name(e->tier),
      .kernel = lb_strbuf_str(&text),
      .rows = e->dims[LB_DIM_ROWS],
      .cols = e->dims[LB_DIM_COLS],
      .k = e->dims[LB_DIM_K],
      .len = e->dims[LB_DIM_TAPS_Y],
      .outer = e->outer,
      .bytes = e->bytes,
      .flops = e->flops,
      .start_ns = e->start_ns,
      .end_ns = e->end_ns,
      .reason = lb_reason_name(e->reason),
      .reason_text = lb_reason_text(e->reason),
      .proof = "",
      .kind = e->copies ? "copy"
              : e->slot ? "launch"
                        : "call",
      .optimized = e->node && e->node->optimized,
      .runtime_skippable = e->node && e->node->runtime_skippable,
  };
  fn(user, &step);
  lb_strbuf_fini(&text);
}

// -- nodes -------------------------------------------------------------------

typedef struct report {
  const events *all;  // NULL: there was no run
  size_t *first;      // by step number: 1 + its first event, 0: none; owned
  uint32_t n_first;
  limber_step_fn *step;  // NULL: not wanted
  limber_node_fn *node;  // NULL: not wanted
  void *user;
} report;

// Whether steps were reported for the node or for what it contains.
static bool has_steps(const lb_explained *e) {
  return e->step != LB_NO_STEP || e->reason == LB_REASON_BODY;
}

static lb_status report_as_step(void *user, const lb_explained *e) {
  const report *r = user;
  limber_step step = {
      .size = sizeof step,
      .name = e->name,
      .op = lb_op_infos[e->op].name,
      .tier = "",
      .kernel = "",
      .reason = lb_reason_name(e->reason),
      .reason_text = lb_reason_text(e->reason),
      .skipped = e->skipped,
      .pass = e->pass,
      .proof = e->proof,
      .kind = "",
      .optimized = e->optimized,
      .runtime_skippable = e->runtime_skippable,
  };
  if (!has_steps(e)) r->step(r->user, &step);
  return LB_OK;
}

static lb_status index_steps(report *r) {
  const events *all = r->all;
  for (size_t i = all->last; i < all->n; i++)
    if (all->list[i].step != LB_NO_STEP && all->list[i].step >= r->n_first)
      r->n_first = all->list[i].step + 1;
  r->first = calloc((size_t)r->n_first + 1, sizeof *r->first);
  if (!r->first) return lb_oom();
  for (size_t i = all->n; i-- > all->last;)
    if (all->list[i].step != LB_NO_STEP) r->first[all->list[i].step] = i + 1;
  return LB_OK;
}

// The number of the first reported step of a node in the body of a loop, or -1.
static int64_t find_in_loops(const events *all, const lb_node *n) {
  for (size_t i = all->last; i < all->n; i++)
    if (all->list[i].step == LB_NO_STEP && all->list[i].node == n)
      return (int64_t)i;
  return -1;
}

// The number of the first reported step that computes the node, or -1.
static int64_t find_step(const report *r, const lb_explained *e) {
  if (!r->all) return -1;
  if (e->reason == LB_REASON_BODY) return find_in_loops(r->all, e->node);
  for (uint32_t i = 0; i < e->n_steps; i++)
    if (e->step + i < r->n_first && r->first[e->step + i])
      return (int64_t)r->first[e->step + i] - 1;
  return -1;
}

static lb_status report_node(void *user, const lb_explained *e) {
  const report *r = user;
  bool ran = e->reason != LB_REASON_COUNT;
  limber_node node = {
      .size = sizeof node,
      .name = e->name,
      .op = lb_op_infos[e->op].name,
      .optimized = e->optimized,
      .runtime_skippable = e->runtime_skippable,
      .skipped = e->skipped,
      .proof = e->proof,
      .disposition = e->disposition,
      .reason = ran ? lb_reason_name(e->reason) : "",
      .reason_text = ran ? lb_reason_text(e->reason) : "",
      .step = find_step(r, e),
      .pass = e->pass,
  };
  r->node(r->user, &node);
  return LB_OK;
}

limber_status limber_session_nodes(limber_session *session, limber_node_fn *fn,
                                   void *user) {
  report r = {.node = fn, .user = user};
  return lb_report(
      lb_explain_nodes(session->model.graph, NULL, report_node, &r),
      &session->runtime->log);
}

// -- runs --------------------------------------------------------------------

static lb_status report_all(report *r, bool explain) {
  const events *all = r->all;
  for (size_t i = 0; r->step && i < all->n; i++)
    report_step(&all->list[i], r->step, r->user);
  if (!explain || !all->plan) return LB_OK;
  // The graph that ran: with live fusion it may not be the model's.
  const lb_graph *g = all->plan->program->graph;
  if (r->step) LB_TRY(lb_explain_nodes(g, all->plan, report_as_step, r));
  if (!r->node) return LB_OK;
  LB_TRY(index_steps(r));
  return lb_explain_nodes(g, all->plan, report_node, r);
}

// Calls back as `r` says. `explain`: for nodes as well as for steps.
static limber_status profile(limber_session *s, const limber_tensor *inputs,
                             size_t n_inputs, limber_tensor *outputs,
                             size_t n_outputs, bool explain, report *r) {
  events all = {0};
  lb_watcher watcher = {add_event, &all, explain ? retain_plan : NULL};
  lb_run_how how = {.watcher = &watcher};
  lb_status st = lb_api_run(s, inputs, n_inputs, outputs, n_outputs, &how);
  r->all = &all;
  if (!lb_failed(st)) st = report_all(r, explain);
  free(r->first);
  lb_plan_release(all.plan);
  free(all.list);
  return lb_report(st, &s->runtime->log);
}

limber_status limber_session_profile(limber_session *session,
                                     const limber_tensor *inputs,
                                     size_t n_inputs, limber_tensor *outputs,
                                     size_t n_outputs, limber_step_fn *fn,
                                     void *user) {
  report r = {.step = fn, .user = user};
  return profile(session, inputs, n_inputs, outputs, n_outputs, false, &r);
}

limber_status limber_session_explain(limber_session *session,
                                     const limber_tensor *inputs,
                                     size_t n_inputs, limber_tensor *outputs,
                                     size_t n_outputs, limber_step_fn *fn,
                                     void *user) {
  report r = {.step = fn, .user = user};
  return profile(session, inputs, n_inputs, outputs, n_outputs, true, &r);
}

limber_status limber_session_explain_nodes(
    limber_session *session, const limber_tensor *inputs, size_t n_inputs,
    limber_tensor *outputs, size_t n_outputs, limber_step_fn *step,
    limber_node_fn *node, void *user) {
  report r = {.step = step, .node = node, .user = user};
  return profile(session, inputs, n_inputs, outputs, n_outputs, true, &r);
}
