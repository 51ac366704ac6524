// toolchain/toolchain.h -- Compiles LLVM IR text to a relocatable ELF object in
// memory.
//
// A toolchain is used by one thread at a time; several may work concurrently.
// LLVM's global state (targets, options) is initialised once per process.
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
  uint64_t ns;  // CPU time of parsing, passes and code generation, without the
                // spill check
  bool check_spills;   // in: whether to count spills (doubles the time if there
                       // may be some)
  size_t local_bytes;  // in: size of the kernel's local memory; it stores to
                       // all of it
  uint32_t vector_spills;  // vector registers stored to the stack
  uint32_t loop_spills;    // those in innermost loops, and their reloads
} lb_compile_stats;

// `text` ends with a NUL. The object must be self-contained: an undefined
// symbol is LB_INTERNAL, and so is text that LLVM rejects, with its message and
// the line. `stats` may be NULL. *out is empty on failure.
lb_status lb_toolchain_compile(lb_toolchain *tc, const char *text, lb_blob *out,
                               lb_compile_stats *stats);

// Appends the machine code as assembly to `out`, for people.
lb_status lb_toolchain_assembly(lb_toolchain *tc, const char *text,
                                lb_strbuf *out);

// Everything that objects depend on besides text and target: "LLVM 19.1.7 ...".
// Static.
const char *lb_toolchain_version(void);

#endif
