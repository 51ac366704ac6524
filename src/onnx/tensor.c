// onnx/tensor.c -- converts TensorProto to lb_tensor, without a copy if the
// bytes already have the right layout: raw data, external data, packed floats.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/import.h"
#include "onnx/reader.h"

// Limit for dense copies of all sparse tensors of a model, because a few bytes
// can declare any size.
#define MAX_SPARSE_BYTES ((size_t)256 << 20)

const char *lb_pb_type_name(int64_t t) {
  static const char *const names[] = {
      "undefined",      "float",        "uint8",          "int8",
      "uint16",         "int16",        "int32",          "int64",
      "string",         "bool",         "float16",        "double",
      "uint32",         "uint64",       "complex64",      "complex128",
      "bfloat16",       "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
      "float8e5m2fnuz", "uint4",        "int4",           "float4e2m1",
      "float8e8m0",     "uint2",        "int2",
  };
  int64_t count = (int64_t)(sizeof names / sizeof *names);
  return t >= 0 && t < count ? names[t] : "unknown";
}

// TensorProto's fields
enum {
  F_DIMS = 1,
  F_TYPE = 2,
  F_SEGMENT = 3,
  F_FLOATS = 4,
  F_INT32S = 5,
  F_INT64S = 7,
  F_RAW = 9,
  F_DOUBLES = 10,
  F_UINT64S = 11,
  F_EXTERNAL = 13,
  F_LOCATION = 14,
};

typedef struct proto {
  lb_wire body;
  char label[240];  // "tensor 'w'"
  int64_t onnx_type;
  lb_tensor t;          // data is set last
  size_t count, bytes;  // as stored
  bool has_raw, is_external;
  bool is_4bit;  // two elements per byte
  lb_wire raw;
  lb_external ext;
} proto;

static void set_label(proto *p, lb_pb_str name) {
  if (name.n)
    snprintf(p->label, sizeof p->label, "tensor '%.*s'", LB_STR(name));
  else
    snprintf(p->label, sizeof p->label, "its tensor");
}

// -- the message -------------------------------------------------------------

static lb_status read_dims(lb_tensor *t, const char *label, const lb_wire *w,
                           lb_wire_field f) {
  size_t n;
  LB_TRY(lb_wire_elems(w, &f, LB_WIRE_VARINT, &n));
  if (n > (size_t)(LB_MAX_RANK - t->rank))
    return lb_error(LB_UNSUPPORTED, "%s has more than %d dims", label,
                    LB_MAX_RANK);
  for (; n > 0; n--) {
    uint64_t v;
    LB_TRY(lb_wire_take(&f, LB_WIRE_VARINT, &v));
    t->dims[t->rank++] = (int64_t)v;
  }
  return LB_OK;
}

static lb_status parse_int(const proto *p, lb_pb_str s, int64_t *out) {
  int64_t v = 0;
  bool ok = s.n > 0;
  for (size_t i = 0; i < s.n && ok; i++) {
    int digit = s.p[i] - '0';
    ok = digit >= 0 && digit <= 9 && !__builtin_mul_overflow(v, 10, &v) &&
         !__builtin_add_overflow(v, digit, &v);
  }
  if (!ok)
    return lb_error(LB_INVALID,
                    "%s: '%.*s' is not a valid offset or length of external "
                    "data",
                    p->label, LB_STR(s));
  *out = v;
  return LB_OK;
}

static lb_status read_entry(proto *p, lb_wire w) {
  lb_pb_str key = {0}, value = {0};
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1) st = lb_read_str(&w, &f, &key);
    if (f.number == 2) st = lb_read_str(&w, &f, &value);
  }
  LB_TRY(st);
  if (lb_pb_is(key, "location")) p->ext.location = value;
  if (lb_pb_is(key, "offset")) return parse_int(p, value, &p->ext.offset);
  if (lb_pb_is(key, "length")) return parse_int(p, value, &p->ext.length);
  return LB_OK;
}

