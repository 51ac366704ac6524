// tools/feed.c -- model inputs given on the command line.
#include "feed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "element.h"
#include "npy.h"

#define FORM "random:f32[1,3,48,320], zeros:i64[2] or random:i64[8]{0..100}"

// Returns a random number in [0, 1).
static double next_real(uint64_t *state) {
  return (double)(draw_next(state) >> 11) * 0x1p-53;
}

typedef struct feed_range {
  double low, high;
  int64_t first;  // the smallest integer
  uint64_t span;  // the number of integers; 0: 2^64
} feed_range;

static void fill(limber_tensor *t, const feed_range *r, uint64_t seed) {
  int64_t count = 0;
  count_of(t->rank, t->dims, &count);
  for (int64_t i = 0; i < count; i++) {
    double real = r->low + (r->high - r->low) * next_real(&seed);
    uint64_t step = r->span ? draw_next(&seed) % r->span : draw_next(&seed);
    element_set(t, i, real, (int64_t)((uint64_t)r->first + step));
  }
}

// -- the form KIND:DTYPE[DIMS]{LOW..HIGH}
// --------------------------------------

static bool read_dims(const char **at, limber_tensor *out) {
  const char *s = *at;
  if (*s++ != '[') return false;
  while (*s != ']') {
    char *end;
    errno = 0;
    long long dim = strtoll(s, &end, 10);
    if (end == s || errno || dim < 0 || out->rank == LIMBER_MAX_RANK)
      return false;
    if (*end != ',' && *end != ']') return false;
    out->dims[out->rank++] = dim;
    s = *end == ',' ? end + 1 : end;
  }
  *at = s + 1;
  return true;
}

// Integers are parsed on their own, because a double may not hold them exactly.
static bool read_range(const char *s, bool real, feed_range *out) {
  char *end;
  if (!*s) return true;
  if (*s++ != '{') return false;
  const char *dots = strstr(s, "..");
  if (!dots) return false;
  char low[64];
  if (dots - s >= (long)sizeof low) return false;
  memcpy(low, s, (size_t)(dots - s));
  low[dots - s] = '\0';
  errno = 0;
  out->low = strtod(low, &end);
  if (end == low || *end) return false;
  out->high = strtod(dots + 2, &end);
  if (end == dots + 2 || strcmp(end, "}") || !(out->low <= out->high))
    return false;
  if (real) return true;
  out->first = strtoll(low, &end, 10);
  if (*end) return false;
  int64_t last = strtoll(dots + 2, &end, 10);
  out->span = (uint64_t)last - (uint64_t)out->first + 1;
  return !errno && *end == '}' && out->first <= last;
}

static const feed_range usual = {-1, 1, 0, 2};

static bool read_form(const char *s, limber_tensor *out, feed_range *r) {
  size_t n = strcspn(s, "[");
  out->dtype = dtype_from_short(s, n);
  bool real = dtype_is_float(out->dtype);
  *r = usual;
  s += n;
  return out->dtype && read_dims(&s, out) && read_range(s, real, r);
}

static bool fill_form(const char *form, uint64_t seed, limber_tensor *out,
                      problem *p) {
  bool random = !strncmp(form, "random:", 7);
  feed_range r;
  if (!read_form(strchr(form, ':') + 1, out, &r))
    return fail(p, EXIT_USAGE, "'%s' is not of the form %s", form, FORM);
  if (!tensor_alloc(out, p)) return false;
  if (!random) r = (feed_range){0, 0, 0, 1};
  fill(out, &r, seed);
  return true;
}

bool feed_parse(const char *text, uint64_t seed, limber_tensor *out,
                problem *p) {
  *out = (limber_tensor){0};
  const char *value = strchr(text, '=');
  if (!value || value == text || !value[1])
    return fail(p, EXIT_USAGE, "--input %s: use NAME=FILE.npy or NAME=%s", text,
                FORM);
  value++;
  bool form = !strncmp(value, "random:", 7) || !strncmp(value, "zeros:", 6);
  if (!(form ? fill_form(value, seed, out, p) : npy_read(value, out, p)))
    return false;
  out->name = strndup(text, (size_t)(value - 1 - text));
  if (out->name) return true;
  feed_free(out);
  return fail(p, EXIT_INTERNAL, "out of memory");
}

bool feed_random(const limber_tensor *like, uint64_t seed, limber_tensor *out,
                 problem *p) {
  *out = *like;
  out->data = NULL;
  if (!tensor_alloc(out, p)) return false;
  fill(out, &usual, seed);
  out->name = strdup(like->name);
  if (out->name) return true;
  feed_free(out);
  return fail(p, EXIT_INTERNAL, "out of memory");
}

void feed_free(limber_tensor *feed) {
  free((char *)(uintptr_t)feed->name);
  free(feed->data);
  *feed = (limber_tensor){0};
}

size_t feed_find_input(const limber_tensor *feed,
                       const limber_value_info *inputs, size_t n, problem *p) {
  size_t i = 0;
  while (i < n && strcmp(inputs[i].name, feed->name)) i++;
  if (i == n)
    fail(p, EXIT_BAD, "--input: the model has no input '%s'", feed->name);
  return i;
}

void feed_suggest(const limber_value_info *input, char *buf, size_t cap) {
  int n = snprintf(buf, cap, "--input '%s=random:%s[", input->name,
                   dtype_short(input->dtype));
  for (int i = 0; i < input->rank && n < (int)cap; i++) {
    const char *dim = input->dims[i];
    bool number = strspn(dim, "0123456789") == strlen(dim);
    const char *shown = number ? dim : i ? "64" : "1";
    n += snprintf(buf + n, cap - (size_t)n, i ? ",%s" : "%s", shown);
  }
  if (n < (int)cap) snprintf(buf + n, cap - (size_t)n, "]'");
}
