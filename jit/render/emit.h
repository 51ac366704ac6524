// render/emit.h -- Writes LLVM IR as text, one call per instruction.
//
// A *value* is a temporary (%t7) or a constant, whose lanes are all equal or
// those of a table; it is passed by value and printed where it is used. One
// lane is a scalar, never a vector of one. Float16 and bfloat16 are i16 here;
// `half` exists only between a conversion and its bitcast. Fast-math flags are
// never written, so LLVM preserves every rounding.
//
// Errors are recorded in the strbufs; their status is checked once, at the end.
#ifndef LB_RENDER_EMIT_H
#define LB_RENDER_EMIT_H

#include "base/strbuf.h"
#include "spec/target.h"

#include <stdint.h>

typedef enum lb_elem {
  LB_E_I1,
  LB_E_I8,
  LB_E_I16,
  LB_E_I32,
  LB_E_I64,
  LB_E_HALF,
  LB_E_F32,
  LB_E_F64,
  LB_E_PTR,
  LB_E_VOID,
} lb_elem;

typedef struct lb_lt {  // an LLVM type
  uint8_t elem;         // lb_elem
  uint8_t lanes;
} lb_lt;

typedef enum lb_lkind {
  LB_L_TEMP,
  LB_L_CONST,
  LB_L_IOTA,
  LB_L_TABLE,
  LB_L_POISON
} lb_lkind;

typedef struct lb_lv {  // a value
  lb_lt type;
  uint8_t kind;   // lb_lkind
  uint64_t bits;  // TEMP: number; CONST: bits of a lane; TABLE: address of the
                  // lb_table
} lb_lv;

// The first lanes of a constant; further lanes repeat them.
enum { LB_TABLE = 8 };
typedef double lb_table[LB_TABLE];

typedef struct lb_module {  // all functions of one module
  lb_target target;
  lb_strbuf decls;  // of intrinsics, one per line
  lb_strbuf funcs;  // complete helper functions
} lb_module;

typedef struct lb_em {  // one function under construction
  lb_module *m;         // borrowed
  lb_strbuf out;        // its lines
  uint32_t n_temps;
} lb_em;

// Metadata that instructions refer to; a module must end with it.
extern const char lb_em_metadata[];

// -- printing
void lb_em_type(lb_strbuf *out, lb_lt t);
void lb_em_value(lb_strbuf *out, lb_lv v);  // "%t3", "splat (i32 1)"
void lb_em_typed(lb_strbuf *out, lb_lv v);  // "<4 x i32> %t3"

// -- values
uint32_t lb_elem_bits(lb_elem e);
static inline lb_lt lt(lb_elem elem, uint32_t lanes) {
  return (lb_lt){(uint8_t)elem, (uint8_t)lanes};
}
static inline lb_lt with_elem(lb_lt t, lb_elem elem) {
  t.elem = (uint8_t)elem;
  return t;
}
static inline lb_lt int_of(lb_lt t) {  // integers of the same width
  return with_elem(t, lb_elem_bits(t.elem) == 64   ? LB_E_I64
                      : lb_elem_bits(t.elem) == 32 ? LB_E_I32
                                                   : LB_E_I16);
}
static inline lb_lt float_of(lb_lt t) {
  return with_elem(t, lb_elem_bits(t.elem) == 64 ? LB_E_F64 : LB_E_F32);
}
lb_lv lb_em_new(lb_em *e, lb_lt t);  // a new temporary, not yet defined
lb_lv lb_em_bits(lb_lt t, uint64_t bits);
lb_lv lb_em_num(lb_lt t, double x);                 // of a float type
lb_lv lb_em_table(lb_lt t, const lb_table *table);  // static
lb_lv lb_em_poison(lb_lt t);

// -- instructions; `op` is LLVM's opcode, for comparisons with the condition
lb_lv lb_em_binary(lb_em *e, const char *op, lb_lv x, lb_lv y);
lb_lv lb_em_compare(lb_em *e, const char *op, lb_lv x, lb_lv y);
lb_lv lb_em_convert(lb_em *e, const char *op, lb_lv x, lb_elem to);
lb_lv lb_em_bitcast(lb_em *e, lb_lv x,
                    lb_lt to);  // x itself if it has that type
