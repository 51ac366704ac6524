"""Reads and changes the few fields of an ONNX file that ONNX Runtime's
interface needs and limber.h does not have, in protobuf's wire format."""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple

import numpy as np

# Field numbers of onnx.proto.
MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT = 1, 5, 11
NODE_NAME, NODE_OP_TYPE, NODE_DOMAIN = 3, 4, 7
VALUE_NAME, VALUE_TYPE = 1, 2
TYPE_TENSOR, TENSOR_TYPE_SHAPE, SHAPE_DIM, DIM_DENOTATION = 1, 2, 1, 3
TENSOR_DIMS, TENSOR_DATA_TYPE, TENSOR_NAME, TENSOR_RAW_DATA = 1, 2, 8, 9
TENSOR_EXTERNAL_DATA, TENSOR_DATA_LOCATION, EXTERNAL = 13, 14, 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    number: int
    value: memoryview | int  # an int for a varint
    whole: memoryview  # with its tag


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number has more than 10 bytes")


def fields(data: memoryview) -> Iterator[Field]:
    """The fields of a message; IndexError or ValueError if it is not one."""
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        value: memoryview | int = 0
        if tag & 7 == VARINT:
            value, at = read_varint(data, at)
        elif tag & 7 == BYTES:
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        elif tag & 7 in (FIXED32, FIXED64):
            size = 4 if tag & 7 == FIXED32 else 8
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {tag & 7} is not known")
        if at > len(data):
            raise IndexError("a field is longer than its message")
        yield Field(tag >> 3, value, data[start:at])


def messages(data: memoryview, number: int) -> Iterator[memoryview]:
    for field in fields(data):
        if field.number == number and isinstance(field.value, memoryview):
            yield field.value


def text(data: memoryview, number: int) -> str:
    found = ""
    for value in messages(data, number):
        found = bytes(value).decode("utf-8", "replace")
    return found


def graph_of(model: bytes) -> memoryview:
    """The model's graph, empty if the bytes are not a model."""
    try:
        return next(messages(memoryview(model), MODEL_GRAPH), memoryview(b""))
    except (IndexError, ValueError):
        return memoryview(b"")


def is_message(model: bytes) -> bool:
    """Whether the bytes are a protobuf message with a graph."""
    try:
        return any(field.number == MODEL_GRAPH and
                   isinstance(field.value, memoryview)
                   for field in fields(memoryview(model)))
    except (IndexError, ValueError):
        return False


class Initializer(NamedTuple):
    name: str
    data_type: int
    dims: list[int]


class Node(NamedTuple):
    name: str
    domain: str
    op_type: str


def nodes(model: bytes) -> list[Node]:
    return [Node(text(node, NODE_NAME), text(node, NODE_DOMAIN),
                 text(node, NODE_OP_TYPE))
            for node in messages(graph_of(model), GRAPH_NODE)]


def dims_of(tensor: memoryview) -> list[int]:
    dims: list[int] = []
    for field in fields(tensor):
        if field.number != TENSOR_DIMS:
            continue
        if isinstance(field.value, int):
            dims.append(field.value)
            continue
        at = 0
        while at < len(field.value):  # packed
            dim, at = read_varint(field.value, at)
            dims.append(dim)
    return dims


def number_of(data: memoryview, number: int) -> int:
    found = 0
    for field in fields(data):
        if field.number == number and isinstance(field.value, int):
            found = field.value
    return found


def overridable(model: bytes) -> list[Initializer]:
    """Initializers that are inputs of the graph too."""
    graph = graph_of(model)
    inputs = {text(value, VALUE_NAME) for value in messages(graph, GRAPH_INPUT)}
    return [Initializer(text(tensor, TENSOR_NAME),
                        number_of(tensor, TENSOR_DATA_TYPE), dims_of(tensor))
            for tensor in messages(graph, GRAPH_INITIALIZER)
            if text(tensor, TENSOR_NAME) in inputs]


def denotations(model: bytes) -> dict[str, list[str]]:
    """For each input the denotations of its dims, "" where there is none."""
    found = {}
    for value in messages(graph_of(model), GRAPH_INPUT):
        found[text(value, VALUE_NAME)] = [
            text(dim, DIM_DENOTATION)
            for kind in messages(value, VALUE_TYPE)
            for tensor in messages(kind, TYPE_TENSOR)
            for shape in messages(tensor, TENSOR_TYPE_SHAPE)
            for dim in messages(shape, SHAPE_DIM)]
    return found


# -- changing initializers ----------------------------------------------------

def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def number(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def tensor_bytes(name: str, data_type: int, dims: list[int],
                 content: bytes) -> bytes:
    return b"".join([*(number(TENSOR_DIMS, dim) for dim in dims),
                     number(TENSOR_DATA_TYPE, data_type),
                     message(TENSOR_NAME, name.encode()),
                     message(TENSOR_RAW_DATA, content)])


def replace_initializers(
        model: bytes, new: Callable[[memoryview], bytes | None]) -> bytes:
    """The model with each initializer replaced by what `new` returns for it;
    None leaves it."""
    out = []
    for field in fields(memoryview(model)):
        if field.number != MODEL_GRAPH or isinstance(field.value, int):
            out.append(bytes(field.whole))
            continue
        inner = []
        for part in fields(field.value):
            other = new(part.value) if part.number == GRAPH_INITIALIZER and \
                isinstance(part.value, memoryview) else None
            inner.append(part.whole if other is None
                         else message(GRAPH_INITIALIZER, other))
        out.append(message(MODEL_GRAPH, b"".join(inner)))
    return b"".join(out)


def with_values(model: bytes, values: dict[str, tuple[int, np.ndarray]]
                ) -> bytes:
    """The model with initializers replaced by arrays, given with the number of
    their ONNX type. KeyError if it does not have one of them."""
    left = set(values)

    def new(tensor: memoryview) -> bytes | None:
        name = text(tensor, TENSOR_NAME)
        if name not in values:
            return None
        left.discard(name)
        data_type, array = values[name]
        return tensor_bytes(name, data_type, list(array.shape),
                            array.tobytes())

    out = replace_initializers(model, new)
    if left:
        raise KeyError(", ".join(sorted(left)))
    return out


def with_files(model: bytes, files: dict[str, memoryview]) -> bytes:
    """The model with the external data of `files`, by location, inside."""
    def new(tensor: memoryview) -> bytes | None:
        if number_of(tensor, TENSOR_DATA_LOCATION) != EXTERNAL:
            return None
        where = {text(entry, 1): text(entry, 2)
                 for entry in messages(tensor, TENSOR_EXTERNAL_DATA)}
        content = files.get(where.get("location", ""))
        if content is None:
            return None
        start = int(where.get("offset", 0))
        size = int(where.get("length", len(content) - start))
        if start < 0 or size < 0 or start + size > len(content):
            raise ValueError(
                f"initializer '{text(tensor, TENSOR_NAME)}' is at {start} to "
                f"{start + size} of '{where['location']}', which has "
                f"{len(content)} bytes")
        return tensor_bytes(text(tensor, TENSOR_NAME),
                            number_of(tensor, TENSOR_DATA_TYPE),
                            dims_of(tensor), bytes(content[start:start + size]))

    return replace_initializers(model, new)
