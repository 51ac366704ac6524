// onnx/reader.c -- decodes model, graph, node and value messages to structs.
//
// Each message is read twice: once to count repeated fields, once to fill
// arrays of exactly that size. Skipping a nested message costs nothing, so the
// total time is linear in the size of the file.
#include "onnx/reader.h"

#include <stdio.h>
#include <string.h>

#define MAX_OPSETS 256  // bounded because lookups are linear
#define MAX_ATTRS 1024  // of one node or function

bool lb_pb_is(lb_pb_str s, const char *text) {
  return s.n == strlen(text) && (s.n == 0 || memcmp(s.p, text, s.n) == 0);
}

char *lb_pb_cstr(lb_arena *a, lb_pb_str s) {
  return lb_arena_strndup(a, s.n ? s.p : "", s.n);
}

int64_t lb_pb_version(const lb_pb_opset *sets, uint32_t n, lb_pb_str domain) {
  for (uint32_t i = 0; i < n; i++)
    if (lb_pb_same(sets[i].domain, domain)) return sets[i].version;
  return 0;
}

lb_status lb_read_str(const lb_wire *w, const lb_wire_field *f,
                      lb_pb_str *out) {
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
  *out = (lb_pb_str){(const char *)f->bytes.p, lb_wire_size(f->bytes)};
  if (out->n && memchr(out->p, 0, out->n))
    return lb_error(LB_INVALID,
                    "not a valid ONNX model: before byte %zu: a name contains "
                    "a zero byte",
                    (size_t)(w->p - w->start));
  return LB_OK;
}

lb_status lb_read_int(const lb_wire *w, const lb_wire_field *f, int64_t *out) {
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_VARINT));
  *out = (int64_t)f->n;
  return LB_OK;
}

static lb_status read_domain(const lb_wire *w, const lb_wire_field *f,
                             lb_pb_str *out) {
  LB_TRY(lb_read_str(w, f, out));
  if (lb_pb_is(*out, "ai.onnx")) out->n = 0;
  return LB_OK;
}

static lb_status read_opset(lb_wire w, lb_pb_opset *out) {
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1) st = read_domain(&w, &f, &out->domain);
    if (f.number == 2) st = lb_read_int(&w, &f, &out->version);
  }
  return st;
}

// Bounds the size of lists that are searched linearly.
static lb_status check_few(uint32_t n, uint32_t limit, const char *what) {
  if (n <= limit) return LB_OK;
  return lb_error(LB_INVALID, "%u %s; %u is the limit", n, what, limit);
}

static lb_status check_opsets(uint32_t n) {
  return check_few(n, MAX_OPSETS, "opset imports");
}

static lb_status check_attrs(uint32_t n) {
  return check_few(n, MAX_ATTRS, "attributes of one node or function");
}

// -- values ------------------------------------------------------------------

static lb_status read_dim(lb_wire w, lb_pb_dim *out) {
  out->size = -1;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1) {
      st = lb_read_int(&w, &f, &out->size);
      out->name.n = 0;
    } else if (f.number == 2) {
      st = lb_read_str(&w, &f, &out->name);
    }
  }
  return st;
}

static lb_status read_shape(lb_reader *r, lb_wire w, lb_pb_value *out) {
  uint32_t counts[2], i = 0;
  LB_TRY(lb_wire_count(w, counts, 2));
  out->rank = counts[1];
  out->dims = lb_arena_new(r->scratch, lb_pb_dim, counts[1]);
  if (!out->dims) return lb_oom();
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number != 1) continue;
    st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
    if (!lb_failed(st)) st = read_dim(f.bytes, &out->dims[i++]);
  }
  return st;
}

static lb_status read_tensor_type(lb_reader *r, lb_wire w, lb_pb_value *out) {
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1) {
      st = lb_read_int(&w, &f, &out->elem);
    } else if (f.number == 2) {
      st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
      if (!lb_failed(st)) st = read_shape(r, f.bytes, out);
    }
  }
  return st;
}

static lb_status read_type(lb_reader *r, lb_wire w, lb_pb_value *out) {
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    bool tensor = f.number == 1;
    if (!tensor && f.number != 4 && f.number != 5 && f.number != 7 &&
        f.number != 8 && f.number != 9)
      continue;
    out->type = tensor ? LB_PB_TENSOR : LB_PB_OTHER;
    st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
    if (!lb_failed(st) && tensor) st = read_tensor_type(r, f.bytes, out);
  }
  return st;
}

