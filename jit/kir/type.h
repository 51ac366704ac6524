// kir/type.h -- The typing rules of operations, for builder, parser and
// verifier.
#ifndef LB_KIR_TYPE_H
#define LB_KIR_TYPE_H

#include "kir/kir.h"

typedef enum lb_krule {
  LB_KR_CONST,
  LB_KR_PARAM,
  LB_KR_ID,
  LB_KR_SAME,
  LB_KR_COMPARE,
  LB_KR_SELECT,
  LB_KR_CAST,
  LB_KR_BITCAST,
  LB_KR_SPLAT,
  LB_KR_IOTA,
  LB_KR_EXTRACT,
  LB_KR_INSERT,
  LB_KR_SHUFFLE,
  LB_KR_TAIL,
  LB_KR_REDUCE,
  LB_KR_DOT4,
  LB_KR_PTR,
  LB_KR_LOCAL,
  LB_KR_LOAD,
  LB_KR_GATHER,
  LB_KR_STORE,
  LB_KR_SCATTER,
  LB_KR_PREFETCH,
  LB_KR_NOTHING,
  LB_KR_REG,
  LB_KR_GET,
  LB_KR_SET,
  LB_KR_LOOP,
  LB_KR_IF,
  LB_KR_COUNT
} lb_krule;

enum {  // kinds of dtypes
  LB_KD_FLOAT = 1,
  LB_KD_INT = 2,
  LB_KD_BOOL = 4,
  LB_KD_NUM = LB_KD_FLOAT | LB_KD_INT,
  LB_KD_BITS = LB_KD_INT | LB_KD_BOOL,
  LB_KD_ALL = LB_KD_NUM | LB_KD_BOOL,
};

// Checks the types of the operands and all fields of `in` except src, and
// returns the type of its result in *out. Types that do not follow from the
// operands (the dtype of a CAST, the lanes of a SPLAT) are taken from `in`.
// `table` is that of a SHUFFLE. Returns NULL or an error text. The caller
// checks that only GET and SET name registers.
const char *lb_kinfer(const lb_kinst *in, const lb_ktype *src,
                      const uint8_t *table, lb_ktype *out);

// "f32", as in text; NULL for LB_NONE.
const char *lb_kdtype_text(lb_dtype t);

#endif
