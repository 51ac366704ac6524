// shape/dim.h -- dims as expressions over named symbols.
//
// A dim is a constant, or an expression interned in a symbol table, so two dims
// are equal exactly if the two words of lb_dim are. Expressions have a
// canonical form: a sum of integer multiples of products of atoms, where an
// atom is a symbol, or a floor division, ceiling division, modulo, min or max
// of canonical expressions. Arithmetic on constants never accesses the table
// (which may then be NULL), so the same code serves symbols at load and numbers
// at planning, at the cost of integer arithmetic.
//
// Overflow is an error (LB_INVALID), never wraparound. An expression that would
// grow too large is LB_UNSUPPORTED: use a fresh symbol instead. Only one thread
// may use a table while it grows; many may read it (eval, print, ranges).
#ifndef LB_SHAPE_DIM_H
#define LB_SHAPE_DIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/strbuf.h"

typedef struct lb_symtab lb_symtab;
typedef struct lb_expr lb_expr;

typedef struct lb_dim {
  int64_t k;         // the constant if e is NULL, otherwise 0
  const lb_expr *e;  // borrowed from the table; never a constant
} lb_dim;

static inline lb_dim lb_dim_const(int64_t k) { return (lb_dim){k, NULL}; }
static inline bool lb_dim_is_const(lb_dim d) { return d.e == NULL; }
static inline bool lb_dim_is(lb_dim d, int64_t k) {
  return d.e == NULL && d.k == k;
}
static inline bool lb_dim_equal(lb_dim a, lb_dim b) {
  return a.k == b.k && a.e == b.e;
}

lb_status lb_symtab_new(lb_symtab **out);
void lb_symtab_free(lb_symtab *t);

// Finds or creates the symbol of that name. Symbols are sizes: >= 0.
lb_status lb_symtab_named(lb_symtab *t, const char *name, lb_dim *out);
// Creates an unnamed symbol; prints as "?1", "?2", ...
lb_status lb_symtab_fresh(lb_symtab *t, lb_dim *out);
// The same, but it may be any integer: for an unknown element of a tensor.
lb_status lb_symtab_fresh_int(lb_symtab *t, lb_dim *out);
int lb_symtab_count(const lb_symtab *t);
const char *lb_symtab_name(const lb_symtab *t, int symbol);  // borrowed
bool lb_dim_as_symbol(lb_dim d, int *out);  // true if d is one plain symbol

lb_status lb_dim_add(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
lb_status lb_dim_sub(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
lb_status lb_dim_mul(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
// Division by the constant 0 is an error. floordiv rounds down, ceildiv up, and
// mod has the sign of the divisor: a == floordiv(a,b)*b + mod(a,b).
lb_status lb_dim_floordiv(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
lb_status lb_dim_ceildiv(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
lb_status lb_dim_mod(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
lb_status lb_dim_min(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
lb_status lb_dim_max(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);
// a / b where b is known to divide a (Reshape's -1): exact on polynomials
// (6*batch*seq / (2*seq) = 3*batch), otherwise a floordiv atom. Constants that
// leave a remainder are an error.
lb_status lb_dim_divexact(lb_symtab *t, lb_dim a, lb_dim b, lb_dim *out);

// Evaluates d for the symbol values `env` (one per symbol, by index). False: a
// symbol >= n_env, a negative size, division by zero, or overflow. The planner
// calls this for every size, also for those that have no value yet.
bool lb_dim_try_eval(lb_dim d, const int64_t *env, int n_env, int64_t *out);

// Whether `env` has values for all symbols of d; a negative one is unknown.
bool lb_dim_has_values(lb_dim d, const int64_t *env, int n_env);

// Properties that hold for all values of the symbols.
typedef struct lb_dim_range {
  int64_t multiple_of;  // >= 1; 0 for the constant 0
  int64_t at_least;     // INT64_MIN: unknown
  int64_t at_most;      // INT64_MAX: unknown
} lb_dim_range;
lb_dim_range lb_dim_known(lb_dim d);

// "batch", "2*seq+1", "floor(width/8)", "ceil((w+1)/n)", "min(a,b)", "a%3".
void lb_dim_print(lb_dim d, lb_strbuf *out);

#endif
