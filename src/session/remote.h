// session/remote.h -- runs on a device that does not share the host's memory.
//
// Inputs and results of a region belong to the caller, and dynamic buffers are
// written by reference kernels: all of these are in host memory. For such a
// device each of them has a *remote*, a copy in the device's memory, which
// launches use instead. The arena is in the device's memory only, so a step
// that runs on the reference works on *staged* copies of arena values.
//
// None of these functions is called for a device that shares memory. One thread
// at a time, as for the context.
#ifndef LB_SESSION_REMOTE_H
#define LB_SESSION_REMOTE_H

#include "device/device.h"
#include "session/context.h"

// Allocates remote i, for a tensor in host memory.
lb_status lb_remote_reserve(lb_context *c, size_t i, const lb_tensor *host);
// Allocates remote i and copies the tensor to it.
lb_status lb_remote_write(lb_context *c, lb_stream *q, size_t i,
                          const lb_tensor *host);
// Copies remote i back to the tensor, without the bytes between its elements.
lb_status lb_remote_read(lb_context *c, lb_stream *q, size_t i,
                         const lb_tensor *host);
// The device address of the first element of the tensor of remote i.
static inline char *lb_remote_at(const lb_context *c, size_t i) {
  const lb_remote *r = i < c->n_remotes ? &c->remotes[i] : NULL;
  return r && r->data ? r->data + r->before : NULL;
}

// Replaces the data of t, a device address, by a copy in the context's scratch
// memory.
lb_status lb_remote_stage(lb_context *c, lb_stream *q, lb_tensor *t);
// Copies a staged tensor back to the device.
lb_status lb_remote_unstage(lb_stream *q, const lb_tensor *staged, void *to);

#endif
