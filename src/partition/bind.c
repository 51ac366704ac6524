// partition/bind.c -- binds a partition to concrete shapes: its spec, and the
// loops around the kernel.
//
// The *iteration space* of a partition has the dims of its result; for a row
// operation those of its input, with the axes along a row last. Every operand
// has a stride along each dim of it, 0 where it is broadcast. Dims that are
// contiguous for all operands are merged. The remaining ones are cols, rows,
// and loops around the kernel.
//
// A reduction along columns that are contiguous in memory is computed as a
// window as high as the columns.
#include <string.h>

#include "partition/attention.h"
#include "partition/interpolate.h"
#include "partition/known.h"
#include "partition/window.h"

#define MAX_OPERANDS (LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN)
#define ENOUGH_ELEMENTS 1024  // work per call that is enough
#define ENOUGH_COLS 32
enum { RESULT, A, B };   // operands: A and B of a matmul, A only of a window
enum { X = 1, TABLES };  // operands of an interpolating Resize

typedef struct axes {  // of a tensor: the dim of the iteration space of each
                       // axis
  int n;
  int8_t to[LB_MAX_RANK];  // -1: none, its size is 1
} axes;

typedef struct partition_binder {
  const lb_partition *part;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  lb_form form;
  axes before, after;  // of inputs of nodes up to the anchor, and after it
  int rank;
  int n_row;  // ROW_REDUCE: number of axes along a row, the last ones
  int64_t dims[LB_MAX_RANK];
  int64_t strides[MAX_OPERANDS][LB_MAX_RANK];
  int64_t upsample[LB_MAX_RANK];  // ELTWISE: upsampling factors of the RESIZED
                                  // operand
  int interpolated;               // ELTWISE: number of axes along which X is
                                  // interpolated
  lb_input_access accesses[MAX_OPERANDS];
  uint32_t n;  // operands so far; the first is the result
} partition_binder;

// Strides are not cleared: most of the array is never used.
static void binder_init(partition_binder *w, const lb_partition *p,
                        lb_binding *out) {
  w->part = p;
  w->out = out;
  w->form = p->form;
  w->n_row = 0;
  w->n = 0;
  w->interpolated = 0;
  w->before = w->after = (axes){0};
  memset(w->accesses, 0, sizeof w->accesses);
}

static const lb_node *anchor_of(const partition_binder *w) {
  return w->part->nodes[w->part->anchor];
}

// -- operands ----------------------------------------------------------------

// Whether axis i of v is 1 at every shape: v is broadcast along it.
static bool is_one(const lb_value *v, const lb_tensor *t, int i) {
  return v->info.rank != t->rank ||
         (lb_dim_is_const(v->info.dims[i]) && v->info.dims[i].k == 1);
}

// Adds an operand with the strides of t along the iteration space. The dims of
// t are aligned with the last of the axes; axis `skip` is ignored. An axis
// whose size happens to be 1 gets the stride of a dense tensor, so that the
// spec is the same as at other shapes. False if t does not fit.
static bool add_strides(partition_binder *w, const lb_value *v,
                        const lb_tensor *t, const axes *a, int skip) {
  int shift = a->n - t->rank;
  if (w->n == MAX_OPERANDS || shift < 0) return false;
  int64_t *strides = w->strides[w->n], inner = 1;
  bool small = w->accesses[w->n] == LB_ACCESS_RESIZED;
  memset(strides, 0, (size_t)w->rank * sizeof *strides);
  for (int i = t->rank - 1; i >= 0; inner *= t->dims[i--]) {
    int to = a->to[shift + i];
    if (i == skip || (to < 0 && t->dims[i] == 1)) continue;
    if (to < 0) return false;
    int64_t dim = small ? w->dims[to] / w->upsample[to] : w->dims[to];
    if (t->dims[i] != 1 && t->dims[i] != dim) return false;
    if (t->dims[i] != 1)
      strides[to] = t->strides[i];
    else if (dim == 1 && !is_one(v, t, i))
      strides[to] = inner;
  }
  w->out->operands[w->n++].value = v;
  return true;
}

