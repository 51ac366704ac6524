"""Options of the model tests, and one session per model and engine.

--shapes N (or LIMBER_TEST_SHAPES): random shapes per model. --seed N: their
seed. --kernels on (the default): each run is repeated on kernels compiled by
build/limber-jit; off: only built-in and reference kernels run, and tests marked
needs_kernels are deselected.
"""

import functools
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import limber
import reference
import shapes

MODELS = shapes.load()


def pytest_addoption(parser):
    count = int(os.environ.get("LIMBER_TEST_SHAPES", 10))
    parser.addoption("--shapes", type=int, default=count)
    parser.addoption("--seed", type=int, default=1)
    parser.addoption("--kernels", choices=["on", "off"], default="on")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "needs_kernels: means nothing with --kernels off")
    on = config.getoption("kernels") == "on"
    os.environ["LIMBER_JIT"] = "process" if on else "off"
    os.environ.setdefault("LIMBER_CACHE_DIR", "off")
    os.environ["LIMBER_COMPILE"] = "settle"  # compiles on settle
    os.environ.setdefault("LIMBER_JIT_PATH",
                          str(shapes.ROOT / "build" / "limber-jit"))


def pytest_collection_modifyitems(config, items):
    """Deselects tests that would have nothing to check."""
    if config.getoption("kernels") == "on":
        return
    left_out = [item for item in items if "needs_kernels" in item.keywords]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_generate_tests(metafunc):
    """`model` runs a test for each model; `draw` for each random shape."""
    if "draw" in metafunc.fixturenames:
        count = metafunc.config.getoption("shapes")
        seed = metafunc.config.getoption("seed")
        draws = [(model, dims, seed + i) for model in MODELS.values()
                 for i, dims in enumerate(model.draws(count, seed))]
        metafunc.parametrize("draw", draws, ids=draw_id)
    elif "model" in metafunc.fixturenames:
        metafunc.parametrize("model", MODELS.values(), ids=lambda m: m.name)


def draw_id(draw):
    model, dims, seed = draw
    text = ",".join(f"{symbol}={n}" for symbol, n in dims.items())
    return f"{model.name}:{text}:{seed}"


@functools.cache
def engines(path):
    """(Limber's session, the reference's session) of one model."""
    return limber.InferenceSession(path), reference.session(path)


def run_settled(session, names, feeds):
    """The results of a run before kernels are compiled, and of one on compiled
    kernels, unless they are off."""
    yield session.run(names, feeds)
    if os.environ["LIMBER_JIT"] == "process":
        session.settle(600)
        stats = session.stats()
        assert stats.kernels_requested > 0
        assert stats.kernels_pending == stats.kernels_failed == 0
        yield session.run(names, feeds)


@pytest.fixture
def run_both():
    """Runs a model by name on both engines; outputs must agree. Returns
    Limber's, by name."""

    def run(name, feeds):
        ours, theirs = engines(MODELS[name].path)
        names = [output.name for output in theirs.get_outputs()]
        want = theirs.run(None, feeds)
        for got in run_settled(ours, None, feeds):
            assert len(got) == len(want)
            for output, a, b in zip(names, got, want):
                reference.assert_close(output, a, b)
        return dict(zip(names, got))

    return run
