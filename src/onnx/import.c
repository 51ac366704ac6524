// onnx/import.c -- converts a graph message to a region: constants, parameters,
// nodes, results.
#include "onnx/import.h"

#include <inttypes.h>
#include <string.h>

// -- constants and parameters ------------------------------------------------

static lb_status add_constant(lb_name_scope *s, lb_pb_tensor *t) {
  if (!t->name.n) return lb_error(LB_INVALID, "an initializer has no name");
  if (lb_map_has(&s->names, t->name.p, t->name.n))
    return lb_error(LB_INVALID, "initializer '%.*s' is defined twice",
                    LB_STR(t->name));
  if (!t->value) {
    const lb_tensor *data;
    const char *label;
    LB_TRY(lb_import_tensor(s->im, t, &data));
    LB_TRY(lb_name_scope_label(s, t->name, &label));
    LB_TRY(lb_const_new(s->im->graph, label, data, &t->value));
  }
  return lb_name_scope_define(s, t->name, t->value);
}

static bool is_anonymous(lb_pb_str name) {
  return !name.n || lb_pb_is(name, "?") || lb_pb_is(name, "-1") ||
         lb_pb_is(name, "None");
}

static lb_status declare_dim(lb_import *im, const lb_pb_dim *d, lb_dim *out) {
  if (!is_anonymous(d->name)) {
    const char *name = lb_pb_cstr(&im->scratch, d->name);
    if (!name) return lb_oom();
    return lb_symtab_named(im->graph->syms, name, out);
  }
  if (d->name.n || d->size < 0) return lb_symtab_fresh(im->graph->syms, out);
  *out = lb_dim_const(d->size);
  return LB_OK;
}

static lb_status declare_input(lb_import *im, const lb_pb_value *from,
                               lb_value *v) {
  if (from->type == LB_PB_OTHER)
    return lb_error(LB_UNSUPPORTED,
                    "input '%.*s' is a sequence, map, optional or sparse "
                    "tensor; Limber takes dense tensors only",
                    LB_STR(from->name));
  if (from->type == LB_PB_UNTYPED || from->elem == 0)
    return lb_error(LB_INVALID, "input '%.*s' has no element type",
                    LB_STR(from->name));
  v->info.dtype = lb_attr_dtype(from->elem);
  if (v->info.dtype == LB_NONE)
    return lb_error(LB_UNSUPPORTED,
                    "input '%.*s' has elements of type %s (%" PRId64
                    "), which Limber does not have",
                    LB_STR(from->name), lb_pb_type_name(from->elem),
                    from->elem);
  if (from->rank > LB_MAX_RANK)
    return lb_error(LB_UNSUPPORTED,
                    "input '%.*s' has %" PRId64 " dims; %d is the limit",
                    LB_STR(from->name), from->rank, LB_MAX_RANK);
  v->info.rank = (int)from->rank;
  for (int i = 0; i < v->info.rank; i++)
    LB_TRY(declare_dim(im, &from->dims[i], &v->info.dims[i]));
  return LB_OK;
}

// The type of a body's parameter follows from the value that it receives, so
// only the model's inputs keep their declared types.
static lb_status add_param(lb_name_scope *s, const lb_pb_value *from) {
  if (!from->name.n) return lb_error(LB_INVALID, "an input has no name");
  lb_value *v = lb_map_get(&s->names, from->name.p, from->name.n);
  if (lb_value_const(v)) return LB_OK;  // an initializer's declaration
  if (v)
    return lb_error(LB_INVALID, "input '%.*s' is declared twice",
                    LB_STR(from->name));
  const char *label;
  LB_TRY(lb_name_scope_label(s, from->name, &label));
  LB_TRY(lb_value_new(s->im->graph, label, &v));
  if (s->depth == 0) LB_TRY(declare_input(s->im, from, v));
  LB_TRY(lb_region_add_param(s->region, v));
  return lb_name_scope_define(s, from->name, v);
}

// -- nodes -------------------------------------------------------------------

static lb_status define_output(lb_draft *d, lb_node *node, uint32_t i) {
  lb_name_scope *s = d->scope;
  lb_pb_str name = d->out[i];
  if (!name.n) return LB_OK;
  const lb_value *old = lb_map_get(&s->names, name.p, name.n);
  if (old || lb_map_has(&s->names, name.p, name.n))
    return lb_error(LB_INVALID,
                    LB_NODE_FMT " defines '%.*s', which is also an %s",
                    LB_NODE_ARGS(d->src), LB_STR(name),
                    lb_value_const(old) ? "initializer" : "input");
  const char *label;
  lb_value *v;
  LB_TRY(lb_name_scope_label(s, name, &label));
  LB_TRY(lb_value_new(s->im->graph, label, &v));
  lb_node_set_out(node, i, v);
  return lb_name_scope_define(s, name, v);
}

