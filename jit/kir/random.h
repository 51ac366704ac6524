// kir/random.h -- For tests: random kernels, and memory for them to run on.
#ifndef LB_KIR_RANDOM_H
#define LB_KIR_RANDOM_H

#include "kir/testkit.h"

#include <stdlib.h>

#include "kir/num.h"
#include "kir/type.h"

enum { ELEMENTS = 256, MAX_VALUES = 512 };

// Memory of a kernel: one array for each dtype below.
static const lb_dtype arrays[] = {LB_F32, LB_I32,  LB_U8,   LB_I64,
                                  LB_F16, LB_BOOL, LB_BF16, LB_F64};
enum { ARRAYS = sizeof arrays / sizeof *arrays };

typedef struct gen {
  lb_kbuilder b;
  uint64_t seed;
  bool exact;
  lb_kval params[ARRAYS];
  lb_kval values[MAX_VALUES];  // visible here
  unsigned n_values;
  lb_kval regs[MAX_VALUES];
  unsigned n_regs;
  unsigned depth;
} gen;

static unsigned draw(gen *g, unsigned n) {
  g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)((g->seed >> 33) % n);
}

static lb_kval add_value(gen *g, lb_kval v) {
  if (g->n_values < MAX_VALUES) g->values[g->n_values++] = v;
  return v;
}

// -- values ------------------------------------------------------------------

static lb_ktype draw_type(gen *g, unsigned kinds) {
  static const uint16_t lanes[] = {1, 1, 2, 4, 8};
  for (;;) {
    lb_dtype t = (lb_dtype)(1 + draw(g, LB_DTYPE_COUNT - 1));
    unsigned kind = lb_dtype_is_float(t)     ? LB_KD_FLOAT
                    : lb_dtype_is_integer(t) ? LB_KD_INT
                                             : LB_KD_BOOL;
    if (kind & kinds) return lb_kt(t, lanes[draw(g, 5)]);
  }
}

// Numbers that occur in identities and edge cases. No NaN with a payload.
static lb_kval draw_const(gen *g, lb_ktype t) {
  static const double numbers[] = {0,    -0.0, 1,   -1, 2,  3, 7, 0.5,
                                   -2.5, 1e30, 255, 64, -3, 4, 8, 1 / 0.0};
  return add_value(g, lb_k_num(&g->b, t, numbers[draw(g, 16)]));
}

static lb_kval pick(gen *g, lb_ktype t) {
  for (int tries = 0; tries < 24 && g->n_values; tries++) {
    lb_kval v = g->values[draw(g, g->n_values)];
    if (lb_ktype_eq(lb_k_type(&g->b, v), t)) return v;
  }
  return draw_const(g, t);
}

static lb_kval pick_i64(gen *g) { return pick(g, lb_kt(LB_I64, 1)); }

// An address inside array n, for any index.
static lb_kval draw_address(gen *g, unsigned n) {
  lb_kval low = lb_k_and(&g->b, pick_i64(g), lb_k_i64(&g->b, 127));
  int64_t size = (int64_t)lb_dtype_size(arrays[n]);
  return lb_k_ptr(&g->b, g->params[n], low, size * (int64_t)draw(g, 9));
}

typedef lb_kval unary_fn(lb_kbuilder *b, lb_kval x);
typedef lb_kval binary_fn(lb_kbuilder *b, lb_kval x, lb_kval y);
typedef lb_kval ternary_fn(lb_kbuilder *b, lb_kval x, lb_kval y, lb_kval z);
static unary_fn *const unaries[LB_K_COUNT] = {
#define LB_KUNARY(ID, text, ...) [LB_K_##ID] = lb_k_##text,
#include "kir/kops.def"
};
static binary_fn *const binaries[LB_K_COUNT] = {
#define LB_KBINARY(ID, text, ...) [LB_K_##ID] = lb_k_##text,
#include "kir/kops.def"
};
static ternary_fn *const ternaries[LB_K_COUNT] = {
#define LB_KTERNARY(ID, text, ...) [LB_K_##ID] = lb_k_##text,
#include "kir/kops.def"
};

// An operation on operands of one type.
static lb_kval same_op(gen *g, unsigned op) {
  lb_ktype t = draw_type(g, lb_kop_infos[op].dtypes);
  if (unaries[op]) return unaries[op](&g->b, pick(g, t));
  if (binaries[op]) return binaries[op](&g->b, pick(g, t), pick(g, t));
  return ternaries[op](&g->b, pick(g, t), pick(g, t), pick(g, t));
}

static lb_kval draw_shuffle(gen *g) {
  lb_ktype t = draw_type(g, LB_KD_ALL);
  uint8_t table[8];
  bool two = draw(g, 2);
  bool straight = draw(g, 3) == 0;
  for (unsigned i = 0; i < 8; i++)
    table[i] =
        (uint8_t)(straight ? i % t.lanes : draw(g, t.lanes * (two ? 2u : 1u)));
  uint32_t lanes = straight ? t.lanes : 1u << draw(g, 4);
  return lb_k_shuffle(&g->b, pick(g, t), two ? pick(g, t) : LB_K_NONE, table,
                      lanes);
}

