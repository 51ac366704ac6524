// shape/dim.c -- arithmetic on dims: constants here, expressions by poly.c,
// div.c and minmax.c.
#include <assert.h>

#include "shape/expr.h"

enum { MAX_OPERAND_TEXT = 120 };  // in messages

static const char *reason(lb_fail f) {
  switch (f) {
    case LB_FAIL_OVERFLOW: return "overflows 64 bits";
    case LB_FAIL_ZERO: return "division by zero";
    case LB_FAIL_INEXACT: return "leaves a remainder";
    case LB_FAIL_SIZE: return "expression too large; use a new symbol for it";
    default: return "out of memory";
  }
}

static lb_code code_of(lb_fail f) {
  if (f == LB_FAIL_MEMORY) return LB_OOM;
  return f == LB_FAIL_SIZE ? LB_UNSUPPORTED : LB_INVALID;
}

// Truncates long operands, so that the reason after them stays visible.
static void print_short(lb_dim d, lb_strbuf *out) {
  lb_strbuf text = {0};
  lb_dim_print(d, &text);
  bool fits = text.len <= MAX_OPERAND_TEXT;
  lb_strbuf_putn(out, lb_strbuf_str(&text), fits ? text.len : MAX_OPERAND_TEXT);
  if (!fits) lb_strbuf_puts(out, "...");
  lb_strbuf_fini(&text);
}

static lb_status explain(lb_fail f, const char *op, lb_dim a, lb_dim b) {
  lb_strbuf text = {0};
  print_short(a, &text);
  lb_strbuf_puts(&text, ", ");
  print_short(b, &text);
  lb_status st =
      lb_error(code_of(f), "%s(%s): %s", op, lb_strbuf_str(&text), reason(f));
  lb_strbuf_fini(&text);
  return st;
}

static inline lb_status result(lb_fail f, const char *op, lb_dim a, lb_dim b) {
  return f ? explain(f, op, a, b) : LB_OK;
}

static inline bool constants(lb_dim a, lb_dim b) { return !a.e && !b.e; }

// -- sums and products ------------------------------------------------------

static lb_fail sum(lb_symtab *t, lb_dim a, int64_t m, lb_dim b, lb_dim *out) {
  assert(t);
  lb_poly x, y;
  lb_poly_of(a, &x);
  lb_poly_of(b, &y);
  LB_FIT(lb_poly_add(&x, m, &y));
  return lb_poly_intern(t, &x, out);
}

static lb_fail product(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  assert(t);
  lb_poly x, y, xy;
  lb_poly_of(a, &x);
  lb_poly_of(b, &y);
  LB_FIT(lb_poly_mul(t, &x, &y, &xy));
  return lb_poly_intern(t, &xy, out);
}

lb_status lb_dim_add(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b)) return result(sum(t, a, 1, b, out), "add", a, b);
  if (!__builtin_add_overflow(a.k, b.k, &out->k)) return LB_OK;
  return result(LB_FAIL_OVERFLOW, "add", a, b);
}

lb_status lb_dim_sub(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b)) return result(sum(t, a, -1, b, out), "sub", a, b);
  if (!__builtin_sub_overflow(a.k, b.k, &out->k)) return LB_OK;
  return result(LB_FAIL_OVERFLOW, "sub", a, b);
}

lb_status lb_dim_mul(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b)) return result(product(t, a, b, out), "mul", a, b);
  if (!__builtin_mul_overflow(a.k, b.k, &out->k)) return LB_OK;
  return result(LB_FAIL_OVERFLOW, "mul", a, b);
}

// -- division ---------------------------------------------------------------

static lb_fail check_division(int64_t a, int64_t b) {
  if (b == 0) return LB_FAIL_ZERO;
  return a == INT64_MIN && b == -1 ? LB_FAIL_OVERFLOW : LB_FAIL_NONE;
}

lb_status lb_dim_floordiv(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b))
    return result(lb_div(t, LB_ATOM_FLOORDIV, a, b, out), "floordiv", a, b);
  lb_fail f = check_division(a.k, b.k);
  if (!f) out->k = lb_floordiv(a.k, b.k);
  return result(f, "floordiv", a, b);
}

lb_status lb_dim_ceildiv(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b))
    return result(lb_div(t, LB_ATOM_CEILDIV, a, b, out), "ceildiv", a, b);
  lb_fail f = check_division(a.k, b.k);
  if (!f) out->k = lb_floordiv(a.k, b.k) + (a.k % b.k != 0);
  return result(f, "ceildiv", a, b);
}

lb_status lb_dim_mod(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b))
    return result(lb_div(t, LB_ATOM_MOD, a, b, out), "mod", a, b);
  if (b.k == 0) return result(LB_FAIL_ZERO, "mod", a, b);
  int64_t r = b.k == -1 ? 0 : a.k % b.k;  // INT64_MIN % -1 traps
  out->k = r != 0 && (r < 0) != (b.k < 0) ? r + b.k : r;
  return LB_OK;
}

lb_status lb_dim_divexact(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = lb_dim_const(0);
  if (!constants(a, b))
    return result(lb_div(t, LB_ATOM_FLOORDIV, a, b, out), "divexact", a, b);
  lb_fail f = check_division(a.k, b.k);
  if (!f && a.k % b.k != 0) f = LB_FAIL_INEXACT;
  if (!f) out->k = a.k / b.k;
  return result(f, "divexact", a, b);
}

// -- min and max, symbols ---------------------------------------------------

lb_status lb_dim_min(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = a.k < b.k ? a : b;
  if (constants(a, b)) return LB_OK;
  return result(lb_minmax(t, LB_ATOM_MIN, a, b, out), "min", a, b);
}

lb_status lb_dim_max(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out) {
  *out = a.k > b.k ? a : b;
  if (constants(a, b)) return LB_OK;
  return result(lb_minmax(t, LB_ATOM_MAX, a, b, out), "max", a, b);
}

bool lb_dim_as_symbol(lb_dim d, int *out) {
  const lb_atom *a = lb_dim_atom(d);
  if (!a || a->kind != LB_ATOM_SYMBOL) return false;
  *out = (int)a->a.k;
  return true;
}
