// device/device.h -- what a device must be able to do, and nothing else.
//
// A device loads objects, runs launches and has memory. It never compiles. Its
// addresses are plain pointers, but only a device that `shares` memory with the
// host allows the host to use them: of any other, memory is read and written
// through lb_device_copy alone.
//
// Any thread may call; a device does its own locking. A stream belongs to one
// run: what is submitted to it runs in that order, and lb_device_wait returns
// when all of it has run. Copies are ordered with submits, and a copy to the
// host has waited for them.
//
// Load, prepare, allocate, submit, wait and copy are all that sessions, plans
// and the compile service use; what a processor needs besides is in its own
// directory (device/cpu). Operators that no kernel serves run on the reference
// (device/reference), on host memory: the session copies what they read and
// write where the device does not share memory.
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
  lb_pool *pool;           // threads that take part; borrowed, may be NULL
  lb_run_limits *bound;    // ends sequences early; borrowed, may be NULL
  const uintptr_t *bases;  // device addresses that launches refer to, by number
  size_t n_bases;
} lb_stream;

typedef enum lb_copy {
  LB_COPY_IN,      // from host memory to the device's
  LB_COPY_OUT,     // from the device's to host memory
  LB_COPY_WITHIN,  // between two places of the device's
} lb_copy;

// -- for devices only -------------------------------------------------------

typedef struct lb_device_ops {
  const char *name;  // "cpu"
  bool shares;       // its addresses are addresses of the host
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

struct lb_device {  // first member of every device
  const lb_device_ops *ops;
  size_t n_builtin;  // kernels that are there without loading
};

// The operations of a device whose memory is the host's: for tables of ops.
void *lb_host_memory_alloc(lb_device *d, const lb_alloc *a, size_t bytes);
void lb_host_memory_free(lb_device *d, const lb_alloc *a, void *p,
                         size_t bytes);
lb_status lb_host_memory_copy(lb_stream *q, lb_copy how, void *to,
                              const void *from, size_t bytes);

// -- for everybody ----------------------------------------------------------

// The device of sessions without kernels: host memory, and nothing to run on
// it but the reference.
lb_device *lb_device_none(void);

// The processor that the process runs on. `pack` holds the kernels that it has
// from the beginning; borrowed, may be NULL. With `perf`, profilers get the
// names of kernels; where they cannot, that is a warning in the log.
struct lb_pack;
lb_status lb_device_open(const struct lb_pack *pack, bool perf,
                         const lb_log *log, lb_device **out);
// Kernels that were loaded may outlive it. NULL is fine.
static inline void lb_device_close(lb_device *d) {
  if (d) d->ops->destroy(d);
}

static inline bool lb_device_shares(const lb_device *d) {
  return d->ops->shares;
}

// -- load

// The kernel that the device has from the beginning for where `f` hold; false,
// and *out is {0}, if it has none.
static inline bool lb_device_builtin(lb_device *d, const lb_spec *s,
                                     const lb_facts *f, lb_exec *out) {
  *out = (lb_exec){0};
  return d->ops->builtin(d, s, f, out);
}
// LB_DEVICE: nothing can be loaded, for good, and the message says why.
static inline lb_status lb_device_ready(lb_device *d) {
  return d->ops->ready(d);
}
// Loads an object, which is borrowed for the call; `name` is for profilers. The
// caller owns *out (lb_exec_release), which outlives the device if need be.
// LB_INVALID, LB_UNSUPPORTED: the object is broken, or needs what kernels do
// not have; LB_OOM.
static inline lb_status lb_device_load(lb_device *d, lb_span object,
                                       const char *name, lb_exec **out) {
  *out = NULL;
  return d->ops->load(d, object, name, out);
}

// -- prepare: pure, for plans

// What spec and facts say about dividing the work of a launch.
static inline lb_split_basis lb_device_basis(const lb_device *d,
                                             const lb_spec *s,
                                             const lb_facts *f) {
  return d->ops->basis(s, f);
}
// Divides a launch of these dims, all above 0, inside loops of `outer`
// iterations.
static inline void lb_device_prepare(const lb_device *d,
                                     const lb_split_basis *b,
                                     const int64_t dims[LB_SDIMS],
                                     int64_t outer, lb_split *out) {
  d->ops->prepare(b, dims, outer, out);
}
// Adapts the split of another zone, of so many rows, to that of the first zone
// of the same partition.
static inline void lb_device_prepare_zone(const lb_device *d,
                                          const lb_split *first, int64_t rows,
                                          lb_split *out) {
  d->ops->prepare_zone(first, rows, out);
}
// Nanoseconds that one iteration takes on one core or unit: good enough to tell
// what is worth dividing, for nothing else.
static inline double lb_device_estimate(const lb_device *d, const lb_spec *s,
                                        const int64_t dims[LB_SDIMS]) {
  return d->ops->estimate(s, dims);
}

// -- allocate

// Memory of the device, aligned to LB_TENSOR_ALIGN, not cleared; NULL when it
// is out. `a` is the runtime's allocator, for devices that share memory.
static inline void *lb_device_alloc(lb_device *d, const lb_alloc *a,
                                    size_t bytes) {
  return d->ops->alloc(d, a, bytes);
}
// The same number of bytes; NULL is fine.
static inline void lb_device_free(lb_device *d, const lb_alloc *a, void *p,
                                  size_t bytes) {
  if (p) d->ops->free(d, a, p, bytes);
}

// -- submit, wait, copy

// Runs a kernel over a whole partition: `l` and the zones that follow it. The
// launch is borrowed until the stream has been waited for.
static inline lb_status lb_device_submit(lb_stream *q, const lb_exec *exec,
                                         const lb_launch *l) {
  return q->device->ops->submit(q, exec, l);
}
// Runs a sequence; operands move on with each iteration. Iterations that the
// stream's bound forbids are left out.
static inline lb_status lb_device_submit_sequence(lb_stream *q,
                                                  const lb_sequence *s) {
  return q->device->ops->submit_sequence(q, s);
}
static inline lb_status lb_device_wait(lb_stream *q) {
  return q->device->ops->wait(q);
}
// `bytes` may be 0. The two places do not overlap.
static inline lb_status lb_device_copy(lb_stream *q, lb_copy how, void *to,
                                       const void *from, size_t bytes) {
  return bytes ? q->device->ops->copy(q, how, to, from, bytes) : LB_OK;
}

#endif
