// device/device.h -- the interface that every device implements.
//
// A device loads objects, runs launches and owns memory. It never compiles.
// Device addresses are plain pointers, but the host may dereference them only
// if the device `shares` memory with the host; otherwise device memory is read
// and written through lb_device_copy alone.
//
// Any thread may call; a device does its own locking. A stream belongs to one
// run: work submitted to it runs in submission order, and lb_device_wait
// returns when all of it has run. Copies are ordered with submits, and a copy
// to the host returns only after the work submitted before it has finished.
//
// Sessions, plans and the compile service use load, prepare, allocate, submit,
// wait and copy only; anything else that the CPU needs is in its own directory
// (device/cpu). Operators without a kernel run on the reference
// (device/reference), in host memory: where the device does not share memory,
// the session copies their inputs and outputs.
#ifndef LB_DEVICE_DEVICE_H
#define LB_DEVICE_DEVICE_H

#include "base/alloc.h"
#include "base/run_limits.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "device/launch.h"

typedef struct lb_device lb_device;

typedef struct lb_stream {
  lb_device *device;       // borrowed
  lb_pool *pool;           // worker threads; borrowed, may be NULL
  lb_run_limits *limits;   // checked between the iterations of a sequence;
                           // borrowed, may be NULL
  const uintptr_t *bases;  // device addresses; lb_address.base is an index
  size_t n_bases;
} lb_stream;

typedef enum lb_copy {
  LB_COPY_IN,      // host to device
  LB_COPY_OUT,     // device to host
  LB_COPY_WITHIN,  // device to device
} lb_copy;

// -- for implementations of devices ------------------------------------------

typedef struct lb_device_ops {
  const char *name;  // "cpu"
  bool shares;       // the host may dereference its addresses
  void (*destroy)(lb_device *d);
  bool (*builtin)(lb_device *d, const lb_spec *s, const lb_facts *f,
                  lb_exec *out);
  lb_status (*ready)(lb_device *d);
  lb_status (*load)(lb_device *d, lb_span object, const char *name,
                    lb_exec **out);
  lb_split_basis (*basis)(const lb_spec *s, const lb_facts *f);
  void (*prepare)(const lb_split_basis *b, const int64_t dims[LB_SDIMS],
                  int64_t outer, lb_split *out);
  void (*prepare_zone)(const lb_split *first, int64_t rows, lb_split *out);
  double (*estimate)(const lb_spec *s, const int64_t dims[LB_SDIMS]);
  void *(*alloc)(lb_device *d, const lb_alloc *a, size_t bytes);
  void (*free)(lb_device *d, const lb_alloc *a, void *p, size_t bytes);
  lb_status (*submit)(lb_stream *q, const lb_exec *exec, const lb_launch *l);
  lb_status (*submit_sequence)(lb_stream *q, const lb_sequence *s);
  lb_status (*wait)(lb_stream *q);
  lb_status (*copy)(lb_stream *q, lb_copy how, void *to, const void *from,
                    size_t bytes);
} lb_device_ops;

struct lb_device {  // the first member of every device
  const lb_device_ops *ops;
  size_t n_builtin;  // number of built-in kernels
};

// Memory operations of a device that uses host memory, for its lb_device_ops.
void *lb_host_memory_alloc(lb_device *d, const lb_alloc *a, size_t bytes);
void lb_host_memory_free(lb_device *d, const lb_alloc *a, void *p,
                         size_t bytes);
lb_status lb_host_memory_copy(lb_stream *q, lb_copy how, void *to,
                              const void *from, size_t bytes);

// -- for users of devices ----------------------------------------------------

// The device of sessions without kernels: it has host memory and runs nothing,
// so that every operator runs on the reference.
lb_device *lb_device_none(void);

// Opens the processor that the process runs on. `pack` holds its built-in
// kernels; it is borrowed and may be NULL. With `perf`, kernel names are
// written for the profiler; if that fails, a warning is logged.
struct lb_pack;
lb_status lb_device_open(const struct lb_pack *pack, bool perf,
                         const lb_log *log, lb_device **out);
