// graph/dump.c -- prints a graph as text, for people and for tests.
//
//   in x: float32[batch,4]
//   h: float32[batch,8] = MatMul(x, w:float32[4,8])
//   y: float32[batch,8] = Softmax(h) {axis=-1}
//   out y
//
// A node with flags (skip.h) has them behind a #. Small constants are printed
// in full. Bodies follow their node, indented.
#include <string.h>

#include "graph/graph.h"

#define SHOWN 4  // printed elements of a constant or a list

static void put_info(const lb_vinfo *v, lb_strbuf *out) {
  lb_strbuf_puts(out, v->dtype == LB_NONE ? "?" : lb_dtype_name(v->dtype));
  if (v->rank < 0) {
    lb_strbuf_puts(out, "[*]");
    return;
  }
  lb_strbuf_putc(out, '[');
  for (int i = 0; i < v->rank; i++) {
    if (i) lb_strbuf_putc(out, ',');
    lb_dim_print(v->dims[i], out);
  }
  lb_strbuf_putc(out, ']');
}

static void put_bits(const unsigned char *p, size_t size, lb_strbuf *out) {
  lb_strbuf_puts(out, "0x");
  for (size_t i = size; i > 0; i--) lb_strbuf_printf(out, "%02x", p[i - 1]);
}

#define PUT_AS(T, format, as)              \
  do {                                     \
    T x_;                                  \
    memcpy(&x_, p, sizeof x_);             \
    lb_strbuf_printf(out, format, (as)x_); \
  } while (0)

static void put_elem(lb_dtype t, const unsigned char *p, lb_strbuf *out) {
  switch (t) {
    case LB_F32: PUT_AS(float, "%.9g", double); break;
    case LB_F64: PUT_AS(double, "%.17g", double); break;
    case LB_I8: PUT_AS(int8_t, "%d", int); break;
    case LB_I16: PUT_AS(int16_t, "%d", int); break;
    case LB_I32: PUT_AS(int32_t, "%d", int); break;
    case LB_I64: PUT_AS(int64_t, "%lld", long long); break;
    case LB_U8: PUT_AS(uint8_t, "%u", unsigned); break;
    case LB_U16: PUT_AS(uint16_t, "%u", unsigned); break;
    case LB_U32: PUT_AS(uint32_t, "%u", unsigned); break;
    case LB_U64: PUT_AS(uint64_t, "%llu", unsigned long long); break;
    case LB_BOOL: lb_strbuf_puts(out, *p ? "true" : "false"); break;
    default: put_bits(p, lb_dtype_size(t), out); break;
  }
}

// A scalar or a short dense list.
static bool is_small(const lb_tensor *t) {
  return t->rank == 0 ||
         (t->rank == 1 && t->dims[0] <= SHOWN && lb_tensor_is_dense(t));
}

static void put_tensor(const lb_tensor *t, lb_strbuf *out) {
  const unsigned char *p = t->data;
  size_t size = lb_dtype_size(t->dtype);
  int64_t n = lb_tensor_count(t);
  if (t->rank) lb_strbuf_putc(out, '[');
  for (int64_t i = 0; i < n; i++) {
    if (i) lb_strbuf_putc(out, ',');
    put_elem(t->dtype, p + (size_t)i * size, out);
  }
  if (t->rank) lb_strbuf_putc(out, ']');
}

static void put_value(const lb_value *v, lb_strbuf *out) {
  if (!v) {
    lb_strbuf_putc(out, '_');
  } else if (v->info.data && is_small(v->info.data)) {
    put_tensor(v->info.data, out);
  } else {
    lb_strbuf_puts(out, v->name);
    if (!v->info.data) return;
    lb_strbuf_putc(out, ':');
    put_info(&v->info, out);
  }
}

static void put_values(lb_value *const *v, uint32_t n, lb_strbuf *out) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) lb_strbuf_puts(out, ", ");
    put_value(v[i], out);
  }
}

static void put_item(const lb_attr *a, uint32_t i, lb_strbuf *out) {
  switch (a->kind) {
    case LB_ATTR_INTS:
      lb_strbuf_printf(out, "%lld", (long long)a->ints[i]);
      break;
    case LB_ATTR_FLOATS:
      lb_strbuf_printf(out, "%.9g", (double)a->floats[i]);
      break;
    default: lb_strbuf_printf(out, "\"%s\"", a->strings[i]); break;
  }
}

