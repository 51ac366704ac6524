// tools/shapes.c -- the grammar of shapes.
//
// An *axis* is what varies by itself: a symbol of the model, or one dim of an
// input that the model gives no name. A signature picks one size of each axis,
// so signatures are the numbers below the product of the axes' counts.
#include "shapes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

#define MAX_ITEMS 32  // of one set
#define MAX_TEXT 256  // of one name
#define MOST (UINT64_C(1) << 62)

#define FORM "8, {8..256}, {8..256/8} or {1,2,8}"

typedef struct item {  // a range
  int64_t first, step;
  uint64_t count;
} item;

typedef struct axis {
  const char *name;    // symbol, borrowed from the model; NULL: one dim
  const char *source;  // what set it: "--dims" or an input's name; borrowed
  item items[MAX_ITEMS];
  int n_items;
  uint64_t count;
} axis;

typedef struct form {
  int rank;  // -1: not known yet
  uint32_t axes[LIMBER_MAX_RANK];
} form;

struct shapes {
  const limber_value_info *inputs;  // borrowed
  size_t n;
  form *forms;  // by input
  axis *axes;
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

static bool read_item(const char **at, item *out) {
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

// A size or a set of them; `at` moves behind it.
static bool read_axis(const char **at, axis *out) {
  bool set = **at == '{';
  out->n_items = 0;
  out->count = 0;
  if (set) ++*at;
  do {
    if (out->n_items == MAX_ITEMS) return false;
    item *i = &out->items[out->n_items++];
    if (!read_item(at, i) || (!set && i->count > 1)) return false;
    if (out->count > MOST - i->count) return false;
    out->count += i->count;
  } while (set && **at == ',' && ++*at);
  if (!set) return true;
  return *(*at)++ == '}';
}

static int64_t size_at(const axis *a, uint64_t i) {
  const item *x = a->items;
  for (; i >= x->count; x++) i -= x->count;
  return x->first + (int64_t)i * x->step;
}

static bool same_sizes(const axis *a, const axis *b) {
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

static axis *axis_of(const shapes *s, const char *symbol) {
  for (uint32_t i = 0; i < s->n_axes; i++)
    if (s->axes[i].name && !strcmp(s->axes[i].name, symbol)) return &s->axes[i];
  return NULL;
}

static bool add_axis(shapes *s, const axis *a, uint32_t *out, problem *p) {
  if (s->n_axes == s->cap_axes) {
    uint32_t cap = s->cap_axes ? 2 * s->cap_axes : 8;
    axis *axes = realloc(s->axes, cap * sizeof *axes);
    if (!axes) return fail(p, EXIT_INTERNAL, "out of memory");
    s->axes = axes;
    s->cap_axes = cap;
  }
  *out = s->n_axes;
  s->axes[s->n_axes++] = *a;
  return true;
}

// The axis of a symbol, new or the same as before; or one of its own.
static bool set_axis(shapes *s, const axis *a, uint32_t *out, problem *p) {
  axis *old = a->name ? axis_of(s, a->name) : NULL;
  if (!old) return add_axis(s, a, out, p);
  *out = (uint32_t)(old - s->axes);
  if (same_sizes(old, a)) return true;
  return fail(p, EXIT_USAGE,
              "'%s' has one set of sizes from %s, another from %s", a->name,
              old->source, a->source);
}

// -- the options -------------------------------------------------------------

// "NAME=": `at` moves behind it. False at the end of the text, and where there
// is no name: then `at` is not at the end, and `p` says why.
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

// The symbol as the model has it; NULL: none of its inputs does.
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
    axis a = {.source = "--dims", .name = symbol_of(s, name)};
    if (!a.name) {
      list_symbols(s, symbols, sizeof symbols);
      return fail(p, EXIT_USAGE, "--dims: no input has a dim '%s'; there is%s",
                  name, *symbols ? symbols : " none with a name");
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
  form *to = &s->forms[i];
  int rank = 0;
  bool good = true;
  while (good && !ends(*text)) {
    good = rank < LIMBER_MAX_RANK && (!rank || *(*text)++ == 'x');
    const char *dim = rank < info->rank ? info->dims[rank] : "?";
    axis a = {.source = info->name, .name = is_symbol(dim) ? dim : NULL};
    good = good && read_axis(text, &a);
    if (good && !set_axis(s, &a, &to->axes[rank++], p)) return false;
  }
  if (!good)
    return fail(
        p, EXIT_USAGE,
        "--shapes: '%s' must have sizes with x between them, each " FORM,
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
    if (s->forms[i].rank >= 0)
      return fail(p, EXIT_USAGE, "--shapes: '%s' is given twice", name);
    if (!read_shape(s, &text, i, p)) return false;
  }
  return *text == '\0';
}

// A shape that is known already, by its contents.
static bool take_fixed(shapes *s, size_t i, const limber_tensor *t,
                       problem *p) {
  s->forms[i].rank = t->rank;
  for (int k = 0; k < t->rank; k++) {
    const char *dim = k < s->inputs[i].rank ? s->inputs[i].dims[k] : "?";
    axis a = {.source = s->inputs[i].name,
              .name = is_symbol(dim) ? dim : NULL,
              .items = {{t->dims[k], 1, 1}},
              .n_items = 1,
              .count = 1};
    if (!set_axis(s, &a, &s->forms[i].axes[k], p)) return false;
  }
  return true;
}

// What no option says of an input follows from the symbols of others.
static bool complete(shapes *s, size_t i, problem *p) {
  const limber_value_info *info = &s->inputs[i];
  form *to = &s->forms[i];
  if (to->rank >= 0) return true;
  for (int k = 0; k < info->rank; k++) {
    const char *dim = info->dims[k];
    axis *a = is_symbol(dim) ? axis_of(s, dim) : NULL;
    if (a) {
      to->axes[k] = (uint32_t)(a - s->axes);
    } else if (is_number(dim)) {
      axis one = {.source = "the model", .n_items = 1, .count = 1};
      one.items[0] = (item){strtoll(dim, NULL, 10), 1, 1};
      if (!add_axis(s, &one, &to->axes[k], p)) return false;
    } else if (is_symbol(dim)) {
      return fail(p, EXIT_USAGE, "how large is '%s'? Say --dims '%s=...'", dim,
                  dim);
    } else {
      return fail(p, EXIT_USAGE,
                  "dim %d of '%s' has no name: say --shapes '%s=...'", k,
                  info->name, info->name);
    }
  }
  if (info->rank < 0)
    return fail(p, EXIT_USAGE, "what shape has '%s'? Say --shapes '%s=...'",
                info->name, info->name);
  to->rank = info->rank;
  return true;
}

static bool multiply(shapes *s, problem *p) {
  s->count = 1;
  for (uint32_t i = 0; i < s->n_axes; i++) {
    if (s->count > MOST / s->axes[i].count)
      return fail(p, EXIT_USAGE, "these are more shapes than can be counted");
    s->count *= s->axes[i].count;
  }
  return true;
}

static bool build(shapes *s, const shapes_of *of, problem *p) {
  for (size_t i = 0; i < s->n; i++) s->forms[i].rank = -1;
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
  if (s) s->forms = calloc(of->n + 1, sizeof *s->forms);
  if (!s || !s->forms) {
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
  free(s->forms);
  free(s->axes);
  free(s->drawn);
  free(s);
}

// -- signatures --------------------------------------------------------------

uint64_t shapes_count(const shapes *s) { return s->count; }
uint64_t shapes_drawn(const shapes *s) { return s->n_drawn; }

// Puts `x` into a set of twice as many places as it will ever hold; false if
// it was there. Places hold x + 1, 0 is free.
static bool put_new(uint64_t *set, uint64_t places, uint64_t x) {
  uint64_t at = x % places;
  for (; set[at]; at = (at + 1) % places)
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
    if (put_new(set, 2 * n + 1, x)) drawn[i++] = x;
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
    t->rank = s->forms[k].rank;
    for (int d = 0; d < t->rank; d++) {
      uint64_t left = at;
      for (uint32_t a = s->forms[k].axes[d] + 1; a < s->n_axes; a++)
        left /= s->axes[a].count;
      const axis *x = &s->axes[s->forms[k].axes[d]];
      t->dims[d] = size_at(x, left % x->count);
    }
  }
}
