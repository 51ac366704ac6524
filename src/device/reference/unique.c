// device/reference/unique.c -- Unique: the distinct elements, or the distinct
// slices along an axis.
//
// An *item* is an element of the flattened input, or a slice. Items are sorted
// by their keys; equal ones are then adjacent and form a *group*, numbered in
// the order of the output.
#include <string.h>

#include "device/reference/move.h"
#include "device/reference/order.h"

typedef struct groups {
  int64_t n_items, n;
  int64_t *group;  // the group of each item
  int64_t *first;  // the first item of each group
  int64_t *count;  // the number of items of each group
} groups;

// Copies the input so that its items are contiguous, one after the other.
static lb_status gather_items(lb_reference_call *c, int axis, lb_tensor *out) {
  lb_tensor view = c->in[0];
  for (int i = axis; i > 0; i--) {
    view.dims[i] = c->in[0].dims[i - 1];
    view.strides[i] = c->in[0].strides[i - 1];
  }
  if (axis > 0) {
    view.dims[0] = c->in[0].dims[axis];
    view.strides[0] = c->in[0].strides[axis];
  }
  return lb_reference_dense(c, &view, view.dtype, out);
}

// Numbers the groups by the order of their keys; the first item of a group is
// the earliest.
static void group_sorted(const uint64_t *keys, int64_t len,
                         const int64_t *sorted, groups *g) {
  for (int64_t i = 0; i < g->n_items; i++) {
    int64_t item = sorted[i];
    if (i == 0 || !lb_order_equal(keys, len, sorted[i - 1], item)) {
      g->first[g->n] = item;
      g->count[g->n++] = 0;
    }
    g->group[item] = g->n - 1;
    g->count[g->n - 1]++;
  }
}

// Renumbers the groups by their first items. The first item of a group comes
// before its others, so to[] is set before it is read.
static void group_by_position(groups *g, int64_t *to, int64_t *first,
                              int64_t *count) {
  int64_t n = 0;
  for (int64_t item = 0; item < g->n_items; item++) {
    int64_t old = g->group[item];
    if (g->first[old] == item) {
      to[old] = n;
      first[n] = item;
      count[n++] = g->count[old];
    }
    g->group[item] = to[old];
  }
  g->first = first;
  g->count = count;
}

static lb_status find_groups(lb_reference_call *c, const lb_tensor *items,
                             int64_t n, int64_t len, groups *g) {
  int64_t size = (int64_t)lb_dtype_size(items->dtype), *sorted, *temp, *keys;
  *g = (groups){.n_items = n};
  LB_TRY(lb_reference_ints_temp(c, n * len, &keys));
  LB_TRY(lb_reference_ints_temp(c, n, &sorted));
  LB_TRY(lb_reference_ints_temp(c, n, &temp));
  LB_TRY(lb_reference_ints_temp(c, n, &g->group));
  LB_TRY(lb_reference_ints_temp(c, n, &g->first));
  LB_TRY(lb_reference_ints_temp(c, n, &g->count));
  uint64_t *k = (uint64_t *)keys;
  lb_order_keys(items->dtype, n * len, items->data, size, k);
  for (int64_t i = 0; i < n; i++) sorted[i] = i;
  lb_order_sort(k, len, n, sorted, temp);
  group_sorted(k, len, sorted, g);
  if (lb_attr_int(c->node, "sorted", 1) != 0) return LB_OK;
  int64_t *first, *count;
  LB_TRY(lb_reference_ints_temp(c, g->n, &first));
  LB_TRY(lb_reference_ints_temp(c, g->n, &count));
  group_by_position(g, temp, first, count);
  return LB_OK;
}

static lb_status write_ints(lb_reference_call *c, int i, const int64_t *v,
                            int64_t n) {
  if (!lb_reference_wants(c, i)) return LB_OK;
  LB_TRY(c->grow(c, i, 1, &n));
  if (n > 0) memcpy(c->out[i].data, v, (size_t)n * sizeof *v);
  return LB_OK;
}

// Writes the items `first` of x along `axis`.
static lb_status write_items(lb_reference_call *c, const lb_tensor *x, int axis,
                             const groups *g) {
  if (!lb_reference_wants(c, 0)) return LB_OK;
  int64_t *at, steps[LB_MAX_RANK], dims[LB_MAX_RANK];
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = g->n;
  LB_TRY(c->grow(c, 0, x->rank, dims));
  LB_TRY(lb_reference_ints_temp(c, g->n, &at));
  lb_byte_strides(x, steps);
  for (int64_t i = 0; i < g->n; i++) at[i] = g->first[i] * steps[axis];
  lb_gather p = {0};
  lb_gather_axes(&p, x, 0, axis);
  lb_gather_table(&p, g->n, at);
  lb_gather_axes(&p, x, axis + 1, x->rank);
  lb_gather_run(c->pool, &p, lb_dtype_size(x->dtype), x->data, c->out[0].data);
  return LB_OK;
}

lb_status lb_reference_Unique(lb_reference_call *c) {
  lb_tensor x = c->in[0], items;
  int axis = 0;
  groups g;
  if (lb_attr_has(c->node, "axis"))
    LB_TRY(
        lb_reference_axis(c, lb_attr_int(c->node, "axis", 0), x.rank, &axis));
  LB_TRY(gather_items(c, axis, &items));
  if (!lb_attr_has(c->node, "axis")) {
    x = items;
    x.rank = 1;
    x.dims[0] = lb_tensor_count(&items);
    x.strides[0] = 1;
  }
  int64_t count = lb_tensor_count(&x), n = x.dims[axis];
  LB_TRY(find_groups(c, &items, n, n > 0 ? count / n : 0, &g));
  LB_TRY(write_items(c, &x, axis, &g));
  LB_TRY(write_ints(c, 1, g.first, g.n));
  LB_TRY(write_ints(c, 2, g.group, g.n_items));
  return write_ints(c, 3, g.count, g.n);
}
