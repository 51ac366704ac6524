"""Invalid models and wrong inputs: each causes an error that names the
problem."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import limber

F = TensorProto.FLOAT


def info(name, dims, dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def model(nodes, inputs, outputs, **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs,
                              initializer=more.pop("initializer", []))
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17),
                              helper.make_opsetid("local", 1)], **more)
    return made.SerializeToString()


def rejected(data):
    with pytest.raises(limber.Error) as e:
        limber.load(data)
    return str(e.value)


def test_empty():
    assert rejected(b"") == "the model is empty (0 bytes)"


def test_not_a_model():
    assert "model" in rejected(b"hello, world")


def test_cycle():
    m = model([helper.make_node("Add", ["x", "b"], ["a"], name="first"),
               helper.make_node("Add", ["x", "a"], ["b"], name="second")],
              [info("x", [1])], [info("b", [1])])
    assert rejected(m) == "the graph has a cycle through node 'first', 'second'"


def test_undefined_input():
    m = model([helper.make_node("Add", ["x", "y"], ["z"], name="add")],
              [info("x", [1])], [info("z", [1])])
    assert rejected(m) == "node 'add' (Add) reads 'y', which nothing defines"


def test_duplicate_names():
    m = model([helper.make_node("Abs", ["x"], ["y"], name="one"),
               helper.make_node("Neg", ["x"], ["y"], name="two")],
              [info("x", [1])], [info("y", [1])])
    assert rejected(m) == ("value 'y' is defined twice: by node 'one' (Abs) "
                          "and by node 'two' (Neg)")


def test_unknown_operators_are_all_listed():
    m = model([helper.make_node("Foo", ["x"], ["a"], name="n1"),
               helper.make_node("Foo", ["a"], ["b"], name="n2"),
               helper.make_node("Bar", ["b"], ["y"], name="n3",
                                domain="local")],
              [info("x", [1])], [info("y", [1])])
    assert rejected(m) == (
        "2 operators are not supported: Foo (opset 17) \u00d72, first at node "
        "'n1'; local.Bar (opset 1) \u00d71, first at node 'n3'")


def test_recursive_function():
    call = helper.make_node("F", ["x"], ["y"], domain="local", name="inner")
    f = helper.make_function("local", "F", ["x"], ["y"], [call],
                             [helper.make_opsetid("local", 1)])
    m = model([helper.make_node("F", ["x"], ["y"], domain="local",
                                name="outer")],
              [info("x", [1])], [info("y", [1])], functions=[f])
    assert rejected(m) == "function local.F calls itself: local.F, local.F"


def test_overflowing_dims():
    m = model([helper.make_node("Expand", ["x", "s"], ["y"], name="e")],
              [info("x", [1])], [info("y", None)],
              initializer=[helper.make_tensor(
                  "s", TensorProto.INT64, [2], [2**40, 2**40])])
    with pytest.raises(limber.Error) as e:
        limber.load(m).run(None, {"x": np.ones(1, np.float32)})
    assert "Expand 'e'" in str(e.value)


# -- wrong inputs -------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    return limber.load(model(
        [helper.make_node("Add", ["input_ids", "attention_mask"], ["y"])],
        [info("input_ids", ["batch", 3]), info("attention_mask", ["batch", 3])],
        [info("y", ["batch", 3])]))


def f32(*dims):
    return np.ones(dims, np.float32)


@pytest.mark.parametrize("feeds, message", [
    ({"input_ids": f32(4, 3), "attention_mask": f32(3, 3)},
     "`batch`: 4 from `input_ids`, 3 from `attention_mask`"),
    ({"input_ids": np.ones((4, 3), np.int64), "attention_mask": f32(4, 3)},
     "input 'input_ids': wrong type: expected float32[batch,3], got "
     "int64[4,3]"),
    ({"input_ids": f32(4), "attention_mask": f32(4, 3)},
     "input 'input_ids': wrong rank: expected float32[batch,3], got "
     "float32[4]"),
    ({"input_ids": f32(4, 2), "attention_mask": f32(4, 2)},
     "input 'input_ids': dim 1 must be 3, not 2: expected float32[batch,3], "
     "got float32[4,2]"),
    ({"input_ids": f32(4, 3)},
     "missing input 'attention_mask' (float32[batch,3])"),
    ({"input_ids": f32(4, 3), "attention_mask": f32(4, 3), "z": f32(1)},
     "the model has no input 'z'; its inputs are 'input_ids', "
     "'attention_mask'"),
])
def test_inputs(pair, feeds, message):
    with pytest.raises(limber.Error) as e:
        pair.run(None, feeds)
    assert str(e.value) == message


def test_unknown_output(pair):
    with pytest.raises(limber.Error) as e:
        pair.run(["q"], {"input_ids": f32(1, 3), "attention_mask": f32(1, 3)})
    assert str(e.value) == "the model has no output 'q'; its outputs are 'y'"


def test_shapes_that_do_not_broadcast():
    m = limber.load(model(
        [helper.make_node("Add", ["a", "b"], ["y"], name="add1")],
        [info("a", ["n", 3]), info("b", ["m", 3])], [info("y", None)]))
    with pytest.raises(limber.Error) as e:
        m.run(None, {"a": f32(2, 3), "b": f32(4, 3)})
    assert str(e.value) == ("Add 'add1': shapes [2,3] and [4,3] do not "
                            "broadcast (dim 0: 2 against 4)")


@pytest.mark.parametrize("op, message", [
    ("Concat", "Concat 'join' (channels last): input 1 is [1,7,6,8]; dim 1 "
     "must be 5 as in the inputs before it"),
    ("Add", "Add 'join' (channels last): shapes [1,5,6,8] and [1,7,6,8] do not "
     "broadcast (dim 1: 5 against 7)"),
])
def test_nodes_converted_to_channels_last_keep_their_names(op, message):
    attributes = {"axis": 1} if op == "Concat" else {}
    weights = helper.make_tensor("w", F, [8, 3, 1, 1], [1.0] * 24)
    m = limber.load(model(
        [helper.make_node("Conv", ["x", "w"], ["a"]),
         helper.make_node("Conv", ["y", "w"], ["b"]),
         helper.make_node(op, ["a", "b"], ["c"], name="join", **attributes),
         helper.make_node("Relu", ["c"], ["z"])],
        [info("x", [1, 3, "h", "w"]), info("y", [1, 3, "p", "q"])],
        [info("z", None)], initializer=[weights]))
    with pytest.raises(limber.Error) as e:
        m.run(None, {"x": f32(1, 3, 5, 6), "y": f32(1, 3, 7, 6)})
    assert str(e.value) == message


def test_sequence_lengths_beyond_the_time_steps():
    def weights(name, *dims):
        return helper.make_tensor(name, F, dims, [0.5] * int(np.prod(dims)))
    m = limber.load(model(
        [helper.make_node("GRU", ["x", "w", "r", "", "n"], ["y"], name="gru1",
                          hidden_size=2)],
        [info("x", ["t", "b", 3]), info("n", ["b"], TensorProto.INT32)],
        [info("y", None)],
        initializer=[weights("w", 1, 6, 3), weights("r", 1, 6, 2)]))
    with pytest.raises(limber.Error) as e:
        m.run(None, {"x": f32(4, 2, 3), "n": np.array([4, 9], np.int32)})
    assert str(e.value) == "node 'gru1': sequence_lens[1] is 9, but there are 4 time steps"


def test_zero_sized_tensors_run(pair):
    y, = pair.run(None, {"input_ids": f32(0, 3), "attention_mask": f32(0, 3)})
    assert y.shape == (0, 3)


def test_an_infinite_loop_stops_at_loop_limit():
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]),
         helper.make_node("Add", ["v", "v"], ["v2"])], "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL),
         info("v", [1])],
        [info("c2", [], TensorProto.BOOL), info("v2", [1])])
    options = limber.SessionOptions()
    options.loop_limit = 100
    m = limber.InferenceSession(model(
        [helper.make_node("Loop", ["", "", "x"], ["y"], name="forever",
                          body=body)],
        [info("x", [1])], [info("y", [1])]), options)
    with pytest.raises(limber.Error) as e:
        m.run(None, {"x": f32(1)})
    assert str(e.value) == ("Loop 'forever': iteration 100: loop_limit (100, "
                            "nested loops included) reached; raise it in the "
                            "session options")


def test_wrong_declared_output_is_a_warning(capfd):
    m = limber.load(model([helper.make_node("Abs", ["x"], ["y"])],
                          [info("x", [2, 3])], [info("y", [2, 4])]))
    y, = m.run(None, {"x": f32(2, 3)})
    assert y.shape == (2, 3)
    assert "output 'y'" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["?", "-1", "None", ""])
def test_nameless_dims_are_separate_unknowns(name):
    m = limber.load(model([helper.make_node("MatMul", ["a", "b"], ["y"])],
                          [info("a", [name, 2]), info("b", [2, name])],
                          [info("y", None)]))
    y, = m.run(None, {"a": f32(3, 2), "b": f32(2, 5)})
    assert y.shape == (3, 5)


# -- external data ------------------------------------------------------------


def with_external(directory, location, length=None, size=16):
    weight = helper.make_tensor("w", F, [4], np.ones(4, np.float32).tobytes(),
                                raw=True)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", length)):
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    path = directory / "model.onnx"
    path.write_bytes(model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [4])],
        [info("y", [4])], initializer=[weight]))
    (directory / "w.bin").write_bytes(np.ones(size // 4, np.float32).tobytes())
    return str(path)


def test_external_data_is_read(tmp_path):
    m = limber.load(with_external(tmp_path, "w.bin"))
    assert m.run(None, {"x": f32(4)})[0].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "link.bin",
                                      "sub/../../w.bin"])
def test_external_data_must_be_in_the_models_directory(tmp_path, location):
    directory = tmp_path / "model"
    (directory / "sub").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (directory / "link.bin").symlink_to(tmp_path / "w.bin")
    path = with_external(directory, location)
    message = rejected(path)
    assert "'w'" in message and location in message


def test_external_data_that_is_too_short(tmp_path):
    message = rejected(with_external(tmp_path, "w.bin", size=12))
    assert "'w'" in message and "too short" in message