static void put_attr(const lb_attr *a, lb_strbuf *out) {
  lb_strbuf_printf(out, "%s=", a->name);
  switch (a->kind) {
    case LB_ATTR_INT: lb_strbuf_printf(out, "%lld", (long long)a->i); return;
    case LB_ATTR_FLOAT: lb_strbuf_printf(out, "%.9g", (double)a->f); return;
    case LB_ATTR_STRING: lb_strbuf_printf(out, "\"%s\"", a->s); return;
    case LB_ATTR_TENSOR:
      if (is_small(a->tensor)) {
        put_tensor(a->tensor, out);
      } else {
        lb_strbuf_printf(out, "%s tensor", lb_dtype_name(a->tensor->dtype));
      }
      return;
    default: break;
  }
  lb_strbuf_putc(out, '[');
  for (uint32_t i = 0; i < a->n; i++) {
    if (i) lb_strbuf_putc(out, ',');
    put_item(a, i, out);
  }
  lb_strbuf_putc(out, ']');
}

static void put_attrs(const lb_node *n, lb_strbuf *out) {
  if (n->n_attrs == 0) return;
  lb_strbuf_puts(out, " {");
  for (uint32_t i = 0; i < n->n_attrs; i++) {
    if (i) lb_strbuf_puts(out, ", ");
    put_attr(&n->attrs[i], out);
  }
  lb_strbuf_putc(out, '}');
}

static void indent(int depth, lb_strbuf *out) {
  for (int i = 0; i < depth; i++) lb_strbuf_puts(out, "  ");
}

static void put_flags(const lb_node *n, lb_strbuf *out) {
  if (!n->optimized) return;
  lb_strbuf_puts(out, n->runtime_skippable ? "  # optimized, runtime_skippable"
                                           : "  # optimized");
}

static void put_node(const lb_node *n, int depth, bool flags, lb_strbuf *out) {
  indent(depth, out);
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (i) lb_strbuf_puts(out, ", ");
    put_value(n->out[i], out);
    if (!n->out[i]) continue;
    lb_strbuf_puts(out, ": ");
    put_info(&n->out[i]->info, out);
  }
  lb_strbuf_printf(out, " = %s(", lb_op_infos[n->op].name);
  put_values(n->in, n->n_in, out);
  lb_strbuf_putc(out, ')');
  put_attrs(n, out);
  if (flags) put_flags(n, out);
  lb_strbuf_putc(out, '\n');
}

static void put_region(const lb_region *r, int depth, bool flags,
                       lb_strbuf *out) {
  if (depth > LB_MAX_NESTING) return;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const lb_node *n = r->nodes[i];
    put_node(n, depth, flags, out);
    for (uint32_t k = 0; k < n->n_regions; k++) {
      const char *role = n->op != LB_OP_If ? "body" : k ? "else" : "then";
      indent(depth, out);
      lb_strbuf_printf(out, "%s(", role);
      put_values(n->regions[k]->params, n->regions[k]->n_params, out);
      lb_strbuf_puts(out, ")\n");
      put_region(n->regions[k], depth + 1, flags, out);
    }
  }
  if (!r->parent) return;
  indent(depth, out);
  lb_strbuf_puts(out, "gives ");
  put_values(r->results, r->n_results, out);
  lb_strbuf_putc(out, '\n');
}

static void dump(const lb_graph *g, bool flags, lb_strbuf *out) {
  const lb_region *r = g->main;
  for (uint32_t i = 0; i < r->n_params; i++) {
    lb_strbuf_printf(out, "in %s: ", r->params[i]->name);
    put_info(&r->params[i]->info, out);
    lb_strbuf_putc(out, '\n');
  }
  put_region(r, 0, flags, out);
  for (uint32_t i = 0; i < r->n_results; i++) {
    const char *name = g->output_names ? g->output_names[i] : NULL;
    lb_strbuf_puts(out, "out ");
    if (name && strcmp(name, r->results[i]->name) != 0)
      lb_strbuf_printf(out, "%s = ", name);
    put_value(r->results[i], out);
    lb_strbuf_putc(out, '\n');
  }
}

void lb_graph_dump(const lb_graph *g, lb_strbuf *out) { dump(g, false, out); }

void lb_graph_dump_flags(const lb_graph *g, lb_strbuf *out) {
  dump(g, true, out);
}
