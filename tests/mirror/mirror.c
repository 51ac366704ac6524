// tests/mirror/mirror.c -- the device `mirror`: see mirror.h.
#include "mirror/mirror.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Makes addresses non-canonical on x86-64: dereferencing one faults.
#define ADDRESS_OFFSET UINT64_C(0x4000000000000000)

typedef struct block {
  uintptr_t begin, end;  // addresses of the inner device
} block;

typedef struct mirror {
  lb_device base;
  lb_device *inner;  // owned
  pthread_mutex_t lock;
  block *blocks;  // owned; guarded by the lock
  size_t n, cap;
} mirror;

static mirror *to_mirror(lb_device *d) { return (mirror *)d; }

static lb_device *inner_of(lb_device *d) { return to_mirror(d)->inner; }

// -- memory ------------------------------------------------------------------

static bool record_block(mirror *m, uintptr_t at, size_t bytes) {
  if (m->n == m->cap) {
    size_t cap = m->cap ? 2 * m->cap : 64;
    block *more = realloc(m->blocks, cap * sizeof *more);
    if (!more) return false;
    m->blocks = more;
    m->cap = cap;
  }
  m->blocks[m->n++] = (block){at, at + (bytes ? bytes : 1)};
  return true;
}

static void *allocate(lb_device *d, const lb_alloc *a, size_t bytes) {
  mirror *m = to_mirror(d);
  void *p = lb_device_alloc(m->inner, a, bytes);
  if (!p) return NULL;
  pthread_mutex_lock(&m->lock);
  bool recorded = record_block(m, (uintptr_t)p, bytes);
  pthread_mutex_unlock(&m->lock);
  if (recorded) return (void *)((uintptr_t)p + ADDRESS_OFFSET);
  lb_device_free(m->inner, a, p, bytes);
  return NULL;
}

static void release(lb_device *d, const lb_alloc *a, void *p, size_t bytes) {
  mirror *m = to_mirror(d);
  uintptr_t at = (uintptr_t)p - ADDRESS_OFFSET;
  pthread_mutex_lock(&m->lock);
  size_t i = 0;
  while (i < m->n && m->blocks[i].begin != at) i++;
  if (i < m->n) m->blocks[i] = m->blocks[--m->n];
  pthread_mutex_unlock(&m->lock);
  lb_device_free(m->inner, a, (void *)at, bytes);
}

// Returns whether the bytes are in one block; `at` is an address of the inner
// device.
static bool is_allocated(mirror *m, uintptr_t at, size_t bytes) {
  bool found = false;
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; i < m->n && !found; i++)
    found = at >= m->blocks[i].begin && at <= m->blocks[i].end &&
            bytes <= m->blocks[i].end - at;
  pthread_mutex_unlock(&m->lock);
  return found;
}

static lb_status to_inner_address(mirror *m, const void **p, size_t bytes) {
  uintptr_t at = (uintptr_t)*p - ADDRESS_OFFSET;
  if (!is_allocated(m, at, bytes))
    return lb_error(LB_INTERNAL,
                    "mirror: a copy of %zu bytes at %p is not in device "
                    "memory",
                    bytes, *p);
  *p = (const void *)at;
  return LB_OK;
}

static lb_status copy(lb_stream *q, lb_copy how, void *to, const void *from,
                      size_t bytes) {
  mirror *m = to_mirror(q->device);
  const void *dst = to;
  if (how != LB_COPY_OUT) LB_TRY(to_inner_address(m, &dst, bytes));
  if (how != LB_COPY_IN) LB_TRY(to_inner_address(m, &from, bytes));
  memcpy((void *)(uintptr_t)dst, from, bytes);
  return LB_OK;
}

// -- launches ----------------------------------------------------------------

// Checks that every operand starts in memory of the device.
static lb_status check(mirror *m, const lb_stream *q, const lb_launch *l) {
  for (int i = 0; i < l->n_operands; i++) {
    const lb_address *s = &l->addresses[i];
    uintptr_t at = q->bases[s->base] + (uintptr_t)s->offset - ADDRESS_OFFSET;
    if (!is_allocated(m, at, 0))
      return lb_error(LB_INTERNAL,
                      "mirror: operand %d of a launch (base %" PRIu32
                      ", value %" PRIu32 ") is not in memory of the device",
                      i, s->base, s->value);
  }
  return LB_OK;
}

// The same stream for the inner device. Offsets from base 0 are absolute
// addresses.
static lb_status inner_stream(const lb_stream *q, lb_stream *out) {
  uintptr_t *bases = malloc(q->n_bases * sizeof *bases);
  if (!bases) return lb_oom();
  for (size_t i = 0; i < q->n_bases; i++)
    bases[i] = q->bases[i] - ADDRESS_OFFSET;
  *out = *q;
  out->device = inner_of(q->device);
  out->bases = bases;
  return LB_OK;
}

static lb_status submit(lb_stream *q, const lb_exec *exec, const lb_launch *l) {
  mirror *m = to_mirror(q->device);
  lb_stream inner_q;
  for (const lb_launch *one = l; one; one = one->next) LB_TRY(check(m, q, one));
  LB_TRY(inner_stream(q, &inner_q));
  lb_status st = lb_device_submit(&inner_q, exec, l);
  free((void *)(uintptr_t)inner_q.bases);
  return st;
}

static lb_status submit_sequence(lb_stream *q, const lb_sequence *s) {
  mirror *m = to_mirror(q->device);
  lb_stream inner_q;
  const lb_launch *l = s->first;
  for (uint32_t i = 0; i < s->n; i++, l = l->next) LB_TRY(check(m, q, l));
  LB_TRY(inner_stream(q, &inner_q));
  lb_status st = lb_device_submit_sequence(&inner_q, s);
  free((void *)(uintptr_t)inner_q.bases);
  return st;
}

static lb_status wait(lb_stream *q) {
  lb_stream inner_q = *q;
  inner_q.device = inner_of(q->device);
  return lb_device_wait(&inner_q);
}

// -- other operations --------------------------------------------------------

static bool builtin(lb_device *d, const lb_spec *s, const lb_facts *f,
                    lb_exec *out) {
  return lb_device_builtin(inner_of(d), s, f, out);
}

static lb_status ready(lb_device *d) { return lb_device_ready(inner_of(d)); }

static lb_status load(lb_device *d, lb_span object, const char *name,
                      lb_exec **out) {
  return lb_device_load(inner_of(d), object, name, out);
}

static void destroy(lb_device *d) {
  mirror *m = to_mirror(d);
  lb_device_close(m->inner);
  pthread_mutex_destroy(&m->lock);
  free(m->blocks);
  free(m);
}

// Pure operations are copied from the inner device.
static lb_device_ops ops = {
    .name = "mirror",
    .shares = false,
    .destroy = destroy,
    .builtin = builtin,
    .ready = ready,
    .load = load,
    .alloc = allocate,
    .free = release,
    .submit = submit,
    .submit_sequence = submit_sequence,
    .wait = wait,
    .copy = copy,
};

lb_status mirror_open(lb_device *inner, lb_device **out) {
  mirror *m = calloc(1, sizeof *m);
  *out = NULL;
  if (!m) return lb_oom();
  ops.basis = inner->ops->basis;
  ops.prepare = inner->ops->prepare;
  ops.prepare_zone = inner->ops->prepare_zone;
  ops.estimate = inner->ops->estimate;
  m->base = (lb_device){.ops = &ops, .n_builtin = inner->n_builtin};
  m->inner = inner;
  pthread_mutex_init(&m->lock, NULL);
  *out = &m->base;
  return LB_OK;
}
