// tests/plans/model_steps.c -- Runs a model and checks the steps of its plans.
//
// (1) A step reads values that an earlier step has written, inputs, constants
//     and values computed while planning, or views and parts of those.
// (2) A step that implements nodes reads the inputs of these nodes, and writes
//     their outputs; every result of the model is written.
// (3) A node that is launched or called has a step of that kind.
//
// Usage: test_model_steps MODEL NAME=DIMS[:VALUE]...   (x=1x3x48x64; VALUE: all
// elements of an integer input, 1 by default)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/session.h"
#include "plan/plan.h"
#include "session/watch.h"

enum { MAX_INPUTS = 8, MAX_OUTPUTS = 16 };

typedef struct checker {
  const lb_graph *graph;
  bool *written;  // by value id
  const lb_plan *plan;
  int steps, wrong;
} checker;

static void complain(checker *c, uint32_t step, const char *what,
                     uint32_t value) {
  fprintf(stderr, "step %u: %s: %s\n", step, what,
          value == LB_NO_VALUE ? "" : c->graph->values[value]->name);
  c->wrong++;
}

static bool is_available(const checker *c, const lb_value *v);

static bool are_available(const checker *c, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] && !is_available(c, n->in[i])) return false;
  return true;
}

// A value is available if it is constant, was written, or is a view or part of
// available values. Plans bind parameters of branches and outputs of Ifs to the
// values they stand for.
static bool is_available(const checker *c, const lb_value *v) {
  const lb_node *n = v->producer;
  if (v->info.data || c->written[v->id] || !n) return true;
  const lb_disposition *d = lb_plan_node(c->plan, n);
  switch (d->kind) {
    case LB_NODE_COMPUTED: return true;
    case LB_NODE_VIEW: return is_available(c, c->graph->values[d->value]);
    case LB_NODE_IN_PLACE:
    case LB_NODE_COPIED: return are_available(c, n);
    case LB_NODE_BRANCH:
      return is_available(c, n->regions[0]->results[v->out_index]) ||
             is_available(c, n->regions[1]->results[v->out_index]);
    default: return false;
  }
}

static void read_value(checker *c, uint32_t step, uint32_t id) {
  if (id != LB_NO_VALUE && !is_available(c, c->graph->values[id]))
    complain(c, step, "reads a value that no step has written", id);
}

// Whether one of the nodes that this step implements reads or writes the value.
// A value that is read in a branch may have another name in the graph.
static bool has_value(const checker *c, const lb_region *r, uint32_t step,
                      uint32_t id, bool read) {
  bool found = false;
  for (uint32_t i = 0; !found && i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    const lb_disposition *d = lb_plan_node(c->plan, n);
    for (uint32_t k = 0; k < n->n_regions; k++)
      found |= has_value(c, n->regions[k], step, id, read);
    if (!lb_disposition_runs(d) || d->step != step) continue;
    for (uint32_t k = 0; read && k < n->n_in; k++)
      found |= r != c->graph->main || (n->in[k] && n->in[k]->id == id);
    for (uint32_t k = 0; !read && k < n->n_out; k++)
      found |= n->out[k] && n->out[k]->id == id;
  }
  return found;
}

static void check_own(checker *c, uint32_t step, uint32_t id, bool read) {
  if (id != LB_NO_VALUE && !has_value(c, c->graph->main, step, id, read))
    complain(
        c, step,
        read ? "reads a value of other nodes" : "writes a value of other nodes",
        id);
}

// `own`: the step implements nodes itself and is not part of a cover.
static void check_step(checker *c, const lb_step *s, uint32_t number,
                       bool own) {
  for (const lb_launch *l = s->launch; l; l = l->next)
    for (uint32_t i = l->slot->key.spec.n_out; i < l->n_operands; i++) {
      if (!s->iterations) read_value(c, number, l->addresses[i].value);
      if (own && !s->iterations)
        check_own(c, number, l->addresses[i].value, true);
    }
  for (uint32_t i = 0; i < s->n_in; i++) read_value(c, number, s->in[i].value);
  for (const lb_launch *l = s->launch; l; l = l->next)
    for (uint32_t i = 0; i < l->slot->key.spec.n_out; i++) {
      uint32_t id = l->addresses[i].value;
      if (own) check_own(c, number, id, false);
      if (id != LB_NO_VALUE) c->written[id] = true;
    }
  for (uint32_t i = 0; i < s->n_out; i++)
    if (s->out[i].value != LB_NO_VALUE) c->written[s->out[i].value] = true;
  c->steps++;
}

static void check_stage(checker *c, const lb_plan *plan) {
  if (plan->parent) check_stage(c, plan->parent);
  uint32_t cover_end = 0;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *s = &plan->steps[i];
    bool own = s->kind == LB_STEP_LAUNCH && i >= cover_end;
    check_step(c, s, plan->first_step + i, own);
    if (own && s->skip) cover_end = i + 1 + s->skip;
  }
}

