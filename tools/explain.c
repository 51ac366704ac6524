// tools/explain.c -- `limber explain`: runs a model at each of the given shapes
// and shows what was executed, skipped and copied, and why.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "inputs.h"
#include "json.h"
#include "profile.h"

#define MOST_SHAPES 1000

typedef struct explain_args {
  const char *model, *shapes, *dims;
  word_list inputs;  // as written
  long long threads, seed;
  long long settle;  // seconds
  int skip;          // for switch_option
  int prefer;        // 1 + the given value; 0: not given
  bool deterministic, json;
} explain_args;

// The state of one `limber explain`.
typedef struct explain_job {
  explain_args o;
  limber_runtime *runtime;
  limber_session *session;
  inputs in;
  limber_tensor *results;  // n_results, owned
  size_t n_results;
  profile profile;  // of the current shape
  json_t *nodes;    // likewise; owned
  json_t *all;      // by shape; owned
} explain_job;

// -- options -----------------------------------------------------------------

#define AT(field) offsetof(explain_args, field)
static const option_row rows[] = {
    {.name = "shapes",
     .argument = "'x=1x3x48x{32,320}'",
     .kind = OPTION_ONCE,
     .offset = AT(shapes),
     .help = "run at these shapes, on random numbers"},
    {.name = "dims",
     .argument = "'batch={1,2} seq=16'",
     .kind = OPTION_ONCE,
     .offset = AT(dims),
     .help = "the same, by the sizes of symbolic dims"},
    {.name = "input",
     .argument = "NAME=...",
     .kind = OPTION_LIST,
     .offset = AT(inputs),
     .help = "take an input from a file or from a range of random\n"
             "numbers; see limber run"},
    OPTION_SKIP(AT(skip)),
    {.name = "settle",
     .argument = "SECONDS",
     .kind = OPTION_NUMBER,
     .offset = AT(settle),
     .help = "first compile the kernels that the run needs, and wait\n"
             "at most that long",
     .low = 0,
     .high = 1000000},
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
    {.name = "deterministic",
     .kind = OPTION_FLAG,
     .offset = AT(deterministic),
     .help = "bitwise identical results, whichever kernels compute\n"
             "them"},
    OPTION_PREFER_REUSABLE(AT(prefer)),
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = AT(json),
     .help = "print JSON: an object, or a list of objects if there are\n"
             "several shapes"},
};