// How node `reader` accesses its inputs.
static lb_input_access access_of(const partition_binder *w, uint32_t reader) {
  if (w->part->nodes[reader]->op == LB_OP_Resize) return LB_ACCESS_RESIZED;
  bool late = w->form == LB_FORM_ROW_REDUCE && reader > w->part->anchor;
  return late ? LB_ACCESS_REDUCED : LB_ACCESS_PLAIN;
}

static uint32_t count_acc_inputs(const partition_binder *w) {
  return w->form == LB_FORM_MATMUL ? 2 : w->form == LB_FORM_WINDOW ? 1 : 0;
}

static int find(const partition_binder *w, const lb_value *v,
                lb_input_access how) {
  uint32_t first = RESULT + 1 + count_acc_inputs(w);
  for (uint32_t i = first; i < w->n; i++)
    if (w->out->operands[i].value == v && w->accesses[i] == how) return (int)i;
  return -1;
}

// An interpolated input has no stride along the resized axes: kernels gather
// its rows by tables, which extend along these axes.
static bool add_interpolated(partition_binder *w, const lb_value *v,
                             const lb_tensor *t) {
  const lb_interp *b = &w->out->interp;
  int n = lb_interp_tables(b);
  if (w->n != X || t->rank != w->rank || X + 1 + n > MAX_OPERANDS) return false;
  for (int i = 0; i < t->rank; i++) w->strides[X][i] = t->strides[i];
  for (int i = 0; i < b->n; i++) w->strides[X][b->axes[i].d] = 0;
  for (int i = 0; i < t->rank; i++)
    if (w->strides[X][i] != 0 && t->dims[i] != w->dims[i]) return false;
  w->strides[X][t->rank - 1] = 1;
  w->out->operands[w->n++].value = v;
  for (int i = 0; i < n; i++) {
    memset(w->strides[w->n], 0, sizeof w->strides[w->n]);
    w->strides[w->n][lb_interp_axis(b, i)] = 1;
    w->out->operands[w->n++].value = NULL;
  }
  int last = t->rank - 1;
  return t->strides[last] == 1 || t->dims[last] == 1;
}

static lb_status add_value(partition_binder *w, const lb_part_input *in,
                           bool *ok) {
  lb_tensor t;
  LB_TRY(w->tensor(w->user, in->value, &t));
  if (in->single) *ok = lb_tensor_count(&t) == 1;
  axes channel = {.n = 1, .to = {w->before.to[1]}};
  const axes *a = in->access == LB_ACCESS_REDUCED ? &w->after
                  : in->channel                   ? &channel
                                                  : &w->before;
  if (w->n < MAX_OPERANDS) w->accesses[w->n] = in->access;
  bool interpolated = w->interpolated && in->access == LB_ACCESS_RESIZED;
  *ok = *ok && (interpolated ? add_interpolated(w, in->value, &t)
                             : add_strides(w, in->value, &t, a, -1));
  return LB_OK;
}

static lb_status add_values(partition_binder *w, bool *ok) {
  const lb_partition *p = w->part;
  lb_part_input found[LB_PART_INPUTS];
  const lb_part_input *in = p->inputs ? p->inputs : found;
  uint32_t n = p->inputs ? p->n_inputs : lb_partition_inputs(p, found);
  for (uint32_t i = 0; *ok && i < n; i++) LB_TRY(add_value(w, &in[i], ok));
  return LB_OK;
}

// -- the iteration space ------------------------------------------------------

static axes all_axes(int rank) {
  axes a = {.n = rank};
  for (int i = 0; i < rank; i++) a.to[i] = (int8_t)i;
  return a;
}

