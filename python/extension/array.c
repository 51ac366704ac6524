// python/extension/array.c -- numpy arrays as inputs and outputs, without
// copies: inputs that are not contiguous are passed with their strides.
#include <string.h>

#include "extension.h"

// numpy's PyArrayInterface, as its documentation defines it.
typedef struct array_struct {
  int two;  // always 2
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_ssize_t *shape, *strides;
  void *data;
  PyObject *descr;
} array_struct;

enum {
  CONTIGUOUS = 0x1,
  ALIGNED = 0x100,
  NOT_SWAPPED = 0x200,
  WRITEABLE = 0x400,
  READABLE = ALIGNED | NOT_SWAPPED,
};

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "dims have one type");

static const struct {
  char kind;
  int size;
} kinds[] = {
    [LIMBER_F32] = {'f', 4},  [LIMBER_F64] = {'f', 8}, [LIMBER_F16] = {'f', 2},
    [LIMBER_BF16] = {'V', 2}, [LIMBER_I8] = {'i', 1},  [LIMBER_I16] = {'i', 2},
    [LIMBER_I32] = {'i', 4},  [LIMBER_I64] = {'i', 8}, [LIMBER_U8] = {'u', 1},
    [LIMBER_U16] = {'u', 2},  [LIMBER_U32] = {'u', 4}, [LIMBER_U64] = {'u', 8},
    [LIMBER_BOOL] = {'b', 1},
};

// -- inputs ------------------------------------------------------------------

static limber_dtype dtype_of(const array_struct *a, limber_dtype wanted) {
  // Without ml_dtypes bfloat16 values are passed as uint16.
  if (wanted == LIMBER_BF16 && a->typekind == 'u' && a->itemsize == 2)
    return LIMBER_BF16;
  for (int i = LIMBER_F32; i <= LIMBER_BOOL; i++)
    if (kinds[i].kind == a->typekind && kinds[i].size == a->itemsize)
      return (limber_dtype)i;
  return LIMBER_NONE;
}

static bool reject(PyObject *array, const char *why) {
  PyObject *type = PySequence_GetItem(lb_python.run_errors, LIMBER_INVALID);
  PyObject *dtype = PyObject_GetAttrString(array, "dtype");
  if (type && dtype) PyErr_Format(type, "an array of %S %s", dtype, why);
  Py_XDECREF(dtype);
  Py_XDECREF(type);
  return false;
}

// Converts strides to elements. Returns false if one is not a multiple of the
// element size.
static bool read_strides(const array_struct *a, int64_t *out) {
  for (int i = 0; i < a->nd && i < LIMBER_MAX_RANK; i++) {
    if (a->strides[i] % a->itemsize) return false;
    out[i] = a->strides[i] / a->itemsize;
  }
  return true;
}

static bool fill(const array_struct *a, PyObject *array, limber_dtype wanted,
                 limber_tensor *out) {
  out->dtype = dtype_of(a, wanted);
  if (!out->dtype)
    return reject(array, "has a dtype that Limber does not support");
  if (a->nd > LIMBER_MAX_RANK) return reject(array, "has too many dims");
  out->rank = a->nd;
  for (int i = 0; i < a->nd; i++) out->dims[i] = a->shape[i];
  out->data = a->data;
  return true;
}

// Returns 1 if `out` is filled and *refs keeps the memory alive, 0 without an
// exception if the value is not a readable array, -1 with an exception. *refs
// is the capsule, because for a numpy scalar numpy creates an array that only
// the capsule keeps alive.
static int try_read(PyObject *value, limber_dtype wanted, limber_tensor *out,
                    int64_t *strides, PyObject **refs) {
  PyObject *capsule = PyObject_GetAttr(value, lb_python.array_struct);
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  const array_struct *a = PyCapsule_GetPointer(capsule, NULL);
  int result = 0;
  if (!a) {
    result = -1;
  } else if (a->two == 2 && (a->flags & READABLE) == READABLE) {
    bool dense = a->flags & CONTIGUOUS;
    out->strides = dense ? NULL : strides;
    if (dense || (a->itemsize && read_strides(a, strides)))
      result = fill(a, value, wanted, out) ? 1 : -1;
  }
  *refs = capsule;
  return result;
}

bool lb_array_read(PyObject *value, limber_dtype wanted, limber_tensor *out,
                   int64_t *strides, PyObject *refs[2]) {
  Py_INCREF(value);
  refs[0] = value;
  int done = try_read(value, wanted, out, strides, &refs[1]);
  if (!done && !refs[1]) done = lb_dlpack_read(value, out, strides, &refs[1]);
  if (done) return done > 0;
  PyObject *array =
      PyObject_CallFunction(lb_python.to_array, "Os", value,
                            wanted ? limber_dtype_name(wanted) : NULL);
  Py_DECREF(value);
  Py_CLEAR(refs[1]);
  refs[0] = array;
  if (!array) return false;
  done = try_read(array, wanted, out, strides, &refs[1]);
  return done > 0 || (done == 0 && reject(array, "cannot be read"));
}