// Loaded kernels may outlive the device. NULL is allowed.
static inline void lb_device_close(lb_device *d) {
  if (d) d->ops->destroy(d);
}

static inline bool lb_device_shares(const lb_device *d) {
  return d->ops->shares;
}

// -- load

// Finds the built-in kernel for `s` that is valid where the facts `f` hold.
// Returns false, and sets *out to {0}, if there is none.
static inline bool lb_device_builtin(lb_device *d, const lb_spec *s,
                                     const lb_facts *f, lb_exec *out) {
  *out = (lb_exec){0};
  return d->ops->builtin(d, s, f, out);
}
// Fails with LB_DEVICE if the device can never load an object; the message says
// why.
static inline lb_status lb_device_ready(lb_device *d) {
  return d->ops->ready(d);
}
// Loads an object, which is borrowed for the call; `name` is shown by
// profilers. The caller owns *out (lb_exec_release), which may outlive the
// device. Errors: LB_INVALID, the object is corrupt; LB_UNSUPPORTED, it uses
// features that kernels may not use; LB_OOM.
static inline lb_status lb_device_load(lb_device *d, lb_span object,
                                       const char *name, lb_exec **out) {
  *out = NULL;
  return d->ops->load(d, object, name, out);
}

// -- prepare: pure functions, called by the planner

// The part of a split that depends on spec and facts only.
static inline lb_split_basis lb_device_basis(const lb_device *d,
                                             const lb_spec *s,
                                             const lb_facts *f) {
  return d->ops->basis(s, f);
}
// Splits a launch of `dims`, all above 0, inside loops of `outer` iterations.
static inline void lb_device_prepare(const lb_device *d,
                                     const lb_split_basis *b,
                                     const int64_t dims[LB_SDIMS],
                                     int64_t outer, lb_split *out) {
  d->ops->prepare(b, dims, outer, out);
}
// Makes the split of another zone, which has `rows` rows, match the split of
// the first zone of the same partition.
static inline void lb_device_prepare_zone(const lb_device *d,
                                          const lb_split *first, int64_t rows,
                                          lb_split *out) {
  d->ops->prepare_zone(first, rows, out);
}
// Estimated nanoseconds of one iteration on one core or unit. The estimate is
// only good enough to decide whether a launch is worth splitting.
static inline double lb_device_estimate(const lb_device *d, const lb_spec *s,
                                        const int64_t dims[LB_SDIMS]) {
  return d->ops->estimate(s, dims);
}

// -- allocate

// Allocates device memory, aligned to LB_TENSOR_ALIGN and not cleared; NULL
// when out of memory. `a` is the runtime's allocator, for devices that share
// memory.
static inline void *lb_device_alloc(lb_device *d, const lb_alloc *a,
                                    size_t bytes) {
  return d->ops->alloc(d, a, bytes);
}
// `bytes` must be the size that was allocated. NULL is allowed.
static inline void lb_device_free(lb_device *d, const lb_alloc *a, void *p,
                                  size_t bytes) {
  if (p) d->ops->free(d, a, p, bytes);
}

// -- submit, wait, copy

// Runs a kernel over a whole partition: `l` and the zones that follow it. The
// launch is borrowed until lb_device_wait.
static inline lb_status lb_device_submit(lb_stream *q, const lb_exec *exec,
                                         const lb_launch *l) {
  return q->device->ops->submit(q, exec, l);
}
// Runs a sequence; operand addresses advance with each iteration. It stops
// early when the stream's limits are exceeded.
static inline lb_status lb_device_submit_sequence(lb_stream *q,
                                                  const lb_sequence *s) {
  return q->device->ops->submit_sequence(q, s);
}
static inline lb_status lb_device_wait(lb_stream *q) {
  return q->device->ops->wait(q);
}
// `bytes` may be 0. The two ranges must not overlap.
static inline lb_status lb_device_copy(lb_stream *q, lb_copy how, void *to,
                                       const void *from, size_t bytes) {
  return bytes ? q->device->ops->copy(q, how, to, from, bytes) : LB_OK;
}

#endif
