// python/extension/primitive.c -- the type limber._limber.Primitive: an
// operator without a model. limber/_primitive.py brings its arguments into one
// form.
#include <stddef.h>
#include <string.h>

#include "extension.h"

typedef struct primitive {
  PyObject_HEAD;
  limber_primitive *limber;  // NULL until __init__
  size_t n_outputs;          // 0: not known yet
  bool channels_last;        // the layout of the result
} primitive;

enum {
  MAX_INPUTS = LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS,
  MAX_OUTPUTS = 3
};

// -- descriptors -------------------------------------------------------------

typedef enum field_type { INT32, INT64, FLOAT } field_type;

// Fields of the descriptor that are given by name: a number, or a sequence of
// at most `count`.
static const struct {
  const char *name;
  field_type type;
  size_t offset, count;
} fields[] = {
#define FIELD(type, name, count) \
  { #name, type, offsetof(limber_primitive_desc, name), count }
    FIELD(INT32, out_dtype, 1),
    FIELD(INT32, out_layout, 1),
    FIELD(INT32, axis, 1),
    FIELD(INT32, n_axes, 1),
    FIELD(INT32, axes, LIMBER_MAX_RANK),
    FIELD(INT32, keep_dims, 1),
    FIELD(INT32, transpose, 1),
    FIELD(INT32, ceil_mode, 1),
    FIELD(INT32, direction, 1),
    FIELD(INT32, reset_after, 1),
    FIELD(INT32, causal, 1),
    FIELD(FLOAT, epsilon, 1),
    FIELD(FLOAT, alpha, 1),
    FIELD(FLOAT, beta, 1),
    FIELD(FLOAT, factors, LIMBER_MAX_SPATIAL),
    FIELD(INT64, sizes, LIMBER_MAX_SPATIAL),
    FIELD(INT64, kernel, LIMBER_MAX_SPATIAL),
    FIELD(INT64, strides, LIMBER_MAX_SPATIAL),
    FIELD(INT64, dilations, LIMBER_MAX_SPATIAL),
    FIELD(INT64, pads, 2 * LIMBER_MAX_SPATIAL),
    FIELD(INT64, output_pads, LIMBER_MAX_SPATIAL),
    FIELD(INT64, groups, 1),
#undef FIELD
};

static bool read_number(PyObject *value, field_type type, char *field,
                        size_t i) {
  if (type == FLOAT) {
    double number = PyFloat_AsDouble(value);
    ((float *)(void *)field)[i] = (float)number;
    return !(number == -1 && PyErr_Occurred());
  }
  long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) return false;
  if (type == INT64) {
    ((int64_t *)(void *)field)[i] = number;
    return true;
  }
  if (number < INT32_MIN || number > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%R is too large", value);
    return false;
  }
  ((int32_t *)(void *)field)[i] = (int32_t)number;
  return true;
}

static bool read_field(PyObject *name, PyObject *value,
                       limber_primitive_desc *d) {
  size_t k = 0, n = sizeof fields / sizeof *fields;
  while (k < n && PyUnicode_CompareWithASCIIString(name, fields[k].name)) k++;
  if (k == n) {
    PyErr_Format(PyExc_TypeError, "a primitive has no field %R", name);
    return false;
  }
  char *field = (char *)d + fields[k].offset;
  if (fields[k].count == 1) return read_number(value, fields[k].type, field, 0);
  Py_ssize_t length = PySequence_Size(value);
  if (length > (Py_ssize_t)fields[k].count) {
    PyErr_Format(PyExc_ValueError, "%s has at most %zu numbers, not %zd",
                 fields[k].name, fields[k].count, length);
    return false;
  }
  for (Py_ssize_t i = 0; i < length; i++) {
    PyObject *item = PySequence_GetItem(value, i);
    bool good = item && read_number(item, fields[k].type, field, (size_t)i);
    Py_XDECREF(item);
    if (!good) return false;
  }
  return length >= 0;
}

