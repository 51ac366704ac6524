// render/cast.c -- Conversions between dtypes, each with one rounding.
//
// *Rounding to odd* records in the last bit whether anything was lost, so that
// a second, narrower rounding gives the same result as one rounding alone.
#include "render/lanes.h"

static bool is_16bit_float(lb_dtype t) { return t == LB_F16 || t == LB_BF16; }

static lb_lv ibits(lb_lv like, uint64_t bits) {
  return lb_em_bits(like.type, bits);
}

// -- float16, bfloat16 and wider floats --------------------------------------

lb_lv lb_lanes_to_f32(lb_em *e, lb_lv x, lb_dtype from) {
  if (from == LB_F16) {
    lb_lv half = lb_em_bitcast(e, x, with_elem(x.type, LB_E_HALF));
    return lb_em_convert(e, "fpext", half, LB_E_F32);
  }
  lb_lv wide = ishl(e, lb_em_convert(e, "zext", x, LB_E_I32), 16);
  return lb_em_bitcast(e, wide, with_elem(x.type, LB_E_F32));
}

static lb_lv to_bf16(lb_em *e, lb_lv x) {
  lb_lv u = lb_em_bitcast(e, x, int_of(x.type));
  lb_lv top = lb_em_binary(e, "lshr", u, ibits(u, 16));
  lb_lv odd = iand(e, top, ibits(u, 1));
  lb_lv rounded = iadd(e, u, iadd(e, odd, ibits(u, 0x7fff)));
  rounded = lb_em_binary(e, "lshr", rounded, ibits(u, 16));
  lb_lv nan = lb_em_compare(e, "fcmp uno", x, x);
  lb_lv r = sel(e, nan, ior(e, top, ibits(u, 0x40)), rounded);
  return lb_em_convert(e, "trunc", r, LB_E_I16);
}

lb_lv lb_lanes_from_f32(lb_em *e, lb_lv x, lb_dtype to) {
  if (to == LB_BF16) return to_bf16(e, x);
  lb_lv half = lb_em_convert(e, "fptrunc", x, LB_E_HALF);
  return lb_em_bitcast(e, half, with_elem(x.type, LB_E_I16));
}

lb_lv lb_lanes_round_to_odd(lb_em *e, lb_lv x) {
  lb_lv f = lb_em_convert(e, "fptrunc", x, LB_E_F32);
  lb_lv back = lb_em_convert(e, "fpext", f, LB_E_F64);
  lb_lv inf = num(f.type, __builtin_inf());
  lb_lv lost = iand(e, lb_em_compare(e, "fcmp one", back, x),
                    below(e, magnitude(e, f), inf));
  lb_lv above = below(e, magnitude(e, x), magnitude(e, back));
  lb_lv u = lb_em_bitcast(e, f, int_of(f.type));
  lb_lv down = isub(e, u, lb_em_convert(e, "zext", above, LB_E_I32));
  lb_lv odd = sel(e, lost, ior(e, down, ibits(u, 1)), u);
  return lb_em_bitcast(e, odd, f.type);
}

static lb_lv float_to_float(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to) {
  if (is_16bit_float(from)) x = lb_lanes_to_f32(e, x, from);
  bool wide = x.type.elem == LB_E_F64;
  if (is_16bit_float(to))
    return lb_lanes_from_f32(e, wide ? lb_lanes_round_to_odd(e, x) : x, to);
  if (wide == (to == LB_F64)) return x;
  return lb_em_convert(e, wide ? "fptrunc" : "fpext", x, lb_elem_of(to));
}

// -- floats to integers ------------------------------------------------------

// Out-of-range conversions are undefined in LLVM; here they give the minimum.
static lb_lv to_int(lb_em *e, lb_lv x, lb_elem to) {
  double end = to == LB_E_I32 ? 0x1p31 : 0x1p63;
  bool exact = to == LB_E_I64 || x.type.elem == LB_E_F32;
  lb_lv low = num(x.type, exact ? -end : -end - 1);
  lb_lv fits =
      iand(e, lb_em_compare(e, exact ? "fcmp oge" : "fcmp ogt", x, low),
           below(e, x, num(x.type, end)));
  return lb_em_convert(e, "fptosi", sel(e, fits, x, num(x.type, -end)), to);
}

static lb_lv to_u64(lb_em *e, lb_lv x) {
  lb_lv half = num(x.type, 0x1p63);
  lb_lv big = lb_em_compare(e, "fcmp oge", x, half);
  lb_lv r = to_int(e, sel(e, big, minus(e, x, half), x), LB_E_I64);
  lb_lv top = ixor(e, r, ibits(r, UINT64_C(1) << 63));
  return sel(e, big, top, r);
}

