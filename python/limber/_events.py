"""The argument of event callbacks."""

from typing import NamedTuple


class Event(NamedTuple):
    """One decision of the engine; docs/deployment.md lists all names and
    reasons. Times are those of the monotonic clock, as time.monotonic_ns."""

    name: str  # what happened: "kernel_published"
    reason: str  # why: "threshold_reached"
    reason_text: str  # the reason as a phrase
    text: str  # the subject: a kernel, shapes, a file; or ""
    value: int  # a number of bytes or a count; 0: none
    start_ns: int
    end_ns: int  # equal to start_ns if the event has no duration
    thread: int  # the system's id of the thread that decided
