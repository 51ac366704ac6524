"""Runs on other threads: futures that asyncio can wait for, too."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Generator

from limber import _limber


class RunFuture(Future[Any]):
    """The results of a run that another thread computes: a
    concurrent.futures.Future that can also be awaited. cancel() ends a run
    that has begun before its next step."""

    def __init__(self, flag: _limber.Cancel):
        super().__init__()
        self._flag = flag

    def cancel(self) -> bool:
        """Cancels the run. Returns False if it has ended already; otherwise a
        run that has begun raises limber.Cancelled."""
        if super().cancel():
            return True
        if self.done():
            return False
        self._flag.trigger()
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()


class Runner:
    """The threads that run the asynchronous calls of a model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pool = ThreadPoolExecutor(
                    os.cpu_count(), thread_name_prefix="limber-async")
                self._pid = os.getpid()
            return self._pool

    def start(self, run: Callable[[_limber.Cancel], Any],
              flag: _limber.Cancel | None) -> RunFuture:
        used = flag if flag is not None else _limber.Cancel()
        future = RunFuture(used)

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(run(used))
            except BaseException as error:
                future.set_exception(error)

        self._threads().submit(work)
        return future

    def stop(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
            self._pool = None
