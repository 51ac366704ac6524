// python/extension/cancel.c -- the type limber.Cancel, a flag that cancels runs
// from another thread.
#include "extension.h"

typedef struct cancel {
  PyObject_HEAD;
  limber_cancel *limber;  // NULL until __init__
} cancel;

static int cancel_init(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *names[] = {NULL};
  cancel *c = (cancel *)self;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, ":Cancel", names)) return -1;
  if (c->limber) return 0;
  limber_status st = limber_cancel_create(&c->limber);
  if (st) lb_raise(lb_python.run_errors, st);
  return st ? -1 : 0;
}

static void cancel_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  limber_cancel_destroy(((cancel *)self)->limber);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *cancel_trigger(PyObject *self, PyObject *unused) {
  (void)unused;
  limber_cancel *c = ((cancel *)self)->limber;
  if (c) limber_cancel_trigger(c);
  Py_RETURN_NONE;
}

static PyObject *cancel_reset(PyObject *self, PyObject *unused) {
  (void)unused;
  limber_cancel *c = ((cancel *)self)->limber;
  if (c) limber_cancel_reset(c);
  Py_RETURN_NONE;
}

static PyObject *cancel_triggered(PyObject *self, void *unused) {
  (void)unused;
  const limber_cancel *c = ((cancel *)self)->limber;
  return PyBool_FromLong(c && limber_cancel_triggered(c));
}

bool lb_cancel_read(PyObject *value, const limber_cancel **out) {
  *out = NULL;
  if (!value || value == Py_None) return true;
  int fits = PyObject_IsInstance(value, lb_python.cancel);
  if (fits == 1) *out = ((cancel *)value)->limber;
  if (fits == 0)
    PyErr_Format(PyExc_TypeError, "cancel must be a limber.Cancel, not %R",
                 value);
  return fits == 1;
}

static PyMethodDef methods[] = {
    {"trigger", cancel_trigger, METH_NOARGS,
     "Cancels every run that has this flag, until it is reset."},
    {"reset", cancel_reset, METH_NOARGS, "Clears the flag."},
    {0},
};

static PyGetSetDef values[] = {
    {"triggered", cancel_triggered, NULL, "Whether the flag is set.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Cancels runs from another thread: run(names, feeds, cancel=c), then "
     "c.trigger().\n\n"
     "    >>> c = limber.Cancel()\n"
     "    >>> c.trigger()\n"
     "    >>> c.triggered\n"
     "    True\n"},
    {Py_tp_init, cancel_init},
    {Py_tp_dealloc, cancel_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, values},
    {0},
};

static PyType_Spec spec = {
    .name = "limber._limber.Cancel",
    .basicsize = sizeof(cancel),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

bool lb_cancel_init(PyObject *module) {
  if (!lb_python.cancel) lb_python.cancel = PyType_FromSpec(&spec);
  if (!lb_python.cancel) return false;
  Py_INCREF(lb_python.cancel);
  if (!PyModule_AddObject(module, "Cancel", lb_python.cancel)) return true;
  Py_DECREF(lb_python.cancel);
  return false;
}
