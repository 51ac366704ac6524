// tools/case.c -- parses a case, and draws the elements it runs on.
#include "case.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "element.h"

// -- words -------------------------------------------------------------------

// Copies the text up to the next of the characters in `ends`, and moves past
// that character. Returns false at the end of the text.
static bool word(const char **text, const char *ends, char *out, size_t cap) {
  size_t n = strcspn(*text, ends);
  if (!**text && !n) return false;
  if (n >= cap) n = cap - 1;
  memcpy(out, *text, n);
  out[n] = 0;
  *text += strcspn(*text, ends);
  if (**text) (*text)++;
  return true;
}

static bool read_int(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return end != text && !*end && !errno;
}

static bool read_float(const char *text, float *out) {
  char *end;
  *out = strtof(text, &end);
  return end != text && !*end;
}

static int find_alg(const char *name) {
  for (int i = 1; i < LIMBER_ALGS; i++)
    if (!strcmp(limber_alg_name(i), name)) return i;
  return 0;
}

static int find_kind(const char *name) {
  for (int i = 1; i < LIMBER_PRIMITIVE_KINDS; i++)
    if (!strcmp(limber_primitive_kind_name(i), name)) return i;
  return 0;
}

// FNV-1a, so that the elements depend only on texts.
static uint64_t hash_text(const char *text) {
  uint64_t h = 0xcbf29ce484222325;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3;
  return h;
}

// -- elements ----------------------------------------------------------------

typedef enum value_range { ANY, POSITIVE, LENGTHS } value_range;

// Draws multiples of 1/8 from -2 to 2: sums of their products are exact in
// float32, in any order, up to thousands of terms.
static double draw_value(uint64_t *state, value_range r) {
  int64_t n = (int64_t)(draw_next(state) % 33) - 16;
  return (double)(r == POSITIVE ? (n < 0 ? -n : n) + 1 : n) / 8;
}

static bool draw_elements(limber_tensor *t, uint64_t *state, value_range r,
                          problem *p) {
  int64_t count, whole;
  if (!count_of(t->rank, t->dims, &count))
    return fail(p, EXIT_USAGE, "dims are too large");
  if (!tensor_alloc(t, p)) return false;
  for (int64_t i = 0; i < count; i++) {
    double real = draw_value(state, r);
    whole = (int64_t)(real * 2);
    if (r == POSITIVE || whole < 0) whole = whole < 0 ? -whole : whole + 1;
    if (r == ANY && (t->dtype == LIMBER_I8 || t->dtype == LIMBER_I16 ||
                     t->dtype == LIMBER_I32 || t->dtype == LIMBER_I64))
      whole = (int64_t)(real * 2);
    if (t->dtype == LIMBER_BOOL) whole = whole & 1;
    element_set(t, i, real, whole);
  }
  return true;
}

// -- operands ----------------------------------------------------------------

static bool read_dims(const char *text, limber_operand *o, limber_tensor *t) {
  char dim[32];
  while (word(&text, "x", dim, sizeof dim)) {
    bool runtime = dim[0] == '?';
    if (o->rank == LIMBER_MAX_RANK ||
        !read_int(dim + runtime, &t->dims[o->rank]))
      return false;
    o->dims[o->rank] = runtime ? LIMBER_RUNTIME_DIM : t->dims[o->rank];
    o->rank++;
  }
  t->rank = o->rank;
  return true;
}

static bool read_operand(const char *text, limber_operand *o, limber_tensor *t,
                         bool *constant, problem *p) {
  const char *at = text;
  char part[128];
  *o = (limber_operand){0};
  *t = (limber_tensor){0};
  *constant = false;
  if (!strcmp(text, "-")) return true;
  if (!word(&at, ":", part, sizeof part) ||
      !(o->dtype = (int32_t)dtype_from_short(part, strlen(part))))
    return fail(p, EXIT_USAGE, "operand '%s' does not begin with a dtype",
                text);
  t->dtype = (limber_dtype)o->dtype;
  if (word(&at, ":", part, sizeof part) && !read_dims(part, o, t))
    return fail(p, EXIT_USAGE, "operand '%s': write dims as 5x33", text);
  while (word(&at, ":", part, sizeof part)) {
    if (!strcmp(part, "const")) {
      *constant = true;
    } else if (!strcmp(part, "last")) {
      o->layout = LIMBER_LAYOUT_CHANNELS_LAST;
    } else {
      return fail(p, EXIT_USAGE, "operand '%s': unknown suffix '%s'", text,
                  part);
    }
  }
  return true;
}

static bool needs_positive(int alg) {
  return alg == LIMBER_ALG_LOG || alg == LIMBER_ALG_SQRT ||
         alg == LIMBER_ALG_RECIPROCAL || alg == LIMBER_ALG_POW ||
         alg == LIMBER_ALG_DIV || alg == LIMBER_ALG_BATCH_NORM;
}

static value_range range_of(const primitive_case *c, int i) {
  if (c->desc.kind == LIMBER_RECURRENT && i == 4) return LENGTHS;
  return needs_positive(c->desc.alg) ? POSITIVE : ANY;
}

