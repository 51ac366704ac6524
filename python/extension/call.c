// python/extension/call.c -- one call of a session: the tensors of its
// arguments, the run with the GIL released, and its results as arrays.
#include <string.h>

#include "session.h"

typedef enum report_kind {
  REPORT_STEPS,
  REPORT_ALL,  // steps, then nodes without a step
  REPORT_NODES,
} report_kind;

// One call: the tensors, and references that keep their names and memory alive.
typedef struct python_call {
  limber_tensor *in, *out;
  PyObject **refs;       // n_refs; owned
  size_t *result_index;  // for each requested output: its index in `out`
  int64_t *strides;      // LIMBER_MAX_RANK for each input
  size_t n_in, n_out, n_refs, n_requested;
  size_t cap_in;
  PyObject *rows;  // the list that receives what is reported, or NULL; borrowed
  report_kind report;
  const limber_run_options *options;  // may be NULL; borrowed
  bool planning;  // inputs may be tuples: the shape of an input without data
} python_call;

static bool call_init(python_call *c, size_t n_in, size_t n_out) {
  size_t tensors = (n_in + n_out) * sizeof *c->in;
  size_t ref_bytes = (2 * n_in + n_out) * sizeof *c->refs;
  size_t result_index = n_out * sizeof *c->result_index;
  size_t strides = n_in * LIMBER_MAX_RANK * sizeof *c->strides;
  *c = (python_call){
      .in = PyMem_Calloc(1, tensors + ref_bytes + result_index + strides + 1),
      .cap_in = n_in};
  if (!c->in) {
    PyErr_NoMemory();
    return false;
  }
  c->out = c->in + n_in;
  c->refs = (PyObject **)(c->out + n_out);
  c->result_index = (size_t *)(c->refs + 2 * n_in + n_out);
  c->strides = (int64_t *)(c->result_index + n_out);
  return true;
}

static void call_fini(python_call *c) {
  for (size_t i = 0; c->out && i < c->n_out; i++)
    limber_tensor_free(&c->out[i]);
  for (size_t i = 0; i < c->n_refs; i++) Py_XDECREF(c->refs[i]);
  PyMem_Free(c->in);
}

Py_ssize_t lb_position_of(PyObject *index, PyObject *name) {
  PyObject *position = PyDict_GetItemWithError(index, name);
  if (position) return PyLong_AsSsize_t(position);
  return -1;
}

// Returns a name that the model does not have, so that Limber reports it.
static const char *unknown_name(python_call *c, PyObject *name) {
  PyObject *bytes = PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : NULL;
  if (!bytes && !PyErr_Occurred())
    PyErr_Format(PyExc_TypeError, "names are str, not %R", name);
  if (!bytes) return NULL;
  c->refs[c->n_refs++] = bytes;
  char *text;
  return PyBytes_AsStringAndSize(bytes, &text, NULL) ? NULL : text;
}

static bool add_unknown_input(python_call *c, PyObject *name) {
  static float nothing;
  if (PyErr_Occurred()) return false;
  limber_tensor *t = &c->in[c->n_in];
  *t = (limber_tensor){.dtype = LIMBER_F32, .data = &nothing};
  t->name = unknown_name(c, name);
  c->n_in += t->name != NULL;
  return t->name != NULL;
}

// True for exceptions about the value, which can be created from a message.
static bool is_about_value(PyObject *type) {
  PyObject *invalid = PySequence_GetItem(lb_python.run_errors, LIMBER_INVALID);
  Py_XDECREF(invalid);  // its module keeps a reference
  return type == invalid || type == PyExc_ValueError || type == PyExc_TypeError;
}

// Prefixes the message of the current exception with the input's name.
static bool name_input(const char *name) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *input = is_about_value(type) ? lb_text(name) : NULL;
  if (!input) {
    PyErr_Restore(type, value, trace);
    return false;
  }
  PyErr_Format(type, "input '%U': %S", input, value);
  Py_DECREF(input);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return false;
}

