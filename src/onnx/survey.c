// onnx/survey.c -- resolves each node to an operator or function, and counts
// them: the first step of every import, and the output of `limber inspect`.
#include <inttypes.h>
#include <string.h>

#include "base/strbuf.h"
#include "onnx/contrib.h"

// State of the traversal of all reachable nodes.
typedef struct walker {
  lb_pb_model *model;
  lb_arena *scratch, *persistent;  // for keys; for rows
  lb_op_table *table;
  lb_map functions;       // key_of(...) -> lb_pb_function
  lb_contrib *contribs;   // bodies of ONNX Runtime's operators
  lb_pb_function *queue;  // reached, but not traversed yet
  const lb_pb_opset *opsets;
  uint32_t n_opsets;
} walker;

// -- functions by name -------------------------------------------------------

// "domain\0name\0overload\0": unique, because names contain no zero byte.
static lb_status key_of(lb_arena *a, lb_pb_str domain, lb_pb_str name,
                        lb_pb_str overload, lb_pb_str *out) {
  lb_pb_str parts[] = {domain, name, overload};
  size_t size = domain.n + name.n + overload.n + 3;
  char *key = lb_arena_zalloc(a, size, 1), *p = key;
  if (!key) return lb_oom();
  for (int i = 0; i < 3; i++) {
    if (parts[i].n) memcpy(p, parts[i].p, parts[i].n);
    p += parts[i].n + 1;
  }
  *out = (lb_pb_str){key, size};
  return LB_OK;
}

static lb_status index_functions(walker *w) {
  for (uint32_t i = 0; i < w->model->n_functions; i++) {
    lb_pb_function *fn = &w->model->functions[i];
    lb_pb_str key;
    void *old;
    LB_TRY(key_of(w->scratch, fn->domain, fn->name, fn->overload, &key));
    LB_TRY(lb_map_put(&w->functions, key.p, key.n, fn, &old));
    if (old)
      return lb_error(LB_INVALID, "function '%.*s.%.*s' is defined twice",
                      LB_STR(fn->domain), LB_STR(fn->name));
  }
  return LB_OK;
}

static lb_status find_function(walker *w, lb_pb_node *n) {
  lb_pb_function *fn = NULL;
  lb_pb_str key;
  if (w->functions.count) {
    LB_TRY(key_of(w->scratch, n->domain, n->op_type, n->overload, &key));
    fn = lb_map_get(&w->functions, key.p, key.n);
  }
  if (!fn)
    LB_TRY(lb_contrib_find(&w->contribs, w->scratch, w->persistent, n, &fn));
  n->fn = fn;
  if (!fn || fn->reached) return LB_OK;
  fn->reached = true;
  fn->next = w->queue;
  w->queue = fn;
  return LB_OK;
}

// -- operators ---------------------------------------------------------------

// Includes operator types that ops.def does not have but the importer rewrites.
static int find_op(const char *domain, const char *type) {
  if (domain[0] == 0 && strcmp(type, "Constant") == 0) return LB_PB_CONSTANT;
  if (domain[0] == 0 && strcmp(type, "Upsample") == 0) return LB_OP_Resize;
  if (domain[0] == 0 && strcmp(type, "Scatter") == 0)
    return LB_OP_ScatterElements;
  return (int)lb_op_find(domain, type);
}

static lb_status new_row(walker *w, const lb_pb_node *n, lb_op_use **out) {
  lb_op_table *t = w->table;
  if (t->n == t->cap) {
    uint32_t cap = t->cap ? 2 * t->cap : 32;
    lb_op_use *rows = lb_arena_new(w->persistent, lb_op_use, cap);
    if (!rows) return lb_oom();
    if (t->n) memcpy(rows, t->rows, t->n * sizeof *rows);
    t->rows = rows;
    t->cap = cap;
  }
  lb_op_use *row = &t->rows[t->n++];
  row->domain = lb_pb_cstr(w->persistent, n->domain);
  row->op_type = lb_pb_cstr(w->persistent, n->op_type);
  row->first = lb_pb_cstr(w->persistent, n->name);
  row->opset = n->version;
  if (!row->domain || !row->op_type || !row->first) return lb_oom();
  row->supported = find_op(row->domain, row->op_type) != LB_OP_COUNT;
  *out = row;
  return LB_OK;
}

static lb_status count_node(walker *w, lb_pb_node *n) {
  lb_pb_str version = {(const char *)&n->version, sizeof n->version}, key;
  LB_TRY(key_of(w->scratch, n->domain, n->op_type, version, &key));
  lb_op_table *t = w->table;
  uintptr_t row_number = (uintptr_t)lb_map_get(&t->index, key.p, key.n);
  lb_op_use *row = row_number ? &t->rows[row_number - 1] : NULL;
  if (!row) {
    LB_TRY(new_row(w, n, &row));
    LB_TRY(lb_map_put(&t->index, key.p, key.n, (void *)(uintptr_t)t->n, NULL));
  }
  row->count++;
  n->op = find_op(row->domain, row->op_type);
  if (n->op == LB_OP_Resize && lb_pb_is(n->op_type, "Upsample") &&
      n->version > 9)
    n->version = 9;
  return LB_OK;
}

