// render/render.h -- Renders kernel IR as LLVM IR text.
//
// A kernel becomes the function
//
//   void NAME(const uint64_t *args);
//
// args[i] is PARAM i: a pointer or an int64 directly; any other scalar is the
// bits of its element in the lowest bytes (a bool is a byte, true unless 0).
//
// Callers guarantee:
// (1) args does not change during the call.
// (2) The memory of a LB_K_READONLY parameter is not written during the call,
//     neither through another parameter nor by another thread.
// (3) The rounding mode is to nearest and denormals are enabled, as in a new
//     thread.
//
// The function calls nothing, allocates only on its stack (LOCAL), and computes
// what kir.h defines, bit for bit for EXACT operations; the README lists the
// errors of the others. Non-temporal stores are fenced before it returns.
#ifndef LB_RENDER_RENDER_H
#define LB_RENDER_RENDER_H

#include "kir/kir.h"
#include "spec/target.h"

// Appends a module with the function k->name to `out`. `k` must be verified.
// LB_UNSUPPORTED: the target is not supported, or the kernel uses group or item
// ids, which only GPUs have.
lb_status lb_render_llvm(const lb_kernel *k, const lb_target *t,
                         lb_strbuf *out);

#endif
