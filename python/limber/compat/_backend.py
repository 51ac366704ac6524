"""The module onnxruntime.backend: ONNX's backend interface."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from limber.compat._session import InferenceSession

__all__ = ["is_compatible", "prepare", "run", "supports_device"]


class PreparedModel:
    """A loaded model that runs on a list of inputs."""

    def __init__(self, session: InferenceSession):
        self._session = session

    def run(self, inputs: Any, **_: Any) -> list[np.ndarray]:
        """Runs the model on arrays, by position or as a dict."""
        if not isinstance(inputs, dict):
            names = [value.name for value in self._session.get_inputs()]
            listed = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip(names, listed))
        return self._session.run(None, inputs)


def supports_device(device: str) -> bool:
    """Returns whether the device is the CPU."""
    return device.split(":")[0].upper() == "CPU"


def is_compatible(model: Any, device: str | None = None, **_: Any) -> bool:
    """Returns whether the device is the CPU."""
    return device is None or supports_device(device)


def prepare(model: Any, device: str | None = None, **_: Any) -> Any:
    """Loads a model: a path, bytes, an onnx.ModelProto or a session."""
    if isinstance(model, (PreparedModel, InferenceSession)):
        return model if isinstance(model, PreparedModel) \
            else PreparedModel(model)
    if not isinstance(model, (str, bytes, os.PathLike)):
        model = model.SerializeToString()
    return PreparedModel(InferenceSession(model))


def run(model: Any, inputs: Any, device: str | None = None, **_: Any
        ) -> list[np.ndarray]:
    """Loads a model and runs it once."""
    results: list[np.ndarray] = prepare(model, device).run(inputs)
    return results