static lb_status read_value(lb_reader *r, lb_wire w, lb_pb_value *out) {
  out->rank = -1;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1) {
      st = lb_read_str(&w, &f, &out->name);
    } else if (f.number == 2) {
      st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
      if (!lb_failed(st)) st = read_type(r, f.bytes, out);
    }
  }
  return st;
}

static lb_status tensor_name(lb_wire w, lb_pb_str *out) {
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st))
    if (f.number == 8) st = lb_read_str(&w, &f, out);
  return st;
}

// The name of a sparse tensor is that of its values.
lb_status lb_read_tensor(lb_wire w, bool sparse, lb_pb_tensor *out) {
  *out = (lb_pb_tensor){.body = w, .sparse = sparse};
  if (!sparse) return tensor_name(w, &out->name);
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number != 1) continue;
    st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
    if (!lb_failed(st)) st = tensor_name(f.bytes, &out->name);
  }
  return st;
}

// -- nodes -------------------------------------------------------------------

static lb_status name_node(lb_reader *r, lb_pb_node *n, uint32_t index) {
  if (n->op_type.n == 0)
    return lb_error(LB_INVALID, "node %u ('%.*s') has no operator", index,
                    LB_STR(n->name));
  if (n->name.n) return LB_OK;
  char made[80];
  int len = snprintf(made, sizeof made, "%.*s_%u",
                     (int)(n->op_type.n < 60 ? n->op_type.n : 60), n->op_type.p,
                     index);
  n->name = (lb_pb_str){lb_arena_strdup(r->scratch, made), (size_t)len};
  return n->name.p ? LB_OK : lb_oom();
}

// Appends the outer names that subgraphs read to the node's inputs in refs.
static lb_status join_refs(lb_reader *r, lb_pb_node *n) {
  size_t total = n->n_in;
  for (uint32_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].graph) total += n->attrs[i].graph->n_outer;
  n->n_refs = n->n_in;
  if (total == n->n_in) return LB_OK;
  if (total > UINT32_MAX) return lb_oom();
  lb_pb_str *refs = lb_arena_new(r->scratch, lb_pb_str, total);
  if (!refs) return lb_oom();
  if (n->n_in) memcpy(refs, n->refs, n->n_in * sizeof *refs);
  n->refs = refs;
  for (uint32_t i = 0; i < n->n_attrs; i++) {
    const lb_pb_graph *g = n->attrs[i].graph;
    for (uint32_t k = 0; g && k < g->n_outer; k++)
      refs[n->n_refs++] = g->outer[k];
  }
  return LB_OK;
}

static lb_status read_node(lb_reader *r, lb_wire w, uint32_t index,
                           lb_pb_node *out) {
  uint32_t counts[6], in = 0, res = 0, attrs = 0;
  LB_TRY(lb_wire_count(w, counts, 6));
  LB_TRY(check_attrs(counts[5]));
  out->refs = lb_arena_new(r->scratch, lb_pb_str, counts[1]);
  out->out = lb_arena_new(r->scratch, lb_pb_str, counts[2]);
  out->attrs = lb_arena_new(r->scratch, lb_pb_attr, counts[5]);
  if (!out->refs || !out->out || !out->attrs) return lb_oom();
  out->n_in = counts[1];
  out->n_out = counts[2];
  out->n_attrs = counts[5];
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) switch (f.number) {
      case 1: st = lb_read_str(&w, &f, &out->refs[in++]); break;
      case 2: st = lb_read_str(&w, &f, &out->out[res++]); break;
      case 3: st = lb_read_str(&w, &f, &out->name); break;
      case 4: st = lb_read_str(&w, &f, &out->op_type); break;
      case 5:
        st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
        if (!lb_failed(st)) st = lb_read_attr(r, f.bytes, &out->attrs[attrs++]);
        break;
      case 7: st = read_domain(&w, &f, &out->domain); break;
      case 8: st = lb_read_str(&w, &f, &out->overload); break;
    }
  LB_TRY(st);
  LB_TRY(name_node(r, out, index));
  return join_refs(r, out);
}

static lb_status new_nodes(lb_reader *r, uint32_t n, lb_pb_nodes *out) {
  out->at = lb_arena_new(r->scratch, lb_pb_node, n);
  return out->at ? LB_OK : lb_oom();
}

static lb_status add_node(lb_reader *r, const lb_wire *w,
                          const lb_wire_field *f, lb_pb_nodes *nodes) {
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
  uint32_t index = nodes->n++;
  return read_node(r, f->bytes, index, &nodes->at[index]);
}