static lb_kval draw_bitcast(gen *g) {
  lb_ktype t = draw_type(g, g->exact ? LB_KD_INT : LB_KD_NUM);
  lb_dtype to = draw(g, 2) ? LB_U8 : LB_U16;
  if (lb_dtype_size(t.dtype) < 2) to = LB_I8;
  return lb_k_bitcast(&g->b, pick(g, t), to);
}

static lb_kval draw_load(gen *g) {
  unsigned n = draw(g, ARRAYS), lanes = 1u << draw(g, 4);
  lb_ktype t = lb_kt(arrays[n], lanes);
  lb_kval p = draw_address(g, n);
  lb_kval mask = pick(g, lb_kt(LB_BOOL, lanes));
  switch (draw(g, 4)) {
    case 0: return lb_k_load(&g->b, p, lanes, 1);
    case 1: return lb_k_load_masked(&g->b, p, lanes, 0, mask, LB_K_NONE);
    case 2: return lb_k_load_masked(&g->b, p, lanes, 0, mask, pick(g, t));
    default: {
      lb_kval i = pick(g, lb_kt(LB_I64, lanes));
      i = lb_k_and(&g->b, i, lb_k_like(&g->b, i, 63));
      return lb_k_gather(&g->b, p, i, mask, pick(g, t));
    }
  }
}

static void draw_store(gen *g) {
  unsigned n = draw(g, ARRAYS), lanes = 1u << draw(g, 4);
  lb_kval p = draw_address(g, n), v = pick(g, lb_kt(arrays[n], lanes));
  lb_kval mask = draw(g, 2) ? pick(g, lb_kt(LB_BOOL, lanes)) : LB_K_NONE;
  if (draw(g, 4)) {
    lb_k_store_masked(&g->b, p, v, 0, mask);
    return;
  }
  lb_kval i = lb_k_and(&g->b, pick(g, lb_kt(LB_I64, lanes)),
                       lb_k_num(&g->b, lb_kt(LB_I64, lanes), 63));
  lb_k_scatter(&g->b, p, i, v, mask);
}

static lb_kval draw_value(gen *g) {
  unsigned op = draw(g, LB_K_COUNT);
  lb_ktype t = draw_type(g, LB_KD_ALL), one = lb_kt(t.dtype, 1);
  if (g->exact && lb_kop_infos[op].cls == LB_KC_PURE) return draw_const(g, t);
  switch (lb_kop_infos[op].rule) {
    case LB_KR_SAME:
    case LB_KR_COMPARE:
    case LB_KR_REDUCE: return same_op(g, op);
    case LB_KR_SELECT:
      return lb_k_select(&g->b,
                         pick(g, lb_kt(LB_BOOL, draw(g, 2) ? 1 : t.lanes)),
                         pick(g, t), pick(g, t));
    case LB_KR_CAST:
      return lb_k_cast(&g->b, pick(g, t), draw_type(g, LB_KD_ALL).dtype);
    case LB_KR_BITCAST: return draw_bitcast(g);
    case LB_KR_SPLAT: return lb_k_splat(&g->b, pick(g, one), t.lanes);
    case LB_KR_IOTA:
      return lb_k_iota(&g->b, draw_type(g, LB_KD_INT).dtype, t.lanes);
    case LB_KR_EXTRACT:
      return lb_k_extract(&g->b, pick(g, t), draw(g, t.lanes));
    case LB_KR_INSERT:
      return lb_k_insert(&g->b, pick(g, t), pick(g, one), draw(g, t.lanes));
    case LB_KR_SHUFFLE: return draw_shuffle(g);
    case LB_KR_TAIL: return lb_k_tail(&g->b, pick_i64(g), t.lanes);
    case LB_KR_DOT4:
      return lb_k_dot4(&g->b, pick(g, lb_kt(LB_I32, 2)),
                       pick(g, lb_kt(draw(g, 2) ? LB_I8 : LB_U8, 8)),
                       pick(g, lb_kt(draw(g, 2) ? LB_I8 : LB_U8, 8)));
    case LB_KR_LOAD: return draw_load(g);
    case LB_KR_ID: return lb_k_group_id(&g->b, draw(g, 3));
    default: return draw_const(g, t);
  }
}

// -- blocks ------------------------------------------------------------------

static void draw_block(gen *g, unsigned n);

// reg = reg op something, the typical use of a loop.
static void accumulate(gen *g) {
  if (!g->n_regs) return;
  lb_kval reg = g->regs[draw(g, g->n_regs)], old = lb_k_get(&g->b, reg);
  lb_ktype t = lb_k_type(&g->b, reg);
  lb_kval v = pick(g, t);
  lb_k_set(
      &g->b, reg,
      t.dtype == LB_BOOL ? lb_k_xor(&g->b, old, v) : lb_k_sub(&g->b, v, old));
  add_value(g, old);
}

