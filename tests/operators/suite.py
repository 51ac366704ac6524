"""All generators together, and the random graphs."""

import os
import warnings

os.environ.setdefault("LIMBER_CACHE_DIR", "off")  # kernels must be compiled

import gen_contraction  # noqa: F401
import gen_elementwise  # noqa: F401
import gen_movement  # noqa: F401
import gen_reduction  # noqa: F401
import gen_window  # noqa: F401
import registry
from compare import REJECTED
from graph_check import check_graph
from kernels import check_fused
from registry import GENERATORS  # noqa: F401
from skips import check_skips

NO_KERNEL = "ONNX Runtime has no kernel for any draw"
NO_RESULT = (NO_KERNEL, REJECTED)  # cases that test nothing

warnings.simplefilter("ignore", RuntimeWarning)  # values overflow intentionally


def check(op, seed):
    """(case, how the engines disagree about it, or REJECTED); (None, None)
    where ONNX Runtime does not support the operator."""
    others = {"graph": check_graph, "fused": check_fused,
              "skip": check_skips}
    return others[op](seed) if op in others else registry.check(op, seed)
