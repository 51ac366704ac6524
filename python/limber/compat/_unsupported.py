"""Names of ONNX Runtime that Limber has only to say so: using one raises
NotImplemented. SparseTensor, for example, can be imported and named in an
annotation or in isinstance()."""

from __future__ import annotations

from typing import Any

from limber.compat._errors import NotImplemented as NotSupported


class Unsupported(type):
    """The type of classes whose every use is an error."""

    why: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotSupported(f"{cls.__name__}.{name}: {cls.why}")

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotSupported(f"{cls.__name__}: {cls.why}")


def unsupported(name: str, why: str) -> Unsupported:
    return Unsupported(name, (), {"__doc__": f"Not supported: {why}",
                                  "why": why})


SPARSE = "Limber has no sparse tensors; pass the dense array"
CONTEXT = "Limber has no execution providers that compile whole graphs; load " \
    "the ONNX model itself"
ADAPTERS = "Limber cannot load LoRA adapters; merge them into the weights"
STREAMS = "Limber computes on the CPU, which has no streams"

SparseTensor = unsupported("SparseTensor", SPARSE)
SparseCooView = unsupported("SparseCooView", SPARSE)
SparseCsrView = unsupported("SparseCsrView", SPARSE)
SparseBlockSparseView = unsupported("SparseBlockSparseView", SPARSE)
LoraAdapter = unsupported("LoraAdapter", ADAPTERS)
AdapterFormat = unsupported("AdapterFormat", ADAPTERS)
ModelCompiler = unsupported("ModelCompiler", CONTEXT)
OrtEpContextData = unsupported("OrtEpContextData", CONTEXT)
OrtEpContextDataBuffer = unsupported("OrtEpContextDataBuffer", CONTEXT)
OrtSyncStream = unsupported("OrtSyncStream", STREAMS)
SessionObjectInitializer = unsupported(
    "SessionObjectInitializer", "pass None to InferenceSession")
opkernel = unsupported("opkernel", "`limber inspect MODEL` says which "
                       "operators of a model Limber implements")
schemadef = unsupported("schemadef", "use the package onnx")
