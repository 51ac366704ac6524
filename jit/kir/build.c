// kir/build.c -- Appends instructions to a kernel and records the first error.
#include "kir/build.h"

#include <stdlib.h>
#include <string.h>

#include "kir/num.h"
#include "kir/type.h"

void lb_kbuild_init(lb_kbuilder *b, const char *name) {
  *b = (lb_kbuilder){.k.local = {1, 1, 1}};
  size_t n = strlen(name);
  if (n < sizeof b->k.name)
    memcpy(b->k.name, name, n);
  else
    b->error = lb_error(LB_INTERNAL, "kernel name '%s' is too long", name);
}

void lb_kbuild_local(lb_kbuilder *b, uint32_t x, uint32_t y, uint32_t z) {
  b->k.local[0] = x, b->k.local[1] = y, b->k.local[2] = z;
}

void lb_kbuild_fail(lb_kbuilder *b, lb_status st) {
  if (lb_failed(b->error))
    lb_status_drop(st);
  else
    b->error = st;
}

lb_status lb_kernel_take(lb_kbuilder *b, lb_kernel *out) {
  lb_status st = b->error;
  *out = b->k;
  *b = (lb_kbuilder){0};
  if (lb_failed(st)) lb_kernel_fini(out);
  return st;
}

lb_status lb_kernel_finish(lb_kbuilder *b, lb_kernel *out) {
  LB_TRY(lb_kernel_take(b, out));
  lb_status st = lb_kernel_verify(out);
  if (lb_failed(st)) lb_kernel_fini(out);
  return st;
}

lb_ktype lb_k_type(const lb_kbuilder *b, lb_kval v) {
  if (v >= b->k.n_insts) return (lb_ktype){0};
  return lb_ktype_of(&b->k.insts[v]);
}

// -- appending ---------------------------------------------------------------

static bool grow(void **data, uint32_t *cap, uint64_t need, size_t size) {
  if (need <= *cap) return true;
  uint64_t next = *cap ? *cap : 64;
  while (next < need) next *= 2;
  if (next > UINT32_MAX / 2) return false;
  void *p = realloc(*data, next * size);
  if (!p) return false;
  *data = p;
  *cap = (uint32_t)next;
  return true;
}

// No array stays NULL, so that pointers to empty ranges are valid.
static bool reserve(lb_kbuilder *b, uint32_t n_src, uint32_t n_table) {
  lb_kernel *k = &b->k;
  if (k->n_insts >= LB_K_MAX_INSTS) {
    lb_kbuild_fail(
        b, lb_error(LB_UNSUPPORTED, "kernel %s has too many instructions: %u",
                    k->name, k->n_insts));
    return false;
  }
  void *insts = k->insts, *pool = k->pool, *tables = k->tables;
  bool ok =
      grow(&insts, &b->cap_insts, (uint64_t)k->n_insts + 1, sizeof *k->insts) &&
      grow(&pool, &b->cap_pool, (uint64_t)k->n_pool + n_src + 1,
           sizeof *k->pool) &&
      grow(&tables, &b->cap_tables, (uint64_t)k->n_tables + n_table + 1, 1);
  k->insts = insts, k->pool = pool, k->tables = tables;
  if (!ok) lb_kbuild_fail(b, lb_oom());
  return ok;
}

lb_kval lb_k_push(lb_kbuilder *b, lb_kinst in, const lb_kval *src,
                  const uint8_t *table) {
  lb_kernel *k = &b->k;
  uint32_t n_table = in.op == LB_K_SHUFFLE ? in.lanes : 0;
  if (lb_failed(b->error) || !reserve(b, in.n_src, n_table)) return LB_K_NONE;
  in.src = k->n_pool;
  for (uint32_t i = 0; i < in.n_src; i++) k->pool[k->n_pool++] = src[i];
  if (in.op == LB_K_SHUFFLE) {
    in.imm = k->n_tables;
    memcpy(k->tables + k->n_tables, table, n_table);
    k->n_tables += n_table;
  }
  k->insts[k->n_insts] = in;
  return k->n_insts++;
}

