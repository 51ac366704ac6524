"""A model requests few kernels for all shapes, and the first shapes request
those of later ones, too. One process per model, because kernels are counted for
all sessions of a process.

Run as a program with a model's name, a count and a seed, it prints the number
of kernels requested after each shape that is planned.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import limber
import numpy as np
import pytest
import shapes

MOST = {"ocr-det": 150}  # 60 for all others


def sizes(model, dims):
    """What a plan needs of the inputs: shapes, and values of scalars."""
    return {i.name: tuple(dims[d] if d in dims else int(d) for d in i.dims)
            or np.asarray(dims[i.values], i.dtype) for i in model.inputs}


def requested_by(model, count, seed):
    session = limber.InferenceSession(model.path)
    found = []
    for dims in model.stream_draws(count, seed):
        session.plan(sizes(model, dims))
        found.append(session.stats().kernels_requested)
    return found


@pytest.mark.needs_kernels
def test_a_model_requests_few_kernels_and_soon_no_more(model, request):
    words = [model.name, "300", str(request.config.getoption("seed"))]
    text = subprocess.run([sys.executable, __file__, *words], check=True,
                          capture_output=True, text=True,
                          env=os.environ).stdout
    found = json.loads(text)
    assert found[0] > 0, "kernels are off"
    assert found[-1] <= MOST.get(model.name, 60), words
    assert found[len(found) // 2] == found[-1], words


if __name__ == "__main__":
    name, count, seed = sys.argv[1:]
    print(json.dumps(requested_by(shapes.load()[name], int(count), int(seed))))
