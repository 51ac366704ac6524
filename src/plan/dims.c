// plan/dims.c -- evaluates symbolic dims at the sizes of a signature.
//
// The output of a plain partition has the dims of its expression; binding
// checks that the inputs fit. All other cases (a size that depends on data,
// inputs that do not fit, values above the memory limit) are left to the shape
// rules, which report the error.
#include "plan/planner.h"

// -- sizes -------------------------------------------------------------------

static int64_t size_of(lb_planner *p, uint32_t number) {
  const lb_sizes *s = &p->prog->sizes;
  int64_t size = p->dims.sizes[number];
  if (size >= 0) return size;
  if (!lb_dim_has_values(s->dims[number], p->dims.symbols, s->n_symbols))
    return -1;
  bool good =
      lb_dim_try_eval(s->dims[number], p->dims.symbols, s->n_symbols, &size);
  return p->dims.sizes[number] = good && size >= 0 ? size : -1;
}

void lb_planner_learn(lb_planner *p, const lb_value *v, const lb_tensor *t) {
  const lb_sizes *s = &p->prog->sizes;
  if (v->info.rank < 0) return;
  const uint32_t *numbers = lb_sizes_of(s, v);
  p->dims.exact = p->dims.exact && v->info.rank == t->rank;
  for (int i = 0; p->dims.exact && i < t->rank; i++) {
    int64_t size = size_of(p, numbers[i]);
    int symbol;
    if (size >= 0) {
      p->dims.exact = size == t->dims[i];
      continue;
    }
    p->dims.sizes[numbers[i]] = t->dims[i];
    if (lb_dim_as_symbol(v->info.dims[i], &symbol))
      p->dims.symbols[symbol] = t->dims[i];
  }
}

bool lb_planner_expect(lb_planner *p, const lb_value *v, lb_tensor *out) {
  if (v->info.rank < 0) return false;
  const uint32_t *numbers = lb_sizes_of(&p->prog->sizes, v);
  out->dtype = v->info.dtype;
  out->rank = v->info.rank;
  out->data = NULL;
  for (int i = 0; i < out->rank; i++) {
    out->dims[i] = size_of(p, numbers[i]);
    if (out->dims[i] < 0) return false;
  }
  lb_tensor_dense(out);
  return true;
}

// The number of elements; 0 if the tensor might exceed the limit (for the
// largest dtype).
static int64_t count_of(const lb_planner *p, const lb_tensor *t) {
  int64_t most = (int64_t)1 << 40, count = 1;
  if (p->prog->limit && p->prog->limit / 8 < (size_t)most)
    most = (int64_t)(p->prog->limit / 8);
  for (int i = 0; i < t->rank; i++)
    if (__builtin_mul_overflow(count, t->dims[i], &count)) return 0;
  return count <= most ? count : 0;
}

// -- movement ----------------------------------------------------------------

static bool same_but(const lb_tensor *a, const lb_tensor *b, int axis) {
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  for (int i = 0; i < a->rank; i++)
    if (i != axis && a->dims[i] != b->dims[i]) return false;
  return true;
}

static int axis_of(const lb_node *n, int rank) {
  int64_t axis = lb_attr_int(n, "axis", 0);
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

// Whether the parts, concatenated along the axis, have the shape of the whole.
static bool joins(const lb_tensor *const *parts, uint32_t n,
                  const lb_tensor *whole, int axis) {
  int64_t length = 0;
  if (axis < 0) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (!parts[i] || !same_but(parts[i], whole, axis) ||
        __builtin_add_overflow(length, parts[i]->dims[axis], &length))
      return false;
  }
  return length == whole->dims[axis];
}

#define MAX_PARTS 16

static bool concat_fits(const lb_node *n, const lb_pvalue *const *in,
                        const lb_tensor *out) {
  const lb_tensor *parts[MAX_PARTS];
  if (n->n_in > MAX_PARTS) return false;
  for (uint32_t i = 0; i < n->n_in; i++)
    parts[i] = in[i] ? in[i]->tensor : NULL;
  return joins(parts, n->n_in, out, axis_of(n, out->rank));
}

static bool split_fits(const lb_node *n, const lb_pvalue *const *in,
                       const lb_tensor *out) {
  const lb_tensor *parts[MAX_PARTS];
  if (n->n_out > MAX_PARTS) return false;
  for (uint32_t i = 0; i < n->n_out; i++) parts[i] = &out[i];
  return joins(parts, n->n_out, in[0]->tensor, axis_of(n, in[0]->tensor->rank));
}