static limber_dtype dtype_named(const char *name) {
  for (int i = LIMBER_F32; i <= LIMBER_BOOL; i++)
    if (strcmp(limber_dtype_name((limber_dtype)i), name) == 0)
      return (limber_dtype)i;
  PyErr_Format(PyExc_ValueError, "'%s' is not a dtype that Limber has", name);
  return LIMBER_NONE;
}

// Reads (dtype name, layout, dims with None for a runtime dim, array or None).
// *refs keep the data of the operand.
static bool read_operand(PyObject *tuple, limber_operand *out,
                         PyObject *refs[2]) {
  const char *dtype;
  PyObject *dims, *data;
  if (!PyArg_ParseTuple(tuple, "siO!O", &dtype, &out->layout, &PyTuple_Type,
                        &dims, &data))
    return false;
  limber_dtype named = dtype_named(dtype);
  Py_ssize_t rank = PyTuple_Size(dims);
  if (!named) return false;
  if (rank > LIMBER_MAX_RANK) {
    PyErr_Format(PyExc_ValueError, "an operand has more than %d dims",
                 LIMBER_MAX_RANK);
    return false;
  }
  out->dtype = (int32_t)named;
  for (out->rank = 0; out->rank < rank; out->rank++) {
    PyObject *dim = PyTuple_GetItem(dims, out->rank);
    out->dims[out->rank] =
        dim == Py_None ? LIMBER_RUNTIME_DIM : PyLong_AsLongLong(dim);
    if (PyErr_Occurred()) return false;
  }
  if (data == Py_None) return true;
  limber_tensor t = {0};
  int64_t strides[LIMBER_MAX_RANK];
  if (!lb_array_read(data, named, &t, strides, refs)) return false;
  out->data = t.data;
  return true;
}

static int number_of(const char *what, const char *(*name_of)(int), int n,
                     const char *name) {
  for (int i = 0; i < n; i++)
    if (name_of(i) && strcmp(name_of(i), name) == 0) return i;
  PyErr_Format(PyExc_ValueError, "there is no %s '%s'", what, name);
  return -1;
}

static int alg_named(const char *name) {
  return number_of("operator", limber_alg_name, LIMBER_ALGS, name);
}

// -- attributes --------------------------------------------------------------

// Appends ("sum", scale), (binary operator, operand) or (eltwise operator,
// alpha, beta).
static bool append(limber_attr *attr, PyObject *post, PyObject *refs[2]) {
  PyObject *first, *second, *third;
  const char *name;
  double alpha, beta;
  limber_status st;
  if (!PyArg_ParseTuple(post, "UO|O", &first, &second, &third)) return false;
  if (!PyUnicode_CompareWithASCIIString(first, "sum")) {
    if (!PyArg_ParseTuple(post, "sd", &name, &alpha)) return false;
    st = limber_attr_append_sum(attr, (float)alpha);
  } else if (PyTuple_Size(post) == 2) {
    limber_operand operand = {0};
    if (!PyArg_ParseTuple(post, "sO!", &name, &PyTuple_Type, &second))
      return false;
    int alg = alg_named(name);
    if (alg < 0 || !read_operand(second, &operand, refs)) return false;
    st = limber_attr_append_binary(attr, alg, &operand);
  } else {
    if (!PyArg_ParseTuple(post, "sdd", &name, &alpha, &beta)) return false;
    int alg = alg_named(name);
    if (alg < 0) return false;
    st = limber_attr_append_eltwise(attr, alg, (float)alpha, (float)beta);
  }
  if (st) lb_raise(lb_python.run_errors, st);
  return !st;
}

// One creation: references that keep constants until it has ended.
typedef struct creation {
  limber_primitive_desc desc;
  limber_attr *attr;
  PyObject *refs[MAX_INPUTS][2];
  size_t n_refs;
} creation;

static bool read_all(PyObject *list, size_t limit, const char *what,
                     Py_ssize_t *out) {
  *out = PyList_Size(list);
  if (*out >= 0 && *out <= (Py_ssize_t)limit) return true;
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_ValueError, "a primitive has at most %zu %s", limit,
                 what);
  return false;
}