// Sequence lengths must not exceed the sequence dim of src.
static void draw_lengths(primitive_case *c) {
  limber_tensor *t = &c->elements[4];
  int64_t longest = c->elements[0].dims[0];
  for (int64_t i = 0; i < t->dims[0]; i++)
    element_set(
        t, i, 0,
        longest ? 1 + (int64_t)(draw_next(&c->state) % (uint64_t)longest) : 0);
}

static bool read_operands(primitive_case *c, const char *text, problem *p) {
  char one[256];
  bool constant;
  for (int i = 0; word(&text, ",", one, sizeof one); i++) {
    limber_operand *o = &c->desc.in[i];
    if (i == LIMBER_MAX_OPERANDS)
      return fail(p, EXIT_USAGE, "more than %d operands", i);
    if (!read_operand(one, o, &c->elements[i], &constant, p)) return false;
    if (!o->dtype) continue;
    uint64_t own = hash_text(one);
    if (!draw_elements(&c->elements[i], constant ? &own : &c->state,
                       range_of(c, i), p))
      return false;
    if (range_of(c, i) == LENGTHS) draw_lengths(c);
    if (constant) o->data = c->elements[i].data;
  }
  return true;
}

// -- post-operations ---------------------------------------------------------

static bool read_post(primitive_case *c, const char *text, problem *p) {
  case_post *q = &c->post[c->n_post];
  const char *at = text;
  char name[64], number[64];
  bool constant, sum;
  if (c->n_post == LIMBER_MAX_POST_OPS)
    return fail(p, EXIT_USAGE, "more than %d post-operations",
                LIMBER_MAX_POST_OPS);
  word(&at, ":", name, sizeof name);
  sum = !strcmp(name, "sum");
  q->alg = sum ? 0 : find_alg(name);
  if (!sum && limber_alg_kind(q->alg) != LIMBER_ELTWISE &&
      limber_alg_kind(q->alg) != LIMBER_BINARY)
    return fail(p, EXIT_USAGE, "'%s' is not a post-operation", name);
  c->n_post++;
  if (!sum && limber_alg_kind(q->alg) == LIMBER_BINARY) {
    if (!read_operand(at, &q->in, &q->elements, &constant, p)) return false;
    value_range r = needs_positive(q->alg) ? POSITIVE : ANY;
    uint64_t own = hash_text(at);
    if (!draw_elements(&q->elements, constant ? &own : &c->state, r, p))
      return false;
    if (constant) q->in.data = q->elements.data;
    return true;
  }
  q->alpha = sum ? 1 : 0;
  if (word(&at, ":", number, sizeof number) && !read_float(number, &q->alpha))
    return fail(p, EXIT_USAGE, "post-operation '%s': not a number", text);
  if (word(&at, ":", number, sizeof number) && !read_float(number, &q->beta))
    return fail(p, EXIT_USAGE, "post-operation '%s': not a number", text);
  return true;
}

static bool read_posts(primitive_case *c, const char *text, problem *p) {
  char one[256];
  while (word(&text, ",", one, sizeof one))
    if (!read_post(c, one, p)) return false;
  return true;
}

// -- fields ------------------------------------------------------------------

typedef struct field {
  const char *name;
  enum { I32, I64, F32 } type;
  size_t offset, count;
} field;

#define FIELD(name, type, size)                             \
  {                                                         \
#name, type, offsetof(limber_primitive_desc, name),     \
        sizeof(((limber_primitive_desc *)0)->name) / (size) \
  }
static const field fields[] = {
    FIELD(out_layout, I32, 4), FIELD(axis, I32, 4),
    FIELD(axes, I32, 4),       FIELD(keep_dims, I32, 4),
    FIELD(transpose, I32, 4),  FIELD(ceil_mode, I32, 4),
    FIELD(direction, I32, 4),  FIELD(reset_after, I32, 4),
    FIELD(epsilon, F32, 4),    FIELD(alpha, F32, 4),
    FIELD(beta, F32, 4),       FIELD(factors, F32, 4),
    FIELD(sizes, I64, 8),      FIELD(kernel, I64, 8),
    FIELD(strides, I64, 8),    FIELD(dilations, I64, 8),
    FIELD(pads, I64, 8),       FIELD(output_pads, I64, 8),
    FIELD(groups, I64, 8),     FIELD(causal, I32, 4),
};

static bool set_field(limber_primitive_desc *d, const field *f, size_t i,
                      const char *text) {
  char *at = (char *)d + f->offset;
  int64_t whole;
  float real;
  if (i == f->count) return false;
  if (f->type == F32) {
    if (!read_float(text, &real)) return false;
    memcpy(at + i * sizeof real, &real, sizeof real);
    return true;
  }
  if (!read_int(text, &whole)) return false;
  if (f->type == I64) {
    memcpy(at + i * sizeof whole, &whole, sizeof whole);
  } else {
    int32_t narrow = (int32_t)whole;
    memcpy(at + i * sizeof narrow, &narrow, sizeof narrow);
  }
  return true;
}

