// partition/bind.c -- a partition at concrete shapes: its spec, and the loops
// around the kernel.
//
// The *space* of a partition has the dims of its result; of a row operation
// those of its input, the axes along a row last. Every operand is walked along
// the space, with stride 0 where it repeats. Dims that all operands walk evenly
// are joined. What is left are cols, rows, and loops around the kernel.
//
// A reduction down columns that lie side by side is a window as high as they
// are.
#include <string.h>

#include "partition/attention.h"
#include "partition/interpolate.h"
#include "partition/known.h"
#include "partition/window.h"

#define MAX_OPERANDS (LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN)
#define ENOUGH_ELEMENTS 1024  // of a call
#define ENOUGH_COLS 32
enum { RESULT, A, B };   // operands; factors of a product, A alone of a window
enum { X = 1, TABLES };  // of a Resize that blends

typedef struct axes {  // of a tensor: which axis of the space each is
  int n;
  int8_t to[LB_MAX_RANK];  // -1: none, its dim is 1
} axes;

typedef struct walker {
  const lb_partition *part;
  lb_tensor_fn *tensor;
  void *user;
  lb_binding *out;
  lb_form form;
  axes before, after;  // of what nodes read up to the anchor, and after it
  int rank;
  int n_row;  // ROWS: axes along a row, the last ones
  int64_t dims[LB_MAX_RANK];
  int64_t strides[MAX_OPERANDS][LB_MAX_RANK];
  int64_t repeats[LB_MAX_RANK];  // MAP: elements for one of a SMALL operand
  int blended;                   // MAP: axes along which X is blended
  lb_manner manners[MAX_OPERANDS];
  uint32_t n;  // operands so far; the first is the result
} walker;

// Strides are not cleared: there is room for many more than there are.
static void walker_init(walker *w, const lb_partition *p, lb_binding *out) {
  w->part = p;
  w->out = out;
  w->form = p->form;
  w->n_row = 0;
  w->n = 0;
  w->blended = 0;
  w->before = w->after = (axes){0};
  memset(w->manners, 0, sizeof w->manners);
}

static const lb_node *anchor_of(const walker *w) {
  return w->part->nodes[w->part->anchor];
}

// -- operands ----------------------------------------------------------------

// Whether axis i of v is 1 at every shape: v repeats along it.
static bool is_one(const lb_value *v, const lb_tensor *t, int i) {
  return v->info.rank != t->rank ||
         (lb_dim_is_const(v->info.dims[i]) && v->info.dims[i].k == 1);
}

// Strides of t along the space; its dims line up with the last of the axes, and
// axis `skip` is not walked. An axis that happens to be 1 has the stride of a
// dense tensor, so that it is walked as at other shapes. False if t does not
// fit.
static bool add_strides(walker *w, const lb_value *v, const lb_tensor *t,
                        const axes *a, int skip) {
  int shift = a->n - t->rank;
  if (w->n == MAX_OPERANDS || shift < 0) return false;
  int64_t *strides = w->strides[w->n], inner = 1;
  bool small = w->manners[w->n] == LB_MANNER_SMALL;
  memset(strides, 0, (size_t)w->rank * sizeof *strides);
  for (int i = t->rank - 1; i >= 0; inner *= t->dims[i--]) {
    int to = a->to[shift + i];
    if (i == skip || (to < 0 && t->dims[i] == 1)) continue;
    if (to < 0) return false;
    int64_t dim = small ? w->dims[to] / w->repeats[to] : w->dims[to];
    if (t->dims[i] != 1 && t->dims[i] != dim) return false;
    if (t->dims[i] != 1)
      strides[to] = t->strides[i];
    else if (dim == 1 && !is_one(v, t, i))
      strides[to] = inner;
  }
  w->out->operands[w->n++].value = v;
  return true;
}

// How node `reader` reads: late what lies over the result of a reduction.
static lb_manner manner_of(const walker *w, uint32_t reader) {
  if (w->part->nodes[reader]->op == LB_OP_Resize) return LB_MANNER_SMALL;
  bool late = w->form == LB_FORM_ROW_REDUCE && reader > w->part->anchor;
  return late ? LB_MANNER_LATE : LB_MANNER_PLAIN;
}