static void draw_body(gen *g) {
  unsigned values = g->n_values, regs = g->n_regs;
  g->depth++;
  accumulate(g);
  draw_block(g, 3 + draw(g, 8));
  accumulate(g);
  g->depth--;
  g->n_values = values, g->n_regs = regs;
}

static void draw_loop(gen *g) {
  unsigned values = g->n_values;
  lb_kval end = draw(g, 2) ? lb_k_i64(&g->b, draw(g, 5))
                           : lb_k_and(&g->b, pick_i64(g), lb_k_i64(&g->b, 3));
  add_value(g, lb_k_loop(&g->b, lb_k_i64(&g->b, draw(g, 2)), end,
                         lb_k_i64(&g->b, 1 + draw(g, 3))));
  draw_body(g);
  lb_k_end(&g->b);
  g->n_values = values;
}

static void draw_if(gen *g) {
  lb_k_if(&g->b, pick(g, lb_kt(LB_BOOL, 1)));
  draw_body(g);
  if (draw(g, 2)) {
    lb_k_else(&g->b);
    draw_body(g);
  }
  lb_k_end(&g->b);
}

static void draw_reg(gen *g) {
  if (!g->n_regs || draw(g, 4) == 0) {
    lb_kval init = pick(g, draw_type(g, LB_KD_ALL));
    if (g->n_regs < MAX_VALUES) g->regs[g->n_regs++] = lb_k_reg(&g->b, init);
    return;
  }
  lb_kval reg = g->regs[draw(g, g->n_regs)];
  if (draw(g, 2))
    add_value(g, lb_k_get(&g->b, reg));
  else
    lb_k_set(&g->b, reg, pick(g, lb_k_type(&g->b, reg)));
}

static void draw_block(gen *g, unsigned n) {
  for (unsigned i = 0; i < n; i++) {
    unsigned what = draw(g, 20);
    if (what == 0 && g->depth < 3)
      draw_loop(g);
    else if (what == 1 && g->depth < 3)
      draw_if(g);
    else if (what < 6)
      draw_reg(g);
    else if (what < 9)
      draw_store(g);
    else
      add_value(g, draw_value(g));
  }
}

// Stores v, of any type, at its own index.
static void observe(gen *g, lb_kval v, unsigned index) {
  lb_kval wide = lb_k_cast(&g->b, v, LB_F64);
  lb_kval at = lb_k_i64(&g->b, index * 8 % (ELEMENTS - 8));
  lb_k_store(&g->b, lb_k_ptr(&g->b, g->params[ARRAYS - 1], at, 0), wide, 0);
}

// `exact`: kernels that machine code must reproduce bit for bit, without
// inexact functions, NaN payloads as integers, or group ids.
static void draw_kernel(uint64_t seed, bool exact, lb_kernel *out) {
  gen *g = calloc(1, sizeof *g);
  g->seed = seed;
  g->exact = exact;
  lb_kbuild_init(&g->b, "random");
  for (int i = 0; i < ARRAYS; i++)
    g->params[i] = lb_k_param(&g->b, lb_kt_ptr(arrays[i], 0));
  add_value(g, lb_k_param(&g->b, lb_kt(LB_I64, 1)));
  add_value(g, lb_k_param(&g->b, lb_kt(LB_F32, 1)));
  draw_reg(g);
  draw_block(g, 30);
  for (int i = 0; i < 12; i++) draw_store(g);
  for (unsigned i = 0; i < g->n_regs; i++)
    observe(g, lb_k_get(&g->b, g->regs[i]), i);
  assert_ok(lb_kernel_finish(&g->b, out));
  free(g);
}

// -- running -----------------------------------------------------------------

enum { ARRAY_BYTES = ELEMENTS * 8, N_ARGS = ARRAYS + 2 };

// Memory and arguments of a kernel; 8 bytes per element for every array. The
// caller frees the result.
static char *draw_memory(lb_karg args[N_ARGS]) {
  char *memory = calloc(ARRAYS, ARRAY_BYTES);
  for (int a = 0; a < ARRAYS; a++) {
    size_t size = lb_dtype_size(arrays[a]);
    for (int i = 0; i < ELEMENTS; i++) {
      uint64_t bits = lb_knum_bits(arrays[a], (i % 23 - 11) * 0.75);
      memcpy(memory + a * ARRAY_BYTES + (size_t)i * size, &bits, size);
    }
    args[a] = lb_karg_mem(memory + a * ARRAY_BYTES, ELEMENTS * size);
  }
  args[ARRAYS] = lb_karg_i64(5);
  args[ARRAYS + 1] = lb_karg_num(LB_F32, -1.25);
  return memory;
}

#endif
