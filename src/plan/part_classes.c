// plan/part_classes.c -- serialises each partition; equal bytes mean equivalent
// partitions.
#include "plan/part_classes.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/strbuf.h"
#include "graph/op.h"

typedef struct writer {
  const lb_partition *part;
  const lb_sizes *sizes;
  lb_part_class *cls;  // with the values found so far
  lb_strbuf out;
} writer;

static void put(writer *w, const void *bytes, size_t n) {
  lb_strbuf_putn(&w->out, bytes, n);
}

static void put_number(writer *w, int64_t x) { put(w, &x, sizeof x); }

// -- attributes --------------------------------------------------------------

static void put_tensor(writer *w, const lb_tensor *t) {
  put_number(w, t->dtype);
  put_number(w, t->rank);
  put(w, t->dims, (size_t)t->rank * sizeof *t->dims);
  put(w, t->data, lb_tensor_bytes(t));
}

static void put_text(writer *w, const char *text, size_t n) {
  put_number(w, (int64_t)n);
  put(w, text, n);
}

static void put_attr(writer *w, const lb_attr *a) {
  put_text(w, a->name, strlen(a->name));
  put_number(w, a->kind);
  put_number(w, a->n);
  switch (a->kind) {
    case LB_ATTR_INT: put_number(w, a->i); break;
    case LB_ATTR_FLOAT: put(w, &a->f, sizeof a->f); break;
    case LB_ATTR_STRING: put(w, a->s, a->n); break;
    case LB_ATTR_INTS: put(w, a->ints, a->n * sizeof *a->ints); break;
    case LB_ATTR_FLOATS: put(w, a->floats, a->n * sizeof *a->floats); break;
    case LB_ATTR_STRINGS:
      for (uint32_t i = 0; i < a->n; i++)
        put_text(w, a->strings[i], strlen(a->strings[i]));
      break;
    case LB_ATTR_TENSOR: put_tensor(w, a->tensor); break;
  }
}

static void put_attrs(writer *w, const lb_node *n) {
  put_number(w, n->op);
  put_number(w, n->n_attrs);
  for (uint32_t i = 0; i < n->n_attrs; i++) put_attr(w, &n->attrs[i]);
}

// -- values ------------------------------------------------------------------

static void put_info(writer *w, const lb_value *v) {
  put_number(w, v->info.dtype);
  put_number(w, v->info.rank);
  if (v->info.rank > 0)
    put(w, lb_sizes_of(w->sizes, v),
        (size_t)v->info.rank * sizeof *w->sizes->numbers);
}

// A small constant may decide what is computed (an exponent, a limit, axes);
// larger ones are only operands of kernels.
#define MAX_CONTENT 8

static bool is_content(const lb_node *n, uint32_t i) {
  const lb_tensor *t = n->in[i]->info.data;
  bool decides = i < 32 && lb_op_infos[n->op].deciding >> i & 1;
  return t && (decides || lb_tensor_count(t) <= MAX_CONTENT);
}

// The index of v among the values from outside; a new one is added.
static int64_t number_of(writer *w, const lb_value *v) {
  lb_part_class *t = w->cls;
  for (uint32_t i = 0; i < t->n_values; i++)
    if (t->values[i] == v) return i;
  t->values[t->n_values] = v;
  return t->n_values++;
}

// Binding examines the producer of a feature map: a Transpose determines the
// position of the channel axis.
static void put_producer(writer *w, const lb_value *v) {
  bool transposed = v->producer && v->producer->op == LB_OP_Transpose;
  put_number(w, transposed);
  if (transposed) put_attrs(w, v->producer);
}