static bool read_operands(creation *c, PyObject *operands) {
  Py_ssize_t n;
  if (!read_all(operands, LIMBER_MAX_OPERANDS, "operands", &n)) return false;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *operand = PyList_GetItem(operands, i);
    if (operand != Py_None &&
        !read_operand(operand, &c->desc.in[i], c->refs[c->n_refs++]))
      return false;
  }
  return true;
}

static bool read_fields(creation *c, PyObject *given) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(given, &at, &name, &value))
    if (!read_field(name, value, &c->desc)) return false;
  return true;
}

static bool read_posts(creation *c, PyObject *posts) {
  Py_ssize_t n;
  if (!read_all(posts, LIMBER_MAX_POST_OPS, "post-operations", &n))
    return false;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!append(c->attr, PyList_GetItem(posts, i), c->refs[c->n_refs++]))
      return false;
  return true;
}

static bool create(primitive *p, const creation *c, PyObject *blob) {
  char *bytes = NULL;
  Py_ssize_t size = 0;
  limber_status st;
  if (blob != Py_None && PyBytes_AsStringAndSize(blob, &bytes, &size))
    return false;
  Py_BEGIN_ALLOW_THREADS;
  st = bytes ? limber_primitive_create_from_cache_blob(
                   NULL, &c->desc, c->attr, bytes, (size_t)size, &p->limber)
             : limber_primitive_create(NULL, &c->desc, c->attr, &p->limber);
  Py_END_ALLOW_THREADS;
  if (st) lb_raise(lb_python.run_errors, st);
  return !st;
}

static int primitive_init(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *names[] = {"kind",
                          "alg",
                          "operands",
                          "fields",
                          "posts",
                          "deterministic",
                          "prefer_reusable_kernels",
                          "reference",
                          "blob",
                          NULL};
  primitive *p = (primitive *)self;
  const char *kind, *alg;
  PyObject *operands, *given, *posts, *blob;
  int deterministic, reusable, reference;
  creation c = {.desc = {.size = sizeof c.desc}};
  if (p->limber) {
    PyErr_SetString(PyExc_RuntimeError, "the primitive exists already");
    return -1;
  }
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "szO!O!O!pipO", names, &kind,
                                   &alg, &PyList_Type, &operands, &PyDict_Type,
                                   &given, &PyList_Type, &posts, &deterministic,
                                   &reusable, &reference, &blob))
    return -1;
  c.desc.kind = number_of("kind of primitive", limber_primitive_kind_name,
                          LIMBER_PRIMITIVE_KINDS, kind);
  c.desc.alg = alg ? alg_named(alg) : 0;
  bool good = c.desc.kind >= 0 && c.desc.alg >= 0;
  if (good && limber_attr_create(&c.attr)) {
    PyErr_NoMemory();
    good = false;
  }
  if (good && deterministic) limber_attr_set_deterministic(c.attr, 1);
  if (good && reusable)
    limber_attr_set_hint_reusable_kernels(c.attr, reusable > 0);
  if (good && reference) limber_attr_set_reference(c.attr, 1);
  good = good && read_operands(&c, operands) && read_fields(&c, given) &&
         read_posts(&c, posts) && create(p, &c, blob);
  limber_attr_destroy(c.attr);
  for (size_t i = 0; i < c.n_refs; i++) {
    Py_XDECREF(c.refs[i][0]);
    Py_XDECREF(c.refs[i][1]);
  }
  return good ? 0 : -1;
}

// -- executing ---------------------------------------------------------------

typedef struct execution {
  limber_tensor in[MAX_INPUTS], out[MAX_OUTPUTS];
  int64_t strides[MAX_INPUTS][LIMBER_MAX_RANK];
  PyObject *refs[MAX_INPUTS][2];
  size_t n_in;
} execution;

