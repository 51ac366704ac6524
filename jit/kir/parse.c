// kir/parse.c -- Parses the text of a kernel line by line.
//
// A line is `[%N =] op [type] [%operand ...] [value or table] [keyword number
// ...]`, where a keyword is that of the operation's imm, `axis`, or `stream`.
// Whitespace and empty lines are ignored; `;` begins a comment.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kir/build.h"
#include "kir/num.h"
#include "kir/text.h"
#include "kir/type.h"

#define WORD 128

typedef struct parser {
  const char *at;    // next character
  unsigned line;     // from 1
  char word[WORD];   // the last word; "" at the end of a line
  const char *back;  // start of that word
  lb_kbuilder b;
} parser;

static lb_status syntax_error(const parser *p, const char *what) {
  return lb_error(LB_INVALID, "kernel text, line %u: %s near '%s'", p->line,
                  what, p->word);
}

// -- words -------------------------------------------------------------------

static void skip_blanks(parser *p) {
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
  if (*p->at == ';')
    while (*p->at && *p->at != '\n') p->at++;
}

static bool is_word_char(char c) {
  return isalnum((unsigned char)c) || (c && strchr("_.%+-", c));
}

// A word consists of letters, digits and _.%+-, or is one other character. A
// word that is too long is truncated, and still too long to be valid.
static void next(parser *p) {
  skip_blanks(p);
  size_t n = 0;
  p->back = p->at;
  if (*p->at && *p->at != '\n' && !is_word_char(*p->at))
    p->word[n++] = *p->at++;
  else
    for (; is_word_char(*p->at); p->at++)
      if (n < WORD - 1) p->word[n++] = *p->at;
  p->word[n] = '\0';
}

static bool is(const parser *p, const char *word) {
  return strcmp(p->word, word) == 0;
}

// Consumes the next word if it is `word`.
static bool try_next(parser *p, const char *word) {
  next(p);
  if (is(p, word)) return true;
  p->at = p->back;
  return false;
}

// Advances to the next non-empty line; false at the end.
static bool next_line(parser *p) {
  for (;; p->line++, p->at++) {
    skip_blanks(p);
    if (*p->at != '\n') return *p->at != '\0';
  }
}

static lb_status read_int(parser *p, int64_t min, int64_t max, int64_t *out) {
  char *end;
  next(p);
  errno = 0;
  long long x = strtoll(p->word, &end, 10);
  if (!*p->word || *end || errno || x < min || x > max)
    return syntax_error(p, "expected a number in range");
  *out = x;
  return LB_OK;
}

// -- types -------------------------------------------------------------------

static bool find_dtype(const char *text, uint8_t *out) {
  for (unsigned t = LB_NONE + 1; t < LB_DTYPE_COUNT; t++)
    if (strcmp(text, lb_kdtype_text((lb_dtype)t)) == 0) {
      *out = (uint8_t)t;
      return true;
    }
  return false;
}

static bool find_pointer(const char *text, lb_ktype *out) {
  for (unsigned f = LB_K_POINTER; f <= LB_K_TYPE_FLAGS; f += 2) {
    const char *word = lb_kptr_word(f);
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0 || text[n] != '.') continue;
    *out = (lb_ktype){.flags = (uint8_t)f, .lanes = 1};
    return find_dtype(text + n + 1, &out->dtype);
  }
  return false;
}

static bool find_lanes(char *text, lb_ktype *out) {
  unsigned lanes = 1;
  char *x = strchr(text, 'x');
  if (x) {
    char *end;
    unsigned long n = strtoul(x + 1, &end, 10);
    if (!isdigit((unsigned char)x[1]) || *end || n > UINT16_MAX) return false;
    lanes = (unsigned)n;
    *x = '\0';
  }
  *out = (lb_ktype){.lanes = (uint16_t)lanes};
  return find_dtype(text, &out->dtype);
}

static lb_status read_type(parser *p, lb_kinst *in) {
  lb_ktype t;
  next(p);
  if (!find_pointer(p->word, &t) && !find_lanes(p->word, &t))
    return syntax_error(p, "expected a type");
  in->dtype = t.dtype, in->lanes = t.lanes, in->flags = t.flags;
  return LB_OK;
}

// -- instructions ------------------------------------------------------------

static bool find_op(const char *text, uint8_t *out) {
  for (unsigned op = 0; op < LB_K_COUNT; op++)
    if (strcmp(text, lb_kop_infos[op].text) == 0) {
      *out = (uint8_t)op;
      return true;
    }
  return false;
}

// The bits of an integer, checked against its dtype.
static bool find_int(const char *text, lb_dtype t, uint64_t *out) {
  char *end;
  bool is_signed = lb_dtype_is_signed(t);
  uint64_t all = UINT64_MAX >> (64 - 8 * lb_dtype_size(t));
  errno = 0;
  long long x = is_signed ? strtoll(text, &end, 10) : 0;
  uint64_t bits = is_signed ? (uint64_t)x : strtoull(text, &end, 10);
  *out = bits & all;
  if (*end || errno || (!is_signed && *text == '-')) return false;
  lb_kinst in = {.dtype = (uint8_t)t, .imm = (int64_t)*out};
  return (uint64_t)lb_kconst_int(&in) == bits;
}

