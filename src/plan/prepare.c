// plan/prepare.c -- builds launches with everything but the base addresses of a
// run.
#include <string.h>

#include "partition/weights.h"
#include "plan/planner.h"

// -- arguments and strides ---------------------------------------------------

static void fill_dims(uint64_t *args, const lb_launch_template *r,
                      const lb_binding *b) {
  for (int i = 0; i < r->n_dims; i++)
    args[r->cells.dims + i] = (uint64_t)b->dims[i];
  for (int i = 0; i < r->n_scalars; i++)
    args[r->cells.scalars + i] = b->scalars[i];
}

// Fills the argument cells that shapes determine.
static void fill_args(uint64_t *args, const lb_launch_template *r,
                      const lb_binding *b) {
  for (int i = 0; i < r->n_operands; i++) args[i] = 0;
  fill_dims(args, r, b);
  for (uint32_t i = 0; i < r->n_operands; i++) {
    uint64_t *cell = &args[r->cells.out_strides + 2 * i];
    int64_t panels = r->operands[i].panels, row = b->operands[i].row;
    cell[0] = (uint64_t)(panels ? b->dims[LB_DIM_K] * panels : row);
    cell[1] = (uint64_t)b->operands[i].col;
  }
  for (int i = 0; r->taps && i < 4; i++)
    args[r->cells.taps + i] = (uint64_t)b->taps[i];
}

// A panel is several columns wide: the stride of one column is an average.
static void fill_strides(int64_t *to, const lb_launch_template_operand *r,
                         const lb_bind_operand *o, const lb_binding *b) {
  int64_t col = r->panels ? b->dims[LB_DIM_K] : o->col, size = r->size;
  to[0] = r->rows ? o->row * size : 0;
  to[1] = r->cols ? col * size : 0;
  for (int l = 0; l < b->n_outer; l++) to[2 + l] = o->outer[l] * size;
}

// -- addresses of operands ----------------------------------------------------

static int64_t address(const void *at) { return (int64_t)(intptr_t)at; }

// Copies `bytes` bytes to device memory, which the plan owns.
static lb_status copy_to_device(lb_planner *p, const void *host, size_t bytes,
                                const void **out) {
  lb_stream q = {.device = p->prog->slots->device};
  lb_plan_copy *c = p->plan->copies;
  while (c && (c->host != host || c->bytes != bytes)) c = c->next;
  if (!c) {
    c = lb_arena_new(p->arena, lb_plan_copy, 1);
    void *data = c ? lb_device_alloc(q.device, NULL, bytes) : NULL;
    if (!data) return lb_oom();
    *c = (lb_plan_copy){p->plan->copies, host, bytes, data};
    p->plan->copies = c;
    LB_TRY(lb_device_copy(&q, LB_COPY_IN, data, host, bytes));
  }
  *out = c->data;
  return LB_OK;
}

static bool is_of_graph(const lb_planner *p, const lb_tensor *t,
                        uint32_t value) {
  return value != LB_NO_VALUE && p->prog->graph->values[value]->info.data == t;
}

// The address of a constant on the device. Constants of the graph are copied
// once for all plans.
static lb_status constant_at(lb_planner *p, const lb_tensor *t, uint32_t value,
                             int64_t *out) {
  const void *at;
  size_t bytes, before;
  *out = address(t->data);
  if (lb_device_shares(p->prog->slots->device)) return LB_OK;
  LB_TRY(lb_tensor_reach(t, &bytes, &before));
  if (bytes == 0) return LB_OK;
  const char *host = (const char *)t->data - before;
  LB_TRY(is_of_graph(p, t, value)
             ? lb_weights_device_address(p->prog->weights, host, bytes, &at)
             : copy_to_device(p, host, bytes, &at));
  *out = address(at) + (int64_t)before;
  return LB_OK;
}

lb_status lb_planner_address(lb_planner *p, const lb_step_operand *o,
                             lb_address *out) {
  *out = (lb_address){o->offset, lb_planner_base(p, o->storage, o->index),
                      o->value};
  if (o->storage != LB_STORAGE_NONE) return LB_OK;
  return constant_at(p, o->tensor, o->value, &out->offset);
}

lb_status lb_planner_value_address(lb_planner *p, const lb_partition *part,
                                   const lb_value *v, lb_address *out) {
  const lb_pvalue *s;
  *out = (lb_address){.base = LB_BASE_NONE, .value = LB_NO_VALUE};
  if (!v) out->offset = address(part->packed);
  if (!v) return LB_OK;
  LB_TRY(lb_planner_state(p, v, &s));
  out->value = s->value;
  if (s->buffer == LB_NO_BUFFER)
    return constant_at(p, s->tensor, s->value, &out->offset);
  out->base = p->values.bufs[s->buffer].base;
  out->offset = p->values.bufs[s->buffer].virtual_offset + s->offset;
  return LB_OK;
}

// Operands without a value are in the tables, if there are any.
static lb_status make_tables(lb_planner *p, const lb_binding *b,
                             lb_address *out) {
  if (b->table_bytes == 0) return LB_OK;
  void *tables = lb_arena_alloc(p->arena, b->table_bytes, sizeof(int64_t));
  if (!tables) return lb_oom();
  lb_partition_fill_tables(b, tables);
  const void *at = tables;
  if (!lb_device_shares(p->prog->slots->device))
    LB_TRY(copy_to_device(p, tables, b->table_bytes, &at));
  for (uint32_t i = 0; i < b->n_operands; i++)
    if (!b->operands[i].value) out[i].offset = address(at);
  return LB_OK;
}

