// python/extension/cache.c -- functions of the module for the in-memory cache.
#include "extension.h"

static PyObject *get_capacity(PyObject *self, PyObject *unused) {
  uint64_t bytes;
  (void)self;
  (void)unused;
  limber_status st = limber_get_cache_capacity(&bytes);
  if (st) return lb_raise(lb_python.run_errors, st);
  return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *set_capacity(PyObject *self, PyObject *bytes) {
  (void)self;
  unsigned long long n = PyLong_AsUnsignedLongLong(bytes);
  if (n == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
  limber_status st = limber_set_cache_capacity(n);
  if (st) return lb_raise(lb_python.run_errors, st);
  Py_RETURN_NONE;
}

static PyObject *layer(const limber_layer_stats *s) {
  return Py_BuildValue(
      "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "hits",
      (unsigned long long)s->hits, "misses", (unsigned long long)s->misses,
      "waits", (unsigned long long)s->waits, "insertions",
      (unsigned long long)s->insertions, "evictions",
      (unsigned long long)s->evictions, "corrupt",
      (unsigned long long)s->corrupt, "entries", (unsigned long long)s->entries,
      "bytes", (unsigned long long)s->bytes, "build_us",
      (unsigned long long)s->build_us, "load_us",
      (unsigned long long)s->load_us);
}

static PyObject *stats(PyObject *self, PyObject *unused) {
  limber_cache_stats s = {.size = sizeof s};
  (void)self;
  (void)unused;
  limber_status st = limber_get_cache_stats(NULL, &s);
  if (st) return lb_raise(lb_python.run_errors, st);
  return Py_BuildValue(
      "{s:K,s:K,s:K,s:N,s:N,s:N,s:N,s:N,s:K,s:K}", "capacity",
      (unsigned long long)s.capacity, "bytes", (unsigned long long)s.bytes,
      "retired_bytes", (unsigned long long)s.retired_bytes, "pack",
      layer(&s.pack), "kernels", layer(&s.kernels), "primitives",
      layer(&s.primitives), "store", layer(&s.store), "worker",
      layer(&s.worker), "slots", (unsigned long long)s.slots, "slot_bytes",
      (unsigned long long)s.slot_bytes);
}

static PyObject *text_of(limber_status (*ask)(limber_runtime *, char **)) {
  char *text;
  limber_status st = ask(NULL, &text);
  if (st) return lb_raise(lb_python.run_errors, st);
  PyObject *out = lb_text(text);
  limber_string_free(text);
  return out;
}

static PyObject *metrics(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  return text_of(limber_metrics);
}

static PyObject *explain_miss(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  return text_of(limber_explain_miss);
}

PyMethodDef lb_cache_methods[] = {
    {"get_cache_capacity", get_capacity, METH_NOARGS,
     "get_cache_capacity()\n--\n\nReturns the byte budget of this process for\n"
     "compiled kernels and primitives."},
    {"set_cache_capacity", set_capacity, METH_O,
     "set_cache_capacity(bytes, /)\n--\n\nSets that budget and evicts entries "
     "at\n"
     "once, no more than necessary. 0: no compiled kernel is kept."},
    {"cache_stats", stats, METH_NOARGS,
     "cache_stats()\n--\n\nReturns the cache statistics of this process as a\n"
     "dict: hits, misses and other counters for each layer (pack, kernels,\n"
     "primitives, store, worker). All sessions share the caches, whatever\n"
     "their threads."},
    {"metrics", metrics, METH_NOARGS,
     "metrics()\n--\n\nReturns the same statistics as Prometheus text."},
    {"explain_miss", explain_miss, METH_NOARGS,
     "explain_miss()\n--\n\nExplains the last cache misses: what was looked "
     "up,\n"
     "the nearest entry, and how they differ; '' if nothing was missed."},
    {NULL, NULL, 0, NULL},
};