static bool add_input(python_call *c, const session *s, size_t position,
                      PyObject *value) {
  int64_t *strides = c->strides + c->n_in * LIMBER_MAX_RANK;
  limber_tensor *t = &c->in[c->n_in++];
  const limber_value_info *info =
      position < s->n_inputs ? &s->inputs[position] : NULL;
  PyObject **refs = &c->refs[c->n_refs];
  c->n_refs += 2;
  t->name = info ? info->name : NULL;
  return lb_array_read(value, info ? info->dtype : LIMBER_NONE, t, strides,
                       refs) ||
         name_input(info ? info->name : "by position");
}

static bool add_shape(python_call *c, const session *s, size_t position,
                      PyObject *dims) {
  limber_tensor *t = &c->in[c->n_in++];
  Py_ssize_t rank = PyTuple_Size(dims);
  t->name = s->inputs[position].name;
  t->dtype = s->inputs[position].dtype;
  if (rank > LIMBER_MAX_RANK) {
    PyErr_Format(PyExc_ValueError, "more than %d dims", LIMBER_MAX_RANK);
    return name_input(t->name);
  }
  for (; t->rank < rank; t->rank++) {
    t->dims[t->rank] = PyLong_AsLongLong(PyTuple_GetItem(dims, t->rank));
    if (PyErr_Occurred()) return name_input(t->name);
  }
  return true;
}

static bool add_named_input(python_call *c, const session *s, PyObject *name,
                            PyObject *value) {
  Py_ssize_t position = lb_position_of(s->input_index, name);
  if (position < 0) return add_unknown_input(c, name);
  if (c->planning && PyTuple_Check(value))
    return add_shape(c, s, (size_t)position, value);
  return add_input(c, s, (size_t)position, value);
}

static bool add_named_inputs(python_call *c, const session *s,
                             PyObject *feeds) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (feeds && PyDict_Next(feeds, &at, &name, &value)) {
    if (c->n_in == c->cap_in) {  // reading a value may run Python code
      PyErr_SetString(PyExc_RuntimeError, "input_feed grew while it was read");
      return false;
    }
    if (!add_named_input(c, s, name, value)) return false;
  }
  return true;
}

static const char *output_name(python_call *c, const session *s,
                               PyObject *name) {
  Py_ssize_t position = lb_position_of(s->output_index, name);
  if (position >= 0) return s->outputs[position].name;
  return PyErr_Occurred() ? NULL : unknown_name(c, name);
}

// An output that is requested several times is computed once.
static void add_output(python_call *c, const char *name) {
  size_t i = 0;
  while (i < c->n_out && c->out[i].name != name) i++;
  if (i == c->n_out) c->out[c->n_out++].name = name;
  c->result_index[c->n_requested++] = i;
}

static void add_all_outputs(python_call *c, const session *s) {
  c->n_out = c->n_requested = s->n_outputs;
  for (size_t i = 0; i < c->n_out; i++) {
    c->out[i].name = s->outputs[i].name;
    c->result_index[i] = i;
  }
}

static bool add_outputs(python_call *c, const session *s, PyObject *names,
                        size_t n) {
  if (!names) add_all_outputs(c, s);
  for (size_t i = 0; names && i < n; i++) {
    PyObject *name = PySequence_GetItem(names, (Py_ssize_t)i);
    const char *text = name ? output_name(c, s, name) : NULL;
    Py_XDECREF(name);
    if (!text) return false;
    add_output(c, text);
  }
  return true;
}

// The callback creates Python objects, so the GIL is held during the run.
static bool call_profile(python_call *c, const session *s) {
  limber_status st;
  if (c->report == REPORT_NODES)
    st = limber_session_explain_nodes(s->limber, c->in, c->n_in, c->out,
                                      c->n_out, NULL, lb_node_row, c->rows);
  else
    st = (c->report == REPORT_ALL ? limber_session_explain
                                  : limber_session_profile)(
        s->limber, c->in, c->n_in, c->out, c->n_out, lb_step_row, c->rows);
  return lb_py_check(s, st) && !PyErr_Occurred();
}

static bool call_run(python_call *c, const session *s) {
  limber_status st;
  if (c->rows) return call_profile(c, s);
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_run(s->limber, c->in, c->n_in, c->out, c->n_out,
                          c->options);
  Py_END_ALLOW_THREADS;
  return lb_py_check(s, st);
}