static void set_iter_space(partition_binder *w, const lb_tensor *t) {
  w->rank = t->rank;
  memcpy(w->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
  w->before = w->after = all_axes(t->rank);
}

// Axes of x: the ones that are not reduced first, then those along a row.
static void set_row_iter_space(partition_binder *w, const lb_tensor *x,
                               uint32_t along) {
  w->rank = 0;
  w->before.n = x->rank;
  for (int last = 0; last < 2; last++)
    for (int i = 0; i < x->rank; i++) {
      if ((int)(along >> i & 1) != last) continue;
      w->before.to[i] = (int8_t)w->rank;
      w->dims[w->rank++] = x->dims[i];
      w->n_row += last;
    }
}

// The result of a reduction has the kept axes, and possibly the others with
// size 1.
static void set_result_axes(partition_binder *w, const lb_tensor *y,
                            uint32_t along) {
  const lb_node *n = anchor_of(w);
  w->after = w->before;
  if (!lb_specgen_reduces(n)) return;
  bool keep = y->rank == w->before.n;
  w->after.n = 0;
  for (int i = 0; i < w->before.n; i++) {
    bool gone = along >> i & 1;
    if (!gone || keep) w->after.to[w->after.n++] = gone ? -1 : w->before.to[i];
  }
}

static bool has_elements(const partition_binder *w) {
  for (int i = 0; i < w->rank; i++)
    if (w->dims[i] == 0) return false;
  return true;
}

static lb_status tensor_of(const partition_binder *w, const lb_value *v,
                           lb_tensor *out) {
  return w->tensor(w->user, v, out);
}

static const lb_value *result_of(const partition_binder *w) {
  return w->part->nodes[w->part->n_nodes - 1]->out[0];
}

static lb_status bind_row_op(partition_binder *w, bool *ok) {
  lb_tensor x, y;
  uint32_t along;
  LB_TRY(tensor_of(w, anchor_of(w)->in[0], &x));
  LB_TRY(tensor_of(w, result_of(w), &y));
  *ok = lb_specgen_is_row_op(anchor_of(w), &along);
  if (!*ok) return LB_OK;
  set_row_iter_space(w, &x, along);
  set_result_axes(w, &y, along);
  *ok = has_elements(w) && add_strides(w, result_of(w), &y, &w->after, -1);
  return LB_OK;
}

// The Resize among the nodes; NULL: none. There is at most one.
static const lb_node *resize_of(const partition_binder *w) {
  for (uint32_t i = 0; i < w->part->n_nodes; i++)
    if (w->part->nodes[i]->op == LB_OP_Resize) return w->part->nodes[i];
  return NULL;
}

// How the Resize computes y from x: by repeating elements, or by interpolating
// them.
static bool find_resize(partition_binder *w, const lb_node *n,
                        const lb_tensor *x, const lb_tensor *y) {
  if (!lb_interp_is(n))
    return lb_specgen_upsample_factors(n, x, y, w->upsample);
  if (!lb_interp_find(n, x, y, &w->out->interp)) return false;
  w->interpolated = w->out->interp.n;
  w->out->table_bytes = lb_interp_bytes(&w->out->interp);
  for (int i = 0; i < y->rank; i++) w->upsample[i] = 1;
  return true;
}

// The reader of the Resize may be larger and broadcast it; that is not
// supported.
static lb_status bind_resize(partition_binder *w, const lb_node *resize,
                             bool *ok) {
  lb_tensor x, y;
  LB_TRY(tensor_of(w, resize->in[0], &x));
  LB_TRY(tensor_of(w, resize->out[0], &y));
  *ok = y.rank == w->rank;
  for (int i = 0; *ok && i < y.rank; i++) *ok = y.dims[i] == w->dims[i];
  *ok = *ok && find_resize(w, resize, &x, &y);
  return LB_OK;
}

static lb_status bind_eltwise(partition_binder *w, bool *ok) {
  const lb_node *resize = resize_of(w);
  lb_tensor y;
  LB_TRY(tensor_of(w, result_of(w), &y));
  set_iter_space(w, &y);
  *ok = true;
  if (resize) LB_TRY(bind_resize(w, resize, ok));
  *ok =
      *ok && has_elements(w) && add_strides(w, result_of(w), &y, &w->after, -1);
  return LB_OK;
}

// -- matmul -------------------------------------------------------------------

static void swap_last(lb_tensor *t) {
  int row = t->rank - 2, col = t->rank - 1;
  int64_t dim = t->dims[row], stride = t->strides[row];
  t->dims[row] = t->dims[col], t->strides[row] = t->strides[col];
  t->dims[col] = dim, t->strides[col] = stride;
}

// Adds a matmul operand without its dim k, which is its last one or the one
// before. Its stride along k and, for B, along columns is a stride of the
// kernel.
static lb_status add_matmul_operand(partition_binder *w, int which, bool *ok) {
  const lb_node *n = anchor_of(w);
  const lb_value *v = n->in[which - A];
  lb_tensor t;
  LB_TRY(tensor_of(w, v, &t));
  if (lb_attr_int(n, which == A ? "transA" : "transB", 0) != 0) swap_last(&t);
  int k = t.rank - (which == A ? 1 : 2);
  if (which == A)
    w->out->dims[LB_DIM_K] = t.dims[k];
  else
    *ok = *ok && w->out->dims[LB_DIM_K] == t.dims[k];
  lb_bind_operand *o = &w->out->operands[w->n];
  if (which == A) o->col = t.dims[k] == 1 ? 1 : t.strides[k];
  if (which == B) o->row = t.strides[k];
  *ok = *ok && add_strides(w, v, &t, &w->before, k);
  return LB_OK;
}

static void add_packed(partition_binder *w, bool *ok) {
  const lb_node *n = anchor_of(w);
  const lb_vinfo *b = &n->in[1]->info;
  bool transposed = lb_attr_int(n, "transB", 0) != 0;
  *ok = *ok &&
        b->dims[b->rank - (transposed ? 1 : 2)].k == w->out->dims[LB_DIM_K];
  memset(w->strides[w->n], 0, sizeof w->strides[w->n]);
  w->out->operands[w->n++] = (lb_bind_operand){.value = NULL};
}

const lb_value *lb_partition_operand_b(const lb_partition *p) {
  const lb_node *n = p->nodes[p->anchor];
  bool unpacked = p->form == LB_FORM_MATMUL && !p->packed && !p->recurrent &&
                  lb_attr_int(n, "transB", 0) == 0;
  return unpacked ? n->in[1] : NULL;
}

static lb_status bind_matmul(partition_binder *w, bool *ok) {
  LB_TRY(bind_eltwise(w, ok));
  if (*ok) LB_TRY(add_matmul_operand(w, A, ok));
  if (*ok && w->part->packed)
    add_packed(w, ok);
  else if (*ok)
    LB_TRY(add_matmul_operand(w, B, ok));
  bool k4 = w->part->panels == LB_LAYOUT_PANEL_K4;
  *ok = *ok && w->out->dims[LB_DIM_K] > 0 &&
        (!k4 || w->out->operands[A].col == 1);
  return LB_OK;
}

// -- loops -------------------------------------------------------------------

static bool is_unit(const partition_binder *w, int at) {
  for (uint32_t k = 0; k < w->n; k++)
    if (w->strides[k][at] != 0) return false;
  return w->dims[at] == 1;
}

static void remove_dim(partition_binder *w, int at) {
  w->rank--;
  for (int i = at; i < w->rank; i++) {
    w->dims[i] = w->dims[i + 1];
    for (uint32_t k = 0; k < w->n; k++) w->strides[k][i] = w->strides[k][i + 1];
  }
}

static bool can_merge(const partition_binder *w, int outer, int inner) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->strides[i][outer] != w->strides[i][inner] * w->dims[inner])
      return false;
  return true;
}