static lb_lv float_to_int(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to) {
  if (is_16bit_float(from)) x = lb_lanes_to_f32(e, x, from);
  switch (to) {
    case LB_U64: return to_u64(e, x);
    case LB_I64: return to_int(e, x, LB_E_I64);
    case LB_I32: return to_int(e, x, LB_E_I32);
    case LB_U32:
      return lb_em_convert(e, "trunc", to_int(e, x, LB_E_I64), LB_E_I32);
    default:
      return lb_em_convert(e, "trunc", to_int(e, x, LB_E_I32), lb_elem_of(to));
  }
}

// -- integers to floats ------------------------------------------------------

// An unsigned integer, rounded to odd if a double cannot represent it.
static lb_lv odd_integer(lb_em *e, lb_lv x) {
  lb_lv zero = ibits(x, 0), low = iand(e, x, ibits(x, 0x7ff));
  lb_lv inexact = lb_em_compare(e, "icmp ne", low, zero);
  lb_lv rounded_down = iand(e, x, ibits(x, ~UINT64_C(0x7ff)));
  rounded_down = ior(e, rounded_down, sel(e, inexact, ibits(x, 0x800), zero));
  lb_lv top = lb_em_binary(e, "lshr", x, ibits(x, 53));
  return sel(e, lb_em_compare(e, "icmp ne", top, zero), rounded_down, x);
}

static lb_lv wide_to_double(lb_em *e, lb_lv x, bool sign) {
  if (!sign) return lb_em_convert(e, "uitofp", odd_integer(e, x), LB_E_F64);
  lb_lv negative = lb_em_compare(e, "icmp slt", x, ibits(x, 0));
  lb_lv wraps = lb_em_bits(lt(LB_E_I1, 1), 0);
  lb_lv a = lb_em_intrinsic(e, "llvm.abs", (lb_lv[]){x, wraps}, 2);
  lb_lv d = lb_em_convert(e, "uitofp", odd_integer(e, a), LB_E_F64);
  return sel(e, negative, lb_em_fneg(e, d), d);
}

static lb_lv int_to_float(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to) {
  bool sign = lb_dtype_is_signed(from);
  const char *op = sign ? "sitofp" : "uitofp";
  if (!is_16bit_float(to)) return lb_em_convert(e, op, x, lb_elem_of(to));
  switch (lb_dtype_size(from)) {
    case 8:
      return lb_lanes_from_f32(
          e, lb_lanes_round_to_odd(e, wide_to_double(e, x, sign)), to);
    case 4: {
      lb_lv d = lb_em_convert(e, op, x, LB_E_F64);
      return lb_lanes_from_f32(e, lb_lanes_round_to_odd(e, d), to);
    }
    default: return lb_lanes_from_f32(e, lb_em_convert(e, op, x, LB_E_F32), to);
  }
}

// -- bool and integers -------------------------------------------------------

static lb_lv from_bool(lb_em *e, lb_lv x, lb_dtype to) {
  lb_elem elem = lb_elem_of(to);
  if (is_16bit_float(to)) {
    lb_lt t = with_elem(x.type, elem);
    uint64_t one = to == LB_F16 ? 0x3c00 : 0x3f80;
    return sel(e, x, lb_em_bits(t, one), lb_em_bits(t, 0));
  }
  return lb_em_convert(e, lb_dtype_is_float(to) ? "uitofp" : "zext", x, elem);
}

static lb_lv to_bool(lb_em *e, lb_lv x, lb_dtype from) {
  if (is_16bit_float(from)) x = lb_lanes_to_f32(e, x, from);
  bool number = lb_dtype_is_float(from);
  return lb_em_compare(e, number ? "fcmp une" : "icmp ne", x, ibits(x, 0));
}

static lb_lv int_to_int(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to) {
  size_t old = lb_dtype_size(from), new = lb_dtype_size(to);
  if (old == new) return x;
  const char *op = old > new                  ? "trunc"
                   : lb_dtype_is_signed(from) ? "sext"
                                              : "zext";
  return lb_em_convert(e, op, x, lb_elem_of(to));
}

lb_lv lb_lanes_cast(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to) {
  if (from == to) return x;
  if (from == LB_BOOL) return from_bool(e, x, to);
  if (to == LB_BOOL) return to_bool(e, x, from);
  if (!lb_dtype_is_float(from))
    return lb_dtype_is_float(to) ? int_to_float(e, x, from, to)
                                 : int_to_int(e, x, from, to);
  return lb_dtype_is_float(to) ? float_to_float(e, x, from, to)
                               : float_to_int(e, x, from, to);
}
