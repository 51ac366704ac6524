// tools/run.c -- `limber run`: runs a model on inputs from files or on random
// numbers.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "element.h"
#include "inputs.h"
#include "json.h"
#include "npy.h"
#include "args.h"
#include "trace.h"
#include "profile.h"

typedef struct run_args {
  const char *model, *output, *compare, *shapes, *dims, *record, *trace;
  word_list inputs;  // as written
  long long threads, repeat, seed;
  long long settle;  // seconds
  int prefer;        // 1 + the given value; 0: not given
  int no_optimize;   // 1: do not run graph passes
  int skip;          // for switch_option
  double timeout;    // seconds; 0: none
  bool profile, explain, deterministic, json;
} run_args;

// The state of one `limber run`.
typedef struct model_run {
  run_args o;
  limber_runtime *runtime;
  limber_session *session;
  inputs in;
  limber_tensor *results;  // n_results, owned, named
  size_t n_results;
  double load_ms, first_ms, best_ms;
  profile profile;
  trace trace;
  bool differs;
} model_run;

// -- options -----------------------------------------------------------------

static const char *const on_off[] = {"on", "off", NULL};

#define AT(field) offsetof(run_args, field)
static const option_row rows[] = {
    {.name = "input",
     .argument = "NAME=FILE.npy",
     .kind = OPTION_LIST,
     .offset = AT(inputs),
     .help = "take an input from a file, or\n"
             "NAME=random:f32[1,3,48]   random numbers: floats in -1..1,\n"
             "                          integers 0 and 1\n"
             "NAME=random:i64[8]{0..9}  in a range, both ends included\n"
             "NAME=zeros:f32[2]         zeros\n"
             "dtypes: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool"},
    {.name = "shapes",
     .argument = "'x=1x3x48x320'",
     .kind = OPTION_ONCE,
     .offset = AT(shapes),
     .help = "use random numbers of these shapes for the inputs that\n"
             "are not given"},
    {.name = "dims",
     .argument = "'batch=2 seq=16'",
     .kind = OPTION_ONCE,
     .offset = AT(dims),
     .help = "the same, by the sizes of symbolic dims"},
    {.name = "output",
     .argument = "DIR",
     .kind = OPTION_TEXT,
     .offset = AT(output),
     .help = "write each output to DIR/NAME.npy"},
    {.name = "compare",
     .argument = "DIR",
     .kind = OPTION_TEXT,
     .offset = AT(compare),
     .help = "compare each output with DIR/NAME.npy: floats within\n"
             "1e-4 + 1e-3 |b|, integers exactly; exit 1 if not"},
    {.name = "repeat",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = AT(repeat),
     .help = "run N times, and print the time of the fastest",
     .low = 1,
     .high = 1000000000},
    {.name = "settle",
     .argument = "SECONDS",
     .kind = OPTION_NUMBER,
     .offset = AT(settle),
     .help = "after the first run, compile the kernels that it needs\n"
             "and wait at most that long (LIMBER_JIT=process)",
     .low = 0,
     .high = 1000000},
    {.name = "profile",
     .kind = OPTION_FLAG,
     .offset = AT(profile),
     .help = "run once more, and list the steps, longest first, then\n"
             "the share of each tier"},
    {.name = "explain",
     .kind = OPTION_FLAG,
     .offset = AT(explain),
     .help = "run once more, and list for each step its tier and the\n"
             "reason, then the nodes that needed no step; see limber\n"
             "explain"},
    {.name = "trace",
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(trace),
     .help = "write requests, steps and decisions as a trace for\n"
             "ui.perfetto.dev and chrome://tracing"},
    {.name = "record-shapes",
     .argument = "FILE",
     .kind = OPTION_TEXT,
     .offset = AT(record),
     .help = "record which shapes ran, for limber warm --shapes-file"},
    {.name = "timeout",
     .argument = "SECONDS",
     .kind = OPTION_SECONDS,
     .offset = AT(timeout),
     .help = "cancel a run that takes longer: exit 1, and the error\n"
             "says how far it got"},
    {.name = "threads",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = AT(threads),
     .help = "number of threads; default: all processors available to\n"
             "this process",
     .low = 1,
     .high = 1024},
    {.name = "seed",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = AT(seed),
     .help = "seed of the random numbers; default 1",
     .low = 0,
     .high = INT64_MAX},
    {.name = "optimize",
     .argument = "on|off",
     .kind = OPTION_CHOICE,
     .offset = AT(no_optimize),
     .help = "run the graph passes; default on",
     .words = on_off},
    {.name = "deterministic",
     .kind = OPTION_FLAG,
     .offset = AT(deterministic),
     .help = "bitwise identical results, whichever kernels compute\n"
             "them"},
    OPTION_SKIP(AT(skip)),
    OPTION_PREFER_REUSABLE(AT(prefer)),
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = AT(json),
     .help = "print JSON"},
};

