// toolchain/toolchain.c -- Drives LLVM through its C interface.
//
// The text already has the desired vectors and loops, so only a few passes run:
// inlining of helpers and cleanup. Longer pipelines take two or three times as
// long and produce code that spills. For the same reason instructions stay in
// the order of the text: schedulers move loads up until accumulators no longer
// fit into registers; hoisted constants take registers, and so do operands of
// instructions that are sunk below a loop; and loop strength reduction makes
// the row addresses of a tile a chain of additions.
#include "toolchain/toolchain.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <llvm/Config/llvm-config.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "toolchain/inspect.h"

#define PASSES                                                        \
  "always-inline,function(early-cse,instcombine<no-verify-fixpoint>," \
  "simplifycfg)"
#define OPTIONS                                                    \
  "-enable-misched=false", "-pre-RA-sched=source", "-disable-lsr", \
      "-disable-machine-licm", "-disable-machine-sink",            \
      "-x86-cmov-converter=false", "-disable-x86-domain-reassignment"
#define TRIPLE "x86_64-unknown-linux-gnu"

struct lb_toolchain {
  LLVMContextRef context;  // owned, as all below
  LLVMTargetMachineRef machine;
  LLVMTargetDataRef layout;
  LLVMPassBuilderOptionsRef options;
};

const char *lb_toolchain_version(void) {
  return "LLVM " LLVM_VERSION_STRING
         " O2 source-order no-lsr no-licm no-sink " PASSES;
}

// -- creating a toolchain ----------------------------------------------------

static void init_llvm(void) {
  static const char *const args[] = {"limber-jit", OPTIONS};
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMParseCommandLineOptions(sizeof args / sizeof *args, args, NULL);
}

static void features_of(const lb_target *t, lb_strbuf *out) {
  for (lb_feature f = 0; f < LB_FEATURE_COUNT; f++)
    if (lb_target_has(t, f) && lb_feature_llvm(f))
      lb_strbuf_printf(out, "%s+%s", out->len ? "," : "", lb_feature_llvm(f));
}

static lb_status create_machine(lb_toolchain *tc, const lb_target *t) {
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(TRIPLE, &target, &message)) {
    lb_status st = lb_error(LB_INTERNAL, "LLVM has no x86 target: %s", message);
    LLVMDisposeMessage(message);
    return st;
  }
  lb_strbuf features = {0};
  features_of(t, &features);
  lb_status st = lb_strbuf_status(&features);
  if (lb_failed(st)) goto done;
  tc->machine = LLVMCreateTargetMachine(
      target, TRIPLE, lb_level_name(t->level), lb_strbuf_str(&features),
      LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelSmall);
  if (!tc->machine) {
    st = lb_error(LB_INTERNAL, "LLVM cannot create a target machine for %s %s",
                  lb_level_name(t->level), lb_strbuf_str(&features));
    goto done;
  }
  LLVMSetTargetMachineAsmVerbosity(tc->machine, 1);
  tc->layout = LLVMCreateTargetDataLayout(tc->machine);

done:
  lb_strbuf_fini(&features);
  return st;
}

lb_status lb_toolchain_new(const lb_target *t, lb_toolchain **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  *out = NULL;
  LB_TRY(lb_target_check(t));
  lb_toolchain *tc = calloc(1, sizeof *tc);
  if (!tc) return lb_oom();
  pthread_once(&once, init_llvm);
  lb_status st = create_machine(tc, t);
  if (lb_failed(st)) {
    lb_toolchain_free(tc);
    return st;
  }
  tc->context = LLVMContextCreate();
  tc->options = LLVMCreatePassBuilderOptions();
  *out = tc;
  return LB_OK;
}

void lb_toolchain_free(lb_toolchain *tc) {
  if (!tc) return;
  if (tc->options) LLVMDisposePassBuilderOptions(tc->options);
  if (tc->layout) LLVMDisposeTargetData(tc->layout);
  if (tc->machine) LLVMDisposeTargetMachine(tc->machine);
  if (tc->context) LLVMContextDispose(tc->context);
  free(tc);
}

// -- text to module ----------------------------------------------------------