static uint32_t count_factors(const walker *w) {
  return w->form == LB_FORM_MATMUL ? 2 : w->form == LB_FORM_WINDOW ? 1 : 0;
}

static int find(const walker *w, const lb_value *v, lb_manner how) {
  uint32_t first = RESULT + 1 + count_factors(w);
  for (uint32_t i = first; i < w->n; i++)
    if (w->out->operands[i].value == v && w->manners[i] == how) return (int)i;
  return -1;
}

// What is blended is not walked along the axes that change: kernels pick its
// rows by tables, which lie along them.
static bool add_blended(walker *w, const lb_value *v, const lb_tensor *t) {
  const lb_interp *b = &w->out->blend;
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

static lb_status add_value(walker *w, const lb_part_input *in, bool *ok) {
  lb_tensor t;
  LB_TRY(w->tensor(w->user, in->value, &t));
  if (in->single) *ok = lb_tensor_count(&t) == 1;
  axes channel = {.n = 1, .to = {w->before.to[1]}};
  const axes *a = in->manner == LB_MANNER_LATE ? &w->after
                  : in->channel                ? &channel
                                               : &w->before;
  if (w->n < MAX_OPERANDS) w->manners[w->n] = in->manner;
  bool blended = w->blended && in->manner == LB_MANNER_SMALL;
  *ok = *ok && (blended ? add_blended(w, in->value, &t)
                        : add_strides(w, in->value, &t, a, -1));
  return LB_OK;
}

static lb_status add_values(walker *w, bool *ok) {
  const lb_partition *p = w->part;
  lb_part_input room[LB_PART_INPUTS];
  const lb_part_input *in = p->inputs ? p->inputs : room;
  uint32_t n = p->inputs ? p->n_inputs : lb_partition_inputs(p, room);
  for (uint32_t i = 0; *ok && i < n; i++) LB_TRY(add_value(w, &in[i], ok));
  return LB_OK;
}

// -- the space ---------------------------------------------------------------

static axes all_axes(int rank) {
  axes a = {.n = rank};
  for (int i = 0; i < rank; i++) a.to[i] = (int8_t)i;
  return a;
}

static void set_space(walker *w, const lb_tensor *t) {
  w->rank = t->rank;
  memcpy(w->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
  w->before = w->after = all_axes(t->rank);
}

// Axes of x: those that are kept, then those along a row.
static void set_row_space(walker *w, const lb_tensor *x, uint32_t along) {
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

// The result of a reduction has the kept axes, and perhaps the others as 1.
static void set_result_axes(walker *w, const lb_tensor *y, uint32_t along) {
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

static bool has_elements(const walker *w) {
  for (int i = 0; i < w->rank; i++)
    if (w->dims[i] == 0) return false;
  return true;
}

static lb_status tensor_of(const walker *w, const lb_value *v, lb_tensor *out) {
  return w->tensor(w->user, v, out);
}

static const lb_value *result_of(const walker *w) {
  return w->part->nodes[w->part->n_nodes - 1]->out[0];
}

static lb_status walk_rows(walker *w, bool *ok) {
  lb_tensor x, y;
  uint32_t along;
  LB_TRY(tensor_of(w, anchor_of(w)->in[0], &x));
  LB_TRY(tensor_of(w, result_of(w), &y));
  *ok = lb_specgen_is_rows(anchor_of(w), &along);
  if (!*ok) return LB_OK;
  set_row_space(w, &x, along);
  set_result_axes(w, &y, along);
  *ok = has_elements(w) && add_strides(w, result_of(w), &y, &w->after, -1);
  return LB_OK;
}

// The Resize among the nodes, or NULL: there is at most one.
static const lb_node *resize_of(const walker *w) {
  for (uint32_t i = 0; i < w->part->n_nodes; i++)
    if (w->part->nodes[i]->op == LB_OP_Resize) return w->part->nodes[i];
  return NULL;
}

// How the Resize makes y of x: by repeating elements, or by blending them.
static bool find_resize(walker *w, const lb_node *n, const lb_tensor *x,
                        const lb_tensor *y) {
  if (!lb_interp_is(n)) return lb_specgen_repeats(n, x, y, w->repeats);
  if (!lb_interp_find(n, x, y, &w->out->blend)) return false;
  w->blended = w->out->blend.n;
  w->out->table_bytes = lb_interp_bytes(&w->out->blend);
  for (int i = 0; i < y->rank; i++) w->repeats[i] = 1;
  return true;
}

// What reads the Resize may be larger: then it repeats what was resized.
static lb_status walk_resize(walker *w, const lb_node *resize, bool *ok) {
  lb_tensor x, y;
  LB_TRY(tensor_of(w, resize->in[0], &x));
  LB_TRY(tensor_of(w, resize->out[0], &y));
  *ok = y.rank == w->rank;
  for (int i = 0; *ok && i < y.rank; i++) *ok = y.dims[i] == w->dims[i];
  *ok = *ok && find_resize(w, resize, &x, &y);
  return LB_OK;
}

static lb_status walk_map(walker *w, bool *ok) {
  const lb_node *resize = resize_of(w);
  lb_tensor y;
  LB_TRY(tensor_of(w, result_of(w), &y));
  set_space(w, &y);
  *ok = true;
  if (resize) LB_TRY(walk_resize(w, resize, ok));
  *ok =
      *ok && has_elements(w) && add_strides(w, result_of(w), &y, &w->after, -1);
  return LB_OK;
}

// -- products ----------------------------------------------------------------

static void swap_last(lb_tensor *t) {
  int row = t->rank - 2, col = t->rank - 1;
  int64_t dim = t->dims[row], stride = t->strides[row];
  t->dims[row] = t->dims[col], t->strides[row] = t->strides[col];
  t->dims[col] = dim, t->strides[col] = stride;
}

// A factor without its dim k, which is its last one or the one before. Its
// stride along k and, for b, along columns are the kernel's.
static lb_status add_factor(walker *w, int which, bool *ok) {
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

static void add_packed(walker *w, bool *ok) {
  const lb_node *n = anchor_of(w);
  const lb_vinfo *b = &n->in[1]->info;
  bool turned = lb_attr_int(n, "transB", 0) != 0;
  *ok = *ok && b->dims[b->rank - (turned ? 1 : 2)].k == w->out->dims[LB_DIM_K];
  memset(w->strides[w->n], 0, sizeof w->strides[w->n]);
  w->out->operands[w->n++] = (lb_bind_operand){.value = NULL};
}

const lb_value *lb_partition_factor(const lb_partition *p) {
  const lb_node *n = p->nodes[p->anchor];
  bool loose = p->form == LB_FORM_MATMUL && !p->packed && !p->recurrent &&
               lb_attr_int(n, "transB", 0) == 0;
  return loose ? n->in[1] : NULL;
}

static lb_status walk_product(walker *w, bool *ok) {
  LB_TRY(walk_map(w, ok));
  if (*ok) LB_TRY(add_factor(w, A, ok));
  if (*ok && w->part->packed)
    add_packed(w, ok);
  else if (*ok)
    LB_TRY(add_factor(w, B, ok));
  bool quads = w->part->panels == LB_LAYOUT_PANEL_K4;
  *ok = *ok && w->out->dims[LB_DIM_K] > 0 &&
        (!quads || w->out->operands[A].col == 1);
  return LB_OK;
}

// -- loops -------------------------------------------------------------------

static bool is_idle(const walker *w, int at) {
  for (uint32_t k = 0; k < w->n; k++)
    if (w->strides[k][at] != 0) return false;
  return w->dims[at] == 1;
}

static void remove_dim(walker *w, int at) {
  w->rank--;
  for (int i = at; i < w->rank; i++) {
    w->dims[i] = w->dims[i + 1];
    for (uint32_t k = 0; k < w->n; k++) w->strides[k][i] = w->strides[k][i + 1];
  }
}

static bool joins(const walker *w, int outer, int inner) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->strides[i][outer] != w->strides[i][inner] * w->dims[inner])
      return false;
  return true;
}

// Joins what can be joined of the dims from `first` on, `n` of them; those that
// are always 1 vanish. Returns how many are left.
static int join_dims(walker *w, int first, int n) {
  for (int i = first + n - 1; i >= first; i--)
    if (is_idle(w, i)) remove_dim(w, i), n--;
  for (int i = first + n - 2; i >= first; i--)
    if (joins(w, i, i + 1)) {
      w->dims[i + 1] *= w->dims[i];
      remove_dim(w, i);
      n--;
    }
  return n;
}

static void insert_one(walker *w, int at) {
  for (int i = w->rank++; i > at; i--) {
    w->dims[i] = w->dims[i - 1];
    for (uint32_t k = 0; k < w->n; k++) w->strides[k][i] = w->strides[k][i - 1];
  }
  w->dims[at] = 1;
  for (uint32_t k = 0; k < w->n; k++) w->strides[k][at] = 0;
}

// An axis along which something repeats becomes two. That of the repeats stands
// before the last two of the space, where it is a loop around the kernel.
static void split_axis(walker *w, int i, int64_t repeats) {
  int at = w->rank - 2;
  insert_one(w, at);
  if (i >= at) i++;
  w->dims[at] = repeats;
  w->dims[i] /= repeats;
  for (uint32_t k = 0; k < w->n; k++) {
    if (w->manners[k] == LB_MANNER_SMALL) continue;
    w->strides[k][at] = w->strides[k][i];
    w->strides[k][i] *= repeats;
  }
}

// The last axis repeats nothing, so the one before is the last that may.
static bool split_repeats(walker *w) {
  int rank = w->rank;
  for (int i = 0; resize_of(w) && i < rank; i++) {
    if (w->repeats[i] == 1) continue;
    if (w->rank == LB_MAX_RANK) return false;
    split_axis(w, i < rank - 2 ? i : w->rank - 2, w->repeats[i]);
  }
  return true;
}

// Makes `from` the dim before the last.
static void make_rows(walker *w, int from) {
  int64_t dim = w->dims[from], strides[MAX_OPERANDS];
  for (uint32_t k = 0; k < w->n; k++) strides[k] = w->strides[k][from];
  remove_dim(w, from);
  insert_one(w, w->rank - 1);
  w->dims[w->rank - 2] = dim;
  for (uint32_t k = 0; k < w->n; k++) w->strides[k][w->rank - 2] = strides[k];
}

// Whether the same operands repeat along both dims: then either gives the same
// spec as rows.
static bool are_alike(const walker *w, int i, int j) {
  for (uint32_t k = 0; k < w->n; k++)
    if ((w->strides[k][i] == 0) != (w->strides[k][j] == 0)) return false;
  return true;
}

// Whether a call of the kernel with that dim as rows has work enough: then what
// lies side by side is better than more rows. Of few columns it is not, where
// pixels repeat: two would write to each line of the cache.
static bool is_enough(const walker *w, int rows) {
  int64_t cols = w->dims[w->rank - 1];
  return w->form != LB_FORM_MATMUL && cols >= ENOUGH_COLS &&
         w->dims[rows] * cols >= ENOUGH_ELEMENTS;
}

// Rows are the innermost dim, for a product of those along which b stays the
// same, for what is blended of those that change; or a longer one like it, if
// that is short. There is always one dim of rows.
static void choose_rows(walker *w) {
  int best = -1;
  for (int i = w->rank - 2; i >= 0; i--) {
    if (w->form == LB_FORM_MATMUL && w->strides[B][i] != 0) continue;
    if (w->blended && w->strides[X][i] != 0) continue;
    if (best < 0 || (w->dims[i] > w->dims[best] && are_alike(w, i, best) &&
                     !is_enough(w, best)))
      best = i;
  }
  if (best >= 0)
    make_rows(w, best);
  else
    insert_one(w, w->rank - 1);
}

// False if a row is no single loop.
static bool order_dims(walker *w) {
  int n_row = w->form == LB_FORM_ELTWISE      ? 0
              : w->form == LB_FORM_ROW_REDUCE ? w->n_row
                                              : 1;
  int kept = join_dims(w, 0, w->rank - n_row);
  if (w->form == LB_FORM_ROW_REDUCE) n_row = join_dims(w, kept, n_row);
  if (n_row > 1) return false;
  if (w->rank == 0 || (n_row == 0 && w->form == LB_FORM_ROW_REDUCE))
    insert_one(w, w->rank);
  choose_rows(w);
  return w->rank - 2 <= LB_BIND_LOOPS;
}

static void set_loops(const walker *w) {
  lb_binding *b = w->out;
  int cols = w->rank - 1, rows = w->rank - 2;
  bool product = w->form == LB_FORM_MATMUL;
  b->n_operands = w->n;
  b->dims[LB_DIM_COLS] = w->dims[cols];
  b->dims[LB_DIM_ROWS] = w->dims[rows];
  b->n_outer = rows;
  for (int i = 0; i < rows; i++) b->outer[i] = w->dims[i];
  for (uint32_t k = 0; k < w->n; k++) {
    lb_bind_operand *o = &b->operands[k];
    o->offset = 0;
    if (!product || k != A) o->col = w->strides[k][cols];
    if (!product || k != B) o->row = w->strides[k][rows];
    for (int i = 0; i < rows; i++) o->outer[i] = w->strides[k][i];
  }
}

// Places are counted in elements. False if they change from column to column.
static bool set_tables(const walker *w) {
  lb_binding *b = w->out;
  int n = w->blended ? lb_interp_tables(&b->blend) : 0;
  for (int i = 0; i < n; i++) {
    lb_bind_operand *o = &b->operands[TABLES + i];
    if (o->col != 0) return false;
    o->offset = lb_interp_offset(&b->blend, i);
  }
  if (w->blended) b->operands[X].row = 1;
  return !w->blended || b->operands[X].col == 1;
}

// -- a reduction as a window -------------------------------------------------

static bool is_down(const walker *w) {
  const int64_t *x = w->strides[A];
  int kept = w->rank - w->n_row - 1;
  lb_acc kind;
  while (kept >= 0 && is_idle(w, kept)) kept--;
  return w->form == LB_FORM_ROW_REDUCE && w->part->anchor == 0 &&
         w->n_row > 0 && kept >= 0 && x[kept] == 1 && x[w->rank - 1] != 1 &&
         lb_specgen_is_window(anchor_of(w), &kind);
}

// Takes the axes along a row out of the space: they are runs and steps. What is
// always 1 behind the columns goes with them.
static bool turn_into_window(walker *w) {
  int kept = w->rank - w->n_row, n = join_dims(w, kept, w->n_row);
  int64_t *dims = w->out->dims;
  if (n < 1 || n > 2) return false;
  dims[LB_DIM_LEN] = n == 2 ? w->dims[kept] : 1;
  w->out->taps[0] = n == 2 ? w->strides[A][kept] : 0;
  dims[LB_DIM_STEPS] = w->dims[kept + n - 1];
  w->out->taps[1] = w->strides[A][kept + n - 1];
  while (n > 0) remove_dim(w, kept + --n);
  while (is_idle(w, w->rank - 1)) remove_dim(w, w->rank - 1);
  memset(w->manners, 0, sizeof w->manners);
  w->form = LB_FORM_WINDOW;
  return true;
}

// -- the spec ----------------------------------------------------------------

static lb_layout layout_of(const lb_bind_operand *o) {
  if (o->col == 1) return o->row == 0 ? LB_LAYOUT_PER_COL : LB_LAYOUT_FULL;
  if (o->col != 0) return LB_LAYOUT_STRIDED;
  return o->row == 0 ? LB_LAYOUT_BROADCAST : LB_LAYOUT_PER_ROW;
}

// Where there is one loop alone nothing repeats over rows.
static lb_layout input_layout(const walker *w, uint32_t i) {
  const lb_bind_operand *o = w->out->operands;
  if (w->blended && i == X) return LB_LAYOUT_FULL;
  lb_layout layout = layout_of(&o[i]);
  bool flat = o[RESULT].row == 0 && count_factors(w) == 0;
  return flat && layout == LB_LAYOUT_PER_COL ? LB_LAYOUT_FULL : layout;
}

static lb_layout factor_layout(const walker *w, uint32_t i) {
  const lb_bind_operand *o = &w->out->operands[i];
  if (i == B && !o->value) return w->part->panels;
  if (w->form == LB_FORM_WINDOW) return LB_LAYOUT_FULL;
  if (i == B && w->out->dims[LB_DIM_COLS] == 1) return LB_LAYOUT_FULL;
  return o->col == 1 ? LB_LAYOUT_FULL : LB_LAYOUT_STRIDED;
}

static lb_dtype operand_dtype(const walker *w, uint32_t i) {
  const lb_value *v = w->out->operands[i].value;
  if (v) return v->info.dtype;
  if (!w->blended) return anchor_of(w)->in[1]->info.dtype;
  return lb_interp_is_place(&w->out->blend, (int)i - TABLES) ? LB_I64 : LB_F32;
}

// Inputs are the first nodes of the spec: operand i is node i - 1.
static uint8_t source_of(void *user, lb_specgen *e, uint32_t reader,
                         const lb_value *v) {
  const walker *w = user;
  (void)e;
  return (uint8_t)(find(w, v, manner_of(w, reader)) - 1);
}

static lb_layout result_layout(const walker *w) {
  const lb_binding *b = w->out;
  if (w->form == LB_FORM_ROW_REDUCE && lb_specgen_reduces(anchor_of(w)))
    return LB_LAYOUT_PER_ROW;
  bool adjacent = b->operands[RESULT].col == 1 || b->dims[LB_DIM_COLS] == 1;
  return adjacent ? LB_LAYOUT_FULL : LB_LAYOUT_STRIDED;
}

static lb_memo_key key_of(const walker *w) {
  lb_memo_key key = {.nodes = w->part->nodes,
                     .n_nodes = (uint8_t)w->part->n_nodes,
                     .form = (uint8_t)w->form,
                     .n_operands = (uint8_t)w->n};
  key.layouts[RESULT] = (uint8_t)result_layout(w);
  for (uint32_t i = 1; i < w->n; i++)
    key.layouts[i] = (uint8_t)(i <= count_factors(w) ? factor_layout(w, i)
                                                     : input_layout(w, i));
  return key;
}

static uint8_t emit_all(lb_specgen *e, walker *w, int64_t count) {
  const lb_partition *p = w->part;
  lb_specgen_output m = {.nodes = p->nodes,
                         .n_nodes = p->n_nodes,
                         .anchor = p->anchor,
                         .product = count_factors(w) > 0,
                         .count = count,
                         .source = source_of,
                         .user = w};
  return lb_specgen_nodes(e, &m);
}

static lb_status build_spec(walker *w, bool *ok) {
  lb_binding *b = w->out;
  lb_memo_key key = key_of(w);
  bool window = w->form == LB_FORM_WINDOW;
  int64_t count = window ? b->dims[LB_DIM_LEN] * b->dims[LB_DIM_STEPS] : 0;
  *ok = lb_bind_known(w->part, &key, (double)count, b);
  if (*ok) return LB_OK;
  lb_specgen e;
  e.own = 0;
  e.blended = w->blended;
  lb_spec_begin(&e.b, w->form);
  for (uint32_t i = 1; i < w->n; i++)
    lb_spec_input(&e.b, operand_dtype(w, i), key.layouts[i]);
  lb_spec_output(&e.b, emit_all(&e, w, count), key.layouts[RESULT]);
  return lb_bind_new(w->part, &key, &e, b, ok);
}

static lb_status walk(walker *w, bool *ok) {
  switch (w->form) {
    case LB_FORM_MATMUL: return walk_product(w, ok);
    case LB_FORM_ROW_REDUCE: return walk_rows(w, ok);
    default: return walk_map(w, ok);
  }
}

void lb_partition_fill_tables(const lb_binding *b, void *to) {
  lb_interp_fill(&b->blend, to);
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
  walker w;
  walker_init(&w, p, out);
  w.tensor = tensor, w.user = user;
  LB_TRY(walk(&w, ok));
  if (*ok) LB_TRY(add_values(&w, ok));
  if (*ok && is_down(&w)) *ok = turn_into_window(&w);
  *ok = *ok && split_repeats(&w) && order_dims(&w);
  if (!*ok) return LB_OK;
  set_loops(&w);
  *ok = set_tables(&w);
  return *ok ? build_spec(&w, ok) : LB_OK;
}
