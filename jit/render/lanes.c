// render/lanes.c -- Lane-wise operations: a table of LLVM opcodes and
// intrinsics, and functions for operations that need more than one.
#include "render/lanes.h"

#include <assert.h>
#include <string.h>

#include "render/math.h"

lb_elem lb_elem_of(lb_dtype t) {
  static const uint8_t elems[LB_DTYPE_COUNT] = {
      [LB_F32] = LB_E_F32,  [LB_F64] = LB_E_F64, [LB_F16] = LB_E_I16,
      [LB_BF16] = LB_E_I16, [LB_I8] = LB_E_I8,   [LB_I16] = LB_E_I16,
      [LB_I32] = LB_E_I32,  [LB_I64] = LB_E_I64, [LB_U8] = LB_E_I8,
      [LB_U16] = LB_E_I16,  [LB_U32] = LB_E_I32, [LB_U64] = LB_E_I64,
      [LB_BOOL] = LB_E_I1,
  };
  return (lb_elem)elems[t];
}

// -- single instructions -----------------------------------------------------

// NULL: see the functions below. Bools are unsigned.
static const struct {
  const char *of_float, *of_signed, *of_unsigned;
} llvm_ops[LB_K_COUNT] = {
    [LB_K_ADD] = {"fadd", "add", "add"},
    [LB_K_SUB] = {"fsub", "sub", "sub"},
    [LB_K_MUL] = {"fmul", "mul", "mul"},
    [LB_K_DIV] = {"fdiv", NULL, NULL},
    [LB_K_MIN] = {NULL, "llvm.smin", "llvm.umin"},
    [LB_K_MAX] = {NULL, "llvm.smax", "llvm.umax"},
    [LB_K_ABS] = {"llvm.fabs", NULL, NULL},
    [LB_K_AND] = {NULL, "and", "and"},
    [LB_K_OR] = {NULL, "or", "or"},
    [LB_K_XOR] = {NULL, "xor", "xor"},
    [LB_K_EQ] = {"fcmp oeq", "icmp eq", "icmp eq"},
    [LB_K_NE] = {"fcmp une", "icmp ne", "icmp ne"},
    [LB_K_LT] = {"fcmp olt", "icmp slt", "icmp ult"},
    [LB_K_LE] = {"fcmp ole", "icmp sle", "icmp ule"},
    [LB_K_SQRT] = {"llvm.sqrt", NULL, NULL},
    [LB_K_FLOOR] = {"llvm.floor", NULL, NULL},
    [LB_K_CEIL] = {"llvm.ceil", NULL, NULL},
    [LB_K_ROUND] = {"llvm.roundeven", NULL, NULL},
    [LB_K_TRUNC] = {"llvm.trunc", NULL, NULL},
};

static const char *op_name(lb_kop op, lb_dtype t) {
  if (lb_dtype_is_float(t)) return llvm_ops[op].of_float;
  return lb_dtype_is_signed(t) ? llvm_ops[op].of_signed
                               : llvm_ops[op].of_unsigned;
}

static lb_lv by_name(lb_em *e, lb_kop op, const char *name, const lb_lv *x) {
  if (strncmp(name, "llvm.", 5) == 0)
    return lb_em_intrinsic(e, name, x, lb_kop_infos[op].min_src);
  if (strstr(name, "cmp ")) return lb_em_compare(e, name, x[0], x[1]);
  return lb_em_binary(e, name, x[0], x[1]);
}

// -- floats ------------------------------------------------------------------

// x < y ? x : y is one instruction (minps), which gives y if either is NaN. If
// x is NaN, all bits are set, which is NaN, too. Selecting x itself instead
// would make LLVM merge both selects by their comparisons and lose that
// instruction.
static lb_lv min_or_max(lb_em *e, const char *cmp, const lb_lv *x) {
  lb_lt type = x[0].type, ti = int_of(type);
  lb_lv m = sel(e, lb_em_compare(e, cmp, x[0], x[1]), x[0], x[1]);
  lb_lv lost = lb_em_compare(e, "fcmp uno", x[0], x[0]);
  lb_lv bits = lb_em_bits(ti, UINT64_MAX);
  m = sel(e, lost, bits, lb_em_bitcast(e, m, ti));
  return lb_em_bitcast(e, m, type);
}

