// api/profile.c -- a run, step by step. Events are kept as they come and told
// afterwards, so that telling them is in nobody's time.
#include <stdlib.h>

#include "api/error.h"
#include "api/session.h"

typedef struct events {
  lb_step_event *list;  // owned
  size_t n, cap;
} events;

static lb_status keep(void *user, const lb_step_event *e) {
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

static void print_kernel(const lb_slot *slot, lb_strbuf *out) {
  lb_spec_print(&slot->key.spec, out);
  lb_strbuf_puts(out, " | ");
  lb_facts_print(&slot->key.facts, out);
}

static void tell(const lb_step_event *e, limber_step_fn *fn, void *user) {
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
      .len = e->dims[LB_DIM_LEN],
      .outer = e->outer,
      .bytes = e->bytes,
      .flops = e->flops,
      .start_ns = e->start_ns,
      .end_ns = e->end_ns,
  };
  fn(user, &step);
  lb_strbuf_fini(&text);
}

limber_status limber_session_profile(limber_session *session,
                                     const limber_tensor *inputs,
                                     size_t n_inputs, limber_tensor *outputs,
                                     size_t n_outputs, limber_step_fn *fn,
                                     void *user) {
  events all = {0};
  lb_watcher watcher = {keep, &all};
  lb_run_how how = {.watcher = &watcher};
  lb_status st =
      lb_api_run(session, inputs, n_inputs, outputs, n_outputs, &how);
  for (size_t i = 0; !lb_failed(st) && i < all.n; i++)
    tell(&all.list[i], fn, user);
  free(all.list);
  return lb_report(st, &session->runtime->log);
}
