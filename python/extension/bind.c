// python/extension/bind.c -- the type limber._limber.Binding: runs a session on
// memory that was bound before, so that a call converts and allocates nothing.
//
// An output is bound to an array, or to nothing; then Limber allocates it. The
// memory that Limber allocated for the last run is used again if nobody else
// has its array (the tuple, the array and its memory have no other references)
// and no input has other dims. If the result does not fit nevertheless, because
// its size depends on data, the run is repeated with new memory.
#include <string.h>

#include "session.h"

typedef struct bound_input {
  PyObject *refs[2];
  int64_t strides[LIMBER_MAX_RANK];
} bound_input;

typedef struct bound_output {
  PyObject *array;       // NULL: Limber allocates
  limber_tensor target;  // the memory of `array`
  PyObject *memory;      // of the last result, if Limber allocated it
  Py_ssize_t refs;       // to `memory`, if nobody else has the result
  limber_tensor last;    // the last result, without ownership
} bound_output;

typedef struct binding {
  PyObject_HEAD;
  PyObject *session;  // NULL until __init__
  // One allocation: n_in and n_out are in use, the session's numbers fit.
  limber_tensor *in, *out;
  bound_input *inputs;
  bound_output *outputs;
  size_t n_in, n_out;
  PyObject *results;  // a tuple of arrays; NULL before the first run
  bool running;
} binding;

// Returns the binding if it may be changed or run, NULL with an exception.
static binding *idle(PyObject *self) {
  binding *b = (binding *)self;
  if (b->session && !b->running) return b;
  PyErr_SetString(PyExc_RuntimeError,
                  b->session ? "this binding is running on another thread; use "
                               "one binding for each thread"
                             : "the binding has no session");
  return NULL;
}

// -- binding -----------------------------------------------------------------

static int binding_init(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *names[] = {"session", NULL};
  binding *b = (binding *)self;
  PyObject *owner;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!:Binding", names,
                                   lb_python.session, &owner))
    return -1;
  const session *s = lb_py_opened(owner);
  if (!s) return -1;
  if (b->session) {
    PyErr_SetString(PyExc_RuntimeError, "the binding has a session already");
    return -1;
  }
  size_t tensors = (s->n_inputs + s->n_outputs) * sizeof *b->in;
  size_t outputs = s->n_outputs * sizeof *b->outputs;
  b->in =
      PyMem_Calloc(1, tensors + outputs + s->n_inputs * sizeof *b->inputs + 1);
  if (!b->in) {
    PyErr_NoMemory();
    return -1;
  }
  b->out = b->in + s->n_inputs;
  b->outputs = (bound_output *)(b->out + s->n_outputs);
  b->inputs = (bound_input *)(b->outputs + s->n_outputs);
  Py_INCREF(owner);
  b->session = owner;
  return 0;
}

// Returns the index of a name among `n` tensors, or `n`.
static size_t find(const limber_tensor *tensors, size_t n, const char *name) {
  size_t i = 0;
  while (i < n && tensors[i].name != name) i++;
  return i;
}

static Py_ssize_t port_of(PyObject *index, const char *what, PyObject *name) {
  Py_ssize_t position = lb_position_of(index, name);
  if (position >= 0 || PyErr_Occurred()) return position;
  PyObject *type = PySequence_GetItem(lb_python.run_errors, LIMBER_INVALID);
  PyObject *names = PyDict_Keys(index);
  if (type && names)
    PyErr_Format(type, "the model has no %s %R; its %ss are %R", what, name,
                 what, names);
  Py_XDECREF(names);
  Py_XDECREF(type);
  return -1;
}

static void drop_input(bound_input *p) {
  Py_CLEAR(p->refs[0]);
  Py_CLEAR(p->refs[1]);
}

