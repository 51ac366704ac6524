"""Writes the conformance models into a folder, as seeds for the fuzzers.

Usage: seeds.py FOLDER. Large models are left out: small seeds mutate better.
Beside each model lie variants that mutations hardly reach: with names for
dims, and, of operators with several outputs, with one of them only.
"""

import sys
from pathlib import Path

import onnx
from run import load_cases

LIMIT = 16 << 10
# A field that no reader knows: fuzz_run draws shapes and elements from the end
# of its input, and so has bytes to mutate that are not the model's.
TAIL = bytes([0x7A, 32]) + bytes(32)


def copy_of(message):
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def with_named_dims(model):
    """Equal dims get equal names, so that other sizes fit each other too."""
    model = copy_of(model)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value"):
                dim.dim_param = f"d{dim.dim_value}"
    del model.graph.value_info[:]
    return model


def with_one_output(model, kept):
    model = copy_of(model)
    output = copy_of(model.graph.output[kept])
    (node,) = model.graph.node
    names = [name if name == output.name else "" for name in node.output]
    del node.output[:], model.graph.output[:]
    node.output.extend(names)
    model.graph.output.append(output)
    return model


def variants(model):
    yield "", model
    yield "-named", with_named_dims(model)
    outputs = len(model.graph.output)
    if len(model.graph.node) == 1 and outputs > 1:
        for i in range(outputs):
            yield f"-only{i}", with_one_output(model, i)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, case in load_cases("").items():
        for suffix, model in variants(case.model):
            data = model.SerializeToString()
            if len(data) <= LIMIT:
                (folder / f"{name}{suffix}.onnx").write_bytes(data + TAIL)
                count += 1
    print(f"seeds: {count} models in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
