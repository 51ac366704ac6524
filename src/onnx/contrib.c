// onnx/contrib.c -- operators of ONNX Runtime, as functions of ONNX's own.
//
// contrib.def has one text for each:
//
//   com.microsoft.FastGelu<scale=1.0>(x, b) -> y     name, defaults, names
//   [b] s = Add(x, b)                                if b is given
//   [!b] s = Identity(x)                             if it is not
//   y = Gelu<approximate="tanh">(s)
//
// A guard names an input (given?), an output (wanted?) or an attribute (neither
// 0 nor empty?), or says what an attribute is: [activation=Relu], [bits=4].
// Where a line says "refuse", the model is refused. In place of a value may
// stand a number, a list of integers or @attribute: a constant. @attribute as
// an attribute's value is the call's; one that is not given is left out. A
// value that no line defines is absent.
//
// (1) A *body* is a text with its guards decided. Calls that decide them alike
//     and have the same inputs share one, so a long model has few.
// (2) Texts are ours: what is wrong with them is found by the test that reads
//     all of them, not here.
#include "onnx/contrib.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 32, MAX_ATTRS = 12, MAX_NODES = 64 };

static const char *const texts[] = {
#include "onnx/contrib.def"
};

struct lb_contrib {
  lb_pb_function fn;
  const char *text;
  uint64_t lines;  // bit i: line i is in it
  uint32_t given;  // bit i: input i is
  lb_contrib *next;
};

// A body while it is made.
typedef struct maker {
  lb_arena *scratch, *keep;
  const lb_pb_node *call;
  lb_pb_function *fn;
  const char *p;       // in the text
  uint32_t constants;  // made so far
  bool open;           // a guard asks for what only a caller knows
} maker;

// -- words -------------------------------------------------------------------

static bool eat(maker *m, char c) {
  while (*m->p == ' ') m->p++;
  if (*m->p != c) return false;
  m->p++;
  return true;
}

static void expect(maker *m, char c) {
  bool there = eat(m, c);
  assert(there);
  (void)there;
}

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// "" if there is none.
static lb_pb_str word(maker *m) {
  while (*m->p == ' ') m->p++;
  const char *start = m->p;
  while (in_word(*m->p)) m->p++;
  return (lb_pb_str){start, (size_t)(m->p - start)};
}

static lb_pb_str until(maker *m, char c) {
  const char *start = m->p;
  while (*m->p != c) m->p++;
  return (lb_pb_str){start, (size_t)(m->p - start)};
}

static void end_line(maker *m) {
  while (*m->p != '\n') m->p++;
  m->p++;
}

// Names that a comma parts, up to anything else; those between two commas may
// be empty.
static uint32_t names(maker *m, lb_pb_str *out) {
  uint32_t n = 0;
  do {
    assert(n < MAX_NAMES);
    out[n++] = word(m);
  } while (eat(m, ','));
  return n;
}

// "com.microsoft.Gelu" as domain and name.
static void part(lb_pb_str full, lb_pb_str *domain, lb_pb_str *name) {
  size_t dot = full.n;
  while (dot > 0 && full.p[dot - 1] != '.') dot--;
  *domain = (lb_pb_str){full.p, dot ? dot - 1 : 0};
  *name = (lb_pb_str){full.p + dot, full.n - dot};
}

// -- literals ----------------------------------------------------------------

static int64_t digits(maker *m, int *count) {
  int64_t v = 0;
  for (*count = 0; *m->p >= '0' && *m->p <= '9'; m->p++, ++*count)
    v = 10 * v + (*m->p - '0');
  return v;
}

// What follows the digits before the point.
static float fraction(maker *m, int64_t whole) {
  double v = (double)whole, unit = 1;
  int n = 0, exponent = 0;
  if (eat(m, '.')) {
    int64_t rest = digits(m, &n);
    for (int i = 0; i < n; i++) unit *= 10;
    v += (double)rest / unit;
  }
  if (eat(m, 'e')) {
    bool small = eat(m, '-');
    exponent = (int)digits(m, &n);
    for (; exponent > 0; exponent--) v = small ? v / 10 : v * 10;
  }
  return (float)v;
}

static void read_number(maker *m, lb_attr *out) {
  int n;
  bool negative = eat(m, '-');
  int64_t whole = digits(m, &n);
  if (*m->p == '.' || *m->p == 'e') {
    float v = fraction(m, whole);
    out->kind = LB_ATTR_FLOAT;
    out->f = negative ? -v : v;
  } else {
    out->kind = LB_ATTR_INT;
    out->i = negative ? -whole : whole;
  }
}

