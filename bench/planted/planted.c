// bench/planted/planted.c -- A worker whose kernels are correct but take 1.5
// times as long: each calls the kernel of limber-jit, then waits for half of
// the time that the call took. Trials must demote these kernels
// (bench/trials.py).
//
// The worker is limber-jit, linked with a wrapper around lb_toolchain_compile
// (--wrap in bench/CMakeLists.txt).
#include <string.h>

#include "toolchain/toolchain.h"

#define ENTRY "define void @limber_kernel("

static const char tail[] =
    "\n"
    "declare i64 @llvm.readcyclecounter()\n"
    "define void @limber_kernel(ptr %args) {\n"
    "  %start = call i64 @llvm.readcyclecounter()\n"
    "  call void @work(ptr %args)\n"
    "  %stop = call i64 @llvm.readcyclecounter()\n"
    "  %took = sub i64 %stop, %start\n"
    "  %half = lshr i64 %took, 1\n"
    "  %end = add i64 %stop, %half\n"
    "  br label %wait\n"
    "wait:\n"
    "  %now = call i64 @llvm.readcyclecounter()\n"
    "  %more = icmp ult i64 %now, %end\n"
    "  br i1 %more, label %wait, label %done\n"
    "done:\n"
    "  ret void\n"
    "}\n";

lb_status __real_lb_toolchain_compile(lb_toolchain *tc, const char *ir,
                                      lb_blob *out, lb_compile_stats *stats);
lb_status __wrap_lb_toolchain_compile(lb_toolchain *tc, const char *ir,
                                      lb_blob *out, lb_compile_stats *stats);

lb_status __wrap_lb_toolchain_compile(lb_toolchain *tc, const char *ir,
                                      lb_blob *out, lb_compile_stats *stats) {
  lb_strbuf text = {0};
  const char *entry = strstr(ir, ENTRY);
  if (!entry) return lb_error(LB_INTERNAL, "the IR has no kernel entry");
  lb_strbuf_putn(&text, ir, (size_t)(entry - ir));
  lb_strbuf_puts(&text, "define internal void @work(");
  lb_strbuf_puts(&text, entry + strlen(ENTRY));
  lb_strbuf_puts(&text, tail);
  lb_status st = lb_strbuf_status(&text);
  if (!lb_failed(st))
    st = __real_lb_toolchain_compile(tc, lb_strbuf_str(&text), out, stats);
  lb_strbuf_fini(&text);
  return st;
}
