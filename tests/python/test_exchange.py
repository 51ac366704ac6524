"""Tensors of other libraries are read and given without copies: DLPack and
__array_interface__."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import limber
from conftest import identity_model, negate_model
from test_arrays import DTYPES


class Exporter:
    """A tensor that has nothing but DLPack."""

    def __init__(self, array, device=None):
        self.array, self.device, self.exports = array, device, 0

    def __dlpack__(self, **_):
        self.exports += 1
        capsule = limber.to_dlpack(self.array)
        if self.device is not None:
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object,
                                                          ctypes.c_char_p]
            address = get(capsule, b"dltensor")
            ctypes.c_int32.from_address(address + 8).value = self.device
        return capsule

    def __dlpack_device__(self):
        return 1, 0


class Interface:
    """A tensor that has nothing but __array_interface__."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize("onnx_dtype", DTYPES, ids=lambda t: str(DTYPES[t]))
def test_dlpack_has_every_dtype(onnx_dtype):
    model = limber.load(identity_model(onnx_dtype, ["n", "m"]))
    x = np.arange(6).reshape(2, 3).astype(DTYPES[onnx_dtype])
    assert np.array_equal(model(Exporter(x)), x)


@pytest.mark.parametrize("make", [
    lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2],
    lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[:0]])
def test_dlpack_has_strides(make):
    x = make(np.arange(20, dtype=np.float32).reshape(4, 5))
    model = limber.load(negate_model(dims=["n", "m"]))
    assert np.array_equal(model(Exporter(x)), -x)


def test_dlpack_is_read_in_place():
    x = np.zeros(4, np.float32)
    exporter = Exporter(x)
    binding = limber.load(negate_model()).bind({"x": Interface(x)})
    assert binding.run()[0].tolist() == [0] * 4
    x[:] = 2
    assert binding.run()[0].tolist() == [-2] * 4
    model = limber.load(negate_model())
    model(exporter)
    assert exporter.exports == 1


def test_dlpack_tensors_are_freed():
    import weakref
    x = np.ones(4, np.float32)
    gone = weakref.ref(x)
    capsule = limber.to_dlpack(x)
    del x
    assert gone() is not None
    del capsule
    assert gone() is None


def test_a_consumer_shares_the_memory_and_keeps_it():
    y = limber.load(negate_model())(np.ones(4, np.float32))
    assert np.shares_memory(np.from_dlpack(Exporter(y)), y)
    other = np.from_dlpack(Exporter(y))
    del y
    assert other.tolist() == [-1] * 4
    own = limber.load(negate_model())(np.ones(4, np.float32))
    assert np.shares_memory(np.from_dlpack(own), own)  # numpy's export


def test_bfloat16_is_exported():
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    model = limber.load(identity_model(TensorProto.BFLOAT16))
    assert model(Exporter(x)).tolist() == [1.5, -2]


def test_a_tensor_of_a_device_is_an_error_that_says_so():
    with pytest.raises(limber.InvalidArgument, match="copy it to the CPU"):
        limber.load(negate_model())(Exporter(np.ones(2, np.float32), device=2))


def test_array_interface_is_read():
    x = np.arange(4, dtype=np.float32)
    model = limber.load(negate_model())
    assert np.array_equal(model(Interface(x)), -x)
    assert np.array_equal(model(Interface(x[::2])), -x[::2])


def test_outputs_have_an_array_interface_of_the_same_memory():
    y = limber.load(negate_model())(np.ones(4, np.float32))
    assert np.shares_memory(np.asarray(Interface(y)), y)


@pytest.mark.parametrize("make", [bytearray, lambda n: memoryview(bytearray(n)),
                                  lambda n: (ctypes.c_float * (n // 4))()])
def test_buffers_can_be_bound(make):
    memory = make(16)
    floats = memoryview(memory).cast("B").cast("f")
    y = np.empty(4, np.float32)
    binding = limber.load(negate_model()).bind({"x": floats}, {"y": y})
    floats[2] = 3.0
    binding.run()
    assert y.tolist() == [0, 0, -3, 0]
