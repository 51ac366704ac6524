// primitive/key.c -- a descriptor and its attributes as a cache key and as
// text.
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/hash.h"
#include "primitive/fields.h"

// -- bytes -------------------------------------------------------------------

_Static_assert(sizeof(lb_key_header) == 8 * sizeof(int32_t),
               "a key has no padding");

typedef struct operand_header {
  int32_t dtype, layout, rank, constant;
} operand_header;
_Static_assert(sizeof(operand_header) == 16, "a key has no padding");

typedef struct post_header {
  int32_t kind, alg;
  float alpha, beta;
} post_header;
_Static_assert(sizeof(post_header) == 16, "a key has no padding");

// Most fields after the operands are 0. A key therefore holds only the 32-byte
// pieces of them that are not 0, and a bit mask of these pieces, because
// hashing takes most of the time of a lookup.
#define LB_DESC_FIELD(id, field, ...) \
  +sizeof(((limber_primitive_desc *)0)->field)
enum {
  SETTINGS = offsetof(limber_primitive_desc, out_dtype),
  SETTINGS_BYTES = sizeof(limber_primitive_desc) - SETTINGS,
  FIELD_BYTES = 0
#include "primitive/primitives.def"
};
_Static_assert((int)SETTINGS_BYTES == (int)FIELD_BYTES,
               "the fields have no padding, and each is in the table");
_Static_assert(SETTINGS_BYTES % 32 == 0 && SETTINGS_BYTES / 32 <= 64,
               "one bit per piece");
_Static_assert(sizeof(lb_key_header) + 8 + SETTINGS_BYTES <= 1024,
               "LB_KEY_MAX suffices");

static uint8_t *put(uint8_t *to, const void *p, size_t n) {
  memcpy(to, p, n);
  return to + n;
}

static uint8_t *put_operand(uint8_t *to, const limber_operand *o) {
  int rank = o->rank < 0 ? 0 : o->rank > LB_MAX_RANK ? LB_MAX_RANK : o->rank;
  operand_header h = {o->dtype, o->layout, o->rank, o->data != NULL};
  to = put(to, &h, sizeof h);
  to = put(to, o->dims, (size_t)rank * sizeof *o->dims);
  if (!o->data) return to;
  lb_hash128 sum = {0};
  int64_t count;
  lb_status st = rank == o->rank && o->dtype > 0 && o->dtype < LB_DTYPE_COUNT
                     ? lb_dims_count(rank, o->dims, &count)
                     : lb_error(LB_INVALID, "not checked yet");
  if (!lb_failed(st)) sum = lb_hash_wide(o->data, lb_desc_operand_bytes(o));
  lb_status_drop(st);
  return put(to, &sum, sizeof sum);
}

static uint8_t *put_settings(uint8_t *to, const limber_primitive_desc *d) {
  const char *from = (const char *)d + SETTINGS;
  uint64_t which = 0, w[4];
  uint8_t *at = to + sizeof which;
  for (unsigned i = 0; i < SETTINGS_BYTES / sizeof w; i++) {
    memcpy(w, from + i * sizeof w, sizeof w);
    if (!(w[0] | w[1] | w[2] | w[3])) continue;
    at = put(at, w, sizeof w);
    which |= (uint64_t)1 << i;
  }
  memcpy(to, &which, sizeof which);
  return at;
}

size_t lb_desc_key(const lb_desc *d, uint8_t out[LB_KEY_MAX]) {
  const limber_primitive_desc *desc = d->desc;
  const limber_attr *a = d->attr;
  uint32_t n = lb_desc_operands(desc);
  lb_key_header h = {desc->kind,         desc->alg,      (int32_t)n,
                     (int32_t)a->n_post, a->reusable,    a->deterministic,
                     a->reference,       a->user_scratch};
  uint8_t *to = put(out, &h, sizeof h);
  to = put_settings(to, desc);
  for (uint32_t i = 0; i < n; i++) to = put_operand(to, &desc->in[i]);
  for (uint32_t i = 0; i < a->n_post; i++) {
    const lb_post *p = &a->post[i];
    post_header ph = {p->kind, p->alg, p->alpha, p->beta};
    to = put(to, &ph, sizeof ph);
    if (p->kind == LB_POST_BINARY) to = put_operand(to, &p->in);
  }
  return (size_t)(to - out);
}

// -- text --------------------------------------------------------------------

