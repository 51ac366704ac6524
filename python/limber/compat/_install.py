"""Puts this package in the place of onnxruntime.

Modules of an installed onnxruntime that are Python code of their own, such as
onnxruntime.quantization, are still loaded from there, and use Limber.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Iterable

from limber import compat
from limber.compat import _backend, _errors, _functions
from limber.compat._session import InferenceSession
from limber.compat._warn import warn_once

ROOT = "onnxruntime"
CAPI = f"{ROOT}.capi"
STATE = f"{CAPI}.onnxruntime_pybind11_state"
REPLACED = [ROOT, CAPI, STATE, f"{CAPI}._pybind_state",
            f"{CAPI}.onnxruntime_inference_collection",
            f"{CAPI}.onnxruntime_validation",
            f"{CAPI}.build_and_package_info", f"{ROOT}.backend",
            f"{ROOT}.backend.backend"]


class Loader(importlib.abc.Loader):
    """Gives the modules a __spec__, which importlib.util.find_spec reads."""

    def create_module(self, spec: Any) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        pass


class Distribution(importlib.metadata.Distribution):
    """The metadata of a package onnxruntime, for programs that look for its
    version, where none is installed."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return "Metadata-Version: 2.1\nName: onnxruntime\n" \
               f"Version: {_functions.__version__}\n"

    def locate_file(self, path: Any) -> Any:
        return Path(compat.__file__).parent / path


class Finder(importlib.metadata.DistributionFinder):
    def find_spec(self, *_: Any) -> None:
        return None

    def find_distributions(self, context: Any = None
                           ) -> Iterable[importlib.metadata.Distribution]:
        if context is not None and context.name == ROOT:
            yield Distribution()


finder = Finder()


def installed_path(name: str) -> list[str]:
    """The directory of a package of an installed onnxruntime."""
    for entry in sys.path:
        path = Path(entry or ".", *name.split("."))
        if (path / "__init__.py").is_file():
            return [str(path)]
    return []


def module(name: str, contents: dict[str, Any], doc: str) -> ModuleType:
    made = ModuleType(name, doc)
    made.__dict__.update(contents)
    package = name in (ROOT, CAPI, f"{ROOT}.backend")
    made.__spec__ = importlib.machinery.ModuleSpec(name, Loader(),
                                                   is_package=package)
    made.__loader__ = made.__spec__.loader
    made.__package__ = name if package else name.rpartition(".")[0]
    made.__file__ = compat.__file__
    if package:
        made.__path__ = installed_path(name)
        made.__spec__.submodule_search_locations = made.__path__
    return made


def modules() -> list[ModuleType]:
    public = {name: getattr(compat, name) for name in compat.TOP}
    state = {name: getattr(compat, name) for name in compat.STATE}
    errors = {name: getattr(_errors, name) for name in _errors.NAMES}
    about = {"package_name": ROOT, "__version__": _functions.__version__}
    made = [
        module(ROOT, {**public, **about, "version": _functions.__version__,
                      "cuda_version": "", "__author__": "Limber",
                      "import_capi_exception": None},
               "Limber with the interface of ONNX Runtime."),
        module(CAPI, {}, ""),
        module(STATE, {**state, **errors, **about}, ""),
        module(f"{CAPI}._pybind_state", {**public, **state, **errors}, ""),
        module(f"{CAPI}.onnxruntime_inference_collection",
               {**public, **errors}, ""),
        module(f"{CAPI}.onnxruntime_validation", {
            "check_distro_info": lambda: None,
            "get_package_name_and_version_info":
                lambda: (ROOT, _functions.__version__, ""),
            "check_training_module": lambda: (None, False, "", "")}, ""),
        module(f"{CAPI}.build_and_package_info", about, ""),
        module(f"{ROOT}.backend", {n: getattr(_backend, n)
                                   for n in _backend.__all__}, ""),
        module(f"{ROOT}.backend.backend", {n: getattr(_backend, n)
                                           for n in _backend.__all__}, ""),
    ]
    for each in made:  # as attributes of their packages
        parent, _, last = each.__name__.rpartition(".")
        if parent:
            next(m for m in made if m.__name__ == parent).__dict__[last] = each
    return made


def is_installed() -> bool:
    return getattr(sys.modules.get(ROOT), "InferenceSession", None) is \
        InferenceSession


def install() -> None:
    """Makes `import onnxruntime` import Limber with ONNX Runtime's interface,
    in this process, from now on. Call it before the program imports
    onnxruntime: names that were imported before stay ONNX Runtime's.

        >>> from limber import compat
        >>> compat.install()
        >>> import onnxruntime
        >>> onnxruntime.get_build_info().split()[0]
        'Limber'
        >>> compat.uninstall()
    """
    if is_installed():
        return
    if ROOT in sys.modules:
        warn_once(
            "onnxruntime was imported before limber.compat.install(); modules "
            "that have imported it keep ONNX Runtime")
    uninstall()
    for each in modules():
        sys.modules[each.__name__] = each
    if not importlib.util.find_spec("onnxruntime.tools") and \
            finder not in sys.meta_path:
        sys.meta_path.append(finder)


def uninstall() -> None:
    """Makes later imports of onnxruntime import ONNX Runtime again."""
    for name in [n for n in sys.modules
                 if n == ROOT or n.startswith(ROOT + ".")]:
        del sys.modules[name]
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