lb_lv lb_em_fneg(lb_em *e, lb_lv x);
lb_lv lb_em_select(lb_em *e, lb_lv c, lb_lv x, lb_lv y);
lb_lv lb_em_splat(lb_em *e, lb_lv x, uint32_t lanes);
lb_lv lb_em_extract(lb_em *e, lb_lv x, uint32_t lane);
lb_lv lb_em_insert(lb_em *e, lb_lv x, lb_lv y, uint32_t lane);
// Shuffles the lanes of x, then y; y may be poison, and both may be scalars.
lb_lv lb_em_shuffle(lb_em *e, lb_lv x, lb_lv y, const uint8_t *table,
                    uint32_t lanes);
// `invariant`: the memory is not written while the function runs.
lb_lv lb_em_load(lb_em *e, lb_lt t, lb_lv p, uint32_t align, bool invariant);
void lb_em_store(lb_em *e, lb_lv v, lb_lv p, uint32_t align, bool stream);
lb_lv lb_em_gep(lb_em *e, lb_elem elem, lb_lv p, lb_lv index);

// -- blocks: labels are numbers; a function begins with block 0
void lb_em_label(lb_em *e, uint32_t label);
void lb_em_jump(lb_em *e, uint32_t to);
void lb_em_branch(lb_em *e, lb_lv cond, uint32_t yes, uint32_t no);
void lb_em_branch_unlikely(lb_em *e, lb_lv cond, uint32_t yes, uint32_t no);
// v is x when coming from block `from`, and y from `from2`.
void lb_em_phi(lb_em *e, lb_lv v, lb_lv x, uint32_t from, lb_lv y,
               uint32_t from2);
// Defines a temporary that was created by lb_em_new and used before.
void lb_em_define(lb_em *e, lb_lv v, lb_lv x);

// A call of `name`, which is declared on first use if it is an intrinsic
// ("llvm...").
lb_lv lb_em_call(lb_em *e, const char *name, lb_lt result, const lb_lv *args,
                 unsigned n);
// An intrinsic overloaded by the type of its first argument, which is also its
// result type.
lb_lv lb_em_intrinsic(lb_em *e, const char *name, const lb_lv *args,
                      unsigned n);
// "v16f32", "f32", "p0": the suffix of overloaded names.
void lb_em_mangle(lb_strbuf *out, lb_lt t);

// -- shorthand
static inline lb_lv num(lb_lt t, double x) { return lb_em_num(t, x); }
static inline lb_lv sel(lb_em *e, lb_lv c, lb_lv x, lb_lv y) {
  return lb_em_select(e, c, x, y);
}
static inline lb_lv plus(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "fadd", x, y);
}
static inline lb_lv minus(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "fsub", x, y);
}
static inline lb_lv times(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "fmul", x, y);
}
static inline lb_lv over(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "fdiv", x, y);
}
static inline lb_lv mad(lb_em *e, lb_lv x, lb_lv y, lb_lv z) {  // fused
  return lb_em_intrinsic(e, "llvm.fma", (lb_lv[]){x, y, z}, 3);
}
static inline lb_lv unary(lb_em *e, const char *name, lb_lv x) {
  return lb_em_intrinsic(e, name, &x, 1);
}
static inline lb_lv magnitude(lb_em *e, lb_lv x) {
  return unary(e, "llvm.fabs", x);
}
static inline lb_lv with_sign(lb_em *e, lb_lv x, lb_lv sign) {
  return lb_em_intrinsic(e, "llvm.copysign", (lb_lv[]){x, sign}, 2);
}
static inline lb_lv root(lb_em *e, lb_lv x) { return unary(e, "llvm.sqrt", x); }
static inline lb_lv below(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_compare(e, "fcmp olt", x, y);
}
static inline lb_lv iadd(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "add", x, y);
}
static inline lb_lv isub(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "sub", x, y);
}
static inline lb_lv iand(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "and", x, y);
}
static inline lb_lv ior(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "or", x, y);
}
static inline lb_lv ixor(lb_em *e, lb_lv x, lb_lv y) {
  return lb_em_binary(e, "xor", x, y);
}
static inline lb_lv ishl(lb_em *e, lb_lv x, uint32_t by) {
  return lb_em_binary(e, "shl", x, lb_em_bits(x.type, by));
}

#endif
