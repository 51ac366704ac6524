// partition/weights.c -- packs new weights, one block per call.
#include "partition/weights.h"

#include <string.h>

#include "base/alloc.h"
#include "partition/recurrent.h"
#include "partition/window.h"
#include "spec/panel.h"

typedef struct lb_weights_block {
  struct lb_weights_block *next;  // in the arena `keys`
  void *data;                     // device memory
  size_t bytes;
} weights_block;

// Everything that determines the packed bytes.
typedef struct weights_key {
  const lb_tensor *constant;  // graphs of one model share its constants
  int32_t form;
  int32_t layout;
  int64_t order;  // element order; see order_of
} weights_key;
_Static_assert(sizeof(weights_key) == 24, "compared as bytes");

lb_status lb_weights_init(lb_weights *w, lb_device *device) {
  *w = (lb_weights){.device = device};
  lb_arena_init(&w->keys, 4 << 10);
  return lb_lock_init(&w->lock);
}

void lb_weights_fini(lb_weights *w) {
  for (const weights_block *b = w->blocks; b; b = b->next)
    lb_device_free(w->device, NULL, b->data, b->bytes);
  lb_map_fini(&w->map);
  lb_arena_fini(&w->keys);
  lb_lock_fini(&w->lock);
}

// -- one partition -----------------------------------------------------------

static const lb_node *anchor_of(const lb_partition *part) {
  return part->nodes[part->anchor];
}

// Operand B of a matmul as a matrix, if it is a constant one.
static bool constant_b(const lb_node *n, lb_matrix *out) {
  const lb_tensor *b = lb_value_const(n->in[1]);
  if (!b || lb_tensor_count(b) == 0) return false;
  int row = b->rank - 2, col = b->rank - 1;
  for (int i = 0; i < row; i++)
    if (b->dims[i] != 1) return false;
  if (lb_attr_int(n, "transB", 0) != 0) row = col, col = b->rank - 2;
  bool f32 = b->dtype == LB_F32;
  bool k2 = f32 && lb_panel_prefers_k2(b->dims[row], b->dims[col]);
  *out = (lb_matrix){.data = b->data,
                     .rows = b->dims[row],
                     .cols = b->dims[col],
                     .row_stride = b->strides[row],
                     .col_stride = b->strides[col],
                     .elem = lb_dtype_size(b->dtype),
                     .flush = f32,
                     .layout = n->op == LB_OP_MatMulInteger ? LB_LAYOUT_PANEL_K4
                               : k2                         ? LB_LAYOUT_PANEL_K2
                                                            : LB_LAYOUT_PANEL};
  return true;
}

static bool is_window(const lb_partition *part) {
  return part->form == LB_FORM_CONV || part->form == LB_FORM_WINDOW;
}

lb_layout lb_weights_layout(const lb_partition *part) {
  const lb_node *n = anchor_of(part);
  lb_matrix m;
  if (part->form == LB_FORM_CONV) return lb_window_panels(n);
  bool matmul = part->form == LB_FORM_MATMUL && !part->recurrent;
  return matmul && constant_b(n, &m) ? m.layout : LB_LAYOUT_PANEL;
}

// Bytes of the packed weights; 0: there are none.
static bool packed_size(const lb_partition *part, size_t *bytes) {
  const lb_node *n = anchor_of(part);
  lb_matrix m;
  *bytes = 0;
  if (part->recurrent) return lb_recurrent_pack_size(n, bytes);
  if (is_window(part)) return lb_window_pack_size(n, part->form, bytes);
  if (part->form != LB_FORM_MATMUL || !constant_b(n, &m)) return true;
  return lb_panel_size(&m, bytes);
}

static lb_status pack(const lb_partition *part, void *to) {
  const lb_node *n = anchor_of(part);
  lb_matrix m;
  if (is_window(part)) return lb_window_pack(n, part->form, to);
  if (part->recurrent)
    lb_recurrent_pack(n, to);
  else if (constant_b(n, &m))
    lb_panel_pack(&m, to);
  return LB_OK;
}

// The order in which the operator reads the constant, as far as form and layout
// do not determine it. Values of recurrences differ from those of matmuls.
static int64_t order_of(const lb_partition *part) {
  const lb_node *n = anchor_of(part);
  if (part->recurrent) return 2 + lb_recurrent_resets_first(n);
  if (is_window(part)) return lb_window_pack_order(n);
  return lb_attr_int(n, "transB", 0) != 0;
}

static weights_key key_of(const lb_partition *part) {
  const lb_node *n = anchor_of(part);
  const lb_value *v = part->recurrent ? lb_recurrent_weights(n) : n->in[1];
  return (weights_key){.constant = lb_value_const(v),
                       .form = (int32_t)part->form,
                       .layout = (int32_t)part->panels,
                       .order = order_of(part)};
}

// -- all partitions -----------------------------------------------------------

typedef struct missing {  // a partition whose weights are not packed yet
  lb_partition *part;
  weights_key *key;  // in the arena `keys`
  size_t bytes;
} missing;

