// kir/type.c -- One function per typing rule; kops.def assigns them to
// operations.
#include "kir/type.h"

typedef struct infer {
  const lb_kinst *in;
  const lb_ktype *src;
  const uint8_t *table;
  unsigned dtypes;  // LB_KD_...
  lb_ktype given;   // the type in `in`
} infer;

typedef const char *rule_fn(const infer *f, lb_ktype *out);

static const lb_ktype nothing = {LB_NONE, 0, 0};

static unsigned kind_of(uint8_t dtype) {
  if (lb_dtype_is_float(dtype)) return LB_KD_FLOAT;
  if (lb_dtype_is_integer(dtype)) return LB_KD_INT;
  return dtype == LB_BOOL ? LB_KD_BOOL : 0;
}

static bool is_value(lb_ktype t, unsigned dtypes) {
  return !t.flags && t.lanes && (kind_of(t.dtype) & dtypes);
}

static bool is_scalar(lb_ktype t, lb_dtype dtype) {
  return lb_ktype_eq(t, lb_kt(dtype, 1));
}

static bool is_lanes(uint16_t lanes) {
  return lanes >= 1 && lanes <= LB_K_MAX_LANES;
}

static bool is_mask(lb_ktype t, uint16_t lanes) {
  return lb_ktype_eq(t, lb_kt(LB_BOOL, lanes));
}

// -- leaves ------------------------------------------------------------------

static bool fits(int64_t imm, lb_dtype t) {
  if (t == LB_BOOL) return (uint64_t)imm <= 1;
  size_t bits = 8 * lb_dtype_size(t);
  return bits == 64 || (uint64_t)imm >> bits == 0;
}

static const char *rule_const(const infer *f, lb_ktype *out) {
  if (!is_value(f->given, f->dtypes)) return "is not of a plain dtype";
  if (!is_lanes(f->given.lanes)) return "has too many lanes";
  if (!fits(f->in->imm, f->given.dtype)) return "has bits beyond its dtype";
  *out = f->given;
  return NULL;
}

static const char *rule_param(const infer *f, lb_ktype *out) {
  lb_ktype t = f->given;
  if (!kind_of(t.dtype) || t.lanes != 1) return "must be a scalar or a pointer";
  if (t.flags && !lb_ktype_is_ptr(t)) return "has flags of a pointer";
  if (t.flags & LB_K_SHARED) return "cannot point to local memory";
  if (f->in->imm < 0) return "has a negative slot";
  *out = t;
  return NULL;
}

static const char *rule_id(const infer *f, lb_ktype *out) {
  if (f->in->axis > 2) return "has an axis above 2";
  *out = lb_kt(LB_I64, 1);
  return NULL;
}

// -- elementwise -------------------------------------------------------------

static const char *rule_same(const infer *f, lb_ktype *out) {
  if (!is_value(f->src[0], f->dtypes)) return "does not take this dtype";
  for (unsigned i = 1; i < f->in->n_src; i++)
    if (!lb_ktype_eq(f->src[0], f->src[i])) return "operands differ in type";
  *out = f->src[0];
  return NULL;
}

static const char *rule_compare(const infer *f, lb_ktype *out) {
  const char *wrong = rule_same(f, out);
  out->dtype = LB_BOOL;
  return wrong;
}

static const char *rule_select(const infer *f, lb_ktype *out) {
  lb_ktype x = f->src[1];
  if (!lb_ktype_eq(x, f->src[2])) return "choices differ in type";
  if (!kind_of(x.dtype)) return "choices have no value";
  if (!is_mask(f->src[0], 1) && !is_mask(f->src[0], x.lanes))
    return "condition must be a bool, or a bool per lane";
  *out = x;
  return NULL;
}

static const char *rule_cast(const infer *f, lb_ktype *out) {
  if (!is_value(f->src[0], f->dtypes)) return "does not take this type";
  if (!kind_of(f->given.dtype)) return "needs a result dtype";
  *out = lb_kt(f->given.dtype, f->src[0].lanes);
  return NULL;
}

