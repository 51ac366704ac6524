// tools/warm.c -- `limber warm`: plans a model for many shapes and compiles the
// kernels that these plans need, before the first request.
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"
#include "json.h"
#include "args.h"
#include "progress.h"
#include "shapes.h"

typedef struct warm_args {
  const char *model, *shapes, *dims, *file;
  word_list inputs;  // as written
  long long count, seed, timeout;
  int prefer;  // 1 + the given value; 0: not given
  int skip;    // for switch_option
  bool plan_only, json;
} warm_args;

typedef struct planned {  // sums over the signatures
  uint64_t good, refused, steps, kernels;
  uint64_t incomplete, nodes_left;
  uint64_t requested_by_half;  // kernels requested after the first half
} planned;

// The state of one `limber warm`.
typedef struct warm_job {
  warm_args o;
  limber_runtime *runtime;
  limber_session *session;
  const limber_value_info *infos;
  size_t n;
  limber_tensor *feeds;                // o.inputs.n, owned
  limber_tensor *inputs;               // one per input of the model
  const limber_tensor **given;         // by input: an element of feeds, or NULL
  shapes *shapes;                      // NULL: --shapes-file is used
  limber_shapes *recorded;             // NULL: --shapes-file is not used
  const limber_signature *signatures;  // of the file
  uint64_t n_shapes;                   // number of shapes to plan
  progress progress;                   // of compiling
  atomic_bool compiling;               // compiling has begun
  planned planned;
  double *plan_us, *step_us;  // by good signature: planning time, and per step
  double *compile_ms, *check_ms;  // by kernel
  size_t n_kernels;
  limber_stats stats;
  bool settled;
  char why[1024];  // the error of the first signature that cannot be planned
} warm_job;

// -- options -----------------------------------------------------------------

#define AT(field) offsetof(warm_args, field)
static const option_row rows[] = {
    {.name = "shapes",
     .argument = "'x=1x3x48x{32..640}'",
     .kind = OPTION_ONCE,
     .offset = AT(shapes),
     .help = "the shapes of inputs"},
    {.name = "dims",
     .argument = "'batch={1,2,8} seq={8..256/8}'",
     .kind = OPTION_ONCE,
     .offset = AT(dims),
     .help = "the sizes of symbolic dims; see limber inspect.\n"
             "A size is a number or a set: {a,b}, {a..b}, {a..b/step}"},
    {.name = "shapes-file",
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(file),
     .help = "recorded shapes, most frequent first; see limber run\n"
             "--record-shapes, limber_session_record_shapes"},
    {.name = "count",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = AT(count),
     .help = "at most N shapes, selected at random if there are more\n"
             "(default 1000), or the N most frequent of a file\n"
             "(default: all)",
     .low = 1,
     .high = 10000000},
    {.name = "seed",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = AT(seed),
     .help = "seed of the random selection; default 1",
     .low = 0,
     .high = INT64_MAX},
    {.name = "input",
     .argument = "NAME=...",
     .kind = OPTION_LIST,
     .offset = AT(inputs),
     .help = "contents of an input on which shapes depend; see limber\n"
             "run"},
    {.name = "plan-only",
     .kind = OPTION_FLAG,
     .offset = AT(plan_only),
     .help = "compile nothing"},
    OPTION_SKIP(AT(skip)),
    OPTION_PREFER_REUSABLE(AT(prefer)),
    {.name = "timeout",
     .argument = "S",
     .kind = OPTION_NUMBER,
     .offset = AT(timeout),
     .help = "maximum seconds for compiling; default 600",
     .low = 0,
     .high = 1000000},
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = AT(json),
     .help = "print JSON"},
};

