"""Plans of the public models: each step reads values that earlier ones wrote,
and each node is executed by the step that its disposition names."""

import subprocess

import shapes

PROGRAM = shapes.ROOT / "build" / "tests" / "test_model_steps"


def argument(tensor, dims):
    sizes = "x".join(str(dims.get(d, d)) for d in tensor.dims)
    value = "" if tensor.dims else f":{dims[tensor.values]}"
    return f"{tensor.name}={sizes}{value}"


def test_steps_read_what_earlier_ones_wrote(model):
    for dims in model.two_smallest():
        arguments = [argument(tensor, dims) for tensor in model.inputs]
        done = subprocess.run([PROGRAM, model.path, *arguments],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
