// python/extension/module.c -- the module limber._limber.
#include "extension.h"

#include <string.h>

imports lb_python;

PyObject *lb_text(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *lb_raise(PyObject *errors, limber_status status) {
  PyObject *text = lb_text(limber_last_error());
  PyObject *type = PySequence_GetItem(errors, (Py_ssize_t)status);
  if (text && type) PyErr_SetObject(type, text);
  Py_XDECREF(type);
  Py_XDECREF(text);
  return NULL;
}

// Imports one attribute of a module.
static bool import(const char *module, const char *name, PyObject **out) {
  PyObject *from = PyImport_ImportModule(module);
  *out = from ? PyObject_GetAttrString(from, name) : NULL;
  Py_XDECREF(from);
  return *out != NULL;
}

static bool import_all(void) {
  imports *i = &lb_python;
  i->array_struct = PyUnicode_InternFromString("__array_struct__");
  return i->array_struct && import("numpy", "asarray", &i->asarray) &&
         import("limber._arrays", "to_array", &i->to_array) &&
         import("limber._arrays", "as_bfloat16", &i->as_bfloat16) &&
         import("limber._arrays", "leading", &i->leading) &&
         import("limber._events", "Event", &i->event) &&
         import("limber._errors", "MODEL", &i->model_errors) &&
         import("limber._errors", "RUN", &i->run_errors);
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "limber._limber",
    .m_size = -1,
    .m_methods = lb_cache_methods,
};

PyMODINIT_FUNC PyInit__limber(void) {
  if (!lb_python.array_struct && !import_all()) return NULL;
  PyObject *module = PyModule_Create(&definition);
  if (module && lb_array_init(module) && lb_cancel_init(module) &&
      lb_dlpack_init(module) && lb_runtime_init(module) &&
      lb_session_init(module) && lb_binding_init(module) &&
      lb_primitive_init(module) &&
      !PyModule_AddStringConstant(module, "version", limber_version()))
    return module;
  Py_XDECREF(module);
  return NULL;
}
