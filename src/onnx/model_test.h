// onnx/model_test.h -- for tests: a protobuf writer, and a graph as one line.
//
// A message is built by value; adding it to another one frees it.
#ifndef LB_ONNX_MODEL_TEST_H
#define LB_ONNX_MODEL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "onnx/onnx.h"

enum { T_FLOAT = 1, T_INT32 = 6, T_INT64 = 7, T_STRING = 8, T_BOOL = 9 };

typedef struct pb {
  lb_strbuf b;
} pb;

// -- fields ------------------------------------------------------------------

static inline void pb_varint(pb *m, uint64_t v) {
  for (; v >= 0x80; v >>= 7) lb_strbuf_putc(&m->b, (char)(0x80 | (v & 0x7f)));
  lb_strbuf_putc(&m->b, (char)v);
}

static inline void pb_int(pb *m, unsigned field, int64_t v) {
  pb_varint(m, field << 3);
  pb_varint(m, (uint64_t)v);
}

static inline void pb_raw(pb *m, unsigned field, const void *p, size_t n) {
  pb_varint(m, field << 3 | 2);
  pb_varint(m, n);
  if (n) lb_strbuf_putn(&m->b, p, n);
}

static inline void pb_str(pb *m, unsigned field, const char *s) {
  pb_raw(m, field, s, strlen(s));
}

static inline void pb_float(pb *m, unsigned field, float v) {
  pb_varint(m, field << 3 | 5);
  lb_strbuf_putn(&m->b, (const char *)&v, 4);
}

static inline void pb_msg(pb *m, unsigned field, pb child) {
  pb_raw(m, field, child.b.data, child.b.len);
  lb_strbuf_fini(&child.b);
}

// One string field per item of "a,b,,c"; "" is none, "-" an empty one.
static inline void pb_list(pb *m, unsigned field, const char *items) {
  char *copy = strdup(items), *rest = copy, *item;
  while (*items && (item = strsep(&rest, ",")) != NULL)
    pb_str(m, field, strcmp(item, "-") ? item : "");
  free(copy);
}

// -- messages ----------------------------------------------------------------

static inline pb pb_node(const char *op, const char *name, const char *in,
                         const char *out) {
  pb n = {0};
  pb_list(&n, 1, in);
  pb_list(&n, 2, out);
  if (name) pb_str(&n, 3, name);
  pb_str(&n, 4, op);
  return n;
}

static inline pb pb_attr(const char *name, int type) {
  pb a = {0};
  pb_str(&a, 1, name);
  pb_int(&a, 20, type);
  return a;
}

static inline void pb_attr_int(pb *node, const char *name, int64_t v) {
  pb a = pb_attr(name, 2);
  pb_int(&a, 3, v);
  pb_msg(node, 5, a);
}

static inline void pb_attr_float(pb *node, const char *name, float v) {
  pb a = pb_attr(name, 1);
  pb_float(&a, 2, v);
  pb_msg(node, 5, a);
}

static inline void pb_attr_str(pb *node, const char *name, const char *v) {
  pb a = pb_attr(name, 3);
  pb_str(&a, 4, v);
  pb_msg(node, 5, a);
}

static inline void pb_attr_ints(pb *node, const char *name, int n,
                                const int64_t *v) {
  pb a = pb_attr(name, 7);
  for (int i = 0; i < n; i++) pb_int(&a, 8, v[i]);
  pb_msg(node, 5, a);
}

static inline void pb_attr_floats(pb *node, const char *name, int n,
                                  const float *v) {
  pb a = pb_attr(name, 6);
  for (int i = 0; i < n; i++) pb_float(&a, 7, v[i]);
  pb_msg(node, 5, a);
}

static inline void pb_attr_msg(pb *node, const char *name, int type,
                               unsigned field, pb payload) {
  pb a = pb_attr(name, type);
  pb_msg(&a, field, payload);
  pb_msg(node, 5, a);
}

