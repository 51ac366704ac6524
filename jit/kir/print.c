// kir/print.c -- Prints kernels as text that parse.c reads back to equal bytes.
//
//   kernel NAME local 1 1 1
//   %0 = param ptr.f32
//   %1 = const f32x16 0.5
//   %2 = load f32x16 %0 align 64
//   store %0 %2 align 64
#include <math.h>

#include "kir/kir.h"
#include "kir/num.h"
#include "kir/text.h"
#include "kir/type.h"

const char *const lb_kimm_words[] = {
    [LB_KI_NONE] = "",       [LB_KI_VALUE] = "",      [LB_KI_SLOT] = "slot",
    [LB_KI_LANE] = "lane",   [LB_KI_TABLE] = "",      [LB_KI_DISP] = "disp",
    [LB_KI_ALIGN] = "align", [LB_KI_LEVEL] = "level", [LB_KI_COUNT] = "count",
};

const char *lb_kptr_word(unsigned flags) {
  static const char *const words[] = {"ptr", "shared", "cptr", "cshared"};
  return words[flags >> 1 & 3];
}

void lb_ktype_print(lb_ktype t, lb_strbuf *out) {
  const char *dtype = lb_kdtype_text(t.dtype);
  if (!dtype) dtype = "none";
  if (lb_ktype_is_ptr(t))
    lb_strbuf_printf(out, "%s.%s", lb_kptr_word(t.flags), dtype);
  else if (t.lanes == 1)
    lb_strbuf_puts(out, dtype);
  else
    lb_strbuf_printf(out, "%sx%u", dtype, t.lanes);
}

// NaNs are printed as bits, to preserve them.
static void print_value(const lb_kinst *in, lb_strbuf *out) {
  uint64_t bits = (uint64_t)in->imm;
  double x = lb_knum_float(in->dtype, bits);
  if (in->dtype == LB_BOOL)
    lb_strbuf_puts(out, bits ? " true" : " false");
  else if (!lb_dtype_is_float(in->dtype) && lb_dtype_is_signed(in->dtype))
    lb_strbuf_printf(out, " %lld", (long long)lb_kconst_int(in));
  else if (!lb_dtype_is_float(in->dtype))
    lb_strbuf_printf(out, " %llu", (unsigned long long)bits);
  else if (isnan(x))
    lb_strbuf_printf(out, " 0x%llx", (unsigned long long)bits);
  else
    lb_strbuf_printf(out, " %.*g", in->dtype == LB_F64 ? 17 : 9, x);
}

static void print_table(const lb_kernel *k, const lb_kinst *in,
                        lb_strbuf *out) {
  const uint8_t *table = lb_kernel_table(k, in);
  for (uint32_t i = 0; i < in->lanes; i++)
    lb_strbuf_printf(out, "%s%u", i ? " " : " [", table[i]);
  lb_strbuf_puts(out, "]");
}

static void print_imm(const lb_kernel *k, const lb_kinst *in, lb_strbuf *out) {
  uint8_t kind = lb_kop_infos[in->op].imm;
  if (kind == LB_KI_VALUE)
    print_value(in, out);
  else if (kind == LB_KI_TABLE)
    print_table(k, in, out);
  else if (in->imm)
    lb_strbuf_printf(out, " %s %lld", lb_kimm_words[kind], (long long)in->imm);
}

void lb_kernel_print_inst(const lb_kernel *k, uint32_t i, lb_strbuf *out) {
  const lb_kinst *in = &k->insts[i];
  if (in->dtype) lb_strbuf_printf(out, "%%%u = ", i);
  lb_strbuf_puts(out, lb_kop_infos[in->op].text);
  if (in->dtype) {
    lb_strbuf_putc(out, ' ');
    lb_ktype_print(lb_ktype_of(in), out);
  }
  for (uint32_t s = 0; s < in->n_src; s++)
    lb_strbuf_printf(out, " %%%u", k->pool[in->src + s]);
  print_imm(k, in, out);
  if (in->axis) lb_strbuf_printf(out, " axis %u", in->axis);
  if (in->flags & LB_K_STREAM) lb_strbuf_puts(out, " stream");
}

void lb_kernel_print(const lb_kernel *k, lb_strbuf *out) {
  lb_strbuf_printf(out, "kernel %s local %u %u %u\n", k->name, k->local[0],
                   k->local[1], k->local[2]);
  int depth = 0;
  for (uint32_t i = 0; i < k->n_insts; i++) {
    uint8_t op = k->insts[i].op;
    int shown = depth - (op == LB_K_END || op == LB_K_ELSE);
    for (int d = 0; d < shown; d++) lb_strbuf_puts(out, "  ");
    lb_kernel_print_inst(k, i, out);
    lb_strbuf_putc(out, '\n');
    depth += (op == LB_K_LOOP || op == LB_K_IF) - (op == LB_K_END);
  }
}
