// onnx/wire.c -- the protobuf wire format, over borrowed bytes.
#include "onnx/wire.h"

#include <string.h>

static lb_status corrupt(const lb_wire *w, const char *what) {
  return lb_error(LB_INVALID, "not a valid ONNX model: byte %zu: %s",
                  (size_t)(w->p - w->start), what);
}

// Reads a varint of at most ten bytes, within w.
static lb_status read_varint(lb_wire *w, uint64_t *out) {
  uint64_t v = 0;
  const uint8_t *p = w->p;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (p == w->end) return corrupt(w, "a number is truncated");
    uint8_t b = *p++;
    if (shift == 63 && b > 1) break;
    v |= (uint64_t)(b & 0x7f) << shift;
    if (b & 0x80) continue;
    w->p = p;
    *out = v;
    return LB_OK;
  }
  return corrupt(w, "a number has more than 64 bits");
}

// Little-endian, from any address.
static uint64_t fixed(const uint8_t *p, unsigned size) {
  uint64_t v = 0;
  for (unsigned i = 0; i < size; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}

static lb_status take_fixed(lb_wire *w, unsigned size, uint64_t *out) {
  if (lb_wire_size(*w) < size) return corrupt(w, "a number is truncated");
  *out = fixed(w->p, size);
  w->p += size;
  return LB_OK;
}

static lb_status take_bytes(lb_wire *w, lb_wire *out) {
  uint64_t size;
  LB_TRY(read_varint(w, &size));
  if (size > lb_wire_size(*w))
    return corrupt(w, "a field is longer than the rest of its message");
  *out = (lb_wire){w->start, w->p, w->p + size};
  w->p += size;
  return LB_OK;
}

static lb_status next_field(lb_wire *w, lb_wire_field *out) {
  uint64_t tag;
  const uint8_t *at = w->p;
  LB_TRY(read_varint(w, &tag));
  *out = (lb_wire_field){.number = (uint32_t)(tag >> 3)};
  if (tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1) {
    w->p = at;
    return corrupt(w, "invalid field number");
  }
  switch (tag & 7) {
    case LB_WIRE_VARINT:
      out->type = LB_WIRE_VARINT;
      return read_varint(w, &out->n);
    case LB_WIRE_FIXED64:
      out->type = LB_WIRE_FIXED64;
      return take_fixed(w, 8, &out->n);
    case LB_WIRE_FIXED32:
      out->type = LB_WIRE_FIXED32;
      return take_fixed(w, 4, &out->n);
    case LB_WIRE_BYTES:
      out->type = LB_WIRE_BYTES;
      return take_bytes(w, &out->bytes);
    default:
      w->p = at;
      return corrupt(w, "a field has a type that ONNX does not use");
  }
}

bool lb_wire_next(lb_wire *w, lb_wire_field *out, lb_status *st) {
  if (lb_failed(*st) || w->p == w->end) return false;
  *st = next_field(w, out);
  return !lb_failed(*st);
}

lb_status lb_wire_expect(const lb_wire *w, const lb_wire_field *f,
                         lb_wire_type type) {
  if (f->type == type) return LB_OK;
  return lb_error(LB_INVALID,
                  "not a valid ONNX model: before byte %zu: field %u has wire "
                  "type %d, not %d",
                  (size_t)(w->p - w->start), f->number, (int)f->type,
                  (int)type);
}

lb_status lb_wire_count(lb_wire w, uint32_t *counts, uint32_t n) {
  memset(counts, 0, n * sizeof *counts);
  lb_wire_field f;
  lb_status st = LB_OK;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number >= n) continue;
    if (counts[f.number] == UINT32_MAX) return corrupt(&w, "too many fields");
    counts[f.number]++;
  }
  return st;
}

lb_status lb_wire_elems(const lb_wire *w, const lb_wire_field *f,
                        lb_wire_type type, size_t *out) {
  *out = 1;
  if (f->type == type) return LB_OK;
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
  size_t size = lb_wire_size(f->bytes), n = 0;
  if (type != LB_WIRE_VARINT) {
    size_t each = type == LB_WIRE_FIXED32 ? 4 : 8;
    if (size % each)
      return corrupt(&f->bytes, "a list of numbers is truncated");
    *out = size / each;
    return LB_OK;
  }
  for (size_t i = 0; i < size; i++) n += (f->bytes.p[i] & 0x80) == 0;
  *out = n;
  return LB_OK;
}

lb_status lb_wire_take(lb_wire_field *f, lb_wire_type type, uint64_t *out) {
  if (f->type != LB_WIRE_BYTES) {
    *out = f->n;
    return LB_OK;
  }
  if (type == LB_WIRE_VARINT) return read_varint(&f->bytes, out);
  return take_fixed(&f->bytes, type == LB_WIRE_FIXED32 ? 4 : 8, out);
}