// Merges the `n` dims from `first` on where possible; dims that are always 1
// are removed. Returns how many are left.
static int merge_dims(partition_binder *w, int first, int n) {
  for (int i = first + n - 1; i >= first; i--)
    if (is_unit(w, i)) remove_dim(w, i), n--;
  for (int i = first + n - 2; i >= first; i--)
    if (can_merge(w, i, i + 1)) {
      w->dims[i + 1] *= w->dims[i];
      remove_dim(w, i);
      n--;
    }
  return n;
}

static void insert_one(partition_binder *w, int at) {
  for (int i = w->rank++; i > at; i--) {
    w->dims[i] = w->dims[i - 1];
    for (uint32_t k = 0; k < w->n; k++) w->strides[k][i] = w->strides[k][i - 1];
  }
  w->dims[at] = 1;
  for (uint32_t k = 0; k < w->n; k++) w->strides[k][at] = 0;
}

// Splits an axis along which elements are repeated into two. The dim of the
// repetitions is placed before the last two of the iteration space, where it is
// a loop around the kernel.
static void split_axis(partition_binder *w, int i, int64_t upsample) {
  int at = w->rank - 2;
  insert_one(w, at);
  if (i >= at) i++;
  w->dims[at] = upsample;
  w->dims[i] /= upsample;
  for (uint32_t k = 0; k < w->n; k++) {
    if (w->accesses[k] == LB_ACCESS_RESIZED) continue;
    w->strides[k][at] = w->strides[k][i];
    w->strides[k][i] *= upsample;
  }
}

