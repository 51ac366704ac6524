"""With LIMBER_FUSION=live, runs leave the padding of a batch out, and results
are those of ONNX Runtime and of the original graph.

Encoders are written as exporters write them (scripts/encoder_graphs.py), with
seeded random weights, for every form of mask.
"""

import functools
import sys

import numpy as np
import pytest

import limber
import reference
import shapes

sys.path.insert(0, str(shapes.ROOT / "scripts"))

import encoder_graphs  # noqa: E402

TYPES = {"int64": np.int64, "int32": np.int32, "bool": bool,
         "float": np.float32}
SMALL = {"count": 2, "hidden": 64, "heads": 2, "inner": 96}
FORMS = {
    "bert": lambda mask: encoder_graphs.bert(**SMALL, mask=mask),
    "bert-10000": lambda mask: encoder_graphs.bert(
        **SMALL, mask=mask, lowest=-10000.0, states=False),
    "distilbert": lambda mask: encoder_graphs.distilbert(**SMALL, mask=mask),
    "distilbert-inf": lambda mask: encoder_graphs.distilbert(
        **SMALL, mask=mask, lowest=-np.inf, normalise=False),
    "roberta": lambda mask: encoder_graphs.roberta(**SMALL, mask=mask),
}


@functools.cache
def engines(form, mask):
    """Sessions of Limber, live and static, and of the reference."""
    model = FORMS[form](mask).SerializeToString()
    live, static = open_as("live", model), open_as("static", model)
    return live, static, reference.session(model)