static inline void pb_attr_graph(pb *node, const char *name, pb graph) {
  pb_attr_msg(node, name, 5, 6, graph);
}

static inline void pb_attr_ref(pb *node, const char *name, int type,
                               const char *ref) {
  pb a = pb_attr(name, type);
  pb_str(&a, 21, ref);
  pb_msg(node, 5, a);
}

// dims: "2,batch,-3"; NULL is no shape, "" rank 0.
static inline pb pb_value(const char *name, int elem, const char *dims) {
  pb v = {0}, type = {0}, tensor = {0}, shape = {0};
  char *copy = strdup(dims ? dims : ""), *rest = copy, *item;
  while (dims && *dims && (item = strsep(&rest, ",")) != NULL) {
    pb dim = {0};
    char *end;
    long size = strtol(item, &end, 10);
    if (*item && !*end)
      pb_int(&dim, 1, size);
    else
      pb_str(&dim, 2, *item == '\'' ? item + 1 : item);
    pb_msg(&shape, 1, dim);
  }
  free(copy);
  pb_int(&tensor, 1, elem);
  if (dims) pb_msg(&tensor, 2, shape);
  pb_msg(&type, 1, tensor);
  pb_str(&v, 1, name);
  pb_msg(&v, 2, type);
  return v;
}

static inline pb pb_tensor(const char *name, int type, int rank,
                           const int64_t *dims) {
  pb t = {0};
  for (int i = 0; i < rank; i++) pb_int(&t, 1, dims[i]);
  pb_int(&t, 2, type);
  if (name) pb_str(&t, 8, name);
  return t;
}

static inline pb pb_floats(const char *name, int64_t n, const float *v) {
  pb t = pb_tensor(name, T_FLOAT, 1, &n);
  pb_raw(&t, 9, v, (size_t)n * 4);
  return t;
}

static inline pb pb_int64s(const char *name, int64_t n, const int64_t *v) {
  pb t = pb_tensor(name, T_INT64, 1, &n);
  pb_raw(&t, 9, v, (size_t)n * 8);
  return t;
}

static inline pb pb_opset(const char *domain, int64_t version) {
  pb o = {0};
  pb_str(&o, 1, domain);
  pb_int(&o, 2, version);
  return o;
}

static inline pb pb_model(pb graph, int64_t opset) {
  pb m = {0};
  pb_int(&m, 1, 8);
  pb_msg(&m, 7, graph);
  pb_msg(&m, 8, pb_opset("", opset));
  return m;
}

// A graph of inputs x (and y), one node, and its outputs.
static inline pb pb_graph(const char *in, pb node, const char *out) {
  pb g = {0};
  if (node.b.len) pb_msg(&g, 1, node);
  char *copy = strdup(in), *rest = copy, *item;
  while (*in && (item = strsep(&rest, ",")) != NULL)
    pb_msg(&g, 11, pb_value(item, T_FLOAT, "2,3"));
  free(copy);
  copy = rest = strdup(out);
  while (*out && (item = strsep(&rest, ",")) != NULL)
    pb_msg(&g, 12, pb_value(item, T_FLOAT, NULL));
  free(copy);
  return g;
}

// -- a graph as one line -----------------------------------------------------

static inline void sketch_const(lb_strbuf *b, const lb_tensor *t) {
  int64_t n = lb_tensor_count(t);
  if (t->rank) lb_strbuf_puts(b, "[");
  for (int64_t i = 0; i < n; i++) {
    const char *at =
        (const char *)t->data + (size_t)i * lb_dtype_size(t->dtype);
    int64_t k = 0;
    float f = 0;
    if (t->dtype == LB_F32)
      memcpy(&f, at, 4);
    else
      memcpy(&k, at, lb_dtype_size(t->dtype));
    if (i) lb_strbuf_puts(b, ",");
    if (t->dtype == LB_F32)
      lb_strbuf_printf(b, "%g", (double)f);
    else
      lb_strbuf_printf(b, "%lld", (long long)k);
  }
  if (t->rank) lb_strbuf_puts(b, "]");
}