// Elements of the last axis are never repeated, so the axis before is the last
// that may be.
static bool split_upsampled(partition_binder *w) {
  int rank = w->rank;
  for (int i = 0; resize_of(w) && i < rank; i++) {
    if (w->upsample[i] == 1) continue;
    if (w->rank == LB_MAX_RANK) return false;
    split_axis(w, i < rank - 2 ? i : w->rank - 2, w->upsample[i]);
  }
  return true;
}

// Moves dim `from` to the position before the last.
static void make_rows(partition_binder *w, int from) {
  int64_t dim = w->dims[from], strides[MAX_OPERANDS];
  for (uint32_t k = 0; k < w->n; k++) strides[k] = w->strides[k][from];
  remove_dim(w, from);
  insert_one(w, w->rank - 1);
  w->dims[w->rank - 2] = dim;
  for (uint32_t k = 0; k < w->n; k++) w->strides[k][w->rank - 2] = strides[k];
}

// Whether the same operands are broadcast along both dims: then either as rows
// gives the same spec.
static bool are_alike(const partition_binder *w, int i, int j) {
  for (uint32_t k = 0; k < w->n; k++)
    if ((w->strides[k][i] == 0) != (w->strides[k][j] == 0)) return false;
  return true;
}

// Whether one call of the kernel with that dim as rows has enough work: then
// contiguous rows are better than more rows. Not with few columns, if pixels
// are repeated: two calls would write to each cache line.
static bool has_enough_work(const partition_binder *w, int rows) {
  int64_t cols = w->dims[w->rank - 1];
  return w->form != LB_FORM_MATMUL && cols >= ENOUGH_COLS &&
         w->dims[rows] * cols >= ENOUGH_ELEMENTS;
}

// Rows are the innermost dim (for a matmul of those along which B is broadcast,
// for an interpolation of those that are resized), or a longer one like it if
// that is short. There is always one dim of rows.
static void choose_rows(partition_binder *w) {
  int best = -1;
  for (int i = w->rank - 2; i >= 0; i--) {
    if (w->form == LB_FORM_MATMUL && w->strides[B][i] != 0) continue;
    if (w->interpolated && w->strides[X][i] != 0) continue;
    if (best < 0 || (w->dims[i] > w->dims[best] && are_alike(w, i, best) &&
                     !has_enough_work(w, best)))
      best = i;
  }
  if (best >= 0)
    make_rows(w, best);
  else
    insert_one(w, w->rank - 1);
}

// False if a row is not a single loop.
static bool order_dims(partition_binder *w) {
  int n_row = w->form == LB_FORM_ELTWISE      ? 0
              : w->form == LB_FORM_ROW_REDUCE ? w->n_row
                                              : 1;
  int kept = merge_dims(w, 0, w->rank - n_row);
  if (w->form == LB_FORM_ROW_REDUCE) n_row = merge_dims(w, kept, n_row);
  if (n_row > 1) return false;
  if (w->rank == 0 || (n_row == 0 && w->form == LB_FORM_ROW_REDUCE))
    insert_one(w, w->rank);
  choose_rows(w);
  return w->rank - 2 <= LB_BIND_LOOPS;
}

static void set_loops(const partition_binder *w) {
  lb_binding *b = w->out;
  int cols = w->rank - 1, rows = w->rank - 2;
  bool matmul = w->form == LB_FORM_MATMUL;
  b->n_operands = w->n;
  b->dims[LB_DIM_COLS] = w->dims[cols];
  b->dims[LB_DIM_ROWS] = w->dims[rows];
  b->n_outer = rows;
  for (int i = 0; i < rows; i++) b->outer[i] = w->dims[i];
  for (uint32_t k = 0; k < w->n; k++) {
    lb_bind_operand *o = &b->operands[k];
    o->offset = 0;
    if (!matmul || k != A) o->col = w->strides[k][cols];
    if (!matmul || k != B) o->row = w->strides[k][rows];
    for (int i = 0; i < rows; i++) o->outer[i] = w->strides[k][i];
  }
}

