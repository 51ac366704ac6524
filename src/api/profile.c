// api/profile.c -- profiles a run step by step. Step events are collected
// during the run and reported to the callback afterwards, so that the callback
// does not count in the times.
#include <stdlib.h>

#include "api/error.h"
#include "api/session.h"
#include "session/explain.h"

typedef struct events {
  lb_step_event *list;  // owned
  size_t n, cap;
  size_t n_steps;  // the first events are steps; the others are skipped nodes
  lb_plan *plan;   // of the run; retained; NULL: not needed
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

static lb_status add_skipped(void *user, const lb_node *node, lb_reason why) {
  return add_event(user, &(lb_step_event){.node = node, .reason = why});
}

static lb_status retain_plan(void *user, lb_plan *plan) {
  events *all = user;
  lb_plan_release(all->plan);
  all->plan = lb_plan_retain(plan);
  return LB_OK;
}

static void print_kernel(const lb_slot *slot, lb_strbuf *out) {
  lb_spec_print(&slot->key.spec, out);
  lb_strbuf_puts(out, " | ");
  lb_facts_print(&slot->key.facts, out);
}

static void report_step(const lb_step_event *e, bool skipped,
                        limber_step_fn *fn, void *user) {
  lb_strbuf text = {0};
  if (e->slot) print_kernel(e->slot, &text);
  limber_step step = {
      .size = sizeof step,
      .name = e->node && e->node->name ? e->node->name : "",
      .op = e->node ? lb_op_infos[e->node->op].name : "Copy",
      .tier = skipped ? "" : lb_tier_name(e->tier),
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
      .skipped = skipped,
  };
  fn(user, &step);
  lb_strbuf_fini(&text);
}

static void report_removed(const lb_removed *r, limber_step_fn *fn,
                           void *user) {
  limber_step step = {
      .size = sizeof step,
      .name = r->name ? r->name : "",
      .op = lb_op_infos[r->op].name,
      .tier = "",
      .kernel = "",
      .reason = lb_reason_name(LB_REASON_REMOVED),
      .reason_text = lb_reason_text(LB_REASON_REMOVED),
      .skipped = true,
      .pass = r->pass,
  };
  fn(user, &step);
}

static limber_status profile(limber_session *s, const limber_tensor *inputs,
                             size_t n_inputs, limber_tensor *outputs,
                             size_t n_outputs, bool explain, limber_step_fn *fn,
                             void *user) {
  const lb_graph *g = s->model.graph;
  events all = {0};
  lb_watcher watcher = {add_event, &all, explain ? retain_plan : NULL};
  lb_run_how how = {.watcher = &watcher};
  lb_status st = lb_api_run(s, inputs, n_inputs, outputs, n_outputs, &how);
  all.n_steps = all.n;
  if (!lb_failed(st) && all.plan)
    st = lb_explain_skips(all.plan, g->main, add_skipped, &all);
  for (size_t i = 0; !lb_failed(st) && i < all.n; i++)
    report_step(&all.list[i], i >= all.n_steps, fn, user);
  for (size_t i = 0; !lb_failed(st) && explain && i < g->n_removed; i++)
    report_removed(&g->removed[i], fn, user);
  lb_plan_release(all.plan);
  free(all.list);
  return lb_report(st, &s->runtime->log);
}

limber_status limber_session_profile(limber_session *session,
                                     const limber_tensor *inputs,
                                     size_t n_inputs, limber_tensor *outputs,
                                     size_t n_outputs, limber_step_fn *fn,
                                     void *user) {
  return profile(session, inputs, n_inputs, outputs, n_outputs, false, fn,
                 user);
}

limber_status limber_session_explain(limber_session *session,
                                     const limber_tensor *inputs,
                                     size_t n_inputs, limber_tensor *outputs,
                                     size_t n_outputs, limber_step_fn *fn,
                                     void *user) {
  return profile(session, inputs, n_inputs, outputs, n_outputs, true, fn, user);
}
