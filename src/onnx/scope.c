// onnx/scope.c -- resolves names to values, and creates captures.
#include <stdio.h>
#include <string.h>

#include "onnx/import.h"

void lb_name_scope_fini(lb_name_scope *s) {
  lb_map_fini(&s->names);
  lb_map_fini(&s->captured);
}

lb_status lb_name_scope_define(lb_name_scope *s, lb_pb_str name, lb_value *v) {
  return lb_map_put(&s->names, name.p, name.n, v, NULL);
}

// Creates a parameter for an outer value. control.c adds it to the region's
// parameters once all bodies of the node are imported.
static lb_status capture(lb_name_scope *s, lb_value *outer, lb_value **out) {
  lb_capture *c = lb_map_get(&s->captured, &outer->id, sizeof outer->id);
  if (!c) {
    c = lb_arena_new(&s->im->scratch, lb_capture, 1);
    if (!c) return lb_oom();
    c->outer = outer;
    LB_TRY(lb_value_new(s->im->graph, outer->name, &c->param));
    c->param->region = s->region;
    LB_TRY(lb_map_put(&s->captured, &outer->id, sizeof outer->id, c, NULL));
  }
  *out = c->param;
  return LB_OK;
}

// Recursion is bounded by the nesting of regions.
lb_status lb_name_scope_find(lb_name_scope *s, lb_pb_str name, lb_value **out,
                             bool *found) {
  *out = lb_map_get(&s->names, name.p, name.n);
  *found = *out || lb_map_has(&s->names, name.p, name.n);
  if (*found || !s->parent) return LB_OK;
  LB_TRY(lb_name_scope_find(s->parent, name, out, found));
  if (!*found) return LB_OK;
  if (*out && !lb_value_const(*out)) LB_TRY(capture(s, *out, out));
  return lb_name_scope_define(s, name, *out);
}

lb_status lb_name_scope_inputs(lb_name_scope *s, const lb_pb_node *n,
                               uint32_t spare, lb_value ***out) {
  lb_value **in =
      lb_arena_new(&s->im->scratch, lb_value *, (size_t)n->n_in + spare);
  if (!in) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++) {
    bool found;
    if (!n->refs[i].n) continue;
    LB_TRY(lb_name_scope_find(s, n->refs[i], &in[i], &found));
    if (!found)
      return lb_error(LB_INVALID,
                      LB_NODE_FMT " reads '%.*s', which nothing defines",
                      LB_NODE_ARGS(n), LB_STR(n->refs[i]));
  }
  *out = in;
  return LB_OK;
}

// Truncates names after a prefix, because a function may be called many times.
static lb_status join(const lb_name_scope *s, const char *prefix,
                      lb_pb_str name, const char **out) {
  size_t before = strlen(prefix);
  size_t n = before && name.n > 200 ? 200 : name.n;
  char *text = lb_arena_alloc(&s->im->scratch, before + n + 1, 1);
  if (!text) return lb_oom();
  memcpy(text, prefix, before);
  if (n) memcpy(text + before, name.p, n);
  text[before + n] = 0;
  *out = text;
  return LB_OK;
}

// The caller's name for a result of the call; NULL for other values.
static const char *result_label(const lb_name_scope *s, lb_pb_str name) {
  if (!s->call || s->parent) return NULL;
  return lb_map_get(&s->call->results, name.p, name.n);
}

lb_status lb_name_scope_label(const lb_name_scope *s, lb_pb_str name,
                              const char **out) {
  *out = result_label(s, name);
  return *out ? LB_OK : join(s, s->prefix, name, out);
}

lb_status lb_name_scope_node(const lb_name_scope *s, lb_pb_str name,
                             const char **out) {
  if (!s->call_site) return lb_name_scope_label(s, name, out);
  *out = s->call_site;
  if (!name.n || result_label(s, name)) return LB_OK;
  LB_TRY(join(s, s->call_site, (lb_pb_str){"/", 1}, out));
  return join(s, *out, name, out);
}