static const char *rule_bitcast(const infer *f, lb_ktype *out) {
  lb_ktype from = f->src[0];
  size_t size = lb_dtype_size(f->given.dtype);
  if (!size) return "needs a result dtype";
  if (lb_ktype_is_ptr(from)) {
    *out = lb_kt_ptr(f->given.dtype, from.flags);
    return NULL;
  }
  if (!is_value(from, f->dtypes) || !(kind_of(f->given.dtype) & f->dtypes))
    return "converts numbers or pointers only";
  size_t bytes = from.lanes * lb_dtype_size(from.dtype);
  if (bytes % size || bytes / size > LB_K_MAX_LANES)
    return "bytes do not divide into lanes";
  *out = lb_kt(f->given.dtype, (uint32_t)(bytes / size));
  return NULL;
}

// -- lanes -------------------------------------------------------------------

static const char *rule_splat(const infer *f, lb_ktype *out) {
  if (!is_value(f->src[0], f->dtypes) || f->src[0].lanes != 1)
    return "takes a scalar";
  if (!is_lanes(f->given.lanes)) return "must give 1 to 64 lanes";
  *out = lb_kt(f->src[0].dtype, f->given.lanes);
  return NULL;
}

static const char *rule_iota(const infer *f, lb_ktype *out) {
  if (!is_value(f->given, f->dtypes) || !is_lanes(f->given.lanes))
    return "must give 1 to 64 integers";
  *out = f->given;
  return NULL;
}

static const char *rule_extract(const infer *f, lb_ktype *out) {
  if (!is_value(f->src[0], f->dtypes)) return "takes a value with lanes";
  if (f->in->imm < 0 || f->in->imm >= f->src[0].lanes)
    return "takes a lane that does not exist";
  *out = lb_kt(f->src[0].dtype, 1);
  return NULL;
}

static const char *rule_insert(const infer *f, lb_ktype *out) {
  if (!is_value(f->src[0], f->dtypes)) return "takes a value with lanes";
  if (!is_scalar(f->src[1], f->src[0].dtype))
    return "must insert a scalar of the vector's dtype";
  if (f->in->imm < 0 || f->in->imm >= f->src[0].lanes)
    return "sets a lane that does not exist";
  *out = f->src[0];
  return NULL;
}

static const char *rule_shuffle(const infer *f, lb_ktype *out) {
  const char *wrong = rule_same(f, out);
  if (wrong) return wrong;
  if (!is_lanes(f->given.lanes)) return "must give 1 to 64 lanes";
  for (unsigned i = 0; i < f->given.lanes; i++)
    if (f->table[i] >= f->in->n_src * f->src[0].lanes)
      return "takes a lane that does not exist";
  out->lanes = f->given.lanes;
  return NULL;
}

static const char *rule_tail(const infer *f, lb_ktype *out) {
  if (!is_scalar(f->src[0], LB_I64)) return "takes an i64";
  if (!is_lanes(f->given.lanes)) return "must give 1 to 64 lanes";
  *out = lb_kt(LB_BOOL, f->given.lanes);
  return NULL;
}

static const char *rule_reduce(const infer *f, lb_ktype *out) {
  if (!is_value(f->src[0], f->dtypes)) return "does not take this dtype";
  if (f->src[0].lanes & (f->src[0].lanes - 1))
    return "lanes must be a power of two";
  *out = lb_kt(f->src[0].dtype, 1);
  return NULL;
}

static bool is_bytes(lb_ktype t, uint32_t lanes) {
  return (t.dtype == LB_I8 || t.dtype == LB_U8) && !t.flags && t.lanes == lanes;
}

static const char *rule_dot4(const infer *f, lb_ktype *out) {
  lb_ktype acc = f->src[0];
  if (acc.dtype != LB_I32 || acc.flags) return "accumulator must be i32";
  if (!is_bytes(f->src[1], 4u * acc.lanes) ||
      !is_bytes(f->src[2], 4u * acc.lanes))
    return "operands must have four i8 or u8 per lane";
  *out = acc;
  return NULL;
}

// -- memory ------------------------------------------------------------------

