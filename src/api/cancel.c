// api/cancel.c -- the cancellation flag, and the conversion of run options.
#include <math.h>
#include <stdlib.h>

#include "api/error.h"
#include "api/options.h"
#include "api/session.h"
#include "base/clock.h"

struct limber_cancel {
  atomic_int triggered;
};

limber_status limber_cancel_create(limber_cancel **out) {
  *out = calloc(1, sizeof **out);
  return lb_report(*out ? LB_OK : lb_oom(), NULL);
}

void limber_cancel_destroy(limber_cancel *cancel) { free(cancel); }

void limber_cancel_trigger(limber_cancel *cancel) {
  atomic_store(&cancel->triggered, 1);
}

void limber_cancel_reset(limber_cancel *cancel) {
  atomic_store(&cancel->triggered, 0);
}

int limber_cancel_triggered(const limber_cancel *cancel) {
  return atomic_load(&cancel->triggered);
}

// Clamps the deadline, so that a large timeout does not overflow.
static int64_t deadline_after(int64_t now, double seconds) {
  const double most = 1e9;  // seconds, more than thirty years
  if (seconds < 0) return now;
  return now + (int64_t)((seconds < most ? seconds : most) * 1e9);
}

lb_status lb_run_options_read(const limber_run_options *options,
                              lb_run_limits *limits, lb_run_how *how) {
  limber_run_options o;
  *how = (lb_run_how){0};
  if (!options) return LB_OK;
  LB_TRY(lb_options_read("limber_run_options", options, sizeof o, &o));
  if (isnan(o.timeout)) return lb_error(LB_INVALID, "timeout: not a number");
  if ((uintptr_t)o.scratch % LB_SCRATCH_ALIGN)
    return lb_error(LB_INVALID, "scratch: must be aligned to %d bytes",
                    LB_SCRATCH_ALIGN);
  *limits = (lb_run_limits){.start_ns = lb_clock_ns(),
                            .memory_limit = (size_t)o.memory_limit};
  if (o.cancel) limits->cancelled = &o.cancel->triggered;
  if (o.timeout != 0)
    limits->deadline_ns = deadline_after(limits->start_ns, o.timeout);
  *how = (lb_run_how){.limits = limits,
                      .scratch = o.scratch,
                      .scratch_bytes = (size_t)o.scratch_bytes,
                      .lends = o.scratch != NULL};
  return LB_OK;
}
