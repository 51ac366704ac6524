"""Every value a model computes agrees, not only its outputs.

Outputs of Softmax and Sigmoid on noise are nearly zero and would hide errors:
here each intermediate value is an output.

One correction: ONNX Runtime's Sigmoid is an approximation that is good to about
1e-7, not to a relative error (on ocr-det's logits of -45 to -12 its result is 4
% off). The reference for Sigmoid is computed in float64 from ONNX Runtime's own
inputs, and both must be within 1e-6 of each other.
"""

import numpy as np

import limber
import reference
from conftest import run_settled

LIMIT = 1e-4  # relative error in the L2 norm


def test_every_intermediate_value_agrees(model):
    exposed = reference.with_all_values(model.path)
    theirs = reference.session(exposed, optimised=False)
    ours = limber.InferenceSession(exposed)
    names = [output.name for output in theirs.get_outputs()]
    feeds = model.feeds(model.draws(3, seed=1)[2], seed=1)
    want = theirs.run(names, feeds)
    want = reference.with_exact_sigmoids(exposed, names, want, feeds)
    for got in run_settled(ours, names, feeds):
        wrong = [line for name, a, b in zip(names, got, want)
                 if (line := disagreement(name, a, b))]
        assert not wrong, f"{len(wrong)} of {len(names)} differ:\n" + \
            "\n".join(wrong[:20])


def disagreement(name, got, want):
    """How a value differs, or None."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return (f"{name}: {got.dtype}{list(got.shape)}, "
                f"not {want.dtype}{list(want.shape)}")
    if want.dtype.kind != "f":
        count = np.count_nonzero(got != want)
        return f"{name}: {count} integers differ" if count else None
    error = reference.relative_error(got, want)
    return f"{name}: relative error {error:.2g}" if error > LIMIT else None
