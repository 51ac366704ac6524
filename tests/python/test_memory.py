"""The cache of compiled kernels: one byte budget, reported and enforced; and
reusable kernels where they are preferred.

Each program runs in its own process, which prints JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make_model
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
LIMBER = ROOT / "build" / "limber"

PROGRAM = r"""
import json
import sys
import numpy as np
import onnxruntime
import limber

path = sys.argv[1]
theirs = onnxruntime.InferenceSession(path)
model = limber.load(path, **eval(sys.argv[3]))


def feeds(batch, seq):
    return {n: np.ones((batch, seq), np.int64) for n in
            ("input_ids", "attention_mask", "token_type_ids")}


def check(batch, seq):
    got = model.run(None, feeds(batch, seq))
    want = theirs.run(None, feeds(batch, seq))
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, 1e-3, 1e-4)


out = {}
exec(sys.argv[2])
print(json.dumps(out))
"""


def run(code, options="{}", jit="process", **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM,
         str(ROOT / "build" / "models" / "minilm.onnx"), code, options],
        capture_output=True, text=True, timeout=1200,
        env=dict(os.environ, LIMBER_JIT=jit, LIMBER_COMPILE="settle",
                 **environment))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


SETTLE = """
check(2, 7)
model.settle(600)
check(2, 7)
out = limber.cache_stats()
"""


def test_any_budget_is_enforced():
    plenty, _ = run(SETTLE)
    kernels = plenty["kernels"]
    assert kernels["entries"] == kernels["insertions"] > 4
    assert kernels["bytes"] == plenty["bytes"] <= plenty["capacity"] == 64 << 20
    assert kernels["evictions"] == plenty["retired_bytes"] == 0
    assert plenty["worker"]["hits"] == kernels["insertions"]
    assert plenty["worker"]["build_us"] > 0
    half = plenty["bytes"] // 2
    some, _ = run(SETTLE, LIMBER_CACHE_CAPACITY=str(half))
    assert some["capacity"] == half and 0 < some["bytes"] <= half
    assert some["kernels"]["evictions"] > 0
    none, _ = run(SETTLE, LIMBER_CACHE_CAPACITY="0")
    assert none["kernels"]["insertions"] == none["bytes"] == 0
    assert none["worker"]["hits"] == 0


def test_shrinking_evicts_just_enough_and_kernels_are_compiled_again():
    got, _ = run("""
check(2, 7)
model.settle(600)
first = limber.cache_stats()
limber.set_cache_capacity(first["bytes"] - 1)
out["capacity"] = limber.get_cache_capacity()
out["shrunk"] = limber.cache_stats()["kernels"]
check(2, 7)
limber.set_cache_capacity(1 << 20)
model.settle(600)
out["again"] = limber.cache_stats()["kernels"]
out["first"] = first["kernels"]
check(2, 7)
""")
    assert got["capacity"] == got["first"]["bytes"] - 1
    assert got["shrunk"]["evictions"] == 1
    assert got["again"]["entries"] == got["first"]["entries"]
    assert got["again"]["insertions"] == got["first"]["insertions"] + 1


def test_a_bad_capacity_is_one_warning():
    got, said = run(SETTLE, jit="off", LIMBER_CACHE_CAPACITY="much")
    assert said.count("LIMBER_CACHE_CAPACITY=much is ignored") == 1
    assert got["capacity"] == 64 << 20


def test_executable_memory_stays_bounded_under_churn():
    got, _ = run("""
def mapped():
    return sum(int(b, 16) - int(a, 16) for a, b in
               (line.split()[0].split("-") for line in open("/proc/self/maps")
                if "limber-code" in line and " r-x" in line))


limber.set_cache_capacity(20000)
out["mapped"], out["bytes"] = [], []
for seq in (3, 8, 17, 33, 48):
    check(1, seq)
    model.settle(600)
    out["mapped"].append(mapped())
    out["bytes"].append(limber.cache_stats()["bytes"])
out["evictions"] = limber.cache_stats()["kernels"]["evictions"]
""")
    assert got["evictions"] > 5
    assert max(got["bytes"]) <= 20000
    assert max(got["mapped"]) <= 2 * (256 << 10)


def test_metrics_and_misses_are_reported(tmp_path):
    path = tmp_path / "product.onnx"
    float_ = TensorProto.FLOAT
    path.write_bytes(make_model(
        [helper.make_node("MatMul", ["x", "y"], ["z"])],
        {"x": (float_, ["m", "k"]), "y": (float_, ["k", "n"])},
        {"z": (float_, ["m", "n"])}).SerializeToString())
    got, _ = run(f"product = {str(path)!r}" + """
