// bench/kernels.c -- every kernel of a model at one shape against what the core
// can do.
//
//   kernels MODEL INPUT=DIMxDIM...     prints a line of JSON for each kernel,
//                                      and one for the model
//
// The line of a kernel is the time that nobody can go below: its
// multiplications at the peak, or its bytes at the speed at which this core
// reads a set of that size, whichever is longer. LIMBER_ISA is honoured.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/session.h"
#include "bench/machine.h"
#include "bench/rotate.h"
#include "session/run.h"

#define SETTLE_SECONDS 600
#define BATCH_SECONDS 30e-6  // worth reading the clock for
#define KERNEL_SECONDS 0.12
#define MIN_BATCHES 15
#define MAX_BATCHES 4000
#define MAX_SPEEDS 64

typedef struct bench {
  bench_machine machine;
  double peak;  // GFLOP/s
  struct {
    size_t bytes;
    double speed;
  } speeds[MAX_SPEEDS];  // measured so far
  int n_speeds;
  limber_session *session;
  lb_plan *plan;
} bench;

static lb_status of_limber(limber_status status) {
  if (!status) return LB_OK;
  return lb_error(LB_INVALID, "%s", limber_last_error());
}

// -- the plan ----------------------------------------------------------------

// INPUT=2x77: dims of `t`.
static lb_status parse_dims(const char *text, lb_tensor *t) {
  t->rank = 0;
  for (const char *p = text; *p;) {
    char *end;
    long n = strtol(p, &end, 10);
    if (end == p || n < 1 || t->rank == LB_MAX_RANK)
      return lb_error(LB_INVALID, "'%s' is not 2x3x4", text);
    t->dims[t->rank++] = n;
    p = *end == 'x' ? end + 1 : end;
    if (*end && *end != 'x')
      return lb_error(LB_INVALID, "'%s' is not 2x3x4", text);
  }
  return LB_OK;
}

// Zeros of the shapes given; the memory is the program's until it ends.
static lb_status parse_inputs(const bench *b, char **texts, int n,
                              lb_tensor *out) {
  const lb_ports *ports = &b->session->inputs;
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
    LB_TRY(parse_dims(found, &out[i]));
    lb_tensor_dense(&out[i]);
    out[i].data = calloc(1, lb_tensor_bytes(&out[i]));
    if (!out[i].data) return lb_oom();
  }
  return LB_OK;
}

static lb_status make_plan(bench *b, char **texts, int n) {
  const lb_region *main = b->session->model.graph->main;
  lb_tensor *inputs = calloc(main->n_params + 1, sizeof *inputs);
  bool *wanted = calloc(main->n_results + 1, sizeof *wanted);
  lb_status st = inputs && wanted ? LB_OK : lb_oom();
  if (!lb_failed(st)) {
    memset(wanted, true, main->n_results);
    st = parse_inputs(b, texts, n, inputs);
  }
  if (!lb_failed(st))
    st = lb_plan_first(&b->session->session->program, main, inputs, wanted,
                       &b->plan);
  if (!lb_failed(st))
    st = of_limber(limber_session_settle(b->session, SETTLE_SECONDS));
  free(inputs);
  free(wanted);
  return st;
}

// -- timing ------------------------------------------------------------------

static double speed_of(bench *b, size_t bytes) {
  for (int i = 0; i < b->n_speeds; i++)
    if (bytes > b->speeds[i].bytes * 7 / 8 &&
        bytes < b->speeds[i].bytes * 9 / 8)
      return b->speeds[i].speed;
  double speed = bench_read_speed(b->machine.bits, bytes);
  if (b->n_speeds < MAX_SPEEDS) {
    b->speeds[b->n_speeds].bytes = bytes;
    b->speeds[b->n_speeds++].speed = speed;
  }
  return speed;
}

typedef struct timing {
  double best, median;  // seconds of one launch
} timing;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double timed(const bench_rotation *r, lb_kernel_fn *kernel, size_t *at,
                    size_t n) {
  double start = bench_now();
  bench_rotation_run(r, kernel, *at, n);
  *at += n;
  return bench_now() - start;
}

static timing time_kernel(const bench_rotation *r, lb_kernel_fn *kernel) {
  static double times[MAX_BATCHES];
  size_t at = 0, batch = 1;
  while (timed(r, kernel, &at, batch) < BATCH_SECONDS && batch < 4096)
    batch *= 2;
  double begin = bench_now();
  int n = 0;
  while (n < MAX_BATCHES && (n < MIN_BATCHES || at < 2 * r->copies ||
                             bench_now() - begin < KERNEL_SECONDS))
    times[n++] = timed(r, kernel, &at, batch) / (double)batch;
  qsort(times, (size_t)n, sizeof *times, by_value);
  return (timing){.best = times[0], .median = times[n / 2]};
}

// -- the report --------------------------------------------------------------