// Appends `in` with a type inferred from its operands. Trailing LB_K_NONE
// operands are omitted.
static lb_kval emit(lb_kbuilder *b, lb_kinst in, const lb_kval *src, uint32_t n,
                    const uint8_t *table) {
  if (lb_failed(b->error)) return LB_K_NONE;
  lb_ktype types[4], t = {0};
  while (n && src[n - 1] == LB_K_NONE) n--;
  in.n_src = (uint16_t)n;
  const char *wrong = NULL;
  for (uint32_t i = 0; i < n; i++) {
    types[i] = lb_k_type(b, src[i]);
    if (src[i] >= b->k.n_insts) wrong = "uses an undefined value";
  }
  if (!wrong) wrong = lb_kinfer(&in, types, table, &t);
  if (wrong) {
    lb_kbuild_fail(b,
                   lb_error(LB_INTERNAL, "kernel %s: %%%u = %s: %s", b->k.name,
                            b->k.n_insts, lb_kop_infos[in.op].text, wrong));
    return LB_K_NONE;
  }
  in.dtype = t.dtype, in.lanes = t.lanes;
  in.flags = (uint16_t)(t.flags | (in.flags & LB_K_STREAM));
  return lb_k_push(b, in, src, table);
}

#define EMIT(n, inst, ...) \
  emit(b, (lb_kinst)inst, (lb_kval[]){__VA_ARGS__}, n, NULL)
#define INST(...) \
  { __VA_ARGS__ }

