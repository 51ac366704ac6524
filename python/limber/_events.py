"""What a listener to events is called with."""

from typing import NamedTuple


class Event(NamedTuple):
    """Something that was decided; docs/deployment.md lists names and reasons.
    Times are of the monotonic clock, as time.monotonic_ns has it."""

    name: str  # what: "kernel_published"
    reason: str  # why: "threshold_reached"
    reason_text: str  # the same in words
    text: str  # what it is about: a kernel, shapes; or ""
    value: int  # bytes, or how many; 0: none
    start_ns: int
    end_ns: int
    thread: int  # that decided it, as the system numbers it
