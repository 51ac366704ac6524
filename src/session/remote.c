// session/remote.c -- copies between the host and a device that does not share
// its memory.
#include "session/remote.h"

#include <stdlib.h>
#include <string.h>

static lb_status find_remote(lb_context *c, size_t i, lb_remote **out) {
  if (i >= c->n_remotes) {
    lb_remote *all = realloc(c->remotes, (i + 1) * sizeof *all);
    if (!all) return lb_oom();
    memset(all + c->n_remotes, 0, (i + 1 - c->n_remotes) * sizeof *all);
    c->remotes = all;
    c->n_remotes = i + 1;
  }
  *out = &c->remotes[i];
  return LB_OK;
}

// Also sets *bytes: from the lowest address of the tensor to its end.
static lb_status reserve(lb_context *c, size_t i, const lb_tensor *host,
                         size_t *bytes) {
  lb_remote *r;
  LB_TRY(find_remote(c, i, &r));
  LB_TRY(lb_tensor_reach(host, bytes, &r->before));
  if (r->data && *bytes <= r->cap) return LB_OK;
  lb_device_free(c->device, c->alloc, r->data, r->cap);
  *r = (lb_remote){.cap = *bytes, .before = r->before};
  r->data = lb_device_alloc(c->device, c->alloc, r->cap);
  return r->data ? LB_OK : lb_oom();
}

lb_status lb_remote_reserve(lb_context *c, size_t i, const lb_tensor *host) {
  size_t bytes;
  return reserve(c, i, host, &bytes);
}

lb_status lb_remote_write(lb_context *c, lb_stream *q, size_t i,
                          const lb_tensor *host) {
  size_t bytes;
  LB_TRY(reserve(c, i, host, &bytes));
  const lb_remote *r = &c->remotes[i];
  return lb_device_copy(q, LB_COPY_IN, r->data,
                        (const char *)host->data - r->before, bytes);
}

lb_status lb_remote_read(lb_context *c, lb_stream *q, size_t i,
                         const lb_tensor *host) {
  lb_tensor t = *host;
  t.data = lb_remote_at(c, i);
  if (lb_tensor_is_dense(&t))
    return lb_device_copy(q, LB_COPY_OUT, host->data, t.data,
                          lb_tensor_bytes(&t));
  lb_status st = lb_remote_stage(c, q, &t);
  if (!lb_failed(st)) lb_tensor_copy(&t, host);
  lb_arena_reset(&c->scratch);
  return st;
}

lb_status lb_remote_stage(lb_context *c, lb_stream *q, lb_tensor *t) {
  size_t bytes, before;
  LB_TRY(lb_tensor_reach(t, &bytes, &before));
  char *host = lb_arena_alloc(&c->scratch, bytes, LB_TENSOR_ALIGN);
  if (!host) return lb_oom();
  const char *from = t->data;
  t->data = host + before;
  return bytes ? lb_device_copy(q, LB_COPY_OUT, host, from - before, bytes)
               : LB_OK;
}

lb_status lb_remote_unstage(lb_stream *q, const lb_tensor *staged, void *to) {
  size_t bytes, before;
  LB_TRY(lb_tensor_reach(staged, &bytes, &before));
  return bytes ? lb_device_copy(q, LB_COPY_IN, (char *)to - before,
                                (const char *)staged->data - before, bytes)
               : LB_OK;
}
