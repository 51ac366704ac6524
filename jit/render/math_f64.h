// render/math_f64.h -- Shared by the two files of functions of doubles.
#ifndef LB_RENDER_MATH_F64_H
#define LB_RENDER_MATH_F64_H

#include "render/math.h"

// exp(x + low) * 2^k, where |low| is far below |x|, or 0.
lb_lv lb_math64_exp_pair(lb_em *e, lb_lv x, lb_lv low, int k);

#endif
