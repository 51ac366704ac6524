"""Bindings: runs on memory of the caller that was bound before."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from limber import _limber
from limber._arrays import in_place


class Binding(_limber.Binding):
    """A model with its inputs and outputs bound to memory of the caller, so
    that a run converts and allocates nothing. Model.bind makes one. It may be
    run by one thread at a time; other threads make their own.

        >>> x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
        >>> binding = model.bind({"x": x}, {"y": y})
        >>> x[:] = [1, 2, 3]
        >>> binding.run()[0] is y
        True
        >>> y
        array([-1., -2., -3.], dtype=float32)
    """

    def __init__(self, model: _limber.Session, inputs: Mapping[str, Any],
                 outputs: Mapping[str, Any] | Iterable[str] | None = None):
        super().__init__(model)
        self.bind_inputs(inputs)
        if outputs is None:
            outputs = [name for name, _, _ in model._output_rows()]
        if not isinstance(outputs, Mapping):
            outputs = dict.fromkeys(outputs)
        self.bind_outputs(outputs)

    def bind_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Binds inputs to arrays, in place of what they were bound to. The
        dims of an array may differ from those of the one before."""
        for name, array in inputs.items():
            self.bind_input(name, in_place(array))

    def bind_outputs(self, outputs: Mapping[str, Any]) -> None:
        """Binds outputs to C-contiguous arrays that have space for the
        results, or to None: then Limber allocates the result. A result that is
        smaller than its array is a view of the array's first elements."""
        for name, array in outputs.items():
            self.bind_output(name, None if array is None else in_place(array))
