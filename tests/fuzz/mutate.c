// tests/fuzz/mutate.c -- Mutations that keep a model readable.
//
// A changed byte mostly invalidates the length of the enclosing message, and
// the reader then rejects the rest. This mutator changes, removes, duplicates
// or moves one field somewhere in the tree of messages, and adapts all
// enclosing lengths. Strings are replaced by other strings of the model, which
// connects nodes differently. No schema is needed: bytes that parse as a
// message are treated as one.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                               unsigned seed);

enum { MAX_FIELDS = 512, MAX_DEPTH = 12, SHORT = 64 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct span {
  const uint8_t *p;
  size_t n;
} span;

typedef struct field {
  span all;   // tag, length and payload
  span body;  // payload only
  uint64_t tag;
} field;

typedef struct out {  // bytes being written; those beyond `cap` are dropped
  uint8_t *p;
  size_t n, cap;
} out;

static uint64_t roll(uint64_t *state, uint64_t below) {
  *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (*state >> 33) % below;
}

// -- wire format -------------------------------------------------------------

static bool read_varint(span *s, uint64_t *v) {
  *v = 0;
  for (int shift = 0; s->n && shift < 64; shift += 7) {
    uint8_t byte = *s->p++;
    s->n--;
    *v |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

static bool read_field(span *s, field *f) {
  const uint8_t *begin = s->p;
  uint64_t n = 0;
  if (!read_varint(s, &f->tag) || f->tag >> 3 == 0) return false;
  f->body.p = s->p;
  switch (f->tag & 7) {
    case VARINT:
      if (!read_varint(s, &n)) return false;
      n = 0;
      break;
    case BYTES:
      if (!read_varint(s, &n)) return false;
      f->body.p = s->p;
      break;
    case FIXED64: n = 8; break;
    case FIXED32: n = 4; break;
    default: return false;
  }
  if (n > s->n) return false;
  s->p += n;
  s->n -= n;
  f->body.n = (size_t)(s->p - f->body.p);
  f->all = (span){begin, (size_t)(s->p - begin)};
  return true;
}

// The number of fields; 0 if the bytes are not a message.
static int read_fields(span s, field *f) {
  int n = 0;
  for (; s.n && n < MAX_FIELDS; n++)
    if (!read_field(&s, &f[n])) return 0;
  return s.n ? 0 : n;
}

static void put(out *o, span s) {
  size_t n = s.n < o->cap - o->n ? s.n : o->cap - o->n;
  if (n) memcpy(o->p + o->n, s.p, n);
  o->n += n;
}

static void put_varint(out *o, uint64_t v) {
  uint8_t bytes[10];
  size_t n = 0;
  for (; v > 127; v >>= 7) bytes[n++] = (uint8_t)(v | 128);
  bytes[n++] = (uint8_t)v;
  put(o, (span){bytes, n});
}

// -- one field ---------------------------------------------------------------

// A short string of the model, which replaces another one.
static span find_string(span model, uint64_t *state) {
  span found = {NULL, 0};
  field *f = malloc(MAX_FIELDS * sizeof *f);
  for (int depth = 0; f && depth < MAX_DEPTH; depth++) {
    int n = read_fields(model, f);
    if (n == 0) break;
    const field *chosen = &f[roll(state, (uint64_t)n)];
    if ((chosen->tag & 7) != BYTES) break;
    if (chosen->body.n <= SHORT) found = chosen->body;
    model = chosen->body;
  }
  free(f);
  return found;
}

static void change_varint(const field *f, uint64_t *state, out *o) {
  static const int64_t usual[] = {0, 1,  2,  3,  4,  5,   6,         7,
                                  8, 10, 11, 16, 64, 255, 2147483647};
  span s = f->body;
  uint64_t v = 0;
  read_varint(&s, &v);
  switch (roll(state, 6)) {
    case 0: v++; break;
    case 1: v--; break;
    case 2: v = -v; break;
    case 3: v ^= UINT64_C(1) << roll(state, 64); break;
    default: v = (uint64_t)usual[roll(state, sizeof usual / sizeof *usual)];
  }
  put_varint(o, f->tag);
  put_varint(o, v);
}

static void change_bytes(const field *f, span model, uint64_t *state, out *o) {
  size_t capacity = f->body.n + SHORT;
  uint8_t *bytes = malloc(capacity);
  if (!bytes) return;
  span s = find_string(model, state);
  if (!s.p || roll(state, 3) == 0) {
    if (f->body.n) memcpy(bytes, f->body.p, f->body.n);
    s = (span){bytes, LLVMFuzzerMutate(bytes, f->body.n, capacity)};
  }
  put_varint(o, f->tag);
  put_varint(o, s.n);
  put(o, s);
  free(bytes);
}

static void change_fixed(const field *f, out *o) {
  uint8_t bytes[8];
  memcpy(bytes, f->body.p, f->body.n);
  LLVMFuzzerMutate(bytes, f->body.n, f->body.n);
  put_varint(o, f->tag);
  put(o, (span){bytes, f->body.n});
}

static bool change_message(span s, span model, int depth, uint64_t *state,
                           out *o);

static void change_nested(const field *f, span model, int depth,
                          uint64_t *state, out *o) {
  size_t cap = 2 * f->body.n + 2 * SHORT;
  out inner = {malloc(cap), 0, cap};
  if (inner.p && change_message(f->body, model, depth + 1, state, &inner)) {
    put_varint(o, f->tag);
    put_varint(o, inner.n);
    put(o, (span){inner.p, inner.n});
  } else {
    change_bytes(f, model, state, o);
  }
  free(inner.p);
}

static void change_field(const field *f, span model, int depth, uint64_t *state,
                         out *o) {
  switch (f->tag & 7) {
    case VARINT: change_varint(f, state, o); break;
    case BYTES: change_nested(f, model, depth, state, o); break;
    default: change_fixed(f, o);
  }
}

// False if the bytes are not a message.
static bool change_message(span s, span model, int depth, uint64_t *state,
                           out *o) {
  field *f = depth < MAX_DEPTH ? malloc(MAX_FIELDS * sizeof *f) : NULL;
  int n = f ? read_fields(s, f) : 0;
  if (n > 0) {
    int at = (int)roll(state, (uint64_t)n);
    int other = (int)roll(state, (uint64_t)n);
    uint64_t how = roll(state, 24);
    for (int i = 0; i < n; i++) {
      if (how == 0 && i == at) continue;                // removed
      if (how == 1 && i == other) put(o, f[at].all);    // duplicated
      bool swap = how == 2 && (i == at || i == other);  // moved
      if (how > 2 && i == at)
        change_field(&f[i], model, depth, state, o);
      else
        put(o, f[swap ? at + other - i : i].all);
    }
  }
  free(f);
  return n > 0;
}

// Changes all declared values of one dtype to another, because most operators
// need equal dtypes. In a type, the dtype (field 1) directly precedes the shape
// (field 2).
static void change_dtypes(uint8_t *data, size_t size, uint64_t *state) {
  uint8_t from = 0, to = (uint8_t)(1 + roll(state, 16));
  for (size_t i = 0; i + 2 < size; i++) {
    if (data[i] != 8 || data[i + 2] != 18) continue;
    if (!from) from = data[i + 1];
    if (data[i + 1] == from) data[i + 1] = to;
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                               unsigned seed) {
  uint64_t state = seed;
  if (roll(&state, 10) == 0) return LLVMFuzzerMutate(data, size, max_size);
  if (roll(&state, 10) == 0) change_dtypes(data, size, &state);
  for (uint64_t times = 1 + roll(&state, 3); times > 0; times--) {
    out o = {malloc(max_size), 0, max_size};
    span model = {data, size};
    bool done = o.p && change_message(model, model, 0, &state, &o);
    if (done && o.n) memcpy(data, o.p, size = o.n);
    free(o.p);
    if (!done) return LLVMFuzzerMutate(data, size, max_size);
  }
  return size;
}