lb_status lb_draft_add_node(lb_draft *d, uint32_t n_captures, lb_node **out) {
  lb_graph *g = d->scope->im->graph;
  if (n_captures > UINT32_MAX - d->n_in) return lb_oom();
  LB_TRY(lb_node_new(d->scope->region, d->op, d->name, d->n_in + n_captures,
                     d->n_out, out));
  for (uint32_t i = 0; i < d->n_in; i++) (*out)->in[i] = d->in[i];
  for (uint32_t i = 0; i < d->n_attrs; i++)
    LB_TRY(lb_node_add_attr(g, *out, d->attrs[i]));
  for (uint32_t i = 0; i < d->n_out; i++) LB_TRY(define_output(d, *out, i));
  return LB_OK;
}

static lb_status draft_attrs(lb_draft *d) {
  const lb_pb_attr *from;
  uint32_t n;
  LB_TRY(lb_call_attrs(d->scope, d->src, &from, &n));
  lb_import *im = d->scope->im;
  d->attrs = lb_arena_new(&im->scratch, lb_attr, (size_t)n + LB_DRAFT_SPARE);
  if (!d->attrs) return lb_oom();
  for (uint32_t i = 0; i < n; i++) {
    lb_attr a = from[i].attr;
    if (from[i].tensor && !from[i].tensor->sparse) {
      lb_status st = lb_import_tensor(im, from[i].tensor, &a.tensor);
      if (lb_failed(st))
        return lb_status_note(st, LB_NODE_FMT, LB_NODE_ARGS(d->src));
    } else if (!from[i].plain) {
      continue;
    }
    d->attrs[d->n_attrs++] = a;
  }
  return LB_OK;
}

// Removes trailing inputs and outputs without a name; outputs of a variadic
// operator are kept, because their number matters.
static void trim(lb_draft *d) {
  while (d->n_in && !d->in[d->n_in - 1]) d->n_in--;
  if (lb_op_infos[d->op].max_out < 0) return;
  while (d->n_out && !d->out[d->n_out - 1].n) d->n_out--;
}

static bool has_outputs(const lb_draft *d) {
  for (uint32_t i = 0; i < d->n_out; i++)
    if (d->out[i].n) return true;
  return false;
}

static lb_status draft(lb_name_scope *s, const lb_pb_node *n, lb_draft *d) {
  *d = (lb_draft){.scope = s,
                  .src = n,
                  .op = (lb_op)n->op,
                  .version = n->version,
                  .n_in = n->n_in,
                  .n_out = n->n_out};
  LB_TRY(lb_name_scope_inputs(s, n, LB_DRAFT_SPARE, &d->in));
  d->out = lb_arena_memdup(&s->im->scratch, n->out,
                           lb_mul_sat(n->n_out, sizeof *n->out),
                           _Alignof(lb_pb_str));
  if (!d->out) return lb_oom();
  LB_TRY(lb_name_scope_node(s, n->name, &d->name));
  trim(d);
  return draft_attrs(d);
}

static lb_status wrong_count(const lb_draft *d, const char *what, uint32_t has,
                             const char *limit, int n) {
  return lb_error(LB_INVALID, LB_NODE_FMT " has %u %s%s, but %s %d",
                  LB_NODE_ARGS(d->src), has, what, has == 1 ? "" : "s", limit,
                  n);
}

static lb_status check_arity(lb_draft *d) {
  const lb_op_info *info = &lb_op_infos[d->op];
  while (d->op == LB_OP_Loop && d->n_in < 2) d->in[d->n_in++] = NULL;
  if (d->n_in < (uint32_t)info->min_in)
    return wrong_count(d, "input", d->n_in, "needs", info->min_in);
  // The captures of an If's branches are not among its inputs yet.
  int max_in = d->op == LB_OP_If ? 1 : info->max_in;
  if (max_in >= 0 && d->n_in > (uint32_t)max_in)
    return wrong_count(d, "input", d->n_in, "takes at most", max_in);
  if (info->max_out >= 0 && d->n_out > (uint32_t)info->max_out)
    return wrong_count(d, "output", d->n_out, "may have at most",
                       info->max_out);
  uint32_t first = d->op == LB_OP_Loop ? 2 : 0;
  uint32_t last = info->max_in < 0 ? d->n_in : (uint32_t)info->min_in;
  for (uint32_t i = first; i < last; i++)
    if (!d->in[i])
      return lb_error(LB_INVALID, LB_NODE_FMT " has no input %u",
                      LB_NODE_ARGS(d->src), i);
  return LB_OK;
}

