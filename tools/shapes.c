// tools/shapes.c -- the grammar of --shapes and --dims.
//
// An *axis* is a size that varies independently: a symbol of the model, or one
// unnamed dim of an input. A signature selects one size of each axis, so
// signatures are numbered from 0 to the product of the axes' counts.
#include "shapes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

#define MAX_ITEMS 32  // numbers and ranges of one set
#define MAX_TEXT 256  // bytes of one name
#define MOST (UINT64_C(1) << 62)

#define FORM "8, {8..256}, {8..256/8} or {1,2,8}"

typedef struct size_range {  // a range
  int64_t first, step;
  uint64_t count;
} size_range;

typedef struct shape_axis {
  const char *name;    // symbol, borrowed from the model; NULL: an unnamed dim
  const char *source;  // who set it: "--dims" or an input's name; borrowed
  size_range items[MAX_ITEMS];
  int n_items;
  uint64_t count;
} shape_axis;

typedef struct input_shape {
  int rank;  // -1: not known yet
  uint32_t axes[LIMBER_MAX_RANK];
} input_shape;

struct shapes {
  const limber_value_info *inputs;  // borrowed
  size_t n;
  input_shape *input_shapes;  // by input
  shape_axis *axes;
  uint32_t n_axes, cap_axes;
  uint64_t count;
  uint64_t *drawn;  // NULL: the first n_drawn
  uint64_t n_drawn;
};

// -- sizes -------------------------------------------------------------------

static bool read_size(const char **at, int64_t *out) {
  char *end;
  if (**at < '0' || **at > '9') return false;
  errno = 0;
  *out = strtoll(*at, &end, 10);
  *at = end;
  return !errno;
}

static bool read_item(const char **at, size_range *out) {
  int64_t last, step = 1;
  if (!read_size(at, &out->first)) return false;
  last = out->first;
  if (!strncmp(*at, "..", 2)) {
    *at += 2;
    if (!read_size(at, &last) || last < out->first) return false;
    if (**at == '/') {
      ++*at;
      if (!read_size(at, &step) || step == 0) return false;
    }
  }
  out->step = step;
  out->count = (uint64_t)(last - out->first) / (uint64_t)step + 1;
  return true;
}

// Parses a size or a set of sizes, and moves `at` past it.
static bool read_axis(const char **at, shape_axis *out) {
  bool set = **at == '{';
  out->n_items = 0;
  out->count = 0;
  if (set) ++*at;
  do {
    if (out->n_items == MAX_ITEMS) return false;
    size_range *i = &out->items[out->n_items++];
    if (!read_item(at, i) || (!set && i->count > 1)) return false;
    if (out->count > MOST - i->count) return false;
    out->count += i->count;
  } while (set && **at == ',' && ++*at);
  if (!set) return true;
  return *(*at)++ == '}';
}

static int64_t size_at(const shape_axis *a, uint64_t i) {
  const size_range *x = a->items;
  for (; i >= x->count; x++) i -= x->count;
  return x->first + (int64_t)i * x->step;
}

static bool same_sizes(const shape_axis *a, const shape_axis *b) {
  if (a->n_items != b->n_items) return false;
  for (int i = 0; i < a->n_items; i++)
    if (a->items[i].first != b->items[i].first ||
        a->items[i].count != b->items[i].count ||
        a->items[i].step != b->items[i].step)
      return false;
  return true;
}

// -- axes --------------------------------------------------------------------

static bool is_number(const char *dim) {
  return strspn(dim, "0123456789") == strlen(dim);
}

static bool is_symbol(const char *dim) {
  return !is_number(dim) && strcmp(dim, "?") != 0;
}

static shape_axis *axis_of(const shapes *s, const char *symbol) {
  for (uint32_t i = 0; i < s->n_axes; i++)
    if (s->axes[i].name && !strcmp(s->axes[i].name, symbol)) return &s->axes[i];
  return NULL;
}

static bool add_axis(shapes *s, const shape_axis *a, uint32_t *out,
                     problem *p) {
  if (s->n_axes == s->cap_axes) {
    uint32_t cap = s->cap_axes ? 2 * s->cap_axes : 8;
    shape_axis *axes = realloc(s->axes, cap * sizeof *axes);
    if (!axes) return fail(p, EXIT_INTERNAL, "out of memory");
    s->axes = axes;
    s->cap_axes = cap;
  }
  *out = s->n_axes;
  s->axes[s->n_axes++] = *a;
  return true;
}

// Finds or adds the axis of a symbol, or adds an axis for an unnamed dim. An
// existing axis must have the same sizes.
static bool set_axis(shapes *s, const shape_axis *a, uint32_t *out,
                     problem *p) {
  shape_axis *old = a->name ? axis_of(s, a->name) : NULL;
  if (!old) return add_axis(s, a, out, p);
  *out = (uint32_t)(old - s->axes);
  if (same_sizes(old, a)) return true;
  return fail(p, EXIT_USAGE,
              "'%s' has one set of sizes from %s, and another from %s", a->name,
              old->source, a->source);
}

// -- the options -------------------------------------------------------------