static size_t aligned(size_t bytes) {
  return (bytes + LB_TENSOR_ALIGN - 1) / LB_TENSOR_ALIGN * LB_TENSOR_ALIGN;
}

// Sets existing weights, and lists missing ones. A constant that several
// partitions read may be listed several times.
static lb_status find(lb_weights *w, lb_partition *const *parts, uint32_t n,
                      missing *list, uint32_t *count, size_t *total) {
  *count = 0;
  *total = 0;
  for (uint32_t i = 0; i < n; i++) {
    size_t bytes;
    if (!packed_size(parts[i], &bytes) || bytes > SIZE_MAX / 2 - *total)
      return lb_oom();
    if (!bytes) continue;
    weights_key k = key_of(parts[i]);
    parts[i]->packed = lb_map_get(&w->map, &k, sizeof k);
    if (parts[i]->packed) continue;
    missing *m = &list[(*count)++];
    *m = (missing){parts[i], lb_arena_new(&w->keys, weights_key, 1),
                   aligned(bytes)};
    if (!m->key) return lb_oom();
    *m->key = k;
    *total += m->bytes;
  }
  return LB_OK;
}

static lb_status copy_in(lb_weights *w, void *to, const void *from,
                         size_t bytes) {
  lb_stream q = {.device = w->device};
  return lb_device_copy(&q, LB_COPY_IN, to, from, bytes);
}

// `to` is host memory for what will be at device address `at`. The map gets
// the address last: after a failure no key refers to unwritten memory.
static lb_status pack_one(lb_weights *w, const missing *m, char *to, char *at,
                          size_t *used) {
  const char *packed = lb_map_get(&w->map, m->key, sizeof *m->key);
  if (!packed) {
    packed = at + *used;
    LB_TRY(pack(m->part, to + *used));
    if (to != at) LB_TRY(copy_in(w, at + *used, to + *used, m->bytes));
    LB_TRY(lb_map_put(&w->map, m->key, sizeof *m->key, at + *used, NULL));
    *used += m->bytes;
    w->packings++;
  }
  m->part->packed = packed;
  return LB_OK;
}

static lb_status new_block(lb_weights *w, size_t bytes, weights_block **out) {
  weights_block *b = *out = lb_arena_new(&w->keys, weights_block, 1);
  if (!b) return lb_oom();
  *b = (weights_block){.next = w->blocks, .bytes = bytes};
  b->data = lb_device_alloc(w->device, NULL, bytes);
  if (!b->data) return lb_oom();
  w->blocks = b;
  return LB_OK;
}

// Packs all in one block, so that large ones need few pages.
static lb_status pack_missing(lb_weights *w, const missing *list, uint32_t n,
                              size_t total) {
  bool shares = lb_device_shares(w->device);
  weights_block *b;
  size_t used = 0;
  LB_TRY(new_block(w, total, &b));
  char *to = shares ? b->data : lb_alloc_get(NULL, total);
  lb_status st = to ? LB_OK : lb_oom();
  for (uint32_t i = 0; i < n && !lb_failed(st); i++)
    st = pack_one(w, &list[i], to, b->data, &used);
  if (!shares) lb_alloc_put(NULL, to);
  w->bytes += used;
  return st;
}

lb_status lb_weights_pack(lb_weights *w, lb_partition *const *parts,
                          uint32_t n) {
  lb_arena scratch;
  uint32_t count;
  size_t total;
  lb_arena_init(&scratch, 16 << 10);
  missing *list = lb_arena_new(&scratch, missing, n);
  lb_status st = list ? LB_OK : lb_oom();
  lb_lock_take(&w->lock);
  if (!lb_failed(st)) st = find(w, parts, n, list, &count, &total);
  if (!lb_failed(st) && count) st = pack_missing(w, list, count, total);
  lb_lock_give(&w->lock);
  lb_arena_fini(&scratch);
  return st;
}

// -- other constants ----------------------------------------------------------

typedef struct host_range {  // host memory of which the device has a copy
  const void *host;
  size_t bytes;
} host_range;

static lb_status copy_constant(lb_weights *w, const host_range *at,
                               const void **out) {
  weights_block *b;
  *out = lb_map_get(&w->map, at, sizeof *at);
  if (*out) return LB_OK;
  host_range *kept = lb_arena_new(&w->keys, host_range, 1);
  if (!kept) return lb_oom();
  *kept = *at;
  LB_TRY(new_block(w, at->bytes, &b));
  LB_TRY(copy_in(w, b->data, at->host, at->bytes));
  *out = b->data;
  return lb_map_put(&w->map, kept, sizeof *kept, b->data, NULL);
}

lb_status lb_weights_device_address(lb_weights *w, const void *host,
                                    size_t bytes, const void **out) {
  *out = host;
  if (lb_device_shares(w->device) || bytes == 0) return LB_OK;
  lb_lock_take(&w->lock);
  lb_status st = copy_constant(w, &(host_range){host, bytes}, out);
  lb_lock_give(&w->lock);
  return st;
}