// Table offsets are in elements. False if row offsets vary along columns.
static bool set_tables(const partition_binder *w) {
  lb_binding *b = w->out;
  int n = w->interpolated ? lb_interp_tables(&b->interp) : 0;
  for (int i = 0; i < n; i++) {
    lb_bind_operand *o = &b->operands[TABLES + i];
    if (o->col != 0) return false;
    o->offset = lb_interp_offset(&b->interp, i);
  }
  if (w->interpolated) b->operands[X].row = 1;
  return !w->interpolated || b->operands[X].col == 1;
}

// -- a reduction as a window -------------------------------------------------

static bool reduces_columns(const partition_binder *w) {
  const int64_t *x = w->strides[A];
  int kept = w->rank - w->n_row - 1;
  lb_acc kind;
  while (kept >= 0 && is_unit(w, kept)) kept--;
  return w->form == LB_FORM_ROW_REDUCE && w->part->anchor == 0 &&
         w->n_row > 0 && kept >= 0 && x[kept] == 1 && x[w->rank - 1] != 1 &&
         lb_specgen_is_window(anchor_of(w), &kind);
}

// Removes the axes along a row from the iteration space: they become taps.
// Trailing dims that are always 1 are removed with them.
static bool convert_to_window(partition_binder *w) {
  int kept = w->rank - w->n_row, n = merge_dims(w, kept, w->n_row);
  int64_t *dims = w->out->dims;
  if (n < 1 || n > 2) return false;
  dims[LB_DIM_TAPS_Y] = n == 2 ? w->dims[kept] : 1;
  w->out->taps[0] = n == 2 ? w->strides[A][kept] : 0;
  dims[LB_DIM_TAPS_X] = w->dims[kept + n - 1];
  w->out->taps[1] = w->strides[A][kept + n - 1];
  while (n > 0) remove_dim(w, kept + --n);
  while (is_unit(w, w->rank - 1)) remove_dim(w, w->rank - 1);
  memset(w->accesses, 0, sizeof w->accesses);
  w->form = LB_FORM_WINDOW;
  return true;
}

// -- the spec ----------------------------------------------------------------

static lb_layout layout_of(const lb_bind_operand *o) {
  if (o->col == 1) return o->row == 0 ? LB_LAYOUT_PER_COL : LB_LAYOUT_FULL;
  if (o->col != 0) return LB_LAYOUT_STRIDED;
  return o->row == 0 ? LB_LAYOUT_BROADCAST : LB_LAYOUT_PER_ROW;
}

// With a single loop, nothing is broadcast along rows.
static lb_layout input_layout(const partition_binder *w, uint32_t i) {
  const lb_bind_operand *o = w->out->operands;
  if (w->interpolated && i == X) return LB_LAYOUT_FULL;
  lb_layout layout = layout_of(&o[i]);
  bool flat = o[RESULT].row == 0 && count_acc_inputs(w) == 0;
  return flat && layout == LB_LAYOUT_PER_COL ? LB_LAYOUT_FULL : layout;
}

static lb_layout acc_input_layout(const partition_binder *w, uint32_t i) {
  const lb_bind_operand *o = &w->out->operands[i];
  if (i == B && !o->value) return w->part->panels;
  if (w->form == LB_FORM_WINDOW) return LB_LAYOUT_FULL;
  if (i == B && w->out->dims[LB_DIM_COLS] == 1) return LB_LAYOUT_FULL;
  return o->col == 1 ? LB_LAYOUT_FULL : LB_LAYOUT_STRIDED;
}

static lb_dtype operand_dtype(const partition_binder *w, uint32_t i) {
  const lb_value *v = w->out->operands[i].value;
  if (v) return v->info.dtype;
  if (!w->interpolated) return anchor_of(w)->in[1]->info.dtype;
  return lb_interp_is_row_offset(&w->out->interp, (int)i - TABLES) ? LB_I64
                                                                   : LB_F32;
}

// Inputs are the first nodes of the spec: operand i is node i - 1.
static uint8_t source_of(void *user, lb_specgen *e, uint32_t reader,
                         const lb_value *v) {
  const partition_binder *w = user;
  (void)e;
  return (uint8_t)(find(w, v, access_of(w, reader)) - 1);
}

