// onnx/onnx.c -- imports a file or bytes: checks versions, builds the graph,
// keeps the metadata.
#include "onnx/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/import.h"

enum {
  MIN_IR = 3,
  NEWEST_IR = 14,
  MIN_OPSET = 7,
};

static lb_status check_ir(const lb_import *im) {
  int64_t v = im->pb.ir_version;
  if (v <= 0)
    return lb_error(LB_INVALID,
                    "the model has no IR version: is it an ONNX file?");
  if (v < MIN_IR)
    return lb_error(LB_UNSUPPORTED,
                    "IR version %" PRId64
                    " is too old: Limber reads %d and newer",
                    v, MIN_IR);
  if (v > NEWEST_IR)
    lb_log_line(im->log, LB_LOG_WARN,
                "IR version %" PRId64 " is newer than %d, the newest known", v,
                NEWEST_IR);
  return LB_OK;
}

static lb_status check_opset(const lb_op_use *row) {
  if (row->domain[0]) return LB_OK;
  if (row->opset <= 0)
    return lb_error(LB_INVALID,
                    "node '%.200s' (%.200s): the model does not say which "
                    "opset of ONNX it uses",
                    row->first, row->op_type);
  if (row->opset < MIN_OPSET)
    return lb_error(LB_UNSUPPORTED,
                    "opset %" PRId64
                    " is too old: Limber reads %d and newer; convert the model "
                    "with onnx.version_converter",
                    row->opset, MIN_OPSET);
  return LB_OK;
}

static lb_status check_operators(lb_import *im) {
  lb_op_table t;
  lb_status st = lb_pb_resolve(&im->pb, &im->scratch, &im->graph->arena, &t);
  int64_t newest = 0;
  for (uint32_t i = 0; i < t.n && !lb_failed(st); i++) {
    st = check_opset(&t.rows[i]);
    if (!t.rows[i].domain[0] && t.rows[i].opset > newest)
      newest = t.rows[i].opset;
  }
  if (!lb_failed(st) && newest > LB_NEWEST_OPSET)
    lb_log_line(im->log, LB_LOG_WARN,
                "opset %" PRId64
                " is newer than %d, the newest known; operators are assumed to "
                "be unchanged since then",
                newest, LB_NEWEST_OPSET);
  if (!lb_failed(st)) st = lb_op_table_check(&t);
  lb_op_table_fini(&t);
  return st;
}

// -- metadata ----------------------------------------------------------------

static void declare_output(const lb_pb_value *from, lb_declared *out) {
  *out = (lb_declared){.rank = -1};
  if (from->type != LB_PB_TENSOR) return;
  out->dtype = lb_attr_dtype(from->elem);
  if (from->rank > LB_MAX_RANK) return;
  out->rank = (int)from->rank;
  for (int i = 0; i < out->rank; i++) {
    const lb_pb_dim *d = &from->dims[i];
    out->dims[i] = d->name.n || d->size < 0 ? -1 : d->size;
  }
}

static lb_status describe_outputs(lb_import *im) {
  lb_graph *g = im->graph;
  const lb_pb_graph *from = im->pb.graph;
  g->output_names = lb_arena_new(&g->arena, const char *, from->n_out);
  im->model->outputs = lb_arena_new(&g->arena, lb_declared, from->n_out);
  if (!g->output_names || !im->model->outputs) return lb_oom();
  for (uint32_t i = 0; i < from->n_out; i++) {
    g->output_names[i] = lb_pb_cstr(&g->arena, from->out[i].name);
    if (!g->output_names[i]) return lb_oom();
    declare_output(&from->out[i], &im->model->outputs[i]);
  }
  return LB_OK;
}

static lb_status describe_props(lb_import *im) {
  lb_model *m = im->model;
  lb_arena *a = &im->graph->arena;
  m->n_props = im->pb.n_props;
  m->props = lb_arena_new(a, lb_model_prop, m->n_props);
  if (!m->props) return lb_oom();
  for (uint32_t i = 0; i < m->n_props; i++) {
    m->props[i].key = lb_pb_cstr(a, im->pb.props[i].key);
    m->props[i].value = lb_pb_cstr(a, im->pb.props[i].value);
    if (!m->props[i].key || !m->props[i].value) return lb_oom();
  }
  return LB_OK;
}

