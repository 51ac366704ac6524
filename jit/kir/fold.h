// kir/fold.h -- what one instruction comes down to, given its operands.
#ifndef LB_KIR_FOLD_H
#define LB_KIR_FOLD_H

#include "kir/build.h"

// An instruction about to be appended to `out`, whose values its operands are.
typedef struct lb_kcand {
  lb_kinst in;  // src is not used
  lb_kval src[4];
  const uint8_t *table;  // of a SHUFFLE; borrowed
} lb_kcand;

typedef struct lb_kfolder {
  lb_kbuilder *out;  // borrowed
  char *frame;       // borrowed; lanes to compute with, LB_KFOLD_FRAME bytes
  // A CONST of `out` that is seen where the candidate will be.
  lb_kval (*constant)(struct lb_kfolder *f, lb_ktype t, uint64_t bits);
} lb_kfolder;

#define LB_KFOLD_FRAME (5 * 512)

typedef enum lb_kfolded {
  LB_KFOLD_EMIT,   // append c, which may have changed
  LB_KFOLD_VALUE,  // *value does the same
  LB_KFOLD_DROP,   // it does nothing
} lb_kfolded;

lb_kfolded lb_kfold(lb_kfolder *f, lb_kcand *c, lb_kval *value);

// Whether v is a CONST of `out`; its bits. v may be LB_K_NONE.
bool lb_kfold_const(const lb_kbuilder *out, lb_kval v, uint64_t *bits);

#endif
