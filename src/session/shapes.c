// session/shapes.c -- signatures as text, and back.
#include "session/shapes.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

#define HEADER "# limber-shapes 1"

// -- writing -----------------------------------------------------------------

static void print_name(const char *name, lb_strbuf *out) {
  for (const char *c = name; *c; c++) {
    unsigned char b = (unsigned char)*c;
    if (b <= ' ' || b == 127 || strchr("%=>", b)) {
      lb_strbuf_printf(out, "%%%02x", b);
    } else {
      lb_strbuf_putc(out, *c);
    }
  }
}

// An integer, or an integer times a power of two, "3p-1": exact, and
// independent of the locale.
static void print_real(double v, lb_strbuf *out) {
  if (isnan(v) || isinf(v)) {
    lb_strbuf_puts(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
    return;
  }
  int e;
  int64_t m = (int64_t)ldexp(frexp(v, &e), 53);
  for (e -= 53; m && e < 0 && m % 2 == 0; e++) m /= 2;
  lb_strbuf_printf(out, "%" PRId64, m);
  if (m && e) lb_strbuf_printf(out, "p%d", e);
}

// Elements may be unaligned.
static void print_element(const lb_tensor *t, int64_t i, lb_strbuf *out) {
  const char *at = (const char *)t->data + (size_t)i * lb_dtype_size(t->dtype);
  switch (t->dtype) {
#define REAL(id, type, value) \
  case LB_##id: {             \
    type v;                   \
    memcpy(&v, at, sizeof v); \
    print_real(value, out);   \
    break;                    \
  }
#define ELEMENT(id, type, format, value)  \
  case LB_##id: {                         \
    type v;                               \
    memcpy(&v, at, sizeof v);             \
    lb_strbuf_printf(out, format, value); \
    break;                                \
  }
    REAL(F32, float, (double)v)
    REAL(F64, double, v)
    REAL(F16, uint16_t, (double)lb_f16_to_f32(v))
    REAL(BF16, uint16_t, (double)lb_bf16_to_f32(v))
    ELEMENT(I8, int8_t, "%" PRId64, (int64_t)v)
    ELEMENT(I16, int16_t, "%" PRId64, (int64_t)v)
    ELEMENT(I32, int32_t, "%" PRId64, (int64_t)v)
    ELEMENT(I64, int64_t, "%" PRId64, v)
    ELEMENT(U8, uint8_t, "%" PRIu64, (uint64_t)v)
    ELEMENT(U16, uint16_t, "%" PRIu64, (uint64_t)v)
    ELEMENT(U32, uint32_t, "%" PRIu64, (uint64_t)v)
    ELEMENT(U64, uint64_t, "%" PRIu64, v)
    ELEMENT(BOOL, uint8_t, "%" PRIu64, (uint64_t)v)
#undef ELEMENT
#undef REAL
    case LB_NONE:
    case LB_DTYPE_COUNT: break;
  }
}

static void print_input(const char *name, const lb_tensor *t, lb_strbuf *out) {
  lb_strbuf_putc(out, ' ');
  print_name(name, out);
  lb_strbuf_printf(out, "=%s[", lb_dtype_name(t->dtype));
  for (int i = 0; i < t->rank; i++)
    lb_strbuf_printf(out, "%s%" PRId64, i ? "," : "", t->dims[i]);
  lb_strbuf_putc(out, ']');
  if (!t->data) return;
  int64_t n = lb_tensor_count(t);
  lb_strbuf_putc(out, '{');
  for (int64_t i = 0; i < n; i++) {
    if (i) lb_strbuf_putc(out, ',');
    print_element(t, i, out);
  }
  lb_strbuf_putc(out, '}');
}

void lb_shapes_print_header(lb_strbuf *out) {
  lb_strbuf_puts(out, HEADER "\n");
}

void lb_shapes_print(const lb_recorded_signature *s, lb_strbuf *out) {
  lb_strbuf_printf(out, "%" PRIu64, s->count);
  for (uint32_t i = 0; i < s->n_inputs; i++)
    print_input(s->names[i], &s->inputs[i], out);
  if (s->outputs) lb_strbuf_puts(out, " >");
  for (uint32_t i = 0; s->outputs && i < s->n_outputs; i++) {
    lb_strbuf_putc(out, ' ');
    print_name(s->outputs[i], out);
  }
  lb_strbuf_putc(out, '\n');
}

// -- reading -----------------------------------------------------------------