// -- graphs ------------------------------------------------------------------

static lb_status mark(lb_map *m, lb_pb_str name) {
  if (!name.n) return LB_OK;
  return lb_map_put(m, name.p, name.n, NULL, NULL);
}

static lb_status mark_defined(const lb_pb_graph *g, lb_map *m) {
  for (uint32_t i = 0; i < g->n_in; i++) LB_TRY(mark(m, g->in[i].name));
  for (uint32_t i = 0; i < g->n_inits; i++) LB_TRY(mark(m, g->inits[i].name));
  for (uint32_t i = 0; i < g->nodes.n; i++)
    for (uint32_t k = 0; k < g->nodes.at[i].n_out; k++)
      LB_TRY(mark(m, g->nodes.at[i].out[k]));
  return LB_OK;
}

static lb_status mark_read(const lb_pb_graph *g, const lb_map *defined,
                           lb_map *m) {
  for (uint32_t i = 0; i < g->nodes.n; i++)
    for (uint32_t k = 0; k < g->nodes.at[i].n_refs; k++) {
      lb_pb_str s = g->nodes.at[i].refs[k];
      if (!lb_map_has(defined, s.p, s.n)) LB_TRY(mark(m, s));
    }
  for (uint32_t i = 0; i < g->n_out; i++) {
    lb_pb_str s = g->out[i].name;
    if (!lb_map_has(defined, s.p, s.n)) LB_TRY(mark(m, s));
  }
  return LB_OK;
}

// Finds the outer names that a subgraph reads.
static lb_status find_outer(lb_reader *r, lb_pb_graph *g) {
  lb_map defined = {0}, outer = {0};
  lb_status st = mark_defined(g, &defined);
  if (!lb_failed(st)) st = mark_read(g, &defined, &outer);
  if (lb_failed(st)) goto done;
  g->n_outer = (uint32_t)outer.count;
  g->outer = lb_arena_new(r->scratch, lb_pb_str, outer.count);
  if (!g->outer) {
    st = lb_oom();
    goto done;
  }
  for (size_t i = 0; i < outer.count; i++)
    g->outer[i] = (lb_pb_str){outer.entries[i].key, outer.entries[i].key_size};

done:
  lb_map_fini(&defined);
  lb_map_fini(&outer);
  return st;
}

static lb_status alloc_graph(lb_reader *r, lb_wire w, lb_pb_graph *out) {
  uint32_t counts[16];
  LB_TRY(lb_wire_count(w, counts, 16));
  if (counts[5] > UINT32_MAX - counts[15]) return lb_oom();
  out->inits = lb_arena_new(r->scratch, lb_pb_tensor, counts[5] + counts[15]);
  out->in = lb_arena_new(r->scratch, lb_pb_value, counts[11]);
  out->out = lb_arena_new(r->scratch, lb_pb_value, counts[12]);
  if (!out->inits || !out->in || !out->out) return lb_oom();
  return new_nodes(r, counts[1], &out->nodes);
}

static lb_status graph_field(lb_reader *r, const lb_wire *w,
                             const lb_wire_field *f, lb_pb_graph *g) {
  if (f->number == 2) return lb_read_str(w, f, &g->name);
  if (f->number == 1) return add_node(r, w, f, &g->nodes);
  bool sparse = f->number == 15;
  if (f->number != 5 && !sparse && f->number != 11 && f->number != 12)
    return LB_OK;
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
  if (f->number == 11) return read_value(r, f->bytes, &g->in[g->n_in++]);
  if (f->number == 12) return read_value(r, f->bytes, &g->out[g->n_out++]);
  return lb_read_tensor(f->bytes, sparse, &g->inits[g->n_inits++]);
}

lb_status lb_read_graph(lb_reader *r, lb_wire w, lb_pb_graph *out) {
  *out = (lb_pb_graph){0};
  if (r->depth > LB_MAX_NESTING)
    return lb_error(LB_UNSUPPORTED, "subgraphs are nested deeper than %d",
                    LB_MAX_NESTING);
  LB_TRY(alloc_graph(r, w, out));
  r->depth++;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) st = graph_field(r, &w, &f, out);
  r->depth--;
  LB_TRY(st);
  return r->depth > 0 ? find_outer(r, out) : LB_OK;
}

// -- functions ---------------------------------------------------------------

