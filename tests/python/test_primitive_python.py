"""limber.Primitive: operators without a model, from Python."""

import numpy as np
import pytest

import limber
from limber import Operand, Primitive

RNG = np.random.default_rng(7)


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_matmul_with_runtime_rows_and_post_operations(rows):
    weights, bias, x = floats(33, 17), floats(17), floats(rows, 33)
    matmul = Primitive("matmul", [("float32", (None, 33)), weights],
                       post=["relu", ("add", bias), ("clip", -1, 2)])
    close(matmul(x), np.clip(np.maximum(x @ weights, 0) + bias, -1, 2))


def test_transposed_operands():
    a, b = floats(5, 3), floats(4, 5)
    p = Primitive("matmul", [("float32", (5, 3)), ("float32", (4, 5))],
                  transpose="ab")
    close(p(a, b), a.T @ b.T)


def test_sum_adds_an_operand_of_the_result():
    weights, x, y = floats(8, 4), floats(3, 8), floats(3, 4)
    p = Primitive("matmul", [("float32", (None, 8)), weights],
                  post=[("sum", 0.5)])
    close(p(x, y), x @ weights + 0.5 * y)


def test_a_channels_last_convolution_has_onnx_dims():
    weights, x = floats(8, 3, 3, 3), floats(2, 3, 6, 5)
    plain = Primitive("convolution", [("float32", (2, 3, 6, 5)), weights],
                      pads=(1, 1, 1, 1))
    last = Primitive("convolution", [
        Operand("float32", (2, 3, 6, 5), "channels_last"), weights],
        pads=(1, 1, 1, 1))
    want = plain(x)
    assert want.shape == (2, 8, 6, 5)
    assert not plain.channels_last
    got = last(x)
    assert last.channels_last and got.shape == (2, 8, 6, 5)
    assert got.strides[1] == 4  # channels are adjacent
    close(got, want)
    stored = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    close(last(stored.transpose(0, 3, 1, 2)), want)


def test_fields_of_several_kinds():
    x = floats(2, 3, 4)
    close(Primitive("softmax", [("float32", (2, 3, 4))], axis=1)(x),
          np.exp(x) / np.exp(x).sum(1, keepdims=True))
    close(Primitive("reduction", [("float32", (2, None, 4))],
                    alg="reduce_mean", axes=[1], keep_dims=1)(x),
          x.mean(1, keepdims=True))
    close(Primitive("reorder", [("float32", (2, 3, 4))], axes=[2, 0, 1])(x),
          x.transpose(2, 0, 1))
    assert Primitive("reorder", [("float32", (2, 3, 4))],
                     out_dtype="int32")(x).dtype == np.int32
    close(Primitive("eltwise", [("float32", (2, 3, 4))], alg="linear",
                    alpha=2, beta=1)(x), 2 * x + 1)


def test_several_outputs():
    lstm = Primitive("recurrent", [
        ("float32", (None, 1, 3)), floats(1, 8, 3), floats(1, 8, 2)],
        alg="lstm")
    outputs = lstm(floats(5, 1, 3))
    assert [y.shape for y in outputs] == [(5, 1, 1, 2), (1, 1, 2), (1, 1, 2)]
    close(outputs[0][-1, 0], outputs[1][0])


def test_reference_and_deterministic_agree():
    x, weights = floats(6, 20), floats(20, 9)
    operands = [("float32", (None, 20)), weights]
    close(Primitive("matmul", operands)(x),
          Primitive("matmul", operands, reference=True)(x))
    p = Primitive("matmul", operands, deterministic=True)
    before = p(x)
    p.wait(60)
    assert np.array_equal(p(x), before)


def test_query_describes_the_implementation():
    p = Primitive("matmul", [("float32", (None, 20)), floats(20, 9)],
                  prefer_reusable_kernels=True)
    info = p.query(floats(3, 20))
    assert info.n_inputs == 1 and info.n_outputs == 1 and info.reusable
    assert info.prefer_reusable and info.prefer_reusable_from == "attribute"
    assert info.key.startswith("matmul")
    assert info.implementation and info.steps >= 1
    with pytest.raises(limber.InvalidArgument, match="runtime dims"):
        p.query()


def test_a_blob_recreates_the_primitive():
    arguments = ("softmax", [("float32", (7, 33))])
    p = Primitive(*arguments)
    blob = p.cache_blob(120)
    assert len(p.cache_id()) == 32
    again = Primitive(*arguments, blob=blob)
    x = floats(7, 33)
    close(again(x), p(x))
    with pytest.raises(limber.InvalidArgument):
        Primitive(*arguments, blob=blob[:-9] + b"corrupted")


@pytest.mark.parametrize("arguments,fields,text", [
    (("wonder", []), {}, "no kind of primitive 'wonder'"),
    (("eltwise", [("float32", (3,))]), {"alg": "wonder"}, "no operator"),
    (("matmul", [("float3", (3,))]), {}, "float3"),
    (("softmax", [("float32", (3,), "lost")]), {}, "layout must be one of"),
    (("softmax", [("float32", (3,))]), {"color": 1}, "no field 'color'"),
    (("softmax", [("float32", (3,))]), {"groups": 2}, "does not read it"),
    (("softmax", [("float32", (3,))]), {"pads": [1] * 9}, "at most 6"),
    (("softmax", [("float32", (3,))]), {"axis": 1 << 40}, "too large"),
    (("concat", [("float32", (3,))] * 9), {}, "at most 8 operands"),
    (("matmul", [("float32", (3, 3)), ("float32", (4, 4))]), {}, "matmul"),
])
def test_wrong_descriptors_are_rejected(arguments, fields, text):
    with pytest.raises((ValueError, TypeError), match=text):
        Primitive(*arguments, **fields)


def test_wrong_inputs_are_rejected():
    p = Primitive("softmax", [("float32", (3, None))])
    with pytest.raises(limber.InvalidArgument):
        p(floats(4, 5))
    with pytest.raises(limber.InvalidArgument):
        p(floats(3, 5).astype(np.float64))
    with pytest.raises(limber.InvalidArgument):
        p()
    assert p(floats(3, 5)).shape == (3, 5)
