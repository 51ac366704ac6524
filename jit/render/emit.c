// render/emit.c -- Writes LLVM IR, one instruction per line.
#include "render/emit.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const struct {
  const char *text, *mangled;
  uint32_t bits;
} elems[] = {
    [LB_E_I1] = {"i1", "i1", 1},       [LB_E_I8] = {"i8", "i8", 8},
    [LB_E_I16] = {"i16", "i16", 16},   [LB_E_I32] = {"i32", "i32", 32},
    [LB_E_I64] = {"i64", "i64", 64},   [LB_E_HALF] = {"half", "f16", 16},
    [LB_E_F32] = {"float", "f32", 32}, [LB_E_F64] = {"double", "f64", 64},
    [LB_E_PTR] = {"ptr", "p0", 64},    [LB_E_VOID] = {"void", "isVoid", 0},
};

#define INVARIANT "!0"  // for !invariant.load
#define STREAM "!1"     // for !nontemporal
#define UNLIKELY "!2"   // for !prof

const char lb_em_metadata[] =
    INVARIANT " = !{}\n" STREAM " = !{i32 1}\n" UNLIKELY
              " = !{!\"branch_weights\", i32 1, i32 2000}\n";

// -- printing ----------------------------------------------------------------

uint32_t lb_elem_bits(lb_elem e) { return elems[e].bits; }

static bool same_type(lb_lt a, lb_lt b) {
  return a.elem == b.elem && a.lanes == b.lanes;
}

void lb_em_type(lb_strbuf *out, lb_lt t) {
  if (t.lanes == 1)
    lb_strbuf_puts(out, elems[t.elem].text);
  else
    lb_strbuf_printf(out, "<%d x %s>", t.lanes, elems[t.elem].text);
}

void lb_em_mangle(lb_strbuf *out, lb_lt t) {
  if (t.lanes > 1) lb_strbuf_printf(out, "v%d", t.lanes);
  lb_strbuf_puts(out, elems[t.elem].mangled);
}

// Floats are always written as the bits of a double.
static void put_lane(lb_strbuf *out, lb_elem elem, uint64_t bits) {
  if (elem == LB_E_F32) {
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof f);
    double d = (double)f;
    memcpy(&bits, &d, sizeof bits);
  }
  if (elem == LB_E_F32 || elem == LB_E_F64)
    lb_strbuf_printf(out, "0x%016" PRIX64, bits);
  else if (elem == LB_E_PTR)
    lb_strbuf_puts(out, "null");
  else if (elem == LB_E_I1)
    lb_strbuf_puts(out, bits & 1 ? "true" : "false");
  else
    lb_strbuf_printf(out, "%" PRIu64, bits);
}

static void put_iota(lb_strbuf *out, lb_lt t) {
  for (unsigned i = 0; i < t.lanes; i++)
    lb_strbuf_printf(out, "%s%s %u", i ? ", " : "<", elems[t.elem].text, i);
  lb_strbuf_putc(out, '>');
}

static void put_table(lb_strbuf *out, lb_lv v) {
  const lb_table *table = (const lb_table *)(uintptr_t)v.bits;
  for (unsigned i = 0; i < v.type.lanes; i++) {
    lb_strbuf_printf(out, "%s%s ", i ? ", " : "<", elems[v.type.elem].text);
    lb_lt t = lt(v.type.elem, 1);
    lb_em_value(out, lb_em_num(t, (*table)[i % LB_TABLE]));
  }
  lb_strbuf_putc(out, '>');
}

void lb_em_value(lb_strbuf *out, lb_lv v) {
  switch ((lb_lkind)v.kind) {
    case LB_L_TEMP: lb_strbuf_printf(out, "%%t%" PRIu64, v.bits); return;
    case LB_L_POISON: lb_strbuf_puts(out, "poison"); return;
    case LB_L_IOTA: put_iota(out, v.type); return;
    case LB_L_TABLE: put_table(out, v); return;
    case LB_L_CONST: break;
  }
  if (v.type.lanes == 1) {
    put_lane(out, v.type.elem, v.bits);
    return;
  }
  lb_strbuf_printf(out, "splat (%s ", elems[v.type.elem].text);
  put_lane(out, v.type.elem, v.bits);
  lb_strbuf_putc(out, ')');
}

