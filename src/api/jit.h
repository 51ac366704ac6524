// api/jit.h -- a runtime's compiler, as the environment asks for it.
//
//   LIMBER_JIT=process   kernels are compiled by the program limber-jit, when
//                        limber_session_settle is called. Default: off
//   LIMBER_JIT_PATH      where that program is; else beside the library. Not
//                        looked at in set-user-id programs
//   LIMBER_ISA           what kernels may use, "x86-64-v3"; default: all that
//                        the machine has
#ifndef LB_API_JIT_H
#define LB_API_JIT_H

#include "base/log.h"
#include "compile/compiler.h"

// NULL where none is asked for, or where it cannot be had: that is one warning,
// since everything runs without.
lb_compiler *lb_jit_open(const lb_log *log);

#endif
