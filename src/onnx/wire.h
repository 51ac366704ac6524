// onnx/wire.h -- the protobuf wire format, over borrowed bytes.
//
// A cursor iterates over the fields of one message. Nothing is copied; every
// length is checked against the end of its message before it is used. Errors
// give the byte offset in the whole file.
#ifndef LB_ONNX_WIRE_H
#define LB_ONNX_WIRE_H

#include "base/file.h"
#include "base/status.h"

typedef enum lb_wire_type {
  LB_WIRE_VARINT = 0,
  LB_WIRE_FIXED64 = 1,
  LB_WIRE_BYTES = 2,
  LB_WIRE_FIXED32 = 5,
} lb_wire_type;

typedef struct lb_wire {
  const uint8_t *start;  // of the whole file, for error messages
  const uint8_t *p, *end;
} lb_wire;

typedef struct lb_wire_field {
  uint32_t number;
  lb_wire_type type;
  uint64_t n;     // VARINT, FIXED64, FIXED32: the value
  lb_wire bytes;  // BYTES: the contents
} lb_wire_field;

static inline lb_wire lb_wire_open(lb_span s) {
  return (lb_wire){s.data, s.data, s.data + s.size};
}

static inline size_t lb_wire_size(lb_wire w) { return (size_t)(w.end - w.p); }

// Reads the next field. False at the end of the message, or if *st has failed,
// before the call or in it:
//   while (lb_wire_next(&w, &f, &st)) st = ...;
// Groups, which ONNX never uses, are an error.
bool lb_wire_next(lb_wire *w, lb_wire_field *out, lb_status *st);

// LB_INVALID unless the field is of that type.
lb_status lb_wire_expect(const lb_wire *w, const lb_wire_field *f,
                         lb_wire_type type);

// Counts the occurrences of each field number below n.
lb_status lb_wire_count(lb_wire w, uint32_t *counts, uint32_t n);

// -- repeated numbers, packed or not -----------------------------------------

// The number of elements of `type` (VARINT, FIXED32 or FIXED64) in the field.
lb_status lb_wire_elems(const lb_wire *w, const lb_wire_field *f,
                        lb_wire_type type, size_t *out);
// Reads the next element of a field whose elements were counted, and advances
// `f`.
lb_status lb_wire_take(lb_wire_field *f, lb_wire_type type, uint64_t *out);

#endif
