// onnx/attribute.c -- decodes attribute messages. Each payload is decoded once,
// into the graph's arena, however often a function's body is inlined.
#include <string.h>

#include "onnx/reader.h"

// AttributeProto.AttributeType
enum {
  T_NONE,
  T_FLOAT,
  T_INT,
  T_STRING,
  T_TENSOR,
  T_GRAPH,
  T_FLOATS,
  T_INTS,
  T_STRINGS,
  T_SPARSE = 11,
};

// AttributeProto's fields
enum {
  F_NAME = 1,
  F_F = 2,
  F_I = 3,
  F_S = 4,
  F_T = 5,
  F_G = 6,
  F_FLOATS = 7,
  F_INTS = 8,
  F_STRINGS = 9,
  F_TYPE = 20,
  F_REF = 21,
  F_SPARSE = 22,
  F_COUNT = 23,
};

static float as_float(uint64_t bits) {
  uint32_t low = (uint32_t)bits;
  float f;
  memcpy(&f, &low, sizeof f);
  return f;
}

static lb_status copy_string(lb_reader *r, const lb_wire *w,
                             const lb_wire_field *f, const char **out,
                             uint32_t *size) {
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
  size_t n = lb_wire_size(f->bytes);
  if (n > UINT32_MAX)
    return lb_error(LB_INVALID, "a string of %zu bytes is too long", n);
  *out = lb_arena_strndup(r->persistent, (const char *)f->bytes.p, n);
  *size = (uint32_t)n;
  return *out ? LB_OK : lb_oom();
}

// The number of numbers or strings in all fields with that field number.
static lb_status list_size(lb_wire w, uint32_t number, lb_wire_type type,
                           uint32_t *out) {
  size_t total = 0, n;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    if (f.number != number) continue;
    n = 1;
    st = type == LB_WIRE_BYTES ? lb_wire_expect(&w, &f, type)
                               : lb_wire_elems(&w, &f, type, &n);
    total += n;
  }
  LB_TRY(st);
  if (total > UINT32_MAX)
    return lb_error(LB_INVALID, "a list of %zu is too long", total);
  *out = (uint32_t)total;
  return LB_OK;
}

static lb_status read_ints(lb_reader *r, lb_wire w, lb_attr *a) {
  LB_TRY(list_size(w, F_INTS, LB_WIRE_VARINT, &a->n));
  int64_t *to = lb_arena_new(r->persistent, int64_t, a->n);
  if (!to) return lb_oom();
  a->ints = to;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    size_t n = 0;
    if (f.number == F_INTS) st = lb_wire_elems(&w, &f, LB_WIRE_VARINT, &n);
    for (uint64_t v; n > 0 && !lb_failed(st); n--) {
      st = lb_wire_take(&f, LB_WIRE_VARINT, &v);
      if (!lb_failed(st)) *to++ = (int64_t)v;
    }
  }
  return st;
}

static lb_status read_floats(lb_reader *r, lb_wire w, lb_attr *a) {
  LB_TRY(list_size(w, F_FLOATS, LB_WIRE_FIXED32, &a->n));
  float *to = lb_arena_new(r->persistent, float, a->n);
  if (!to) return lb_oom();
  a->floats = to;
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st)) {
    size_t n = 0;
    if (f.number == F_FLOATS) st = lb_wire_elems(&w, &f, LB_WIRE_FIXED32, &n);
    for (uint64_t v; n > 0 && !lb_failed(st); n--) {
      st = lb_wire_take(&f, LB_WIRE_FIXED32, &v);
      if (!lb_failed(st)) *to++ = as_float(v);
    }
  }
  return st;
}

static lb_status read_strings(lb_reader *r, lb_wire w, lb_attr *a) {
  LB_TRY(list_size(w, F_STRINGS, LB_WIRE_BYTES, &a->n));
  const char **to = lb_arena_new(r->persistent, const char *, a->n);
  if (!to) return lb_oom();
  a->strings = to;
  lb_status st = LB_OK;
  lb_wire_field f;
  uint32_t size;
  while (lb_wire_next(&w, &f, &st))
    if (f.number == F_STRINGS) st = copy_string(r, &w, &f, to++, &size);
  return st;
}

static lb_status read_tensor(lb_reader *r, lb_wire body, bool sparse,
                             lb_pb_attr *out) {
  out->tensor = lb_arena_new(r->scratch, lb_pb_tensor, 1);
  if (!out->tensor) return lb_oom();
  return lb_read_tensor(body, sparse, out->tensor);
}

static lb_status read_subgraph(lb_reader *r, lb_wire body, lb_pb_attr *out) {
  out->graph = lb_arena_new(r->scratch, lb_pb_graph, 1);
  if (!out->graph) return lb_oom();
  return lb_read_graph(r, body, out->graph);
}