static lb_status walk_nodes(walker *w, lb_pb_nodes *nodes);

static lb_status walk_node(walker *w, lb_pb_node *n) {
  w->table->n_nodes++;
  n->version = lb_pb_version(w->opsets, w->n_opsets, n->domain);
  if (!n->version)
    n->version = lb_pb_version(w->model->opsets, w->model->n_opsets, n->domain);
  LB_TRY(find_function(w, n));
  if (!n->fn) LB_TRY(count_node(w, n));
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].graph) LB_TRY(walk_nodes(w, &n->attrs[i].graph->nodes));
  return LB_OK;
}

// Recursion is bounded: the reader limits the nesting of subgraphs.
static lb_status walk_nodes(walker *w, lb_pb_nodes *nodes) {
  for (uint32_t i = 0; i < nodes->n; i++) LB_TRY(walk_node(w, &nodes->at[i]));
  return LB_OK;
}

static lb_status walk_all(walker *w) {
  w->opsets = w->model->opsets;
  w->n_opsets = w->model->n_opsets;
  LB_TRY(walk_nodes(w, &w->model->graph->nodes));
  while (w->queue) {
    lb_pb_function *fn = w->queue;
    w->queue = fn->next;
    w->opsets = fn->opsets;
    w->n_opsets = fn->n_opsets;
    LB_TRY(walk_nodes(w, &fn->nodes));
  }
  return LB_OK;
}

lb_status lb_pb_resolve(lb_pb_model *m, lb_arena *scratch, lb_arena *persistent,
                        lb_op_table *out) {
  *out = (lb_op_table){0};
  walker w = {
      .model = m, .scratch = scratch, .persistent = persistent, .table = out};
  lb_status st = lb_pb_stack_lists(m->graph, scratch);
  if (!lb_failed(st)) st = index_functions(&w);
  if (!lb_failed(st)) st = walk_all(&w);
  lb_map_fini(&w.functions);
  return st;
}

void lb_op_table_fini(lb_op_table *t) { lb_map_fini(&t->index); }

// ONNX Runtime's highest optimisation level writes operators for the processor
// that it runs on.
static bool is_processor_specific(const char *domain) {
  return strcmp(domain, "com.microsoft.nchwc") == 0 ||
         strncmp(domain, "com.ms.internal", 15) == 0;
}

lb_status lb_op_table_check(const lb_op_table *t) {
  lb_strbuf text = {0};
  uint32_t missing = 0;
  bool processor_specific = false;
  for (uint32_t i = 0; i < t->n; i++) {
    const lb_op_use *row = &t->rows[i];
    if (row->supported) continue;
    lb_strbuf_printf(
        &text,
        "%s%.200s%s%.200s (opset %" PRId64 ") ×%u, first at node '%.200s'",
        missing ? "; " : "", row->domain, row->domain[0] ? "." : "",
        row->op_type, row->opset, row->count, row->first);
    processor_specific |= is_processor_specific(row->domain);
    missing++;
  }
  if (processor_specific)
    lb_strbuf_puts(&text,
                   ". ONNX Runtime optimised this model for one kind of "
                   "processor; use at most the level ORT_ENABLE_EXTENDED");
  lb_status st = lb_strbuf_status(&text);
  if (!lb_failed(st) && missing)
    st = lb_error(LB_UNSUPPORTED, "%u operator%s not supported: %s", missing,
                  missing == 1 ? " is" : "s are", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return st;
}

// -- public functions --------------------------------------------------------

lb_status lb_onnx_survey(lb_span bytes, lb_survey *out) {
  *out = (lb_survey){0};
  lb_arena_init(&out->arena, 64 << 10);
  lb_arena scratch;
  lb_arena_init(&scratch, 64 << 10);
  lb_pb_model m;
  lb_op_table table = {0};
  lb_status st = lb_pb_read(bytes, &scratch, &scratch, &m);
  if (!lb_failed(st)) st = lb_pb_resolve(&m, &scratch, &out->arena, &table);
  if (lb_failed(st)) goto done;
  out->ops = table.rows;
  out->n_ops = table.n;
  out->n_nodes = table.n_nodes;
  out->ir_version = m.ir_version;
  out->opset = lb_pb_version(m.opsets, m.n_opsets, (lb_pb_str){0});
  out->producer_name = lb_pb_cstr(&out->arena, m.producer_name);
  out->producer_version = lb_pb_cstr(&out->arena, m.producer_version);
  if (!out->producer_name || !out->producer_version) st = lb_oom();

done:
  if (lb_failed(st)) lb_survey_fini(out);
  lb_op_table_fini(&table);
  lb_arena_fini(&scratch);
  return st;
}

lb_status lb_onnx_survey_file(const char *path, lb_survey *out) {
  *out = (lb_survey){0};
  lb_file f = {0};
  LB_TRY(lb_file_map(path, &f));
  lb_status st = lb_onnx_survey(f.bytes, out);
  lb_file_close(&f);
  return lb_failed(st) ? lb_status_note(st, "%s", path) : st;
}

void lb_survey_fini(lb_survey *s) {
  lb_arena_fini(&s->arena);
  *s = (lb_survey){0};
}