// Gives the strides of a dense array too, because Limber takes an operand
// without strides to have the layout of the descriptor.
static void fill_strides(limber_tensor *t, int64_t *strides) {
  int64_t step = 1;
  for (int i = t->rank - 1; !t->strides && i >= 0; i--) {
    strides[i] = step;
    step *= t->dims[i];
  }
  t->strides = strides;
}

static bool take_arrays(execution *e, PyObject *arrays) {
  Py_ssize_t n = PyTuple_Size(arrays);
  if (n > MAX_INPUTS) {
    PyErr_Format(PyExc_TypeError, "a primitive has at most %d inputs",
                 MAX_INPUTS);
    return false;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    limber_tensor *t = &e->in[e->n_in++];
    if (!lb_array_read(PyTuple_GetItem(arrays, i), LIMBER_NONE, t,
                       e->strides[i], e->refs[i]))
      return false;
    fill_strides(t, e->strides[i]);
  }
  return true;
}

static bool execution_init(execution **out, PyObject *arrays) {
  *out = PyMem_Calloc(1, sizeof **out);
  if (!*out) PyErr_NoMemory();
  return *out && take_arrays(*out, arrays);
}

static void execution_free(execution *e) {
  for (size_t i = 0; e && i < MAX_OUTPUTS; i++) limber_tensor_free(&e->out[i]);
  for (size_t i = 0; e && i < e->n_in; i++) {
    Py_XDECREF(e->refs[i][0]);
    Py_XDECREF(e->refs[i][1]);
  }
  PyMem_Free(e);
}

static primitive *created(PyObject *self) {
  primitive *p = (primitive *)self;
  if (p->limber) return p;
  PyErr_SetString(PyExc_RuntimeError, "the primitive was not created");
  return NULL;
}

static bool ask(primitive *p, const execution *e, limber_primitive_info *info) {
  limber_status st =
      limber_primitive_query(p->limber, e->n_in ? e->in : NULL, e->n_in, info);
  if (st) lb_raise(lb_python.run_errors, st);
  return !st;
}

static bool find_outputs(primitive *p, const execution *e) {
  limber_primitive_info info = {.size = sizeof info};
  if (p->n_outputs) return true;
  if (!ask(p, e, &info)) return false;
  p->n_outputs = info.n_outputs;
  p->channels_last = info.out_layout == LIMBER_LAYOUT_CHANNELS_LAST;
  return true;
}

// An array has the axes of the memory: a channels-last result gets its channels
// last.
static void to_memory_order(limber_tensor *t) {
  int64_t channels = t->dims[1];
  memmove(&t->dims[1], &t->dims[2], (size_t)(t->rank - 2) * sizeof *t->dims);
  t->dims[t->rank - 1] = channels;
}