void lb_em_typed(lb_strbuf *out, lb_lv v) {
  lb_em_type(out, v.type);
  lb_strbuf_putc(out, ' ');
  lb_em_value(out, v);
}

// -- values ------------------------------------------------------------------

lb_lv lb_em_new(lb_em *e, lb_lt t) {
  return (lb_lv){t, LB_L_TEMP, e->n_temps++};
}

lb_lv lb_em_bits(lb_lt t, uint64_t bits) {
  uint32_t n = elems[t.elem].bits;
  if (n < 64) bits &= (UINT64_C(1) << n) - 1;
  return (lb_lv){t, LB_L_CONST, bits};
}

lb_lv lb_em_num(lb_lt t, double x) {
  assert(t.elem == LB_E_F32 || t.elem == LB_E_F64);
  uint64_t bits = 0;
  if (t.elem == LB_E_F64) {
    memcpy(&bits, &x, sizeof x);
  } else {
    float f = (float)x;
    memcpy(&bits, &f, sizeof f);
  }
  return lb_em_bits(t, bits);
}

lb_lv lb_em_table(lb_lt t, const lb_table *table) {
  return (lb_lv){t, LB_L_TABLE, (uint64_t)(uintptr_t)table};
}

lb_lv lb_em_poison(lb_lt t) { return (lb_lv){t, LB_L_POISON, 0}; }

// -- instructions ------------------------------------------------------------

// "  %t9 = op ": the start of every instruction with a result.
static lb_lv begin_inst(lb_em *e, lb_lt t, const char *op) {
  lb_lv v = lb_em_new(e, t);
  lb_strbuf_puts(&e->out, "  ");
  lb_em_value(&e->out, v);
  lb_strbuf_printf(&e->out, " = %s ", op);
  return v;
}

static void comma(lb_em *e) { lb_strbuf_puts(&e->out, ", "); }
static void end_line(lb_em *e) { lb_strbuf_putc(&e->out, '\n'); }

static lb_lv binary_op(lb_em *e, const char *op, lb_lt t, lb_lv x, lb_lv y) {
  assert(same_type(x.type, y.type));
  lb_lv v = begin_inst(e, t, op);
  lb_em_typed(&e->out, x);
  comma(e);
  lb_em_value(&e->out, y);
  end_line(e);
  return v;
}

lb_lv lb_em_binary(lb_em *e, const char *op, lb_lv x, lb_lv y) {
  return binary_op(e, op, x.type, x, y);
}

lb_lv lb_em_compare(lb_em *e, const char *op, lb_lv x, lb_lv y) {
  return binary_op(e, op, with_elem(x.type, LB_E_I1), x, y);
}

static lb_lv to_type(lb_em *e, const char *op, lb_lv x, lb_lt to) {
  lb_lv v = begin_inst(e, to, op);
  lb_em_typed(&e->out, x);
  lb_strbuf_puts(&e->out, " to ");
  lb_em_type(&e->out, to);
  end_line(e);
  return v;
}

lb_lv lb_em_convert(lb_em *e, const char *op, lb_lv x, lb_elem to) {
  return to_type(e, op, x, with_elem(x.type, to));
}

lb_lv lb_em_bitcast(lb_em *e, lb_lv x, lb_lt to) {
  return same_type(x.type, to) ? x : to_type(e, "bitcast", x, to);
}

lb_lv lb_em_fneg(lb_em *e, lb_lv x) {
  lb_lv v = begin_inst(e, x.type, "fneg");
  lb_em_typed(&e->out, x);
  end_line(e);
  return v;
}

lb_lv lb_em_select(lb_em *e, lb_lv c, lb_lv x, lb_lv y) {
  assert(same_type(x.type, y.type));
  lb_lv v = begin_inst(e, x.type, "select");
  lb_em_typed(&e->out, c);
  comma(e);
  lb_em_typed(&e->out, x);
  comma(e);
  lb_em_typed(&e->out, y);
  end_line(e);
  return v;
}

// -- lanes -------------------------------------------------------------------