static lb_lv of_float(lb_em *e, lb_kop op, const lb_lv *x) {
  switch (op) {
    case LB_K_MIN: return min_or_max(e, "fcmp olt", x);
    case LB_K_MAX: return min_or_max(e, "fcmp ogt", x);
    case LB_K_NEG: return lb_em_fneg(e, x[0]);
    case LB_K_FMA: return mad(e, x[0], x[1], x[2]);
    case LB_K_RSQRT: return over(e, num(x[0].type, 1), root(e, x[0]));
    default: return lb_math_call(e, op, x, lb_kop_infos[op].min_src);
  }
}

// -- float16 and bfloat16 ----------------------------------------------------

// The product is exact in double; the sum is rounded to odd, so that rounding
// it again gives the rounding of the exact sum.
static lb_lv fma_16bit(lb_em *e, lb_dtype t, const lb_lv *x) {
  lb_lv v[3];
  for (int i = 0; i < 3; i++)
    v[i] = lb_em_convert(e, "fpext", lb_lanes_to_f32(e, x[i], t), LB_E_F64);
  lb_lt wide = v[0].type, ti = int_of(wide);
  lb_lv p = times(e, v[0], v[1]), s = plus(e, p, v[2]);
  lb_lv d = minus(e, s, p);
  lb_lv lost = plus(e, minus(e, p, minus(e, s, d)), minus(e, v[2], d));
  lb_lv zero = num(wide, 0), bits = lb_em_bitcast(e, s, ti);
  lb_lv away =
      lb_em_compare(e, "icmp eq", below(e, zero, lost), below(e, zero, s));
  lb_lv next = iadd(
      e, bits, sel(e, away, lb_em_bits(ti, 1), lb_em_bits(ti, UINT64_MAX)));
  lb_lv even = lb_em_compare(e, "icmp eq", iand(e, bits, lb_em_bits(ti, 1)),
                             lb_em_bits(ti, 0));
  lb_lv inexact = lb_em_compare(e, "fcmp one", lost, zero);
  lb_lv odd = sel(e, iand(e, inexact, even), next, bits);
  lb_lv r = lb_lanes_round_to_odd(e, lb_em_bitcast(e, odd, wide));
  return lb_lanes_from_f32(e, r, t);
}

// Computed in float and rounded again: float has more than twice the mantissa
// bits.
static lb_lv of_16bit_float(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x) {
  lb_lv v[3];
  switch (op) {
    case LB_K_NEG: return ixor(e, x[0], lb_em_bits(x[0].type, 0x8000));
    case LB_K_ABS: return iand(e, x[0], lb_em_bits(x[0].type, 0x7fff));
    case LB_K_FMA: return fma_16bit(e, t, x);
    default: break;
  }
  for (unsigned i = 0; i < lb_kop_infos[op].min_src; i++)
    v[i] = lb_lanes_to_f32(e, x[i], t);
  lb_lv r = lb_lanes(e, op, LB_F32, v);
  return r.type.elem == LB_E_I1 ? r : lb_lanes_from_f32(e, r, t);
}

// -- integers ----------------------------------------------------------------

static lb_lv is(lb_em *e, lb_lv x, uint64_t bits) {
  return lb_em_compare(e, "icmp eq", x, lb_em_bits(x.type, bits));
}

// A positive constant: neither 0 nor -1. This is the common case.
static bool is_safe_divisor(lb_lv x) {
  uint64_t sign = UINT64_C(1) << (lb_elem_bits(x.type.elem) - 1);
  return x.kind == LB_L_CONST && x.bits && x.bits < sign;
}