// Returns a copy of the result that is in the list already.
static PyObject *copy_result(const python_call *c, PyObject *list, size_t i) {
  size_t first = 0;
  while (c->result_index[first] != c->result_index[i]) first++;
  PyObject *array = PyList_GetItem(list, (Py_ssize_t)first);
  return PyObject_CallMethod(array, "copy", NULL);
}

static PyObject *call_results(python_call *c, const session *s) {
  PyObject *list = PyList_New((Py_ssize_t)c->n_requested);
  size_t n_taken = 0;
  for (size_t i = 0; list && i < c->n_requested; i++) {
    PyObject *array = c->result_index[i] < n_taken
                          ? copy_result(c, list, i)
                          : lb_array_new(&c->out[n_taken++], s->runtime);
    if (!array || PyList_SetItem(list, (Py_ssize_t)i, array)) Py_CLEAR(list);
  }
  return list;
}

// `names` may be NULL: all outputs. `position` are inputs by position, `feeds`
// by name; each may be NULL. `how` holds the rows and options of the call.
static PyObject *run(const session *s, PyObject *names, PyObject *position,
                     PyObject *feeds, const python_call *how) {
  Py_ssize_t wanted = names ? PySequence_Size(names) : (Py_ssize_t)s->n_outputs;
  Py_ssize_t n_positional = position ? PyTuple_Size(position) : 0;
  Py_ssize_t named = feeds ? PyDict_Size(feeds) : 0;
  if (wanted < 0) return NULL;
  PyObject *results = NULL;
  python_call c;
  if (!call_init(&c, (size_t)(n_positional + named), (size_t)wanted))
    return NULL;
  c.rows = how->rows;
  c.report = how->report;
  c.options = how->options;
  for (Py_ssize_t i = 0; i < n_positional; i++)
    if (!add_input(&c, s, (size_t)i, PyTuple_GetItem(position, i))) goto done;
  if (add_named_inputs(&c, s, feeds) &&
      add_outputs(&c, s, names, (size_t)wanted) && call_run(&c, s))
    results = call_results(&c, s);

done:
  call_fini(&c);
  return results;
}

static PyObject *run_named(const session *s, PyObject *names, PyObject *feeds,
                           const python_call *how) {
  if (!PyDict_Check(feeds)) {
    PyErr_Format(PyExc_TypeError,
                 "input_feed must be a dict of names and arrays, not %R",
                 feeds);
    return NULL;
  }
  if (PyUnicode_Check(names)) {
    PyErr_Format(PyExc_TypeError, "output_names must be a list, not %R", names);
    return NULL;
  }
  int some = names == Py_None ? 0 : PyObject_IsTrue(names);
  return some < 0 ? NULL : run(s, some ? names : NULL, NULL, feeds, how);
}

bool lb_timeout_read(PyObject *value, double *out) {
  if (!value || value == Py_None) return true;
  *out = PyFloat_AsDouble(value);
  if (*out == -1 && PyErr_Occurred()) return false;
  if (*out == 0) *out = -1;
  return true;
}

// Reads the flag of the call, or else that of ONNX Runtime's run options. *refs
// is a new reference or NULL.
static bool read_cancel(PyObject *value, PyObject *options, PyObject **refs,
                        const limber_cancel **out) {
  if (value && value != Py_None) return lb_cancel_read(value, out);
  if (!options || options == Py_None) return true;
  *refs = PyObject_GetAttrString(options, "_cancel");
  if (*refs) return lb_cancel_read(*refs, out);
  PyErr_Clear();  // other kinds of options are ignored
  return true;
}

PyObject *lb_py_run(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *parameters[] = {"output_names", "input_feed", "run_options",
                               "timeout",      "cancel",     NULL};
  PyObject *names, *feeds, *options = NULL, *timeout = NULL, *cancel = NULL;
  PyObject *refs = NULL, *results = NULL;
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$OO:run", parameters,
                                   &names, &feeds, &options, &timeout, &cancel))
    return NULL;
  session *s = lb_py_enter(self);
  if (!s) return NULL;
  if (lb_timeout_read(timeout, &o.timeout) &&
      read_cancel(cancel, options, &refs, &o.cancel)) {
    bool plain = o.timeout == 0 && !o.cancel;
    python_call how = {.options = plain ? NULL : &o};
    results = run_named(s, names, feeds, &how);
  }
  lb_py_leave(s);
  Py_XDECREF(refs);
  return results;
}