lb_status lb_planner_addresses(lb_planner *p, const lb_partition *part,
                               const lb_binding *b, lb_address *out) {
  for (uint32_t i = 0; i < b->n_operands; i++)
    LB_TRY(lb_planner_value_address(p, part, b->operands[i].value, &out[i]));
  return make_tables(p, b, out);
}

// -- launches ----------------------------------------------------------------

typedef struct prepare_parts {  // arrays of a launch, stored behind it
  lb_address *addresses;
  uint64_t *args;
  int64_t *loops, *strides;
} prepare_parts;

_Static_assert(sizeof(lb_launch) % 8 == 0 && sizeof(lb_address) % 8 == 0,
               "words follow");
_Static_assert(LB_BIND_LOOPS <= LB_LAUNCH_LOOPS, "a launch has all loops");

// Allocates a launch with `n_strides` strides for each operand.
static lb_launch *new_launch(lb_planner *p, const lb_launch_template *r,
                             const lb_binding *b, size_t n_args,
                             size_t n_strides, prepare_parts *out) {
  size_t n = r->n_operands;
  size_t words = n_args + (size_t)b->n_outer + n_strides * n;
  char *at = lb_arena_alloc(
      p->arena, sizeof(lb_launch) + n * sizeof(lb_address) + words * 8, 8);
  if (!at) return NULL;
  out->addresses = (lb_address *)(void *)(at + sizeof(lb_launch));
  out->args = (uint64_t *)(void *)(out->addresses + n);
  out->loops = (int64_t *)(void *)(out->args + n_args);
  out->strides = out->loops + b->n_outer;
  return (lb_launch *)(void *)at;
}

// Fills everything that differs between zones.
static void fill_launch(const lb_device *d, lb_launch *l,
                        const lb_launch_template *r, const lb_binding *b,
                        const lb_address *at, const prepare_parts *to) {
  int64_t outer = 1;
  for (int i = 0; i < b->n_outer; i++) outer *= to->loops[i] = b->outer[i];
  for (uint32_t i = 0; i < r->n_operands; i++) {
    to->addresses[i] = at[i];
    to->addresses[i].offset += b->operands[i].offset * r->operands[i].size;
  }
  l->slot = r->slot;
  l->next = NULL;
  lb_device_prepare(d, &r->basis, b->dims, outer, &l->split);
  l->n_operands = r->n_operands;
  l->n_args = r->cells.count;
  l->n_loops = (uint8_t)b->n_outer;
  l->addresses = to->addresses;
  l->args = to->args;
  l->strides = to->strides;
  l->loops = to->loops;
  l->steps = NULL;
  l->segments = NULL;
}

static lb_status add_segments(lb_planner *p, const lb_launch_template *r,
                              const lb_binding *b, lb_launch *l) {
  lb_segments *s = lb_arena_new(p->arena, lb_segments, 1);
  int64_t *steps = lb_arena_new(p->arena, int64_t, r->n_operands);
  if (!s || !steps) return lb_oom();
  for (uint32_t i = 0; i < r->n_operands; i++)
    steps[i] = b->operands[i].row * r->operands[i].size;
  s->steps = steps;
  l->segments = s;
  return lb_planner_value_address(p, NULL, b->segments, &s->offsets);
}

lb_status lb_planner_prepare(lb_planner *p, const lb_launch_template *r,
                             const lb_binding *b, const lb_address *at,
                             lb_launch **out) {
  prepare_parts to;
  size_t each = 2 + (size_t)b->n_outer;
  lb_launch *l = *out = new_launch(p, r, b, r->cells.count, each, &to);
  if (!l) return lb_oom();
  fill_args(to.args, r, b);
  for (uint32_t i = 0; i < r->n_operands; i++)
    fill_strides(to.strides + each * i, &r->operands[i], &b->operands[i], b);
  fill_launch(p->prog->slots->device, l, r, b, at, &to);
  return b->segments ? add_segments(p, r, b, l) : LB_OK;
}

// For launches with the same strides.
static bool has_args(const lb_launch *l, const lb_launch_template *r,
                     const lb_binding *b) {
  for (int i = 0; i < r->n_dims; i++)
    if (l->args[r->cells.dims + i] != (uint64_t)b->dims[i]) return false;
  for (int i = 0; i < r->n_scalars; i++)
    if (l->args[r->cells.scalars + i] != b->scalars[i]) return false;
  return true;
}

#define FEW_ZONES 9  // most feature maps have no more; others are not searched

// Padding zones on opposite sides have the same size and differ only in their
// start.
static const uint64_t *find_args(const lb_launch *first, const lb_launch *like,
                                 const lb_launch_template *r,
                                 const lb_binding *b) {
  for (int i = 0; first && i < FEW_ZONES; first = first->next, i++)
    if (first->strides == like->strides && has_args(first, r, b))
      return first->args;
  return NULL;
}

lb_status lb_planner_prepare_zone(lb_planner *p, const lb_launch_template *r,
                                  const lb_binding *b, const lb_address *at,
                                  const lb_launch *first, const lb_launch *like,
                                  lb_launch **out) {
  prepare_parts to;
  const uint64_t *args = find_args(first, like, r, b);
  lb_launch *l = *out = new_launch(p, r, b, args ? 0 : r->cells.count, 0, &to);
  if (!l) return lb_oom();
  if (!args) {
    memcpy(to.args, like->args, r->cells.count * sizeof *to.args);
    fill_dims(to.args, r, b);
  }
  fill_launch(p->prog->slots->device, l, r, b, at, &to);
  if (args) l->args = args;
  l->strides = like->strides;
  return LB_OK;
}