static lb_status describe(lb_import *im) {
  lb_model *m = im->model;
  lb_arena *a = &im->graph->arena;
  const lb_pb_model *pb = &im->pb;
  m->ir_version = pb->ir_version;
  m->model_version = pb->model_version;
  m->opset = lb_pb_version(pb->opsets, pb->n_opsets, (lb_pb_str){0});
  m->producer_name = lb_pb_cstr(a, pb->producer_name);
  m->producer_version = lb_pb_cstr(a, pb->producer_version);
  m->domain = lb_pb_cstr(a, pb->domain);
  m->description = lb_pb_cstr(a, pb->description);
  m->graph_name = lb_pb_cstr(a, pb->graph->name);
  if (!m->producer_name || !m->producer_version || !m->domain ||
      !m->description || !m->graph_name)
    return lb_oom();
  LB_TRY(describe_props(im));
  return describe_outputs(im);
}

// -- the import --------------------------------------------------------------

static lb_status import_main(lb_import *im) {
  if (im->pb.graph->n_out == 0)
    return lb_error(LB_INVALID, "the graph has no outputs");
  lb_name_scope s = {.im = im, .region = im->graph->main, .prefix = ""};
  lb_status st = lb_import_graph(&s, im->pb.graph);
  lb_name_scope_fini(&s);
  return st;
}

static lb_status import_all(lb_import *im, lb_span bytes) {
  LB_TRY(lb_graph_new(&im->model->graph));
  im->graph = im->model->graph;
  LB_TRY(lb_pb_read(bytes, &im->scratch, &im->graph->arena, &im->pb));
  LB_TRY(check_ir(im));
  LB_TRY(check_operators(im));
  LB_TRY(import_main(im));
  return describe(im);
}

static void close_files(lb_model *m) {
  for (uint32_t i = 0; i < m->n_files; i++) lb_file_close(&m->files[i]);
  free(m->files);
  m->files = NULL;
  m->n_files = 0;
}

// `m` may already own the mapped model. External data is read from the
// directory of `path`.
static lb_status import_bytes(lb_span bytes, const char *path,
                              const lb_onnx_options *o, lb_model *m) {
  lb_import im = {.model = m,
                  .log = o ? o->log : NULL,
                  .copy_weights = o && o->copy_weights,
                  .path = path};
  lb_arena_init(&im.scratch, 256 << 10);
  lb_status st = import_all(&im, bytes);
  lb_map_fini(&im.files);
  lb_arena_fini(&im.scratch);
  if (lb_failed(st))
    lb_model_fini(m);
  else if (im.copy_weights)
    close_files(m);
  return st;
}

lb_status lb_onnx_load(const char *path, const lb_onnx_options *o,
                       lb_model *out) {
  *out = (lb_model){0};
  lb_file *f = calloc(1, sizeof *f);
  if (!f) return lb_oom();
  lb_status st = lb_file_map(path, f);
  if (lb_failed(st)) {
    free(f);
    return st;
  }
  lb_span bytes = f->bytes;
  out->files = f;
  out->n_files = 1;
  st = import_bytes(bytes, path, o, out);
  return lb_failed(st) ? lb_status_note(st, "%s", path) : st;
}

lb_status lb_onnx_parse(lb_span bytes, const char *directory,
                        const lb_onnx_options *o, lb_model *out) {
  *out = (lb_model){0};
  char *path = NULL;
  if (directory) {
    size_t n = strlen(directory);
    path = malloc(n + sizeof "/model");
    if (!path) return lb_oom();
    memcpy(path, directory, n);
    memcpy(path + n, "/model", sizeof "/model");
  }
  lb_status st = import_bytes(bytes, path, o, out);
  free(path);
  return st;
}

void lb_model_fini(lb_model *m) {
  lb_graph_free(m->graph);
  m->graph = NULL;
  close_files(m);
  *m = (lb_model){0};
}
