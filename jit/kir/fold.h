// kir/fold.h -- Simplifies one instruction, given its operands.
#ifndef LB_KIR_FOLD_H
#define LB_KIR_FOLD_H

#include "kir/build.h"

// A candidate: an instruction that is about to be appended to lb_kfolder.out.
// Its operands are values of that builder.
typedef struct lb_kcand {
  lb_kinst in;  // its field src is not used
  lb_kval src[4];
  const uint8_t *table;  // of a SHUFFLE; borrowed
} lb_kcand;

typedef struct lb_kfolder {
  lb_kbuilder *out;  // borrowed
  char *frame;       // borrowed; scratch for evaluation, LB_KFOLD_FRAME bytes
  // Returns a CONST of `out` that is visible where the candidate will be.
  lb_kval (*constant)(struct lb_kfolder *f, lb_ktype t, uint64_t bits);
} lb_kfolder;

// A result and four operands, LB_KFRAME_VALUE bytes each.
#define LB_KFOLD_FRAME (5 * 512)

typedef enum lb_kfolded {
  LB_KFOLD_EMIT,   // append c, which may have changed
  LB_KFOLD_VALUE,  // use *value instead
  LB_KFOLD_DROP,   // it has no effect
} lb_kfolded;

// *value is valid only for LB_KFOLD_VALUE.
lb_kfolded lb_kfold(lb_kfolder *f, lb_kcand *c, lb_kval *value);

// Returns true, with its bits, if v is a CONST of `out`. v may be LB_K_NONE.
bool lb_kfold_const(const lb_kbuilder *out, lb_kval v, uint64_t *bits);

#endif
