// render/math.c -- Parts shared by the mathematical functions, and how kernels
// call them.
#include "render/math.h"

#include <assert.h>
#include <string.h>

// -- shared parts ------------------------------------------------------------

lb_lv lb_math_poly(lb_em *e, lb_lv x, const double *c, unsigned n) {
  lb_lv r = num(x.type, c[n - 1]);
  for (unsigned i = n - 1; i-- > 0;) r = mad(e, r, x, num(x.type, c[i]));
  return r;
}

static bool is_wide(lb_lt t) { return t.elem == LB_E_F64; }

// A number so large that its last bit has the value 1.
static lb_lv magic(lb_lt t) { return num(t, is_wide(t) ? 0x1.8p52 : 0x1.8p23); }

lb_lv lb_math_round(lb_em *e, lb_lv n, lb_lv *integer) {
  lb_lt t = n.type, ti = int_of(t);
  lb_lv big = plus(e, n, magic(t));
  *integer = isub(e, lb_em_bitcast(e, big, ti), lb_em_bits(ti, magic(t).bits));
  return minus(e, big, magic(t));
}

lb_lv lb_math_float(lb_em *e, lb_lv integer) {
  lb_lt t = float_of(integer.type);
  lb_lv bits = iadd(e, integer, lb_em_bits(integer.type, magic(t).bits));
  return minus(e, lb_em_bitcast(e, bits, t), magic(t));
}

lb_lv lb_math_pow2(lb_em *e, lb_lv n) {
  lb_lt t = float_of(n.type);
  lb_lv biased = iadd(e, n, lb_em_bits(n.type, is_wide(t) ? 1023 : 127));
  return lb_em_bitcast(e, ishl(e, biased, is_wide(t) ? 52 : 23), t);
}

// AVX-512 has one instruction for this (vscalef).
static bool has_scalef(const lb_em *e, lb_lt t) {
  uint32_t bits = t.lanes * lb_elem_bits(t.elem);
  return e->m->target.level >= LB_LEVEL_V4 &&
         (bits == 128 || bits == 256 || bits == 512);
}

static lb_lv scalef(lb_em *e, lb_lv x, lb_lv n) {
  lb_lt t = x.type;
  uint32_t bits = t.lanes * lb_elem_bits(t.elem);
  lb_strbuf name = {0};
  lb_strbuf_printf(&name, "llvm.x86.avx512.mask.scalef.%s.%u",
                   is_wide(t) ? "pd" : "ps", bits);
  lb_lt mask = lt(t.lanes == 16 ? LB_E_I16 : LB_E_I8, 1);
  lb_lv args[] = {x, n, num(t, 0), lb_em_bits(mask, UINT64_MAX),
                  lb_em_bits(lt(LB_E_I32, 1), 4)};  // 4: current rounding mode
  lb_lv v = lb_em_call(e, lb_strbuf_str(&name), t, args, bits == 512 ? 5 : 4);
  if (name.failed) e->out.failed = true;
  lb_strbuf_fini(&name);
  return v;
}

// 2^(i >> 4); i includes the bias.
static lb_lv pow2_of_half(lb_em *e, lb_lv i) {
  bool wide = i.type.elem == LB_E_I64;
  uint64_t exponent = wide ? UINT64_C(0xfff) << 52 : UINT64_C(0x1ff) << 23;
  i = iand(e, ishl(e, i, wide ? 48 : 19), lb_em_bits(i.type, exponent));
  return lb_em_bitcast(e, i, float_of(i.type));
}

// 2^n may not be a normal number, so it is the product of two powers. The last
// bit of the sum is 1/8: i >> 4 is half of floor(n), rounded down, and (i + 8)
// >> 4 is the other half.
lb_lv lb_math_scale(lb_em *e, lb_lv x, lb_lv n) {
  if (has_scalef(e, x.type)) return scalef(e, x, n);
  lb_lt t = x.type, ti = int_of(t);
  double big = is_wide(t) ? 0x1.8p49 + 2 * 1023 : 0x1.8p20 + 2 * 127;
  lb_lv i = lb_em_bitcast(e, plus(e, n, num(t, big)), ti);
  lb_lv half = pow2_of_half(e, i);
  lb_lv other_half = pow2_of_half(e, iadd(e, i, lb_em_bits(ti, 8)));
  return times(e, times(e, x, half), other_half);
}

lb_lv lb_math_clamp_max(lb_em *e, lb_lv x, double high) {
  lb_lv h = num(x.type, high);
  return sel(e, below(e, h, x), h, x);
}

lb_lv lb_math_clamp_min(lb_em *e, lb_lv x, double low) {
  lb_lv l = num(x.type, low);
  return sel(e, below(e, x, l), l, x);
}

// n lanes of x, then y, from lane `from` on; the last lane is repeated if
// needed.
static lb_lv take_lanes(lb_em *e, lb_lv x, lb_lv y, uint32_t from, uint32_t n) {
  uint8_t lanes[64];
  uint32_t last = (y.kind == LB_L_POISON ? 1u : 2u) * x.type.lanes - 1;
  for (uint32_t i = 0; i < n; i++)
    lanes[i] = (uint8_t)(from + i < last ? from + i : last);
  return lb_em_shuffle(e, x, y, lanes, n);
}

