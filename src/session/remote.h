// session/remote.h -- runs on a device whose memory is not the host's.
//
// Inputs and results of a region are the caller's, and dynamic buffers are made
// by the reference: all of these are in host memory. For such a device each of
// them has a *remote*, a copy in memory of the device, which launches use in
// its place. The arena is the device's alone, so a step that runs on the
// reference works on *staged* copies of what is there.
//
// Nothing of this is called for a device that shares memory. One thread at a
// time, as for the context.
#ifndef LB_SESSION_REMOTE_H
#define LB_SESSION_REMOTE_H

#include "device/device.h"
#include "session/context.h"

// Memory for remote i, for a tensor of the host.
lb_status lb_remote_reserve(lb_context *c, size_t i, const lb_tensor *host);
// The same, and copies the tensor there.
lb_status lb_remote_write(lb_context *c, lb_stream *q, size_t i,
                          const lb_tensor *host);
// Copies remote i back to the tensor, and no byte between its elements.
lb_status lb_remote_read(lb_context *c, lb_stream *q, size_t i,
                         const lb_tensor *host);
// Where the device has the first element of the tensor of remote i.
static inline char *lb_remote_at(const lb_context *c, size_t i) {
  const lb_remote *r = i < c->n_remotes ? &c->remotes[i] : NULL;
  return r && r->data ? r->data + r->before : NULL;
}

// Replaces the address of t, which is the device's, by that of a copy in the
// context's scratch memory.
lb_status lb_remote_stage(lb_context *c, lb_stream *q, lb_tensor *t);
// Copies a staged tensor back to where it was.
lb_status lb_remote_unstage(lb_stream *q, const lb_tensor *staged, void *to);

#endif