static lb_layout result_layout(const partition_binder *w) {
  const lb_binding *b = w->out;
  if (w->form == LB_FORM_ROW_REDUCE && lb_specgen_reduces(anchor_of(w)))
    return LB_LAYOUT_PER_ROW;
  bool adjacent = b->operands[RESULT].col == 1 || b->dims[LB_DIM_COLS] == 1;
  return adjacent ? LB_LAYOUT_FULL : LB_LAYOUT_STRIDED;
}

static lb_memo_key key_of(const partition_binder *w) {
  lb_memo_key key = {.nodes = w->part->nodes,
                     .n_nodes = (uint8_t)w->part->n_nodes,
                     .form = (uint8_t)w->form,
                     .n_operands = (uint8_t)w->n};
  key.layouts[RESULT] = (uint8_t)result_layout(w);
  for (uint32_t i = 1; i < w->n; i++)
    key.layouts[i] = (uint8_t)(i <= count_acc_inputs(w) ? acc_input_layout(w, i)
                                                        : input_layout(w, i));
  return key;
}

static uint8_t emit_all(lb_specgen *e, partition_binder *w, int64_t count) {
  const lb_partition *p = w->part;
  lb_specgen_output m = {.nodes = p->nodes,
                         .n_nodes = p->n_nodes,
                         .anchor = p->anchor,
                         .has_acc = count_acc_inputs(w) > 0,
                         .count = count,
                         .source = source_of,
                         .user = w};
  return lb_specgen_nodes(e, &m);
}

static lb_status build_spec(partition_binder *w, bool *ok) {
  lb_binding *b = w->out;
  lb_memo_key key = key_of(w);
  bool window = w->form == LB_FORM_WINDOW;
  int64_t count = window ? b->dims[LB_DIM_TAPS_Y] * b->dims[LB_DIM_TAPS_X] : 0;
  *ok = lb_bind_known(w->part, &key, (double)count, b);
  if (*ok) return LB_OK;
  lb_specgen e;
  e.size_scalars = 0;
  e.interpolated = w->interpolated;
  lb_spec_begin(&e.b, w->form);
  for (uint32_t i = 1; i < w->n; i++)
    lb_spec_input(&e.b, operand_dtype(w, i), key.layouts[i]);
  lb_spec_output(&e.b, emit_all(&e, w, count), key.layouts[RESULT]);
  return lb_bind_new(w->part, &key, &e, b, ok);
}

static lb_status bind_form(partition_binder *w, bool *ok) {
  switch (w->form) {
    case LB_FORM_MATMUL: return bind_matmul(w, ok);
    case LB_FORM_ROW_REDUCE: return bind_row_op(w, ok);
    default: return bind_eltwise(w, ok);
  }
}

void lb_partition_fill_tables(const lb_binding *b, void *to) {
  lb_interp_fill(&b->interp, to);
}

lb_status lb_partition_bind_zones(const lb_partition *p, lb_binding *b,
                                  lb_zone_fn *zone, void *user) {
  return b->zones == 1 ? LB_OK : lb_window_bind_zones(p, b, zone, user);
}

lb_status lb_partition_bind(const lb_partition *p, lb_tensor_fn *tensor,
                            void *user, lb_binding *out, bool *ok) {
  if (p->form == LB_FORM_ATTENTION)
    return lb_attention_bind(p, tensor, user, out, ok);
  if (p->form == LB_FORM_CONV || p->form == LB_FORM_WINDOW)
    return lb_window_bind(p, tensor, user, out, ok);
  lb_bind_begin(out);
  partition_binder w;
  binder_init(&w, p, out);
  w.tensor = tensor, w.user = user;
  LB_TRY(bind_form(&w, ok));
  if (*ok) LB_TRY(add_values(&w, ok));
  if (*ok && reduces_columns(&w)) *ok = convert_to_window(&w);
  *ok = *ok && split_upsampled(&w) && order_dims(&w);
  if (!*ok) return LB_OK;
  set_loops(&w);
  *ok = set_tables(&w);
  return *ok ? build_spec(&w, ok) : LB_OK;
}