static void put_input(writer *w, uint32_t reader, uint32_t i) {
  const lb_node *n = w->part->nodes[reader];
  const lb_value *v = n->in[i];
  put_number(w, v != NULL);
  if (!v) return;
  for (uint32_t k = 0; k < reader; k++)
    if (w->part->nodes[k]->out[0] == v) {
      put_number(w, -1 - (int64_t)k);
      return;
    }
  put_number(w, number_of(w, v));
  put_info(w, v);
  put_producer(w, v);
  put_number(w, v->info.data != NULL);
  if (is_content(n, i)) put_tensor(w, v->info.data);
}

static void put_partition(writer *w) {
  const lb_partition *p = w->part;
  put_number(w, p->form);
  put_number(w, p->anchor);
  put_number(w, p->packed != NULL);
  put_number(w, p->panels);
  put_number(w, p->n_nodes);
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const lb_node *n = p->nodes[i];
    put_attrs(w, n);
    put_number(w, n->n_in);
    for (uint32_t k = 0; k < n->n_in; k++) put_input(w, i, k);
    put_info(w, n->out[0]);
  }
}

// -- all ---------------------------------------------------------------------

static size_t count_inputs(const lb_partitioning *parts) {
  size_t n = 0;
  for (uint32_t i = 0; i < parts->n_parts; i++)
    for (uint32_t k = 0; k < parts->parts[i]->n_nodes; k++)
      n += parts->parts[i]->nodes[k]->n_in;
  return n;
}

// `firsts` maps serialised partitions, which are in the arena, to the first
// partition with these bytes.
static lb_status join_class(lb_part_classes *t, lb_map *firsts, lb_arena *a,
                            writer *w) {
  LB_TRY(lb_strbuf_status(&w->out));
  lb_part_class *first = lb_map_get(firsts, w->out.data, w->out.len);
  if (first) {
    if (first->class_id == LB_NO_PART_CLASS) first->class_id = t->n_classes++;
    w->cls->class_id = first->class_id;
    return LB_OK;
  }
  void *key = lb_arena_memdup(a, w->out.data, w->out.len, 1);
  if (!key) return lb_oom();
  return lb_map_put(firsts, key, w->out.len, w->cls, NULL);
}

static lb_status find_all(lb_part_classes *t, const lb_partitioning *parts,
                          const lb_sizes *sizes, lb_map *firsts, lb_arena *a) {
  const lb_value **values = t->values;
  lb_status st = LB_OK;
  writer w = {.sizes = sizes};
  for (uint32_t i = 0; i < parts->n_parts && !lb_failed(st); i++) {
    w.part = parts->parts[i];
    w.cls = &t->list[i];
    *w.cls = (lb_part_class){.class_id = LB_NO_PART_CLASS, .values = values};
    t->of_node[w.part->nodes[w.part->n_nodes - 1]->id] = w.cls;
    if (!w.part->plain) continue;
    w.out.len = 0;
    put_partition(&w);
    values += w.cls->n_values;
    st = join_class(t, firsts, a, &w);
  }
  lb_strbuf_fini(&w.out);
  return st;
}

lb_status lb_part_classes_init(lb_part_classes *t, const lb_partitioning *parts,
                               const lb_graph *g, const lb_sizes *sizes) {
  lb_map firsts = {0};
  lb_arena keys;
  lb_arena_init(&keys, 16 << 10);
  *t = (lb_part_classes){
      .list = calloc((size_t)parts->n_parts + 1, sizeof *t->list),
      .of_node = calloc((size_t)g->n_nodes + 1, sizeof *t->of_node),
      .values = calloc(count_inputs(parts) + 1, sizeof *t->values)};
  bool ok = t->list && t->of_node && t->values;
  lb_status st = ok ? find_all(t, parts, sizes, &firsts, &keys) : lb_oom();
  lb_map_fini(&firsts);
  lb_arena_fini(&keys);
  if (lb_failed(st)) lb_part_classes_fini(t);
  return st;
}

void lb_part_classes_fini(lb_part_classes *t) {
  free(t->list);
  free(t->of_node);
  free(t->values);
  *t = (lb_part_classes){0};
}
