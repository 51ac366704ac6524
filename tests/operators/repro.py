"""tests/operators/repro.py OP SEED [COUNT] -- runs one case, or COUNT cases
from SEED on, and prints them: what test_operators.py runs. `graph` as OP runs
the random graphs, `fused` the random partitions, `skip` the graphs of skips.py,
of which it prints the smallest part that fails. LIMBER_ISA chooses the level of
the kernels."""

import sys

import onnx

import skips
import suite


def main():
    op, seed = sys.argv[1], int(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    if op == "skip" and count == 1:
        case, text = skips.shrink(seed)
        print(onnx.printer.to_text(onnx.load_from_string(case.bytes)))
        print(f"{op} {seed}: {case}\n  {text or 'agree'}")
        return bool(text)
    bad = 0
    for n in range(seed, seed + count):
        case, text = suite.check(op, n)
        bad += text not in (None, suite.REJECTED)
        if text or count == 1:
            print(f"{op} {n}: {case}\n  {text or 'agree'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