static lb_status read_field(proto *p, const lb_wire *w,
                            const lb_wire_field *f) {
  int64_t data_location;
  switch (f->number) {
    case F_DIMS: return read_dims(&p->t, p->label, w, *f);
    case F_TYPE: return lb_read_int(w, f, &p->onnx_type);
    case F_SEGMENT:
      return lb_error(LB_UNSUPPORTED,
                      "%s is stored in segments, which is not supported",
                      p->label);
    case F_RAW:
      LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
      p->has_raw = true;
      p->raw = f->bytes;
      return LB_OK;
    case F_EXTERNAL:
      LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
      return read_entry(p, f->bytes);
    case F_LOCATION:
      LB_TRY(lb_read_int(w, f, &data_location));
      p->is_external = data_location == 1;
      return LB_OK;
    default: return LB_OK;
  }
}

static lb_status check_type(const char *label, int64_t type, lb_dtype *out) {
  *out = lb_attr_dtype(type);
  if (*out != LB_NONE) return LB_OK;
  if (type == 0) return lb_error(LB_INVALID, "%s has no element type", label);
  return lb_error(LB_UNSUPPORTED,
                  "%s has elements of type %s (%" PRId64
                  "), which Limber does not have",
                  label, lb_pb_type_name(type), type);
}

// 4-bit integers become int8 or uint8 with the same values.
static bool is_4bit_type(int64_t type, lb_dtype *out) {
  enum { UINT4 = 21, INT4 = 22 };
  *out = type == INT4 ? LB_I8 : LB_U8;
  return type == INT4 || type == UINT4;
}

static lb_status check_size(proto *p) {
  p->is_4bit = is_4bit_type(p->onnx_type, &p->t.dtype);
  if (!p->is_4bit) LB_TRY(check_type(p->label, p->onnx_type, &p->t.dtype));
  int64_t count;
  lb_status st = lb_dims_count(p->t.rank, p->t.dims, &count);
  if (lb_failed(st)) return lb_status_note(st, "%s", p->label);
  p->count = p->is_4bit ? (size_t)count / 2 + (size_t)count % 2 : (size_t)count;
  p->bytes = lb_mul_sat(p->count, lb_dtype_size(p->t.dtype));
  lb_tensor_dense(&p->t);
  return LB_OK;
}

static lb_status read_proto(lb_wire w, lb_pb_str name, proto *p) {
  *p = (proto){.body = w, .ext = {.length = -1}};
  set_label(p, name);
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) st = read_field(p, &w, &f);
  LB_TRY(st);
  return check_size(p);
}

// -- elements ----------------------------------------------------------------

static lb_status wrong_size(const proto *p, size_t have, const char *unit) {
  char dims[160];
  bool bytes = unit[0] == 'b';
  return lb_error(LB_INVALID, "%s: %s of dims %s need %zu %s, but it has %zu",
                  p->label, lb_dtype_name(p->t.dtype),
                  lb_dims_print(p->t.rank, p->t.dims, dims, sizeof dims),
                  bytes ? p->bytes : p->count, unit, have);
}

// Uses elements that already have the right layout without a copy, except to
// normalise bools other than 0 and 1, or with copy_weights.
static lb_status borrow(lb_import *im, proto *p, const uint8_t *from) {
  bool odd = false;
  if (p->t.dtype == LB_BOOL)
    for (size_t i = 0; i < p->bytes; i++) odd |= from[i] > 1;
  if (!odd && !(im->copy_weights && p->bytes)) {
    p->t.data = (void *)from;
    return LB_OK;
  }
  uint8_t *to = lb_arena_memdup(&im->graph->arena, from, p->bytes, 64);
  if (!to) return lb_oom();
  for (size_t i = 0; odd && i < p->bytes; i++) to[i] = to[i] != 0;
  p->t.data = to;
  return LB_OK;
}

