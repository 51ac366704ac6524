// toolchain/toolchain.h -- LLVM IR text to a relocatable ELF object in memory.
//
// A toolchain belongs to one thread at a time; several may work side by side.
// What is global in LLVM (targets, options) is set up once a process.
#ifndef LB_TOOLCHAIN_TOOLCHAIN_H
#define LB_TOOLCHAIN_TOOLCHAIN_H

#include <stdint.h>

#include "base/blob.h"
#include "base/strbuf.h"
#include "spec/target.h"

typedef struct lb_toolchain lb_toolchain;  // a context and a target machine

// On failure *out is NULL.
lb_status lb_toolchain_new(const lb_target *t, lb_toolchain **out);
void lb_toolchain_free(lb_toolchain *tc);  // NULL is fine

typedef struct lb_compile_stats {
  uint64_t ns;  // of processor time: reading, passes, code; not the spill check
  bool check_spills;   // in: whether to count what follows (doubles the time
                       // where there may be some)
  size_t local_bytes;  // in: of memory of the kernel's own; it stores to all
  uint32_t vector_spills;  // vector registers stored to the stack
  uint32_t loop_spills;    // those inside of inner loops, and their reloads
} lb_compile_stats;

// `text` ends with a NUL. The object needs no other: a symbol that is not
// defined in it is LB_INTERNAL, and so is a text that LLVM refuses, with its
// message and the line. `stats` may be NULL. *out is empty on failure.
lb_status lb_toolchain_compile(lb_toolchain *tc, const char *text, lb_blob *out,
                               lb_compile_stats *stats);

// The machine code as assembly, for people; appended to `out`.
lb_status lb_toolchain_assembly(lb_toolchain *tc, const char *text,
                                lb_strbuf *out);

// What objects depend on beyond text and target: "LLVM 19.1.7 ...". Static.
const char *lb_toolchain_version(void);

#endif