static bool read_field(primitive_case *c, const char *name, const char *value,
                       problem *p) {
  char one[64];
  const char *at = value;
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    if (strcmp(fields[i].name, name)) continue;
    size_t n = 0;
    for (; word(&at, "x", one, sizeof one); n++)
      if (!set_field(&c->desc, &fields[i], n, one))
        return fail(p, EXIT_USAGE, "%s=%s: not a valid list of numbers", name,
                    value);
    if (!strcmp(name, "axes")) c->desc.n_axes = (int32_t)n;
    return true;
  }
  return fail(p, EXIT_USAGE, "unknown field '%s'", name);
}

static bool read_pair(primitive_case *c, const char *name, const char *value,
                      problem *p) {
  int64_t on;
  if (!strcmp(name, "alg")) {
    c->desc.alg = find_alg(value);
    return c->desc.alg || fail(p, EXIT_USAGE, "alg=%s: unknown alg", value);
  }
  if (!strcmp(name, "out_dtype")) {
    c->desc.out_dtype = (int32_t)dtype_from_short(value, strlen(value));
    return c->desc.out_dtype ||
           fail(p, EXIT_USAGE, "out_dtype=%s: unknown dtype", value);
  }
  if (!strcmp(name, "in")) return read_operands(c, value, p);
  if (!strcmp(name, "post")) return read_posts(c, value, p);
  bool reusable = !strcmp(name, "reusable");
  if (!reusable && strcmp(name, "deterministic"))
    return read_field(c, name, value, p);
  if (!read_int(value, &on) || on < 0 || on > 1)
    return fail(p, EXIT_USAGE, "%s=%s: must be 0 or 1", name, value);
  *(reusable ? &c->reusable : &c->deterministic) = (int)on;
  return true;
}

bool case_read(const char *text, primitive_case *c, problem *p) {
  const char *at = text;
  char pair[1024];
  *c = (primitive_case){.reusable = -1, .state = hash_text(text)};
  c->desc.size = sizeof c->desc;
  if (!word(&at, " ", pair, sizeof pair) || !(c->desc.kind = find_kind(pair)))
    return fail(p, EXIT_USAGE, "'%s' does not begin with a kind of primitive",
                text);
  while (word(&at, " ", pair, sizeof pair)) {
    char *equals = strchr(pair, '=');
    if (!*pair) continue;
    if (!equals) return fail(p, EXIT_USAGE, "'%s' is not NAME=VALUE", pair);
    *equals = 0;
    if (!read_pair(c, pair, equals + 1, p)) return false;
  }
  return true;
}

void case_fini(primitive_case *c) {
  for (int i = 0; i < LIMBER_MAX_OPERANDS; i++) free(c->elements[i].data);
  for (size_t i = 0; i < c->n_post; i++) free(c->post[i].elements.data);
  *c = (primitive_case){0};
}

// -- running -----------------------------------------------------------------

static limber_status append(limber_attr *a, const case_post *q) {
  if (!q->alg) return limber_attr_append_sum(a, q->alpha);
  if (limber_alg_kind(q->alg) == LIMBER_BINARY)
    return limber_attr_append_binary(a, q->alg, &q->in);
  return limber_attr_append_eltwise(a, q->alg, q->alpha, q->beta);
}

bool case_attr(const primitive_case *c, bool reference, bool bare,
               limber_attr **out, problem *p) {
  limber_attr *a;
  limber_status st = limber_attr_create(&a);
  *out = a;
  for (size_t i = 0; !st && !bare && i < c->n_post; i++)
    st = append(a, &c->post[i]);
  if (!st && reference) st = limber_attr_set_reference(a, 1);
  if (!st && !reference && c->deterministic)
    st = limber_attr_set_deterministic(a, 1);
  if (!st && !reference && c->reusable >= 0)
    st = limber_attr_set_hint_reusable_kernels(a, c->reusable);
  return !st || fail_status(p, st, "attributes");
}

size_t case_inputs(const primitive_case *c, bool bare, limber_tensor *out) {
  size_t n = 0;
  for (int i = 0; i < LIMBER_MAX_OPERANDS; i++)
    if (c->desc.in[i].dtype && !c->desc.in[i].data) out[n++] = c->elements[i];
  for (size_t i = 0; !bare && i < c->n_post; i++) {
    const case_post *q = &c->post[i];
    bool given = !q->alg || (q->in.dtype && !q->in.data);
    if (given) out[n++] = q->elements;
  }
  return n;
}

bool case_add_sums(primitive_case *c, const limber_tensor *result, problem *p) {
  for (size_t i = 0; i < c->n_post; i++) {
    case_post *q = &c->post[i];
    if (q->alg || q->elements.data) continue;
    q->elements = (limber_tensor){.dtype = result->dtype, .rank = result->rank};
    memcpy(q->elements.dims, result->dims, sizeof result->dims);
    if (!draw_elements(&q->elements, &c->state, ANY, p)) return false;
  }
  return true;
}
