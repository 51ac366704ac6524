"""Writes the conformance models into a folder, as seeds for the fuzzers.

Usage: seeds.py FOLDER. Large models are left out: small seeds mutate better.
"""

import sys
from pathlib import Path

from run import load_cases

LIMIT = 16 << 10
# A field that no reader knows: fuzz_run draws shapes and elements from the end
# of its input, and so has bytes to mutate that are not the model's.
TAIL = bytes([0x7A, 32]) + bytes(32)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, case in load_cases("").items():
        model = case.model.SerializeToString()
        if len(model) <= LIMIT:
            (folder / f"{name}.onnx").write_bytes(model + TAIL)
            count += 1
    print(f"seeds: {count} models in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