// The field with elements of that type, and their wire type.
static uint32_t typed_field(lb_dtype t, lb_wire_type *how) {
  *how = t == LB_F32   ? LB_WIRE_FIXED32
         : t == LB_F64 ? LB_WIRE_FIXED64
                       : LB_WIRE_VARINT;
  switch (t) {
    case LB_F32: return F_FLOATS;
    case LB_F64: return F_DOUBLES;
    case LB_I64: return F_INT64S;
    case LB_U32:
    case LB_U64: return F_UINT64S;
    default: return F_INT32S;
  }
}

static lb_status count_typed(const proto *p, uint32_t number, lb_wire_type how,
                             size_t *total, lb_wire_field *last) {
  lb_wire w = p->body;
  lb_status st = LB_OK;
  lb_wire_field f;
  size_t n = 0, fields = 0;
  *total = 0;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number != number) continue;
    st = lb_wire_elems(&w, &f, how, &n);
    *total += n;
    *last = f;
    fields++;
  }
  if (fields != 1) last->number = 0;
  return st;
}

// Copies the low bytes of each value (little-endian). 16-bit floats in
// int32_data are bit patterns.
static lb_status decode(lb_import *im, proto *p, uint32_t number,
                        lb_wire_type how) {
  size_t size = lb_dtype_size(p->t.dtype);
  uint8_t *to = lb_arena_alloc(&im->graph->arena, p->bytes, 64);
  if (!to) return lb_oom();
  p->t.data = to;
  lb_wire w = p->body;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    size_t n = 0;
    if (f.number == number) st = lb_wire_elems(&w, &f, how, &n);
    for (; n > 0 && !lb_failed(st); n--, to += size) {
      uint64_t v = 0;
      st = lb_wire_take(&f, how, &v);
      if (p->t.dtype == LB_BOOL) v = v != 0;
      memcpy(to, &v, size);
    }
  }
  return st;
}

static lb_status read_typed(lb_import *im, proto *p) {
  lb_wire_type how;
  uint32_t number = typed_field(p->t.dtype, &how);
  size_t total;
  lb_wire_field last = {0};
  LB_TRY(count_typed(p, number, how, &total, &last));
  if (total != p->count) return wrong_size(p, total, "elements");
  bool packed = last.number && last.type == LB_WIRE_BYTES;
  if (packed && how != LB_WIRE_VARINT) return borrow(im, p, last.bytes.p);
  return decode(im, p, number, how);
}

static lb_status read_elements(lb_import *im, proto *p) {
  if (p->is_external) {
    const uint8_t *at;
    LB_TRY(lb_import_external(im, &p->ext, p->label, p->bytes, &at));
    return borrow(im, p, at);
  }
  if (!p->has_raw) return read_typed(im, p);
  size_t have = lb_wire_size(p->raw);
  if (have != p->bytes) return wrong_size(p, have, "bytes");
  return borrow(im, p, p->raw.p);
}

// The first element of a byte is in its low half.
static lb_status unpack_4bit(lb_import *im, proto *p) {
  const uint8_t *from = p->t.data;
  size_t n = lb_tensor_bytes(&p->t);
  uint8_t *to = lb_arena_alloc(&im->graph->arena, n, 64);
  if (!to) return lb_oom();
  uint8_t sign = p->t.dtype == LB_I8 ? 8 : 0;
  for (size_t i = 0; i < n; i++) {
    uint8_t v = from[i / 2] >> (i % 2 * 4) & 15;
    to[i] = (uint8_t)((v ^ sign) - sign);
  }
  p->t.data = to;
  return LB_OK;
}

static lb_status read_dense(lb_import *im, lb_wire w, lb_pb_str name,
                            lb_tensor *out) {
  proto p;
  LB_TRY(read_proto(w, name, &p));
  LB_TRY(read_elements(im, &p));
  if (p.is_4bit) LB_TRY(unpack_4bit(im, &p));
  *out = p.t;
  return LB_OK;
}

// -- sparse tensors ----------------------------------------------------------

static int64_t index_at(const lb_tensor *indices, int64_t i) {
  int64_t v;
  memcpy(&v, (const uint8_t *)indices->data + (size_t)i * sizeof v, sizeof v);
  return v;
}