static const char *rule_ptr(const infer *f, lb_ktype *out) {
  if (!lb_ktype_is_ptr(f->src[0])) return "takes a pointer";
  if (!is_scalar(f->src[1], LB_I64)) return "takes an i64 index";
  *out = f->src[0];
  return NULL;
}

static const char *rule_local(const infer *f, lb_ktype *out) {
  size_t size = lb_dtype_size(f->given.dtype);
  if (!size) return "needs a result dtype";
  if (f->in->imm < 1 || f->in->imm > (int64_t)(LB_K_MAX_LOCAL / size))
    return "has a bad count";
  *out = lb_kt_ptr(f->given.dtype, LB_K_SHARED);
  return NULL;
}

static bool is_align(int64_t a) {
  return a >= 0 && a <= LB_K_MAX_ALIGN && !(a & (a - 1));
}

static const char *rule_load(const infer *f, lb_ktype *out) {
  if (!lb_ktype_is_ptr(f->src[0])) return "takes a pointer";
  if (!is_lanes(f->given.lanes)) return "must give 1 to 64 lanes";
  if (!is_align(f->in->imm)) return "alignment must be a power of two";
  *out = lb_kt(f->src[0].dtype, f->given.lanes);
  if (f->in->n_src > 1 && !is_mask(f->src[1], out->lanes))
    return "mask must be a bool per lane";
  if (f->in->n_src > 2 && !lb_ktype_eq(f->src[2], *out))
    return "`other` differs in type";
  return NULL;
}

static bool is_index(lb_ktype t) {
  return (t.dtype == LB_I32 || t.dtype == LB_I64) && !t.flags;
}

static const char *rule_gather(const infer *f, lb_ktype *out) {
  if (!lb_ktype_is_ptr(f->src[0])) return "takes a pointer";
  if (!is_index(f->src[1])) return "takes i32 or i64 indices";
  *out = lb_kt(f->src[0].dtype, f->src[1].lanes);
  if (f->in->n_src > 2 && !is_mask(f->src[2], out->lanes))
    return "mask must be a bool per lane";
  if (f->in->n_src > 3 && !lb_ktype_eq(f->src[3], *out))
    return "`other` differs in type";
  return NULL;
}

static const char *stores(const infer *f, lb_ktype value, unsigned mask) {
  lb_ktype p = f->src[0];
  if (!lb_ktype_is_ptr(p)) return "takes a pointer";
  if (p.flags & LB_K_READONLY) return "stores through a read-only pointer";
  if (!is_value(value, LB_KD_ALL) || value.dtype != p.dtype)
    return "value differs in dtype from the pointer";
  if (f->in->n_src > mask && !is_mask(f->src[mask], value.lanes))
    return "mask must be a bool per lane";
  return NULL;
}

static const char *rule_store(const infer *f, lb_ktype *out) {
  *out = nothing;
  if (!is_align(f->in->imm)) return "alignment must be a power of two";
  return stores(f, f->src[1], 2);
}

static const char *rule_scatter(const infer *f, lb_ktype *out) {
  *out = nothing;
  if (!is_index(f->src[1])) return "takes i32 or i64 indices";
  if (f->src[1].lanes != f->src[2].lanes) return "needs one index per lane";
  return stores(f, f->src[2], 3);
}

static const char *rule_prefetch(const infer *f, lb_ktype *out) {
  *out = nothing;
  if (!lb_ktype_is_ptr(f->src[0])) return "takes a pointer";
  return f->in->imm < 0 || f->in->imm > 2 ? "level must be 0 to 2" : NULL;
}

// -- registers and blocks ----------------------------------------------------

static const char *rule_nothing(const infer *f, lb_ktype *out) {
  (void)f;
  *out = nothing;
  return NULL;
}

static const char *rule_reg(const infer *f, lb_ktype *out) {
  *out = f->src[0];
  return kind_of(out->dtype) ? NULL : "starts with no value";
}

static const char *rule_get(const infer *f, lb_ktype *out) {
  *out = f->src[0];
  return NULL;
}