static lb_status read_list(maker *m, lb_attr *out) {
  int64_t list[8];
  uint32_t n = 0;
  while (!eat(m, ']')) {
    lb_attr one;
    assert(n < 8);
    eat(m, ',');
    read_number(m, &one);
    list[n++] = one.i;
  }
  out->kind = LB_ATTR_INTS;
  out->n = n;
  out->ints = lb_arena_memdup(m->keep, list, n * sizeof *list, 8);
  return out->ints ? LB_OK : lb_oom();
}

static lb_status read_text(maker *m, lb_attr *out) {
  const char *start = m->p;
  while (*m->p != '"') m->p++;
  lb_pb_str s = {start, (size_t)(m->p++ - start)};
  out->kind = LB_ATTR_STRING;
  out->n = (uint32_t)s.n;
  out->s = lb_pb_cstr(m->keep, s);
  return out->s ? LB_OK : lb_oom();
}

static lb_status set_name(maker *m, lb_pb_str name, lb_pb_attr *out) {
  out->name = name;
  out->attr.name = lb_pb_cstr(m->keep, name);
  return out->attr.name ? LB_OK : lb_oom();
}

static lb_status read_value(maker *m, lb_pb_attr *out) {
  if (eat(m, '@')) {
    out->ref = word(m);
    return LB_OK;
  }
  out->plain = true;
  if (eat(m, '[')) return read_list(m, &out->attr);
  if (eat(m, '"')) return read_text(m, &out->attr);
  read_number(m, &out->attr);
  return LB_OK;
}

// <name=value, ...>, if there is one.
static lb_status read_attrs(maker *m, lb_pb_attr **out, uint32_t *count) {
  *count = 0;
  *out = NULL;
  if (!eat(m, '<')) return LB_OK;
  *out = lb_arena_new(m->scratch, lb_pb_attr, MAX_ATTRS);
  if (!*out) return lb_oom();
  do {
    assert(*count < MAX_ATTRS);
    lb_pb_attr *a = &(*out)[(*count)++];
    *a = (lb_pb_attr){0};
    LB_TRY(set_name(m, word(m), a));
    expect(m, '=');
    LB_TRY(read_value(m, a));
  } while (eat(m, ','));
  expect(m, '>');
  return LB_OK;
}

// -- guards ------------------------------------------------------------------

static int place_of(const lb_pb_str *list, uint32_t n, lb_pb_str name) {
  for (uint32_t i = 0; i < n; i++)
    if (lb_pb_same(list[i], name)) return (int)i;
  return -1;
}

static const lb_pb_attr *attr_of(const lb_pb_attr *list, uint32_t n,
                                 lb_pb_str name) {
  for (uint32_t i = 0; i < n; i++)
    if (lb_pb_same(list[i].name, name)) return &list[i];
  return NULL;
}

static bool is_set(const lb_attr *a) {
  if (a->kind == LB_ATTR_INT) return a->i != 0;
  if (a->kind == LB_ATTR_FLOAT) return a->f < 0 || a->f > 0;
  return a->n > 0;
}

// Is it this string, or this integer?
static bool reads(const lb_attr *a, lb_pb_str s) {
  char digits[24];
  if (a->kind == LB_ATTR_STRING) return lb_pb_same((lb_pb_str){a->s, a->n}, s);
  if (a->kind != LB_ATTR_INT) return false;
  int n = snprintf(digits, sizeof digits, "%lld", (long long)a->i);
  return lb_pb_same((lb_pb_str){digits, (size_t)n}, s);
}

static bool has_input(const lb_pb_node *n, uint32_t i) {
  return i < n->n_in && n->refs[i].n > 0;
}

// `value` is "" where the guard asks for any.
static bool is_given(maker *m, lb_pb_str name, lb_pb_str value) {
  const lb_pb_node *n = m->call;
  int i = place_of(m->fn->in, m->fn->n_in, name);
  if (i >= 0) return has_input(n, (uint32_t)i);
  i = place_of(m->fn->out, m->fn->n_out, name);
  if (i >= 0) return (uint32_t)i < n->n_out && n->out[i].n > 0;
  const lb_pb_attr *a = attr_of(n->attrs, n->n_attrs, name);
  if (!a) a = attr_of(m->fn->defaults, m->fn->n_defaults, name);
  if (a && a->ref.n) m->open = true;
  if (!a || !a->plain) return false;
  return value.n ? reads(&a->attr, value) : is_set(&a->attr);
}