static const char *short_name(int32_t dtype) {
  static const char *const names[LB_DTYPE_COUNT] = {
      [LB_F32] = "f32",  [LB_F64] = "f64", [LB_F16] = "f16", [LB_BF16] = "bf16",
      [LB_I8] = "i8",    [LB_I16] = "i16", [LB_I32] = "i32", [LB_I64] = "i64",
      [LB_U8] = "u8",    [LB_U16] = "u16", [LB_U32] = "u32", [LB_U64] = "u64",
      [LB_BOOL] = "bool"};
  return names[dtype];
}

static void print_operand(const limber_operand *o, lb_strbuf *out) {
  if (!lb_desc_operand_is_present(o)) {
    lb_strbuf_putc(out, '-');
    return;
  }
  lb_strbuf_printf(out, "%s:", short_name(o->dtype));
  for (int i = 0; i < o->rank; i++) {
    if (i) lb_strbuf_putc(out, 'x');
    if (o->dims[i] == LIMBER_RUNTIME_DIM) {
      lb_strbuf_putc(out, '?');
    } else {
      lb_strbuf_printf(out, "%" PRId64, o->dims[i]);
    }
  }
  if (lb_desc_operand_is_channels_last(o)) lb_strbuf_puts(out, ":last");
  if (o->data) lb_strbuf_puts(out, ":const");
}

static void print_field(const lb_desc_field_info *f,
                        const limber_primitive_desc *d, lb_strbuf *out) {
  bool axes = f == &lb_desc_field_infos[LB_DESC_FIELD_AXES];
  size_t n = axes ? (size_t)d->n_axes : f->count;
  if (axes ? n == 0 : lb_desc_field_is_zero(f, d)) return;
  while (!axes && n > 1 &&
         (f->type == LB_F32 ? lb_desc_field_float(f, d, n - 1) == 0
                            : lb_desc_field_int(f, d, n - 1) == 0))
    n--;
  lb_strbuf_printf(out, " %s=", f->name);
  if (f == &lb_desc_field_infos[LB_DESC_FIELD_OUT_DTYPE]) {
    lb_strbuf_puts(out, short_name(d->out_dtype));
    return;
  }
  for (size_t i = 0; i < n; i++) {
    if (i) lb_strbuf_putc(out, 'x');
    if (f->type == LB_F32) {
      lb_strbuf_printf(out, "%.9g", (double)lb_desc_field_float(f, d, i));
    } else {
      lb_strbuf_printf(out, "%" PRId64, lb_desc_field_int(f, d, i));
    }
  }
}

static void print_post(const lb_post *p, lb_strbuf *out) {
  if (p->kind == LB_POST_SUM) {
    lb_strbuf_puts(out, "sum");
    if (p->alpha != 1) lb_strbuf_printf(out, ":%.9g", (double)p->alpha);
    return;
  }
  lb_strbuf_puts(out, lb_alg_infos[p->alg].name);
  if (p->kind == LB_POST_BINARY) {
    lb_strbuf_putc(out, ':');
    print_operand(&p->in, out);
    return;
  }
  lb_params params = lb_alg_infos[p->alg].params;
  if (params) lb_strbuf_printf(out, ":%.9g", (double)p->alpha);
  if (params == LB_PARAMS_BOTH) lb_strbuf_printf(out, ":%.9g", (double)p->beta);
}

void lb_desc_print(const lb_desc *d, lb_strbuf *out) {
  const limber_primitive_desc *desc = d->desc;
  const limber_attr *a = d->attr;
  uint32_t n = lb_desc_operands(desc);
  lb_strbuf_puts(out, lb_kind_infos[desc->kind].name);
  if (desc->alg) lb_strbuf_printf(out, " alg=%s", lb_alg_infos[desc->alg].name);
  lb_strbuf_puts(out, " in=");
  for (uint32_t i = 0; i < n; i++) {
    if (i) lb_strbuf_putc(out, ',');
    print_operand(&desc->in[i], out);
  }
  for (int i = 0; i < LB_DESC_FIELD_COUNT; i++)
    if (i != LB_DESC_FIELD_N_AXES)
      print_field(&lb_desc_field_infos[i], desc, out);
  for (uint32_t i = 0; i < a->n_post; i++) {
    lb_strbuf_puts(out, i ? "," : " post=");
    print_post(&a->post[i], out);
  }
  if (a->reusable) lb_strbuf_printf(out, " reusable=%d", a->reusable > 0);
  if (a->deterministic) lb_strbuf_puts(out, " deterministic=1");
  if (a->reference) lb_strbuf_puts(out, " reference=1");
  if (a->user_scratch) lb_strbuf_puts(out, " scratch=user");
}
