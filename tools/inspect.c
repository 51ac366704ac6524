// tools/inspect.c -- `limber inspect`: describes a model, even one that Limber
// cannot run.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "args.h"
#include "profile.h"

typedef struct inspect_job {
  const char *model;
  bool dump, json;
  limber_survey *survey;
  limber_session *session;  // NULL: not supported
  char *text;               // the graph; or NULL
} inspect_job;

static const option_row rows[] = {
    {.name = "dump",
     .kind = OPTION_FLAG,
     .offset = offsetof(inspect_job, dump),
     .help = "print the graph as Limber runs it, one line per node"},
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = offsetof(inspect_job, json),
     .help = "print JSON"},
};

static const command_info command = {
    .name = "inspect",
    .usage = "MODEL [OPTION...]",
    .about =
        "Shows inputs and outputs with their symbolic dims, operators with "
        "counts\n"
        "and whether Limber supports them, and the size of the weights. The "
        "exit\n"
        "code is 3 if an operator is not supported.\n",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

// An unsupported model is shown nevertheless; `p` then says what it needs.
static bool open_model(inspect_job *j, problem *p) {
  limber_status st = limber_survey_open(j->model, &j->survey);
  if (st) return fail_status(p, st, j->model);
  st = limber_session_open(NULL, j->model, NULL, &j->session);
  if (st) fail_status(p, st, j->model);
  if (st && st != LIMBER_UNSUPPORTED) return false;
  if (st || !j->dump) return true;
  st = limber_session_dump(j->session, &j->text);
  return !st || fail_status(p, st, j->model);
}

// -- text --------------------------------------------------------------------

static void print_values(const char *title, const limber_value_info *infos,
                         size_t n) {
  int width = 0;
  for (size_t i = 0; i < n; i++)
    if ((int)strlen(infos[i].name) > width) width = (int)strlen(infos[i].name);
  printf("\n%s\n", title);
  for (size_t i = 0; i < n; i++) {
    printf("  %-*s  %s", width, infos[i].name,
           limber_dtype_name(infos[i].dtype));
    if (infos[i].rank >= 0) printf("[");
    for (int k = 0; k < infos[i].rank; k++)
      printf(k ? ",%s" : "%s", infos[i].dims[k]);
    printf(infos[i].rank >= 0 ? "]\n" : ", of any rank\n");
  }
}

static void print_model(const inspect_job *j) {
  limber_model_info m = {.size = sizeof m};
  const limber_value_info *infos;
  if (limber_session_model(j->session, &m)) return;
  printf("  IR version %" PRId64 ", opset %" PRId64, m.ir_version, m.opset);
  if (*m.producer_name)
    printf(", by %s %s", m.producer_name, m.producer_version);
  printf("\n  graph '%s': %zu nodes after graph passes\n", m.graph_name,
         m.nodes);
  printf("  weights: %" PRIu64 " bytes\n", m.weight_bytes);
  limber_stats s = {.size = sizeof s};
  if (!limber_session_stats(j->session, &s) && s.prefer_reusable_kernels)
    printf("  reusable kernels preferred (set by: %s)\n",
           s.prefer_reusable_from);
  size_t n = limber_session_inputs(j->session, &infos);
  print_values("inputs", infos, n);
  n = limber_session_outputs(j->session, &infos);
  print_values("outputs", infos, n);
}

static void print_operators(const inspect_job *j) {
  const limber_op_count *ops;
  size_t n = limber_survey_ops(j->survey, &ops);
  printf("\n%-40s %5s %7s  %s\n", "operators", "opset", "count", "supported");
  for (size_t i = 0; i < n; i++) {
    char name[256];
    snprintf(name, sizeof name, "%s%s%s", ops[i].domain,
             *ops[i].domain ? "." : "", ops[i].name);
    printf("  %-38s %5" PRId64 " %7" PRIu64 "  %s\n", name, ops[i].opset,
           ops[i].count, ops[i].supported ? "yes" : "no");
  }
}

static void print_text(const inspect_job *j) {
  printf("%s\n", j->model);
  if (j->session) print_model(j);
  print_operators(j);
  if (j->text) printf("\n%s", j->text);
}

// -- JSON --------------------------------------------------------------------

static json_t *dim_json(const char *dim) {
  bool number = strspn(dim, "0123456789") == strlen(dim);
  if (number) return json_integer(strtoll(dim, NULL, 10));
  return strcmp(dim, "?") ? text_json(dim) : json_null();
}

static json_t *values_json(const limber_value_info *infos, size_t n) {
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++) {
    json_t *dims = infos[i].rank < 0 ? json_null() : json_array();
    for (int k = 0; k < infos[i].rank; k++)
      json_array_append_new(dims, dim_json(infos[i].dims[k]));
    json_array_append_new(
        list,
        json_pack("{s:o, s:s, s:o}", "name", text_json(infos[i].name), "dtype",
                  limber_dtype_name(infos[i].dtype), "dims", dims));
  }
  return list;
}

