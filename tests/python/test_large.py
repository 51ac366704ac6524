"""Models of more than 2 GB, in one file or with external data. The files are
sparse, so that they take neither disk nor time."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import make_model

BIG = (5 << 30) + 3  # bytes of the weight; more than 32 bits can express


def gather_model():
    """y = w[i], without w"""
    return make_model([helper.make_node("Gather", ["w", "i"], ["y"])],
                      {"i": (TensorProto.INT64, ["n"])},
                      {"y": (TensorProto.UINT8, ["n"])})


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, content, size=None):
    """A field of bytes; `size`: its length if more bytes follow in the file."""
    return varint(number << 3 | 2) + varint(size or len(content)) + content


def write_with_hole(path, header, size, marks):
    with open(path, "wb") as f:
        f.write(header)
        f.truncate(len(header) + size)
        for at, byte in marks.items():
            f.seek(len(header) + at)
            f.write(bytes([byte]))


def weight():
    """w without its elements"""
    tensor = helper.make_tensor("w", TensorProto.UINT8, [0], b"", raw=True)
    tensor.dims[0] = BIG
    tensor.ClearField("raw_data")
    return tensor


def in_one_file(path, marks):
    """ModelProto's last field is the graph, the graph's last the initializer,
    the initializer's last the raw data."""
    model = gather_model()
    raw = weight().SerializeToString() + field(9, b"", BIG)
    graph = model.graph.SerializeToString() + field(5, raw, len(raw) + BIG)
    model.ClearField("graph")
    header = model.SerializeToString() + field(7, graph, len(graph) + BIG)
    write_with_hole(path, header, BIG, marks)


def beside_the_file(path, marks):
    model = gather_model()
    tensor = weight()
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": "4096",
                       "length": str(BIG)}.items():
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())
    write_with_hole(path.parent / "w.bin", bytes(4096), BIG, marks)


@pytest.mark.parametrize("write", [in_one_file, beside_the_file])
def test_a_model_may_be_larger_than_2_gb(tmp_path, write):
    marks = {0: 1, (1 << 31) + 1: 2, (1 << 32) + 7: 3, BIG - 1: 4}
    write(tmp_path / "large.onnx", marks)
    model = limber.load(tmp_path / "large.onnx")
    assert model.info()["weight_bytes"] == BIG
    assert model(np.array([5, *marks])).tolist() == [0, 1, 2, 3, 4]
