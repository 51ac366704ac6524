"""Warnings that are given once in a process."""

from __future__ import annotations

import sys
import threading
import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).resolve().parents[1])


class CompatibilityWarning(UserWarning):
    """Limber does something else than ONNX Runtime; the text says what."""


given: set[str] = set()
lock = threading.Lock()


def stack_level() -> int:
    """The level of the first caller outside of this package."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level - 1


def warn_once(text: str) -> None:
    with lock:
        if text in given:
            return
        given.add(text)
    warnings.warn(text, CompatibilityWarning, stacklevel=stack_level() + 1)
