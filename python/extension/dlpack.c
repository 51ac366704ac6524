// python/extension/dlpack.c -- tensors of other libraries, by DLPack.
//
// The structs are those of DLPack's ABI before version 1, which every library
// offers to a caller of __dlpack__() that names no version. A capsule that is
// not renamed frees its tensor itself, so inputs only have to keep the capsule.
#include <string.h>

#include "extension.h"

enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_CPU = 1, DL_CUDA_HOST = 3 };

typedef struct dl_tensor {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *dims, *strides;  // strides NULL: dense
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *self);
} dl_managed;

static const struct {
  uint8_t code, bits;
} codes[] = {
    [LIMBER_F32] = {DL_FLOAT, 32}, [LIMBER_F64] = {DL_FLOAT, 64},
    [LIMBER_F16] = {DL_FLOAT, 16}, [LIMBER_BF16] = {DL_BFLOAT, 16},
    [LIMBER_I8] = {DL_INT, 8},     [LIMBER_I16] = {DL_INT, 16},
    [LIMBER_I32] = {DL_INT, 32},   [LIMBER_I64] = {DL_INT, 64},
    [LIMBER_U8] = {DL_UINT, 8},    [LIMBER_U16] = {DL_UINT, 16},
    [LIMBER_U32] = {DL_UINT, 32},  [LIMBER_U64] = {DL_UINT, 64},
    [LIMBER_BOOL] = {DL_BOOL, 8},
};

static limber_dtype dtype_of(const dl_tensor *d) {
  for (int i = LIMBER_F32; d->dtype.lanes == 1 && i <= LIMBER_BOOL; i++)
    if (codes[i].code == d->dtype.code && codes[i].bits == d->dtype.bits)
      return (limber_dtype)i;
  return LIMBER_NONE;
}

// -- inputs ------------------------------------------------------------------

static int reject(const char *format, int number) {
  PyObject *type = PySequence_GetItem(lb_python.run_errors, LIMBER_INVALID);
  if (type) PyErr_Format(type, format, number);
  Py_XDECREF(type);
  return -1;
}

static int fill(const dl_tensor *d, limber_tensor *out, int64_t *strides) {
  if (d->device.type != DL_CPU && d->device.type != DL_CUDA_HOST)
    return reject(
        "the tensor is in the memory of a device (DLPack type %d); copy it to "
        "the CPU first",
        d->device.type);
  if (d->rank > LIMBER_MAX_RANK)
    return reject("more than %d dims", LIMBER_MAX_RANK);
  out->dtype = dtype_of(d);
  if (!out->dtype)
    return reject(
        "Limber does not support DLPack's dtype code %d with these "
        "bits and lanes",
        d->dtype.code);
  char *data = d->data ? (char *)d->data + d->byte_offset : NULL;
  if ((uintptr_t)data % limber_dtype_size(out->dtype)) return 0;  // is copied
  out->rank = d->rank;
  out->data = data;
  out->strides = d->strides ? strides : NULL;
  for (int i = 0; i < d->rank; i++) {
    out->dims[i] = d->dims[i];
    if (d->strides) strides[i] = d->strides[i];
  }
  return 1;
}

int lb_dlpack_read(PyObject *value, limber_tensor *out, int64_t *strides,
                   PyObject **ref) {
  PyObject *export = PyObject_GetAttrString(value, "__dlpack__");
  if (!export) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  PyObject *capsule = PyObject_CallFunctionObjArgs(export, NULL);
  Py_DECREF(export);
  if (!capsule) {  // BufferError: this tensor has no such form
    if (!PyErr_ExceptionMatches(PyExc_BufferError)) return -1;
    PyErr_Clear();
    return 0;
  }
  const dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
  int result = managed ? fill(&managed->tensor, out, strides) : -1;
  if (result > 0)
    *ref = capsule;
  else
    Py_DECREF(capsule);
  return result;
}

// -- outputs -----------------------------------------------------------------

// A tensor that another library holds; it keeps the array.
typedef struct shared {
  dl_managed managed;
  PyObject *refs[2];
  int64_t dims[LIMBER_MAX_RANK], strides[LIMBER_MAX_RANK];
} shared;

static void shared_free(dl_managed *managed) {
  shared *d = managed->context;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_XDECREF(d->refs[0]);
  Py_XDECREF(d->refs[1]);
  PyMem_Free(d);
  PyGILState_Release(state);
}

static void capsule_free(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;  // it was taken over
  dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
  managed->deleter(managed);
}

static void describe(shared *d, const limber_tensor *t) {
  int64_t dense = 1;
  for (int i = t->rank - 1; i >= 0; i--) {
    d->dims[i] = t->dims[i];
    d->strides[i] = t->strides ? t->strides[i] : dense;
    dense *= t->dims[i];
  }
  dl_tensor *out = &d->managed.tensor;
  out->data = t->data;
  out->device.type = DL_CPU;
  out->rank = t->rank;
  out->dtype.code = codes[t->dtype].code;
  out->dtype.bits = codes[t->dtype].bits;
  out->dtype.lanes = 1;
  out->dims = d->dims;
  out->strides = d->strides;
}

static PyObject *to_dlpack(PyObject *module, PyObject *array) {
  (void)module;
  limber_tensor t = {0};
  int64_t strides[LIMBER_MAX_RANK];
  shared *d = PyMem_Calloc(1, sizeof *d);
  if (!d) return PyErr_NoMemory();
  d->managed.context = d;
  d->managed.deleter = shared_free;
  PyObject *capsule = NULL;
  if (lb_array_read(array, LIMBER_NONE, &t, strides, d->refs)) {
    describe(d, &t);
    capsule = PyCapsule_New(&d->managed, "dltensor", capsule_free);
  }
  if (!capsule) shared_free(&d->managed);
  return capsule;
}

bool lb_dlpack_init(PyObject *module) {
  static PyMethodDef methods[] = {
      {"to_dlpack", to_dlpack, METH_O,
       "to_dlpack(array, /)\n--\n\nReturns a DLPack capsule of the array's "
       "memory, "
       "for other libraries.\nnumpy's own export does the same, except that it "
       "has no bfloat16.\n\n"
       "    >>> class Tensor:\n"
       "    ...     def __dlpack__(self, **_):\n"
       "    ...         return limber.to_dlpack(np.ones(2, np.float32))\n"
       "    >>> model(Tensor())\n"
       "    array([-1., -1.], dtype=float32)\n"},
      {0},
  };
  return !PyModule_AddFunctions(module, methods);
}