// Runs the model. Returns its results; *rows is a new list.
static PyObject *list_rows(PyObject *self, PyObject *names, PyObject *feeds,
                           report_kind report, PyObject **rows) {
  PyObject *results = NULL;
  *rows = NULL;
  session *s = lb_py_enter(self);
  if (!s) return NULL;
  *rows = PyList_New(0);
  python_call how = {.rows = *rows, .report = report};
  if (*rows) results = run_named(s, names, feeds, &how);
  if (!results) Py_CLEAR(*rows);
  lb_py_leave(s);
  return results;
}

static PyObject *list_steps(PyObject *self, PyObject *args, PyObject *keywords,
                            report_kind report, PyObject **rows) {
  static char *parameters[] = {"output_names", "input_feed", NULL};
  PyObject *names, *feeds;
  *rows = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO", parameters, &names,
                                   &feeds))
    return NULL;
  return list_rows(self, names, feeds, report, rows);
}

PyObject *lb_py_profile(PyObject *self, PyObject *args, PyObject *keywords) {
  PyObject *rows;
  Py_XDECREF(list_steps(self, args, keywords, REPORT_STEPS, &rows));
  return rows;
}

PyObject *lb_py_explain(PyObject *self, PyObject *args, PyObject *keywords) {
  PyObject *rows;
  Py_XDECREF(list_steps(self, args, keywords, REPORT_ALL, &rows));
  return rows;
}

// The nodes as they are known from load.
static PyObject *nodes_at_load(PyObject *self) {
  const session *s = lb_py_opened(self);
  PyObject *rows = s ? PyList_New(0) : NULL;
  if (!rows) return NULL;
  limber_status st = limber_session_nodes(s->limber, lb_node_row, rows);
  if (!lb_py_check(s, st) || PyErr_Occurred()) Py_CLEAR(rows);
  return rows;
}

PyObject *lb_py_nodes(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *parameters[] = {"output_names", "input_feed", NULL};
  PyObject *names = Py_None, *feeds = Py_None, *rows;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO", parameters, &names,
                                   &feeds))
    return NULL;
  if (feeds == Py_None) return nodes_at_load(self);
  Py_XDECREF(list_rows(self, names, feeds, REPORT_NODES, &rows));
  return rows;
}

PyObject *lb_py_profile_run(PyObject *self, PyObject *args,
                            PyObject *keywords) {
  PyObject *rows;
  PyObject *results = list_steps(self, args, keywords, REPORT_STEPS, &rows);
  return results ? Py_BuildValue("NN", results, rows) : NULL;
}

PyObject *lb_py_call(PyObject *self, PyObject *args, PyObject *keywords) {
  session *s = lb_py_enter(self);
  if (!s) return NULL;
  python_call how = {0};
  PyObject *results = run(s, NULL, args, keywords, &how);
  bool single = s->n_outputs == 1;
  lb_py_leave(s);
  if (!results || !single) return results;
  PyObject *only = PyList_GetItem(results, 0);
  Py_XINCREF(only);
  Py_DECREF(results);
  return only;
}

PyObject *lb_py_plan(PyObject *self, PyObject *feeds) {
  limber_plan_info info = {.size = sizeof info};
  if (!PyDict_Check(feeds)) {
    PyErr_Format(PyExc_TypeError, "plan takes a dict, not %R", feeds);
    return NULL;
  }
  session *s = lb_py_enter(self);
  python_call c;
  bool good = s && call_init(&c, (size_t)PyDict_Size(feeds), 0);
  if (good) {
    c.planning = true;
    good = add_named_inputs(&c, s, feeds);
    limber_status st = LIMBER_OK;
    Py_BEGIN_ALLOW_THREADS;
    if (good) st = limber_session_plan(s->limber, c.in, c.n_in, &info);
    Py_END_ALLOW_THREADS;
    good = good && lb_py_check(s, st);
    call_fini(&c);
  }
  if (s) lb_py_leave(s);
  if (!good) return NULL;
  return Py_BuildValue("{s:K,s:K,s:K}", "steps", (unsigned long long)info.steps,
                       "kernels", (unsigned long long)info.kernels,
                       "nodes_left", (unsigned long long)info.nodes_left);
}
