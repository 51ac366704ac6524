// device/device.c -- host memory as a device's, and the device without kernels.
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

static bool has_none(lb_device *d, const lb_spec *s, const lb_facts *f,
                     lb_exec *out) {
  (void)d;
  (void)s;
  (void)f;
  (void)out;
  return false;
}

static lb_status loads_nothing(void) {
  return lb_error(LB_DEVICE,
                  "this device has no kernels: everything runs on "
                  "the reference");
}

static lb_status not_ready(lb_device *d) {
  (void)d;
  return loads_nothing();
}

static lb_status load_nothing(lb_device *d, lb_span object, const char *name,
                              lb_exec **out) {
  (void)d;
  (void)object;
  (void)name;
  (void)out;
  return loads_nothing();
}

static lb_status waited(lb_stream *q) {
  (void)q;
  return LB_OK;
}

// Nothing prepares or submits without a kernel.
static const lb_device_ops none_ops = {
    .name = "none",
    .shares = true,
    .builtin = has_none,
    .ready = not_ready,
    .load = load_nothing,
    .alloc = lb_host_memory_alloc,
    .free = lb_host_memory_free,
    .wait = waited,
    .copy = lb_host_memory_copy,
};

lb_device *lb_device_none(void) {
  static lb_device none = {.ops = &none_ops};
  return &none;
}
