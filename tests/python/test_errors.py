"""Errors are exceptions that name the object and the problem."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import add_model, make_model, negate_model

ONES = np.ones((2, 3), np.float32)


def failing(function, *arguments):
    with pytest.raises(limber.Error) as caught:
        function(*arguments)
    return caught.value


def test_missing_input():
    model = limber.load(add_model())
    error = failing(model.run, None, {"a": ONES})
    assert isinstance(error, limber.InvalidArgument)
    assert isinstance(error, ValueError) and error.code == "invalid"
    assert str(error) == "missing input 'b' (float32[n,3])"


def test_unknown_input():
    model = limber.load(add_model())
    error = failing(model.run, None, {"a": ONES, "b": ONES, "y": ONES})
    assert str(error) == \
        "the model has no input 'y'; its inputs are 'a', 'b'"


def test_unknown_output():
    model = limber.load(add_model())
    error = failing(model.run, ["z"], {"a": ONES, "b": ONES})
    assert str(error) == \
        "the model has no output 'z'; its outputs are 'sum', 'twice'"


def test_input_given_twice():
    model = limber.load(add_model())
    with pytest.raises(limber.Error, match="^input 'a' was given twice$"):
        model(ONES, a=ONES)


def test_names_are_not_truncated_at_a_nul():
    model = limber.load(add_model())
    feeds = {"a": ONES, "b": ONES}
    for names, given in ((["sum\0"], feeds), (None, {**feeds, "a\0": ONES})):
        with pytest.raises(ValueError, match="embedded null"):
            model.run(names, given)
    with pytest.raises(ValueError, match="embedded null"):
        limber.load("model.onnx\0")


@pytest.mark.parametrize("limit", [-1, 2**64])
def test_an_impossible_memory_limit(limit):
    with pytest.raises(ValueError, match=f"memory_limit: {limit} is not in"):
        limber.load(add_model(), memory_limit=limit)


def test_surplus_input():
    model = limber.load(add_model())
    assert str(failing(model, ONES, ONES, ONES)) == \
        "input 2 was given by position, but the model has only 2"


def test_wrong_dtype():
    text = str(failing(limber.load(negate_model()), np.ones(3)))
    assert "input 'x'" in text
    assert "expected float32[n], got float64[3]" in text


def test_wrong_rank():
    text = str(failing(limber.load(negate_model()), ONES))
    assert "expected float32[n], got float32[2,3]" in text


def test_wrong_dim():
    text = str(failing(limber.load(add_model()), ONES[:, :2], ONES))
    assert "dim 1 must be 3, not 2" in text


def test_conflicting_dims():
    assert str(failing(limber.load(add_model()), ONES, ONES[:1])) == \
        "`n`: 2 from `a`, 1 from `b`"


def test_feeds_must_be_a_dict_of_names():
    model = limber.load(add_model())
    with pytest.raises(TypeError, match="must be a dict"):
        model.run(None, [ONES, ONES])
    with pytest.raises(TypeError, match="names are str"):
        model.run(None, {"a": ONES, 7: ONES})
    with pytest.raises(TypeError, match="must be a list"):
        model.run("sum", {"a": ONES, "b": ONES})


def test_no_such_file(tmp_path):
    error = failing(limber.load, tmp_path / "none.onnx")
    assert isinstance(error, limber.FileError) and isinstance(error, OSError)
    assert "none.onnx" in str(error)


def test_bytes_that_are_not_a_model():
    assert isinstance(failing(limber.load, b"no model"), limber.InvalidModel)
    assert isinstance(failing(limber.load, b""), limber.InvalidModel)


def test_unknown_operators_are_listed():
    data = make_model([helper.make_node("Wonder", ["x"], ["y"], "w"),
                       helper.make_node("Marvel", ["y"], ["z"], "m")],
                      {"x": (TensorProto.FLOAT, [1])},
                      {"z": (TensorProto.FLOAT, [1])}).SerializeToString()
    error = failing(limber.load, data)
    assert isinstance(error, limber.Unsupported)
    assert isinstance(error, NotImplementedError)
    assert "Wonder" in str(error) and "Marvel" in str(error)


def test_a_session_works_after_a_failed_run():
    model = limber.load(add_model())
    for _ in range(10):
        failing(model, ONES)
        assert model(ONES, ONES)[0][0, 0] == 2


def test_a_memory_limit_is_enforced():
    x = np.ones((64, 64), np.float32)
    from conftest import slow_model
    data = slow_model(8)
    limber.load(data, memory_limit=1 << 20)(x)
    error = failing(limber.load(data, memory_limit=1 << 12), x)
    assert isinstance(error, limber.OutOfMemory)


def test_bad_options_are_rejected():
    with pytest.raises(limber.InvalidArgument, match="threads"):
        limber.load(add_model(), threads=-1)
    with pytest.raises(TypeError):
        limber.load(add_model(), wonder=1)
    with pytest.raises(TypeError):
        limber.load(7)


def test_a_session_that_was_not_opened_raises():
    model = limber.Model.__new__(limber.Model)
    with pytest.raises(RuntimeError, match="not opened"):
        model.run(None, {})


def test_a_wrong_declared_dim_is_a_warning(capfd):
    data = make_model([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)],
                      {"x": (TensorProto.FLOAT, ["n"])},
                      {"y": (TensorProto.FLOAT, [7])}).SerializeToString()
    model = limber.load(data)
    for n in (2, 3):
        assert model(np.ones(n, np.float32)).shape == (2 * n,)
    assert capfd.readouterr().err == \
        "limber: warning: output 'y': dim 0 is declared as 7, but is 4\n"