typedef struct shapes_reader {
  lb_shapes *out;
  char *at;           // NUL-terminated: one line
  const char *error;  // if NULL on failure: out of memory
} shapes_reader;

static bool fail_reader(shapes_reader *r, const char *error) {
  if (!r->error) r->error = error;
  return false;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Up to a blank, '=' or the end; decoded in place.
static bool read_name(shapes_reader *r, const char **out) {
  char *to = r->at, *name = r->at;
  while (*r->at && *r->at != ' ' && *r->at != '=') {
    char c = *r->at++;
    if (c == '%') {
      int high = hex_digit(r->at[0]);
      int low = high < 0 ? -1 : hex_digit(r->at[1]);
      if (low < 0 || (high == 0 && low == 0))
        return fail_reader(r, "a '%' without two digits");
      c = (char)(high * 16 + low);
      r->at += 2;
    }
    *to++ = c;
  }
  *out = lb_arena_strndup(&r->out->arena, name, (size_t)(to - name));
  return *out != NULL;
}

static bool read_size(shapes_reader *r, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(r->at, &end, 10);
  if (end == r->at || errno || *out < 0 || !isdigit((unsigned char)*r->at))
    return fail_reader(r, "a dim is not a number");
  r->at = end;
  return true;
}

static bool read_dtype(shapes_reader *r, lb_dtype *out) {
  size_t n = strcspn(r->at, "[");
  for (int t = LB_NONE + 1; t < LB_DTYPE_COUNT; t++) {
    const char *name = lb_dtype_name((lb_dtype)t);
    if (strlen(name) != n || memcmp(name, r->at, n) || !r->at[n]) continue;
    *out = (lb_dtype)t;
    r->at += n + 1;
    return true;
  }
  return fail_reader(r, "an unknown type");
}

static bool read_dims(shapes_reader *r, lb_tensor *t) {
  if (*r->at == ']') {
    r->at++;
    return true;
  }
  for (;;) {
    if (t->rank == LB_MAX_RANK) return fail_reader(r, "too many dims");
    if (!read_size(r, &t->dims[t->rank])) return false;
    t->rank++;
    char c = *r->at++;
    if (c == ']') return true;
    if (c != ',') return fail_reader(r, "']' expected after the dims");
  }
}

// *end is `at` if there are no digits.
static double read_real(char *at, char **end) {
  static const struct {
    const char *name;
    double value;
  } names[] = {{"nan", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t n = strlen(names[i].name);
    *end = at + n;
    if (!strncmp(at, names[i].name, n)) return names[i].value;
  }
  int64_t m = strtoll(at, end, 10);
  if (*end == at || **end != 'p') return (double)m;
  char *digits = *end + 1;
  long e = strtol(digits, end, 10);
  if (*end == digits || e < -2000 || e > 2000) *end = at;
  return *end == at ? 0 : ldexp((double)m, (int)e);
}

static bool read_element(shapes_reader *r, lb_tensor *t, int64_t i) {
  char *end;
  void *d = t->data;
  if (lb_dtype_is_float(t->dtype)) {
    double v = read_real(r->at, &end);
    switch (t->dtype) {
      case LB_F32: ((float *)d)[i] = (float)v; break;
      case LB_F64: ((double *)d)[i] = v; break;
      case LB_F16: ((uint16_t *)d)[i] = lb_f64_to_f16(v); break;
      default: ((uint16_t *)d)[i] = lb_f32_to_bf16((float)v); break;
    }
  } else {
    bool negative = lb_dtype_is_signed(t->dtype);
    uint64_t v = negative ? (uint64_t)strtoll(r->at, &end, 10)
                          : (uint64_t)strtoull(r->at, &end, 10);
    size_t size = lb_dtype_size(t->dtype);  // little endian: the low bytes
    if (t->dtype == LB_BOOL) v = v != 0;
    memcpy((char *)d + (size_t)i * size, &v, size);
  }
  if (end == r->at) return fail_reader(r, "an element is not a number");
  r->at = end;
  return true;
}

static bool read_contents(shapes_reader *r, lb_tensor *t) {
  int64_t n = lb_tensor_count(t);
  if (*r->at != '{') return true;
  r->at++;
  if (n > LB_MAX_KNOWN)
    return fail_reader(r, "too many elements in the contents");
  t->data = lb_arena_alloc(&r->out->arena, lb_tensor_bytes(t) + 1, 16);
  if (!t->data) return false;
  for (int64_t i = 0; i < n; i++) {
    if (i && *r->at++ != ',')
      return fail_reader(r, "too few elements in the contents");
    if (!read_element(r, t, i)) return false;
  }
  return *r->at++ == '}' || fail_reader(r, "'}' expected after the contents");
}

static bool read_input(shapes_reader *r, const char **name, lb_tensor *t) {
  int64_t count;
  if (!read_name(r, name)) return false;
  if (*r->at++ != '=') return fail_reader(r, "an input without a '='");
  if (!read_dtype(r, &t->dtype) || !read_dims(r, t)) return false;
  lb_status st = lb_dims_count(t->rank, t->dims, &count);
  bool fits = !lb_failed(st);
  lb_status_drop(st);
  if (!fits) return fail_reader(r, "a tensor that is too large");
  lb_tensor_dense(t);
  return read_contents(r, t);
}

// The number of blanks: at least the number of inputs and outputs.
static size_t count_words(const char *line) {
  size_t n = 0;
  for (; *line; line++) n += *line == ' ';
  return n;
}

static bool read_line(shapes_reader *r, lb_recorded_signature *s) {
  size_t most = count_words(r->at) + 1;
  lb_arena *a = &r->out->arena;
  char *end;
  s->names = lb_arena_new(a, const char *, most);
  s->inputs = lb_arena_zalloc(a, most * sizeof *s->inputs, 16);
  const char **outputs = lb_arena_new(a, const char *, most);
  if (!s->names || !s->inputs || !outputs) return false;
  s->count = strtoull(r->at, &end, 10);
  if (end == r->at || !isdigit((unsigned char)*r->at))
    return fail_reader(r, "it does not begin with a count");
  for (r->at = end; *r->at == ' ';) {
    r->at++;
    if (*r->at == '>' && (r->at[1] == ' ' || !r->at[1]) && !s->outputs) {
      r->at++;
      s->outputs = outputs;
    } else if (s->outputs) {
      if (!read_name(r, &s->outputs[s->n_outputs])) return false;
      s->n_outputs++;
    } else {
      uint32_t i = s->n_inputs++;
      if (!read_input(r, &s->names[i], &s->inputs[i])) return false;
    }
  }
  return !*r->at || fail_reader(r, "unexpected text after an input");
}

static lb_status add_line(lb_shapes *out, size_t *cap, char *line, size_t no) {
  shapes_reader r = {.out = out, .at = line};
  if (out->n == *cap) {
    size_t more = *cap ? 2 * *cap : 64;
    lb_recorded_signature *list =
        lb_arena_new(&out->arena, lb_recorded_signature, more);
    if (!list) return lb_oom();
    if (out->n) memcpy(list, out->list, out->n * sizeof *list);
    out->list = list;
    *cap = more;
  }
  out->list[out->n] = (lb_recorded_signature){0};
  if (!read_line(&r, &out->list[out->n]))
    return r.error ? lb_error(LB_INVALID, "line %zu: %s", no, r.error)
                   : lb_oom();
  out->n++;
  return LB_OK;
}

lb_status lb_shapes_parse(lb_span text, lb_shapes *out) {
  *out = (lb_shapes){0};
  lb_arena_init(&out->arena, 16 << 10);
  size_t head = strlen(HEADER), cap = 0, no = 0;
  if (text.size < head + 1 || memcmp(text.data, HEADER "\n", head + 1))
    return lb_error(LB_INVALID,
                    "not a file of shapes: it does not begin with "
                    "the line '" HEADER "'");
  for (size_t i = 0; i < text.size;) {
    const char *line = (const char *)text.data + i;
    const char *end = memchr(line, '\n', text.size - i);
    size_t n = end ? (size_t)(end - line) : text.size - i;
    i += n + 1;
    no++;
    if (!n || *line == '#') continue;
    char *copy = lb_arena_strndup(&out->arena, line, n);
    if (!copy) return lb_oom();
    LB_TRY(add_line(out, &cap, copy, no));
  }
  return LB_OK;
}

lb_status lb_shapes_read(const char *path, lb_shapes *out) {
  lb_file file;
  *out = (lb_shapes){0};
  LB_TRY(lb_file_map(path, &file));
  lb_status st = lb_shapes_parse(file.bytes, out);
  lb_file_close(&file);
  return lb_failed(st) ? lb_status_note(st, "%s", path) : st;
}

void lb_shapes_fini(lb_shapes *s) {
  lb_arena_fini(&s->arena);
  s->list = NULL;
  s->n = 0;
}