lb_lv lb_em_extract(lb_em *e, lb_lv x, uint32_t lane) {
  if (x.type.lanes == 1) return x;
  lb_lv v = begin_inst(e, lt(x.type.elem, 1), "extractelement");
  lb_em_typed(&e->out, x);
  lb_strbuf_printf(&e->out, ", i64 %u\n", lane);
  return v;
}

lb_lv lb_em_insert(lb_em *e, lb_lv x, lb_lv y, uint32_t lane) {
  if (x.type.lanes == 1) return y;
  lb_lv v = begin_inst(e, x.type, "insertelement");
  lb_em_typed(&e->out, x);
  comma(e);
  lb_em_typed(&e->out, y);
  lb_strbuf_printf(&e->out, ", i64 %u\n", lane);
  return v;
}

lb_lv lb_em_splat(lb_em *e, lb_lv x, uint32_t lanes) {
  static const uint8_t zeros[64];
  lb_lt t = lt(x.type.elem, lanes);
  if (lanes == 1) return x;
  if (x.kind == LB_L_CONST) return lb_em_bits(t, x.bits);
  lb_lv one = lb_em_insert(e, lb_em_poison(t), x, 0);
  return lb_em_shuffle(e, one, lb_em_poison(t), zeros, lanes);
}

// Two scalars as the lanes of one vector.
static lb_lv pair(lb_em *e, lb_lv x, lb_lv y) {
  lb_lv v = lb_em_insert(e, lb_em_poison(lt(x.type.elem, 2)), x, 0);
  return y.kind == LB_L_POISON ? v : lb_em_insert(e, v, y, 1);
}

static bool is_zero(const uint8_t *table, uint32_t lanes) {
  for (uint32_t i = 0; i < lanes; i++)
    if (table[i]) return false;
  return true;
}

lb_lv lb_em_shuffle(lb_em *e, lb_lv x, lb_lv y, const uint8_t *table,
                    uint32_t lanes) {
  uint32_t n = x.type.lanes;
  if (lanes == 1) return lb_em_extract(e, table[0] < n ? x : y, table[0] % n);
  if (n == 1) {
    x = pair(e, x, y);
    y = lb_em_poison(x.type);
  }
  lb_lv v = begin_inst(e, lt(x.type.elem, lanes), "shufflevector");
  lb_em_typed(&e->out, x);
  comma(e);
  lb_em_typed(&e->out, y);
  lb_strbuf_printf(&e->out, ", <%u x i32> ", lanes);
  if (is_zero(table, lanes)) {
    lb_strbuf_puts(&e->out, "zeroinitializer\n");
    return v;
  }
  for (uint32_t i = 0; i < lanes; i++)
    lb_strbuf_printf(&e->out, "%si32 %d", i ? ", " : "<", table[i]);
  lb_strbuf_puts(&e->out, ">\n");
  return v;
}

lb_lv lb_em_load(lb_em *e, lb_lt t, lb_lv p, uint32_t align, bool invariant) {
  lb_lv v = begin_inst(e, t, "load");
  lb_em_type(&e->out, t);
  comma(e);
  lb_em_typed(&e->out, p);
  lb_strbuf_printf(&e->out, ", align %u%s\n", align,
                   invariant ? ", !invariant.load " INVARIANT : "");
  return v;
}

void lb_em_store(lb_em *e, lb_lv v, lb_lv p, uint32_t align, bool stream) {
  lb_strbuf_puts(&e->out, "  store ");
  lb_em_typed(&e->out, v);
  comma(e);
  lb_em_typed(&e->out, p);
  lb_strbuf_printf(&e->out, ", align %u%s\n", align,
                   stream ? ", !nontemporal " STREAM : "");
}

lb_lv lb_em_gep(lb_em *e, lb_elem elem, lb_lv p, lb_lv index) {
  lb_lv v = begin_inst(e, lt(LB_E_PTR, index.type.lanes), "getelementptr");
  lb_strbuf_printf(&e->out, "%s, ", elems[elem].text);
  lb_em_typed(&e->out, p);
  comma(e);
  lb_em_typed(&e->out, index);
  end_line(e);
  return v;
}

// -- blocks ------------------------------------------------------------------

