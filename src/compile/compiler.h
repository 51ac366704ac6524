// compile/compiler.h -- from empty slots to kernels, off the request path.
//
// Owns the slots of a runtime, the worker that compiles for them and the code
// that they point to. Nothing is compiled unless settle is called.
//
// (1) settle waits; run never does. Any thread may call it; one compiles at a
//     time.
// (2) A key that the worker refuses is not asked for again; when the worker
//     itself fails, settle ends with that status and can be called again.
// (3) Kernels stay until the compiler is freed, which nobody may use then.
#ifndef LB_COMPILE_COMPILER_H
#define LB_COMPILE_COMPILER_H

#include "base/log.h"
#include "cache/slots.h"
#include "device/cpu/isa.h"

typedef struct lb_compiler lb_compiler;

typedef struct lb_compiler_options {
  const char *worker;  // path of limber-jit; copied
  lb_isa isa;          // what kernels may use
  const lb_log *log;   // borrowed
} lb_compiler_options;

lb_status lb_compiler_new(const lb_compiler_options *o, lb_compiler **out);
void lb_compiler_free(lb_compiler *c);  // NULL is fine
lb_slots *lb_compiler_slots(lb_compiler *c);

// Compiles what slots lack, for at most `seconds`. LB_CANCELLED when time ran
// out before all was done.
lb_status lb_compiler_settle(lb_compiler *c, double seconds);

typedef struct lb_compiler_stats {
  uint64_t slots, compiled, refused;
  uint64_t compile_us, check_us;  // of the worker
} lb_compiler_stats;
void lb_compiler_stats_get(lb_compiler *c, lb_compiler_stats *out);

#endif
