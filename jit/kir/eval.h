// kir/eval.h -- Evaluates operations without memory, lane by lane: the one
// definition that interpreter and constant folding share.
//
// A *frame* holds the values of one work item, each with its lanes contiguous
// (a bool is a byte of 0 or 1) at a multiple of LB_KFRAME_ALIGN bytes. A *step*
// is an instruction decoded for a frame.
#ifndef LB_KIR_EVAL_H
#define LB_KIR_EVAL_H

#include "kir/kir.h"

#define LB_KFRAME_ALIGN 64
#define LB_KFRAME_VALUE 512  // bytes of the largest value

typedef struct lb_kstep lb_kstep;
typedef void lb_klanes_fn(const lb_kstep *s, char *frame);

typedef struct lb_kptr {  // a pointer in a frame
  int64_t offset;         // bytes from the start of its memory
  uint32_t memory;        // index of the memory
  uint32_t unused;
} lb_kptr;

struct lb_kstep {
  lb_klanes_fn *fn;
  uint32_t dst, src[4];  // offsets in the frame
  uint32_t inst;         // the instruction of this step
  uint16_t lanes;        // of the result
  uint16_t from_lanes;   // of the first operand
  uint8_t dtype, from;   // of the result, of the first operand
  uint8_t size;          // bytes of a lane of the result, else of the operand
  uint8_t kind;          // for the interpreter
  uint32_t jump;         // for the interpreter
  int64_t imm;
  const uint8_t *table;  // of a SHUFFLE; borrowed
};

// Bytes of a value of type t.
uint32_t lb_kvalue_size(lb_ktype t);

// Fills in everything except dst, src, inst and the interpreter's fields. fn is
// NULL for memory and block operations. `src` are the types of the operands.
void lb_kstep_decode(const lb_kinst *in, const lb_ktype *src,
                     const uint8_t *table, lb_kstep *out);

// Writes the lanes of a CONST.
void lb_kconst_write(const lb_kinst *in, void *to);

#endif
