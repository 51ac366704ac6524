// device/cpu/device.c -- the device operations of the CPU.
#include "device/cpu/device.h"

#include <assert.h>
#include <stdlib.h>

#include "device/cpu/exec.h"
#include "device/cpu/split.h"
#include "device/cpu/submit.h"

// Unlimited: the budget of the kernel cache limits it.
#define CODE_BYTES SIZE_MAX

static const lb_device_ops cpu_ops;

static lb_cpu_device *to_cpu(lb_device *d) {
  assert(d->ops == &cpu_ops);
  return (lb_cpu_device *)d;
}

static bool builtin(lb_device *base, const lb_spec *s, const lb_facts *f,
                    lb_exec *out) {
  const lb_pack *pack = to_cpu(base)->pack;
  lb_kernel_fn *kernel = pack ? lb_pack_find(pack, s, f) : NULL;
  out->entry = (uintptr_t)kernel;
  return kernel != NULL;
}

// Two threads may create the memory at the same time: one of them is kept.
static lb_status open_code(lb_cpu_device *d, lb_cpu_code **out) {
  lb_cpu_code_mode mode =
      d->perf ? LB_CPU_SEALED : LB_CPU_SHARED;  // see perf.h
  lb_cpu_code *none = NULL, *mine;
  *out = atomic_load(&d->code);
  if (*out) return LB_OK;
  LB_TRY(lb_cpu_code_create(CODE_BYTES, mode, &mine));
  bool first = atomic_compare_exchange_strong(&d->code, &none, mine);
  if (!first) lb_cpu_code_release(mine);
  *out = first ? mine : none;
  return LB_OK;
}

static lb_status ready(lb_device *base) {
  lb_cpu_code *code;
  return open_code(to_cpu(base), &code);
}

static lb_status load(lb_device *base, lb_span object, const char *name,
                      lb_exec **out) {
  lb_cpu_device *d = to_cpu(base);
  lb_cpu_code *code;
  lb_cpu_exec *exec;
  LB_TRY(open_code(d, &code));
  LB_TRY(lb_cpu_exec_create(code, d->perf, object, name, &exec));
  *out = &exec->base;
  return LB_OK;
}

static lb_status wait(lb_stream *q) {
  (void)q;
  return LB_OK;
}

static void destroy(lb_device *base) {
  lb_cpu_device *d = to_cpu(base);
  lb_cpu_device_fini(d);
  free(d);
}

static const lb_device_ops cpu_ops = {
    .name = "cpu",
    .shares = true,
    .destroy = destroy,
    .builtin = builtin,
    .ready = ready,
    .load = load,
    .basis = lb_split_basis_of,
    .prepare = lb_split_at,
    .prepare_zone = lb_split_zone,
    .estimate = lb_split_estimate,
    .alloc = lb_host_memory_alloc,
    .free = lb_host_memory_free,
    .submit = lb_cpu_submit,
    .submit_sequence = lb_cpu_submit_sequence,
    .wait = wait,
    .copy = lb_host_memory_copy,
};

// Everything but perf works without it, so a failure is only a warning.
static lb_perf *open_perf(const lb_log *log) {
  lb_perf *perf = NULL;
  lb_status st = lb_perf_open("/tmp", &perf);
  if (lb_failed(st))
    lb_log_line(log, LB_LOG_WARN, "perf will not show kernel names: %s",
                lb_status_message(st));
  lb_status_drop(st);
  return perf;
}

void lb_cpu_device_init(lb_cpu_device *d, const lb_pack *pack, bool perf,
                        const lb_log *log) {
  *d = (lb_cpu_device){
      .base = {.ops = &cpu_ops, .n_builtin = pack ? pack->n : 0},
      .pack = pack,
      .perf = perf ? open_perf(log) : NULL};
}

void lb_cpu_device_fini(lb_cpu_device *d) {
  lb_cpu_code_release(atomic_load(&d->code));
  lb_perf_close(d->perf);
}
