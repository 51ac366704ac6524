// render/lanes.h -- what operations compute lane by lane, as LLVM IR.
//
// Numbers are as emit.h has them: float16 and bfloat16 are i16, bool is i1,
// signed and unsigned integers are alike.
#ifndef LB_RENDER_LANES_H
#define LB_RENDER_LANES_H

#include "kir/kir.h"
#include "render/emit.h"

lb_elem lb_elem_of(lb_dtype t);

// An operation of kops.def under "arithmetic" to "mathematics", but CAST and
// BITCAST. All of `x` are of dtype `t`.
lb_lv lb_lanes(lb_em *e, lb_kop op, lb_dtype t, const lb_lv *x);

lb_lv lb_lanes_cast(lb_em *e, lb_lv x, lb_dtype from, lb_dtype to);

// acc + sums of four products of bytes; a and b hold bytes of these dtypes.
lb_lv lb_lanes_dot4(lb_em *e, const lb_lv *x, lb_dtype a, lb_dtype b);

// Of a double, what rounds to float16 or bfloat16 as the double itself does.
lb_lv lb_lanes_odd(lb_em *e, lb_lv x);
lb_lv lb_lanes_to_f32(lb_em *e, lb_lv x, lb_dtype from);
lb_lv lb_lanes_from_f32(lb_em *e, lb_lv x, lb_dtype to);

#endif
