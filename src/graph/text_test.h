// graph/text_test.h -- graphs written as text, for tests of this module.
//
//   in x float32[b,4]
//   const w float32[4,4] 1 2 3        (the last number repeats)
//   y, z = Split(x, [2,2]) {axis=-1}  (numbers: 0.5 float32 scalar, 3 int64
//                                      scalar, [3,0] int64 list, _ absent)
//   v = If(c, x)                      (bodies follow; their parameters that
//   then(p)                            receive captures come last, and Loop
//   q = Relu(p)                        says how many: {captures=1})
//   gives q
//   else(p)
//   gives p
//   out y v
#ifndef LB_GRAPH_TEXT_TEST_H
#define LB_GRAPH_TEXT_TEST_H

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/infer.h"
#include "graph/pass.h"

typedef struct text {
  const char *p;
  lb_graph *g;
} text;

static inline void must(lb_status st) {
  if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
  assert_false(lb_failed(st));
}

static inline void text_skip(text *t) {
  while (*t->p == ' ' || *t->p == ',') t->p++;
}

static inline bool text_take(text *t, const char *s) {
  text_skip(t);
  size_t n = strlen(s);
  if (strncmp(t->p, s, n) != 0) return false;
  t->p += n;
  return true;
}

static inline const char *text_word(text *t, char *buf, size_t cap) {
  text_skip(t);
  size_t n = 0;
  while (isalnum((unsigned char)*t->p) || strchr("_.?+-/*", *t->p)) {
    if (*t->p == '\0') break;
    assert_true(n + 1 < cap);
    buf[n++] = *t->p++;
  }
  buf[n] = '\0';
  return buf;
}

static inline lb_value *text_find(text *t, lb_region *r, const char *name) {
  for (uint32_t i = t->g->n_values; i > 0; i--) {
    lb_value *v = t->g->values[i - 1];
    if ((v->region == r || v->info.data) && strcmp(v->name, name) == 0)
      return v;
  }
  fail_msg("no value '%s'", name);
  return NULL;
}

static inline lb_dtype text_dtype(const char *name) {
  for (int d = 0; d < LB_DTYPE_COUNT; d++)
    if (strcmp(lb_dtype_name((lb_dtype)d), name) == 0) return (lb_dtype)d;
  fail_msg("no dtype '%s'", name);
  return LB_NONE;
}

static inline void text_info(text *t, lb_vinfo *out) {
  char w[64];
  out->dtype = text_dtype(text_word(t, w, sizeof w));
  assert_true(text_take(t, "["));
  out->rank = 0;
  if (text_take(t, "*]")) {
    out->rank = -1;
    return;
  }
  while (!text_take(t, "]")) {
    lb_dim *d = &out->dims[out->rank++];
    text_word(t, w, sizeof w);
    if (isdigit((unsigned char)w[0]))
      *d = lb_dim_const(atoll(w));
    else
      must(lb_symtab_named(t->g->syms, w, d));
  }
}

static inline void text_const(text *t) {
  char name[64], w[64];
  lb_vinfo v = {0};
  text_word(t, name, sizeof name);
  text_info(t, &v);
  lb_tensor k = {.dtype = v.dtype, .rank = v.rank};
  for (int i = 0; i < v.rank; i++) k.dims[i] = v.dims[i].k;
  lb_tensor_dense(&k);
  k.data = lb_arena_alloc(&t->g->arena, lb_tensor_bytes(&k), 8);
  double x = 0;
  for (int64_t i = 0; i < lb_tensor_count(&k); i++) {
    if (*text_word(t, w, sizeof w)) x = atof(w);
    switch (k.dtype) {
      case LB_F32: ((float *)k.data)[i] = (float)x; break;
      case LB_F64: ((double *)k.data)[i] = x; break;
      case LB_I64: ((int64_t *)k.data)[i] = (int64_t)x; break;
      case LB_BOOL: ((uint8_t *)k.data)[i] = x != 0; break;
      case LB_U8: ((uint8_t *)k.data)[i] = (uint8_t)x; break;
      case LB_I8: ((int8_t *)k.data)[i] = (int8_t)x; break;
      default: fail_msg("constants of this dtype are not written yet");
    }
  }
  lb_value *out;
  must(lb_const_new(t->g, name, &k, &out));
}

static inline uint32_t text_ints(text *t, int64_t *out) {
  char w[64];
  uint32_t n = 0;
  while (!text_take(t, "]")) out[n++] = atoll(text_word(t, w, sizeof w));
  return n;
}

static inline lb_value *text_input(text *t, lb_region *r) {
  char w[64];
  int64_t list[16];
  lb_value *v;
  if (text_take(t, "[")) {
    uint32_t n = text_ints(t, list);
    must(lb_const_ints(t->g, "list", list, n, &v));
    return v;
  }
  text_word(t, w, sizeof w);
  if (strcmp(w, "_") == 0) return NULL;
  if (!isdigit((unsigned char)w[0]) && w[0] != '-') return text_find(t, r, w);
  if (strchr(w, '.'))
    must(lb_const_f32(t->g, "scalar", (float)atof(w), &v));
  else
    must(lb_const_i64(t->g, "scalar", atoll(w), &v));
  return v;
}