// The index of values[i] in the dense tensor, or -1 if it is out of range.
static int64_t dense_index(const lb_tensor *indices, const lb_tensor *t,
                           int64_t count, int64_t i) {
  if (indices->rank == 1) {
    int64_t at = index_at(indices, i);
    return at >= 0 && at < count ? at : -1;
  }
  int64_t at = 0;
  for (int d = 0; d < t->rank; d++) {
    int64_t k = index_at(indices, i * t->rank + d);
    if (k < 0 || k >= t->dims[d]) return -1;
    at += k * t->strides[d];
  }
  return at;
}

static lb_status scatter(const lb_tensor *values, const lb_tensor *indices,
                         int64_t count, const lb_tensor *t, const char *label) {
  size_t size = lb_dtype_size(t->dtype);
  for (int64_t i = 0; i < values->dims[0]; i++) {
    int64_t at = dense_index(indices, t, count, i);
    if (at < 0)
      return lb_error(LB_INVALID,
                      "sparse %s: index of element %" PRId64 " is out of range",
                      label, i);
    memcpy((uint8_t *)t->data + (size_t)at * size,
           (const uint8_t *)values->data + (size_t)i * size, size);
  }
  return LB_OK;
}

static lb_status make_dense(lb_import *im, const lb_tensor *values,
                            const lb_tensor *indices, const char *label,
                            lb_tensor *t) {
  bool fits = values->rank == 1 && indices->dtype == LB_I64 &&
              indices->rank >= 1 && indices->dims[0] == values->dims[0] &&
              (indices->rank == 1 ||
               (indices->rank == 2 && indices->dims[1] == t->rank));
  if (!fits)
    return lb_error(LB_INVALID, "sparse %s: indices do not match its values",
                    label);
  int64_t count;
  LB_TRY(lb_dims_count(t->rank, t->dims, &count));
  t->dtype = values->dtype;
  lb_tensor_dense(t);
  size_t bytes = lb_mul_sat((size_t)count, lb_dtype_size(t->dtype));
  if (bytes > MAX_SPARSE_BYTES - im->sparse_bytes)
    return lb_error(LB_UNSUPPORTED,
                    "sparse %s would take %zu bytes; all sparse tensors "
                    "together may take %zu",
                    label, bytes, MAX_SPARSE_BYTES);
  im->sparse_bytes += bytes;
  t->data = lb_arena_zalloc(&im->graph->arena, bytes, 64);
  if (!t->data) return lb_oom();
  return scatter(values, indices, count, t, label);
}

static lb_status read_sparse(lb_import *im, lb_wire w, lb_pb_str name,
                             lb_tensor *out) {
  proto p = {0};
  set_label(&p, name);
  lb_tensor values = {0}, indices = {0};
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number == 1 || f.number == 2) {
      st = lb_wire_expect(&w, &f, LB_WIRE_BYTES);
      if (!lb_failed(st))
        st = read_dense(im, f.bytes, name, f.number == 1 ? &values : &indices);
    } else if (f.number == 3) {
      st = read_dims(out, p.label, &w, f);
    }
  }
  LB_TRY(st);
  if (!values.dtype)
    return lb_error(LB_INVALID, "sparse %s has no values", p.label);
  return make_dense(im, &values, &indices, p.label, out);
}

lb_status lb_import_tensor(lb_import *im, lb_pb_tensor *t,
                           const lb_tensor **out) {
  if (!t->decoded) {
    lb_tensor *made = lb_arena_new(&im->graph->arena, lb_tensor, 1);
    if (!made) return lb_oom();
    LB_TRY(t->sparse ? read_sparse(im, t->body, t->name, made)
                     : read_dense(im, t->body, t->name, made));
    im->model->weight_bytes += (int64_t)lb_tensor_bytes(made);
    t->decoded = made;
  }
  *out = t->decoded;
  return LB_OK;
}
