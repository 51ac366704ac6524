// kir/kir.h -- Kernel IR: what one kernel does, before it is text or code.
//
// A kernel is an array of instructions in dependency order. A *value* is the
// index of the instruction that computes it; operands are values, stored in one
// pool. Its type is a dtype with a number of lanes (1: a scalar), or a pointer
// to elements of a dtype. A kernel owns its arrays; any thread may read a
// finished kernel.
//
// (1) The first instructions are the parameters: PARAM i has slot i. There is
//     no PARAM elsewhere.
// (2) LOOP begin, end, step ... END runs its block for i = begin, begin+step,
//     ... while i < end. The LOOP's value is i, an int64 visible in the block
//     only. step must be positive, end at most INT64_MAX - step. IF cond ...
//     [ELSE ...] END.
// (3) A value is visible from its instruction to the end of its block,
//     including nested blocks. Values leave a block through registers or
//     memory.
// (4) REG init creates a register, anew each time it is executed. SET reg,
//     value assigns to it, GET reg reads its current value. So a register set
//     in a loop carries over to the next iteration, and a renderer needs one
//     phi per register set in the block: at LOOP and at the END of LOOP and IF.
//     Only GET and SET may name a register.
// (5) The form is canonical: operands and lane tables are stored in the order
//     of their instructions, without gaps; unused fields are 0. Equal kernels
//     have equal bytes.
//
// Semantics of operations:
// - Integers wrap. DIV and REM truncate; by 0 they give 0. REM of floats is
//   fmod. A shift count that is negative or not less than the width gives 0, or
//   copies of the sign for SHR of a signed dtype.
// - Floats round to nearest, ties to even; denormals are preserved. EXACT
//   operations are rounded once, FMA too, also for float16 and bfloat16. The
//   others (EXP, ...) may be off by some ulps in machine code; the interpreter
//   gives the rounded double result. NaN payloads are undefined.
// - MIN(x, y) is x < y or x is NaN ? x : y; MAX likewise with >. So NaN
//   propagates, and of two zeros the second is taken. (x < y ? x : y alone, one
//   machine instruction, is SELECT of LT.)
// - EQ LT LE are false and NE is true when an operand is NaN. There is no GT:
//   the builder swaps operands. ROUND rounds halves to even.
// - CAST: integers wrap, floats truncate towards 0. Values out of range of
//   int32 or int64 give their minimum; narrower integers are the low bits of
//   the cast to int32, uint32 of that to int64; uint64 from 2^63 on is the cast
//   of x - 2^63 to int64 with its top bit flipped. To bool: x != 0. From bool:
//   0 or 1. Floats round once.
// - BITCAST preserves bytes, in the order of lanes, little-endian; of a pointer
//   it changes the dtype of the elements.
// - CONST: imm is the element's bits, zero-extended; all lanes are equal. IOTA:
//   lane i is i. TAIL n: lane i is i < n.
// - SHUFFLE x[, y]: lane i is lane table[i] of x, then y.
// - RADD, ...: lanes are a power of two; the upper half is combined with the
//   lower (lane i = lane i op lane i + n/2) until one lane is left.
// - DOT4 acc, a, b: int32 lane i is acc + the sum over j < 4 of a[4i+j] *
//   b[4i+j]; a and b are int8 or uint8, independently. It wraps.
// - PTR p, i is p + i elements + imm bytes. Any address may be computed; only
//   accesses must be inside the memory that the pointer was derived from.
// - LOAD p[, mask[, other]]: masked-off lanes are not read; they are those of
//   other, else 0. STORE p, value[, mask]. imm is the alignment of p in bytes,
//   0: that of an element. GATHER p, indices[, mask[, other]] and SCATTER p,
//   indices, value[, mask] take int32 or int64 indices in elements; of equal
//   indices the last store wins. A bool in memory is a byte, true unless 0.
// - LOCAL: imm elements of the work group's memory, initially undefined.
//   BARRIER is reached by all work items of a group, or by none. On a CPU a
//   group is one item.
// - PREFETCH reads nothing and may name any address; imm 0, 1, 2: L1, L2, L3.
#ifndef LB_KIR_KIR_H
#define LB_KIR_KIR_H

#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

#define LB_K_MAX_LANES 64
#define LB_K_MAX_DEPTH 64          // of blocks
#define LB_K_MAX_INSTS (1u << 20)  // of a kernel
#define LB_K_MAX_LOCAL (1u << 20)  // bytes of one LOCAL
#define LB_K_MAX_ALIGN 4096        // of LOAD and STORE
#define LB_K_NONE UINT32_MAX       // no value
#define LB_K_NAME 64               // bytes of a name, with its NUL

typedef enum lb_kop {
#define LB_KOP(ID, ...) LB_K_##ID,
#include "kir/kops.def"
  LB_K_COUNT
} lb_kop;

typedef enum lb_kclass {
  LB_KC_EXACT,
  LB_KC_PURE,
  LB_KC_READ,
  LB_KC_EFFECT,
  LB_KC_BLOCK,
} lb_kclass;

typedef enum lb_kimm {
  LB_KI_NONE,
  LB_KI_VALUE,
  LB_KI_SLOT,
  LB_KI_LANE,
  LB_KI_TABLE,  // start of the lane table
  LB_KI_DISP,
  LB_KI_ALIGN,
  LB_KI_LEVEL,
  LB_KI_COUNT,
} lb_kimm;

