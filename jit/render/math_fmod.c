// render/math_fmod.c -- The exact remainder of floats, by long division.
//
// Mantissas are divided bit by bit, in a loop that runs until the lane with the
// largest quotient is done: slow for huge quotients, and always exact.
#include "render/math.h"

typedef struct fmod_parts {  // a number is mantissa * 2^exponent, times a
                             // constant
  lb_lv mantissa;  // its leading bit is where that of a normal number is
  lb_lv exponent;  // 1 for the smallest normal numbers
} fmod_parts;

typedef struct format {
  lb_lt t, ti;
  unsigned fraction;  // bits
  uint64_t exponents;
} format;

static format format_of(lb_lt t) {
  if (t.elem == LB_E_F64) return (format){t, int_of(t), 52, 0x7ff};
  return (format){t, int_of(t), 23, 0xff};
}

static lb_lv k(const format *f, uint64_t bits) {
  return lb_em_bits(f->ti, bits);
}

// Shifts the leading bit to its position; `exponent` belongs to u before the
// shift.
static fmod_parts normalise(lb_em *e, const format *f, lb_lv u,
                            lb_lv exponent) {
  lb_lv zero = lb_em_bits(lt(LB_E_I1, 1), 0);
  lb_lv n = lb_em_intrinsic(e, "llvm.ctlz", (lb_lv[]){u, zero}, 2);
  lb_lv by = isub(e, n, k(f, lb_elem_bits(f->t.elem) - 1 - f->fraction));
  // A 0 must not be shifted by its width.
  by = lb_em_intrinsic(e, "llvm.umin", (lb_lv[]){by, k(f, f->fraction)}, 2);
  return (fmod_parts){lb_em_binary(e, "shl", u, by), isub(e, exponent, by)};
}

static fmod_parts split(lb_em *e, const format *f, lb_lv bits) {
  uint64_t leading = UINT64_C(1) << f->fraction;
  lb_lv exponent = lb_em_binary(e, "lshr", bits, k(f, f->fraction));
  lb_lv fraction = iand(e, bits, k(f, leading - 1));
  lb_lv small = lb_em_compare(e, "icmp eq", exponent, k(f, 0));
  fmod_parts tiny = normalise(e, f, fraction, k(f, 1));
  return (fmod_parts){
      sel(e, small, tiny.mantissa, ior(e, fraction, k(f, leading))),
      sel(e, small, tiny.exponent, exponent)};
}

static lb_lv join(lb_em *e, const format *f, fmod_parts p) {
  lb_lv normal_bits =
      iadd(e, iand(e, p.mantissa, k(f, (UINT64_C(1) << f->fraction) - 1)),
           ishl(e, p.exponent, f->fraction));
  lb_lv low = lb_em_compare(e, "icmp slt", p.exponent, k(f, 1));
  lb_lv by = sel(e, low, isub(e, k(f, 1), p.exponent), k(f, 0));
  by = lb_em_intrinsic(e, "llvm.umin", (lb_lv[]){by, k(f, f->fraction + 1)}, 2);
  return sel(e, low, lb_em_binary(e, "lshr", p.mantissa, by), normal_bits);
}

// m - d where that is not negative, else m.
static lb_lv subtract_if_fits(lb_em *e, const format *f, lb_lv m, lb_lv d) {
  lb_lv left = isub(e, m, d);
  return sel(e, lb_em_compare(e, "icmp slt", left, k(f, 0)), m, left);
}

static lb_lv positive(lb_em *e, const format *f, lb_lv n) {
  return lb_em_compare(e, "icmp sgt", n, k(f, 0));
}

enum { ENTRY, LOOP, DONE };  // blocks

// The mantissa of x 2^n modulo y.
static lb_lv divide(lb_em *e, const format *f, lb_lv x, lb_lv y, lb_lv n) {
  lb_lv m = lb_em_new(e, f->ti), next_m = lb_em_new(e, f->ti);
  lb_lv left = lb_em_new(e, f->ti), next_left = lb_em_new(e, f->ti);
  lb_lv r = lb_em_new(e, f->ti);
  lb_em_branch(e, lb_math_any(e, positive(e, f, n)), LOOP, DONE);
  lb_em_label(e, LOOP);
  lb_em_phi(e, m, x, ENTRY, next_m, LOOP);
  lb_em_phi(e, left, n, ENTRY, next_left, LOOP);
  lb_lv on = positive(e, f, left);
  lb_em_define(e, next_m,
               sel(e, on, ishl(e, subtract_if_fits(e, f, m, y), 1), m));
  lb_em_define(e, next_left, isub(e, left, k(f, 1)));
  lb_em_branch(e, lb_math_any(e, positive(e, f, next_left)), LOOP, DONE);
  lb_em_label(e, DONE);
  lb_em_phi(e, r, x, ENTRY, next_m, LOOP);
  return subtract_if_fits(e, f, r, y);
}

lb_lv lb_math_fmod(lb_em *e, lb_lv x, lb_lv y) {
  format f = format_of(x.type);
  lb_lv inf = num(f.t, __builtin_inf());
  lb_lv ax = magnitude(e, x), ay = magnitude(e, y);
  fmod_parts p = split(e, &f, lb_em_bitcast(e, ax, f.ti));
  fmod_parts q = split(e, &f, lb_em_bitcast(e, ay, f.ti));
  lb_lv n = isub(e, p.exponent, q.exponent);
  lb_lv m = divide(e, &f, p.mantissa, q.mantissa, n);
  lb_lv r = lb_em_bitcast(e, join(e, &f, normalise(e, &f, m, q.exponent)), f.t);
  lb_lv zero = lb_em_compare(e, "icmp eq", m, k(&f, 0));
  r = sel(e, zero, num(f.t, 0), r);
  r = sel(e, below(e, ax, ay), ax, r);
  lb_lv valid = iand(e, below(e, num(f.t, 0), ay), below(e, ax, inf));
  r = sel(e, valid, with_sign(e, r, x), num(f.t, __builtin_nan("")));
  return sel(e, lb_em_compare(e, "fcmp uno", y, y), y, r);
}
