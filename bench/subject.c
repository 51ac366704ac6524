// bench/subject.c -- Opens and plans the model, and times its kernels.
#include "bench/subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"

#define SETTLE_SECONDS 600
#define BATCH_SECONDS 30e-6  // long enough to read the clock around it
#define MIN_BATCHES 15
#define MAX_BATCHES 4000

static lb_status of_limber(limber_status status) {
  if (!status) return LB_OK;
  return lb_error(LB_INVALID, "%s", limber_last_error());
}

// -- the plan ----------------------------------------------------------------

// Parses 2x77 or 2x77:5 into the dims of `t`; *rest is the text behind them.
static lb_status parse_dims(const char *text, lb_tensor *t, const char **rest) {
  const char *p = text;
  t->rank = 0;
  while (*p && *p != ':') {
    char *end;
    long n = strtol(p, &end, 10);
    if (end == p || n < 1 || t->rank == LB_MAX_RANK)
      return lb_error(LB_INVALID, "dims '%s': expected the form 2x3x4", text);
    t->dims[t->rank++] = n;
    p = *end == 'x' ? end + 1 : end;
    if (*end && *end != 'x' && *end != ':')
      return lb_error(LB_INVALID, "dims '%s': expected the form 2x3x4", text);
  }
  *rest = p;
  return LB_OK;
}

// Parses :5 and sets every element of `t` to it.
static lb_status parse_value(const char *text, const lb_tensor *t) {
  char *end;
  long long value = strtoll(text + 1, &end, 10);
  if (end == text + 1 || *end || t->dtype != LB_I64)
    return lb_error(LB_INVALID, "value '%s': expected :N for an int64 input",
                    text);
  int64_t *to = t->data;
  for (size_t i = 0; i < lb_tensor_bytes(t) / sizeof *to; i++) to[i] = value;
  return LB_OK;
}

// Inputs of the given shapes, filled with zeros or with a value. Their memory
// is never freed.
static lb_status parse_inputs(const bench_subject *s, char **texts, int n,
                              lb_tensor *out) {
  const lb_ports *ports = &s->session->inputs;
  for (size_t i = 0; i < ports->n; i++) {
    const limber_value_info *info = &ports->infos[i];
    size_t len = strlen(info->name);
    const char *found = NULL;
    for (int k = 0; k < n; k++)
      if (strncmp(texts[k], info->name, len) == 0 && texts[k][len] == '=')
        found = texts[k] + len + 1;
    if (!found)
      return lb_error(LB_INVALID, "no shape for input '%s'", info->name);
    out[i] = (lb_tensor){.dtype = (lb_dtype)info->dtype};
    LB_TRY(parse_dims(found, &out[i], &found));
    lb_tensor_dense(&out[i]);
    out[i].data = calloc(1, lb_tensor_bytes(&out[i]));
    if (!out[i].data) return lb_oom();
    if (*found) LB_TRY(parse_value(found, &out[i]));
  }
  return LB_OK;
}

static lb_status make_plan(bench_subject *s, char **texts, int n) {
  const lb_region *main = s->session->model.graph->main;
  lb_tensor *inputs = calloc(main->n_params + 1, sizeof *inputs);
  lb_want *wanted = calloc(main->n_results + 1, sizeof *wanted);
  lb_status st = inputs && wanted ? LB_OK : lb_oom();
  lb_plan_workspace workspace;
  lb_plan_workspace_init(&workspace);
  if (!lb_failed(st)) {
    for (uint32_t i = 0; i < main->n_results; i++) wanted[i].wanted = true;
    st = parse_inputs(s, texts, n, inputs);
  }
  if (!lb_failed(st)) {
    lb_session *session = s->session->session;
    lb_version *v = lb_version_take(session);
    st = lb_plan_first(v->program, main, inputs, NULL, wanted, &workspace,
                       &s->plan);
    lb_session_release_version(session, v);
  }
  lb_plan_workspace_fini(&workspace);
  free(inputs);
  free(wanted);
  return st;
}

lb_status bench_subject_open(bench_subject *s, const char *model, char **texts,
                             int n) {
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *runtime;
  o.threads = 1;
  LB_TRY(of_limber(limber_runtime_create(&o, &runtime)));
  LB_TRY(of_limber(limber_session_open(runtime, model, NULL, &s->session)));
  return make_plan(s, texts, n);
}