static inline void text_attr(text *t, lb_node *n) {
  char name[64], w[64];
  int64_t list[16];
  text_word(t, name, sizeof name);
  assert_true(text_take(t, "="));
  if (text_take(t, "[")) {
    lb_attr a = {.kind = LB_ATTR_INTS, .n = text_ints(t, list)};
    a.name = lb_arena_strdup(&t->g->arena, name);
    a.ints = lb_arena_memdup(&t->g->arena, list, a.n * sizeof *list, 8);
    must(lb_node_add_attr(t->g, n, a));
  } else if (text_take(t, "\"")) {
    size_t length = strcspn(t->p, "\"");
    snprintf(w, sizeof w, "%.*s", (int)length, t->p);
    t->p += length;
    must(lb_node_set_str(t->g, n, name, w));
    assert_true(text_take(t, "\""));
  } else if (strchr(text_word(t, w, sizeof w), '.')) {
    must(lb_node_set_float(t->g, n, name, (float)atof(w)));
  } else if (strcmp(name, "captures") == 0) {
    n->n_captures = (uint32_t)atoll(w);
  } else {
    must(lb_node_set_int(t->g, n, name, atoll(w)));
  }
}

static inline void text_end_line(text *t) {
  text_skip(t);
  assert_int_equal(*t->p, '\n');
  t->p++;
}

static inline void text_region(text *t, lb_region *r);

static inline lb_region *text_body(text *t, lb_region *parent) {
  char w[64];
  lb_region *r;
  must(lb_region_new(t->g, parent, &r));
  while (!text_take(t, ")")) {
    lb_value *v;
    must(lb_value_new(t->g, text_word(t, w, sizeof w), &v));
    must(lb_region_add_param(r, v));
  }
  text_end_line(t);
  text_region(t, r);
  return r;
}

// Includes our own operators, which models cannot name.
static inline lb_op text_op(const char *name) {
  lb_op op = 0;
  while (op < LB_OP_COUNT && strcmp(lb_op_infos[op].name, name) != 0) op++;
  return op;
}

static inline void text_node(text *t, lb_region *r) {
  char out[8][64], w[64];
  lb_value *in[16];
  uint32_t n_out = 0, n_in = 0;
  while (!text_take(t, "=")) text_word(t, out[n_out++], sizeof out[0]);
  lb_op op = text_op(text_word(t, w, sizeof w));
  assert_int_not_equal(op, LB_OP_COUNT);
  assert_true(text_take(t, "("));
  while (!text_take(t, ")")) in[n_in++] = text_input(t, r);
  lb_node *n;
  must(lb_node_new(r, op, NULL, n_in, n_out, &n));
  for (uint32_t i = 0; i < n_in; i++) n->in[i] = in[i];
  if (op == LB_OP_If) n->n_captures = n_in - 1;
  if (text_take(t, "{"))
    while (!text_take(t, "}")) text_attr(t, n);
  text_end_line(t);
  uint32_t bodies = op == LB_OP_If ? 2 : 0;
  if (op == LB_OP_Loop || op == LB_OP_Scan) bodies = 1;
  n->regions = lb_arena_new(&t->g->arena, lb_region *, bodies);
  for (; n->n_regions < bodies; n->n_regions++) {
    text_skip(t);
    t->p = strchr(t->p, '(') + 1;
    n->regions[n->n_regions] = text_body(t, r);
  }
  for (uint32_t i = 0; i < n_out; i++) {
    lb_value *v;
    if (strcmp(out[i], "_") == 0) continue;
    must(lb_value_new(t->g, out[i], &v));
    lb_node_set_out(n, i, v);
  }
}

// Reads lines up to "gives", or to the end of the text.
static inline void text_region(text *t, lb_region *r) {
  char w[64];
  while (*t->p) {
    if (text_take(t, "in ")) {
      lb_value *v;
      must(lb_value_new(t->g, text_word(t, w, sizeof w), &v));
      text_info(t, &v->info);
      must(lb_region_add_param(r, v));
    } else if (text_take(t, "const ")) {
      text_const(t);
    } else if (text_take(t, "out ") || text_take(t, "gives ")) {
      while (*t->p != '\n')
        must(lb_region_add_result(r,
                                  text_find(t, r, text_word(t, w, sizeof w))));
      if (r->parent) {
        text_end_line(t);
        return;
      }
    } else {
      text_node(t, r);
      continue;
    }
    text_end_line(t);
  }
}

// Reads a graph and verifies it.
static inline lb_graph *graph_read(const char *source) {
  text t = {.p = source};
  must(lb_graph_new(&t.g));
  text_region(&t, t.g->main);
  lb_region *m = t.g->main;
  t.g->output_names = lb_arena_new(&t.g->arena, const char *, m->n_results);
  for (uint32_t i = 0; i < m->n_results; i++)
    t.g->output_names[i] = m->results[i]->name;
  must(lb_graph_verify(t.g));
  return t.g;
}

// Reads a graph and infers its shapes.
static inline lb_graph *graph_of(const char *source) {
  lb_graph *g = graph_read(source);
  must(lb_infer_graph(g));
  return g;
}

static inline void dump_is(const lb_graph *g, const char *expected) {
  lb_strbuf s = {0};
  lb_graph_dump(g, &s);
  must(lb_strbuf_status(&s));
  assert_string_equal(lb_strbuf_str(&s), expected);
  lb_strbuf_fini(&s);
}

// Optimising the source with these options gives the expected dump.
static inline void becomes(const char *source, const lb_pass_options *o,
                           const char *expected) {
  lb_graph *g = graph_of(source);
  must(lb_graph_optimize(g, o));
  dump_is(g, expected);
  lb_graph_free(g);
}

// Optimising does not change the source.
static inline void stays(const char *source) {
  lb_graph *g = graph_of(source);
  lb_strbuf s = {0};
  lb_graph_dump(g, &s);
  must(lb_graph_optimize(g, NULL));
  dump_is(g, lb_strbuf_str(&s));
  lb_strbuf_fini(&s);
  lb_graph_free(g);
}

#endif
