// kir/fold.c -- Folds constants and applies identities.
//
// For floats, only identities that are exact for every value, including -0 and
// infinities: x * 1, x / 1, x - 0, x + -0. Functions that machine code computes
// to some ulps are not folded, or a kernel's result would depend on what its
// compiler knew.
#include "kir/fold.h"

#include <string.h>

#include "kir/eval.h"
#include "kir/num.h"

static const lb_kinst *inst(const lb_kfolder *f, lb_kval v) {
  return &f->out->k.insts[v];
}

static lb_kval operand(const lb_kfolder *f, lb_kval v, uint32_t i) {
  return f->out->k.pool[inst(f, v)->src + i];
}

bool lb_kfold_const(const lb_kbuilder *out, lb_kval v, uint64_t *bits) {
  if (v >= out->k.n_insts || out->k.insts[v].op != LB_K_CONST) return false;
  *bits = (uint64_t)out->k.insts[v].imm;
  return true;
}

static bool is_bits(const lb_kfolder *f, lb_kval v, uint64_t want) {
  uint64_t bits;
  return lb_kfold_const(f->out, v, &bits) && bits == want;
}

static bool is_num(const lb_kfolder *f, lb_kval v, double x) {
  return is_bits(f, v, lb_knum_bits(lb_k_type(f->out, v).dtype, x));
}

static uint64_t all_ones(lb_dtype t) {
  if (t == LB_BOOL) return 1;
  return UINT64_MAX >> (64 - 8 * lb_dtype_size(t));
}

static lb_kval constant(lb_kfolder *f, const lb_kcand *c, uint64_t bits) {
  return f->constant(f, lb_ktype_of(&c->in), bits);
}

// -- constants ---------------------------------------------------------------

// Whether all lanes are equal; their bits.
static bool uniform(const lb_kcand *c, const char *lanes, uint64_t *bits) {
  size_t size = lb_dtype_size(c->in.dtype);
  for (unsigned i = 1; i < c->in.lanes; i++)
    if (memcmp(lanes, lanes + i * size, size) != 0) return false;
  *bits = 0;
  memcpy(bits, lanes, size);
  return true;
}

static bool compute(lb_kfolder *f, const lb_kcand *c, uint64_t *bits) {
  lb_kstep s;
  lb_ktype types[4];
  for (uint32_t i = 0; i < c->in.n_src; i++) {
    const lb_kinst *in = inst(f, c->src[i]);
    if (in->op != LB_K_CONST) return false;
    types[i] = lb_ktype_of(in);
    lb_kconst_write(in, f->frame + (i + 1) * LB_KFRAME_VALUE);
  }
  lb_kstep_decode(&c->in, types, c->table, &s);
  for (uint32_t i = 0; i < 4; i++) s.src[i] = (i + 1) * LB_KFRAME_VALUE;
  if (!s.fn) return false;
  s.fn(&s, f->frame);
  return uniform(c, f->frame, bits);
}

// -- identities --------------------------------------------------------------

static bool commutes(const lb_kcand *c) {
  if (lb_dtype_is_float(c->in.dtype)) return false;
  switch (c->in.op) {
    case LB_K_ADD:
    case LB_K_MUL:
    case LB_K_MIN:
    case LB_K_MAX:
    case LB_K_AND:
    case LB_K_OR:
    case LB_K_XOR: return true;
    default: return false;
  }
}

// Constants to the right, otherwise by number, so that equal expressions become
// identical.
static void order_operands(const lb_kfolder *f, lb_kcand *c) {
  lb_kval x = c->src[0], y = c->src[1];
  bool x_const = inst(f, x)->op == LB_K_CONST;
  bool y_const = inst(f, y)->op == LB_K_CONST;
  if (x_const == y_const ? x > y : x_const) c->src[0] = y, c->src[1] = x;
}

// (x + a) + b is x + (a + b), for integers.
static void join_adds(lb_kfolder *f, lb_kcand *c) {
  uint64_t a, b;
  lb_kval x = c->src[0];
  if (inst(f, x)->op != LB_K_ADD || !lb_kfold_const(f->out, c->src[1], &b) ||
      !lb_kfold_const(f->out, operand(f, x, 1), &a))
    return;
  c->src[0] = operand(f, x, 0);
  c->src[1] = constant(f, c, (a + b) & all_ones(c->in.dtype));
}

