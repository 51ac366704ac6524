// api/policy.h -- what is compiled for whom, and when: the options of a runtime
// and what the environment says where these leave it open.
//
//   LIMBER_COMPILE=background  while requests run: the default
//   LIMBER_COMPILE=settle      in limber_session_settle alone
//   LIMBER_COMPILE_OPS=all|critical  everything, or what is most of the time
//                        of most models: convolutions, products, softmax
//   LIMBER_COMPILE_THRESHOLD=N   at how many runs that meet a kernel it is
//   compiled: 2
//
// Sessions of a process that differ in this share kernels all the same: the
// most eager one that wants a kernel decides when it is compiled.
#ifndef LB_API_POLICY_H
#define LB_API_POLICY_H

#include <stdint.h>

#include "base/log.h"
#include "limber/limber.h"

typedef struct lb_policy {     // plain numbers without padding: part of a key
  int32_t quiet;               // kernels come by settle alone
  int32_t critical;            // of what lb_spec_is_critical says, no others
  uint32_t compile_threshold;  // 0: LB_COMPILE_THRESHOLD
} lb_policy;

// What is wrong with a variable is a warning.
lb_policy lb_policy_read(const limber_runtime_options *o, const lb_log *log);
// That of a session whose options say something else than its runtime's.
lb_policy lb_policy_of(lb_policy runtime, const limber_session_options *o);

#endif
