// device/reference/elem.h -- X-macro lists of element types, for code that is
// instantiated per dtype.
//
// A row is X(dtype, S, T, load, store, ...): S is the type of an element in
// memory, T the type that is computed in, load converts S to T and store T to
// S. float16 and bfloat16 compute in float and round once, in store. Further
// arguments of LB_FLOATS(X, ...) are passed on to X.
#ifndef LB_DEVICE_REFERENCE_ELEM_H
#define LB_DEVICE_REFERENCE_ELEM_H

#include "device/reference/reference.h"

#define LB_IDENTITY(x) (x)

#define LB_WIDE_FLOATS(X, ...)                                 \
  X(F32, lb_f32, float, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__) \
  X(F64, lb_f64, double, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__)

#define LB_16BIT_FLOATS(X, ...)                                       \
  X(F16, lb_bits16, float, lb_f16_to_f32, lb_f32_to_f16, __VA_ARGS__) \
  X(BF16, lb_bits16, float, lb_bf16_to_f32, lb_f32_to_bf16, __VA_ARGS__)

#define LB_FLOATS(X, ...)        \
  LB_WIDE_FLOATS(X, __VA_ARGS__) \
  LB_16BIT_FLOATS(X, __VA_ARGS__)

#define LB_SIGNED(X, ...)                                        \
  X(I8, lb_i8, int8_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__)    \
  X(I16, lb_i16, int16_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__) \
  X(I32, lb_i32, int32_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__) \
  X(I64, lb_i64, int64_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__)

#define LB_UNSIGNED(X, ...)                                       \
  X(U8, lb_u8, uint8_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__)    \
  X(U16, lb_u16, uint16_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__) \
  X(U32, lb_u32, uint32_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__) \
  X(U64, lb_u64, uint64_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__)

#define LB_INTS(X, ...)     \
  LB_SIGNED(X, __VA_ARGS__) \
  LB_UNSIGNED(X, __VA_ARGS__)

#define LB_NUMBERS(X, ...)  \
  LB_FLOATS(X, __VA_ARGS__) \
  LB_INTS(X, __VA_ARGS__)

#define LB_BOOLS(X, ...) \
  X(BOOL, lb_u8, uint8_t, LB_IDENTITY, LB_IDENTITY, __VA_ARGS__)

// Wrapping integer arithmetic, because signed overflow is undefined in C.
#define LB_WRAP(T, a, op, b) ((T)((uint64_t)(a)op(uint64_t)(b)))

#endif
