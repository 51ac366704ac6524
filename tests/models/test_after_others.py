"""A plan does not depend on earlier plans: steps and bits of a run are those of
a process that has planned no other shape.

One process runs all shapes, another one the same in reverse order, and some
shapes have their own process.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FRESH = 3  # shapes that have their own process

PROGRAM = r"""
import hashlib
import json
import os
import sys
sys.path.insert(0, sys.argv[1])
os.environ["LIMBER_JIT"] = "off"
import limber
import shapes

model = shapes.load()[sys.argv[2]]
session = limber.load(model.path, threads=1)
found = []
for dims in json.loads(sys.argv[3]):
    feeds = model.feeds(dims, seed=1)
    outputs = session.run(None, feeds)
    digest = hashlib.sha256(b"".join(x.tobytes() for x in outputs))
    steps = session.profile(None, feeds)
    found.append([digest.hexdigest(),
                  [[s["name"], s["tier"], s["kernel"]] for s in steps]])
print(json.dumps(found))
"""


def run(model, draws):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(HERE), model.name,
         json.dumps(draws)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_after_others_is_that_of_a_fresh_process(model, pytestconfig):
    seed = pytestconfig.getoption("seed")
    draws = model.draws(pytestconfig.getoption("shapes"), seed)
    after_others = run(model, draws)
    again = run(model, draws[::-1])[::-1]
    for i, (dims, one, other) in enumerate(zip(draws, after_others, again)):
        assert one == other, f"{model.name} {dims} --seed {seed}"
        if i >= len(draws) - FRESH:
            assert one == run(model, [dims])[0], \
                f"{model.name} {dims} --seed {seed}"