static const char *rule_set(const infer *f, lb_ktype *out) {
  *out = nothing;
  return lb_ktype_eq(f->src[0], f->src[1])
             ? NULL
             : "value and register differ in type";
}

static const char *rule_loop(const infer *f, lb_ktype *out) {
  for (int i = 0; i < 3; i++)
    if (!is_scalar(f->src[i], LB_I64)) return "bounds and step must be i64";
  *out = lb_kt(LB_I64, 1);
  return NULL;
}

static const char *rule_if(const infer *f, lb_ktype *out) {
  *out = nothing;
  return is_mask(f->src[0], 1) ? NULL : "condition must be a bool";
}

static rule_fn *const rules[LB_KR_COUNT] = {
    [LB_KR_CONST] = rule_const,
    [LB_KR_PARAM] = rule_param,
    [LB_KR_ID] = rule_id,
    [LB_KR_SAME] = rule_same,
    [LB_KR_COMPARE] = rule_compare,
    [LB_KR_SELECT] = rule_select,
    [LB_KR_CAST] = rule_cast,
    [LB_KR_BITCAST] = rule_bitcast,
    [LB_KR_SPLAT] = rule_splat,
    [LB_KR_IOTA] = rule_iota,
    [LB_KR_EXTRACT] = rule_extract,
    [LB_KR_INSERT] = rule_insert,
    [LB_KR_SHUFFLE] = rule_shuffle,
    [LB_KR_TAIL] = rule_tail,
    [LB_KR_REDUCE] = rule_reduce,
    [LB_KR_DOT4] = rule_dot4,
    [LB_KR_PTR] = rule_ptr,
    [LB_KR_LOCAL] = rule_local,
    [LB_KR_LOAD] = rule_load,
    [LB_KR_GATHER] = rule_gather,
    [LB_KR_STORE] = rule_store,
    [LB_KR_SCATTER] = rule_scatter,
    [LB_KR_PREFETCH] = rule_prefetch,
    [LB_KR_NOTHING] = rule_nothing,
    [LB_KR_REG] = rule_reg,
    [LB_KR_GET] = rule_get,
    [LB_KR_SET] = rule_set,
    [LB_KR_LOOP] = rule_loop,
    [LB_KR_IF] = rule_if,
};

static bool may_stream(uint8_t op) {
  return op == LB_K_LOAD || op == LB_K_STORE;
}

static bool has_axis(uint8_t op) {
  return op == LB_K_LOOP || op == LB_K_GROUP_ID || op == LB_K_LOCAL_ID;
}

const char *lb_kinfer(const lb_kinst *in, const lb_ktype *src,
                      const uint8_t *table, lb_ktype *out) {
  const lb_kop_info *info = &lb_kop_infos[in->op];
  if (in->n_src < info->min_src || in->n_src > info->max_src)
    return "has a wrong number of operands";
  if (in->dtype >= LB_DTYPE_COUNT) return "has an unknown dtype";
  if (in->flags & ~(LB_K_TYPE_FLAGS | LB_K_STREAM)) return "has unknown flags";
  if ((in->flags & LB_K_STREAM) && !may_stream(in->op)) return "cannot stream";
  if (in->axis && !has_axis(in->op)) return "has an axis";
  if (in->imm && info->imm == LB_KI_NONE) return "has an immediate";
  infer f = {in, src, table, info->dtypes, lb_ktype_of(in)};
  return rules[info->rule](&f, out);
}

const char *lb_kdtype_text(lb_dtype t) {
  static const char *const texts[LB_DTYPE_COUNT] = {
      [LB_F32] = "f32",   [LB_F64] = "f64", [LB_F16] = "f16",
      [LB_BF16] = "bf16", [LB_I8] = "i8",   [LB_I16] = "i16",
      [LB_I32] = "i32",   [LB_I64] = "i64", [LB_U8] = "u8",
      [LB_U16] = "u16",   [LB_U32] = "u32", [LB_U64] = "u64",
      [LB_BOOL] = "bool",
  };
  return (unsigned)t < LB_DTYPE_COUNT ? texts[t] : NULL;
}
