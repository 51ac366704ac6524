// api/policy.h -- which kernels a runtime or session has compiled, and when:
// its options, or the environment where the options leave it open.
//
//   LIMBER_COMPILE=background|settle
//       background (default): while requests run; settle: only in
//       limber_session_settle
//   LIMBER_COMPILE_OPS=all|critical
//       all (default), or only the kernels that take most of the time of most
//       models: convolution, matmul, softmax
//   LIMBER_COMPILE_THRESHOLD=N
//       the number of runs that need a kernel before it is compiled (default 2)
//
// Sessions with different policies share kernels: the most eager session that
// requests a kernel decides when it is compiled.
#ifndef LB_API_POLICY_H
#define LB_API_POLICY_H

#include <stdint.h>

#include "base/log.h"
#include "limber/limber.h"

// It has no padding, because it is a part of a cache key.
typedef struct lb_policy {
  int32_t quiet;               // 1: kernels are compiled only by settle
  int32_t critical;            // 1: only kernels of lb_spec_is_critical
  uint32_t compile_threshold;  // 0: LB_COMPILE_THRESHOLD
} lb_policy;

// Returns the policy of a runtime. An invalid variable is ignored with a
// warning.
lb_policy lb_policy_read(const limber_runtime_options *o, const lb_log *log);
// Returns the policy of a session: that of its runtime, as its options change
// it.
lb_policy lb_policy_of(lb_policy runtime, const limber_session_options *o);

#endif
