// primitive/desc.c -- the tables of kinds and operators, and the validation of
// descriptors.
#include "primitive/desc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "primitive/fields.h"

// -- tables ------------------------------------------------------------------

enum {  // bits, so that a row of the table can list fields as X | Y
#define LB_DESC_FIELD(id, ...) id = 1 << LB_DESC_FIELD_##id,
#include "primitive/primitives.def"
};

const lb_kind_info lb_kind_infos[LIMBER_PRIMITIVE_KINDS] = {
#define LB_KIND(id, text, least, most, alg, bits)                     \
  [LIMBER_##id].name = text, [LIMBER_##id].min_in = least,            \
  [LIMBER_##id].max_in = most, [LIMBER_##id].dflt = LIMBER_ALG_##alg, \
  [LIMBER_##id].fields = (bits) | OUT_LAYOUT,
#define LB_IN(id, i, text, axes) \
  [LIMBER_##id].in[i].name = text, [LIMBER_##id].in[i].runtime = axes,
#include "primitive/primitives.def"
};

const lb_alg_info lb_alg_infos[LIMBER_ALGS] = {
#define LB_ALG(id, text, kind, op, params) \
  [LIMBER_ALG_##id] = {text, LIMBER_##kind, LB_OP_##op, LB_PARAMS_##params},
#include "primitive/primitives.def"
};

const lb_desc_field_info lb_desc_field_infos[LB_DESC_FIELD_COUNT] = {
#define SIZE_I32 sizeof(int32_t)
#define SIZE_I64 sizeof(int64_t)
#define SIZE_F32 sizeof(float)
#define LB_DESC_FIELD(id, field, type, low, high)                       \
  [LB_DESC_FIELD_##                                                     \
      id] = {#field,                                                    \
             LB_##type,                                                 \
             offsetof(limber_primitive_desc, field),                    \
             sizeof(((limber_primitive_desc *)0)->field) / SIZE_##type, \
             low,                                                       \
             high},
#include "primitive/primitives.def"
};

const limber_attr lb_attr_none = {0};

// -- reading -----------------------------------------------------------------

int lb_desc_alg(const limber_primitive_desc *d) {
  return d->alg ? d->alg : lb_kind_infos[d->kind].dflt;
}

bool lb_desc_operand_is_present(const limber_operand *o) {
  return o->dtype != LIMBER_NONE;
}

bool lb_desc_operand_is_channels_last(const limber_operand *o) {
  return o->layout == LIMBER_LAYOUT_CHANNELS_LAST;
}

uint32_t lb_desc_operands(const limber_primitive_desc *d) {
  uint32_t n = LIMBER_MAX_OPERANDS;
  while (n && !lb_desc_operand_is_present(&d->in[n - 1])) n--;
  return n;
}

size_t lb_desc_operand_bytes(const limber_operand *o) {
  int64_t n = 1;
  for (int i = 0; i < o->rank; i++) n *= o->dims[i];
  return (size_t)n * lb_dtype_size((lb_dtype)o->dtype);
}

static bool has_runtime(const limber_operand *o) {
  for (int i = 0; i < o->rank; i++)
    if (o->dims[i] == LIMBER_RUNTIME_DIM) return true;
  return false;
}

// The runtime dims of post-operations follow from those of the result.
bool lb_desc_has_runtime_dims(const lb_desc *d) {
  for (uint32_t i = 0; i < LIMBER_MAX_OPERANDS; i++)
    if (has_runtime(&d->desc->in[i])) return true;
  return false;
}

// -- operands ----------------------------------------------------------------

static lb_status check_dim(const limber_operand *o, uint32_t runtime, int i) {
  int64_t dim = o->dims[i];
  if (dim == LIMBER_RUNTIME_DIM && o->data)
    return lb_error(LB_INVALID,
                    "dims[%d] is a runtime dim, but data is set: a constant "
                    "needs fixed dims",
                    i);
  if (dim == LIMBER_RUNTIME_DIM && runtime >> i & 1) return LB_OK;
  if (dim == LIMBER_RUNTIME_DIM)
    return lb_error(LB_UNSUPPORTED,
                    "dims[%d] must not be a runtime dim; docs/primitives.md "
                    "says which may be",
                    i);
  if (dim < 0) return lb_error(LB_INVALID, "dims[%d] is %" PRId64, i, dim);
  return LB_OK;
}

static lb_status check_layout(const char *name, int layout, int rank) {
  if (layout < 0 || layout > LIMBER_LAYOUT_CHANNELS_LAST)
    return lb_error(LB_INVALID, "%s: %d is not a limber_layout", name, layout);
  if (layout == LIMBER_LAYOUT_CHANNELS_LAST && rank < 3)
    return lb_error(LB_INVALID,
                    "%s: channels-last needs rank 3 or more, not %d", name,
                    rank);
  return LB_OK;
}

static lb_status check_operand(const limber_operand *o, uint32_t runtime) {
  int64_t dims[LB_MAX_RANK], count;
  if (o->dtype < 0 || o->dtype >= (int)LB_DTYPE_COUNT)
    return lb_error(LB_INVALID, "dtype: %d is not a limber_dtype", o->dtype);
  if (o->rank < 0 || o->rank > LB_MAX_RANK)
    return lb_error(LB_INVALID, "rank: %d is not in 0 to %d", o->rank,
                    LB_MAX_RANK);
  if (o->reserved) return lb_error(LB_INVALID, "reserved: must be 0");
  LB_TRY(check_layout("layout", o->layout, o->rank));
  for (int i = 0; i < o->rank; i++) {
    LB_TRY(check_dim(o, runtime, i));
    dims[i] = o->dims[i] == LIMBER_RUNTIME_DIM ? 1 : o->dims[i];
  }
  lb_status st = lb_dims_count(o->rank, dims, &count);
  return lb_failed(st) ? lb_status_note(st, "dims") : st;
}

static lb_status check_operands(const limber_primitive_desc *d) {
  const lb_kind_info *kind = &lb_kind_infos[d->kind];
  for (uint32_t i = 0; i < LIMBER_MAX_OPERANDS; i++) {
    const limber_operand *o = &d->in[i];
    if (!lb_desc_operand_is_present(o) && i < kind->min_in)
      return lb_error(LB_INVALID, "in[%u]: %s needs its operand '%s'", i,
                      kind->name, kind->in[i].name);
    if (!lb_desc_operand_is_present(o)) continue;
    if (i >= kind->max_in)
      return lb_error(LB_INVALID, "in[%u]: %s has at most %u operands", i,
                      kind->name, kind->max_in);
    lb_status st = check_operand(o, kind->in[i].runtime);
    if (lb_failed(st))
      return lb_status_note(st, "in[%u] (%s)", i, kind->in[i].name);
  }
  return LB_OK;
}

// -- fields ------------------------------------------------------------------

int64_t lb_desc_field_int(const lb_desc_field_info *f,
                          const limber_primitive_desc *d, size_t i) {
  const char *at = (const char *)d + f->offset;
  int32_t narrow;
  int64_t wide;
  if (f->type == LB_I32) {
    memcpy(&narrow, at + i * sizeof narrow, sizeof narrow);
    return narrow;
  }
  memcpy(&wide, at + i * sizeof wide, sizeof wide);
  return wide;
}

float lb_desc_field_float(const lb_desc_field_info *f,
                          const limber_primitive_desc *d, size_t i) {
  float v;
  memcpy(&v, (const char *)d + f->offset + i * sizeof v, sizeof v);
  return v;
}

bool lb_desc_field_is_zero(const lb_desc_field_info *f,
                           const limber_primitive_desc *d) {
  for (size_t i = 0; i < f->count; i++)
    if (f->type == LB_F32 ? lb_desc_field_float(f, d, i) != 0
                          : lb_desc_field_int(f, d, i) != 0)
      return false;
  return true;
}

static lb_status check_field(const lb_desc_field_info *f, uint32_t bit,
                             const limber_primitive_desc *d) {
  const lb_kind_info *kind = &lb_kind_infos[d->kind];
  if (!(kind->fields & bit) && !lb_desc_field_is_zero(f, d))
    return lb_error(LB_INVALID, "%s: %s does not read it; it must be 0",
                    f->name, kind->name);
  for (size_t i = 0; f->type != LB_F32 && i < f->count; i++) {
    int64_t v = lb_desc_field_int(f, d, i);
    if (v >= f->low && v <= f->high) continue;
    if (f->count == 1)
      return lb_error(LB_INVALID,
                      "%s: %" PRId64 " is not in %" PRId64 " to %" PRId64,
                      f->name, v, f->low, f->high);
    return lb_error(LB_INVALID,
                    "%s[%zu]: %" PRId64 " is not in %" PRId64 " to %" PRId64,
                    f->name, i, v, f->low, f->high);
  }
  return LB_OK;
}

// A field with one element per spatial axis must be 0 beyond the last axis.
static lb_status check_spatial_field(const limber_primitive_desc *d,
                                     lb_desc_field field, int n_spatial) {
  const lb_desc_field_info *f = &lb_desc_field_infos[field];
  int n = field == LB_DESC_FIELD_PADS ? 2 * n_spatial : n_spatial;
  for (size_t i = (size_t)n; i < f->count; i++)
    if (f->type == LB_F32 ? lb_desc_field_float(f, d, i) != 0
                          : lb_desc_field_int(f, d, i) != 0)
      return lb_error(LB_INVALID, "%s[%zu]: src has %d spatial axes", f->name,
                      i, n_spatial);
  return LB_OK;
}

static lb_status check_spatial(const limber_primitive_desc *d) {
  static const lb_desc_field spatial_fields[] = {
      LB_DESC_FIELD_FACTORS,    LB_DESC_FIELD_SIZES,     LB_DESC_FIELD_KERNEL,
      LB_DESC_FIELD_STRIDES,    LB_DESC_FIELD_DILATIONS, LB_DESC_FIELD_PADS,
      LB_DESC_FIELD_OUTPUT_PADS};
  int n_spatial = d->in[0].rank - 2;
  if (d->kind != LIMBER_CONVOLUTION && d->kind != LIMBER_POOLING &&
      d->kind != LIMBER_RESAMPLING)
    return LB_OK;
  if (n_spatial < 1 || n_spatial > LIMBER_MAX_SPATIAL)
    return lb_error(LB_INVALID,
                    "in[0] (src): rank: %d is not in 3 to %d: batch, channels "
                    "and spatial axes",
                    d->in[0].rank, 2 + LIMBER_MAX_SPATIAL);
  for (size_t i = 0; i < sizeof spatial_fields / sizeof *spatial_fields; i++)
    LB_TRY(check_spatial_field(d, spatial_fields[i], n_spatial));
  return LB_OK;
}

static lb_status check_heads(const limber_primitive_desc *d) {
  if (d->kind != LIMBER_ATTENTION) return LB_OK;
  for (int i = 0; i < 3; i++)
    if (d->in[i].rank != 4)
      return lb_error(
          LB_INVALID,
          "in[%d] (%s): rank: %d is not 4: batch, heads, length and "
          "head size",
          i, lb_kind_infos[d->kind].in[i].name, d->in[i].rank);
  return LB_OK;
}

static lb_status check_alg(const char *name, int alg, int kind, int dflt) {
  if (!alg && dflt) return LB_OK;
  if (alg > 0 && alg < LIMBER_ALGS && lb_alg_infos[alg].kind == kind)
    return LB_OK;
  if (alg > 0 && alg < LIMBER_ALGS)
    return lb_error(LB_INVALID, "%s: %s belongs to %s, not to %s", name,
                    lb_alg_infos[alg].name,
                    lb_kind_infos[lb_alg_infos[alg].kind].name,
                    lb_kind_infos[kind].name);
  return lb_error(LB_INVALID, "%s: %d is not a limber_alg of %s", name, alg,
                  lb_kind_infos[kind].name);
}

static bool has_algs(int kind) {
  return kind != LIMBER_MATMUL && kind != LIMBER_REORDER &&
         kind != LIMBER_CONCAT && kind != LIMBER_ATTENTION;
}

static lb_status check_kind(const limber_primitive_desc *d) {
  if (d->kind <= 0 || d->kind >= LIMBER_PRIMITIVE_KINDS)
    return lb_error(LB_INVALID, "kind: %d is not a limber_primitive_kind",
                    d->kind);
  if (has_algs(d->kind))
    return check_alg("alg", d->alg, d->kind, lb_kind_infos[d->kind].dflt);
  if (d->alg)
    return lb_error(LB_INVALID, "alg: %s has none; it must be 0",
                    lb_kind_infos[d->kind].name);
  return LB_OK;
}

// Checks the fields that only some operators of a kind read.
static lb_status check_params(const limber_primitive_desc *d) {
  int alg = lb_desc_alg(d);
  lb_params params = lb_alg_infos[alg].params;
  const char *name = lb_alg_infos[alg].name;
  if (d->kind == LIMBER_ELTWISE && params == LB_PARAMS_NONE && d->alpha != 0)
    return lb_error(LB_INVALID, "alpha: %s has none; it must be 0", name);
  if (d->kind == LIMBER_ELTWISE && params != LB_PARAMS_BOTH && d->beta != 0)
    return lb_error(LB_INVALID, "beta: %s has none; it must be 0", name);
  if (alg != LIMBER_ALG_TRANSPOSED &&
      !lb_desc_field_is_zero(&lb_desc_field_infos[LB_DESC_FIELD_OUTPUT_PADS],
                             d))
    return lb_error(LB_INVALID, "output_pads: %s has none; they must be 0",
                    name ? name : lb_kind_infos[d->kind].name);
  if (alg != LIMBER_ALG_GRU && d->reset_after)
    return lb_error(LB_INVALID, "reset_after: only gru reads it; it must be 0");
  return LB_OK;
}

static lb_status check_axes(const limber_primitive_desc *d) {
  int rank = d->in[0].rank;
  uint32_t seen = 0;
  if (d->kind == LIMBER_REORDER && d->n_axes && d->n_axes != rank)
    return lb_error(LB_INVALID, "n_axes: %d, but src has rank %d", d->n_axes,
                    rank);
  for (int i = 0; i < d->n_axes; i++) {
    int axis = d->axes[i] < 0 ? d->axes[i] + rank : d->axes[i];
    if (axis < 0 || axis >= rank || seen >> axis & 1)
      return lb_error(
          LB_INVALID, "axes[%d]: %d is %s", i, d->axes[i],
          axis < 0 || axis >= rank ? "not an axis of src" : "listed twice");
    seen |= 1u << axis;
  }
  for (int i = d->n_axes; i < LB_MAX_RANK; i++)
    if (d->axes[i])
      return lb_error(LB_INVALID, "axes[%d]: must be 0, since n_axes is %d", i,
                      d->n_axes);
  if (!(lb_kind_infos[d->kind].fields & AXIS)) return LB_OK;
  if (d->axis < -rank || d->axis >= rank)
    return lb_error(LB_INVALID, "axis: %d is out of range for rank %d", d->axis,
                    rank);
  return LB_OK;
}

static lb_status check_post(const lb_post *p, uint32_t i) {
  char name[32];
  snprintf(name, sizeof name, "post[%u]: alg", i);
  if (p->kind == LB_POST_SUM) return LB_OK;
  if (p->kind == LB_POST_ELTWISE)
    return check_alg(name, p->alg, LIMBER_ELTWISE, 0);
  LB_TRY(check_alg(name, p->alg, LIMBER_BINARY, 0));
  if (p->alg > LIMBER_ALG_PRELU)
    return lb_error(LB_INVALID, "post[%u]: alg: %s makes bools", i,
                    lb_alg_infos[p->alg].name);
  lb_status st = lb_desc_operand_is_present(&p->in)
                     ? check_operand(&p->in, LB_AXES_ALL)
                     : lb_error(LB_INVALID, "dtype: the operand is absent");
  return lb_failed(st) ? lb_status_note(st, "post[%u]: operand", i) : st;
}

lb_status lb_desc_check(const lb_desc *d) {
  const limber_primitive_desc *desc = d->desc;
  LB_TRY(check_kind(desc));
  LB_TRY(check_operands(desc));
  for (int i = 0; i < LB_DESC_FIELD_COUNT; i++)
    LB_TRY(check_field(&lb_desc_field_infos[i], 1u << i, desc));
  LB_TRY(check_spatial(desc));
  LB_TRY(check_heads(desc));
  LB_TRY(check_params(desc));
  LB_TRY(check_axes(desc));
  for (uint32_t i = 0; i < d->attr->n_post; i++)
    LB_TRY(check_post(&d->attr->post[i], i));
  return LB_OK;
}
