// python/extension/runtime.c -- runtimes in capsules, and their events as calls
// of Python.
//
// Events come from a thread of the runtime's. It takes the GIL for each call,
// which it must not wait for once the interpreter has begun to end: `calls`
// counts those that may wait, and `_silence`, which Python calls when
// it ends, lets no more begin and waits for these.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "extension.h"

enum { SILENT = 1 << 30 };  // added to `calls` when the interpreter ends

static atomic_int calls;

static bool call_begins(void) {
  if (atomic_fetch_add(&calls, 1) < SILENT) return true;
  atomic_fetch_sub(&calls, 1);
  return false;
}

static void call_ends(void) { atomic_fetch_sub(&calls, 1); }

// The threads that were calling are not in the child.
static void forget_calls(void) {
  atomic_store(&calls, atomic_load(&calls) & SILENT);
}

static PyObject *silence(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  atomic_fetch_add(&calls, SILENT);
  Py_BEGIN_ALLOW_THREADS;
  while (atomic_load(&calls) > SILENT) sched_yield();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static void tell(void *user, const limber_event *e) {
  PyObject *listener = user;
  if (!call_begins()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *event = PyObject_CallFunction(
      lb_python.event, "sssNLLLi", e->name, e->reason, e->reason_text,
      lb_text(e->text), (long long)e->value, (long long)e->start_ns,
      (long long)e->end_ns, e->thread);
  PyObject *answer =
      event ? PyObject_CallFunctionObjArgs(listener, event, NULL) : NULL;
  if (!answer) PyErr_WriteUnraisable(listener);
  Py_XDECREF(answer);
  Py_XDECREF(event);
  PyGILState_Release(state);
  call_ends();
}

static void runtime_free(PyObject *capsule) {
  limber_runtime *r = PyCapsule_GetPointer(capsule, NULL);
  PyObject *listener = PyCapsule_GetContext(capsule);
  Py_BEGIN_ALLOW_THREADS;
  limber_runtime_destroy(r);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(listener);
}

bool lb_runtime_new(int threads, int log_level, PyObject *listener,
                    PyObject **out) {
  if (listener == Py_None) listener = NULL;
  *out = NULL;
  if (!threads && !log_level && !listener) return true;
  if (listener && !PyCallable_Check(listener)) {
    PyErr_Format(PyExc_TypeError, "event must be callable, not %R", listener);
    return false;
  }
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *r;
  o.threads = threads;
  o.log_level = log_level;
  o.event = listener ? tell : NULL;
  o.event_user = listener;
  limber_status st = limber_runtime_create(&o, &r);
  if (st) return lb_raise(lb_python.run_errors, st);
  *out = PyCapsule_New(r, NULL, runtime_free);
  if (!*out) {
    limber_runtime_destroy(r);
    return false;
  }
  Py_XINCREF(listener);
  PyCapsule_SetContext(*out, listener);
  return true;
}

bool lb_runtime_init(PyObject *module) {
  static PyMethodDef methods[] = {
      {"_silence", silence, METH_NOARGS, "Ends the calls of listeners."},
      {0},
  };
  static bool watched;
  if (!watched && pthread_atfork(NULL, NULL, forget_calls)) {
    PyErr_NoMemory();
    return false;
  }
  watched = true;
  return !PyModule_AddFunctions(module, methods);
}