#define LB_KUNARY(ID, text, ...)                   \
  lb_kval lb_k_##text(lb_kbuilder *b, lb_kval x) { \
    return EMIT(1, INST(.op = LB_K_##ID), x);      \
  }
#define LB_KBINARY(ID, text, ...)                             \
  lb_kval lb_k_##text(lb_kbuilder *b, lb_kval x, lb_kval y) { \
    return EMIT(2, INST(.op = LB_K_##ID), x, y);              \
  }
#define LB_KTERNARY(ID, text, ...)                                       \
  lb_kval lb_k_##text(lb_kbuilder *b, lb_kval x, lb_kval y, lb_kval z) { \
    return EMIT(3, INST(.op = LB_K_##ID), x, y, z);                      \
  }
#include "kir/kops.def"

static lb_kval leaf(lb_kbuilder *b, lb_kinst in, lb_ktype t) {
  in.dtype = t.dtype, in.lanes = t.lanes, in.flags = t.flags;
  return emit(b, in, NULL, 0, NULL);
}

lb_kval lb_k_param(lb_kbuilder *b, lb_ktype t) {
  return leaf(b, (lb_kinst){.op = LB_K_PARAM, .imm = b->k.n_insts}, t);
}

lb_kval lb_k_const(lb_kbuilder *b, lb_ktype t, uint64_t bits) {
  return leaf(b, (lb_kinst){.op = LB_K_CONST, .imm = (int64_t)bits}, t);
}

lb_kval lb_k_num(lb_kbuilder *b, lb_ktype t, double x) {
  return lb_k_const(b, t, lb_knum_bits(t.dtype, x));
}

lb_kval lb_k_like(lb_kbuilder *b, lb_kval v, double x) {
  return lb_k_num(b, lb_k_type(b, v), x);
}

lb_kval lb_k_i64(lb_kbuilder *b, int64_t x) {
  return lb_k_const(b, lb_kt(LB_I64, 1), (uint64_t)x);
}

lb_kval lb_k_f32(lb_kbuilder *b, float x) {
  return lb_k_num(b, lb_kt(LB_F32, 1), (double)x);
}

lb_kval lb_k_group_id(lb_kbuilder *b, uint32_t axis) {
  return EMIT(0, INST(.op = LB_K_GROUP_ID, .axis = axis), 0);
}

lb_kval lb_k_local_id(lb_kbuilder *b, uint32_t axis) {
  return EMIT(0, INST(.op = LB_K_LOCAL_ID, .axis = axis), 0);
}

lb_kval lb_k_cast(lb_kbuilder *b, lb_kval x, lb_dtype to) {
  return EMIT(1, INST(.op = LB_K_CAST, .dtype = (uint8_t)to), x);
}

lb_kval lb_k_bitcast(lb_kbuilder *b, lb_kval x, lb_dtype to) {
  return EMIT(1, INST(.op = LB_K_BITCAST, .dtype = (uint8_t)to), x);
}

// -- lanes -------------------------------------------------------------------

// The typing rules reject more than 64 lanes; here they must only not wrap.
static uint16_t to_lanes(uint32_t n) {
  return n > UINT16_MAX ? UINT16_MAX : (uint16_t)n;
}

lb_kval lb_k_splat(lb_kbuilder *b, lb_kval x, uint32_t lanes) {
  return EMIT(1, INST(.op = LB_K_SPLAT, .lanes = to_lanes(lanes)), x);
}

lb_kval lb_k_iota(lb_kbuilder *b, lb_dtype t, uint32_t lanes) {
  return leaf(b, (lb_kinst){.op = LB_K_IOTA}, lb_kt(t, to_lanes(lanes)));
}

lb_kval lb_k_extract(lb_kbuilder *b, lb_kval x, uint32_t lane) {
  return EMIT(1, INST(.op = LB_K_EXTRACT, .imm = lane), x);
}

lb_kval lb_k_insert(lb_kbuilder *b, lb_kval x, lb_kval y, uint32_t lane) {
  return EMIT(2, INST(.op = LB_K_INSERT, .imm = lane), x, y);
}

lb_kval lb_k_shuffle(lb_kbuilder *b, lb_kval x, lb_kval y, const uint8_t *table,
                     uint32_t lanes) {
  lb_kinst in = {.op = LB_K_SHUFFLE, .lanes = to_lanes(lanes)};
  return emit(b, in, (lb_kval[]){x, y}, 2, table);
}

lb_kval lb_k_tail(lb_kbuilder *b, lb_kval n, uint32_t lanes) {
  return EMIT(1, INST(.op = LB_K_TAIL, .lanes = to_lanes(lanes)), n);
}

// -- memory ------------------------------------------------------------------

lb_kval lb_k_ptr(lb_kbuilder *b, lb_kval p, lb_kval i, int64_t disp) {
  return EMIT(2, INST(.op = LB_K_PTR, .imm = disp), p, i);
}

lb_kval lb_k_local(lb_kbuilder *b, lb_dtype t, int64_t count) {
  return leaf(b, (lb_kinst){.op = LB_K_LOCAL, .imm = count}, lb_kt_ptr(t, 0));
}

lb_kval lb_k_load(lb_kbuilder *b, lb_kval p, uint32_t lanes, uint32_t align) {
  return lb_k_load_masked(b, p, lanes, align, LB_K_NONE, LB_K_NONE);
}

lb_kval lb_k_load_masked(lb_kbuilder *b, lb_kval p, uint32_t lanes,
                         uint32_t align, lb_kval mask, lb_kval other) {
  return EMIT(3, INST(.op = LB_K_LOAD, .lanes = to_lanes(lanes), .imm = align),
              p, mask, other);
}

void lb_k_store(lb_kbuilder *b, lb_kval p, lb_kval v, uint32_t align) {
  lb_k_store_masked(b, p, v, align, LB_K_NONE);
}

void lb_k_store_masked(lb_kbuilder *b, lb_kval p, lb_kval v, uint32_t align,
                       lb_kval mask) {
  EMIT(3, INST(.op = LB_K_STORE, .imm = align), p, v, mask);
}

lb_kval lb_k_gather(lb_kbuilder *b, lb_kval p, lb_kval indices, lb_kval mask,
                    lb_kval other) {
  return EMIT(4, INST(.op = LB_K_GATHER), p, indices, mask, other);
}

void lb_k_scatter(lb_kbuilder *b, lb_kval p, lb_kval indices, lb_kval v,
                  lb_kval mask) {
  EMIT(4, INST(.op = LB_K_SCATTER), p, indices, v, mask);
}

void lb_k_prefetch(lb_kbuilder *b, lb_kval p, uint32_t level) {
  EMIT(1, INST(.op = LB_K_PREFETCH, .imm = level), p);
}

void lb_k_stream(lb_kbuilder *b) {
  if (b->k.n_insts) b->k.insts[b->k.n_insts - 1].flags |= LB_K_STREAM;
}

void lb_k_barrier(lb_kbuilder *b) { EMIT(0, INST(.op = LB_K_BARRIER), 0); }

// -- registers and blocks ----------------------------------------------------

lb_kval lb_k_reg(lb_kbuilder *b, lb_kval init) {
  return EMIT(1, INST(.op = LB_K_REG), init);
}

lb_kval lb_k_get(lb_kbuilder *b, lb_kval reg) {
  return EMIT(1, INST(.op = LB_K_GET), reg);
}

void lb_k_set(lb_kbuilder *b, lb_kval reg, lb_kval v) {
  EMIT(2, INST(.op = LB_K_SET), reg, v);
}

lb_kval lb_k_loop(lb_kbuilder *b, lb_kval begin, lb_kval end, lb_kval step) {
  return EMIT(3, INST(.op = LB_K_LOOP), begin, end, step);
}

void lb_k_if(lb_kbuilder *b, lb_kval cond) {
  EMIT(1, INST(.op = LB_K_IF), cond);
}

void lb_k_else(lb_kbuilder *b) { EMIT(0, INST(.op = LB_K_ELSE), 0); }

void lb_k_end(lb_kbuilder *b) { EMIT(0, INST(.op = LB_K_END), 0); }
