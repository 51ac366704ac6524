// api/jit.h -- the kernels of the process, configured by the environment. When
// kernels are compiled, and for which sessions, is in policy.h.
//
//   LIMBER_JIT=process|off
//       process (default): the program limber-jit compiles kernels;
//       off: only the built-in kernels are used
//   LIMBER_JIT_PATH=FILE
//       path of limber-jit; default: beside the library. Ignored in
//       set-user-id programs
//   LIMBER_COMPILE_ORDER=priority|fifo
//       priority (default): compile the kernels first that are expected to save
//       most time for their compile time; fifo: in the order of requests
//   LIMBER_KERNEL_TRIALS=on|off
//       on (default): time compiled kernels against the code that they
//       replace, and stop using those that are slower
//   LIMBER_COMPILE_PACE=on|off
//       on (default): throttle compilation while requests need the processors;
//       off: let it compete with requests
//   LIMBER_ISA=LEVEL
//       the instruction set that kernels may use, such as "x86-64-v3"; default:
//       everything that the processor supports
//   LIMBER_DUMP_OBJECTS=DIR
//       write every object that is loaded to this directory
//   LIMBER_PERF=1
//       write the names of compiled kernels to /tmp/perf-PID.map, for perf
#ifndef LB_API_JIT_H
#define LB_API_JIT_H

#include "base/log.h"
#include "compile/service.h"
#include "spec/target.h"

typedef struct lb_kernels {
  lb_device *device;    // runs the kernels; owned; NULL if slots is NULL
  lb_slots *slots;      // owned; NULL: every node runs on the reference
  lb_store *store;      // owned; NULL: nothing is stored on disk
  lb_service *service;  // owned; NULL: nothing is compiled
  lb_target target;     // the instruction set that kernels may use
  bool may_compile;     // LIMBER_JIT=process
  lb_strbuf worker;     // path of limber-jit
} lb_kernels;

// Opens the kernels. A part that cannot be opened is left NULL with one
// warning, since models run without it. `lru`, `hub` and `log` are borrowed.
void lb_kernels_open(lb_kernels *k, lb_lru *lru, lb_hub *hub,
                     const lb_log *log);
void lb_kernels_close(lb_kernels *k);  // {0} is fine

const char *lb_kernels_levels(void);  // ISA levels of the built-in kernels

#endif