def open_as(fusion, model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBER_FUSION", fusion)
        patch.setenv("LIMBER_FUSION_TRIALS", "off")
        return limber.InferenceSession(model)


def right_padded(rng, batch, seq):
    lengths = rng.integers(1, seq + 1, [batch, 1])
    lengths[0] = 1
    return np.arange(seq) < lengths


def arbitrary(rng, batch, seq):
    """Holes anywhere but at the first position, which some models select."""
    mask = rng.random([batch, seq]) < 0.5
    mask[:, 0] = True
    return mask


def left_padded(rng, batch, seq):
    return right_padded(rng, batch, seq)[:, ::-1]


def draw(session, mask, kind, rng):
    ids = rng.integers(2, 900, mask.shape)
    feeds = {"input_ids": np.where(mask, ids, 1),
             "attention_mask": mask.astype(kind),
             "token_type_ids": rng.integers(0, 2, mask.shape)}
    return {i.name: feeds[i.name] for i in session.get_inputs()}


def check(form, kind, mask, rng, left_out=1):
    """Runs all three; `left_out`: how many runs must leave padding out."""
    live, static, theirs = engines(form, kind)
    feeds = draw(theirs, mask, TYPES[kind], rng)
    name = theirs.get_outputs()[-1].name
    before = live.stats().ragged_runs
    [want] = theirs.run([name], feeds)
    [plain] = static.run([name], feeds)
    [got] = live.run([name], feeds)
    reference.assert_close(name, got, want)
    reference.assert_close(name, got, plain)
    assert live.stats().ragged_runs - before == left_out
    assert static.stats().ragged_runs == 0
    return live, name, feeds, want


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_mask_is_left_out(form, kind):
    rng = np.random.default_rng(1)
    for pad in (right_padded, arbitrary):
        for batch, seq in ((2, 5), (7, 19), (3, 130)):
            check(form, kind, pad(rng, batch, seq), rng)


@pytest.mark.needs_kernels
@pytest.mark.parametrize("form", FORMS)
def test_compiled_kernels_agree(form):
    rng = np.random.default_rng(2)
    live, name, feeds, want = check(form, "int64", right_padded(rng, 6, 23), rng)
    live.settle(600)
    reference.assert_close(name, live.run([name], feeds)[0], want)
    for _ in range(10):
        batch, seq = rng.integers(2, 12), rng.integers(2, 140)
        check(form, "int64", right_padded(rng, batch, seq), rng)


@pytest.mark.parametrize("form", FORMS)
def test_explanations_are_of_the_graph_that_ran(form):
    rng = np.random.default_rng(6)
    live, name, feeds, _ = check(form, "int64", right_padded(rng, 6, 23), rng)
    nodes = live.nodes([name], feeds)
    assert "RaggedAttention" in {node["op"] for node in nodes}
    steps = live.profile([name], feeds)
    for node in nodes:
        if node["disposition"] in ("launched", "called"):
            assert node["step"] is not None and node["step"] < len(steps), node
    assert any(node["skipped"] and node["proof"] for node in nodes)


@pytest.mark.parametrize("form", ["distilbert", "distilbert-inf"])
def test_left_padding_is_left_out_of_means(form):
    rng = np.random.default_rng(3)
    check(form, "int64", left_padded(rng, 5, 17), rng)


@pytest.mark.parametrize("form", ["bert", "roberta"])
def test_first_tokens_that_are_padding_are_computed(form):
    """The model selects the row of position 0, whether it is a token or not."""
    rng = np.random.default_rng(4)
    check(form, "int64", left_padded(rng, 5, 17), rng, left_out=0)


@pytest.mark.parametrize("form, left_out", [
    ("bert", 0), ("bert-10000", 0), ("distilbert", 1)])
def test_a_sequence_without_tokens(form, left_out):
    """Its mean is 0; its first row is computed as the model is written."""
    rng = np.random.default_rng(5)
    mask = right_padded(rng, 4, 11)
    mask[2] = False
    check(form, "int64", mask, rng, left_out)
    mask[:] = False
    check(form, "int64", mask, rng, left_out=0)


def test_inputs_may_be_strided():
    rng = np.random.default_rng(12)
    live, _, theirs = engines("distilbert", "int64")
    feeds = draw(theirs, right_padded(rng, 60, 100), np.int64, rng)
    strided = {name: np.repeat(x, 2, 1)[:, ::2] for name, x in feeds.items()}
    before = live.stats().ragged_runs
    for _ in range(2):
        reference.assert_close("sentence_embedding", live.run(None, strided)[0],
                               theirs.run(None, feeds)[0])
    assert live.stats().ragged_runs == before + 2


def test_full_masks_run_as_they_are_written():
    rng = np.random.default_rng(6)
    check("bert", "int64", np.ones([4, 11], bool), rng, left_out=0)


def test_other_numbers_in_a_mask_run_as_they_are_written():
    rng = np.random.default_rng(7)
    live, _, theirs = engines("bert-10000", "float")
    feeds = draw(theirs, right_padded(rng, 4, 11), np.float32, rng)
    feeds["attention_mask"] *= 0.5
    before = live.stats().ragged_runs
    for got, want in zip(live.run(None, feeds), theirs.run(None, feeds)):
        reference.assert_close("pooler_output", got, want)
    assert live.stats().ragged_runs == before


def test_a_result_with_padding_is_computed_if_it_is_wanted():
    rng = np.random.default_rng(8)
    live, _, theirs = engines("bert", "int64")
    feeds = draw(theirs, right_padded(rng, 4, 11), np.int64, rng)
    before = live.stats().ragged_runs
    for got, want in zip(live.run(None, feeds), theirs.run(None, feeds)):
        reference.assert_close("output", got, want)
    assert live.stats().ragged_runs == before


def test_large_batches_run_in_groups():
    """Each thread runs groups of sequences, each with a plan of its own."""
    rng = np.random.default_rng(11)
    live, *_ = engines("distilbert", "int64")
    for _ in range(4):
        plans = live.stats().plans_built
        check("distilbert", "int64", right_padded(rng, 120, 90), rng)
    assert live.stats().plans_built - plans > 1
    check("bert", "int64", arbitrary(rng, 120, 90), rng)
    check("bert", "int64", arbitrary(rng, 130, 80), rng)


def test_deterministic_sessions_compute_padding(monkeypatch):
    monkeypatch.setenv("LIMBER_FUSION", "live")
    monkeypatch.setenv("LIMBER_FUSION_TRIALS", "off")
    model = FORMS["distilbert"]("int64").SerializeToString()
    session = limber.load(model, deterministic=True)
    theirs = engines("distilbert", "int64")[-1]
    rng = np.random.default_rng(9)
    session.run(None, draw(theirs, right_padded(rng, 4, 11), np.int64, rng))
    assert session.stats().ragged_runs == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_padding_of_nan_and_infinity_does_not_reach_results(value):
    """The original multiplies it by 0, which gives NaN."""
    model = encoder_graphs.embedded(**SMALL).SerializeToString()
    live, theirs = open_as("live", model), reference.session(model)
    rng = np.random.default_rng(10)
    mask = right_padded(rng, 4, 11)
    x = rng.standard_normal([4, 11, SMALL["hidden"]]).astype(np.float32)
    feeds = {"inputs_embeds": np.where(mask[..., None], x, 0),
             "attention_mask": mask.astype(np.int64)}
    [want] = theirs.run(None, feeds)
    feeds["inputs_embeds"] = np.where(mask[..., None], x, np.float32(value))
    [plain] = theirs.run(None, feeds)
    [got] = live.run(None, feeds)
    reference.assert_close("sentence_embedding", got, want)
    assert np.isnan(plain).any()
    assert live.stats().ragged_runs == 1
