// python/extension/extension.h -- the C extension of the Python package.
//
// It is built on the limited API, so that one binary serves every Python from
// 3.9 on, and without numpy's C API: arrays are exchanged by numpy's array
// interface, a struct in a capsule. All functions need the GIL unless they say
// otherwise.
#ifndef LIMBER_PYTHON_EXTENSION_H
#define LIMBER_PYTHON_EXTENSION_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limber/limber.h>
#include <stdbool.h>

// Objects that the extension imports from the Python part and from numpy. It
// owns them for the life of the process.
typedef struct imports {
  PyObject *to_array;     // (value, dtype name or None) -> readable array
  PyObject *asarray;      // numpy.asarray
  PyObject *as_bfloat16;  // (array of two-byte elements) -> bfloat16 view
  PyObject *leading;      // (array, dims) -> view of its first elements
  PyObject *model_errors, *run_errors;  // exception classes by status
  PyObject *array_struct;               // "__array_struct__"
  PyObject *cancel;                     // the type limber.Cancel
  PyObject *event;                      // the type limber.Event
  PyObject *session;                    // the type limber._limber.Session
} imports;
extern imports lb_python;

// Raises an exception with limber_last_error() as its message; `errors` is
// model_errors or run_errors. Returns NULL.
PyObject *lb_raise(PyObject *errors, limber_status status);
// Converts a text, which need not be UTF-8, since names in a model need not be.
PyObject *lb_text(const char *text);

// -- array.c -----------------------------------------------------------------

// Fills dtype, dims, data and strides of `out` from an array, or from a value
// that numpy can convert to an array of dtype `wanted`. `strides` has space for
// LIMBER_MAX_RANK elements and must live as long as `out`. `refs` (NULLs
// before) receives new references that keep the memory alive, on failure too.
// Returns false with an exception set.
bool lb_array_read(PyObject *value, limber_dtype wanted, limber_tensor *out,
                   int64_t *strides, PyObject *refs[2]);

// Returns a numpy array that owns the tensor's memory and keeps `runtime`,
// which may be NULL, alive. Takes ownership of the tensor, on failure too.
PyObject *lb_array_new(limber_tensor *tensor, PyObject *runtime);

// Fills dtype, dims, data and bytes of `out` from a contiguous array that can
// be written to; it must live as long as `out` is used. out->dtype is the dtype
// that the model expects. Returns false with an exception set.
bool lb_array_target(PyObject *array, limber_tensor *out);

// Returns a new reference to the object that owns the memory of an array that
// lb_array_new has made, or NULL without an exception.
PyObject *lb_array_memory(PyObject *array);
// Exchanges the tensor that such an object owns. The array must not be read
// until it owns its tensor again.
void lb_memory_swap(PyObject *memory, limber_tensor *tensor);

// -- dlpack.c ----------------------------------------------------------------

// Fills `out` from a value that has __dlpack__. Returns 1 if *ref keeps the
// memory alive, 0 without an exception if the value cannot be read so, -1 with
// an exception. `strides` is as for lb_array_read.
int lb_dlpack_read(PyObject *value, limber_tensor *out, int64_t *strides,
                   PyObject **ref);

// Returns the handle of a limber.Cancel, which still owns it, or NULL for None.
// Returns false with an exception set.
bool lb_cancel_read(PyObject *value, const limber_cancel **out);

// -- rows.c ------------------------------------------------------------------

// Callbacks that append a dict to `list`. On failure an exception is set, and
// later calls do nothing.
void lb_step_row(void *list, const limber_step *t);
void lb_node_row(void *list, const limber_node *n);
PyObject *lb_stats_row(const limber_stats *t);

// -- runtime.c ---------------------------------------------------------------

// Creates a capsule with a runtime that has this many threads and calls
// `listener`, a callable or None, with its events. *out is NULL if the default
// runtime serves. Returns false with an exception set.
bool lb_runtime_new(int threads, int log_level, PyObject *listener,
                    PyObject **out);

extern PyMethodDef lb_cache_methods[];

bool lb_array_init(PyObject *module);
bool lb_binding_init(PyObject *module);
bool lb_cancel_init(PyObject *module);
bool lb_dlpack_init(PyObject *module);
bool lb_primitive_init(PyObject *module);
bool lb_runtime_init(PyObject *module);
bool lb_session_init(PyObject *module);

#endif
