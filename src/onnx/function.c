// onnx/function.c -- inlines calls of the model's functions.
//
// A body gets a scope of its own, but its nodes are added to the caller's
// region. Its input names denote the caller's values, so that the call itself
// needs no node.
//
// (1) A function must not call itself, directly or indirectly.
// (2) The total size of inlined bodies is limited, because the expansion can be
//     exponential in the number of functions.
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "onnx/import.h"

#define MAX_EXPANSION (1u << 20)  // nodes, their inputs, outputs, attributes

lb_status lb_call_charge(const lb_name_scope *s, uint64_t size) {
  if (!s->call) return LB_OK;
  s->im->inlined += size;
  if (s->im->inlined <= MAX_EXPANSION) return LB_OK;
  s->im->global_error = true;
  return lb_error(LB_UNSUPPORTED,
                  "the model's functions call each other so often that their "
                  "inlined bodies would have more than %u nodes and names",
                  MAX_EXPANSION);
}

// -- attributes --------------------------------------------------------------

static const lb_pb_attr *find_attr(const lb_pb_attr *list, uint32_t n,
                                   lb_pb_str name) {
  for (uint32_t i = 0; i < n; i++)
    if (lb_pb_same(list[i].name, name)) return &list[i];
  return NULL;
}

static const lb_pb_attr *resolve_ref(const lb_call *call, lb_pb_str name) {
  const lb_pb_attr *a = find_attr(call->attrs, call->n_attrs, name);
  if (a) return a;
  return find_attr(call->fn->defaults, call->fn->n_defaults, name);
}

// Resolves an attribute reference. Graphs are refused, because their names
// belong to the scope of the caller.
static lb_status resolve_attr(const lb_name_scope *s, const lb_pb_node *n,
                              const lb_pb_attr *a, lb_pb_attr *out,
                              bool *keep) {
  const lb_pb_attr *from = resolve_ref(s->call, a->ref);
  *keep = from != NULL;
  if (!from) return LB_OK;
  if (from->graph)
    return lb_error(LB_UNSUPPORTED,
                    LB_NODE_FMT
                    ": attribute '%.*s' is a graph passed to a function, "
                    "which is not supported",
                    LB_NODE_ARGS(n), LB_STR(a->name));
  *out = *from;
  out->name = a->name;
  out->attr.name = a->attr.name;
  return LB_OK;
}

lb_status lb_call_attrs(const lb_name_scope *s, const lb_pb_node *n,
                        const lb_pb_attr **out, uint32_t *count) {
  *out = n->attrs;
  *count = n->n_attrs;
  bool refers = false;
  for (uint32_t i = 0; i < n->n_attrs; i++) refers |= n->attrs[i].ref.n > 0;
  if (!refers) return LB_OK;
  if (!s->call)
    return lb_error(LB_INVALID,
                    LB_NODE_FMT
                    " refers to an attribute of a function, but is "
                    "not in a function",
                    LB_NODE_ARGS(n));
  lb_pb_attr *list = lb_arena_new(&s->im->scratch, lb_pb_attr, n->n_attrs);
  if (!list) return lb_oom();
  *out = list;
  *count = 0;
  for (uint32_t i = 0; i < n->n_attrs; i++) {
    bool keep = true;
    list[*count] = n->attrs[i];
    if (n->attrs[i].ref.n)
      LB_TRY(resolve_attr(s, n, &n->attrs[i], &list[*count], &keep));
    *count += keep;
  }
  return LB_OK;
}

// -- calls -------------------------------------------------------------------

// "a.f, a.g, a.f", outermost first.
static void print_calls(const lb_call *c, const lb_pb_function *end,
                        lb_strbuf *out) {
  const lb_pb_function *chain[LB_MAX_CALLS + 1];
  int n = 0;
  for (; c && n < LB_MAX_CALLS; c = c->caller) {
    chain[n++] = c->fn;
    if (c->fn == end) break;
  }
  while (n-- > 0)
    lb_strbuf_printf(out, "%.*s%s%.*s, ", LB_STR(chain[n]->domain),
                     chain[n]->domain.n ? "." : "", LB_STR(chain[n]->name));
  lb_strbuf_printf(out, "%.*s%s%.*s", LB_STR(end->domain),
                   end->domain.n ? "." : "", LB_STR(end->name));
}

