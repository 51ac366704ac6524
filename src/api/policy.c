// api/policy.c -- reads LIMBER_COMPILE, LIMBER_COMPILE_OPS and
// LIMBER_COMPILE_THRESHOLD.
#include "api/policy.h"

#include <stdlib.h>

#include "api/env.h"

static bool is_quiet(const limber_runtime_options *o, const lb_log *log) {
  if (o->compile) return o->compile == LIMBER_COMPILE_SETTLE;
  return lb_env_choice("LIMBER_COMPILE",
                       (const char *const[]){"background", "settle"}, log);
}

static bool is_critical(const limber_runtime_options *o, const lb_log *log) {
  if (o->compile_ops) return o->compile_ops == LIMBER_COMPILE_CRITICAL;
  return lb_env_choice("LIMBER_COMPILE_OPS",
                       (const char *const[]){"all", "critical"}, log);
}

static uint32_t read_compile_threshold(const limber_runtime_options *o,
                                       const lb_log *log) {
  const char *text = getenv("LIMBER_COMPILE_THRESHOLD");
  if (o->compile_threshold) return (uint32_t)o->compile_threshold;
  if (!text || !*text) return 0;
  char *end;
  long n = strtol(text, &end, 10);
  if (!*end && n >= 1 && n <= 1000000) return (uint32_t)n;
  lb_log_line(
      log, LB_LOG_WARN,
      "LIMBER_COMPILE_THRESHOLD=%s is ignored: it must be a number from 1 to "
      "1000000",
      text);
  return 0;
}

lb_policy lb_policy_read(const limber_runtime_options *o, const lb_log *log) {
  return (lb_policy){.quiet = is_quiet(o, log),
                     .critical = is_critical(o, log),
                     .compile_threshold = read_compile_threshold(o, log)};
}

lb_policy lb_policy_of(lb_policy runtime, const limber_session_options *o) {
  lb_policy p = runtime;
  if (o->compile) p.quiet = o->compile == LIMBER_COMPILE_SETTLE;
  if (o->compile_ops) p.critical = o->compile_ops == LIMBER_COMPILE_CRITICAL;
  return p;
}