// The guards before a line; true if it is in.
static bool guards_hold(maker *m) {
  bool hold = true;
  while (eat(m, '[')) {
    bool want = !eat(m, '!');
    lb_pb_str name = word(m), value = {0};
    if (eat(m, '=')) value = until(m, ']');
    expect(m, ']');
    hold &= is_given(m, name, value) == want;
  }
  return hold;
}

static lb_status check_refusal(maker *m) {
  static const char verb[] = "refuse ";
  while (*m->p == ' ') m->p++;
  if (strncmp(m->p, verb, sizeof verb - 1) != 0) return LB_OK;
  const char *what = m->p + sizeof verb - 1;
  return lb_error(LB_UNSUPPORTED, LB_NODE_FMT ": %.*s: Limber does not do that",
                  LB_NODE_ARGS(m->call), (int)strcspn(what, "\n"), what);
}

// Which lines are in the body.
static lb_status choose(maker *m, uint64_t *lines) {
  *lines = 0;
  for (int i = 0; *m->p; i++, end_line(m)) {
    assert(i < 64);
    if (!guards_hold(m)) continue;
    LB_TRY(check_refusal(m));
    *lines |= (uint64_t)1 << i;
  }
  if (!m->open) return LB_OK;
  return lb_error(LB_UNSUPPORTED,
                  LB_NODE_FMT
                  ": its attributes come from a call of the function it is in",
                  LB_NODE_ARGS(m->call));
}

// -- nodes -------------------------------------------------------------------

static lb_pb_node *new_node(maker *m) {
  lb_pb_nodes *nodes = &m->fn->nodes;
  assert(nodes->n < MAX_NODES);
  lb_pb_node *n = &nodes->at[nodes->n++];
  *n = (lb_pb_node){0};
  return n;
}

static lb_status copy_names(maker *m, const lb_pb_str *from, uint32_t n,
                            lb_pb_str **out) {
  *out =
      lb_arena_memdup(m->scratch, from, n * sizeof *from, _Alignof(lb_pb_str));
  return *out ? LB_OK : lb_oom();
}

// What an attribute that is a constant is called there.
static const char *constant_attr(const maker *m, const lb_pb_attr *a) {
  static const char *const by_kind[] = {[LB_ATTR_INT] = "value_int",
                                        [LB_ATTR_FLOAT] = "value_float",
                                        [LB_ATTR_INTS] = "value_ints",
                                        [LB_ATTR_FLOATS] = "value_floats"};
  if (a->ref.n) a = attr_of(m->fn->defaults, m->fn->n_defaults, a->ref);
  assert(a && (a->attr.kind == LB_ATTR_INT || a->attr.kind == LB_ATTR_FLOAT ||
               a->attr.kind == LB_ATTR_INTS));
  return by_kind[a->attr.kind];
}

// A number, a list or an attribute in place of a value.
static lb_status add_constant(maker *m, lb_pb_str *name) {
  char text[16];
  lb_pb_attr *a = lb_arena_new(m->scratch, lb_pb_attr, 1);
  if (!a) return lb_oom();
  *a = (lb_pb_attr){0};
  LB_TRY(read_value(m, a));
  const char *kind = constant_attr(m, a);
  LB_TRY(set_name(m, (lb_pb_str){kind, strlen(kind)}, a));
  int n = snprintf(text, sizeof text, "#%u", m->constants++);  // no word
  *name = (lb_pb_str){lb_arena_strdup(m->scratch, text), (size_t)n};
  if (!name->p) return lb_oom();
  lb_pb_node *node = new_node(m);
  *node = (lb_pb_node){.name = *name,
                       .op_type = {"Constant", 8},
                       .attrs = a,
                       .n_out = 1,
                       .n_attrs = 1};
  return copy_names(m, name, 1, &node->out);
}

static bool is_defined(const maker *m, lb_pb_str name) {
  int i = place_of(m->fn->in, m->fn->n_in, name);
  if (i >= 0) return has_input(m->call, (uint32_t)i);
  for (uint32_t k = 0; k < m->fn->nodes.n; k++) {
    const lb_pb_node *n = &m->fn->nodes.at[k];
    if (place_of(n->out, n->n_out, name) >= 0) return true;
  }
  return false;
}