static const lb_step *find_step(const lb_plan *plan, uint32_t step) {
  while (step < plan->first_step) plan = plan->parent;
  step -= plan->first_step;
  return step < plan->n_steps ? &plan->steps[step] : NULL;
}

static void check_nodes(checker *c, const lb_region *r) {
  static const int kinds[] = {[LB_NODE_LOOP] = LB_STEP_LOOP,
                              [LB_NODE_LAUNCHED] = LB_STEP_LAUNCH,
                              [LB_NODE_FUSED] = LB_STEP_LAUNCH,
                              [LB_NODE_CALLED] = LB_STEP_CALL,
                              [LB_NODE_COPIED] = LB_STEP_COPY};
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    const lb_disposition *d = lb_plan_node(c->plan, n);
    for (uint32_t k = 0; k < n->n_regions; k++) check_nodes(c, n->regions[k]);
    if (d->kind == LB_NODE_LATER)
      complain(c, d->step, "is left for a later stage", n->out[0]->id);
    if (!lb_disposition_runs(d)) continue;
    const lb_step *s = find_step(c->plan, d->step);
    if (!s || (int)s->kind != kinds[d->kind])
      complain(c, d->step, "has a step of another kind", n->out[0]->id);
  }
}

static lb_status check_plan(void *user, lb_plan *plan) {
  checker *c = user;
  const lb_region *r = c->graph->main;
  c->plan = plan;
  memset(c->written, 0, c->graph->n_values);
  check_stage(c, plan);
  check_nodes(c, r);
  for (uint32_t i = 0; i < r->n_results; i++)
    if (!is_available(c, r->results[i]))
      complain(c, 0, "no step writes a result", r->results[i]->id);
  return LB_OK;
}

static lb_status ignore(void *user, const lb_step_event *e) {
  (void)user;
  (void)e;
  return LB_OK;
}

static void fill(limber_tensor *t, int64_t count, int64_t value) {
  for (int64_t i = 0; i < count; i++) {
    if (t->dtype == LIMBER_I64) ((int64_t *)t->data)[i] = value;
    if (t->dtype == LIMBER_I32) ((int32_t *)t->data)[i] = (int32_t)value;
    if (t->dtype == LIMBER_F32) ((float *)t->data)[i] = (float)(i % 17) / 17;
  }
}

static bool parse(char *text, const limber_value_info *inputs, size_t n,
                  limber_tensor *out) {
  char *end = strchr(text, '=');
  int64_t count = 1;
  if (!end) return false;
  *end++ = 0;
  out->name = text;
  for (size_t i = 0; i < n; i++)
    if (!strcmp(inputs[i].name, text)) out->dtype = inputs[i].dtype;
  while (*end && *end != ':') {
    out->dims[out->rank] = strtoll(end, &end, 10);
    count *= out->dims[out->rank++];
    if (*end == 'x') end++;
  }
  out->data = calloc((size_t)count + 1, 8);
  if (out->data) fill(out, count, *end ? strtoll(end + 1, NULL, 10) : 1);
  return out->data && out->dtype;
}

int main(int argc, char **argv) {
  limber_runtime_options options = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *runtime = NULL;
  limber_session *s = NULL;
  const limber_value_info *inputs, *outputs;
  limber_tensor in[MAX_INPUTS] = {0}, out[MAX_OUTPUTS] = {0};
  if (argc < 3 || limber_runtime_create(&options, &runtime) ||
      limber_session_open(runtime, argv[1], NULL, &s)) {
    fprintf(stderr, "%s\n",
            argc < 3 ? "usage: test_model_steps MODEL NAME=DIMS[:VALUE]..."
                     : limber_last_error());
    return 2;
  }
  size_t n_in = limber_session_inputs(s, &inputs);
  size_t n_out = limber_session_outputs(s, &outputs);
  if (n_in != (size_t)argc - 2 || n_in > MAX_INPUTS || n_out > MAX_OUTPUTS)
    return 2;
  for (size_t i = 0; i < n_in; i++)
    if (!parse(argv[2 + i], inputs, n_in, &in[i])) return 2;
  checker c = {.graph = s->model.graph,
               .written = calloc(s->model.graph->n_values, 1)};
  lb_watcher watcher = {.step = ignore, .user = &c, .done = check_plan};
  lb_status st =
      lb_api_run(s, in, n_in, out, n_out, &(lb_run_how){.watcher = &watcher});
  if (lb_failed(st)) fprintf(stderr, "%s\n", lb_status_message(st));
  bool ok = !lb_failed(st) && !c.wrong && c.steps;
  lb_status_drop(st);
  printf("%d steps, %d mistakes\n", c.steps, c.wrong);
  for (size_t i = 0; i < n_out; i++) limber_tensor_free(&out[i]);
  for (size_t i = 0; i < n_in; i++) free(in[i].data);
  free(c.written);
  limber_session_close(s);
  limber_runtime_destroy(runtime);
  return ok ? 0 : 1;
}
