// device/device.c -- memory operations for host memory, and the device without
// kernels.
#include "device/device.h"

#include <string.h>

void *lb_host_memory_alloc(lb_device *d, const lb_alloc *a, size_t bytes) {
  (void)d;
  return lb_pages_get(a, bytes);
}

void lb_host_memory_free(lb_device *d, const lb_alloc *a, void *p,
                         size_t bytes) {
  (void)d;
  lb_pages_put(a, p, bytes);
}

lb_status lb_host_memory_copy(lb_stream *q, lb_copy how, void *to,
                              const void *from, size_t bytes) {
  (void)q;
  (void)how;
  memcpy(to, from, bytes);
  return LB_OK;
}

static bool find_no_builtin(lb_device *d, const lb_spec *s, const lb_facts *f,
                            lb_exec *out) {
  (void)d;
  (void)s;
  (void)f;
  (void)out;
  return false;
}

static lb_status no_kernels(void) {
  return lb_error(LB_DEVICE,
                  "this device cannot load kernels: every operator runs on "
                  "the reference");
}

static lb_status not_ready(lb_device *d) {
  (void)d;
  return no_kernels();
}

static lb_status load_none(lb_device *d, lb_span object, const char *name,
                           lb_exec **out) {
  (void)d;
  (void)object;
  (void)name;
  (void)out;
  return no_kernels();
}

static lb_status wait_none(lb_stream *q) {
  (void)q;
  return LB_OK;
}

// The prepare and submit operations stay NULL: they are not called without a
// kernel.
static const lb_device_ops none_ops = {
    .name = "none",
    .shares = true,
    .builtin = find_no_builtin,
    .ready = not_ready,
    .load = load_none,
    .alloc = lb_host_memory_alloc,
    .free = lb_host_memory_free,
    .wait = wait_none,
    .copy = lb_host_memory_copy,
};

lb_device *lb_device_none(void) {
  static lb_device none = {.ops = &none_ops};
  return &none;
}
