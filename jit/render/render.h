// render/render.h -- kernel IR to LLVM IR, as text.
//
// The function a kernel becomes is
//
//   void NAME(const uint64_t *args);
//
// args[i] is PARAM i: a pointer or an int64 as it is; any other scalar is the
// bits of its element in the lowest bytes (a bool is a byte, true unless 0).
//
// What callers promise:
// (1) args stays as it is during the call.
// (2) What a LB_K_READONLY parameter points to is not written during the
//     call, neither through another parameter nor by another thread.
// (3) Rounding is to nearest, denormals are on: the state a thread begins with.
//
// What the function does and does not: it calls nothing, allocates on its
// stack only (LOCAL), and computes what kir.h says, bit for bit where an
// operation is EXACT; errors of the others are in the README. Stores that
// stream are fenced before it returns.
#ifndef LB_RENDER_RENDER_H
#define LB_RENDER_RENDER_H

#include "kir/kir.h"
#include "spec/target.h"

// Appends the text of a module with the function k->name to `out`. `k` is
// verified. LB_UNSUPPORTED: the target is none of ours, or the kernel asks for
// group or item numbers, which are the GPU's.
lb_status lb_render_llvm(const lb_kernel *k, const lb_target *t,
                         lb_strbuf *out);

#endif
