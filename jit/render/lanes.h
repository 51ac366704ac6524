// render/lanes.h -- Lane-wise operations as LLVM IR.
//
// Types are those of emit.h: float16 and bfloat16 are i16, bool is i1, and
// signed and unsigned integers have the same type.
#ifndef LB_RENDER_LANES_H
#define LB_RENDER_LANES_H

#include "kir/kir.h"
#include "render/emit.h"

lb_elem lb_elem_of(lb_dtype t);

// An operation of kops.def from "arithmetic" to "mathematics", except CAST and
// BITCAST. All of `x` are of dtype `t`.
lb_lv lb_lanes(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x);

lb_lv lb_lanes_cast(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to);

// Each 32-bit lane is acc + the dot product of four int8 pairs; a and b are the
// dtypes of the bytes.
lb_lv lb_lanes_dot4(lb_em *e, const lb_lv *x, lb_dtype a, lb_dtype b);

// Rounds a double to odd as float32, which rounds to float16 or bfloat16 as the
// double itself does.
lb_lv lb_lanes_round_to_odd(lb_em *e, lb_lv x);
lb_lv lb_lanes_to_f32(lb_em *e, lb_lv x, lb_dtype from);
lb_lv lb_lanes_from_f32(lb_em *e, lb_lv x, lb_dtype to);

#endif
