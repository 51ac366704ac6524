// python/extension/session.h -- what the parts of the session type share.
//
// session.c opens and closes a session, call.c runs it, describe.c describes
// it, bind.c runs it on bound arrays.
//
// A session is closed while no call uses it: a call that releases the GIL is
// between lb_py_enter and lb_py_leave, and the last one to leave a
// session that close() was called on closes it. The GIL guards these fields.
#ifndef LIMBER_PYTHON_SESSION_H
#define LIMBER_PYTHON_SESSION_H

#include "extension.h"

typedef struct session {
  PyObject_HEAD;
  limber_session *limber;  // NULL until __init__, and once it is closed
  PyObject *runtime;       // a capsule; NULL: the default one
  PyObject *source;        // the bytes of a model in memory, or NULL
  PyObject *input_index, *output_index;  // dict: name to position
  PyObject *model_errors, *run_errors;   // exception classes by status
  const limber_value_info *inputs, *outputs;
  size_t n_inputs, n_outputs;
  size_t calls;  // calls that use `limber` now
  bool closing;  // the last of these calls closes the session
} session;

// Returns the session, or NULL with an exception if it is not open. The caller
// must hold the GIL as long as it uses the session.
session *lb_py_opened(PyObject *self);
// The same for callers that release the GIL, until lb_py_leave.
session *lb_py_enter(PyObject *self);
void lb_py_leave(session *s);

// Returns whether the status is LIMBER_OK; if not, an exception is set.
bool lb_py_check(const session *s, limber_status status);

// Returns the position of a name, or -1 without an exception if `index` does
// not have it.
Py_ssize_t lb_position_of(PyObject *index, PyObject *name);

// timeout=None means no limit; timeout=0 has expired before the run begins.
// Returns false with an exception set.
bool lb_timeout_read(PyObject *value, double *out);

// Methods of the type; call.c and describe.c.
PyObject *lb_py_run(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *lb_py_call(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *lb_py_profile(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *lb_py_explain(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *lb_py_nodes(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *lb_py_profile_run(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *lb_py_plan(PyObject *self, PyObject *feeds);
PyObject *lb_py_input_rows(PyObject *self, PyObject *unused);
PyObject *lb_py_output_rows(PyObject *self, PyObject *unused);
PyObject *lb_py_model_info(PyObject *self, PyObject *unused);
PyObject *lb_py_counters(PyObject *self, PyObject *unused);
PyObject *lb_py_dump(PyObject *self, PyObject *unused);

#endif