static const command_info command = {
    .name = "run",
    .usage = "MODEL [OPTION...]",
    .about = "",
    .more = "In file names, each '/' of a NAME is replaced by '_'.\n",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

// -- running -----------------------------------------------------------------

static bool open_model(model_run *j, problem *p) {
  limber_runtime_options threads = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_session_options how = LIMBER_SESSION_OPTIONS_INIT;
  threads.threads = (int)j->o.threads;
  if (j->o.trace) {
    if (!trace_begin(&j->trace, p)) return false;
    threads.event = trace_event;
    threads.event_user = &j->trace;
  }
  how.optimize = j->o.no_optimize ? -1 : 0;
  how.deterministic = j->o.deterministic;
  how.prefer_reusable_kernels = preference(j->o.prefer);
  how.skip = switch_option(j->o.skip);
  limber_status st = limber_runtime_create(&threads, &j->runtime);
  if (st) return fail_status(p, st, "threads");
  double start = now_ms();
  st = limber_session_open(j->runtime, j->o.model, &how, &j->session);
  if (st) return fail_status(p, st, j->o.model);
  j->load_ms = now_ms() - start;
  if (j->o.record) st = limber_session_record_shapes(j->session, j->o.record);
  return !st || fail_status(p, st, "--record-shapes");
}

static bool read_inputs(model_run *j, problem *p) {
  inputs_options how = {j->o.inputs, j->o.shapes, j->o.dims, j->o.seed};
  if (!inputs_read(j->session, &how, &j->in, p)) return false;
  uint64_t count = inputs_count(&j->in);
  if (count != 1)
    return fail(
        p, EXIT_USAGE,
        "a run has one shape, but --shapes and --dims describe %" PRIu64,
        count);
  return inputs_select(&j->in, 0, p);
}

static void free_results(model_run *j) {
  for (size_t i = 0; i < j->n_results; i++) limber_tensor_free(&j->results[i]);
}

// A traced run reports its steps; it has no timeout.
static limber_status run_traced(model_run *j) {
  return limber_session_profile(j->session, j->in.feeds, j->in.n_feeds,
                                j->results, j->n_results, trace_step,
                                &j->trace);
}

static limber_status run_plain(model_run *j) {
  limber_run_options how = LIMBER_RUN_OPTIONS_INIT;
  how.timeout = j->o.timeout;
  return limber_session_run(j->session, j->in.feeds, j->in.n_feeds, j->results,
                            j->n_results, &how);
}

static bool run_once(model_run *j, problem *p) {
  free_results(j);
  double start = now_ms();
  limber_status st = (j->o.trace ? run_traced : run_plain)(j);
  if (st) return fail_status(p, st, j->o.model);
  double ms = now_ms() - start;
  if (j->first_ms == 0) j->first_ms = j->best_ms = ms;
  if (ms < j->best_ms) j->best_ms = ms;
  return true;
}

// It is not an error if not all kernels are compiled in time: the next runs use
// the kernels that exist.
static bool settle(const model_run *j, problem *p) {
  if (!j->o.settle) return true;
  limber_status st = limber_session_settle(j->session, (double)j->o.settle);
  if (!st || st == LIMBER_CANCELLED) return true;
  return fail_status(p, st, j->o.model);
}

static bool run_profile(model_run *j, problem *p) {
  if (!j->o.profile && !j->o.explain) return true;
  free_results(j);
  limber_status st =
      (j->o.explain ? limber_session_explain : limber_session_profile)(
          j->session, j->in.feeds, j->in.n_feeds, j->results, j->n_results,
          profile_add, &j->profile);
  if (st) return fail_status(p, st, j->o.model);
  if (j->profile.lost) return fail(p, EXIT_INTERNAL, "out of memory");
  return true;
}

static bool run_model(model_run *j, problem *p) {
  const limber_value_info *infos;
  j->n_results = limber_session_outputs(j->session, &infos);
  j->results = calloc(j->n_results + 1, sizeof *j->results);
  if (!j->results) return fail(p, EXIT_INTERNAL, "out of memory");
  for (size_t i = 0; i < j->n_results; i++) j->results[i].name = infos[i].name;
  for (long long i = 0; i < j->o.repeat; i++) {
    if (!run_once(j, p)) return false;
    if (i == 0 && !settle(j, p)) return false;
  }
  return run_profile(j, p);
}

// -- results -----------------------------------------------------------------

static void path_of(const char *directory, const char *name, char *buf,
                    size_t cap) {
  int n = snprintf(buf, cap, "%s/", directory);
  snprintf(buf + n, cap - (size_t)n, "%s.npy", name);
  for (char *c = buf + n; *c; c++)
    if (*c == '/') *c = '_';
}

static bool write_results(const model_run *j, problem *p) {
  char path[4096];
  if (!j->o.output) return true;
  if (strlen(j->o.output) > 2048)
    return fail(p, EXIT_BAD, "--output: the path is too long");
  if (mkdir(j->o.output, 0777) && errno != EEXIST)
    return fail(p, EXIT_BAD, "%s: %s", j->o.output, strerror(errno));
  for (size_t i = 0; i < j->n_results; i++) {
    path_of(j->o.output, j->results[i].name, path, sizeof path);
    if (!npy_write(path, &j->results[i], p)) return false;
  }
  return true;
}

// Reports differences on standard error, and continues.
static bool compare_results(model_run *j, problem *p) {
  char path[4096];
  if (!j->o.compare) return true;
  if (strlen(j->o.compare) > 2048)
    return fail(p, EXIT_BAD, "--compare: the path is too long");
  for (size_t i = 0; i < j->n_results; i++) {
    limber_tensor want;
    problem why;
    path_of(j->o.compare, j->results[i].name, path, sizeof path);
    if (!npy_read(path, &want, p)) return false;
    if (!agree(&j->results[i], &want, &why)) {
      j->differs = true;
      fprintf(stderr, "limber: output '%s' differs from %s: %s\n",
              j->results[i].name, path, why.text);
    }
    free(want.data);
  }
  return true;
}

static void print_text(model_run *j) {
  char type[256];
  for (size_t i = 0; i < j->n_results; i++) {
    const limber_tensor *t = &j->results[i];
    summary s = summarize(t);
    printf("%s  %s", t->name, type_print(t, type, sizeof type));
    if (s.count) printf("  min %g  max %g  mean %g", s.min, s.max, s.mean);
    if (s.n_nan) printf("  NaN %" PRId64, s.n_nan);
    printf("\n");
  }
  printf("load %.2f ms, run %.3f ms", j->load_ms, j->first_ms);
  if (j->o.repeat > 1)
    printf(", fastest of %lld %.3f ms", j->o.repeat, j->best_ms);
  int threads = limber_runtime_threads(j->runtime);
  printf(", %d thread%s\n", threads, threads > 1 ? "s" : "");
  limber_stats stats = {.size = sizeof stats};
  if (!limber_session_stats(j->session, &stats) &&
      stats.prefer_reusable_kernels)
    printf("reusable kernels preferred (set by: %s); %" PRIu64
           " requested kernels are specialised\n",
           stats.prefer_reusable_from, stats.kernels_specialised);
  if (j->o.compare && !j->differs) printf("all outputs agree\n");
  if (j->o.explain) profile_explain(&j->profile);
  if (j->o.profile) profile_print(&j->profile);
}

static json_t *number(double v) {
  return isfinite(v) ? json_real(v) : json_null();
}

static json_t *result_json(const limber_tensor *t) {
  summary s = summarize(t);
  json_t *dims = json_array();
  for (int i = 0; i < t->rank; i++)
    json_array_append_new(dims, json_integer(t->dims[i]));
  return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:I}", "name",
                   text_json(t->name), "dtype", limber_dtype_name(t->dtype),
                   "dims", dims, "min", number(s.min), "max", number(s.max),
                   "mean", number(s.mean), "nan", (json_int_t)s.n_nan);
}