static bool has_dims(const limber_tensor *a, const limber_tensor *b) {
  return a->rank == b->rank &&
         memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

// Results of other dims will need other memory.
static void forget_memory(binding *b) {
  for (size_t i = 0; i < b->n_out; i++) Py_CLEAR(b->outputs[i].memory);
}

static PyObject *bind_input(PyObject *self, PyObject *args) {
  binding *b = idle(self);
  PyObject *name, *array;
  if (!b || !PyArg_ParseTuple(args, "OO:bind_input", &name, &array))
    return NULL;
  const session *s = lb_py_opened(b->session);
  Py_ssize_t port = s ? port_of(s->input_index, "input", name) : -1;
  if (port < 0) return NULL;
  const limber_value_info *info = &s->inputs[port];
  bound_input fresh = {0};
  limber_tensor t = {.name = info->name};
  if (!lb_array_read(array, info->dtype, &t, fresh.strides, fresh.refs)) {
    drop_input(&fresh);
    return NULL;
  }
  size_t i = find(b->in, b->n_in, info->name);
  if (i < b->n_in && !has_dims(&b->in[i], &t)) forget_memory(b);
  drop_input(&b->inputs[i]);
  b->inputs[i] = fresh;
  if (t.strides) t.strides = b->inputs[i].strides;
  b->in[i] = t;
  if (i == b->n_in) b->n_in++;
  Py_RETURN_NONE;
}

static void drop_output(bound_output *p) {
  Py_CLEAR(p->array);
  Py_CLEAR(p->memory);
}

static PyObject *bind_output(PyObject *self, PyObject *args) {
  binding *b = idle(self);
  PyObject *name, *array;
  if (!b || !PyArg_ParseTuple(args, "OO:bind_output", &name, &array))
    return NULL;
  const session *s = lb_py_opened(b->session);
  Py_ssize_t port = s ? port_of(s->output_index, "output", name) : -1;
  if (port < 0) return NULL;
  const limber_value_info *info = &s->outputs[port];
  bound_output fresh = {.target = {.name = info->name, .dtype = info->dtype}};
  if (array != Py_None) {
    if (!lb_array_target(array, &fresh.target)) return NULL;
    if (info->dtype && fresh.target.dtype != info->dtype) {
      PyErr_Format(PyExc_ValueError, "output %R is %s; the array is %s", name,
                   limber_dtype_name(info->dtype),
                   limber_dtype_name(fresh.target.dtype));
      return NULL;
    }
    Py_INCREF(fresh.array = array);
  }
  size_t i = find(b->out, b->n_out, info->name);
  drop_output(&b->outputs[i]);
  b->outputs[i] = fresh;
  b->out[i].name = info->name;
  if (i == b->n_out) b->n_out++;
  Py_CLEAR(b->results);
  Py_RETURN_NONE;
}

static PyObject *clear_inputs(PyObject *self, PyObject *unused) {
  (void)unused;
  binding *b = idle(self);
  if (!b) return NULL;
  while (b->n_in) drop_input(&b->inputs[--b->n_in]);
  Py_RETURN_NONE;
}

static PyObject *clear_outputs(PyObject *self, PyObject *unused) {
  (void)unused;
  binding *b = idle(self);
  if (!b) return NULL;
  Py_CLEAR(b->results);
  while (b->n_out) drop_output(&b->outputs[--b->n_out]);
  Py_RETURN_NONE;
}

// -- running -----------------------------------------------------------------

// Whether only the binding refers to the last result of output `i`.
static bool is_exclusive(const binding *b, size_t i) {
  if (!b->outputs[i].memory || !b->results || Py_REFCNT(b->results) != 1)
    return false;
  PyObject *array = PyTuple_GetItem(b->results, (Py_ssize_t)i);
  return Py_REFCNT(array) == 1 &&
         Py_REFCNT(b->outputs[i].memory) == b->outputs[i].refs;
}

// Clears the outputs of a run; returns which of them are reused, as bits.
static uint64_t prepare(binding *b) {
  uint64_t reused = 0;
  for (size_t i = 0; i < b->n_out; i++) {
    limber_tensor t = {.name = b->outputs[i].target.name};
    if (b->outputs[i].array) {
      t.data = b->outputs[i].target.data;
      t.bytes = b->outputs[i].target.bytes;
    } else if (i < 64 && is_exclusive(b, i)) {
      lb_memory_swap(b->outputs[i].memory, &t);
      reused |= (uint64_t)1 << i;
      t.name = b->outputs[i].target.name;
    }
    b->out[i] = t;
  }
  return reused;
}

// Gives memory back to its owners.
static void give_back(binding *b, uint64_t reused) {
  for (size_t i = 0; i < b->n_out && i < 64; i++)
    if (reused >> i & 1) {
      lb_memory_swap(b->outputs[i].memory, &b->out[i]);
      b->out[i].name = b->outputs[i].target.name;
    }
}

static bool is_same(const limber_tensor *a, const limber_tensor *b) {
  return a->data == b->data && a->dtype == b->dtype && has_dims(a, b);
}

// Returns a view of the first elements of a bound array with the dims of the
// result, or the array itself if it has these dims.
static PyObject *bound_result(const bound_output *p, const limber_tensor *t) {
  const limber_tensor *whole = &p->target;
  if (t->dtype != whole->dtype) {
    PyErr_Format(PyExc_ValueError, "output '%s' is %s; its array is %s",
                 t->name, limber_dtype_name(t->dtype),
                 limber_dtype_name(whole->dtype));
    return NULL;
  }
  if (has_dims(t, whole)) {
    Py_INCREF(p->array);
    return p->array;
  }
  PyObject *dims = PyTuple_New(t->rank);
  for (int i = 0; dims && i < t->rank; i++) {
    PyObject *dim = PyLong_FromLongLong(t->dims[i]);
    if (!dim || PyTuple_SetItem(dims, i, dim)) Py_CLEAR(dims);
  }
  PyObject *view = dims ? PyObject_CallFunctionObjArgs(lb_python.leading,
                                                       p->array, dims, NULL)
                        : NULL;
  Py_XDECREF(dims);
  return view;
}

// Returns the array of output `i`, whose memory belongs to it from now on.
static PyObject *new_result(binding *b, size_t i) {
  bound_output *p = &b->outputs[i];
  limber_tensor *t = &b->out[i];
  if (p->array) return bound_result(p, t);
  PyObject *array = lb_array_new(t, ((session *)(void *)b->session)->runtime);
  Py_CLEAR(p->memory);
  if (array) p->memory = lb_array_memory(array);
  if (p->memory) p->refs = Py_REFCNT(p->memory);
  return array;
}

// Makes b->results those of the run. `reused` outputs still own their memory.
static bool take_results(binding *b, uint64_t reused) {
  PyObject *fresh = PyTuple_New((Py_ssize_t)b->n_out);
  for (size_t i = 0; i < b->n_out; i++) {
    bound_output *p = &b->outputs[i];
    limber_tensor last = b->out[i];
    bool kept = b->results && is_same(&last, &p->last) &&
                (p->array || (i < 64 && reused >> i & 1));
    PyObject *array = NULL;
    if (fresh && kept) {
      array = PyTuple_GetItem(b->results, (Py_ssize_t)i);
      Py_INCREF(array);
      if (!p->array) lb_memory_swap(p->memory, &b->out[i]);
    } else if (fresh) {
      array = new_result(b, i);
    }
    if (!p->array) limber_tensor_free(&b->out[i]);  // what was not taken
    p->last = last;
    b->out[i].name = p->target.name;
    if (!array || PyTuple_SetItem(fresh, (Py_ssize_t)i, array)) Py_CLEAR(fresh);
  }
  Py_XDECREF(b->results);
  b->results = fresh;
  return fresh != NULL;
}

// Whether every result has the memory and the dims of the last one.
static bool is_unchanged(const binding *b, uint64_t reused) {
  bool same = b->results != NULL;
  for (size_t i = 0; same && i < b->n_out; i++)
    same = is_same(&b->out[i], &b->outputs[i].last) &&
           (b->outputs[i].array || (i < 64 && reused >> i & 1));
  return same;
}

static limber_status run_once(binding *b, const session *s, uint64_t *reused,
                              const limber_run_options *o) {
  limber_status st;
  *reused = prepare(b);
  Py_BEGIN_ALLOW_THREADS;
  st = limber_session_run(s->limber, b->in, b->n_in, b->out, b->n_out, o);
  Py_END_ALLOW_THREADS;
  return st;
}

static PyObject *run(binding *b, const limber_run_options *o) {
  session *s = lb_py_enter(b->session);
  uint64_t reused;
  if (!s) return NULL;
  b->running = true;
  limber_status st = run_once(b, s, &reused, o);
  if (st == LIMBER_INVALID && reused) {  // the result may be too large
    give_back(b, reused);
    forget_memory(b);
    st = run_once(b, s, &reused, o);
  }
  b->running = false;
  bool good = lb_py_check(s, st);
  lb_py_leave(s);
  if (!good || is_unchanged(b, reused))
    give_back(b, reused);
  else
    good = take_results(b, reused);
  if (!good) return NULL;
  Py_INCREF(b->results);
  return b->results;
}

static PyObject *binding_run(PyObject *self, PyObject *args,
                             PyObject *keywords) {
  static char *names[] = {"timeout", "cancel", NULL};
  PyObject *timeout = NULL, *cancel = NULL;
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  binding *b = idle(self);
  if (!b) return NULL;
  if (!keywords && !PyTuple_Size(args)) return run(b, NULL);
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OO:run", names, &timeout,
                                   &cancel) ||
      !lb_timeout_read(timeout, &o.timeout) ||
      !lb_cancel_read(cancel, &o.cancel))
    return NULL;
  return run(b, &o);
}

