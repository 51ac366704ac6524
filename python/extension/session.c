// python/extension/session.c -- the type limber._limber.Session: a model, which
// is loaded and run with the GIL released.
#include "extension.h"

#include <string.h>

typedef struct session {
  PyObject_HEAD;
  limber_session *limber;  // NULL until __init__
  PyObject *runtime;       // a capsule; NULL: the default one
  PyObject *source;        // the bytes of a model in memory, or NULL
  PyObject *input_index, *output_index;  // dict: name to position
  const limber_value_info *inputs, *outputs;
  size_t n_inputs, n_outputs;
} session;

static session *opened(PyObject *self) {
  session *s = (session *)self;
  if (s->limber) return s;
  PyErr_SetString(PyExc_RuntimeError, "the session was not opened");
  return NULL;
}

// -- opening -----------------------------------------------------------------

static PyObject *index_of(const limber_value_info *infos, size_t n) {
  PyObject *index = PyDict_New();
  for (size_t i = 0; index && i < n; i++) {
    PyObject *name = lb_text(infos[i].name);
    PyObject *position = PyLong_FromSize_t(i);
    bool good = name && position && !PyDict_SetItem(index, name, position);
    Py_XDECREF(name);
    Py_XDECREF(position);
    if (!good) Py_CLEAR(index);
  }
  return index;
}

static bool open_source(session *s, PyObject *source, bool in_memory,
                        const limber_session_options *o) {
  limber_runtime *r =
      s->runtime ? PyCapsule_GetPointer(s->runtime, NULL) : NULL;
  char *bytes;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(source, &bytes, in_memory ? &size : NULL))
    return false;
  limber_session *opened_session;
  limber_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = in_memory ? limber_session_open_memory(r, bytes, (size_t)size, o,
                                              &opened_session)
                 : limber_session_open(r, bytes, o, &opened_session);
  Py_END_ALLOW_THREADS;
  if (st) return lb_raise(lb_python.model_errors, st);
  Py_INCREF(source);
  s->source = source;
  s->limber = opened_session;
  return true;
}

// Returns the index of `text` in `words`, counted from 1; 0 for NULL; -1 with
// an exception.
static int choice(const char *name, const char *text,
                  const char *const words[2]) {
  if (!text) return 0;
  for (int i = 0; i < 2; i++)
    if (strcmp(text, words[i]) == 0) return i + 1;
  PyErr_Format(PyExc_ValueError, "%s must be %s or %s, not %s", name, words[0],
               words[1], text);
  return -1;
}

static bool choose(limber_session_options *o, const char *compile,
                   const char *ops) {
  o->compile =
      choice("compile", compile, (const char *const[]){"background", "settle"});
  if (o->compile < 0) return false;
  o->compile_ops =
      choice("compile_ops", ops, (const char *const[]){"all", "critical"});
  return o->compile_ops >= 0;
}

static int read_limit(PyObject *value, void *out) {
  unsigned long long n = PyLong_AsUnsignedLongLong(value);
  if (n == (unsigned long long)-1 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
      PyErr_Format(PyExc_ValueError, "memory_limit: %R is not in 0 to 2**64-1",
                   value);
    return 0;
  }
  *(uint64_t *)out = n;
  return 1;
}

static int session_init(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *names[] = {"source",
                          "in_memory",
                          "threads",
                          "log_level",
                          "optimize",
                          "copy_weights",
                          "memory_limit",
                          "loop_limit",
                          "directory",
                          "deterministic",
                          "prefer_reusable_kernels",
                          "compile",
                          "compile_ops",
                          "event",
                          "load_warmup",
                          "reference",
                          "skip",
                          NULL};
  session *s = (session *)self;
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  PyObject *source, *listener = NULL;
  int in_memory, threads = 0, log_level = 0, optimize = 1, load_warmup = 1;
  long long iterations = 0;
  const char *compile = NULL, *ops = NULL;
  if (s->limber) {
    PyErr_SetString(PyExc_RuntimeError, "the session is open already");
    return -1;
  }
  if (!PyArg_ParseTupleAndKeywords(
          args, keywords, "Sp|iippO&LzpizzOppi", names, &source, &in_memory,
          &threads, &log_level, &optimize, &o.copy_weights, read_limit,
          &o.memory_limit, &iterations, &o.directory, &o.deterministic,
          &o.prefer_reusable_kernels, &compile, &ops, &listener, &load_warmup,
          &o.reference, &o.skip))
    return -1;
  if (!choose(&o, compile, ops)) return -1;
  o.optimize = optimize ? 0 : -1;
  o.load_warmup = load_warmup ? 0 : -1;
  o.loop_limit = iterations;
  Py_CLEAR(s->runtime);  // of an __init__ that failed
  if (!lb_runtime_new(threads, log_level, listener, &s->runtime)) return -1;
  if (!open_source(s, source, in_memory, &o)) return -1;
  s->n_inputs = limber_session_inputs(s->limber, &s->inputs);
  s->n_outputs = limber_session_outputs(s->limber, &s->outputs);
  s->input_index = index_of(s->inputs, s->n_inputs);
  s->output_index = index_of(s->outputs, s->n_outputs);
  return s->input_index && s->output_index ? 0 : -1;
}