lb_status bench_subject_settle(const bench_subject *s) {
  return of_limber(limber_session_settle(s->session, SETTLE_SECONDS));
}

// Two launches that do the same work on different memory.
static bool same_work(const lb_launch *a, const lb_launch *b) {
  size_t strides = (size_t)a->n_operands * (2 + (size_t)a->n_loops);
  size_t dims = (size_t)(a->n_args - a->n_operands);
  return a->slot == b->slot && a->n_loops == b->n_loops &&
         !memcmp(a->args + a->n_operands, b->args + b->n_operands,
                 dims * sizeof *a->args) &&
         !memcmp(a->loops, b->loops, a->n_loops * sizeof *a->loops) &&
         !memcmp(a->strides, b->strides, strides * sizeof *a->strides);
}

int bench_subject_count(const bench_subject *s, uint32_t i) {
  const lb_plan *plan = s->plan;
  int count = 0;
  for (uint32_t k = 0; k < plan->n_steps; k++) {
    const lb_step *step = &plan->steps[k];
    if (step->kind != LB_STEP_LAUNCH ||
        !same_work(step->launch, plan->steps[i].launch))
      continue;
    if (k < i) return 0;
    count++;
  }
  return count;
}

lb_status bench_subject_rotation(const bench_subject *s, const lb_launch *l,
                                 size_t l2, bench_rotation *out) {
  bench_sets sets = {.weights = s->session->session->versions.weights.bytes,
                     .others = 4 * l2};
  if (sets.weights < sets.others) sets.weights = sets.others;
  return bench_rotation_init(out, l, &sets);
}

// -- timing ------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  return values[n / 2];
}

double bench_timer_next(bench_timer *t) {
  double start = bench_worked();
  bench_rotation_run(t->rotation, t->kernel, t->at, t->batch);
  t->at += t->batch;
  return (bench_worked() - start) / (double)t->batch;
}

void bench_timer_init(bench_timer *t, const bench_rotation *r,
                      const lb_exec *kernel, double seconds) {
  *t = (bench_timer){.rotation = r, .kernel = kernel, .batch = 1};
  while (bench_timer_next(t) * (double)t->batch < seconds && t->batch < 4096)
    t->batch *= 2;
}

double bench_time_kernel(const bench_rotation *r, const lb_exec *kernel,
                         double seconds) {
  bench_timer t;
  bench_timer_init(&t, r, kernel, BATCH_SECONDS);
  double begin = bench_now(), best = INFINITY;
  int n = 0;
  while (n < MAX_BATCHES && (n < MIN_BATCHES || t.at < 2 * r->copies ||
                             bench_now() - begin < seconds)) {
    best = fmin(best, bench_timer_next(&t));
    n++;
  }
  return best;
}

// -- lines of JSON -----------------------------------------------------------

void bench_print_dims(const lb_launch *l) {
  static const char *const names[LB_SDIMS] = {"rows", "cols", "k", "taps_y",
                                              "taps_x"};
  printf("\"dims\": {");
  for (int i = 0; i < lb_spec_dims(&l->slot->key.spec); i++)
    printf("%s\"%s\": %lld", i ? ", " : "", names[i],
           (long long)l->args[l->n_operands + i]);
  printf("}, \"loops\": [");
  for (int i = 0; i < l->n_loops; i++)
    printf("%s%lld", i ? ", " : "", (long long)l->loops[i]);
  printf("], ");
}

void bench_print_spec(const lb_slot *slot) {
  static const char *const forms[LB_FORM_COUNT] = {
      "eltwise", "row_reduce", "matmul", "attention", "conv", "window"};
  lb_strbuf spec = {0}, facts = {0};
  lb_spec_print(&slot->key.spec, &spec);
  lb_facts_print(&slot->key.facts, &facts);
  printf("\"form\": \"%s\", \"spec\": \"%s\", \"facts\": \"%s\", ",
         forms[slot->key.spec.form], lb_strbuf_str(&spec),
         lb_strbuf_str(&facts));
  lb_strbuf_fini(&spec);
  lb_strbuf_fini(&facts);
}
