"""Decoders that extend past keys and values token by token: where past and
present share a buffer nothing of the past is copied, and results are those of
ONNX Runtime, whether buffers are shared or not."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts")]

import c_api
import decode
import decoder_graph

CONFIG = decoder_graph.Config(layers=2, hidden=128, heads=4, inner=256,
                              vocabulary=100, positions=128)
SIZES = {"layers": CONFIG.layers, "heads": CONFIG.heads,
         "size": CONFIG.head_size, "vocabulary": CONFIG.vocabulary}
CAPACITY = CONFIG.positions + 16
PAST = decode.random_past(64, 1, CONFIG.layers, CONFIG.heads,
                          CONFIG.head_size)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    found.write_bytes(decoder_graph.build(CONFIG).SerializeToString())
    return found


@pytest.fixture(scope="module")
def library():
    return c_api.Library(ROOT / "build" / "liblimber.so")


@pytest.fixture(params=[False, True], ids=["default", "deterministic"])
def session(request, library, path):
    found = library.open(path, threads=2, deterministic=request.param)
    yield found
    found.close()


@pytest.fixture(scope="module")
def expected(path):
    """Logits of tokens 64 to 99, and the keys and values after them, from ONNX
    Runtime."""
    decoder = decode.OnnxRuntimeDecoder(
        onnxruntime.InferenceSession(str(path)), CAPACITY, **SIZES)
    decoder.start(PAST)
    logits = [decoder.step(n % CONFIG.vocabulary).copy()
              for n in range(64, 100)]
    return logits, decoder.present()


def check(decoder, expected, settle_at=()):
    logits, present = expected
    decoder.start(PAST)
    for n, want in enumerate(logits, 64):
        got = decoder.step(n % CONFIG.vocabulary)
        np.testing.assert_allclose(got, want, 1e-3, 1e-4)
        if n in settle_at:
            decoder.session.settle(120)
    for got, want in zip(decoder.present(), present):
        np.testing.assert_allclose(got, want, 1e-3, 1e-4)


def test_results_are_those_of_onnxruntime_before_and_after_compiling(
        session, expected):
    decoder = decode.LimberDecoder(session, CAPACITY, **SIZES)
    check(decoder, expected, settle_at=(70, 80))
    check(decoder, expected)


def test_nothing_of_the_past_is_copied_in_a_shared_buffer(session):
    decoder = decode.LimberDecoder(session, CAPACITY, **SIZES)
    decoder.start(PAST)
    for n in range(64, 100):
        assert decoder.past_copied(n) == 0
    steps = decoder.profile(1)
    in_place = [s for s in steps if s["reason"] == "in_place"]
    assert len(in_place) == 2 * CONFIG.layers
    assert all(s["op"] == "Concat" and s["bytes"] == 0 for s in in_place)
    # Keys are read in place too: what is copied is the new token's.
    new = 4 * CONFIG.hidden
    copies = [s["bytes"] for s in steps if s["reason"] == "copied"]
    assert copies == len(copies) * [2 * new]


def test_nothing_outside_the_window_is_written(session):
    decoder = decode.LimberDecoder(session, CAPACITY, **SIZES)
    decoder.start(PAST)
    for buffer in decoder.buffers[0]:
        buffer[:, :, 64:] = 777
    before = [b.copy() for b in decoder.buffers[0]]
    decoder.step(1)
    for old, new in zip(before, decoder.buffers[0]):
        assert (new[:, :, 64] != 777).all()
        new[:, :, 64] = 777
        np.testing.assert_array_equal(new, old)


def test_two_buffers_are_right_and_copy_the_past(session, expected):
    decoder = decode.LimberDecoder(session, CAPACITY, shared=False, **SIZES)
    check(decoder, expected)
    past = decoder.present()[0].nbytes
    assert decoder.past_copied(1) >= 2 * CONFIG.layers * past


def test_dense_arrays_are_right(session, expected):
    """As a program runs the model that knows nothing of windows."""
    past, names = PAST, decode.cache_names(CONFIG.layers, "past_key_values")
    outs = decode.cache_names(CONFIG.layers, "present")
    of = c_api.Tensor.of
    for n, want in enumerate(expected[0], 64):
        ids, position = np.array([[n % CONFIG.vocabulary]]), np.array([[n]])
        mask = np.ones((1, n + 1), np.int64)
        shape = (1, CONFIG.heads, n + 1, CONFIG.head_size)
        present = [np.empty(shape, np.float32) for _ in past]
        logits = np.empty((1, 1, CONFIG.vocabulary), np.float32)
        session.run([of("input_ids", ids), of("position_ids", position),
                     of("attention_mask", mask), *map(of, names, past)],
                    [of("logits", logits), *map(of, outs, present)])
        np.testing.assert_allclose(logits, want, 1e-3, 1e-4)
        past = present


def test_masked_tokens_and_several_queries_are_right(session, path):
    """Padding on the left, and a prompt of several tokens after a past."""
    rng = np.random.default_rng(1)
    feeds = {"input_ids": rng.integers(0, CONFIG.vocabulary, (2, 5)),
             "position_ids": np.tile(np.arange(20, 25), (2, 1)),
             "attention_mask": np.ones((2, 25), np.int64)}
    feeds["attention_mask"][1, :7] = 0
    for name in decode.cache_names(CONFIG.layers, "past_key_values"):
        feeds[name] = rng.standard_normal(
            (2, CONFIG.heads, 20, CONFIG.head_size), np.float32)
    [want] = onnxruntime.InferenceSession(str(path)).run(["logits"], feeds)
    got = np.empty_like(want)
    of = c_api.Tensor.of
    session.run([of(n, x) for n, x in feeds.items()], [of("logits", got)])
    np.testing.assert_allclose(got, want, 1e-3, 1e-4)


def test_more_tokens_than_the_model_has_positions_are_an_error(session):
    decoder = decode.LimberDecoder(session, CAPACITY, **SIZES)
    decoder.start([np.tile(x, (1, 1, 2, 1)) for x in PAST])  # 128 tokens
    with pytest.raises(c_api.Error, match="128 against 129"):
        decoder.step(1)