static void print_dims(const lb_launch *l) {
  static const char *const names[LB_SDIMS] = {"rows", "cols", "k", "len",
                                              "steps"};
  printf("\"dims\": {");
  for (int i = 0; i < lb_spec_dims(&l->slot->key.spec); i++)
    printf("%s\"%s\": %lld", i ? ", " : "", names[i],
           (long long)l->args[l->n_operands + i]);
  printf("}, \"loops\": [");
  for (int i = 0; i < l->n_loops; i++)
    printf("%s%lld", i ? ", " : "", (long long)l->loops[i]);
  printf("], ");
}

static void print_spec(const lb_slot *slot) {
  static const char *const forms[LB_FORM_COUNT] = {
      "map", "rows", "matmul", "attention", "conv", "window"};
  lb_strbuf spec = {0}, facts = {0};
  lb_spec_print(&slot->key.spec, &spec);
  lb_facts_print(&slot->key.facts, &facts);
  printf("\"form\": \"%s\", \"spec\": \"%s\", \"facts\": \"%s\", ",
         forms[slot->key.spec.form], lb_strbuf_str(&spec),
         lb_strbuf_str(&facts));
  lb_strbuf_fini(&spec);
  lb_strbuf_fini(&facts);
}

static void print_kernel(bench *b, const lb_launch *l, const bench_rotation *r,
                         const timing *t, int count) {
  double flops = bench_flops(l), bytes = 0, moving = 0;
  size_t sets[2] = {r->weight_set, r->other_set};
  size_t moved[2] = {r->weight_bytes, r->other_bytes};
  for (int i = 0; i < 2; i++) {
    if (!moved[i]) continue;
    bytes += (double)moved[i];
    moving += (double)moved[i] / (1e9 * speed_of(b, sets[i]));
  }
  double computing = flops / (1e9 * b->peak);
  printf("{");
  print_spec(l->slot);
  print_dims(l);
  printf("\"count\": %d, \"best\": %.4g, \"median\": %.4g, ", count, t->best,
         t->median);
  printf("\"flops\": %.6g, \"bytes\": %.6g, ", flops, bytes);
  printf("\"level\": \"%s\", ",
         bench_level_name(bench_level_of(
             &b->machine,
             r->weight_bytes > r->other_bytes ? r->weight_set : r->other_set)));
  printf("\"bound\": \"%s\", \"line\": %.4g}\n",
         computing > moving ? "fma" : "read",
         computing > moving ? computing : moving);
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

// How often the work of step i is done; 0 if an earlier step has counted it.
static int count_of(const lb_plan *plan, uint32_t i) {
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

static lb_status bench_launch(bench *b, const lb_launch *l,
                              lb_kernel_fn *kernel, int count) {
  bench_sets sets = {.weights = b->session->session->parts.packed_bytes,
                     .others = 4 * b->machine.caches.l2};
  bench_rotation r;
  if (sets.weights < sets.others) sets.weights = sets.others;
  LB_TRY(bench_rotation_init(&r, l, &sets));
  timing t = time_kernel(&r, kernel);
  print_kernel(b, l, &r, &t, count);
  fflush(stdout);
  bench_rotation_fini(&r);
  return LB_OK;
}

static lb_status bench_plan(bench *b) {
  uint32_t launches = 0, others = 0;
  for (uint32_t i = 0; i < b->plan->n_steps; i++) {
    const lb_step *step = &b->plan->steps[i];
    lb_kernel_fn *kernel = NULL;
    if (step->kind == LB_STEP_LAUNCH)
      kernel = lb_slot_kernel(step->launch->slot);
    if (!kernel) {
      others += step->kind != LB_STEP_LAUNCH;
      continue;
    }
    int count = count_of(b->plan, i);
    if (count) LB_TRY(bench_launch(b, step->launch, kernel, count));
    launches++;
    i += step->skip;
  }
  printf(
      "{\"launches\": %u, \"host_steps\": %u, \"gflops\": %.1f, "
      "\"packed_bytes\": %zu, \"later_stages\": %s}\n",
      launches, others, b->peak, b->session->session->parts.packed_bytes,
      b->plan->n_facts ? "true" : "false");
  return LB_OK;
}

static lb_status run(bench *b, int argc, char **argv) {
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *runtime;
  o.threads = 1;
  LB_TRY(bench_machine_init(&b->machine));
  LB_TRY(of_limber(limber_runtime_create(&o, &runtime)));
  LB_TRY(of_limber(limber_session_open(runtime, argv[1], NULL, &b->session)));
  LB_TRY(make_plan(b, argv + 2, argc - 2));
  b->peak = bench_fma_peak(b->machine.bits);
  return bench_plan(b);
}

int main(int argc, char **argv) {
  bench b = {0};
  if (argc < 2) {
    fprintf(stderr, "usage: kernels MODEL INPUT=DIMxDIM...\n");
    return 2;
  }
  lb_status st = run(&b, argc, argv);
  bool failed = lb_failed(st);
  if (failed) fprintf(stderr, "kernels: %s\n", lb_status_message(st));
  lb_status_drop(st);
  return failed;
}
