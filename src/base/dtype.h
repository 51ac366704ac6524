// base/dtype.h -- element types.
#ifndef LB_BASE_DTYPE_H
#define LB_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

//       name  text        bytes class
#define LB_DTYPES(X)            \
  X(F32, "float32", 4, FLOAT)   \
  X(F64, "float64", 8, FLOAT)   \
  X(F16, "float16", 2, FLOAT)   \
  X(BF16, "bfloat16", 2, FLOAT) \
  X(I8, "int8", 1, SIGNED)      \
  X(I16, "int16", 2, SIGNED)    \
  X(I32, "int32", 4, SIGNED)    \
  X(I64, "int64", 8, SIGNED)    \
  X(U8, "uint8", 1, UNSIGNED)   \
  X(U16, "uint16", 2, UNSIGNED) \
  X(U32, "uint32", 4, UNSIGNED) \
  X(U64, "uint64", 8, UNSIGNED) \
  X(BOOL, "bool", 1, BOOL)

typedef enum lb_dtype {
  LB_NONE,  // an absent tensor, or a dtype not known yet
#define X(id, text, bytes, cls) LB_##id,
  LB_DTYPES(X)
#undef X
      LB_DTYPE_COUNT
} lb_dtype;

size_t lb_dtype_size(lb_dtype t);       // 0 for LB_NONE
const char *lb_dtype_name(lb_dtype t);  // "float32"; "none"
bool lb_dtype_is_float(lb_dtype t);
bool lb_dtype_is_signed(lb_dtype t);   // signed integers
bool lb_dtype_is_integer(lb_dtype t);  // signed or unsigned, not bool

// Round to nearest, ties to even; NaN stays NaN.
float lb_f16_to_f32(uint16_t h);
uint16_t lb_f32_to_f16(float f);
uint16_t lb_f64_to_f16(double d);  // one rounding, not two
float lb_bf16_to_f32(uint16_t h);
uint16_t lb_f32_to_bf16(float f);

#endif