// Parses "NAME=" and moves `at` past it. Returns false at the end of the text
// and on an error; after an error `at` is not at the end, and `p` is filled.
static bool next_name(const char **at, const char *option, char *name,
                      problem *p) {
  *at += strspn(*at, " \t\n");
  if (!**at) return false;
  size_t n = strcspn(*at, "= \t\n");
  if (n == 0 || (*at)[n] != '=')
    return fail(p, EXIT_USAGE, "%s: '%s' is not of the form NAME=SIZES", option,
                *at);
  if (n >= MAX_TEXT)
    return fail(p, EXIT_USAGE, "%s: a name is too long", option);
  memcpy(name, *at, n);
  name[n] = '\0';
  *at += n + 1;
  return true;
}

static bool ends(const char *at) { return !*at || strchr(" \t\n", *at); }

// Returns the model's string of a symbol, or NULL if no input has it.
static const char *symbol_of(const shapes *s, const char *name) {
  for (size_t i = 0; i < s->n; i++)
    for (int k = 0; k < s->inputs[i].rank; k++)
      if (!strcmp(s->inputs[i].dims[k], name) && is_symbol(name))
        return s->inputs[i].dims[k];
  return NULL;
}

static void list_symbols(const shapes *s, char *buf, size_t cap) {
  char quoted[MAX_TEXT + 4];
  buf[0] = '\0';
  for (size_t i = 0; i < s->n; i++)
    for (int k = 0; k < s->inputs[i].rank; k++) {
      snprintf(quoted, sizeof quoted, " '%.*s'", MAX_TEXT,
               s->inputs[i].dims[k]);
      if (!is_symbol(s->inputs[i].dims[k]) || strstr(buf, quoted)) continue;
      size_t used = strlen(buf);
      snprintf(buf + used, cap - used, "%s", quoted);
    }
}

static bool read_dims(shapes *s, const char *text, problem *p) {
  char name[MAX_TEXT], symbols[1024];
  uint32_t unused;
  while (next_name(&text, "--dims", name, p)) {
    shape_axis a = {.source = "--dims", .name = symbol_of(s, name)};
    if (!a.name) {
      list_symbols(s, symbols, sizeof symbols);
      return fail(p, EXIT_USAGE, "--dims: no input has a dim '%s'; there is%s",
                  name, *symbols ? symbols : " no named dim");
    }
    if (!read_axis(&text, &a) || !ends(text))
      return fail(p, EXIT_USAGE, "--dims: '%s' must be " FORM, name);
    if (!set_axis(s, &a, &unused, p)) return false;
  }
  return *text == '\0';
}

static bool find_input(const shapes *s, const char *name, size_t *out) {
  for (*out = 0; *out < s->n; ++*out)
    if (!strcmp(s->inputs[*out].name, name)) return true;
  return false;
}

static bool read_shape(shapes *s, const char **text, size_t i, problem *p) {
  const limber_value_info *info = &s->inputs[i];
  input_shape *to = &s->input_shapes[i];
  int rank = 0;
  bool good = true;
  while (good && !ends(*text)) {
    good = rank < LIMBER_MAX_RANK && (!rank || *(*text)++ == 'x');
    const char *dim = rank < info->rank ? info->dims[rank] : "?";
    shape_axis a = {.source = info->name, .name = is_symbol(dim) ? dim : NULL};
    good = good && read_axis(text, &a);
    if (good && !set_axis(s, &a, &to->axes[rank++], p)) return false;
  }
  if (!good)
    return fail(p, EXIT_USAGE,
                "--shapes: '%s' must have sizes separated by x, each " FORM,
                info->name);
  to->rank = rank;
  return true;
}

static bool read_shapes(shapes *s, const char *text, problem *p) {
  char name[MAX_TEXT];
  size_t i;
  while (next_name(&text, "--shapes", name, p)) {
    if (!find_input(s, name, &i))
      return fail(p, EXIT_USAGE, "--shapes: the model has no input '%s'", name);
    if (s->input_shapes[i].rank >= 0)
      return fail(p, EXIT_USAGE, "--shapes: '%s' is given twice", name);
    if (!read_shape(s, &text, i, p)) return false;
  }
  return *text == '\0';
}

// Takes the shape of an input whose contents are given.
static bool take_fixed(shapes *s, size_t i, const limber_tensor *t,
                       problem *p) {
  s->input_shapes[i].rank = t->rank;
  for (int k = 0; k < t->rank; k++) {
    const char *dim = k < s->inputs[i].rank ? s->inputs[i].dims[k] : "?";
    shape_axis a = {.source = s->inputs[i].name,
                    .name = is_symbol(dim) ? dim : NULL,
                    .items = {{t->dims[k], 1, 1}},
                    .n_items = 1,
                    .count = 1};
    if (!set_axis(s, &a, &s->input_shapes[i].axes[k], p)) return false;
  }
  return true;
}