static void session_dealloc(PyObject *self) {
  session *s = (session *)self;
  PyTypeObject *type = Py_TYPE(self);
  Py_BEGIN_ALLOW_THREADS;
  limber_session_close(s->limber);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(s->input_index);
  Py_XDECREF(s->output_index);
  Py_XDECREF(s->source);
  Py_XDECREF(s->runtime);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

// -- running -----------------------------------------------------------------

// One call: the tensors, and references that keep their names and memory alive.
typedef struct python_call {
  limber_tensor *in, *out;
  PyObject **refs;       // n_refs; owned
  size_t *result_index;  // for each requested output: its index in `out`
  int64_t *strides;      // LIMBER_MAX_RANK for each input
  size_t n_in, n_out, n_refs, n_requested;
  size_t cap_in;
  PyObject *steps;  // the list to append steps to, or NULL; borrowed
  bool explain;     // append nodes without a step too
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

// Returns the position of a name, or -1 without an exception if the model does
// not have it.
static Py_ssize_t position_of(PyObject *index, PyObject *name) {
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
  Py_ssize_t position = position_of(s->input_index, name);
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
  Py_ssize_t position = position_of(s->output_index, name);
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

static void add_step(void *user, const limber_step *t) {
  PyObject *steps = user;
  if (PyErr_Occurred()) return;
  PyObject *row = Py_BuildValue(
      "{s:N,s:s,s:s,s:s,s:L,s:L,s:L,s:L,s:L,s:K,s:K,s:L,s:L,s:s,s:O,s:z}",
      "name", lb_text(t->name), "op", t->op, "tier", t->tier, "kernel",
      t->kernel, "rows", (long long)t->rows, "cols", (long long)t->cols, "k",
      (long long)t->k, "len", (long long)t->len, "outer", (long long)t->outer,
      "bytes", (unsigned long long)t->bytes, "flops",
      (unsigned long long)t->flops, "start_ns", (long long)t->start_ns,
      "end_ns", (long long)t->end_ns, "reason", t->reason, "skipped",
      t->skipped ? Py_True : Py_False, "pass", t->pass);
  if (row) PyList_Append(steps, row);
  Py_XDECREF(row);
}

// The callback creates Python objects, so the GIL is held during the run.
static bool call_profile(python_call *c, const session *s) {
  limber_status st =
      (c->explain ? limber_session_explain : limber_session_profile)(
          s->limber, c->in, c->n_in, c->out, c->n_out, add_step, c->steps);
  if (st) lb_raise(lb_python.run_errors, st);
  return !PyErr_Occurred();
}

static bool call_run(python_call *c, const session *s) {
  limber_status st;
  if (c->steps) return call_profile(c, s);
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_run(s->limber, c->in, c->n_in, c->out, c->n_out,
                          c->options);
  Py_END_ALLOW_THREADS;
  return !st || lb_raise(lb_python.run_errors, st);
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
// by name; each may be NULL. `how` holds the steps and options of the call.
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
  c.steps = how->steps;
  c.explain = how->explain;
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

// timeout=None means no limit; timeout=0 has expired before the run begins.
static bool read_timeout(PyObject *value, double *out) {
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

static PyObject *session_run(PyObject *self, PyObject *args,
                             PyObject *keywords) {
  static char *parameters[] = {"output_names", "input_feed", "run_options",
                               "timeout",      "cancel",     NULL};
  PyObject *names, *feeds, *options = NULL, *timeout = NULL, *cancel = NULL;
  PyObject *refs = NULL, *results = NULL;
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  const session *s = opened(self);
  if (!s ||
      !PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$OO:run", parameters,
                                   &names, &feeds, &options, &timeout, &cancel))
    return NULL;
  if (read_timeout(timeout, &o.timeout) &&
      read_cancel(cancel, options, &refs, &o.cancel)) {
    bool plain = o.timeout == 0 && !o.cancel;
    python_call how = {.options = plain ? NULL : &o};
    results = run_named(s, names, feeds, &how);
  }
  Py_XDECREF(refs);
  return results;
}

static PyObject *list_steps(PyObject *self, PyObject *args, PyObject *keywords,
                            bool explain) {
  static char *parameters[] = {"output_names", "input_feed", NULL};
  PyObject *names, *feeds;
  const session *s = opened(self);
  if (!s || !PyArg_ParseTupleAndKeywords(args, keywords, "OO", parameters,
                                         &names, &feeds))
    return NULL;
  PyObject *steps = PyList_New(0);
  python_call how = {.steps = steps, .explain = explain};
  PyObject *results = steps ? run_named(s, names, feeds, &how) : NULL;
  if (!results) Py_CLEAR(steps);
  Py_XDECREF(results);
  return steps;
}

static PyObject *session_profile(PyObject *self, PyObject *args,
                                 PyObject *keywords) {
  return list_steps(self, args, keywords, false);
}

static PyObject *session_explain(PyObject *self, PyObject *args,
                                 PyObject *keywords) {
  return list_steps(self, args, keywords, true);
}

static PyObject *session_call(PyObject *self, PyObject *args,
                              PyObject *keywords) {
  const session *s = opened(self);
  python_call how = {0};
  PyObject *results = s ? run(s, NULL, args, keywords, &how) : NULL;
  if (!results || s->n_outputs != 1) return results;
  PyObject *only = PyList_GetItem(results, 0);
  Py_XINCREF(only);
  Py_DECREF(results);
  return only;
}

// -- descriptions and statistics ---------------------------------------------

static PyObject *dims_of(const limber_value_info *info) {
  if (info->rank < 0) Py_RETURN_NONE;
  PyObject *dims = PyList_New(info->rank);
  for (int i = 0; dims && i < info->rank; i++) {
    PyObject *dim = lb_text(info->dims[i]);
    if (!dim || PyList_SetItem(dims, i, dim)) Py_CLEAR(dims);
  }
  return dims;
}

// [(name, dtype, dims or None)]
static PyObject *values_of(const limber_value_info *infos, size_t n) {
  PyObject *list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; i++) {
    PyObject *name = lb_text(infos[i].name), *dims = dims_of(&infos[i]);
    PyObject *row = NULL;
    if (name && dims)
      row = Py_BuildValue("OsO", name, limber_dtype_name(infos[i].dtype), dims);
    Py_XDECREF(name);
    Py_XDECREF(dims);
    if (!row || PyList_SetItem(list, (Py_ssize_t)i, row)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *session_input_rows(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  return s ? values_of(s->inputs, s->n_inputs) : NULL;
}

static PyObject *session_output_rows(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  return s ? values_of(s->outputs, s->n_outputs) : NULL;
}

static PyObject *properties_of(const limber_model_info *m) {
  PyObject *all = PyDict_New();
  for (size_t i = 0; all && i < m->n_properties; i++) {
    PyObject *key = lb_text(m->properties[i].key);
    PyObject *value = lb_text(m->properties[i].value);
    bool good = key && value && !PyDict_SetItem(all, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    if (!good) Py_CLEAR(all);
  }
  return all;
}

static PyObject *session_model_info(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  limber_model_info m = {.size = sizeof m};
  if (!s) return NULL;
  limber_status st = limber_session_model(s->limber, &m);
  if (st) return lb_raise(lb_python.run_errors, st);
  return Py_BuildValue(
      "{s:L,s:L,s:L,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:n}", "ir_version",
      (long long)m.ir_version, "opset", (long long)m.opset, "version",
      (long long)m.model_version, "producer_name", lb_text(m.producer_name),
      "producer_version", lb_text(m.producer_version), "domain",
      lb_text(m.domain), "description", lb_text(m.description), "graph_name",
      lb_text(m.graph_name), "custom_metadata_map", properties_of(&m),
      "weight_bytes", (unsigned long long)m.weight_bytes, "nodes",
      (Py_ssize_t)m.nodes);
}

static PyObject *session_counters(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  limber_stats t = {.size = sizeof t};
  if (!s) return NULL;
  limber_status st = limber_session_stats(s->limber, &t);
  if (st) return lb_raise(lb_python.run_errors, st);
  return Py_BuildValue(
      "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:s,s:K,s:K,s:K,s:K,s:K,s:K,"
      "s:K,s:K,s:K,s:K}",
      "runs", (unsigned long long)t.runs, "plans_built",
      (unsigned long long)t.plans_built, "plans_evicted",
      (unsigned long long)t.plans_evicted, "plans", (unsigned long long)t.plans,
      "plan_bytes", (unsigned long long)t.plan_bytes, "arena_bytes",
      (unsigned long long)t.arena_bytes, "kernels_requested",
      (unsigned long long)t.kernels_requested, "kernels",
      (unsigned long long)t.kernels, "packed_bytes",
      (unsigned long long)t.packed_bytes, "prefer_reusable_kernels",
      PyBool_FromLong(t.prefer_reusable_kernels), "prefer_reusable_from",
      t.prefer_reusable_from, "kernels_specialised",
      (unsigned long long)t.kernels_specialised, "kernels_failed",
      (unsigned long long)t.kernels_failed, "kernels_pending",
      (unsigned long long)t.kernels_pending, "kernels_queued",
      (unsigned long long)t.kernels_queued, "worker_failures",
      (unsigned long long)t.worker_failures, "compile_us_on_callers",
      (unsigned long long)t.compile_us_on_callers, "kernels_on_trial",
      (unsigned long long)t.kernels_on_trial, "kernels_kept",
      (unsigned long long)t.kernels_kept, "kernels_demoted",
      (unsigned long long)t.kernels_demoted, "ragged_runs",
      (unsigned long long)t.ragged_runs);
}

static PyObject *session_plan(PyObject *self, PyObject *feeds) {
  const session *s = opened(self);
  limber_plan_info info = {.size = sizeof info};
  python_call c;
  if (!s) return NULL;
  if (!PyDict_Check(feeds)) {
    PyErr_Format(PyExc_TypeError, "plan takes a dict, not %R", feeds);
    return NULL;
  }
  if (!call_init(&c, (size_t)PyDict_Size(feeds), 0)) return NULL;
  c.planning = true;
  bool good = add_named_inputs(&c, s, feeds);
  if (good) {
    limber_status st;
    Py_BEGIN_ALLOW_THREADS;
    st = limber_session_plan(s->limber, c.in, c.n_in, &info);
    Py_END_ALLOW_THREADS;
    good = !st || lb_raise(lb_python.run_errors, st);
  }
  call_fini(&c);
  if (!good) return NULL;
  return Py_BuildValue("{s:K,s:K,s:K}", "steps", (unsigned long long)info.steps,
                       "kernels", (unsigned long long)info.kernels,
                       "nodes_left", (unsigned long long)info.nodes_left);
}

static PyObject *session_settle(PyObject *self, PyObject *seconds) {
  const session *s = opened(self);
  double limit = PyFloat_AsDouble(seconds);
  limber_status st;
  if (!s || (limit == -1 && PyErr_Occurred())) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_settle(s->limber, limit);
  Py_END_ALLOW_THREADS;
  if (st) return lb_raise(lb_python.run_errors, st);
  Py_RETURN_NONE;
}

static PyObject *session_record(PyObject *self, PyObject *path) {
  const session *s = opened(self);
  PyObject *bytes = NULL;
  limber_status st;
  if (!s || (path != Py_None && !PyUnicode_FSConverter(path, &bytes)))
    return NULL;
  const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_record_shapes(s->limber, text);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(bytes);
  if (st) return lb_raise(lb_python.run_errors, st);
  Py_RETURN_NONE;
}

static PyObject *session_warm_file(PyObject *self, PyObject *args) {
  const session *s = opened(self);
  PyObject *bytes;
  double seconds;
  limber_status st;
  if (!s ||
      !PyArg_ParseTuple(args, "O&d", PyUnicode_FSConverter, &bytes, &seconds))
    return NULL;
  const char *path = PyBytes_AsString(bytes);
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_warm_file(s->limber, path, seconds);
  Py_END_ALLOW_THREADS;
  Py_DECREF(bytes);
  if (st) return lb_raise(lb_python.run_errors, st);
  Py_RETURN_NONE;
}

static PyObject *session_trim(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  uint64_t bytes;
  if (!s) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  bytes = limber_session_trim(s->limber);
  Py_END_ALLOW_THREADS;
  return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *session_flush(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  if (!s) return NULL;
  limber_runtime *r =
      s->runtime ? PyCapsule_GetPointer(s->runtime, NULL) : NULL;
  Py_BEGIN_ALLOW_THREADS;
  limber_runtime_flush(r);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *session_dump(PyObject *self, PyObject *unused) {
  (void)unused;
  const session *s = opened(self);
  char *dump;
  if (!s) return NULL;
  limber_status st = limber_session_dump(s->limber, &dump);
  if (st) return lb_raise(lb_python.run_errors, st);
  PyObject *text = lb_text(dump);
  limber_string_free(dump);
  return text;
}

// -- the type ----------------------------------------------------------------

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))session_run,
     METH_VARARGS | METH_KEYWORDS,
     "run(output_names, input_feed, run_options=None, *, timeout=None,\n"
     "    cancel=None)\n\n"
     "Runs the model on a dict of names and arrays; returns a list of arrays,\n"
     "one for each of output_names (None: all outputs). Only the requested\n"
     "outputs are computed. Other Python threads can run meanwhile.\n\n"
     "After timeout seconds, or when cancel (a limber.Cancel) is triggered, "
     "the\n"
     "run ends before its next step and raises limber.Cancelled, which says\n"
     "how far it got."},
    {"trim", session_trim, METH_NOARGS,
     "trim()\n\n"
     "Frees the memory that is kept for later runs, and returns the number of\n"
     "bytes. It is also freed after 128 runs that filled less than half of\n"
     "it."},
    {"profile", (PyCFunction)(void (*)(void))session_profile,
     METH_VARARGS | METH_KEYWORDS,
     "profile(output_names, input_feed)\n\n"
     "Runs the model and returns a list of its steps as dicts: name, op, tier\n"
     "(reference, pack, reusable, specialised or fused), kernel, rows, cols,\n"
     "k, len, outer, bytes, flops, start_ns, end_ns, and reason: why that\n"
     "tier was used."},
    {"explain", (PyCFunction)(void (*)(void))session_explain,
     METH_VARARGS | METH_KEYWORDS,
     "explain(output_names, input_feed)\n\n"
     "Does the same as profile, then lists the nodes that needed no step:\n"
     "skipped is True, and reason says why; pass names the graph pass that\n"
     "removed a node when the model was loaded, or is None."},
    {"plan", session_plan, METH_O,
     "plan(input_feed)\n\n"
     "Plans a run for inputs of these shapes, without running it. An input is\n"
     "a tuple of sizes, or an array where shapes depend on its contents.\n"
     "Returns a dict: steps, kernels (the steps that are kernels), and\n"
     "nodes_left (the nodes after the first point where the plan depends on\n"
     "data)."},
    {"settle", session_settle, METH_O,
     "settle(seconds)\n\n"
     "Compiles the kernels that existing plans still need, and waits at most\n"
     "that long for them; run never waits. Does nothing if LIMBER_JIT=off."},
    {"record_shapes", session_record, METH_O,
     "record_shapes(path)\n\n"
     "Records from now on which shapes runs have, and how often, in a small\n"
     "text file that warm and `limber warm --shapes-file` read. The file is\n"
     "written every few seconds and when the model is closed. None: stop\n"
     "recording."},
    {"flush_events", session_flush, METH_NOARGS,
     "flush_events()\n\n"
     "Waits until `event` has been called for all decisions up to now."},
    {"dump", session_dump, METH_NOARGS,
     "Returns the graph as text, with one line for each node."},
    {"_input_rows", session_input_rows, METH_NOARGS, NULL},
    {"_output_rows", session_output_rows, METH_NOARGS, NULL},
    {"_model_info", session_model_info, METH_NOARGS, NULL},
    {"_warm_file", session_warm_file, METH_VARARGS, NULL},
    {"_counters", session_counters, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_init, session_init},
    {Py_tp_dealloc, session_dealloc},
    {Py_tp_call, session_call},
    {Py_tp_methods, methods},
    {0},
};

static PyType_Spec spec = {
    .name = "limber._limber.Session",
    .basicsize = sizeof(session),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

bool lb_session_init(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  if (!type) return false;
  if (!PyModule_AddObject(module, "Session", type)) return true;
  Py_DECREF(type);
  return false;
}