static bool find_float(const char *text, lb_dtype t, uint64_t *out) {
  char *end;
  bool as_bits = strncmp(text, "0x", 2) == 0;
  errno = 0;
  *out =
      as_bits ? strtoull(text, &end, 16) : lb_knum_bits(t, strtod(text, &end));
  return !*end && !(as_bits && errno);  // denormals set errno
}

static lb_status read_value(parser *p, lb_kinst *in) {
  uint64_t bits;
  bool ok;
  next(p);
  if (in->dtype == LB_BOOL)
    ok = is(p, "true") || is(p, "false"), bits = is(p, "true");
  else if (lb_dtype_is_float(in->dtype))
    ok = find_float(p->word, in->dtype, &bits);
  else
    ok = in->dtype && find_int(p->word, in->dtype, &bits);
  if (!ok || !*p->word) return syntax_error(p, "expected a value in range");
  in->imm = (int64_t)bits;
  return LB_OK;
}

// Reads "[0 1 2 3]", in->lanes numbers.
static lb_status read_table(parser *p, const lb_kinst *in, uint8_t *table) {
  int64_t lane;
  if (in->lanes > LB_K_MAX_LANES) return syntax_error(p, "too many lanes");
  if (!try_next(p, "[")) return syntax_error(p, "expected a lane table");
  for (uint32_t i = 0; i < in->lanes; i++) {
    LB_TRY(read_int(p, 0, UINT8_MAX, &lane));
    table[i] = (uint8_t)lane;
  }
  return try_next(p, "]")
             ? LB_OK
             : syntax_error(p, "expected the end of the lane table");
}

static lb_status read_operands(parser *p, lb_kinst *in, lb_kval *src) {
  for (;; in->n_src++) {
    char *end;
    next(p);
    if (p->word[0] != '%') break;
    errno = 0;
    unsigned long v = strtoul(p->word + 1, &end, 10);
    if (!isdigit((unsigned char)p->word[1]) || *end || errno ||
        v >= LB_K_NONE || in->n_src == 4)
      return syntax_error(p, "invalid operand");
    src[in->n_src] = (lb_kval)v;
  }
  p->at = p->back;
  return LB_OK;
}

static lb_status read_words(parser *p, lb_kinst *in) {
  const char *imm = lb_kimm_words[lb_kop_infos[in->op].imm];
  int64_t axis = 0;
  for (next(p); *p->word; next(p)) {
    if (*imm && is(p, imm))
      LB_TRY(read_int(p, INT64_MIN, INT64_MAX, &in->imm));
    else if (is(p, "axis"))
      LB_TRY(read_int(p, 0, UINT32_MAX, &axis));
    else if (is(p, "stream"))
      in->flags |= LB_K_STREAM;
    else
      return syntax_error(p, "unexpected word");
  }
  in->axis = (uint32_t)axis;
  return LB_OK;
}

// "%N =" must have the number of this instruction.
static lb_status read_result(parser *p, bool *out) {
  char want[16];
  snprintf(want, sizeof want, "%%%u", p->b.k.n_insts);
  next(p);
  *out = p->word[0] == '%';
  if (!*out) p->at = p->back;
  if (*out && !is(p, want))
    return syntax_error(p, "expected the next value number");
  return *out && !try_next(p, "=") ? syntax_error(p, "expected =") : LB_OK;
}

static lb_status read_inst(parser *p) {
  lb_kinst in = {0};
  lb_kval src[4];
  uint8_t table[LB_K_MAX_LANES];
  bool has_value;
  LB_TRY(read_result(p, &has_value));
  next(p);
  if (!find_op(p->word, &in.op))
    return syntax_error(p, "expected an operation");
  if (has_value) LB_TRY(read_type(p, &in));
  LB_TRY(read_operands(p, &in, src));
  if (in.op == LB_K_CONST) LB_TRY(read_value(p, &in));
  if (in.op == LB_K_SHUFFLE) LB_TRY(read_table(p, &in, table));
  LB_TRY(read_words(p, &in));
  lb_k_push(&p->b, in, src, table);
  return LB_OK;
}

static lb_status read_header(parser *p) {
  if (!next_line(p) || !try_next(p, "kernel"))
    return syntax_error(p, "expected 'kernel NAME local X Y Z'");
  next(p);
  lb_kbuild_init(&p->b, p->word);
  if (!try_next(p, "local")) return syntax_error(p, "expected 'local'");
  for (int i = 0; i < 3; i++) {
    int64_t n;
    LB_TRY(read_int(p, 1, UINT32_MAX, &n));
    p->b.k.local[i] = (uint32_t)n;
  }
  next(p);
  return *p->word ? syntax_error(p, "expected the end of the line") : LB_OK;
}

lb_status lb_kernel_parse(const char *text, lb_kernel *out) {
  parser p = {.at = text, .line = 1};
  lb_status st = read_header(&p);
  while (!lb_failed(st) && !lb_failed(p.b.error) && next_line(&p))
    st = read_inst(&p);
  if (lb_failed(st)) lb_kbuild_fail(&p.b, st);
  return lb_kernel_take(&p.b, out);
}
