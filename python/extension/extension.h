// python/extension/extension.h -- the C half of the Python package.
//
// Built on the limited API, so that one file serves every Python from 3.9 on,
// and without numpy's C API: arrays come and go by numpy's array interface, a
// struct in a capsule.
#ifndef LIMBER_PYTHON_EXTENSION_H
#define LIMBER_PYTHON_EXTENSION_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limber/limber.h>
#include <stdbool.h>

// What the C half takes from the Python half and from numpy; owned for ever.
typedef struct imports {
  PyObject *to_array;  // (value, dtype name or None): array that can be read
  PyObject *asarray;   // numpy's
  PyObject *as_brain;  // (array of two bytes each): bfloat16
  PyObject *model_errors, *run_errors;  // exception classes by status
  PyObject *array_struct;               // "__array_struct__"
  PyObject *cancel;                     // the type limber.Cancel
  PyObject *event;                      // the type limber.Event
} imports;
extern imports lb_python;

// Raises what limber_last_error() says; `errors` is model_errors or run_errors.
// Returns NULL.
PyObject *lb_raise(PyObject *errors, limber_status status);
// Text of Limber's: not always UTF-8, as names of a model need not be.
PyObject *lb_text(const char *text);

// -- array.c -----------------------------------------------------------------

// Fills dtype, dims, data and strides of `out` from anything numpy can read: an
// array, or what can be made one of dtype `wanted`. `strides` has room for
// LIMBER_MAX_RANK and stays as long as `out`. `keep` (NULLs before) is what
// keeps the memory alive; new references, on failure too. False with an
// exception set.
bool lb_array_read(PyObject *value, limber_dtype wanted, limber_tensor *out,
                   int64_t *strides, PyObject *keep[2]);

// A numpy array that owns the tensor's memory; `runtime`, which may be NULL,
// stays alive as long. Takes the tensor over, on failure too.
PyObject *lb_array_new(limber_tensor *tensor, PyObject *runtime);

// The handle of a limber.Cancel, which keeps it; NULL of None. False with an
// exception set.
bool lb_cancel_read(PyObject *value, const limber_cancel **out);

// -- runtime.c ---------------------------------------------------------------

// A capsule with a runtime that has these threads and tells `listener`, a
// callable or None, its events; NULL where the default one serves. False with
// an exception set.
bool lb_runtime_new(int threads, int log_level, PyObject *listener,
                    PyObject **out);

extern PyMethodDef lb_cache_methods[];

bool lb_array_init(PyObject *module);
bool lb_cancel_init(PyObject *module);
bool lb_runtime_init(PyObject *module);
bool lb_session_init(PyObject *module);

#endif