static lb_status alloc_function(lb_reader *r, lb_wire w, lb_pb_function *out) {
  uint32_t counts[14];
  LB_TRY(lb_wire_count(w, counts, 14));
  LB_TRY(check_opsets(counts[9]));
  LB_TRY(check_attrs(counts[11]));
  out->in = lb_arena_new(r->scratch, lb_pb_str, counts[4]);
  out->out = lb_arena_new(r->scratch, lb_pb_str, counts[5]);
  out->opsets = lb_arena_new(r->scratch, lb_pb_opset, counts[9]);
  out->defaults = lb_arena_new(r->scratch, lb_pb_attr, counts[11]);
  if (!out->in || !out->out || !out->opsets || !out->defaults) return lb_oom();
  return new_nodes(r, counts[7], &out->nodes);
}

static lb_status function_field(lb_reader *r, const lb_wire *w,
                                const lb_wire_field *f, lb_pb_function *fn) {
  switch (f->number) {
    case 1: return lb_read_str(w, f, &fn->name);
    case 4: return lb_read_str(w, f, &fn->in[fn->n_in++]);
    case 5: return lb_read_str(w, f, &fn->out[fn->n_out++]);
    case 7: return add_node(r, w, f, &fn->nodes);
    case 9:
      LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
      return read_opset(f->bytes, &fn->opsets[fn->n_opsets++]);
    case 10: return read_domain(w, f, &fn->domain);
    case 11:
      LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
      return lb_read_attr(r, f->bytes, &fn->defaults[fn->n_defaults++]);
    case 13: return lb_read_str(w, f, &fn->overload);
    default: return LB_OK;
  }
}

static lb_status read_function(lb_reader *r, lb_wire w, lb_pb_function *out) {
  LB_TRY(alloc_function(r, w, out));
  lb_status st = LB_OK;
  lb_wire_field f;
  r->depth = 1;  // its names are outer names for its subgraphs
  while (lb_wire_next(&w, &f, &st)) st = function_field(r, &w, &f, out);
  r->depth = 0;
  return st;
}

// -- the model ---------------------------------------------------------------

static lb_status read_prop(lb_wire w, lb_pb_prop *out) {
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1) st = lb_read_str(&w, &f, &out->key);
    if (f.number == 2) st = lb_read_str(&w, &f, &out->value);
  }
  return st;
}

static lb_status model_message(lb_reader *r, const lb_wire_field *f,
                               lb_pb_model *m) {
  switch (f->number) {
    case 7:
      m->graph = lb_arena_new(r->scratch, lb_pb_graph, 1);
      if (!m->graph) return lb_oom();
      return lb_read_graph(r, f->bytes, m->graph);
    case 8: return read_opset(f->bytes, &m->opsets[m->n_opsets++]);
    case 14: return read_prop(f->bytes, &m->props[m->n_props++]);
    default: return read_function(r, f->bytes, &m->functions[m->n_functions++]);
  }
}

static lb_status model_field(lb_reader *r, const lb_wire *w,
                             const lb_wire_field *f, lb_pb_model *m) {
  switch (f->number) {
    case 1: return lb_read_int(w, f, &m->ir_version);
    case 2: return lb_read_str(w, f, &m->producer_name);
    case 3: return lb_read_str(w, f, &m->producer_version);
    case 4: return lb_read_str(w, f, &m->domain);
    case 5: return lb_read_int(w, f, &m->model_version);
    case 6: return lb_read_str(w, f, &m->description);
    case 7:
    case 8:
    case 14:
    case 25:
      LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
      return model_message(r, f, m);
    default: return LB_OK;
  }
}

lb_status lb_pb_read(lb_span file, lb_arena *scratch, lb_arena *persistent,
                     lb_pb_model *out) {
  *out = (lb_pb_model){0};
  if (file.size == 0)
    return lb_error(LB_INVALID, "the model is empty (0 bytes)");
  lb_reader r = {.scratch = scratch, .persistent = persistent};
  lb_wire w = lb_wire_open(file);
  uint32_t counts[26];
  LB_TRY(lb_wire_count(w, counts, 26));
  LB_TRY(check_opsets(counts[8]));
  out->opsets = lb_arena_new(scratch, lb_pb_opset, counts[8]);
  out->props = lb_arena_new(scratch, lb_pb_prop, counts[14]);
  out->functions = lb_arena_new(scratch, lb_pb_function, counts[25]);
  if (!out->opsets || !out->props || !out->functions) return lb_oom();
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) st = model_field(&r, &w, &f, out);
  LB_TRY(st);
  if (out->graph) return LB_OK;
  return lb_error(LB_INVALID, "the model has no graph: is it an ONNX file?");
}