void lb_em_label(lb_em *e, uint32_t label) {
  lb_strbuf_printf(&e->out, "b%u:\n", label);
}

void lb_em_jump(lb_em *e, uint32_t to) {
  lb_strbuf_printf(&e->out, "  br label %%b%u\n", to);
}

static void branch(lb_em *e, lb_lv cond, uint32_t yes, uint32_t no,
                   const char *how) {
  lb_strbuf_puts(&e->out, "  br ");
  lb_em_typed(&e->out, cond);
  lb_strbuf_printf(&e->out, ", label %%b%u, label %%b%u%s\n", yes, no, how);
}

void lb_em_branch(lb_em *e, lb_lv cond, uint32_t yes, uint32_t no) {
  branch(e, cond, yes, no, "");
}

void lb_em_branch_unlikely(lb_em *e, lb_lv cond, uint32_t yes, uint32_t no) {
  branch(e, cond, yes, no, ", !prof " UNLIKELY);
}

void lb_em_phi(lb_em *e, lb_lv v, lb_lv x, uint32_t from, lb_lv y,
               uint32_t from2) {
  lb_strbuf_puts(&e->out, "  ");
  lb_em_value(&e->out, v);
  lb_strbuf_puts(&e->out, " = phi ");
  lb_em_type(&e->out, v.type);
  lb_strbuf_puts(&e->out, " [");
  lb_em_value(&e->out, x);
  lb_strbuf_printf(&e->out, ", %%b%u], [", from);
  lb_em_value(&e->out, y);
  lb_strbuf_printf(&e->out, ", %%b%u]\n", from2);
}

// A bitcast to the same type is the shortest form of a copy.
void lb_em_define(lb_em *e, lb_lv v, lb_lv x) {
  lb_strbuf_puts(&e->out, "  ");
  lb_em_value(&e->out, v);
  lb_strbuf_puts(&e->out, " = bitcast ");
  lb_em_typed(&e->out, x);
  lb_strbuf_puts(&e->out, " to ");
  lb_em_type(&e->out, v.type);
  end_line(e);
}

// -- calls -------------------------------------------------------------------

static void declare(lb_module *m, const char *name, lb_lt result,
                    const lb_lv *args, unsigned n) {
  lb_strbuf key = {0};
  lb_strbuf_printf(&key, " @%s(", name);
  if (!strstr(lb_strbuf_str(&m->decls), lb_strbuf_str(&key))) {
    lb_strbuf_puts(&m->decls, "declare ");
    lb_em_type(&m->decls, result);
    lb_strbuf_puts(&m->decls, lb_strbuf_str(&key));
    for (unsigned i = 0; i < n; i++) {
      if (i) lb_strbuf_puts(&m->decls, ", ");
      lb_em_type(&m->decls, args[i].type);
    }
    lb_strbuf_puts(&m->decls, ")\n");
  }
  if (key.failed) m->decls.failed = true;
  lb_strbuf_fini(&key);
}

lb_lv lb_em_call(lb_em *e, const char *name, lb_lt result, const lb_lv *args,
                 unsigned n) {
  lb_lv v = {result, LB_L_POISON, 0};
  if (strncmp(name, "llvm.", 5) == 0) declare(e->m, name, result, args, n);
  if (result.elem == LB_E_VOID)
    lb_strbuf_puts(&e->out, "  call ");
  else
    v = begin_inst(e, result, "call");
  lb_em_type(&e->out, result);
  lb_strbuf_printf(&e->out, " @%s(", name);
  for (unsigned i = 0; i < n; i++) {
    if (i) comma(e);
    lb_em_typed(&e->out, args[i]);
  }
  lb_strbuf_puts(&e->out, ")\n");
  return v;
}

lb_lv lb_em_intrinsic(lb_em *e, const char *name, const lb_lv *args,
                      unsigned n) {
  lb_strbuf full = {0};
  lb_strbuf_printf(&full, "%s.", name);
  lb_em_mangle(&full, args[0].type);
  lb_lv v = lb_em_call(e, lb_strbuf_str(&full), args[0].type, args, n);
  if (full.failed) e->out.failed = true;
  lb_strbuf_fini(&full);
  return v;
}