static lb_lv part(lb_em *e, lb_lv x, uint32_t from, uint32_t n) {
  return take_lanes(e, x, lb_em_poison(x.type), from, n);
}

// The permute instruction takes 8 lanes, or 16 with AVX-512.
lb_lv lb_math_lookup(lb_em *e, const lb_table *table, lb_lv index) {
  uint32_t lanes = index.type.lanes;
  uint32_t n = e->m->target.level >= LB_LEVEL_V4 && lanes > 8 ? 16 : 8;
  if (lanes == n) {
    lb_lt t = lt(LB_E_F32, n);
    const char *name =
        n == 16 ? "llvm.x86.avx512.permvar.sf.512" : "llvm.x86.avx2.permps";
    return lb_em_call(e, name, t, (lb_lv[]){lb_em_table(t, table), index}, 2);
  }
  if (lanes < n)
    return part(e, lb_math_lookup(e, table, part(e, index, 0, n)), 0, lanes);
  while (n < lanes - n) n *= 2;
  lb_lv low = lb_math_lookup(e, table, part(e, index, 0, n));
  lb_lv high = lb_math_lookup(e, table, part(e, index, n, n));
  return take_lanes(e, low, high, 0, lanes);
}

lb_lv lb_math_any(lb_em *e, lb_lv c) {
  if (c.type.lanes == 1) return c;
  lb_strbuf name = {0};
  lb_strbuf_puts(&name, "llvm.vector.reduce.or.");
  lb_em_mangle(&name, c.type);
  lb_lv v = lb_em_call(e, lb_strbuf_str(&name), lt(LB_E_I1, 1), &c, 1);
  if (name.failed) e->out.failed = true;
  lb_strbuf_fini(&name);
  return v;
}

// -- helpers -----------------------------------------------------------------

static lb_math_fn *const fns32[LB_K_COUNT] = {
#define X(ID, name) [LB_K_##ID] = lb_math32_##name,
    LB_MATH_BOTH(X)
#undef X
};
static lb_math_fn *const fns64[LB_K_COUNT] = {
#define X(ID, name) [LB_K_##ID] = lb_math64_##name,
    LB_MATH_BOTH(X) LB_MATH_WIDE(X)
#undef X
};

static lb_lv narrow(lb_em *e, lb_lv x) {
  return lb_em_convert(e, "fptrunc", x, LB_E_F32);
}

static lb_lv widen(lb_em *e, lb_lv x) {
  return lb_em_convert(e, "fpext", x, LB_E_F64);
}

static lb_lv body(lb_em *e, lb_kop op, const lb_lv *args) {
  lb_lv x = args[0];
  bool wide = is_wide(x.type);
  switch (op) {
    case LB_K_REM: return lb_math_fmod(e, x, args[1]);
    case LB_K_POW:
      if (wide) return lb_math64_pow(e, x, args[1], true);
      return narrow(e, lb_math64_pow(e, widen(e, x), widen(e, args[1]), false));
    default: break;
  }
  if (wide) return fns64[op](e, x);
  return fns32[op] ? fns32[op](e, x) : narrow(e, fns64[op](e, widen(e, x)));
}

// Writes the helper function `name` with n operands of type t.
static void define(lb_module *m, const char *name, lb_kop op, lb_lt t,
                   unsigned n) {
  lb_em e = {.m = m};
  lb_lv args[2];
  lb_strbuf *out = &m->funcs;
  for (unsigned i = 0; i < n; i++) args[i] = lb_em_new(&e, t);
  lb_lv v = body(&e, op, args);
  lb_strbuf_puts(out, "define internal ");
  lb_em_type(out, t);
  lb_strbuf_printf(out, " @%s(", name);
  for (unsigned i = 0; i < n; i++) {
    if (i) lb_strbuf_puts(out, ", ");
    lb_em_typed(out, args[i]);
  }
  lb_strbuf_puts(out, ") alwaysinline nounwind {\nb0:\n");
  lb_strbuf_puts(out, lb_strbuf_str(&e.out));
  lb_strbuf_puts(out, "  ret ");
  lb_em_typed(out, v);
  lb_strbuf_puts(out, "\n}\n");
  if (e.out.failed) out->failed = true;
  lb_strbuf_fini(&e.out);
}

lb_lv lb_math_call(lb_em *e, lb_kop op, const lb_lv *args, unsigned n) {
  lb_lt t = args[0].type;
  lb_strbuf name = {0}, key = {0};
  lb_strbuf_printf(&name, "lb.%s.", lb_kop_infos[op].text);
  lb_em_mangle(&name, t);
  lb_strbuf_printf(&key, " @%s(", lb_strbuf_str(&name));
  if (!strstr(lb_strbuf_str(&e->m->funcs), lb_strbuf_str(&key)))
    define(e->m, lb_strbuf_str(&name), op, t, n);
  lb_lv v = lb_em_call(e, lb_strbuf_str(&name), t, args, n);
  if (name.failed || key.failed) e->out.failed = true;
  lb_strbuf_fini(&name);
  lb_strbuf_fini(&key);
  return v;
}
