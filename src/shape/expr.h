// shape/expr.h -- how expressions are stored; private to this module.
//
// Three kinds of objects are interned, so each is unique in its table and
// immutable:
//   atom  a symbol, or a division, modulo, min or max of two dims
//   prod  a product of atoms, sorted, repeated for powers; the empty one is 1
//   expr  a sum of terms (integer times prod), sorted, none of them zero
//
// (1) The order of atoms, products and terms depends on structure only, not on
//     construction order. Products are ordered by degree, then by their atoms
//     (graded lexicographic), so that polynomials can be divided.
// (2) An expr is never a constant, nor is one with a range of a single value.
// (3) Division and modulo by constants are always floor(p/c) with c > 1, p's
//     first coefficient positive, all others smaller than c and without a
//     common factor with c, and p's constant in [0,c). Ceiling becomes a floor,
//     and a%c becomes a-c*floor(a/c); print converts both back.
// (4) Size and depth are bounded (LB_MAX_*), and so are recursion and work.
#ifndef LB_SHAPE_EXPR_H
#define LB_SHAPE_EXPR_H

#include "base/map.h"
#include "shape/dim.h"

enum {
  LB_MAX_TERMS = 64,    // of one sum
  LB_MAX_FACTORS = 32,  // of one product
  LB_MAX_DEPTH = 32,    // of nested atoms
  LB_MAX_SIZE = 1024,   // of an expanded expression, in terms and atoms
};

typedef enum lb_atom_kind {
  LB_ATOM_SYMBOL,
  LB_ATOM_FLOORDIV,
  LB_ATOM_CEILDIV,  // like MOD, only with a divisor that is not a constant
  LB_ATOM_MOD,
  LB_ATOM_MIN,  // more than two operands: MIN(a, MIN(b, c)), sorted
  LB_ATOM_MAX,
} lb_atom_kind;

typedef struct lb_atom {
  lb_dim a, b;   // operands; for a symbol, a.k is its index
  int64_t kind;  // lb_atom_kind; last field of the key
  lb_dim_range range;
  const char *name;  // of a symbol; borrowed from the table
  int depth, size;
} lb_atom;

typedef struct lb_prod {
  lb_dim_range range;
  int depth, size;
  int n;
  const lb_atom *atoms[];  // borrowed
} lb_prod;

typedef struct lb_term {
  int64_t coef;
  const lb_prod *prod;  // borrowed
} lb_term;
_Static_assert(sizeof(lb_term) == 16, "terms are hashed as bytes");

struct lb_expr {
  lb_dim_range range;
  int depth, size;
  int n;
  lb_term terms[];
};

struct lb_symtab {
  lb_arena arena;           // owned; every atom, prod, expr and name
  lb_map names;             // name -> expr
  lb_map atoms;             // key part -> atom
  lb_map prods;             // atoms -> prod
  lb_map exprs;             // terms -> expr
  const lb_atom **symbols;  // owned
  int count, cap;
  int fresh;  // number of unnamed symbols
};

// A sum under construction: sorted, no zero coefficients, not interned.
typedef struct lb_poly {
  int n;
  lb_term t[LB_MAX_TERMS];
} lb_poly;

// Why an operation has no result. dim.c converts it to a status with the
// operands; proofs treat it as "unknown".
typedef enum lb_fail {
  LB_FAIL_NONE,
  LB_FAIL_OVERFLOW,
  LB_FAIL_ZERO,  // division by the constant 0
  LB_FAIL_INEXACT,
  LB_FAIL_SIZE,
  LB_FAIL_MEMORY,
} lb_fail;

// Returns from the function if `expr` fails; like LB_TRY, for lb_fail.
#define LB_FIT(expr)         \
  do {                       \
    lb_fail fail_ = (expr);  \
    if (fail_) return fail_; \
  } while (0)

// -- symtab.c ---------------------------------------------------------------

extern const lb_prod lb_prod_one;  // the empty product

// Interns an atom, and returns it as a product of one.
lb_fail lb_atom_intern(lb_symtab *t, lb_atom_kind kind, lb_dim a, lb_dim b,
                       const lb_prod **out);
lb_fail lb_prod_intern(lb_symtab *t, const lb_atom *const *atoms, int n,
                       const lb_prod **out);
lb_fail lb_poly_intern(lb_symtab *t, const lb_poly *p, lb_dim *out);

// -- poly.c -----------------------------------------------------------------

// Negative: a is ordered before b. 0: equal.
int lb_dim_cmp(lb_dim a, lb_dim b);
int lb_prod_cmp(const lb_prod *a, const lb_prod *b);

lb_fail lb_prod_mul(lb_symtab *t, const lb_prod *a, const lb_prod *b,
                    const lb_prod **out);
// *out is NULL if b does not divide a.
lb_fail lb_prod_div(lb_symtab *t, const lb_prod *a, const lb_prod *b,
                    const lb_prod **out);
lb_fail lb_prod_gcd(lb_symtab *t, const lb_prod *a, const lb_prod *b,
                    const lb_prod **out);

void lb_poly_of(lb_dim d, lb_poly *out);
int64_t lb_poly_constant(const lb_poly *p);
lb_fail lb_poly_put(lb_poly *p, int64_t m, lb_term term);      // p += m*term
lb_fail lb_poly_add(lb_poly *p, int64_t m, const lb_poly *q);  // p += m*q
lb_fail lb_poly_addmul(lb_symtab *t, lb_poly *p, lb_term m,    // p += m*q
                       const lb_poly *q);
lb_fail lb_poly_mul(lb_symtab *t, const lb_poly *a, const lb_poly *b,
                    lb_poly *out);
// a / b if that is a polynomial; otherwise, or if unknown, *exact is false.
lb_fail lb_poly_div(lb_symtab *t, const lb_poly *a, const lb_poly *b,
                    lb_poly *out, bool *exact);

// The atom if p is 1*atom or 1*atom + constant; otherwise NULL.
const lb_atom *lb_poly_atom(const lb_poly *p);
// The atom if d is exactly one atom; otherwise NULL.
const lb_atom *lb_dim_atom(lb_dim d);

// -- facts.c ----------------------------------------------------------------

uint64_t lb_gcd(uint64_t a, uint64_t b);
uint64_t lb_abs(int64_t k);
int64_t lb_floordiv(int64_t a, int64_t b);  // neither b == 0 nor INT64_MIN / -1

lb_dim_range lb_range_atom(lb_atom_kind kind, lb_dim a, lb_dim b);
lb_dim_range lb_range_mul(lb_dim_range a, lb_dim_range b);
lb_dim_range lb_range_poly(const lb_poly *p);
int64_t lb_poly_lower(const lb_poly *p);  // lower bound; INT64_MIN: unknown
bool lb_known_le(lb_dim a, lb_dim b);     // a <= b is proved for all values

// -- div.c, minmax.c --------------------------------------------------------

lb_fail lb_div(lb_symtab *t, lb_atom_kind kind, lb_dim a, lb_dim b,
               lb_dim *out);
lb_fail lb_minmax(lb_symtab *t, lb_atom_kind kind, lb_dim a, lb_dim b,
                  lb_dim *out);

#endif
