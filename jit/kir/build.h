// kir/build.h -- Builds kernels, one call per instruction.
//
//   lb_kbuilder b;
//   lb_kbuild_init(&b, "scale");
//   lb_kval x = lb_k_param(&b, lb_kt_ptr(LB_F32, 0));
//   ...
//   lb_kval y = lb_k_mul(&b, lb_k_load(&b, x, 16, 64), s);
//   lb_k_store(&b, x, y, 64);
//   LB_TRY(lb_kernel_finish(&b, &kernel));
//
// Types are inferred and checked. The builder stores the first error and
// ignores all later calls, so it is enough to check the status of finish. One
// thread at a time.
#ifndef LB_KIR_BUILD_H
#define LB_KIR_BUILD_H

#include "kir/kir.h"

typedef uint32_t lb_kval;  // LB_K_NONE after an error

typedef struct lb_kbuilder {
  lb_kernel k;      // owned, under construction
  lb_status error;  // owned; the first one
  uint32_t cap_insts, cap_pool, cap_tables;
} lb_kbuilder;

void lb_kbuild_init(lb_kbuilder *b, const char *name);
// Work items of a group; default 1, 1, 1.
void lb_kbuild_local(lb_kbuilder *b, uint32_t x, uint32_t y, uint32_t z);
// Verifies the kernel and leaves the builder empty. *out is {0} on failure.
lb_status lb_kernel_finish(lb_kbuilder *b, lb_kernel *out);
lb_ktype lb_k_type(const lb_kbuilder *b, lb_kval v);

// -- leaves
lb_kval lb_k_param(lb_kbuilder *b, lb_ktype t);  // slots in order of the calls
lb_kval lb_k_const(lb_kbuilder *b, lb_ktype t, uint64_t bits);
lb_kval lb_k_num(lb_kbuilder *b, lb_ktype t, double x);  // all lanes are x
lb_kval lb_k_like(lb_kbuilder *b, lb_kval v, double x);  // of v's type
lb_kval lb_k_i64(lb_kbuilder *b, int64_t x);
lb_kval lb_k_f32(lb_kbuilder *b, float x);
lb_kval lb_k_group_id(lb_kbuilder *b, uint32_t axis);
lb_kval lb_k_local_id(lb_kbuilder *b, uint32_t axis);

// -- lb_k_add(b, x, y), lb_k_exp(b, x), lb_k_select(b, cond, x, y), ...
#define LB_KUNARY(ID, text, ...) lb_kval lb_k_##text(lb_kbuilder *b, lb_kval x);
#define LB_KBINARY(ID, text, ...) \
  lb_kval lb_k_##text(lb_kbuilder *b, lb_kval x, lb_kval y);
#define LB_KTERNARY(ID, text, ...) \
  lb_kval lb_k_##text(lb_kbuilder *b, lb_kval x, lb_kval y, lb_kval z);
#include "kir/kops.def"

static inline lb_kval lb_k_gt(lb_kbuilder *b, lb_kval x, lb_kval y) {
  return lb_k_lt(b, y, x);
}
static inline lb_kval lb_k_ge(lb_kbuilder *b, lb_kval x, lb_kval y) {
  return lb_k_le(b, y, x);
}
lb_kval lb_k_cast(lb_kbuilder *b, lb_kval x, lb_dtype to);
lb_kval lb_k_bitcast(lb_kbuilder *b, lb_kval x, lb_dtype to);

// -- lanes
lb_kval lb_k_splat(lb_kbuilder *b, lb_kval x, uint32_t lanes);
lb_kval lb_k_iota(lb_kbuilder *b, lb_dtype t, uint32_t lanes);
lb_kval lb_k_extract(lb_kbuilder *b, lb_kval x, uint32_t lane);
lb_kval lb_k_insert(lb_kbuilder *b, lb_kval x, lb_kval y, uint32_t lane);
// y may be LB_K_NONE; the table is copied.
lb_kval lb_k_shuffle(lb_kbuilder *b, lb_kval x, lb_kval y, const uint8_t *table,
                     uint32_t lanes);
lb_kval lb_k_tail(lb_kbuilder *b, lb_kval n, uint32_t lanes);

// -- memory; `align` is in bytes, 0: that of an element; mask and other may be
// LB_K_NONE
lb_kval lb_k_ptr(lb_kbuilder *b, lb_kval p, lb_kval i, int64_t disp);
lb_kval lb_k_local(lb_kbuilder *b, lb_dtype t, int64_t count);
lb_kval lb_k_load(lb_kbuilder *b, lb_kval p, uint32_t lanes, uint32_t align);
lb_kval lb_k_load_masked(lb_kbuilder *b, lb_kval p, uint32_t lanes,
                         uint32_t align, lb_kval mask, lb_kval other);
void lb_k_store(lb_kbuilder *b, lb_kval p, lb_kval v, uint32_t align);
void lb_k_store_masked(lb_kbuilder *b, lb_kval p, lb_kval v, uint32_t align,
                       lb_kval mask);
lb_kval lb_k_gather(lb_kbuilder *b, lb_kval p, lb_kval indices, lb_kval mask,
                    lb_kval other);
void lb_k_scatter(lb_kbuilder *b, lb_kval p, lb_kval indices, lb_kval v,
                  lb_kval mask);
void lb_k_prefetch(lb_kbuilder *b, lb_kval p, uint32_t level);
void lb_k_stream(lb_kbuilder *b);  // makes the last LOAD or STORE non-temporal
void lb_k_barrier(lb_kbuilder *b);

// -- registers and blocks
lb_kval lb_k_reg(lb_kbuilder *b, lb_kval init);
lb_kval lb_k_get(lb_kbuilder *b, lb_kval reg);
void lb_k_set(lb_kbuilder *b, lb_kval reg, lb_kval v);
lb_kval lb_k_loop(lb_kbuilder *b, lb_kval begin, lb_kval end, lb_kval step);
void lb_k_if(lb_kbuilder *b, lb_kval cond);
void lb_k_else(lb_kbuilder *b);
void lb_k_end(lb_kbuilder *b);

// -- for parser and passes --------------------------------------------------

// Appends `in` unchecked; finish checks it. Sets src, and imm of a SHUFFLE,
// whose table has in.lanes entries.
lb_kval lb_k_push(lb_kbuilder *b, lb_kinst in, const lb_kval *src,
                  const uint8_t *table);
// Records `st` as the error if it is the first; otherwise frees it.
void lb_kbuild_fail(lb_kbuilder *b, lb_status st);
// Finishes without verifying.
lb_status lb_kernel_take(lb_kbuilder *b, lb_kernel *out);

#endif
