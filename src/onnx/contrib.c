// onnx/contrib.c -- operators of ONNX Runtime, as functions of ONNX operators.
//
// contrib.def has one text for each:
//
//   com.microsoft.FastGelu<scale=1.0>(x, b) -> y     signature with defaults
//   [b] s = Add(x, b)                                if b is present
//   [!b] s = Identity(x)                             if it is absent
//   y = Gelu<approximate="tanh">(s)
//
// A guard tests an input (is it present?), an output (is it used?), an
// attribute (is it neither 0 nor empty?), or the value of an attribute:
// [activation=Relu], [bits=4]. A line "refuse ..." refuses the model. An
// operand may be a number, a list of integers or @attribute: it becomes a
// constant. @attribute as the value of an attribute is the attribute of the
// call; if that is absent, the attribute is left out. A value that no line
// defines is absent.
//
// (1) A *body* is a text after evaluation of its guards. Calls with equal
//     results of the guards and the same inputs share one, so that even a large
//     model has few.
// (2) The texts are part of Limber: a test parses all of them, so the parser
//     only asserts that they are valid.
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
  uint64_t lines;  // bit i: line i is in the body
  uint32_t given;  // bit i: input i is present
  lb_contrib *next;
};

// State of parsing one body.
typedef struct body_builder {
  lb_arena *scratch, *persistent;
  const lb_pb_node *call;
  lb_pb_function *fn;
  const char *p;         // position in the text
  uint32_t constants;    // created so far
  bool depends_on_call;  // a guard tests an attribute of an outer function
} body_builder;

// -- tokens ------------------------------------------------------------------

static bool accept(body_builder *m, char c) {
  while (*m->p == ' ') m->p++;
  if (*m->p != c) return false;
  m->p++;
  return true;
}

static void expect(body_builder *m, char c) {
  bool there = accept(m, c);
  assert(there);
  (void)there;
}

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// Reads a word; "" if there is none.
static lb_pb_str word(body_builder *m) {
  while (*m->p == ' ') m->p++;
  const char *start = m->p;
  while (in_word(*m->p)) m->p++;
  return (lb_pb_str){start, (size_t)(m->p - start)};
}

static lb_pb_str until(body_builder *m, char c) {
  const char *start = m->p;
  while (*m->p != c) m->p++;
  return (lb_pb_str){start, (size_t)(m->p - start)};
}

static void end_line(body_builder *m) {
  while (*m->p != '\n') m->p++;
  m->p++;
}

// Reads comma-separated names, which may be empty.
static uint32_t names(body_builder *m, lb_pb_str *out) {
  uint32_t n = 0;
  do {
    assert(n < MAX_NAMES);
    out[n++] = word(m);
  } while (accept(m, ','));
  return n;
}

// Splits "com.microsoft.Gelu" into domain and name.
static void split_name(lb_pb_str full, lb_pb_str *domain, lb_pb_str *name) {
  size_t dot = full.n;
  while (dot > 0 && full.p[dot - 1] != '.') dot--;
  *domain = (lb_pb_str){full.p, dot ? dot - 1 : 0};
  *name = (lb_pb_str){full.p + dot, full.n - dot};
}

// -- literals ----------------------------------------------------------------

static int64_t digits(body_builder *m, int *count) {
  int64_t v = 0;
  for (*count = 0; *m->p >= '0' && *m->p <= '9'; m->p++, ++*count)
    v = 10 * v + (*m->p - '0');
  return v;
}

// Reads the part of a number after its integer digits.
static float fraction(body_builder *m, int64_t whole) {
  double v = (double)whole, unit = 1;
  int n = 0, exponent = 0;
  if (accept(m, '.')) {
    int64_t rest = digits(m, &n);
    for (int i = 0; i < n; i++) unit *= 10;
    v += (double)rest / unit;
  }
  if (accept(m, 'e')) {
    bool small = accept(m, '-');
    exponent = (int)digits(m, &n);
    for (; exponent > 0; exponent--) v = small ? v / 10 : v * 10;
  }
  return (float)v;
}