// Division by 0, and of the minimum by -1, is undefined in LLVM.
static lb_lv quotient(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x) {
  static const char *const ops[2][2] = {{"udiv", "urem"}, {"sdiv", "srem"}};
  bool rem = op == LB_K_REM, sign = lb_dtype_is_signed(t);
  if (is_safe_divisor(x[1])) return lb_em_binary(e, ops[sign][rem], x[0], x[1]);
  lb_lv zero = lb_em_bits(x[0].type, 0), none = is(e, x[1], 0);
  lb_lv one = lb_em_bits(x[0].type, 1), flip = is(e, x[1], UINT64_MAX);
  lb_lv y = sel(e, none, one, x[1]);
  if (sign) y = sel(e, flip, one, y);
  lb_lv r = lb_em_binary(e, ops[sign][rem], x[0], y);
  if (sign && !rem) r = sel(e, flip, isub(e, zero, x[0]), r);
  return rem ? r : sel(e, none, zero, r);
}

static lb_lv shifted(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x) {
  lb_lt type = x[0].type;
  uint32_t width = lb_elem_bits(type.elem);
  if (op == LB_K_SHR && lb_dtype_is_signed(t)) {
    lb_lv max_shift = lb_em_bits(type, width - 1);
    lb_lv by = lb_em_intrinsic(e, "llvm.umin", (lb_lv[]){x[1], max_shift}, 2);
    return lb_em_binary(e, "ashr", x[0], by);
  }
  lb_lv r = lb_em_binary(e, op == LB_K_SHL ? "shl" : "lshr", x[0], x[1]);
  lb_lv in_range = lb_em_compare(e, "icmp ult", x[1], lb_em_bits(type, width));
  return sel(e, in_range, r, lb_em_bits(type, 0));
}

static lb_lv of_bits(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x) {
  lb_lt type = x[0].type;
  switch (op) {
    case LB_K_DIV:
    case LB_K_REM: return quotient(e, op, t, x);
    case LB_K_NEG: return isub(e, lb_em_bits(type, 0), x[0]);
    case LB_K_NOT: return ixor(e, x[0], lb_em_bits(type, UINT64_MAX));
    case LB_K_ABS: {
      if (!lb_dtype_is_signed(t)) return x[0];
      lb_lv wraps = lb_em_bits(lt(LB_E_I1, 1), 0);
      return lb_em_intrinsic(e, "llvm.abs", (lb_lv[]){x[0], wraps}, 2);
    }
    default: assert(op == LB_K_SHL || op == LB_K_SHR);
  }
  return shifted(e, op, t, x);
}

lb_lv lb_lanes(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x) {
  if (op == LB_K_SELECT) return sel(e, x[0], x[1], x[2]);
  if (t == LB_F16 || t == LB_BF16) return of_16bit_float(e, op, t, x);
  const char *name = op_name(op, t);
  if (name) return by_name(e, op, name, x);
  return lb_dtype_is_float(t) ? of_float(e, op, x) : of_bits(e, op, t, x);
}

// -- int8 dot products -------------------------------------------------------

// Byte j of each 32-bit lane.
static lb_lv byte_of(lb_em *e, lb_lv x, unsigned j, bool sign) {
  lb_lv up = j < 3 ? ishl(e, x, 24 - 8 * j) : x;
  return lb_em_binary(e, sign ? "ashr" : "lshr", up, lb_em_bits(x.type, 24));
}

static lb_lv dot4_plain(lb_em *e, lb_lv acc, lb_lv a, lb_lv b, bool sign_a,
                        bool sign_b) {
  for (unsigned j = 0; j < 4; j++) {
    lb_lv x = byte_of(e, a, j, sign_a), y = byte_of(e, b, j, sign_b);
    acc = iadd(e, acc, lb_em_binary(e, "mul", x, y));
  }
  return acc;
}

// The even or odd bytes as int16.
static lb_lv int16_of(lb_em *e, lb_lv x, bool odd, bool sign) {
  lb_lv eight = lb_em_bits(x.type, 8);
  if (sign && !odd) x = ishl(e, x, 8);
  if (sign || odd) return lb_em_binary(e, sign ? "ashr" : "lshr", x, eight);
  return iand(e, x, lb_em_bits(x.type, 0xff));
}