static bool moves_all(const lb_planner *p, const lb_node *n,
                      const lb_pvalue *const *in, const lb_tensor *out) {
  switch (n->op) {
    case LB_OP_Concat: return concat_fits(n, in, out);
    case LB_OP_Split: return split_fits(n, in, out);
    default: return count_of(p, in[0]->tensor) == count_of(p, out);
  }
}

static bool is_moving(lb_op op) {
  return lb_op_has(op, LB_TRAIT_IN_ORDER | LB_TRAIT_PERMUTES);
}

bool lb_planner_expect_moved(lb_planner *p, const lb_node *n,
                             const lb_pvalue *const *in, lb_tensor *out) {
  if (!p->dims.exact || !is_moving(n->op) || !in[0]) return false;
  for (uint32_t i = 0; i < n->n_out; i++)
    if (!n->out[i] || !lb_planner_expect(p, n->out[i], &out[i]) ||
        count_of(p, &out[i]) == 0)
      return false;
  return moves_all(p, n, in, out);
}

// -- contents ----------------------------------------------------------------

static bool put_element(lb_dtype t, int64_t v, int i, void *out) {
  switch (t) {
    case LB_I64: ((int64_t *)out)[i] = v; return true;
    case LB_I32: ((int32_t *)out)[i] = (int32_t)v; return v == (int32_t)v;
    default: return false;
  }
}

static bool try_elements(lb_planner *p, const lb_value *v, void *out) {
  const lb_vinfo *info = &v->info;
  const uint32_t *numbers = lb_sizes_of(&p->prog->sizes, v) + info->rank;
  for (int i = 0; i < info->n_known; i++) {
    int64_t x = info->known[i].k;
    if (!lb_dim_is_const(info->known[i]) && (x = size_of(p, numbers[i])) < 0)
      return false;
    if (!put_element(info->dtype, x, i, out)) return false;
  }
  return true;
}

lb_status lb_planner_known(lb_planner *p, const lb_node *n, bool *done) {
  const lb_value *v = n->n_out == 1 ? n->out[0] : NULL;
  lb_tensor t;
  *done = v && p->dims.exact && v->info.known && v->info.rank >= 0 &&
          lb_planner_expect(p, v, &t) && lb_tensor_count(&t) == v->info.n_known;
  if (!*done) return LB_OK;
  t.data = lb_arena_alloc(p->arena, lb_tensor_bytes(&t), sizeof(int64_t));
  if (!t.data) return lb_oom();
  *done = try_elements(p, v, t.data);
  if (!*done) return LB_OK;
  lb_planner_note(p, n, LB_NODE_COMPUTED, LB_REASON_KNOWN, LB_NO_VALUE);
  return lb_planner_set_const(p, v, &t);
}

// -- partitions --------------------------------------------------------------

// Whether all inputs are known.
static bool is_known(const lb_planner *p, const lb_node *n) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!n->in[i] || n->in[i]->info.data) continue;
    const lb_pvalue *s = p->values.states[lb_planner_root(p, n->in[i]->id)];
    if (!s || s->buffer != LB_NO_BUFFER) return false;
  }
  return true;
}

// Such nodes are computed while planning and yield constants.
static bool is_computed(const lb_planner *p, const lb_partition *part) {
  for (uint32_t i = 0; i < part->n_nodes; i++)
    if (is_known(p, part->nodes[i])) return true;
  return false;
}

static bool is_ready(lb_planner *p, const lb_partition *part) {
  for (uint32_t i = 0; i < part->n_nodes; i++)
    if (lb_planner_is_planned(p, part->nodes[i]) ||
        !p->tally.needed[part->nodes[i]->id])
      return false;
  for (uint32_t i = 0; i < part->n_reads; i++) {
    const lb_value *v = part->reads[i].value;
    uint32_t id = lb_planner_root(p, v->id);
    if (!p->values.states[id]) return false;
    if (id != v->id) lb_planner_learn(p, v, p->values.states[id]->tensor);
  }
  return p->dims.exact;
}

// The dims of a reduction's input have to be known, too.
bool lb_planner_expect_result(lb_planner *p, const lb_partition *part,
                              lb_tensor *out) {
  lb_tensor x;
  if (!part->plain || !p->dims.exact || !is_ready(p, part)) return false;
  if (!lb_planner_expect(p, lb_partition_result(part), out)) return false;
  int64_t count = count_of(p, out);
  if (count == 0 || (count <= LB_MAX_KNOWN && is_computed(p, part)))
    return false;
  if (part->form != LB_FORM_ROW_REDUCE) return true;
  return lb_planner_expect(p, part->nodes[part->anchor]->in[0], &x) &&
         count_of(p, &x) > 0;
}