static json_t *operators_json(const inspect_job *j) {
  const limber_op_count *ops;
  size_t n = limber_survey_ops(j->survey, &ops);
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(
        list,
        json_pack("{s:o, s:o, s:I, s:I, s:b}", "domain",
                  text_json(ops[i].domain), "name", text_json(ops[i].name),
                  "opset", (json_int_t)ops[i].opset, "count",
                  (json_int_t)ops[i].count, "supported", ops[i].supported));
  return list;
}

static void add_node(void *user, const limber_node *n) {
  json_array_append_new(user, load_node_json(n));
}

static json_t *nodes_json(const inspect_job *j) {
  json_t *nodes = json_array();
  limber_session_nodes(j->session, add_node, nodes);
  return nodes;
}

static void add_model(const inspect_job *j, json_t *root) {
  limber_model_info m = {.size = sizeof m};
  const limber_value_info *infos;
  if (limber_session_model(j->session, &m)) return;
  json_t *properties = json_object();
  for (size_t i = 0; i < m.n_properties; i++)
    json_object_set_new(properties, m.properties[i].key,
                        text_json(m.properties[i].value));
  json_object_update_new(
      root,
      json_pack(
          "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o}",
          "ir_version", (json_int_t)m.ir_version, "opset", (json_int_t)m.opset,
          "model_version", (json_int_t)m.model_version, "producer_name",
          text_json(m.producer_name), "producer_version",
          text_json(m.producer_version), "domain", text_json(m.domain),
          "description", text_json(m.description), "graph_name",
          text_json(m.graph_name), "weight_bytes", (json_int_t)m.weight_bytes,
          "node_count", (json_int_t)m.nodes, "properties", properties));
  json_object_set_new(root, "nodes", nodes_json(j));
  size_t n = limber_session_inputs(j->session, &infos);
  json_object_set_new(root, "inputs", values_json(infos, n));
  n = limber_session_outputs(j->session, &infos);
  json_object_set_new(root, "outputs", values_json(infos, n));
}

static void print_json(const inspect_job *j) {
  json_t *root = json_pack("{s:o, s:b}", "model", text_json(j->model),
                           "supported", j->session != NULL);
  if (j->session) add_model(j, root);
  json_object_set_new(root, "operators", operators_json(j));
  if (j->text) json_object_set_new(root, "graph", text_json(j->text));
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

// -- the command -------------------------------------------------------------

static int inspect(inspect_job *j, problem *p) {
  if (!open_model(j, p)) return print_problem(p);
  (j->json ? print_json : print_text)(j);
  return j->session ? EXIT_OK : print_problem(p);
}

int command_inspect(int argc, char **argv) {
  inspect_job j = {0};
  problem p = {0};
  words rest;
  bool good = read_options(&command, argc, argv, &j, &rest, &p) &&
              read_model(&command, &rest, &j.model, &p);
  int code = good ? inspect(&j, &p) : print_problem(&p);
  limber_string_free(j.text);
  limber_session_close(j.session);
  limber_survey_close(j.survey);
  return code;
}
