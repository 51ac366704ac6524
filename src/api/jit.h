// api/jit.h -- the kernels of a runtime, as the environment asks for them.
//
//   LIMBER_JIT=process   kernels are compiled by the program limber-jit: the
//                        default
//   LIMBER_JIT=off       no kernels but those that the library contains
//   LIMBER_JIT_PATH      where that program is; else beside the library. Not
//                        looked at in set-user-id programs
//   LIMBER_COMPILE=background  while requests run: the default
//   LIMBER_COMPILE=settle      in limber_session_settle alone
//   LIMBER_COMPILE_OPS=all|critical  everything, or what is most of the time
//                        of most models: convolutions, products, softmax
//   LIMBER_COMPILE_ORDER=worth|fifo  which first: what saves most, or what was
//                        asked for first
//   LIMBER_JUDGE=on|off  compiled kernels are timed against what they replace,
//                        and go if they are slower: on
//   LIMBER_COMPILE_PACE=on|off  off: requests and compiling compete
//   LIMBER_SIGHTINGS=N   at how many runs that meet a kernel it is compiled: 2
//   LIMBER_ISA           what kernels may use, "x86-64-v3"; default: all that
//                        the machine has
//   LIMBER_DUMP_OBJECTS  a folder: every object that is loaded is written there
//   LIMBER_PERF=1        perf gets the names of what is compiled, from
//                        /tmp/perf-PID.map
#ifndef LB_API_JIT_H
#define LB_API_JIT_H

#include "base/log.h"
#include "compile/service.h"
#include "spec/target.h"
#include "limber/limber.h"

typedef struct lb_kernels {
  lb_slots *slots;      // owned; NULL: every node runs by its host kernel
  lb_store *store;      // owned; NULL: nothing is kept on disk
  lb_service *service;  // owned; NULL: nothing is compiled
  bool critical;        // what sessions that do not say have compiled
} lb_kernels;

typedef struct lb_kernels_with {  // all borrowed
  lb_pool *pool;
  const lb_log *log;
  lb_events *events;  // may be NULL
} lb_kernels_with;

// What cannot be had is left out: that is one warning, since everything runs
// without. `o` says what the environment does not decide.
void lb_kernels_open(lb_kernels *k, const limber_runtime_options *o,
                     const lb_kernels_with *with);
void lb_kernels_close(lb_kernels *k);  // {0} is fine

// What kernels may use. What is wrong with LIMBER_ISA is a warning.
lb_target lb_kernels_target(const lb_log *log);
bool lb_kernels_may_compile(const lb_log *log);  // LIMBER_JIT
void lb_kernels_worker(lb_strbuf *out);          // path of the program
const char *lb_kernels_levels(void);  // of the kernels that the library has

#endif
