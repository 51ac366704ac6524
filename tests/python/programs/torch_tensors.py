"""Tensors of torch are read in place, and results become tensors without a
copy, in bfloat16 too."""

import sys

import limber
import numpy as np
import torch
from onnx import TensorProto

sys.path.insert(0, sys.argv[1])
from conftest import identity_model, negate_model  # noqa: E402

model = limber.load(negate_model())
x = torch.arange(6, dtype=torch.float32)
assert np.array_equal(model(x), -x.numpy())
assert np.array_equal(model(x[::2]), -x[::2].numpy())
y = torch.empty(6)
binding = model.bind({"x": x}, {"y": y})
for i in range(3):
    x += 1
    binding.run()
    assert torch.equal(y, -x)
result = model(x)
assert torch.from_dlpack(result).data_ptr() == result.ctypes.data

brain = limber.load(identity_model(TensorProto.BFLOAT16))
bits = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
value = limber.compat.OrtValue(brain(bits))
assert torch.equal(torch.from_dlpack(value), bits)
print("right")