static void read_number(body_builder *m, lb_attr *out) {
  int n;
  bool negative = accept(m, '-');
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

static lb_status read_list(body_builder *m, lb_attr *out) {
  int64_t list[8];
  uint32_t n = 0;
  while (!accept(m, ']')) {
    lb_attr one;
    assert(n < 8);
    accept(m, ',');
    read_number(m, &one);
    list[n++] = one.i;
  }
  out->kind = LB_ATTR_INTS;
  out->n = n;
  out->ints = lb_arena_memdup(m->persistent, list, n * sizeof *list, 8);
  return out->ints ? LB_OK : lb_oom();
}

static lb_status read_text(body_builder *m, lb_attr *out) {
  const char *start = m->p;
  while (*m->p != '"') m->p++;
  lb_pb_str s = {start, (size_t)(m->p++ - start)};
  out->kind = LB_ATTR_STRING;
  out->n = (uint32_t)s.n;
  out->s = lb_pb_cstr(m->persistent, s);
  return out->s ? LB_OK : lb_oom();
}

static lb_status set_name(body_builder *m, lb_pb_str name, lb_pb_attr *out) {
  out->name = name;
  out->attr.name = lb_pb_cstr(m->persistent, name);
  return out->attr.name ? LB_OK : lb_oom();
}

static lb_status read_value(body_builder *m, lb_pb_attr *out) {
  if (accept(m, '@')) {
    out->ref = word(m);
    return LB_OK;
  }
  out->plain = true;
  if (accept(m, '[')) return read_list(m, &out->attr);
  if (accept(m, '"')) return read_text(m, &out->attr);
  read_number(m, &out->attr);
  return LB_OK;
}

// Reads <name=value, ...>, if present.
static lb_status read_attrs(body_builder *m, lb_pb_attr **out,
                            uint32_t *count) {
  *count = 0;
  *out = NULL;
  if (!accept(m, '<')) return LB_OK;
  *out = lb_arena_new(m->scratch, lb_pb_attr, MAX_ATTRS);
  if (!*out) return lb_oom();
  do {
    assert(*count < MAX_ATTRS);
    lb_pb_attr *a = &(*out)[(*count)++];
    *a = (lb_pb_attr){0};
    LB_TRY(set_name(m, word(m), a));
    expect(m, '=');
    LB_TRY(read_value(m, a));
  } while (accept(m, ','));
  expect(m, '>');
  return LB_OK;
}

// -- guards ------------------------------------------------------------------

static int index_of(const lb_pb_str *list, uint32_t n, lb_pb_str name) {
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

// Whether the attribute is this string, or this integer.
static bool equals(const lb_attr *a, lb_pb_str s) {
  char digits[24];
  if (a->kind == LB_ATTR_STRING) return lb_pb_same((lb_pb_str){a->s, a->n}, s);
  if (a->kind != LB_ATTR_INT) return false;
  int n = snprintf(digits, sizeof digits, "%lld", (long long)a->i);
  return lb_pb_same((lb_pb_str){digits, (size_t)n}, s);
}

static bool has_input(const lb_pb_node *n, uint32_t i) {
  return i < n->n_in && n->refs[i].n > 0;
}

// Evaluates one guard; `value` is "" if it has none.
static bool is_given(body_builder *m, lb_pb_str name, lb_pb_str value) {
  const lb_pb_node *n = m->call;
  int i = index_of(m->fn->in, m->fn->n_in, name);
  if (i >= 0) return has_input(n, (uint32_t)i);
  i = index_of(m->fn->out, m->fn->n_out, name);
  if (i >= 0) return (uint32_t)i < n->n_out && n->out[i].n > 0;
  const lb_pb_attr *a = attr_of(n->attrs, n->n_attrs, name);
  if (!a) a = attr_of(m->fn->defaults, m->fn->n_defaults, name);
  if (a && a->ref.n) m->depends_on_call = true;
  if (!a || !a->plain) return false;
  return value.n ? equals(&a->attr, value) : is_set(&a->attr);
}

// Evaluates the guards of a line; true if the line is in the body.
static bool guards_hold(body_builder *m) {
  bool hold = true;
  while (accept(m, '[')) {
    bool want = !accept(m, '!');
    lb_pb_str name = word(m), value = {0};
    if (accept(m, '=')) value = until(m, ']');
    expect(m, ']');
    hold &= is_given(m, name, value) == want;
  }
  return hold;
}

static lb_status check_refusal(body_builder *m) {
  static const char verb[] = "refuse ";
  while (*m->p == ' ') m->p++;
  if (strncmp(m->p, verb, sizeof verb - 1) != 0) return LB_OK;
  const char *what = m->p + sizeof verb - 1;
  return lb_error(LB_UNSUPPORTED, LB_NODE_FMT ": %.*s: not supported by Limber",
                  LB_NODE_ARGS(m->call), (int)strcspn(what, "\n"), what);
}

// Finds the lines of the body.
static lb_status choose_lines(body_builder *m, uint64_t *lines) {
  *lines = 0;
  for (int i = 0; *m->p; i++, end_line(m)) {
    assert(i < 64);
    if (!guards_hold(m)) continue;
    LB_TRY(check_refusal(m));
    *lines |= (uint64_t)1 << i;
  }
  if (!m->depends_on_call) return LB_OK;
  return lb_error(LB_UNSUPPORTED,
                  LB_NODE_FMT
                  ": its attributes depend on the call of the function that it "
                  "is in, which is not supported",
                  LB_NODE_ARGS(m->call));
}

// -- nodes -------------------------------------------------------------------

static lb_pb_node *new_node(body_builder *m) {
  lb_pb_nodes *nodes = &m->fn->nodes;
  assert(nodes->n < MAX_NODES);
  lb_pb_node *n = &nodes->at[nodes->n++];
  *n = (lb_pb_node){0};
  return n;
}

static lb_status copy_names(body_builder *m, const lb_pb_str *from, uint32_t n,
                            lb_pb_str **out) {
  *out =
      lb_arena_memdup(m->scratch, from, n * sizeof *from, _Alignof(lb_pb_str));
  return *out ? LB_OK : lb_oom();
}

// The name of the attribute of Constant that holds such a value.
static const char *constant_attr(const body_builder *m, const lb_pb_attr *a) {
  static const char *const by_kind[] = {[LB_ATTR_INT] = "value_int",
                                        [LB_ATTR_FLOAT] = "value_float",
                                        [LB_ATTR_INTS] = "value_ints",
                                        [LB_ATTR_FLOATS] = "value_floats"};
  if (a->ref.n) a = attr_of(m->fn->defaults, m->fn->n_defaults, a->ref);
  assert(a && (a->attr.kind == LB_ATTR_INT || a->attr.kind == LB_ATTR_FLOAT ||
               a->attr.kind == LB_ATTR_INTS));
  return by_kind[a->attr.kind];
}

// Adds a Constant node for a number, a list or an @attribute operand.
static lb_status add_constant(body_builder *m, lb_pb_str *name) {
  char text[16];
  lb_pb_attr *a = lb_arena_new(m->scratch, lb_pb_attr, 1);
  if (!a) return lb_oom();
  *a = (lb_pb_attr){0};
  LB_TRY(read_value(m, a));
  const char *kind = constant_attr(m, a);
  LB_TRY(set_name(m, (lb_pb_str){kind, strlen(kind)}, a));
  int n = snprintf(text, sizeof text, "#%u",
                   m->constants++);  // not a word, so unique
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

static bool is_defined(const body_builder *m, lb_pb_str name) {
  int i = index_of(m->fn->in, m->fn->n_in, name);
  if (i >= 0) return has_input(m->call, (uint32_t)i);
  for (uint32_t k = 0; k < m->fn->nodes.n; k++) {
    const lb_pb_node *n = &m->fn->nodes.at[k];
    if (index_of(n->out, n->n_out, name) >= 0) return true;
  }
  return false;
}

// Reads (a, 1.0, [1], @alpha). Constants become nodes before this one.
static lb_status read_inputs(body_builder *m, lb_pb_str *in, uint32_t *count) {
  *count = 0;
  expect(m, '(');
  if (accept(m, ')')) return LB_OK;
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
  } while (accept(m, ','));
  expect(m, ')');
  return LB_OK;
}

static lb_status read_line(body_builder *m) {
  lb_pb_str in[MAX_NAMES], out[MAX_NAMES];
  lb_pb_node made = {.n_out = names(m, out)};
  made.name = out[0];
  expect(m, '=');
  split_name(word(m), &made.domain, &made.op_type);
  LB_TRY(read_attrs(m, &made.attrs, &made.n_attrs));
  LB_TRY(read_inputs(m, in, &made.n_in));
  made.n_refs = made.n_in;
  LB_TRY(copy_names(m, in, made.n_in, &made.refs));
  LB_TRY(copy_names(m, out, made.n_out, &made.out));
  *new_node(m) = made;
  return LB_OK;
}

// -- bodies ------------------------------------------------------------------

static lb_status read_signature(body_builder *m) {
  lb_pb_str in[MAX_NAMES], out[MAX_NAMES];
  lb_pb_function *fn = m->fn;
  split_name(word(m), &fn->domain, &fn->name);
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

static lb_status read_body(body_builder *m, uint64_t lines) {
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
    body_builder m = {.p = texts[i]};
    lb_pb_str domain, name;
    split_name(word(&m), &domain, &name);
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

static lb_pb_function *find_body(lb_contrib *all, const lb_contrib *c) {
  for (lb_contrib *i = all; i; i = i->next)
    if (i->text == c->text && i->lines == c->lines && i->given == c->given)
      return &i->fn;
  return NULL;
}

lb_status lb_contrib_find(lb_contrib **all, lb_arena *scratch,
                          lb_arena *persistent, const lb_pb_node *n,
                          lb_pb_function **out) {
  *out = NULL;
  const char *text = text_of(n);
  if (!text) return LB_OK;
  lb_contrib c = {.text = text, .given = inputs_given(n), .next = *all}, *made;
  body_builder m = {
      .scratch = scratch, .persistent = persistent, .call = n, .p = text};
  m.fn = &c.fn;
  LB_TRY(read_signature(&m));
  const char *body = m.p;
  LB_TRY(choose_lines(&m, &c.lines));
  *out = find_body(*all, &c);
  if (*out) return LB_OK;
  m.p = body;
  LB_TRY(read_body(&m, c.lines));
  made = lb_arena_memdup(scratch, &c, sizeof c, _Alignof(lb_contrib));
  if (!made) return lb_oom();
  *all = made;
  *out = &made->fn;
  return LB_OK;
}