// Completes the shape of an input that no option gives, from its symbols.
static bool complete(shapes *s, size_t i, problem *p) {
  const limber_value_info *info = &s->inputs[i];
  input_shape *to = &s->input_shapes[i];
  if (to->rank >= 0) return true;
  for (int k = 0; k < info->rank; k++) {
    const char *dim = info->dims[k];
    shape_axis *a = is_symbol(dim) ? axis_of(s, dim) : NULL;
    if (a) {
      to->axes[k] = (uint32_t)(a - s->axes);
    } else if (is_number(dim)) {
      shape_axis one = {.source = "the model", .n_items = 1, .count = 1};
      one.items[0] = (size_range){strtoll(dim, NULL, 10), 1, 1};
      if (!add_axis(s, &one, &to->axes[k], p)) return false;
    } else if (is_symbol(dim)) {
      return fail(p, EXIT_USAGE,
                  "the size of '%s' is not given: use --dims "
                  "'%s=...'",
                  dim, dim);
    } else {
      return fail(p, EXIT_USAGE,
                  "dim %d of '%s' has no name: use --shapes '%s=...'", k,
                  info->name, info->name);
    }
  }
  if (info->rank < 0)
    return fail(p, EXIT_USAGE,
                "the shape of '%s' is not given: use --shapes '%s=...'",
                info->name, info->name);
  to->rank = info->rank;
  return true;
}

static bool multiply(shapes *s, problem *p) {
  s->count = 1;
  for (uint32_t i = 0; i < s->n_axes; i++) {
    if (s->count > MOST / s->axes[i].count)
      return fail(p, EXIT_USAGE,
                  "--shapes, --dims: more shapes than can be counted");
    s->count *= s->axes[i].count;
  }
  return true;
}

static bool build(shapes *s, const shapes_of *of, problem *p) {
  for (size_t i = 0; i < s->n; i++) s->input_shapes[i].rank = -1;
  if (of->dims && !read_dims(s, of->dims, p)) return false;
  for (size_t i = 0; of->fixed && i < s->n; i++)
    if (of->fixed[i] && !take_fixed(s, i, of->fixed[i], p)) return false;
  if (of->shapes && !read_shapes(s, of->shapes, p)) return false;
  for (size_t i = 0; i < s->n; i++)
    if (!complete(s, i, p)) return false;
  return multiply(s, p);
}

bool shapes_new(const shapes_of *of, shapes **out, problem *p) {
  shapes *s = calloc(1, sizeof *s);
  *out = NULL;
  if (s) s->input_shapes = calloc(of->n + 1, sizeof *s->input_shapes);
  if (!s || !s->input_shapes) {
    free(s);
    return fail(p, EXIT_INTERNAL, "out of memory");
  }
  s->inputs = of->inputs;
  s->n = of->n;
  if (!build(s, of, p)) {
    shapes_free(s);
    return false;
  }
  s->n_drawn = s->count;
  *out = s;
  return true;
}

void shapes_free(shapes *s) {
  if (!s) return;
  free(s->input_shapes);
  free(s->axes);
  free(s->drawn);
  free(s);
}

// -- signatures --------------------------------------------------------------

uint64_t shapes_count(const shapes *s) { return s->count; }
uint64_t shapes_drawn(const shapes *s) { return s->n_drawn; }

// Inserts `x` into a hash set that is never more than half full. Returns false
// if it was present. An entry holds x + 1; 0 means free.
static bool insert_new(uint64_t *set, uint64_t capacity, uint64_t x) {
  uint64_t at = x % capacity;
  for (; set[at]; at = (at + 1) % capacity)
    if (set[at] == x + 1) return false;
  set[at] = x + 1;
  return true;
}

bool shapes_draw(shapes *s, uint64_t n, uint64_t seed, problem *p) {
  free(s->drawn);
  s->drawn = NULL;
  s->n_drawn = s->count;
  if (s->count <= n) return true;
  uint64_t *drawn = calloc(n + 1, sizeof *drawn);
  uint64_t *set = calloc(2 * n + 1, sizeof *set);
  if (!drawn || !set) {
    free(drawn);
    free(set);
    return fail(p, EXIT_INTERNAL, "out of memory");
  }
  for (uint64_t i = 0; i < n;) {
    uint64_t x = draw_next(&seed) % s->count;
    if (insert_new(set, 2 * n + 1, x)) drawn[i++] = x;
  }
  free(set);
  s->drawn = drawn;
  s->n_drawn = n;
  return true;
}

void shapes_get(const shapes *s, uint64_t i, limber_tensor *inputs) {
  uint64_t at = s->drawn ? s->drawn[i] : i;
  for (size_t k = 0; k < s->n; k++) {
    limber_tensor *t = &inputs[k];
    t->name = s->inputs[k].name;
    t->dtype = s->inputs[k].dtype;
    t->rank = s->input_shapes[k].rank;
    for (int d = 0; d < t->rank; d++) {
      uint64_t left = at;
      for (uint32_t a = s->input_shapes[k].axes[d] + 1; a < s->n_axes; a++)
        left /= s->axes[a].count;
      const shape_axis *x = &s->axes[s->input_shapes[k].axes[d]];
      t->dims[d] = size_at(x, left % x->count);
    }
  }
}
