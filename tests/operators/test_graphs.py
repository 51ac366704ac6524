"""Random graphs and partitions, with Limber's passes and kernels on and off."""

import subprocess
import sys
from pathlib import Path

import pytest
from compare import REJECTED
from fused import FAMILIES

HERE = Path(__file__).parent

COUNT = """
import sys
sys.path.insert(0, sys.argv[1])
import fused, kernels
family = getattr(fused, sys.argv[2])
fused.FAMILIES = (family,)
for seed in range(12):
    case, text = kernels.check_fused(seed)
    assert not text, f"{case}: {text}"
import limber
stats = limber.load(case.model()).stats()
print(stats.kernels, stats.kernels_requested)
"""


def test_random_graphs_agree_with_onnx_runtime(outcomes):
    bad = [text for text in outcomes["graph"] if text not in (None, REJECTED)]
    assert not bad, "\n".join(bad)


def test_random_partitions_agree_with_the_reference(outcomes):
    bad = [text for text in outcomes["fused"] if text]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("family", sorted({f.__name__ for f in FAMILIES}))
def test_a_family_is_compiled(family):
    """Otherwise the comparison above would compare the reference with
    itself."""
    done = subprocess.run([sys.executable, "-c", COUNT, str(HERE), family],
                          capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    compiled, requested = map(int, done.stdout.split())
    assert compiled == requested > 0