static lb_kval fold_int(lb_kfolder *f, lb_kcand *c) {
  lb_kval x = c->src[0], y = c->src[1];
  uint64_t ones = all_ones(c->in.dtype), bits;
  switch (c->in.op) {
    case LB_K_SUB:
      if (x == y) return constant(f, c, 0);
      if (!lb_kfold_const(f->out, y, &bits)) break;
      c->in.op = LB_K_ADD;
      c->src[1] = constant(f, c, (0 - bits) & ones);
      return fold_int(f, c);
    case LB_K_ADD:
      if (is_bits(f, y, 0)) return x;
      join_adds(f, c);
      break;
    case LB_K_MUL: return is_bits(f, y, 0) ? y : LB_K_NONE;
    case LB_K_REM: return is_bits(f, y, 1) ? constant(f, c, 0) : LB_K_NONE;
    case LB_K_AND:
      if (x == y || is_bits(f, y, ones)) return x;
      return is_bits(f, y, 0) ? y : LB_K_NONE;
    case LB_K_OR:
      if (x == y || is_bits(f, y, 0)) return x;
      return is_bits(f, y, ones) ? y : LB_K_NONE;
    case LB_K_XOR:
      if (x == y) return constant(f, c, 0);
      return is_bits(f, y, 0) ? x : LB_K_NONE;
    case LB_K_SHL:
    case LB_K_SHR: return is_bits(f, y, 0) ? x : LB_K_NONE;
    default: break;
  }
  return LB_K_NONE;
}

static lb_kval fold_number(lb_kfolder *f, const lb_kcand *c) {
  lb_kval x = c->src[0], y = c->src[1];
  bool is_float = lb_dtype_is_float(c->in.dtype);
  switch (c->in.op) {
    case LB_K_ADD:
      if (is_float && is_num(f, y, -0.0)) return x;
      return is_float && is_num(f, x, -0.0) ? y : LB_K_NONE;
    case LB_K_SUB: return is_float && is_num(f, y, 0.0) ? x : LB_K_NONE;
    case LB_K_MUL:
      if (is_num(f, x, 1)) return y;
      return is_num(f, y, 1) ? x : LB_K_NONE;
    case LB_K_DIV: return is_num(f, y, 1) ? x : LB_K_NONE;
    case LB_K_MIN:
    case LB_K_MAX: return x == y ? x : LB_K_NONE;
    default: return LB_K_NONE;
  }
}

static lb_kval fold_compare(lb_kfolder *f, const lb_kcand *c) {
  bool same = c->src[0] == c->src[1];
  if (!same || lb_dtype_is_float(inst(f, c->src[0])->dtype)) return LB_K_NONE;
  return constant(f, c, c->in.op == LB_K_EQ || c->in.op == LB_K_LE);
}

static lb_kval fold_select(const lb_kfolder *f, const lb_kcand *c) {
  uint64_t cond;
  if (c->src[1] == c->src[2]) return c->src[1];
  if (!lb_kfold_const(f->out, c->src[0], &cond)) return LB_K_NONE;
  return c->src[cond ? 1 : 2];
}

// -- lanes -------------------------------------------------------------------

static bool is_identity(const lb_kcand *c, uint32_t lanes) {
  if (c->in.lanes != lanes) return false;
  for (uint32_t i = 0; i < lanes; i++)
    if (c->table[i] != i) return false;
  return true;
}

static lb_kval fold_shuffle(const lb_kfolder *f, lb_kcand *c) {
  lb_kval x = c->src[0];
  if (is_identity(c, inst(f, x)->lanes)) return x;
  if (inst(f, x)->op != LB_K_SPLAT || c->in.n_src != 1) return LB_K_NONE;
  c->in.op = LB_K_SPLAT;
  c->in.imm = 0;
  c->src[0] = operand(f, x, 0);
  return LB_K_NONE;
}

// Unary operations that return their operand, or undo another one.
static lb_kval fold_unary(const lb_kfolder *f, lb_kcand *c) {
  lb_kval x = c->src[0];
  const lb_kinst *from = inst(f, x);
  bool same_type = lb_ktype_eq(lb_ktype_of(from), lb_ktype_of(&c->in));
  switch (c->in.op) {
    case LB_K_NOT:
    case LB_K_NEG: return from->op == c->in.op ? operand(f, x, 0) : LB_K_NONE;
    case LB_K_ABS: return from->op == LB_K_ABS ? x : LB_K_NONE;
    case LB_K_EXTRACT:
      if (from->op == LB_K_SPLAT) return operand(f, x, 0);
      return same_type ? x : LB_K_NONE;
    case LB_K_SHUFFLE: return fold_shuffle(f, c);
    case LB_K_CAST:
    case LB_K_BITCAST:
    case LB_K_SPLAT:
    case LB_K_RADD:
    case LB_K_RMUL:
    case LB_K_RMIN:
    case LB_K_RMAX:
    case LB_K_RAND:
    case LB_K_ROR: return same_type ? x : LB_K_NONE;
    default: return LB_K_NONE;
  }
}