// (a, 1.0, [1], @alpha): constants are nodes of their own, before this one.
static lb_status read_inputs(maker *m, lb_pb_str *in, uint32_t *count) {
  *count = 0;
  expect(m, '(');
  if (eat(m, ')')) return LB_OK;
  do {
    assert(*count < MAX_NAMES);
    lb_pb_str *name = &in[(*count)++];
    while (*m->p == ' ') m->p++;
    if (*m->p == '@' || *m->p == '[' || *m->p == '-' ||
        (*m->p >= '0' && *m->p <= '9')) {
      LB_TRY(add_constant(m, name));
    } else {
      *name = word(m);
      if (!is_defined(m, *name)) *name = (lb_pb_str){0};
    }
  } while (eat(m, ','));
  expect(m, ')');
  return LB_OK;
}

static lb_status read_line(maker *m) {
  lb_pb_str in[MAX_NAMES], out[MAX_NAMES];
  lb_pb_node made = {.n_out = names(m, out)};
  made.name = out[0];
  expect(m, '=');
  part(word(m), &made.domain, &made.op_type);
  LB_TRY(read_attrs(m, &made.attrs, &made.n_attrs));
  LB_TRY(read_inputs(m, in, &made.n_in));
  made.n_refs = made.n_in;
  LB_TRY(copy_names(m, in, made.n_in, &made.refs));
  LB_TRY(copy_names(m, out, made.n_out, &made.out));
  *new_node(m) = made;
  return LB_OK;
}

// -- bodies ------------------------------------------------------------------

static lb_status read_head(maker *m) {
  lb_pb_str in[MAX_NAMES], out[MAX_NAMES];
  lb_pb_function *fn = m->fn;
  part(word(m), &fn->domain, &fn->name);
  LB_TRY(read_attrs(m, &fn->defaults, &fn->n_defaults));
  expect(m, '(');
  fn->n_in = names(m, in);
  expect(m, ')');
  expect(m, '-');
  expect(m, '>');
  fn->n_out = names(m, out);
  end_line(m);
  LB_TRY(copy_names(m, in, fn->n_in, &fn->in));
  return copy_names(m, out, fn->n_out, &fn->out);
}

static lb_status read_body(maker *m, uint64_t lines) {
  static lb_pb_opset opsets[] = {{{"", 0}, LB_NEWEST_OPSET},
                                 {{"limber", 6}, 1},
                                 {{"com.microsoft", 13}, 1}};
  m->fn->opsets = opsets;
  m->fn->n_opsets = 3;
  m->fn->nodes.at = lb_arena_new(m->scratch, lb_pb_node, MAX_NODES);
  if (!m->fn->nodes.at) return lb_oom();
  for (; *m->p; lines >>= 1) {
    guards_hold(m);
    if (lines & 1) LB_TRY(read_line(m));
    end_line(m);
  }
  return LB_OK;
}

static const char *text_of(const lb_pb_node *n) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    maker m = {.p = texts[i]};
    lb_pb_str domain, name;
    part(word(&m), &domain, &name);
    if (lb_pb_same(name, n->op_type) && lb_pb_same(domain, n->domain))
      return texts[i];
  }
  return NULL;
}

const char *lb_contrib_text(size_t i) {
  return i < sizeof texts / sizeof *texts ? texts[i] : NULL;
}

static uint32_t inputs_given(const lb_pb_node *n) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < MAX_NAMES; i++)
    bits |= (uint32_t)has_input(n, i) << i;
  return bits;
}

static lb_pb_function *known(lb_contrib *all, const lb_contrib *c) {
  for (lb_contrib *i = all; i; i = i->next)
    if (i->text == c->text && i->lines == c->lines && i->given == c->given)
      return &i->fn;
  return NULL;
}

lb_status lb_contrib_find(lb_contrib **all, lb_arena *scratch, lb_arena *keep,
                          const lb_pb_node *n, lb_pb_function **out) {
  *out = NULL;
  const char *text = text_of(n);
  if (!text) return LB_OK;
  lb_contrib c = {.text = text, .given = inputs_given(n), .next = *all}, *made;
  maker m = {.scratch = scratch, .keep = keep, .call = n, .p = text};
  m.fn = &c.fn;
  LB_TRY(read_head(&m));
  const char *body = m.p;
  LB_TRY(choose(&m, &c.lines));
  *out = known(*all, &c);
  if (*out) return LB_OK;
  m.p = body;
  LB_TRY(read_body(&m, c.lines));
  made = lb_arena_memdup(scratch, &c, sizeof c, _Alignof(lb_contrib));
  if (!made) return lb_oom();
  *all = made;
  *out = &made->fn;
  return LB_OK;
}