// LLVM's message "text:12:5: error: ..." begins with the position; its second
// line is the line of the text.
static lb_status parse(lb_toolchain *tc, const char *text, LLVMModuleRef *out) {
  char *message = NULL;
  LLVMMemoryBufferRef buffer =
      LLVMCreateMemoryBufferWithMemoryRange(text, strlen(text), "text", 1);
  *out = NULL;
  if (LLVMParseIRInContext(tc->context, buffer, out, &message)) {
    lb_status st = lb_error(LB_INTERNAL, "LLVM rejects the text: %s",
                            message ? message : "no reason given");
    LLVMDisposeMessage(message);
    *out = NULL;
    return st;
  }
  LLVMSetTarget(*out, TRIPLE);
  LLVMSetModuleDataLayout(*out, tc->layout);
  return LB_OK;
}

static lb_status optimise(lb_toolchain *tc, LLVMModuleRef module) {
  LLVMErrorRef error = LLVMRunPasses(module, PASSES, tc->machine, tc->options);
  if (!error) return LB_OK;
  char *message = LLVMGetErrorMessage(error);
  lb_status st = lb_error(LB_INTERNAL, "LLVM's passes failed: %s", message);
  LLVMDisposeErrorMessage(message);
  return st;
}

static lb_status prepare(lb_toolchain *tc, const char *text,
                         LLVMModuleRef *out) {
  LB_TRY(parse(tc, text, out));
  return optimise(tc, *out);
}

static lb_status emit(lb_toolchain *tc, LLVMModuleRef module,
                      LLVMCodeGenFileType kind, LLVMMemoryBufferRef *out) {
  char *message = NULL;
  *out = NULL;
  if (!LLVMTargetMachineEmitToMemoryBuffer(tc->machine, module, kind, &message,
                                           out))
    return LB_OK;
  lb_status st =
      lb_error(LB_INTERNAL, "LLVM code generation failed: %s", message);
  LLVMDisposeMessage(message);
  *out = NULL;
  return st;
}

// -- compiling ---------------------------------------------------------------

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static lb_span span_of(LLVMMemoryBufferRef b) {
  return (lb_span){(const uint8_t *)LLVMGetBufferStart(b),
                   LLVMGetBufferSize(b)};
}

static lb_status copy_out(lb_span object, lb_blob *out) {
  uint8_t *data = malloc(object.size ? object.size : 1);
  if (!data) return lb_oom();
  memcpy(data, object.data, object.size);
  *out = (lb_blob){data, object.size};
  return LB_OK;
}

// Code generation modifies the module, so the assembly is generated from the
// text again.
static lb_status count_spills(lb_toolchain *tc, const char *text,
                              lb_compile_stats *stats) {
  lb_strbuf assembly = {0};
  lb_status st = lb_toolchain_assembly(tc, text, &assembly);
  if (!lb_failed(st))
    lb_inspect_spills((lb_span){(const uint8_t *)assembly.data, assembly.len},
                      &stats->vector_spills, &stats->loop_spills);
  lb_strbuf_fini(&assembly);
  return st;
}

lb_status lb_toolchain_compile(lb_toolchain *tc, const char *text, lb_blob *out,
                               lb_compile_stats *stats) {
  LLVMModuleRef module = NULL;
  LLVMMemoryBufferRef object = NULL;
  uint64_t start = cpu_ns();
  *out = (lb_blob){0};
  lb_status st = prepare(tc, text, &module);
  if (lb_failed(st)) goto done;
  st = emit(tc, module, LLVMObjectFile, &object);
  if (lb_failed(st)) goto done;
  if (stats) stats->ns = cpu_ns() - start;
  st = lb_inspect_object(span_of(object));
  if (lb_failed(st)) goto done;
  if (stats && stats->check_spills &&
      lb_inspect_may_spill(span_of(object), stats->local_bytes))
    st = count_spills(tc, text, stats);
  if (lb_failed(st)) goto done;
  st = copy_out(span_of(object), out);

done:
  if (object) LLVMDisposeMemoryBuffer(object);
  if (module) LLVMDisposeModule(module);
  return st;
}

lb_status lb_toolchain_assembly(lb_toolchain *tc, const char *text,
                                lb_strbuf *out) {
  LLVMModuleRef module = NULL;
  LLVMMemoryBufferRef assembly = NULL;
  lb_status st = prepare(tc, text, &module);
  if (lb_failed(st)) goto done;
  st = emit(tc, module, LLVMAssemblyFile, &assembly);
  if (lb_failed(st)) goto done;
  lb_span s = span_of(assembly);
  lb_strbuf_putn(out, (const char *)s.data, s.size);
  st = lb_strbuf_status(out);

done:
  if (assembly) LLVMDisposeMemoryBuffer(assembly);
  if (module) LLVMDisposeModule(module);
  return st;
}
