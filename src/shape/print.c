// shape/print.c -- expressions as text in common notation.
//
// The stored form has neither ceiling nor modulo by constants (see expr.h); so
// floor((w+7)/8) is printed as ceil(w/8), and w-8*floor(w/8) as w%8.
#include <inttypes.h>

#include "shape/expr.h"

static void print_sum(const lb_term *terms, int n, lb_strbuf *out);

// The precedence that the context of a sum requires.
typedef enum precedence { PREC_PRODUCT, PREC_ATOM } precedence;

static bool needs_no_parentheses(const lb_term *terms, int n, precedence g) {
  if (n != 1 || terms[0].coef < 0) return false;
  const lb_prod *p = terms[0].prod;
  bool one = p->n == 0 || (p->n == 1 && terms[0].coef == 1);
  if (p->n == 1 && one && p->atoms[0]->kind == LB_ATOM_MOD) return false;
  return one || g == PREC_PRODUCT;
}

static void print_with_precedence(const lb_term *terms, int n, precedence g,
                                  lb_strbuf *out) {
  bool bare = needs_no_parentheses(terms, n, g);
  if (!bare) lb_strbuf_putc(out, '(');
  print_sum(terms, n, out);
  if (!bare) lb_strbuf_putc(out, ')');
}

static void print_operand(lb_dim d, precedence g, lb_strbuf *out) {
  lb_term k = {d.k, &lb_prod_one};
  print_with_precedence(d.e ? d.e->terms : &k, d.e ? d.e->n : 1, g, out);
}

static void print_mod(const lb_atom *a, lb_strbuf *out) {
  print_operand(a->a, PREC_ATOM, out);
  lb_strbuf_putc(out, '%');
  print_operand(a->b, PREC_ATOM, out);
}

// floor((p+c-1)/c) is ceil(p/c).
static bool is_ceiling(const lb_atom *a) {
  if (a->kind == LB_ATOM_CEILDIV) return true;
  const lb_expr *e = a->a.e;
  if (!e || !lb_dim_is_const(a->b)) return false;
  lb_term last = e->terms[e->n - 1];
  return last.prod == &lb_prod_one && last.coef == a->b.k - 1;
}

static void print_division(const lb_atom *a, lb_strbuf *out) {
  bool ceiling = is_ceiling(a);
  lb_strbuf_puts(out, ceiling ? "ceil(" : "floor(");
  if (ceiling && a->kind == LB_ATOM_FLOORDIV)
    print_with_precedence(a->a.e->terms, a->a.e->n - 1, PREC_PRODUCT, out);
  else
    print_operand(a->a, PREC_PRODUCT, out);
  lb_strbuf_putc(out, '/');
  print_operand(a->b, PREC_ATOM, out);
  lb_strbuf_putc(out, ')');
}

static void print_minmax(const lb_atom *a, lb_strbuf *out) {
  int64_t kind = a->kind;
  lb_strbuf_puts(out, kind == LB_ATOM_MIN ? "min(" : "max(");
  lb_dim last;
  do {
    lb_dim_print(a->a, out);
    lb_strbuf_putc(out, ',');
    last = a->b;
    a = lb_dim_atom(last);
  } while (a && a->kind == kind);
  lb_dim_print(last, out);
  lb_strbuf_putc(out, ')');
}

static void print_atom(const lb_atom *a, lb_strbuf *out) {
  switch ((lb_atom_kind)a->kind) {
    case LB_ATOM_SYMBOL: lb_strbuf_puts(out, a->name); break;
    case LB_ATOM_FLOORDIV:
    case LB_ATOM_CEILDIV: print_division(a, out); break;
    case LB_ATOM_MOD: print_mod(a, out); break;
    case LB_ATOM_MIN:
    case LB_ATOM_MAX: print_minmax(a, out); break;
  }
}

// Next to other factors, a%b needs parentheses.
static void print_factor(const lb_atom *a, bool alone, lb_strbuf *out) {
  bool wrap = !alone && a->kind == LB_ATOM_MOD;
  if (wrap) lb_strbuf_putc(out, '(');
  print_atom(a, out);
  if (wrap) lb_strbuf_putc(out, ')');
}

static void print_sign(bool negative, bool first, lb_strbuf *out) {
  if (negative)
    lb_strbuf_putc(out, '-');
  else if (!first)
    lb_strbuf_putc(out, '+');
}

static void print_term(lb_term x, bool first, lb_strbuf *out) {
  print_sign(x.coef < 0, first, out);
  bool number = x.prod->n == 0 || lb_abs(x.coef) != 1;
  if (number) lb_strbuf_printf(out, "%" PRIu64, lb_abs(x.coef));
  for (int i = 0; i < x.prod->n; i++) {
    if (number || i > 0) lb_strbuf_putc(out, '*');
    print_factor(x.prod->atoms[i], !number && x.prod->n == 1, out);
  }
}

static int count_products(const lb_poly *p) {
  return p->n - (p->n > 0 && p->t[p->n - 1].prod == &lb_prod_one);
}

// If p contains q*a - q*c*floor(a/c), with that floor in term i and q > 0,
// removes it and returns q; otherwise returns 0.
static int64_t take_mod(lb_poly *p, int i) {
  lb_term x = p->t[i];
  if (x.coef > 0 || x.prod->n != 1) return 0;
  const lb_atom *a = x.prod->atoms[0];
  if (a->kind != LB_ATOM_FLOORDIV || !lb_dim_is_const(a->b)) return 0;
  if (x.coef % a->b.k != 0) return 0;
  int64_t q = -(x.coef / a->b.k);
  lb_poly rest = *p, sum;
  lb_poly_of(a->a, &sum);
  int left = count_products(p) - count_products(&sum);
  if (lb_poly_add(&rest, -q, &sum) || count_products(&rest) != left) return 0;
  if (lb_poly_put(&rest, -1, x)) return 0;
  *p = rest;
  return q;
}

static bool print_mods(lb_poly *p, bool first, lb_strbuf *out) {
  for (int i = 0; i < p->n; i++) {
    lb_term x = p->t[i];
    int64_t q = take_mod(p, i);
    if (q == 0) continue;
    print_sign(false, first, out);
    if (q != 1) lb_strbuf_printf(out, "%" PRId64 "*(", q);
    print_mod(x.prod->atoms[0], out);
    if (q != 1) lb_strbuf_putc(out, ')');
    first = false;
    i = -1;
  }
  return first;
}

// Positive terms are printed first, as in "w-1" and "1-w".
static void print_sum(const lb_term *terms, int n, lb_strbuf *out) {
  lb_poly p = {.n = n};
  for (int i = 0; i < n; i++) p.t[i] = terms[i];
  bool first = n < 2 || print_mods(&p, true, out);
  for (int negative = 0; negative < 2; negative++) {
    for (int i = 0; i < p.n; i++) {
      if ((p.t[i].coef < 0) != negative) continue;
      print_term(p.t[i], first, out);
      first = false;
    }
  }
  if (first) lb_strbuf_putc(out, '0');
}

void lb_dim_print(lb_dim d, lb_strbuf *out) {
  if (d.e)
    print_sum(d.e->terms, d.e->n, out);
  else
    lb_strbuf_printf(out, "%" PRId64, d.k);
}