bool lb_array_target(PyObject *array, limber_tensor *out) {
  PyObject *capsule = PyObject_GetAttr(array, lb_python.array_struct);
  const array_struct *a = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
  bool good = false;
  if (a && (a->flags & READABLE) != READABLE) {
    reject(array, "is not aligned or not in native byte order");
  } else if (a && !(a->flags & CONTIGUOUS)) {
    reject(array, "is not C-contiguous; bind numpy.empty(shape, dtype)");
  } else if (a && !(a->flags & WRITEABLE)) {
    reject(array, "is read-only");
  } else if (a) {
    good = fill(a, array, out->dtype, out);
    out->bytes = limber_dtype_size(out->dtype);
    for (int i = 0; good && i < out->rank; i++)
      out->bytes *= (size_t)out->dims[i];
  }
  Py_XDECREF(capsule);  // the array keeps the memory
  return good;
}

// -- outputs -----------------------------------------------------------------

// A tensor that Limber allocated; the base object of the array in Python.
typedef struct memory {
  PyObject_HEAD;
  limber_tensor tensor;
  PyObject *runtime;  // or NULL
  array_struct array;
  Py_ssize_t strides[LIMBER_MAX_RANK];
} memory;

static PyTypeObject *memory_type;

static void memory_dealloc(PyObject *self) {
  memory *m = (memory *)self;
  PyTypeObject *type = Py_TYPE(self);
  limber_tensor_free(&m->tensor);
  Py_XDECREF(m->runtime);
  PyObject_Free(self);
  Py_DECREF(type);
}

static void capsule_free(PyObject *capsule) {
  Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

static PyObject *memory_struct(PyObject *self, void *unused) {
  (void)unused;
  PyObject *capsule =
      PyCapsule_New(&((memory *)self)->array, NULL, capsule_free);
  if (!capsule) return NULL;
  if (PyCapsule_SetContext(capsule, self)) {
    Py_DECREF(capsule);
    return NULL;
  }
  Py_INCREF(self);
  return capsule;
}

static void describe(memory *m) {
  limber_tensor *t = &m->tensor;
  Py_ssize_t step = kinds[t->dtype].size;
  for (int i = t->rank - 1; i >= 0; i--) {
    m->strides[i] = step;
    step *= (Py_ssize_t)(t->dims[i] ? t->dims[i] : 1);
  }
  m->array = (array_struct){
      .two = 2,
      .nd = t->rank,
      .typekind = kinds[t->dtype].kind,
      .itemsize = kinds[t->dtype].size,
      .flags = CONTIGUOUS | READABLE | WRITEABLE,
      .shape = (Py_ssize_t *)t->dims,
      .strides = m->strides,
      .data = t->data,
  };
}

PyObject *lb_array_new(limber_tensor *tensor, PyObject *runtime) {
  memory *m = PyObject_New(memory, memory_type);
  if (!m) {
    limber_tensor_free(tensor);
    return NULL;
  }
  m->tensor = *tensor;
  *tensor = (limber_tensor){0};
  Py_XINCREF(runtime);
  m->runtime = runtime;
  describe(m);
  PyObject *array =
      PyObject_CallFunctionObjArgs(lb_python.asarray, (PyObject *)m, NULL);
  bool is_bfloat16 = m->tensor.dtype == LIMBER_BF16;
  Py_DECREF(m);
  if (!array || !is_bfloat16) return array;
  PyObject *view =
      PyObject_CallFunctionObjArgs(lb_python.as_bfloat16, array, NULL);
  Py_DECREF(array);
  return view;
}

PyObject *lb_array_memory(PyObject *array) {
  PyObject *base = PyObject_GetAttrString(array, "base");
  if (base && PyTuple_Check(base)) {  // numpy 2.4 and later: with the capsule
    PyObject *first = PyTuple_GetItem(base, 0);
    Py_XINCREF(first);
    Py_DECREF(base);
    base = first;
  }
  if (base && Py_TYPE(base) == memory_type) return base;
  if (!base) PyErr_Clear();
  Py_XDECREF(base);
  return NULL;
}

void lb_memory_swap(PyObject *self, limber_tensor *tensor) {
  memory *m = (memory *)self;
  limber_tensor before = m->tensor;
  m->tensor = *tensor;
  *tensor = before;
}

static PyGetSetDef memory_fields[] = {
    {"__array_struct__", memory_struct, NULL, NULL, NULL},
    {0},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_getset, memory_fields},
    {0},
};

static PyType_Spec memory_spec = {
    .name = "limber._limber.Memory",
    .basicsize = sizeof(memory),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = memory_slots,
};

bool lb_array_init(PyObject *module) {
  (void)module;  // the type is not exported
  if (!memory_type) memory_type = (PyTypeObject *)PyType_FromSpec(&memory_spec);
  return memory_type != NULL;
}