// -- the type ----------------------------------------------------------------

static PyObject *binding_outputs(PyObject *self, void *unused) {
  (void)unused;
  binding *b = (binding *)self;
  PyObject *results = b->results ? b->results : Py_None;
  Py_INCREF(results);
  return results;
}

static PyObject *names_of(const limber_tensor *tensors, size_t n) {
  PyObject *names = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; names && i < n; i++) {
    PyObject *name = lb_text(tensors[i].name);
    if (!name || PyList_SetItem(names, (Py_ssize_t)i, name)) Py_CLEAR(names);
  }
  return names;
}

static PyObject *binding_output_names(PyObject *self, void *unused) {
  (void)unused;
  binding *b = (binding *)self;
  if (b->n_out && !lb_py_opened(b->session)) return NULL;
  return names_of(b->out, b->n_out);
}

static void binding_dealloc(PyObject *self) {
  binding *b = (binding *)self;
  PyTypeObject *type = Py_TYPE(self);
  Py_CLEAR(b->results);
  while (b->n_in) drop_input(&b->inputs[--b->n_in]);
  while (b->n_out) drop_output(&b->outputs[--b->n_out]);
  PyMem_Free(b->in);
  Py_XDECREF(b->session);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))binding_run,
     METH_VARARGS | METH_KEYWORDS,
     "run(*, timeout=None, cancel=None)\n\n"
     "Runs the model on the bound inputs as they are now, and returns a tuple "
     "of\n"
     "the results: the arrays bound to the outputs or, where a result is "
     "smaller\n"
     "than its array, a view of the array's first elements."},
    {"bind_input", bind_input, METH_VARARGS,
     "bind_input(name, array)\n\n"
     "Binds an input to the memory of an array, in place of what it was bound "
     "to."},
    {"bind_output", bind_output, METH_VARARGS,
     "bind_output(name, array)\n\n"
     "Requests an output in the memory of a C-contiguous array; None: in "
     "memory\n"
     "of Limber, which the next run uses again if nobody refers to the "
     "result."},
    {"clear_inputs", clear_inputs, METH_NOARGS,
     "clear_inputs()\n\nForgets all bound inputs."},
    {"clear_outputs", clear_outputs, METH_NOARGS,
     "clear_outputs()\n\nForgets all bound outputs."},
    {0},
};

static PyGetSetDef values[] = {
    {"outputs", binding_outputs, NULL,
     "The results of the last run, a tuple; None before the first.", NULL},
    {"output_names", binding_output_names, NULL,
     "The names of the bound outputs, in the order of the results.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Inputs and outputs of a model in memory of the caller; Model.bind makes\n"
     "one. A thread at a time may run it."},
    {Py_tp_init, binding_init},
    {Py_tp_dealloc, binding_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, values},
    {0},
};

static PyType_Spec spec = {
    .name = "limber._limber.Binding",
    .basicsize = sizeof(binding),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

bool lb_binding_init(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  if (!type) return false;
  if (!PyModule_AddObject(module, "Binding", type)) return true;
  Py_DECREF(type);
  return false;
}
