"""OrtValue and IOBinding: tensors in the caller's memory."""

from __future__ import annotations

import ctypes
from typing import Any, Iterable, List, Sequence

import numpy as np

from limber import _limber
from limber._arrays import bfloat16_dtype, in_place
from limber._model import TYPES
from limber.compat._devices import OrtMemoryInfo, check_device
from limber._errors import InvalidArgument
from limber.compat._errors import NotImplemented as NotSupported
from limber.compat._unsupported import SPARSE

# ONNX's numbers of tensor types.
ONNX_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32",
    7: "int64", 9: "bool", 10: "float16", 11: "float64", 12: "uint32",
    13: "uint64", 16: "bfloat16",
}
NUMBERS = {name: number for number, name in ONNX_TYPES.items()}


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """A dtype from a numpy type or the number of an ONNX type."""
    if not isinstance(element_type, (int, np.integer)):
        given: np.dtype[Any] = np.dtype(element_type)
        return given
    name = ONNX_TYPES.get(int(element_type))
    if name is None:
        raise NotSupported(f"Limber has no tensors of the ONNX type "
                           f"{element_type}")
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)


def at_address(address: int, shape: Sequence[int], dtype: np.dtype[Any]
               ) -> np.ndarray:
    """An array of memory that the caller keeps."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if count == 0:  # the address may be 0
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * count).from_address(address)
    elements: np.ndarray = np.frombuffer(memoryview(memory), np.uint8)
    return elements.view(dtype).reshape(shape)


class OrtValue:
    """A tensor: an array that is not copied.

        >>> x = np.zeros((2, 3), np.float32)
        >>> value = OrtValue.ortvalue_from_numpy(x)
        >>> value.shape(), value.data_type()
        ([2, 3], 'tensor(float)')
        >>> np.shares_memory(value.numpy(), x)
        True
    """

    def __init__(self, array: Any, name: str | None = None):
        if isinstance(array, OrtValue):
            array, name = array._array, array._name
        self._array: np.ndarray = array
        self._name = name or array.dtype.name

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, /, device_type: str = "cpu",
                            device_id: int = 0, vendor_id: int = -1
                            ) -> OrtValue:
        """The value shares the array's memory if that is contiguous."""
        check_device(device_type)
        return OrtValue(np.ascontiguousarray(numpy_obj)
                        .reshape(np.shape(numpy_obj)))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, /,
                                           onnx_element_type: int) -> OrtValue:
        """The value shares the array's memory, with elements of another type
        of the same size, such as uint16 as bfloat16."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise InvalidArgument(f"elements of {data.dtype} cannot be read as "
                                  f"{dtype}")
        return OrtValue(np.ascontiguousarray(data).view(dtype),
                        ONNX_TYPES[int(onnx_element_type)])

    @staticmethod
    def ortvalue_from_shape_and_type(
            shape: Sequence[int], element_type: Any, device_type: str = "cpu",
            device_id: int = 0, vendor_id: int = -1,
            memory_info: OrtMemoryInfo | None = None) -> OrtValue:
        """A value with memory that is not initialised."""
        check_device(device_type)
        return OrtValue(np.empty(list(shape), dtype_of(element_type)))

    @staticmethod
    def from_dlpack(data: Any, /) -> OrtValue:
        """The value shares the memory of another library's tensor."""
        return OrtValue(in_place(data))

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: Any) -> OrtValue:
        """Not supported: Limber has no sparse tensors."""
        raise NotSupported(SPARSE)

    def as_sparse_tensor(self) -> Any:
        """Not supported: Limber has no sparse tensors."""
        raise NotSupported(SPARSE)

    def numpy(self) -> np.ndarray:
        """Returns the array, which shares the value's memory."""
        return self._array

    def update_inplace(self, data: Any) -> None:
        """Copies an array of the same size into the value's memory."""
        array = np.asarray(data)
        if array.size != self._array.size:
            raise InvalidArgument(f"the value has {self._array.size} elements, "
                                  f"the array has {array.size}")
        np.copyto(self._array, array.reshape(self._array.shape),
                  casting="same_kind")

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        return int(self._array.ctypes.data)

    def data_type(self) -> str:
        """Returns the type as "tensor(float)"."""
        return f"tensor({TYPES.get(self._name, self._name)})"

    def element_type(self) -> int:
        """Returns ONNX's number of the element type."""
        return NUMBERS[self._name]

    def shape(self) -> list[int]:
        """Returns the dims."""
        return list(self._array.shape)

    def tensor_size_in_bytes(self) -> int:
        """Returns the number of bytes."""
        return self._array.nbytes

    def device_name(self) -> str:
        """Returns "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """Returns True."""
        return True

    def is_tensor(self) -> bool:
        """Returns True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Returns False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Returns False: Limber has no sequences as inputs or outputs."""
        return False

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._array, dtype, copy=bool(copy)) if copy \
            else np.asarray(self._array, dtype)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return _limber.to_dlpack(self._array)

    def to_dlpack(self) -> Any:
        """Returns a DLPack capsule of the value's memory."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self