static lb_status check_recursion(const lb_name_scope *s, const lb_pb_node *n) {
  const lb_call *c = s->call;
  bool deep = c && c->depth >= LB_MAX_CALLS;
  while (c && c->fn != n->fn) c = c->caller;
  if (!c && !deep) return LB_OK;
  s->im->global_error = true;
  if (!c)
    return lb_error(LB_UNSUPPORTED, "functions are nested deeper than %d calls",
                    LB_MAX_CALLS);
  lb_strbuf text = {0};
  print_calls(s->call, n->fn, &text);
  lb_status st = lb_error(LB_INVALID, "function %.*s%s%.*s calls itself: %s",
                          LB_STR(n->fn->domain), n->fn->domain.n ? "." : "",
                          LB_STR(n->fn->name), lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return st;
}

static lb_status check_call(const lb_name_scope *s, const lb_pb_node *n) {
  LB_TRY(check_recursion(s, n));
  if (n->n_in > n->fn->n_in)
    return lb_error(LB_INVALID,
                    LB_NODE_FMT " has %u inputs, but the function takes %u",
                    LB_NODE_ARGS(n), n->n_in, n->fn->n_in);
  if (n->n_out > n->fn->n_out)
    return lb_error(LB_INVALID,
                    LB_NODE_FMT " has %u outputs, but the function gives %u",
                    LB_NODE_ARGS(n), n->n_out, n->fn->n_out);
  return LB_OK;
}

// Defines the inputs, including absent ones, under the function's names.
static lb_status bind_inputs(lb_name_scope *caller, const lb_pb_node *n,
                             lb_name_scope *body) {
  lb_value **in;
  LB_TRY(lb_name_scope_inputs(caller, n, 0, &in));
  for (uint32_t i = 0; i < n->fn->n_in; i++) {
    lb_pb_str name = n->fn->in[i];
    if (lb_map_has(&body->names, name.p, name.n))
      return lb_error(LB_INVALID, "function '%.*s' has two inputs '%.*s'",
                      LB_STR(n->fn->name), LB_STR(name));
    LB_TRY(lb_name_scope_define(body, name, i < n->n_in ? in[i] : NULL));
  }
  return LB_OK;
}

// Results get the names that the caller gives them.
static lb_status name_results(const lb_name_scope *caller, const lb_pb_node *n,
                              lb_call *call) {
  for (uint32_t i = 0; i < n->n_out; i++) {
    const char *label;
    if (!n->out[i].n) continue;
    LB_TRY(lb_name_scope_label(caller, n->out[i], &label));
    LB_TRY(lb_map_put(&call->results, n->fn->out[i].p, n->fn->out[i].n,
                      (void *)label, NULL));
  }
  return LB_OK;
}

static lb_status bind_outputs(lb_name_scope *caller, const lb_pb_node *n,
                              lb_name_scope *body) {
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!n->out[i].n) continue;
    lb_pb_str name = n->fn->out[i];
    lb_value *v = lb_map_get(&body->names, name.p, name.n);
    if (!v)
      return lb_error(LB_INVALID, "output '%.*s' is not defined", LB_STR(name));
    if (lb_map_has(&caller->names, n->out[i].p, n->out[i].n))
      return lb_error(LB_INVALID,
                      LB_NODE_FMT
                      " defines '%.*s', which is also an input or "
                      "initializer",
                      LB_NODE_ARGS(n), LB_STR(n->out[i]));
    LB_TRY(lb_name_scope_define(caller, n->out[i], v));
  }
  return LB_OK;
}

static lb_status new_prefix(lb_import *im, const lb_pb_function *fn,
                            const char **out) {
  char text[96];
  snprintf(text, sizeof text, "%.*s_%u/",
           (int)(fn->name.n < 64 ? fn->name.n : 64),
           fn->name.n ? fn->name.p : "", ++im->n_calls);
  *out = lb_arena_strdup(&im->scratch, text);
  return *out ? LB_OK : lb_oom();
}

// The name is truncated, because all inner nodes repeat it.
static lb_status name_call(const lb_name_scope *s, const lb_pb_node *n,
                           const char **out) {
  *out = s->call_site;
  if (*out) return LB_OK;
  *out = lb_arena_strndup(&s->im->scratch, n->name.p,
                          n->name.n < 200 ? n->name.n : 200);
  return *out ? LB_OK : lb_oom();
}

static lb_status inline_body(lb_name_scope *s, lb_pb_node *n,
                             lb_name_scope *body, lb_call *call) {
  LB_TRY(new_prefix(s->im, n->fn, &body->prefix));
  LB_TRY(name_call(s, n, &body->call_site));
  LB_TRY(lb_call_attrs(s, n, &call->attrs, &call->n_attrs));
  LB_TRY(bind_inputs(s, n, body));
  LB_TRY(name_results(s, n, call));
  lb_status st = lb_import_nodes(body, &n->fn->nodes);
  if (!lb_failed(st)) st = bind_outputs(s, n, body);
  if (!lb_failed(st) || s->im->global_error) return st;
  return lb_status_note(st, "in function '%.*s'", LB_STR(n->fn->name));
}

lb_status lb_import_call(lb_name_scope *s, lb_pb_node *n) {
  LB_TRY(check_call(s, n));
  lb_call call = {.fn = n->fn,
                  .depth = s->call ? s->call->depth + 1 : 1,
                  .caller = s->call};
  lb_name_scope body = {
      .im = s->im, .region = s->region, .depth = s->depth, .call = &call};
  lb_status st = inline_body(s, n, &body, &call);
  lb_map_fini(&call.results);
  lb_name_scope_fini(&body);
  return st;
}
