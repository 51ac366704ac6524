// api/jit.h -- the kernels of the process, as the environment asks for them.
// What is compiled for whom, and when, is in policy.h.
//
//   LIMBER_JIT=process   kernels are compiled by the program limber-jit: the
//                        default
//   LIMBER_JIT=off       no kernels but those that the library contains
//   LIMBER_JIT_PATH      where that program is; else beside the library. Not
//                        looked at in set-user-id programs
//   LIMBER_COMPILE_ORDER=worth|fifo  which first: what saves most, or what was
//                        asked for first
//   LIMBER_KERNEL_TRIALS=on|off  compiled kernels are timed against what they
//   replace,
//                        and go if they are slower: on
//   LIMBER_COMPILE_PACE=on|off  off: requests and compiling compete
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

typedef struct lb_kernels {
  lb_device *device;    // that runs them; owned, NULL without slots
  lb_slots *slots;      // owned; NULL: every node runs by its host kernel
  lb_store *store;      // owned; NULL: nothing is kept on disk
  lb_service *service;  // owned; NULL: nothing is compiled
  lb_target target;     // what kernels may use
  bool may_compile;     // LIMBER_JIT
  lb_strbuf worker;     // path of the program
} lb_kernels;

// What cannot be had is left out: that is one warning, since everything runs
// without. Shelf, hub and log are borrowed.
void lb_kernels_open(lb_kernels *k, lb_lru *lru, lb_hub *hub,
                     const lb_log *log);
void lb_kernels_close(lb_kernels *k);  // {0} is fine

const char *lb_kernels_levels(void);  // of the kernels that the library has

#endif
