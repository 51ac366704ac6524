"""Writes the conformance models into a directory, as seeds for the fuzzers.

Usage: seeds.py DIRECTORY. Large models are left out: small seeds mutate better.
Each model has variants that mutations hardly reach: with symbolic dims, with
constants for inputs, and, for operators with several outputs, with only one of
them. TEXTS are models that are unlike all cases.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper, parser
from run import load_cases

LIMIT = 16 << 10
# An unknown field: fuzz_run draws shapes and elements from the end of its
# input, and so has bytes to mutate that are not part of the model.
TAIL = bytes([0x7A, 32]) + bytes(32)


HEAD = '<ir_version: 8, opset_import: ["" : 17%s]>\n'
TEXTS = {
    "function": (HEAD % ', "own" : 1') + """
agraph (float[N, 3] x) => (float[N, 3] y, float[N, 3] z) {
  y = own.twice <n = 1> (x)
  z = own.once (y)
}
<domain: "own", opset_import: ["" : 17]>
once (a) => (b) { b = Relu(a) }
<domain: "own", opset_import: ["" : 17, "own" : 1]>
twice <n> (a) => (b) {
  s = Softmax <axis : int = @n> (a)
  t = own.once (s)
  b = own.once (t)
}""",
    "random": HEAD % "" + """
agraph (float[N, C] x, float[R, 5] r, float[1, C, H, W] i)
  => (float[] a, float[] b, float[] c, float[] d, int32[] e, float[] f) {
  a = RandomNormal <shape = [3, 4], seed = 1.5> ()
  b = RandomUniform <shape = [2], low = 1.0, high = 2.0> ()
  c = RandomNormalLike(x)
  d = RandomUniformLike <dtype = 11> (x)
  e = Multinomial <sample_size = 4> (x)
  f = MaxRoiPool <pooled_shape = [2, 3], spatial_scale = 0.5> (i, r)
}""",
    "layer_norm": HEAD % "" + """
agraph (float[N, 4] x) => (float[N, 4] y)
  <float e = {0.001}, float two = {2},
   float[4] w = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}> {
  m = ReduceMean <axes = [-1]> (x)
  d = Sub(x, m)
  s = Pow(d, two)
  v = ReduceMean <axes = [-1]> (s)
  ve = Add(v, e)
  r = Sqrt(ve)
  n = Div(d, r)
  nw = Mul(n, w)
  y = Add(nw, b)
}""",
    "attention": HEAD % "" + """
agraph (float[B, 2, S, 4] q, float[B, T, 2, 4] k, float[B, 2, T, 4] v,
        float[B, 1, S, T] mask) => (float[B, 2, S, 4] y)
  <float c = {0.5}> {
  kt = Transpose <perm = [0, 2, 3, 1]> (k)
  s = MatMul(q, kt)
  sc = Mul(s, c)
  sm = Add(sc, mask)
  p = Softmax <axis = -1> (sm)
  y = MatMul(p, v)
}""",
    "batch_norm": HEAD % "" + """
agraph (float[N, 1, H, W] x) => (float[N, 2, H, W] y, float[] g)
  <float[2, 1, 1, 1] w = {1, 2}, float[2] p = {1, 2}, float[2] q = {3, 4},
   float[2] m = {5, 6}, float[2] v = {7, 8}, float half = {0.5},
   float one = {1}, float root = {1.41421356}> {
  c = Conv(x, w)
  y = BatchNormalization(c, p, q, m, v)
  d = Div(y, root)
  e = Erf(d)
  f = Add(e, one)
  h = Mul(y, f)
  g = Mul(h, half)
}""",
    "shapes": HEAD % "" + """
agraph (float[N, S, 8] x, int64[K] i) => (float[] y, int64[] z, float[] w)
  <int64[1] two = {2}, int64[1] four = {4}, int64[1] rest = {-1},
   int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
  sh = Shape(x)
  n = Gather(sh, zero)
  s = Gather(sh, one)
  n1 = Unsqueeze(n, axis)
  s1 = Unsqueeze(s, axis)
  to = Concat <axis = 0> (n1, s1, two, four)
  y4 = Reshape(x, to)
  y = Transpose <perm = [0, 2, 1, 3]> (y4)
  z = Range(zero, s, one)
  ex = Concat <axis = 0> (two, to)
  ey = Expand(y4, ex)
  nz = NonZero(ey)
  fl = Reshape(ey, rest)
  w = Gather(fl, i)
}""",
    "old": '<ir_version: 4, opset_import: ["" : 7]>' + """
agraph (float[1, 4] x) => (float[1, 4] y, float[] a, float[] b, float[] c) {
  d = Dropout <ratio = 0.5> (x)
  y = Softmax(d)
  a = Clip <min = 0.0, max = 1.0> (x)
  u = Upsample <mode = "nearest", scales = [1.0, 2.0]> (x)
  b = Squeeze <axes = [0]> (u)
  s = Slice <starts = [0], ends = [2], axes = [1]> (x)
  p = Pad <pads = [0, 1, 0, 1]> (s)
  c, i = TopK <k = 2> (p)
}""",
}


def copy_of(message):
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def with_named_dims(model):
    """Equal dims get equal names, so that other sizes are consistent, too."""
    model = copy_of(model)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value"):
                dim.dim_param = f"d{dim.dim_value}"
    del model.graph.value_info[:]
    return model


def with_one_output(model, kept):
    model = copy_of(model)
    output = copy_of(model.graph.output[kept])
    (node,) = model.graph.node
    names = [name if name == output.name else "" for name in node.output]
    del node.output[:], model.graph.output[:]
    node.output.extend(names)
    model.graph.output.append(output)
    return model


def with_constants(model, values):
    """All inputs but the first become constants: shapes, scales, axes."""
    model = copy_of(model)
    inputs = list(model.graph.input)
    del model.graph.input[1:]
    for info, value in list(zip(inputs, values))[1:]:
        if not isinstance(value, np.ndarray):
            return None
        tensor = numpy_helper.from_array(value, info.name)
        model.graph.initializer.append(tensor)
    return model


def variants(case):
    model = case.model
    yield "", model
    yield "-named", with_named_dims(model)
    for values, _ in case.data_sets[:1]:
        fixed = with_constants(model, values) if len(values) > 1 else None
        if fixed:
            yield "-fixed", fixed
    outputs = len(model.graph.output)
    if len(model.graph.node) == 1 and outputs > 1:
        for i in range(outputs):
            yield f"-only{i}", with_one_output(model, i)


def external_data():
    model = parser.parse_model(HEAD % "" + """
agraph (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
  y = Add(x, w)
}""")
    (tensor,) = model.graph.initializer
    tensor.ClearField("float_data")
    tensor.raw_data = b"bytes, or there is nothing to set apart"
    external_data_helper.set_external_data(tensor, "mutate.c", 16, 16)
    tensor.ClearField("raw_data")
    return model


def all_models():
    yield "external", external_data()
    for name, text in TEXTS.items():
        yield name, parser.parse_model(text)
    for name, case in load_cases("").items():
        for suffix, model in variants(case):
            yield name + suffix, model


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, model in all_models():
        data = model.SerializeToString()
        if len(data) <= LIMIT:
            (directory / f"{name}.onnx").write_bytes(data + TAIL)
            count += 1
    print(f"seeds: {count} models in {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