// The last field with that number. out->number is 0 if there is none, because
// writers omit zeros and empty strings.
static lb_status last_field(lb_wire w, uint32_t number, lb_wire_field *out) {
  *out = (lb_wire_field){.bytes = {w.start, w.p, w.p}};
  lb_status st = LB_OK;
  lb_wire_field f;
  while (lb_wire_next(&w, &f, &st))
    if (f.number == number) *out = f;
  return st;
}

static lb_status read_scalar(lb_reader *r, const lb_wire *w, lb_wire_field f,
                             int64_t type, lb_attr *out) {
  if (!f.number)
    f.type = type == T_FLOAT ? LB_WIRE_FIXED32
             : type == T_INT ? LB_WIRE_VARINT
                             : LB_WIRE_BYTES;
  if (type == T_INT) return lb_read_int(w, &f, &out->i);
  if (type == T_STRING) return copy_string(r, w, &f, &out->s, &out->n);
  out->f = as_float(f.n);
  return lb_wire_expect(w, &f, LB_WIRE_FIXED32);
}

static lb_status read_message(lb_reader *r, const lb_wire *w,
                              const lb_wire_field *f, int64_t type,
                              lb_pb_attr *out) {
  if (!f->number)
    return lb_error(LB_INVALID, "attribute '%.*s' has a type but no value",
                    LB_STR(out->name));
  LB_TRY(lb_wire_expect(w, f, LB_WIRE_BYTES));
  if (type == T_GRAPH) return read_subgraph(r, f->bytes, out);
  return read_tensor(r, f->bytes, type == T_SPARSE, out);
}

static lb_status read_single(lb_reader *r, lb_wire w, int64_t type,
                             lb_pb_attr *out) {
  static const uint32_t field_of[] = {
      [T_FLOAT] = F_F,  [T_INT] = F_I,   [T_STRING] = F_S,
      [T_TENSOR] = F_T, [T_GRAPH] = F_G, [T_SPARSE] = F_SPARSE};
  lb_wire_field f;
  LB_TRY(last_field(w, field_of[type], &f));
  if (type == T_FLOAT || type == T_INT || type == T_STRING)
    return read_scalar(r, &w, f, type, &out->attr);
  return read_message(r, &w, &f, type, out);
}

// Old files have no type field: the type follows from the fields present.
static int64_t guess_type(const uint32_t *counts) {
  static const uint8_t order[][2] = {
      {F_F, T_FLOAT},   {F_I, T_INT},           {F_S, T_STRING},
      {F_T, T_TENSOR},  {F_G, T_GRAPH},         {F_FLOATS, T_FLOATS},
      {F_INTS, T_INTS}, {F_STRINGS, T_STRINGS}, {F_SPARSE, T_SPARSE}};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (counts[order[i][0]]) return order[i][1];
  return T_NONE;
}

static lb_status read_payload(lb_reader *r, lb_wire w, int64_t type,
                              lb_pb_attr *out) {
  static const lb_attr_kind kinds[] = {
      [T_FLOAT] = LB_ATTR_FLOAT,    [T_INT] = LB_ATTR_INT,
      [T_STRING] = LB_ATTR_STRING,  [T_TENSOR] = LB_ATTR_TENSOR,
      [T_FLOATS] = LB_ATTR_FLOATS,  [T_INTS] = LB_ATTR_INTS,
      [T_STRINGS] = LB_ATTR_STRINGS};
  if (type > 0 && type <= T_STRINGS && type != T_GRAPH)
    out->attr.kind = kinds[type];
  out->plain =
      type > 0 && type <= T_STRINGS && type != T_GRAPH && type != T_TENSOR;
  switch (type) {
    case T_FLOATS: return read_floats(r, w, &out->attr);
    case T_INTS: return read_ints(r, w, &out->attr);
    case T_STRINGS: return read_strings(r, w, &out->attr);
    case T_FLOAT:
    case T_INT:
    case T_STRING:
    case T_TENSOR:
    case T_GRAPH:
    case T_SPARSE: return read_single(r, w, type, out);
    default: return LB_OK;  // no supported operator uses another type
  }
}

lb_status lb_read_attr(lb_reader *r, lb_wire w, lb_pb_attr *out) {
  uint32_t counts[F_COUNT];
  LB_TRY(lb_wire_count(w, counts, F_COUNT));
  int64_t type = T_NONE;
  lb_status st = LB_OK;
  lb_wire_field f;
  for (lb_wire at = w; lb_wire_next(&at, &f, &st);) {
    if (f.number == F_NAME) st = lb_read_str(&at, &f, &out->name);
    if (f.number == F_REF) st = lb_read_str(&at, &f, &out->ref);
    if (f.number == F_TYPE) st = lb_read_int(&at, &f, &type);
  }
  LB_TRY(st);
  out->attr.name = lb_pb_cstr(r->persistent, out->name);
  if (!out->attr.name) return lb_oom();
  if (out->ref.n) return LB_OK;
  return read_payload(r, w, type ? type : guess_type(counts), out);
}