static const command_info command = {
    .name = "warm",
    .usage = "MODEL [OPTION...]",
    .about =
        "Plans the model for each of the shapes, without running it, and "
        "compiles\n"
        "the kernels that these plans need.\n",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

static bool read_job(int argc, char **argv, warm_args *o, problem *p) {
  words rest;
  if (!read_options(&command, argc, argv, o, &rest, p)) return false;
  if (o->file && (o->shapes || o->dims || o->inputs.n))
    return fail(p, EXIT_USAGE,
                "--shapes-file cannot be combined with --shapes, --dims or "
                "--input");
  return read_model(&command, &rest, &o->model, p);
}

// -- planning ----------------------------------------------------------------

// Counts a kernel that was compiled or has failed.
static void count_kernel(void *user, const limber_event *e) {
  warm_job *j = user;
  if (!atomic_load(&j->compiling)) return;  // found on disk while planning
  if (!strcmp(e->name, "kernel_published") || !strcmp(e->name, "kernel_failed"))
    progress_add(&j->progress);
}

static bool open_model(warm_job *j, problem *p) {
  limber_runtime_options how = LIMBER_RUNTIME_OPTIONS_INIT;
  how.event = count_kernel;
  how.event_user = j;
  limber_status st = limber_runtime_create(&how, &j->runtime);
  if (st) return fail_status(p, st, j->o.model);
  limber_session_options session = LIMBER_SESSION_OPTIONS_INIT;
  session.prefer_reusable_kernels = preference(j->o.prefer);
  session.skip = switch_option(j->o.skip);
  st = limber_session_open(j->runtime, j->o.model, &session, &j->session);
  if (st) return fail_status(p, st, j->o.model);
  j->n = limber_session_inputs(j->session, &j->infos);
  j->inputs = calloc(j->n + 1, sizeof *j->inputs);
  j->given = calloc(j->n + 1, sizeof *j->given);
  j->feeds = calloc(j->o.inputs.n + 1, sizeof *j->feeds);
  return (j->inputs && j->given && j->feeds) ||
         fail(p, EXIT_INTERNAL, "out of memory");
}

static bool read_feeds(warm_job *j, problem *p) {
  for (size_t i = 0; i < j->o.inputs.n; i++) {
    if (!feed_parse(j->o.inputs.items[i], (uint64_t)j->o.seed + i, &j->feeds[i],
                    p))
      return false;
    size_t k = feed_find_input(&j->feeds[i], j->infos, j->n, p);
    if (k == j->n) return false;
    j->given[k] = &j->feeds[i];
    j->inputs[k].data = j->feeds[i].data;
  }
  return true;
}

static bool read_shapes(warm_job *j, problem *p) {
  limber_status st = limber_shapes_open(j->o.file, &j->recorded);
  if (st) return fail_status(p, st, "--shapes-file");
  j->n_shapes = limber_shapes_list(j->recorded, &j->signatures);
  uint64_t most = (uint64_t)j->o.count;
  if (most && j->n_shapes > most) j->n_shapes = most;
  return j->n_shapes ||
         fail(p, EXIT_BAD, "%s: no shapes were recorded", j->o.file);
}

static bool draw_shapes(warm_job *j, problem *p) {
  shapes_of of = {.inputs = j->infos,
                  .n = j->n,
                  .fixed = j->given,
                  .shapes = j->o.shapes,
                  .dims = j->o.dims};
  uint64_t most = j->o.count ? (uint64_t)j->o.count : 1000;
  if (!shapes_new(&of, &j->shapes, p) ||
      !shapes_draw(j->shapes, most, (uint64_t)j->o.seed, p))
    return false;
  j->n_shapes = shapes_drawn(j->shapes);
  return true;
}

static bool choose_shapes(warm_job *j, problem *p) {
  if (!(j->o.file ? read_shapes : draw_shapes)(j, p)) return false;
  j->plan_us = calloc(j->n_shapes + 1, sizeof *j->plan_us);
  j->step_us = calloc(j->n_shapes + 1, sizeof *j->step_us);
  return (j->plan_us && j->step_us) || fail(p, EXIT_INTERNAL, "out of memory");
}

static uint64_t kernels_requested(const warm_job *j) {
  limber_stats s = {.size = sizeof s};
  limber_session_stats(j->session, &s);
  return s.kernels_requested;
}

// Returns the number of shapes from which n_shapes were selected.
static uint64_t total_shapes(const warm_job *j) {
  const limber_signature *unused;
  return j->shapes ? shapes_count(j->shapes)
                   : limber_shapes_list(j->recorded, &unused);
}

static limber_status plan_shape(warm_job *j, uint64_t i,
                                limber_plan_info *out) {
  if (j->recorded)
    return limber_session_plan_signature(j->session, &j->signatures[i], out);
  return limber_session_plan(j->session, j->inputs, j->n, out);
}

static void plan_one(warm_job *j, uint64_t i) {
  planned *all = &j->planned;
  limber_plan_info info = {.size = sizeof info};
  if (j->shapes) shapes_get(j->shapes, i, j->inputs);
  double start = now_ms();
  limber_status st = plan_shape(j, i, &info);
  double us = (now_ms() - start) * 1e3;
  if (st) {
    if (!all->refused++)
      snprintf(j->why, sizeof j->why, "%s", limber_last_error());
    return;
  }
  j->plan_us[all->good] = us;
  j->step_us[all->good++] = us / (double)(info.steps ? info.steps : 1);
  all->steps += info.steps;
  all->kernels += info.kernels;
  all->incomplete += info.nodes_left > 0;
  all->nodes_left += info.nodes_left;
}

// Shapes of a file are planned least frequent first, as limber_session_warm
// does.
static bool plan_all(warm_job *j, problem *p) {
  uint64_t n = j->n_shapes;
  progress all;
  progress_begin(&all, "shapes", n);
  for (uint64_t i = 0; i < n; i++) {
    if (i == n - n / 2) j->planned.requested_by_half = kernels_requested(j);
    plan_one(j, j->recorded ? n - 1 - i : i);
    progress_add(&all);
  }
  progress_end(&all);
  if (n < 2) j->planned.requested_by_half = kernels_requested(j);
  if (j->planned.good) return true;
  return fail(p, EXIT_BAD, "%s: none of these shapes can be planned: %s",
              j->o.model, j->why);
}

// -- compiling ---------------------------------------------------------------

static bool kernel_at(const warm_job *j, size_t i, limber_kernel_info *out) {
  *out = (limber_kernel_info){.size = sizeof *out};
  return limber_session_kernel(j->session, i, out) == LIMBER_OK;
}

static bool collect_kernels(warm_job *j, problem *p) {
  uint64_t n = j->stats.kernels + j->stats.kernels_failed;
  limber_kernel_info k;
  j->compile_ms = calloc(n + 1, sizeof *j->compile_ms);
  j->check_ms = calloc(n + 1, sizeof *j->check_ms);
  if (!j->compile_ms || !j->check_ms)
    return fail(p, EXIT_INTERNAL, "out of memory");
  for (size_t i = 0; i < n && kernel_at(j, i, &k); i++) {
    if (k.error) continue;
    j->compile_ms[j->n_kernels] = (double)k.compile_us * 1e-3;
    j->check_ms[j->n_kernels++] = (double)k.check_us * 1e-3;
  }
  return true;
}

static limber_status compile_all(warm_job *j) {
  limber_stats s = {.size = sizeof s};
  limber_session_stats(j->session, &s);
  progress_begin(&j->progress, "kernels",
                 s.kernels_by_tier[LIMBER_TIER_REFERENCE] +
                     s.kernels_by_tier[LIMBER_TIER_PACK]);
  atomic_store(&j->compiling, true);
  limber_status st = limber_session_settle(j->session, (double)j->o.timeout);
  limber_runtime_flush(j->runtime);
  progress_end(&j->progress);
  return st;
}

static bool settle(warm_job *j, problem *p) {
  limber_status st = LIMBER_OK;
  if (!j->o.plan_only) st = compile_all(j);
  if (st && st != LIMBER_CANCELLED) return fail_status(p, st, j->o.model);
  j->settled = !j->o.plan_only && !st;
  j->stats.size = sizeof j->stats;
  limber_session_stats(j->session, &j->stats);
  return collect_kernels(j, p);
}

// -- results -----------------------------------------------------------------

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct spread {
  double median, p95;
} spread;

// Sorts the values; {0} if there are none.
static spread spread_of(double *values, size_t n) {
  if (!n) return (spread){0};
  qsort(values, n, sizeof *values, compare);
  double median = (values[(n - 1) / 2] + values[n / 2]) / 2;
  return (spread){median, values[(n * 95 + 99) / 100 - 1]};
}

static const char *const tiers[] = {
    [LIMBER_TIER_REFERENCE] = "without a kernel",
    [LIMBER_TIER_PACK] = "built in",
    [LIMBER_TIER_REUSABLE] = "reusable",
    [LIMBER_TIER_SPECIALISED] = "specialised",
    [LIMBER_TIER_FUSED] = "fused"};

static void print_refused(const warm_job *j) {
  limber_kernel_info k;
  if (j->planned.refused)
    printf("%" PRIu64 " shapes cannot be planned; the first: %s\n",
           j->planned.refused, j->why);
  for (size_t i = 0; kernel_at(j, i, &k); i++)
    if (k.error) printf("failed %s: %s\n", k.name, k.error);
}

static void print_kernels(warm_job *j) {
  const limber_stats *s = &j->stats;
  spread compile = spread_of(j->compile_ms, j->n_kernels);
  spread check = spread_of(j->check_ms, j->n_kernels);
  printf("now");
  for (int t = 0; t < LIMBER_TIERS; t++)
    if (s->kernels_by_tier[t])
      printf(" %" PRIu64 " %s,", s->kernels_by_tier[t], tiers[t]);
  printf(" compiled here %" PRIu64 ", failed %" PRIu64 "; %" PRIu64
         " bytes of code\n",
         s->kernels, s->kernels_failed, s->code_bytes);
  if (j->n_kernels)
    printf(
        "time per kernel: compiling median %.2f ms, p95 %.2f ms; self-check "
        "median %.2f ms, p95 %.2f ms\n",
        compile.median, compile.p95, check.median, check.p95);
}

static void print_text(warm_job *j) {
  const planned *n = &j->planned;
  uint64_t drawn = j->n_shapes;
  printf("%" PRIu64 " of %" PRIu64
         " shapes planned, %.1f steps each, %.1f of "
         "them kernels\n",
         n->good, total_shapes(j), (double)n->steps / (double)n->good,
         (double)n->kernels / (double)n->good);
  if (n->incomplete)
    printf("the plans of %" PRIu64
           " shapes depend on data: %.1f nodes each are not planned\n",
           n->incomplete, (double)n->nodes_left / (double)n->incomplete);
  printf("planning: median %.1f us per shape, %.2f us per step\n",
         spread_of(j->plan_us, n->good).median,
         spread_of(j->step_us, n->good).median);
  printf("%" PRIu64 " distinct kernels; the last %" PRIu64
         " shapes added %" PRIu64 "\n",
         j->stats.kernels_requested, drawn / 2,
         j->stats.kernels_requested - n->requested_by_half);
  print_kernels(j);
  print_refused(j);
}

static json_t *spread_json(double *values, size_t n) {
  spread s = spread_of(values, n);
  return json_pack("{s:f, s:f}", "median", s.median, "p95", s.p95);
}

static json_t *tiers_json(const limber_stats *s) {
  static const char *const names[] = {"reference", "pack", "reusable",
                                      "specialised", "fused"};
  json_t *all = json_object();
  for (int t = 0; t < LIMBER_TIERS; t++)
    json_object_set_new(all, names[t],
                        json_integer((json_int_t)s->kernels_by_tier[t]));
  return all;
}

static json_t *kernels_json(const warm_job *j) {
  json_t *all = json_array();
  limber_kernel_info k;
  for (size_t i = 0; kernel_at(j, i, &k); i++)
    json_array_append_new(
        all,
        json_pack("{s:s, s:s, s:f, s:f, s:I, s:s?}", "name", k.name, "spec",
                  k.text, "compile_ms", (double)k.compile_us * 1e-3, "check_ms",
                  (double)k.check_us * 1e-3, "code_bytes",
                  (json_int_t)k.code_bytes, "error", k.error));
  return all;
}

static void print_json(warm_job *j) {
  const planned *n = &j->planned;
  const limber_stats *s = &j->stats;
  json_t *root = json_pack(
      "{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "model",
      text_json(j->o.model), "shapes", (json_int_t)n->good, "of",
      (json_int_t)total_shapes(j), "rejected_shapes", (json_int_t)n->refused,
      "incomplete_shapes", (json_int_t)n->incomplete, "nodes_left",
      (json_int_t)n->nodes_left, "steps", (double)n->steps / (double)n->good,
      "kernel_steps", (double)n->kernels / (double)n->good, "plan_us",
      spread_json(j->plan_us, n->good), "plan_us_a_step",
      spread_json(j->step_us, n->good));
  json_t *more =
      json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "kernels",
                (json_int_t)s->kernels_requested, "added_by_last_half",
                (json_int_t)(s->kernels_requested - n->requested_by_half),
                "tiers", tiers_json(s), "compiled", (json_int_t)s->kernels,
                "failed", (json_int_t)s->kernels_failed, "code_bytes",
                (json_int_t)s->code_bytes, "settled", j->settled, "compile_ms",
                spread_json(j->compile_ms, j->n_kernels), "check_ms",
                spread_json(j->check_ms, j->n_kernels), "compiled_kernels",
                kernels_json(j));
  json_object_update(root, more);
  json_decref(more);
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

static int run_job(warm_job *j, problem *p) {
  if (!open_model(j, p) || !read_feeds(j, p) || !choose_shapes(j, p) ||
      !plan_all(j, p) || !settle(j, p))
    return print_problem(p);
  (j->o.json ? print_json : print_text)(j);
  if (!j->settled && !j->o.plan_only) {
    fprintf(stderr,
            "limber: not all kernels were compiled within %lld seconds; "
            "increase --timeout\n",
            j->o.timeout);
    return EXIT_BAD;
  }
  return j->planned.refused ? EXIT_BAD : EXIT_OK;
}

static void job_fini(warm_job *j) {
  for (size_t i = 0; j->feeds && i < j->o.inputs.n; i++)
    feed_free(&j->feeds[i]);
  shapes_free(j->shapes);
  limber_shapes_close(j->recorded);
  free(j->feeds);
  free(j->inputs);
  free(j->given);
  free(j->plan_us);
  free(j->step_us);
  free(j->compile_ms);
  free(j->check_ms);
  free(j->o.inputs.items);
  limber_session_close(j->session);
  limber_runtime_destroy(j->runtime);
}

int command_warm(int argc, char **argv) {
  warm_job j = {.o = {.seed = 1, .timeout = 600}};
  problem p = {0};
  int code =
      read_job(argc, argv, &j.o, &p) ? run_job(&j, &p) : print_problem(&p);
  job_fini(&j);
  return code;
}