// -- memory ------------------------------------------------------------------

// Constant indices become displacements; nested PTRs are merged where one of
// them has no index.
static lb_kval fold_ptr(lb_kfolder *f, lb_kcand *c) {
  uint64_t index;
  int64_t bytes, size = (int64_t)lb_dtype_size(c->in.dtype);
  if (lb_kfold_const(f->out, c->src[1], &index) && index &&
      !__builtin_mul_overflow((int64_t)index, size, &bytes) &&
      !__builtin_add_overflow(bytes, c->in.imm, &bytes)) {
    c->in.imm = bytes;
    c->src[1] = f->constant(f, lb_kt(LB_I64, 1), 0);
  }
  lb_kval p = c->src[0];
  bool no_index = is_bits(f, c->src[1], 0);
  if (no_index && c->in.imm == 0) return p;
  if (inst(f, p)->op == LB_K_PTR &&
      (no_index || is_bits(f, operand(f, p, 1), 0)) &&
      !__builtin_add_overflow(inst(f, p)->imm, c->in.imm, &bytes)) {
    c->in.imm = bytes;
    if (no_index) c->src[1] = operand(f, p, 1);
    c->src[0] = operand(f, p, 0);
  }
  return LB_K_NONE;
}

// Constant masks: an all-ones mask is removed, and with an all-zeros mask
// nothing is read or written.
static lb_kfolded fold_mask(lb_kfolder *f, lb_kcand *c, uint32_t mask,
                            lb_kval *value) {
  uint64_t bits;
  if (c->in.n_src <= mask || !lb_kfold_const(f->out, c->src[mask], &bits))
    return LB_KFOLD_EMIT;
  bool other =
      mask + 1 < sizeof c->src / sizeof *c->src && c->in.n_src > mask + 1;
  if (bits) {
    c->in.n_src = (uint16_t)mask;
    return LB_KFOLD_EMIT;
  }
  if (c->in.dtype == LB_NONE) return LB_KFOLD_DROP;
  *value = other ? c->src[mask + 1] : constant(f, c, 0);
  return LB_KFOLD_VALUE;
}

// -- dispatch ----------------------------------------------------------------

static lb_kval fold_value(lb_kfolder *f, lb_kcand *c) {
  uint64_t bits;
  if (lb_kop_infos[c->in.op].cls == LB_KC_EXACT && c->in.op != LB_K_CONST &&
      compute(f, c, &bits))
    return constant(f, c, bits);
  if (commutes(c)) order_operands(f, c);
  switch (c->in.op) {
    case LB_K_PTR: return fold_ptr(f, c);
    case LB_K_SELECT: return fold_select(f, c);
    case LB_K_EQ:
    case LB_K_NE:
    case LB_K_LT:
    case LB_K_LE: return fold_compare(f, c);
    default: break;
  }
  if (c->in.n_src == 1) return fold_unary(f, c);
  if (c->in.n_src != 2) return LB_K_NONE;
  lb_kval v = fold_number(f, c);
  if (v != LB_K_NONE || lb_dtype_is_float(c->in.dtype)) return v;
  return fold_int(f, c);
}

lb_kfolded lb_kfold(lb_kfolder *f, lb_kcand *c, lb_kval *value) {
  switch (c->in.op) {
    case LB_K_LOAD: return fold_mask(f, c, 1, value);
    case LB_K_STORE:
    case LB_K_GATHER: return fold_mask(f, c, 2, value);
    case LB_K_SCATTER: return fold_mask(f, c, 3, value);
    default: break;
  }
  uint8_t cls = lb_kop_infos[c->in.op].cls;
  if (cls != LB_KC_EXACT && cls != LB_KC_PURE) return LB_KFOLD_EMIT;
  *value = fold_value(f, c);
  return *value == LB_K_NONE ? LB_KFOLD_EMIT : LB_KFOLD_VALUE;
}
