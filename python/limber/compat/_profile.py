"""Profiles of an InferenceSession, as trace files in ONNX Runtime's form: for
chrome://tracing, ui.perfetto.dev and scripts that read its node events."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

FIELDS = ("tier", "kernel", "reason", "rows", "cols", "k", "flops", "bytes")


class Profile:
    """The events of one session. Any thread may add some."""

    def __init__(self, prefix: str):
        self.start_ns = time.monotonic_ns()
        self.prefix = prefix
        self.events: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def event(self, category: str, name: str, start_ns: int, end_ns: int,
              arguments: dict[str, Any]) -> dict[str, Any]:
        return {"cat": category, "pid": os.getpid(),
                "tid": threading.get_native_id(), "ph": "X", "name": name,
                "ts": (start_ns - self.start_ns) / 1000,
                "dur": (end_ns - start_ns) / 1000, "args": arguments}

    def add_load(self) -> None:
        self.events.append(self.event("Session", "session_initialization",
                                      self.start_ns, time.monotonic_ns(), {}))

    def add_run(self, start_ns: int, steps: list[dict[str, Any]]) -> None:
        added = [self.event("Node", f"{step['name'] or step['op']}_kernel_time",
                            step["start_ns"], step["end_ns"],
                            {"op_name": step["op"],
                             "provider": "CPUExecutionProvider",
                             "node_index": str(i),
                             **{name: step[name] for name in FIELDS}})
                 for i, step in enumerate(steps)]
        added.append(self.event("Session", "model_run", start_ns,
                                time.monotonic_ns(), {}))
        with self.lock:
            self.events += added

    def write(self) -> str:
        """Writes the file and returns its name."""
        path = f"{self.prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}" \
            f"_{self.start_ns // 1_000_000 % 1000:03d}.json"
        with self.lock, open(path, "w") as file:
            json.dump(self.events, file)
        return path