check(2, 7)
out["miss"] = limber.explain_miss()
model.settle(600)
two = limber.load(product, compile="settle")
for n in (48, 50):  # columns that fill tiles, and columns that do not
    x = np.ones((9, 9), np.float32), np.ones((9, n), np.float32)
    np.testing.assert_array_equal(two(*x), np.full((9, n), 9))
    out["near"] = limber.explain_miss()
    two.settle(600)
out["metrics"] = limber.metrics()
""")
    assert got["miss"].endswith("nothing of this form is compiled")
    assert ": facts: " in got["near"] and " not " in got["near"]
    lines = got["metrics"].splitlines()
    assert 'limber_cache_evictions_total{layer="kernels"} 0' in lines
    assert "# TYPE limber_cache_bytes gauge" in lines
    assert len({line.split()[0] for line in lines
                if not line.startswith("#")}) == 55


PREFER = """
for seq in (1, 7, 16):
    check(2, seq)
model.settle(600)
steps = model.profile(None, feeds(2, 7))
out["tiers"] = {s["tier"]: s["op"] for s in steps}
out["kernels"] = [s["kernel"] for s in steps]
s = model.stats()
out["on"], out["from"] = s.prefer_reusable_kernels, s.prefer_reusable_from
"""


def test_reusable_kernels_assume_only_divisibility():
    got, _ = run(PREFER, "{'prefer_reusable_kernels': True}")
    assert got["on"] and got["from"] == "session"
    for kernel in got["kernels"]:
        assert kernel.startswith("attention") or "<=" not in kernel
    assert "specialised" in got["tiers"]  # attention needs an upper bound


NARROW = r"""
import json
import sys
import numpy as np
import limber

model = limber.load(sys.argv[1], prefer_reusable_kernels=eval(sys.argv[2]))
x = np.ones((5, 8), np.float32)
want = model(x)
model.settle(600)
np.testing.assert_array_equal(model(x), want)
step = model.profile(None, {"x": x})[0]
stats = model.stats()
print(json.dumps([step["tier"], step["kernel"], stats.kernels_specialised,
                  stats.kernels_requested]))
"""


def narrow(path, preferred):
    done = subprocess.run(
        [sys.executable, "-c", NARROW, str(path), str(preferred)],
        capture_output=True, text=True, timeout=1200,
        env=dict(os.environ, LIMBER_JIT="process", LIMBER_COMPILE="settle"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_few_columns_need_no_upper_bound(tmp_path):
    path = tmp_path / "narrow.onnx"
    weights = helper.make_tensor("w", TensorProto.FLOAT, [8, 20], [1.0] * 160)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                       {"x": (TensorProto.FLOAT, ["n", 8])},
                       {"y": (TensorProto.FLOAT, ["n", 20])})
    model.graph.initializer.append(weights)
    path.write_bytes(model.SerializeToString())
    tier, kernel, specialised, requested = narrow(path, True)
    assert tier == "reusable" and "<=" not in kernel
    assert specialised == 0 < requested
    tier, kernel, specialised, requested = narrow(path, False)
    if "<=" in kernel:  # there are no tiles for few columns below x86-64-v4
        assert tier == "specialised" and specialised == requested > 0


@pytest.mark.parametrize("options, variable, on, source", [
    ("{}", None, False, "build"),
    ("{}", "1", True, "environment"),
    ("{}", "0", False, "environment"),
    ("{}", "7", True, "environment"),
    ("{'prefer_reusable_kernels': False}", "1", False, "session"),
    ("{'prefer_reusable_kernels': True}", "0", True, "session"),
])
def test_the_most_specific_setting_decides(options, variable, on, source):
    environment = {"LIMBER_PREFER_REUSABLE_KERNELS": variable} \
        if variable else {}
    got, said = run("s = model.stats()\nout = [s.prefer_reusable_kernels, "
                    "s.prefer_reusable_from]", options, "off", **environment)
    assert got == [on, source]
    assert said.count("acts as 1") == (variable == "7")


def doctor(*arguments, code=0, **environment):
    done = subprocess.run([LIMBER, "doctor", *arguments], capture_output=True,
                          text=True, env=dict(os.environ, **environment))
    assert done.returncode == code, done.stderr
    return done.stdout


def test_the_doctor_lists_the_installation():
    found = json.loads(doctor("--json", LIMBER_CACHE_CAPACITY="3M",
                              LIMBER_PREFER_REUSABLE_KERNELS="1"))
    assert found["cache_capacity"] == 3 << 20
    assert found["prefer_reusable_kernels"] == {"on": True,
                                                "from": "environment"}
    assert found["worker_found"] and found["worker"].endswith("limber-jit")
    assert found["isa"].startswith("x86-64-v")
    assert "off, by LIMBER_JIT" in doctor(LIMBER_JIT="off")
    assert "is not there" in doctor(code=1, LIMBER_JIT_PATH="/nowhere")