class OrtValueVector(List[OrtValue]):
    """A list of OrtValue objects."""

    def push_back(self, value: Any) -> None:
        """Appends a value."""
        self.append(value)

    def reserve(self, count: int) -> None:
        """No effect."""

    def shrink_to_fit(self) -> None:
        """No effect."""

    def dlpack_at(self, index: int) -> Any:
        """Returns a DLPack capsule of a value."""
        return self[index].to_dlpack()

    def element_type_at(self, index: int) -> int:
        """Returns ONNX's number of the element type of a value."""
        return self[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """Returns the indices of the values with bool elements."""
        return [i for i, value in enumerate(self)
                if value.element_type() == NUMBERS["bool"]]


class IOBinding:
    """Inputs and outputs in memory of the caller. run_with_iobinding converts
    and allocates nothing for what is bound to memory. A result may be smaller
    than the memory that its output is bound to."""

    def __init__(self, session: Any):
        self._session = session
        self._binding = _limber.Binding(session)
        self._feeds: dict[str, Any] = {}
        self._targets: dict[str, Any] = {}
        self._results: tuple[np.ndarray, ...] | None = None

    @property
    def _iobinding(self) -> IOBinding:
        return self

    def _bind_input(self, name: str, array: np.ndarray) -> None:
        self._binding.bind_input(name, array)
        self._feeds[name] = array

    def _bind_output(self, name: str, array: np.ndarray | None) -> None:
        self._binding.bind_output(name, array)
        self._targets[name] = array
        self._results = None

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an input to an array, which is not copied."""
        self._bind_input(name, arr_on_cpu if hasattr(arr_on_cpu, "dtype")
                         else np.asarray(arr_on_cpu))

    def bind_input(self, name: str, device_type: str, device_id: int,
                   element_type: Any, shape: Sequence[int], buffer_ptr: int
                   ) -> None:
        """Binds an input to the memory at an address."""
        check_device(device_type)
        self._bind_input(name, at_address(buffer_ptr, shape,
                                          dtype_of(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to the memory of a value."""
        self._bind_input(name, ortvalue.numpy())

    def bind_output(self, name: str, device_type: str = "cpu",
                    device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None,
                    buffer_ptr: int | None = None) -> None:
        """Binds an output to the memory at an address; without one, Limber
        allocates the result."""
        check_device(device_type)
        if buffer_ptr is None:
            self._bind_output(name, None)
            return
        if element_type is None or shape is None:
            raise ValueError("bind_output: with buffer_ptr, element_type and "
                             "shape are needed")
        self._bind_output(name, at_address(buffer_ptr, shape,
                                           dtype_of(element_type)))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to the memory of a value."""
        self._bind_output(name, ortvalue.numpy())

    def clear_binding_inputs(self) -> None:
        """Forgets the bound inputs."""
        self._binding.clear_inputs()
        self._feeds.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the bound outputs."""
        self._binding.clear_outputs()
        self._targets.clear()
        self._results = None

    def get_outputs(self) -> Sequence[OrtValue]:
        """Returns the results of the last run, which share the memory that is
        bound."""
        return [OrtValue(array) for array in self._results or ()]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Returns the results of the last run as an OrtValueVector."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> Sequence[np.ndarray]:
        """Returns copies of the results."""
        return [array.copy() for array in self._results or ()]

    def synchronize_inputs(self) -> None:
        """No effect: the CPU's memory is always synchronised."""

    def synchronize_outputs(self) -> None:
        """No effect: the CPU's memory is always synchronised."""

    def _run(self, cancel: Any) -> None:
        if not self._targets:
            raise RuntimeError("no output is bound; call bind_output")
        self._results = self._binding.run(cancel=cancel)

    def _run_on_copies(self, run: Any) -> None:
        """Runs by a function of names and feeds, where a run has to do more
        than Binding.run does."""
        if not self._targets:
            raise RuntimeError("no output is bound; call bind_output")
        results = []
        for result, target in zip(run(list(self._targets), self._feeds),
                                  self._targets.values()):
            if target is not None:
                target.reshape(-1)[:result.size] = result.reshape(-1)
                result = target.reshape(-1)[:result.size].reshape(result.shape)
            results.append(result)
        self._results = tuple(results)


SessionIOBinding = IOBinding


def copy_tensors(src: Iterable[OrtValue], dst: Iterable[OrtValue],
                 stream: Any = None) -> None:
    """Copies each value of a sequence into the one of another."""
    for source, target in zip(src, dst):
        target.update_inplace(source.numpy())