static void print_json(model_run *j) {
  json_t *outputs = json_array();
  for (size_t i = 0; i < j->n_results; i++)
    json_array_append_new(outputs, result_json(&j->results[i]));
  json_t *root = json_pack("{s:o, s:o, s:f, s:f, s:f, s:i, s:i}", "model",
                           text_json(j->o.model), "outputs", outputs, "load_ms",
                           j->load_ms, "first_ms", j->first_ms, "best_ms",
                           j->best_ms, "runs", j->o.repeat, "threads",
                           limber_runtime_threads(j->runtime));
  limber_stats stats = {.size = sizeof stats};
  if (!limber_session_stats(j->session, &stats))
    json_object_set_new(
        root, "prefer_reusable_kernels",
        json_pack("{s:b, s:s, s:I}", "on", stats.prefer_reusable_kernels,
                  "from", stats.prefer_reusable_from, "specialised",
                  (json_int_t)stats.kernels_specialised));
  if (j->o.compare)
    json_object_set_new(root, "agrees", json_boolean(!j->differs));
  if (j->o.profile || j->o.explain)
    json_object_set_new(root, "steps", profile_json(&j->profile));
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

static bool write_trace(model_run *j, problem *p) {
  if (!j->o.trace) return true;
  limber_runtime_flush(j->runtime);
  return trace_write(&j->trace, j->o.trace, p);
}

static int run_job(model_run *j, problem *p) {
  if (!open_model(j, p) || !read_inputs(j, p) || !run_model(j, p) ||
      !write_results(j, p) || !write_trace(j, p) || !compare_results(j, p))
    return print_problem(p);
  (j->o.json ? print_json : print_text)(j);
  return j->differs ? EXIT_BAD : EXIT_OK;
}

static void job_fini(model_run *j) {
  if (j->results) free_results(j);
  free(j->results);
  profile_fini(&j->profile);
  inputs_fini(&j->in);
  free(j->o.inputs.items);
  limber_session_close(j->session);
  limber_runtime_destroy(j->runtime);  // after it no more events arrive
  trace_fini(&j->trace);
}

int command_run(int argc, char **argv) {
  model_run j = {.o = {.repeat = 1, .seed = 1}};
  problem p = {0};
  words rest;
  bool good = read_options(&command, argc, argv, &j.o, &rest, &p) &&
              read_model(&command, &rest, &j.o.model, &p);
  int code = good ? run_job(&j, &p) : print_problem(&p);
  job_fini(&j);
  return code;
}