static const command_info command = {
    .name = "explain",
    .usage = "MODEL [OPTION...]",
    .about =
        "Runs the model at each of the shapes and shows for each step its tier "
        "and\n"
        "the reason, for each node that did nothing the proof, and the copies "
        "that\n"
        "remain.\n",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

// -- running -----------------------------------------------------------------

static bool open_model(explain_job *j, problem *p) {
  limber_runtime_options threads = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_session_options how = LIMBER_SESSION_OPTIONS_INIT;
  const limber_value_info *infos;
  threads.threads = (int)j->o.threads;
  how.deterministic = j->o.deterministic;
  how.prefer_reusable_kernels = preference(j->o.prefer);
  how.skip = switch_option(j->o.skip);
  limber_status st = limber_runtime_create(&threads, &j->runtime);
  if (st) return fail_status(p, st, "threads");
  st = limber_session_open(j->runtime, j->o.model, &how, &j->session);
  if (st) return fail_status(p, st, j->o.model);
  j->n_results = limber_session_outputs(j->session, &infos);
  j->results = calloc(j->n_results + 1, sizeof *j->results);
  if (!j->results) return fail(p, EXIT_INTERNAL, "out of memory");
  for (size_t i = 0; i < j->n_results; i++) j->results[i].name = infos[i].name;
  return true;
}

static bool read_inputs(explain_job *j, problem *p) {
  inputs_options how = {j->o.inputs, j->o.shapes, j->o.dims, j->o.seed};
  if (!inputs_read(j->session, &how, &j->in, p)) return false;
  uint64_t count = inputs_count(&j->in);
  if (count <= MOST_SHAPES) return true;
  return fail(p, EXIT_USAGE,
              "--shapes and --dims describe %" PRIu64
              " shapes; at most %d can be explained",
              count, MOST_SHAPES);
}

static void free_results(explain_job *j) {
  for (size_t i = 0; i < j->n_results; i++) limber_tensor_free(&j->results[i]);
}

// The kernels that the shape needs are known from its first run. The run that
// is explained uses those that could be compiled in time.
static limber_status run_and_settle(explain_job *j) {
  limber_status st = limber_session_run(j->session, j->in.feeds, j->in.n_feeds,
                                        j->results, j->n_results, NULL);
  free_results(j);
  if (st || !j->o.settle) return st;
  st = limber_session_settle(j->session, (double)j->o.settle);
  return st == LIMBER_CANCELLED ? LIMBER_OK : st;
}

static void add_step(void *user, const limber_step *step) {
  explain_job *j = user;
  profile_add(&j->profile, step);
}

static void add_node(void *user, const limber_node *node) {
  explain_job *j = user;
  json_array_append_new(j->nodes, run_node_json(node));
}

static bool run_shape(explain_job *j, uint64_t i, problem *p) {
  if (!inputs_select(&j->in, i, p)) return false;
  profile_fini(&j->profile);
  json_decref(j->nodes);
  j->nodes = json_array();
  limber_status st = run_and_settle(j);
  if (!st)
    st = limber_session_explain_nodes(j->session, j->in.feeds, j->in.n_feeds,
                                      j->results, j->n_results, add_step,
                                      add_node, j);
  if (st) return fail_status(p, st, j->o.model);
  free_results(j);
  if (j->profile.lost) return fail(p, EXIT_INTERNAL, "out of memory");
  return true;
}

// -- results -----------------------------------------------------------------

static void print_shape(explain_job *j) {
  for (size_t i = 0; i < j->in.n_feeds; i++) {
    const limber_tensor *t = &j->in.feeds[i];
    printf("%s%s=", i ? " " : "", t->name);
    for (int k = 0; k < t->rank; k++)
      printf(k ? "x%" PRId64 : "%" PRId64, t->dims[k]);
  }
  printf("\n");
  profile_explain(&j->profile);
}

static void add_shape(explain_job *j) {
  json_t *by_input = json_object();
  for (size_t i = 0; i < j->in.n_feeds; i++) {
    const limber_tensor *t = &j->in.feeds[i];
    json_t *dims = json_array();
    for (int k = 0; k < t->rank; k++)
      json_array_append_new(dims, json_integer(t->dims[k]));
    json_object_set_new(by_input, t->name, dims);
  }
  json_array_append_new(
      j->all,
      json_pack("{s:o, s:o, s:o, s:o, s:O}", "model", text_json(j->o.model),
                "shapes", by_input, "counts", profile_counts_json(&j->profile),
                "steps", profile_json(&j->profile), "nodes", j->nodes));
}

static bool explain_shapes(explain_job *j, problem *p) {
  uint64_t n = inputs_count(&j->in);
  for (uint64_t i = 0; i < n; i++) {
    if (!run_shape(j, i, p)) return false;
    if (i && !j->o.json) printf("\n");
    (j->o.json ? add_shape : print_shape)(j);
  }
  return true;
}

static int run_job(explain_job *j, problem *p) {
  j->all = json_array();
  if (!open_model(j, p) || !read_inputs(j, p) || !explain_shapes(j, p))
    return print_problem(p);
  if (!j->o.json) return EXIT_OK;
  bool one = json_array_size(j->all) == 1;
  json_dumpf(one ? json_array_get(j->all, 0) : j->all, stdout, JSON_INDENT(2));
  printf("\n");
  return EXIT_OK;
}

static void job_fini(explain_job *j) {
  if (j->results) free_results(j);
  free(j->results);
  profile_fini(&j->profile);
  json_decref(j->nodes);
  json_decref(j->all);
  inputs_fini(&j->in);
  free(j->o.inputs.items);
  limber_session_close(j->session);
  limber_runtime_destroy(j->runtime);
}

int command_explain(int argc, char **argv) {
  explain_job j = {.o = {.seed = 1}};
  problem p = {0};
  words rest;
  bool good = read_options(&command, argc, argv, &j.o, &rest, &p) &&
              read_model(&command, &rest, &j.o.model, &p);
  int code = good ? run_job(&j, &p) : print_problem(&p);
  job_fini(&j);
  return code;
}