static PyObject *results_of(primitive *p, execution *e) {
  PyObject *list = PyList_New((Py_ssize_t)p->n_outputs);
  if (p->channels_last) to_memory_order(&e->out[0]);
  for (size_t i = 0; list && i < p->n_outputs; i++) {
    PyObject *array = lb_array_new(&e->out[i], NULL);
    if (!array || PyList_SetItem(list, (Py_ssize_t)i, array)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *primitive_execute(PyObject *self, PyObject *arrays) {
  primitive *p = created(self);
  PyObject *results = NULL;
  execution *e = NULL;
  if (p && execution_init(&e, arrays) && find_outputs(p, e)) {
    limber_status st;
    Py_BEGIN_ALLOW_THREADS;
    st = limber_primitive_execute(p->limber, e->in, e->n_in, e->out,
                                  p->n_outputs, NULL);
    Py_END_ALLOW_THREADS;
    results = st ? lb_raise(lb_python.run_errors, st) : results_of(p, e);
  }
  execution_free(e);
  return results;
}

static PyObject *primitive_query(PyObject *self, PyObject *arrays) {
  primitive *p = created(self);
  limber_primitive_info info = {.size = sizeof info};
  execution *e = NULL;
  bool good = p && execution_init(&e, arrays) && ask(p, e, &info);
  execution_free(e);
  if (!good) return NULL;
  return Py_BuildValue(
      "{s:s,s:s,s:s,s:N,s:N,s:s,s:n,s:n,s:N,s:K,s:K,s:K,s:K}", "key", info.key,
      "implementation", info.implementation, "tier", info.tier, "reusable",
      PyBool_FromLong(info.reusable), "prefer_reusable",
      PyBool_FromLong(info.prefer_reusable), "prefer_reusable_from",
      info.prefer_reusable_from, "n_inputs", (Py_ssize_t)info.n_inputs,
      "n_outputs", (Py_ssize_t)info.n_outputs, "channels_last",
      PyBool_FromLong(info.out_layout == LIMBER_LAYOUT_CHANNELS_LAST), "steps",
      (unsigned long long)info.steps, "kernels",
      (unsigned long long)info.kernels, "scratch_bytes",
      (unsigned long long)info.scratch_bytes, "packed_bytes",
      (unsigned long long)info.packed_bytes);
}

static PyObject *primitive_wait(PyObject *self, PyObject *seconds) {
  primitive *p = created(self);
  double limit = PyFloat_AsDouble(seconds);
  limber_status st;
  if (!p || (limit == -1 && PyErr_Occurred())) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = limber_primitive_wait(p->limber, limit);
  Py_END_ALLOW_THREADS;
  if (st) return lb_raise(lb_python.run_errors, st);
  Py_RETURN_NONE;
}

static PyObject *primitive_cache_id(PyObject *self, PyObject *unused) {
  (void)unused;
  primitive *p = created(self);
  char id[LIMBER_CACHE_ID];
  if (!p) return NULL;
  limber_status st = limber_primitive_get_cache_id(p->limber, id);
  return st ? lb_raise(lb_python.run_errors, st) : lb_text(id);
}

static PyObject *primitive_cache_blob(PyObject *self, PyObject *seconds) {
  primitive *p = created(self);
  double limit = PyFloat_AsDouble(seconds);
  void *blob;
  size_t size;
  limber_status st;
  if (!p || (limit == -1 && PyErr_Occurred())) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = limber_primitive_get_cache_blob(p->limber, limit, &blob, &size);
  Py_END_ALLOW_THREADS;
  if (st) return lb_raise(lb_python.run_errors, st);
  PyObject *bytes = PyBytes_FromStringAndSize(blob, (Py_ssize_t)size);
  limber_blob_free(blob);
  return bytes;
}

// -- the type ----------------------------------------------------------------

static void primitive_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  limber_primitive_destroy(((primitive *)self)->limber);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"_execute", primitive_execute, METH_O, NULL},
    {"_query", primitive_query, METH_O, NULL},
    {"wait", primitive_wait, METH_O,
     "wait(seconds)\n\nCompiles the kernels that are still pending for the "
     "shapes so far, and\nwaits at most that long for them."},
    {"cache_id", primitive_cache_id, METH_NOARGS,
     "cache_id()\n\nReturns the name to keep a blob under: 32 hexadecimal "
     "digits."},
    {"cache_blob", primitive_cache_blob, METH_O,
     "cache_blob(seconds)\n\nReturns the primitive with its compiled kernels "
     "as "
     "bytes, which\nPrimitive(..., blob=) accepts. It is machine code."},
    {0},
};

static PyObject *primitive_channels_last(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((primitive *)self)->channels_last);
}

static PyGetSetDef values[] = {
    {"channels_last", primitive_channels_last, NULL,
     "Whether the last execution's result was channels-last.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_init, primitive_init},
    {Py_tp_dealloc, primitive_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, values},
    {0},
};

static PyType_Spec spec = {
    .name = "limber._limber.Primitive",
    .basicsize = sizeof(primitive),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

bool lb_primitive_init(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  if (!type) return false;
  if (!PyModule_AddObject(module, "Primitive", type)) return true;
  Py_DECREF(type);
  return false;
}