enum {
  LB_K_POINTER = 1,  // type: a pointer to elements of dtype
  LB_K_SHARED = 2,  // type: to LOCAL memory; on a GPU a different address space
  LB_K_READONLY = 4,  // type: must not be stored through
  LB_K_TYPE_FLAGS = 7,
  LB_K_STREAM = 8,  // LOAD, STORE: non-temporal
};

typedef struct lb_kinst {
  uint8_t op;      // lb_kop
  uint8_t dtype;   // lb_dtype; LB_NONE: no value
  uint16_t lanes;  // 1 for scalars and pointers, 0 without a value
  uint16_t n_src;
  uint16_t flags;  // LB_K_POINTER, ...
  uint32_t src;    // first operand in the pool
  uint32_t axis;   // LOOP, GROUP_ID, LOCAL_ID: the axis; else 0
  int64_t imm;     // see lb_kimm; else 0
} lb_kinst;
_Static_assert(sizeof(lb_kinst) == 24, "programs are scanned often");

typedef struct lb_kernel {
  char name[LB_K_NAME];  // letters, digits and _; padded with zeros
  uint32_t local[3];     // work items per group and axis, each at least 1
  uint32_t n_insts, n_pool, n_tables;
  lb_kinst *insts;  // owned, as are pool and tables
  uint32_t *pool;   // operands
  uint8_t *tables;  // lane tables of SHUFFLEs
} lb_kernel;

typedef struct lb_ktype {
  uint8_t dtype;
  uint8_t flags;  // of LB_K_TYPE_FLAGS
  uint16_t lanes;
} lb_ktype;

typedef struct lb_kop_info {
  const char *text;
  uint8_t min_src, max_src;
  uint8_t cls;     // lb_kclass
  uint8_t rule;    // type.h
  uint8_t dtypes;  // type.h
  uint8_t imm;     // lb_kimm
} lb_kop_info;

extern const lb_kop_info lb_kop_infos[LB_K_COUNT];

static inline lb_ktype lb_kt(lb_dtype dtype, uint32_t lanes) {
  return (lb_ktype){(uint8_t)dtype, 0, (uint16_t)lanes};
}
static inline lb_ktype lb_kt_ptr(lb_dtype dtype, unsigned flags) {
  return (lb_ktype){(uint8_t)dtype, (uint8_t)(flags | LB_K_POINTER), 1};
}
static inline lb_ktype lb_ktype_of(const lb_kinst *in) {
  return (lb_ktype){in->dtype, (uint8_t)(in->flags & LB_K_TYPE_FLAGS),
                    in->lanes};
}
static inline bool lb_ktype_eq(lb_ktype a, lb_ktype b) {
  return a.dtype == b.dtype && a.flags == b.flags && a.lanes == b.lanes;
}
static inline bool lb_ktype_is_ptr(lb_ktype t) {
  return (t.flags & LB_K_POINTER) != 0;
}

void lb_kernel_fini(lb_kernel *k);  // {0} is fine
lb_status lb_kernel_copy(const lb_kernel *k, lb_kernel *out);
bool lb_kernel_eq(const lb_kernel *a, const lb_kernel *b);  // bytewise
uint32_t lb_kernel_params(const lb_kernel *k);              // number of PARAMs

static inline const uint32_t *lb_kernel_srcs(const lb_kernel *k,
                                             const lb_kinst *in) {
  return k->pool + in->src;
}
static inline const lb_kinst *lb_kernel_src(const lb_kernel *k,
                                            const lb_kinst *in, uint32_t i) {
  return &k->insts[k->pool[in->src + i]];
}
static inline const uint8_t *lb_kernel_table(const lb_kernel *k,
                                             const lb_kinst *in) {
  return k->tables + in->imm;
}
// The value of an integer or bool CONST.
int64_t lb_kconst_int(const lb_kinst *in);

// For each of the n_insts instructions of a verified kernel:
// - its partner: LOOP -> END; IF -> ELSE or END; ELSE -> END; END -> LOOP or
//   IF; others LB_K_NONE;
// - its parent: the LOOP, IF or ELSE whose block contains it, or LB_K_NONE; for
//   ELSE its IF, for END its LOOP or IF.
void lb_kernel_partners(const lb_kernel *k, uint32_t *out);
void lb_kernel_parents(const lb_kernel *k, uint32_t *out);

// LB_INTERNAL, naming the instruction by index and text, unless all invariants
// above hold. The arrays may have any contents.
lb_status lb_kernel_verify(const lb_kernel *k);

// One instruction per line, blocks indented. An omitted attribute is 0.
void lb_kernel_print(const lb_kernel *k, lb_strbuf *out);
void lb_kernel_print_inst(const lb_kernel *k, uint32_t i, lb_strbuf *out);
void lb_ktype_print(lb_ktype t, lb_strbuf *out);  // "f32x16", "ptr.f32"

// Reads the output of print; `text` ends with a NUL. Checks syntax only; verify
// checks the rest. LB_INVALID names the line. Numbers are read in the C locale.
lb_status lb_kernel_parse(const char *text, lb_kernel *out);

// Same results with fewer instructions: folds constants, applies exact
// identities, merges equal values, hoists address arithmetic out of loops,
// removes dead code. `k` must be verified; on failure it is unchanged.
lb_status lb_kernel_simplify(lb_kernel *k);

#endif
