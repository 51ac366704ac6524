// python/extension/runtime.c -- runtimes in capsules, and event callbacks into
// Python.
//
// Events arrive on a thread of the runtime, which takes the GIL for each call.
// It must not wait for the GIL once the interpreter is finalising: `calls`
// counts the calls that may wait for it. At exit, Python calls `_stop_events`,
// which lets no more calls begin and waits for those that have begun.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "extension.h"

enum { STOPPED = 1 << 30 };  // added to `calls` by _stop_events

static atomic_int calls;

static bool call_begins(void) {
  if (atomic_fetch_add(&calls, 1) < STOPPED) return true;
  atomic_fetch_sub(&calls, 1);
  return false;
}

static void call_ends(void) { atomic_fetch_sub(&calls, 1); }

// A forked child does not have the threads that were calling.
static void reset_calls(void) {
  atomic_store(&calls, atomic_load(&calls) & STOPPED);
}

static PyObject *stop_events(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  atomic_fetch_add(&calls, STOPPED);
  Py_BEGIN_ALLOW_THREADS;
  while (atomic_load(&calls) > STOPPED) sched_yield();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static void call_listener(void *user, const limber_event *e) {
  PyObject *listener = user;
  if (!call_begins()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *event = PyObject_CallFunction(
      lb_python.event, "sssNLLLi", e->name, e->reason, e->reason_text,
      lb_text(e->text), (long long)e->value, (long long)e->start_ns,
      (long long)e->end_ns, e->thread);
  PyObject *result =
      event ? PyObject_CallFunctionObjArgs(listener, event, NULL) : NULL;
  if (!result) PyErr_WriteUnraisable(listener);
  Py_XDECREF(result);
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

// Runtimes that differ from the default one in nothing but their log level, by
// that level: sessions share them, and their threads, until the process exits.
static PyObject *by_level[LIMBER_LOG_DEBUG + 1];

static bool runtime_create(int threads, int log_level, PyObject *listener,
                           PyObject **out) {
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *r;
  o.threads = threads;
  o.log_level = log_level;
  o.event = listener ? call_listener : NULL;
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

bool lb_runtime_new(int threads, int log_level, PyObject *listener,
                    PyObject **out) {
  if (listener == Py_None) listener = NULL;
  *out = NULL;
  if (listener && !PyCallable_Check(listener)) {
    PyErr_Format(PyExc_TypeError, "event must be callable, not %R", listener);
    return false;
  }
  if (threads || listener)
    return runtime_create(threads, log_level, listener, out);
  if (log_level <= LIMBER_LOG_DEFAULT || log_level > LIMBER_LOG_DEBUG)
    return true;
  PyObject **shared = &by_level[log_level];
  if (!*shared && !runtime_create(0, log_level, NULL, shared)) return false;
  Py_INCREF(*shared);
  *out = *shared;
  return true;
}

bool lb_runtime_init(PyObject *module) {
  static PyMethodDef methods[] = {
      {"_stop_events", stop_events, METH_NOARGS, "Stops event callbacks."},
      {0},
  };
  static bool registered;
  if (!registered && pthread_atfork(NULL, NULL, reset_calls)) {
    PyErr_NoMemory();
    return false;
  }
  registered = true;
  return !PyModule_AddFunctions(module, methods);
}