static const char *pmaddwd_name(uint32_t lanes) {
  if (lanes == 16) return "llvm.x86.avx512.pmaddw.d.512";
  if (lanes == 8) return "llvm.x86.avx2.pmadd.wd";
  return lanes == 4 ? "llvm.x86.sse2.pmadd.wd" : NULL;
}

// Two vpmaddwd, which multiply int16 and add adjacent products.
static lb_lv dot4_pmaddwd(lb_em *e, const char *name, const lb_lv *x,
                          bool sign_a, bool sign_b) {
  lb_lt t = x[0].type, wide = lt(LB_E_I16, 2 * (uint32_t)t.lanes);
  lb_lv acc = x[0], a = lb_em_bitcast(e, x[1], wide);
  lb_lv b = lb_em_bitcast(e, x[2], wide);
  for (int odd = 0; odd < 2; odd++) {
    lb_lv two[] = {int16_of(e, a, odd, sign_a), int16_of(e, b, odd, sign_b)};
    acc = iadd(e, acc, lb_em_call(e, name, t, two, 2));
  }
  return acc;
}

static const char *vpdpbusd_name(const lb_em *e, uint32_t lanes) {
  if (lb_target_has(&e->m->target, LB_FEATURE_AVX512VNNI)) {
    if (lanes == 16) return "llvm.x86.avx512.vpdpbusd.512";
    if (lanes == 8) return "llvm.x86.avx512.vpdpbusd.256";
    if (lanes == 4) return "llvm.x86.avx512.vpdpbusd.128";
  }
  if (lb_target_has(&e->m->target, LB_FEATURE_AVXVNNI)) {
    if (lanes == 8) return "llvm.x86.avx512.vpdpbusd.256";
    if (lanes == 4) return "llvm.x86.avx512.vpdpbusd.128";
  }
  return NULL;
}

// vpdpbusd multiplies unsigned by signed bytes. Signed operands become unsigned
// by adding 128, unsigned ones signed by subtracting 128; 128 times the sum of
// the other operand compensates.
static lb_lv dot4_vpdpbusd(lb_em *e, const char *name, const lb_lv *x,
                           bool sign_a, bool sign_b) {
  lb_lt t = x[0].type;
  lb_lv acc = x[0], a = x[1], b = x[2], zero = lb_em_bits(t, 0);
  lb_lv top = lb_em_bits(t, 0x80808080);
  if (sign_a && !sign_b)
    return dot4_vpdpbusd(e, name, (lb_lv[]){acc, b, a}, 0, 1);
  if (sign_a) {
    lb_lv more = lb_em_call(e, name, t, (lb_lv[]){zero, top, b}, 3);
    acc = isub(e, acc, more);
    a = ixor(e, a, top);
  }
  if (!sign_b) {
    lb_lv ones = lb_em_bits(t, 0x01010101);
    lb_lv sum = lb_em_call(e, name, t, (lb_lv[]){zero, a, ones}, 3);
    acc = iadd(e, acc, ishl(e, sum, 7));
    b = ixor(e, b, top);
  }
  return lb_em_call(e, name, t, (lb_lv[]){acc, a, b}, 3);
}

lb_lv lb_lanes_dot4(lb_em *e, const lb_lv *x, lb_dtype a, lb_dtype b) {
  lb_lt t = x[0].type;
  lb_lv v[] = {x[0], lb_em_bitcast(e, x[1], t), lb_em_bitcast(e, x[2], t)};
  const char *name = vpdpbusd_name(e, t.lanes);
  if (name) return dot4_vpdpbusd(e, name, v, a == LB_I8, b == LB_I8);
  name = pmaddwd_name(t.lanes);
  if (name && (t.lanes < 16 || e->m->target.level >= LB_LEVEL_V4))
    return dot4_pmaddwd(e, name, v, a == LB_I8, b == LB_I8);
  return dot4_plain(e, v[0], v[1], v[2], a == LB_I8, b == LB_I8);
}