static inline void sketch_values(lb_strbuf *b, lb_value **v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) lb_strbuf_puts(b, ",");
    if (!v[i])
      lb_strbuf_puts(b, "_");
    else if (v[i]->info.data)
      sketch_const(b, v[i]->info.data);
    else
      lb_strbuf_puts(b, v[i]->name);
  }
}

static inline void sketch_attrs(lb_strbuf *b, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_attrs; i++) {
    const lb_attr *a = &n->attrs[i];
    lb_strbuf_printf(b, " %s=", a->name);
    if (a->kind == LB_ATTR_INT) lb_strbuf_printf(b, "%lld", (long long)a->i);
    if (a->kind == LB_ATTR_FLOAT) lb_strbuf_printf(b, "%g", (double)a->f);
    if (a->kind == LB_ATTR_STRING) lb_strbuf_puts(b, a->s);
    if (a->kind == LB_ATTR_TENSOR) sketch_const(b, a->tensor);
    for (uint32_t k = 0; a->kind == LB_ATTR_INTS && k < a->n; k++)
      lb_strbuf_printf(b, "%s%lld", k ? "," : "", (long long)a->ints[k]);
    for (uint32_t k = 0; a->kind == LB_ATTR_STRINGS && k < a->n; k++)
      lb_strbuf_printf(b, "%s%s", k ? "," : "", a->strings[k]);
  }
}

// "z=Add(x,[1,2]) axis=1; ", bodies as "{params: nodes -> results} ".
static inline void sketch(lb_strbuf *b, const lb_region *r) {
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    if (i) lb_strbuf_puts(b, "; ");
    sketch_values(b, n->out, n->n_out);
    lb_strbuf_printf(b, "=%s(", lb_op_infos[n->op].name);
    sketch_values(b, n->in, n->n_in);
    lb_strbuf_puts(b, ")");
    sketch_attrs(b, n);
    for (uint32_t k = 0; k < n->n_regions; k++) {
      lb_strbuf_puts(b, " {");
      sketch_values(b, n->regions[k]->params, n->regions[k]->n_params);
      lb_strbuf_puts(b, ": ");
      sketch(b, n->regions[k]);
      lb_strbuf_puts(b, " -> ");
      sketch_values(b, n->regions[k]->results, n->regions[k]->n_results);
      lb_strbuf_puts(b, "}");
    }
  }
}

// -- expectations ------------------------------------------------------------

static inline lb_span span_of(const pb *m) {
  return (lb_span){(const uint8_t *)m->b.data, m->b.len};
}

static inline void expect_message(lb_status st, lb_code code,
                                  const char *text) {
  assert_string_equal(lb_status_message(st), text);
  assert_int_equal(lb_status_code(st), code);
  lb_status_drop(st);
}

static inline void expect_error(pb model, lb_code code, const char *text) {
  lb_model m;
  expect_message(lb_onnx_parse(span_of(&model), NULL, NULL, &m), code, text);
  assert_null(m.graph);
  lb_strbuf_fini(&model.b);
}

static inline void expect_success(lb_status st) {
  assert_string_equal(lb_status_message(st), "");
  assert_false(lb_failed(st));
}

// The model must outlive m.
static inline void parse(const pb *model, lb_model *m) {
  expect_success(lb_onnx_parse(span_of(model), NULL, NULL, m));
  expect_success(lb_graph_verify(m->graph));
}

static inline void expect_graph(pb model, const char *text) {
  lb_model m;
  parse(&model, &m);
  lb_strbuf b = {0};
  sketch(&b, m.graph->main);
  lb_strbuf_puts(&b, " -> ");
  sketch_values(&b, m.graph->main->results, m.graph->main->n_results);
  assert_string_equal(lb_strbuf_str(&b), text);
  lb_strbuf_fini(&b);
  lb_model_fini(&m);
  lb_strbuf_fini(&model.b);
}

#endif
