// python/extension/session.c -- the type limber._limber.Session: a model, which
// is loaded and run with the GIL released.
#include <string.h>

#include "session.h"

session *lb_py_opened(PyObject *self) {
  session *s = (session *)self;
  if (s->limber && !s->closing) return s;
  PyErr_SetString(PyExc_RuntimeError, s->closing ? "the model was closed"
                                                 : "the model was not opened");
  return NULL;
}

session *lb_py_enter(PyObject *self) {
  session *s = lb_py_opened(self);
  if (s) s->calls++;
  return s;
}

static void session_shut(session *s) {
  limber_session *open = s->limber;
  s->limber = NULL;
  s->n_inputs = s->n_outputs = 0;  // their memory is the session's
  Py_BEGIN_ALLOW_THREADS;
  limber_session_close(open);
  Py_END_ALLOW_THREADS;
}

void lb_py_leave(session *s) {
  if (--s->calls || !s->closing) return;
  PyObject *type, *value, *trace;  // closing lets other threads run
  PyErr_Fetch(&type, &value, &trace);
  session_shut(s);
  PyErr_Restore(type, value, trace);
}

bool lb_py_check(const session *s, limber_status status) {
  if (!status) return true;
  lb_raise(s->run_errors, status);
  return false;
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
  if (st) return lb_raise(s->model_errors, st);
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

static void session_drop(session *s) {
  Py_CLEAR(s->input_index);
  Py_CLEAR(s->output_index);
  Py_CLEAR(s->source);
  Py_CLEAR(s->runtime);
  Py_CLEAR(s->model_errors);
  Py_CLEAR(s->run_errors);
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
                          "errors",
                          "skip",
                          NULL};
  session *s = (session *)self;
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  PyObject *source, *listener = NULL;
  PyObject *model_errors = lb_python.model_errors;
  PyObject *run_errors = lb_python.run_errors;
  int in_memory, threads = 0, log_level = 0, optimize = 1, load_warmup = 1;
  long long iterations = 0;
  const char *compile = NULL, *ops = NULL;
  if (s->limber || s->closing) {
    PyErr_SetString(PyExc_RuntimeError, "the model is open already");
    return -1;
  }
  if (!PyArg_ParseTupleAndKeywords(
          args, keywords, "Sp|iippO&LzpizzOpp(OO)i", names, &source, &in_memory,
          &threads, &log_level, &optimize, &o.copy_weights, read_limit,
          &o.memory_limit, &iterations, &o.directory, &o.deterministic,
          &o.prefer_reusable_kernels, &compile, &ops, &listener, &load_warmup,
          &o.reference, &model_errors, &run_errors, &o.skip))
    return -1;
  if (!choose(&o, compile, ops)) return -1;
  o.optimize = optimize ? 0 : -1;
  o.load_warmup = load_warmup ? 0 : -1;
  o.loop_limit = iterations;
  session_drop(s);  // what an __init__ that failed has left
  Py_INCREF(s->model_errors = model_errors);
  Py_INCREF(s->run_errors = run_errors);
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
  session_shut(s);
  session_drop(s);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

// -- preparing and freeing ---------------------------------------------------

static PyObject *none_or_error(session *s, limber_status st) {
  bool good = lb_py_check(s, st);
  lb_py_leave(s);
  if (!good) return NULL;
  Py_RETURN_NONE;
}

static PyObject *session_settle(PyObject *self, PyObject *seconds) {
  double limit = PyFloat_AsDouble(seconds);
  limber_status st;
  if (limit == -1 && PyErr_Occurred()) return NULL;
  session *s = lb_py_enter(self);
  if (!s) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_settle(s->limber, limit);
  Py_END_ALLOW_THREADS;
  return none_or_error(s, st);
}

static PyObject *session_record(PyObject *self, PyObject *path) {
  PyObject *bytes = NULL;
  limber_status st;
  if (path != Py_None && !PyUnicode_FSConverter(path, &bytes)) return NULL;
  session *s = lb_py_enter(self);
  const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
  PyObject *result = NULL;
  if (s) {
    Py_BEGIN_ALLOW_THREADS;
    st = limber_session_record_shapes(s->limber, text);
    Py_END_ALLOW_THREADS;
    result = none_or_error(s, st);
  }
  Py_XDECREF(bytes);
  return result;
}

static PyObject *session_warm_file(PyObject *self, PyObject *args) {
  PyObject *bytes, *result = NULL;
  double seconds;
  limber_status st;
  if (!PyArg_ParseTuple(args, "O&d", PyUnicode_FSConverter, &bytes, &seconds))
    return NULL;
  session *s = lb_py_enter(self);
  const char *path = PyBytes_AsString(bytes);
  if (s) {
    Py_BEGIN_ALLOW_THREADS;
    st = limber_session_warm_file(s->limber, path, seconds);
    Py_END_ALLOW_THREADS;
    result = none_or_error(s, st);
  }
  Py_DECREF(bytes);
  return result;
}

static PyObject *session_trim(PyObject *self, PyObject *unused) {
  (void)unused;
  session *s = lb_py_enter(self);
  uint64_t bytes;
  if (!s) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  bytes = limber_session_trim(s->limber);
  Py_END_ALLOW_THREADS;
  lb_py_leave(s);
  return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *session_flush(PyObject *self, PyObject *unused) {
  (void)unused;
  session *s = lb_py_enter(self);
  if (!s) return NULL;
  limber_runtime *r =
      s->runtime ? PyCapsule_GetPointer(s->runtime, NULL) : NULL;
  Py_BEGIN_ALLOW_THREADS;
  limber_runtime_flush(r);
  Py_END_ALLOW_THREADS;
  return none_or_error(s, LIMBER_OK);
}

static PyObject *session_close(PyObject *self, PyObject *unused) {
  (void)unused;
  session *s = (session *)self;
  bool open = s->limber && !s->closing;
  s->closing = true;
  if (open && !s->calls) session_shut(s);
  Py_RETURN_NONE;
}

// -- the type ----------------------------------------------------------------

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))lb_py_run,
     METH_VARARGS | METH_KEYWORDS,
     "run(output_names, input_feed, run_options=None, *, timeout=None,\n"
     "    cancel=None)\n\n"
     "Runs the model on a dict of names and arrays; returns a list of arrays,\n"
     "one for each of output_names (None: all outputs). Only the requested\n"
     "outputs are computed. Other Python threads can run meanwhile.\n\n"
     "After timeout seconds, or when cancel (a limber.Cancel) is triggered, "
     "the\n"
     "run ends before its next step and raises limber.Cancelled, which says\n"
     "how far it got.\n\n"
     "    >>> model.run([\"y\"], {\"x\": np.ones(2, np.float32)})\n"
     "    [array([-1., -1.], dtype=float32)]\n"},
    {"trim", session_trim, METH_NOARGS,
     "trim()\n\n"
     "Frees the memory that is kept for later runs, and returns the number of\n"
     "bytes. It is also freed after 128 runs that filled less than half of\n"
     "it."},
    {"profile", (PyCFunction)(void (*)(void))lb_py_profile,
     METH_VARARGS | METH_KEYWORDS,
     "profile(output_names, input_feed)\n\n"
     "Runs the model and returns a list of its steps as dicts: name, op, kind\n"
     "(launch, call or copy), tier (reference, pack, reusable, specialised or\n"
     "fused), kernel, rows, cols, k, len, outer, bytes, flops, start_ns,\n"
     "end_ns, reason (why that tier was used) and reason_text.\n\n"
     "    >>> steps = model.profile(None, {\"x\": np.ones(2, np.float32)})\n"
     "    >>> [(step[\"name\"], step[\"op\"]) for step in steps]\n"
     "    [('Neg_0', 'Neg')]\n"},
    {"explain", (PyCFunction)(void (*)(void))lb_py_explain,
     METH_VARARGS | METH_KEYWORDS,
     "explain(output_names, input_feed)\n\n"
     "Does the same as profile, then lists the nodes that needed no step, "
     "with\n"
     "kind ''. Where a node does nothing at these shapes, skipped is True and\n"
     "proof says why. pass names the graph pass that removed a node when the\n"
     "model was loaded, or is None.\n\n"
     "    >>> steps = model.explain(None, {\"x\": np.ones(2, np.float32)})\n"
     "    >>> [step[\"op\"] for step in steps if step[\"kind\"]]\n"
     "    ['Neg']\n"},
    {"nodes", (PyCFunction)(void (*)(void))lb_py_nodes,
     METH_VARARGS | METH_KEYWORDS,
     "nodes(output_names=None, input_feed=None)\n\n"
     "Returns the nodes of the graph, and those that a pass removed, as "
     "dicts:\n"
     "name, op, optimized and runtime_skippable (optimized alone: it never\n"
     "runs; both: decided when shapes are known), skipped, proof and pass.\n"
     "With inputs it runs the model; then disposition, reason and reason_text\n"
     "say what became of each node, and step is the index, in the list of\n"
     "profile or explain, of the first step that computes it, or None.\n\n"
     "    >>> [node[\"op\"] for node in model.nodes() if not "
     "node[\"optimized\"]]\n"
     "    ['Neg']\n"},
    {"plan", lb_py_plan, METH_O,
     "plan(input_feed)\n\n"
     "Plans a run for inputs of these shapes, without running it. An input is\n"
     "a tuple of sizes, or an array where shapes depend on its contents.\n"
     "Returns a dict: steps, kernels (the steps that are kernels), and\n"
     "nodes_left (the nodes after the first point where the plan depends on\n"
     "data).\n\n"
     "    >>> model.plan({\"x\": (1000,)})[\"nodes_left\"]\n"
     "    0\n"},
    {"settle", session_settle, METH_O,
     "settle(seconds)\n\n"
     "Compiles the kernels that existing plans still need, and waits at most\n"
     "that long for them; run never waits. Does nothing if LIMBER_JIT=off.\n\n"
     "    >>> model.settle(60)\n"
     "    >>> model.stats().settled\n"
     "    True\n"},
    {"record_shapes", session_record, METH_O,
     "record_shapes(path)\n\n"
     "Records from now on which shapes runs have, and how often, in a small\n"
     "text file that warm and `limber warm --shapes-file` read. The file is\n"
     "written every few seconds and when the model is closed. None: stop\n"
     "recording."},
    {"flush_events", session_flush, METH_NOARGS,
     "flush_events()\n\n"
     "Waits until `event` has been called for all decisions up to now."},
    {"dump", lb_py_dump, METH_NOARGS,
     "Returns the graph as text, with one line for each node."},
    {"close", session_close, METH_NOARGS,
     "close()\n\n"
     "Frees the model once the calls that other threads are in have ended; "
     "later\n"
     "calls raise RuntimeError. Arrays that runs returned stay valid. A model "
     "is\n"
     "also closed when it is garbage, and at the end of a `with`."},
    {"_profile_run", (PyCFunction)(void (*)(void))lb_py_profile_run,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"_input_rows", lb_py_input_rows, METH_NOARGS, NULL},
    {"_output_rows", lb_py_output_rows, METH_NOARGS, NULL},
    {"_model_info", lb_py_model_info, METH_NOARGS, NULL},
    {"_warm_file", session_warm_file, METH_VARARGS, NULL},
    {"_counters", lb_py_counters, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_init, session_init},
    {Py_tp_dealloc, session_dealloc},
    {Py_tp_call, lb_py_call},
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
  if (!lb_python.session) lb_python.session = PyType_FromSpec(&spec);
  if (!lb_python.session) return false;
  Py_INCREF(lb_python.session);
  if (!PyModule_AddObject(module, "Session", lb_python.session)) return true;
  Py_DECREF(lb_python.session);
  return false;
}