static lb_status constant_value(lb_import *im, const lb_pb_node *n,
                                const lb_pb_attr *a, const char *label,
                                lb_value **out) {
  lb_graph *g = im->graph;
  lb_tensor list = {.rank = 1, .dims = {a->attr.n}, .strides = {1}};
  if (a->tensor) {
    const lb_tensor *t;
    lb_status st = lb_import_tensor(im, a->tensor, &t);
    if (lb_failed(st)) return lb_status_note(st, LB_NODE_FMT, LB_NODE_ARGS(n));
    return lb_const_new(g, label, t, out);
  }
  if (lb_pb_is(a->name, "value_int") && a->attr.kind == LB_ATTR_INT)
    return lb_const_i64(g, label, a->attr.i, out);
  if (lb_pb_is(a->name, "value_float") && a->attr.kind == LB_ATTR_FLOAT)
    return lb_const_f32(g, label, a->attr.f, out);
  if (lb_pb_is(a->name, "value_ints") && a->attr.kind == LB_ATTR_INTS) {
    list.dtype = LB_I64;
    list.data = (void *)a->attr.ints;
    return lb_const_new(g, label, &list, out);
  }
  if (lb_pb_is(a->name, "value_floats") && a->attr.kind == LB_ATTR_FLOATS) {
    list.dtype = LB_F32;
    list.data = (void *)a->attr.floats;
    return lb_const_new(g, label, &list, out);
  }
  return lb_error(LB_UNSUPPORTED,
                  LB_NODE_FMT " has no numeric value: its attribute is '%.*s'",
                  LB_NODE_ARGS(n), LB_STR(a->name));
}

// Inlined copies of a function's body share one value, unless it depends on an
// attribute of the call.
static lb_status import_constant(lb_name_scope *s, lb_pb_node *n) {
  if (n->n_out != 1 || !n->out[0].n) return LB_OK;  // it cannot be read
  bool fixed = true;
  for (uint32_t i = 0; i < n->n_attrs; i++) fixed &= n->attrs[i].ref.n == 0;
  lb_value *v = fixed ? n->value : NULL;
  if (!v) {
    const lb_pb_attr *attrs;
    uint32_t count;
    const char *label;
    LB_TRY(lb_call_attrs(s, n, &attrs, &count));
    if (count != 1)
      return lb_error(LB_INVALID, LB_NODE_FMT " has %u attributes, not 1",
                      LB_NODE_ARGS(n), count);
    LB_TRY(lb_name_scope_label(s, n->out[0], &label));
    LB_TRY(constant_value(s->im, n, attrs, label, &v));
  }
  if (fixed) n->value = v;
  if (lb_map_has(&s->names, n->out[0].p, n->out[0].n))
    return lb_error(LB_INVALID,
                    LB_NODE_FMT
                    " defines '%.*s', which is also an input or "
                    "initializer",
                    LB_NODE_ARGS(n), LB_STR(n->out[0]));
  return lb_name_scope_define(s, n->out[0], v);
}

static lb_status import_node(lb_name_scope *s, lb_pb_node *n) {
  LB_TRY(lb_call_charge(
      s, (uint64_t)1 + n->n_refs + n->n_out + (uint64_t)n->n_attrs));
  if (n->fn) return lb_import_call(s, n);
  if (n->op == LB_PB_CONSTANT) return import_constant(s, n);
  lb_draft d;
  LB_TRY(draft(s, n, &d));
  LB_TRY(lb_upgrade(&d));
  trim(&d);
  LB_TRY(check_arity(&d));
  if (!has_outputs(&d)) return LB_OK;  // it cannot be read
  if (d.op == LB_OP_If || d.op == LB_OP_Loop || d.op == LB_OP_Scan)
    return lb_import_control(&d);
  lb_node *node;
  return lb_draft_add_node(&d, 0, &node);
}

lb_status lb_import_nodes(lb_name_scope *s, lb_pb_nodes *nodes) {
  LB_TRY(lb_pb_sort(nodes, &s->im->scratch));
  for (uint32_t i = 0; i < nodes->n; i++) LB_TRY(import_node(s, &nodes->at[i]));
  return LB_OK;
}

static lb_status add_result(lb_name_scope *s, lb_pb_str name) {
  lb_value *v = NULL;
  bool found = false;
  if (name.n) LB_TRY(lb_name_scope_find(s, name, &v, &found));
  if (!found || !v)
    return lb_error(LB_INVALID, "output '%.*s' is not defined", LB_STR(name));
  return lb_region_add_result(s->region, v);
}

lb_status lb_import_graph(lb_name_scope *s, lb_pb_graph *g) {
  LB_TRY(lb_call_charge(
      s, (uint64_t)1 + g->n_inits + g->n_in + (uint64_t)g->n_out));
  for (uint32_t i = 0; i < g->n_inits; i++)
    LB_TRY(add_constant(s, &g->inits[i]));
  for (uint32_t i = 0; i < g->n_in; i++) LB_TRY(add_param(s, &g->in[i]));
  LB_TRY(lb_import_nodes(s, &g->nodes));
  for (uint32_t i = 0; i < g->n_out; i++) LB_TRY(add_result(s, g->out[i].name));
  return LB_OK;
}
