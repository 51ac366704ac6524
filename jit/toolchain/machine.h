// toolchain/machine.h -- For tests: compiles kernels and runs them in this
// process.
//
// Objects are loaded by LLVM's own linker. Any error fails the test.
#ifndef LB_TOOLCHAIN_MACHINE_H
#define LB_TOOLCHAIN_MACHINE_H

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

#include "kir/testkit.h"
#include "render/render.h"
#include "toolchain/toolchain.h"

typedef void machine_fn(const uint64_t *args);

typedef struct machine {
  lb_target target;
  lb_toolchain *tc;
  LLVMOrcLLJITRef jit;
  LLVMOrcResourceTrackerRef tracker;  // of the code loaded last, or NULL
} machine;

static inline void assert_llvm(LLVMErrorRef error) {
  if (!error) return;
  char *message = LLVMGetErrorMessage(error);
  print_error("%s\n", message);
  LLVMDisposeErrorMessage(message);
  fail();
}

static inline machine machine_open(lb_target t) {
  machine m = {.target = t};
  assert_ok(lb_toolchain_new(&t, &m.tc));
  assert_llvm(LLVMOrcCreateLLJIT(&m.jit, NULL));
  return m;
}

static inline void machine_unload(machine *m) {
  if (!m->tracker) return;
  assert_llvm(LLVMOrcResourceTrackerRemove(m->tracker));
  LLVMOrcReleaseResourceTracker(m->tracker);
  m->tracker = NULL;
}

static inline void machine_close(machine *m) {
  machine_unload(m);
  assert_llvm(LLVMOrcDisposeLLJIT(m->jit));
  lb_toolchain_free(m->tc);
}

// Compiles and loads k, replacing what was loaded before.
static inline machine_fn *machine_load_with(machine *m, const lb_kernel *k,
                                            lb_compile_stats *stats) {
  lb_strbuf text = {0};
  lb_blob object;
  machine_unload(m);
  assert_ok(lb_render_llvm(k, &m->target, &text));
  assert_ok(lb_toolchain_compile(m->tc, lb_strbuf_str(&text), &object, stats));
  lb_strbuf_fini(&text);
  LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(m->jit);
  m->tracker = LLVMOrcJITDylibCreateResourceTracker(main);
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
      (const char *)object.data, object.size, "object");
  assert_llvm(LLVMOrcLLJITAddObjectFileWithRT(m->jit, m->tracker, buffer));
  lb_blob_fini(&object);
  LLVMOrcExecutorAddress at = 0;
  assert_llvm(LLVMOrcLLJITLookup(m->jit, &at, k->name));
  return (machine_fn *)(uintptr_t)at;
}

static inline machine_fn *machine_load(machine *m, const lb_kernel *k) {
  return machine_load_with(m, k, NULL);
}

// Calls machine code with the interpreter's arguments.
static inline void machine_call(machine_fn *fn, const lb_karg *args,
                                uint32_t n) {
  uint64_t cells[16];
  assert_true(n <= 16);
  for (uint32_t i = 0; i < n; i++)
    cells[i] = args[i].data ? (uint64_t)(uintptr_t)args[i].data : args[i].bits;
  fn(cells);
}

// Calls f for each level that this machine supports, with and without its
// additional features.
static inline void each_machine(void f(machine *m)) {
  lb_target host = lb_target_host();
  assert_true(host.level >= LB_LEVEL_V3);
  for (lb_level level = LB_LEVEL_V3; level <= host.level; level++)
    for (int beyond = 0; beyond < 2; beyond++) {
      lb_target t = {level, beyond && level == host.level ? host.features : 0};
      if (beyond && !t.features) continue;
      machine m = machine_open(t);
      f(&m);
      machine_close(&m);
    }
}

#endif
