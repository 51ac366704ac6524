// compile/compiler.h -- from empty slots to kernels, off the request path.
//
// Owns the worker that compiles for the slots of a runtime, and the code that
// is made. Nothing is compiled, started or mapped unless settle is called.
//
// (1) settle waits; run never does. Any thread may call it; one compiles at a
//     time.
// (2) A key that the worker refuses is not asked for again; when the worker
//     itself fails, settle ends with that status and can be called again.
// (3) Kernels belong to their slots, which may evict them. Where nothing would
//     be kept, nothing is compiled.
#ifndef LB_COMPILE_COMPILER_H
#define LB_COMPILE_COMPILER_H

#include "base/log.h"
#include "cache/slots.h"
#include "compile/built.h"
#include "device/cpu/isa.h"

typedef struct lb_compiler lb_compiler;

typedef struct lb_compiler_options {
  const char *worker;  // path of limber-jit; copied
  lb_slots *slots;     // borrowed; outlives the compiler
  lb_isa isa;          // what kernels may use
  const lb_log *log;   // borrowed
  lb_events *events;   // borrowed; may be NULL
  const char *dump;  // folder for the objects that are loaded; copied, or NULL
  bool perf;         // tell perf their names
} lb_compiler_options;

lb_status lb_compiler_new(const lb_compiler_options *o, lb_compiler **out);
void lb_compiler_free(lb_compiler *c);  // NULL is fine

// Compiles for the wanted slots that have no kernel but the pack's, for at most
// `seconds`. LB_CANCELLED when time ran out before all was done; LB_IO: the
// worker is missing or fails; LB_DEVICE: executable memory is refused.
lb_status lb_compiler_settle(lb_compiler *c, double seconds);

typedef struct lb_compiler_stats {
  uint64_t compiled, refused;
  uint64_t code_bytes;
} lb_compiler_stats;
void lb_compiler_stats_get(lb_compiler *c, lb_compiler_stats *out);

// What became of key i of those that were compiled or refused; texts stay.
// False if there are not so many.
bool lb_compiler_built(lb_compiler *c, size_t i, lb_built *out);

#endif
