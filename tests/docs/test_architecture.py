"""docs/architecture.md names functions that exist, in the files it says."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
HOP = re.compile(r"^\d+\. `(\S+): (\w+)`", re.M)
MOST_HOPS = 12


def walk(title):
    """[(file, function)] of a section's first list."""
    section = PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    hops = []
    for match in re.finditer(r"^(\d+)\. `(\S+): (\w+)`", section, re.M):
        if match[1] == "1" and hops:
            break
        hops.append((match[2], match[3]))
    return hops


def is_defined(path, function):
    """A definition begins a line; its parameters may go on in the next ones."""
    text = (ROOT / path).read_text()
    return re.search(rf"^[a-zA-Z][\w *]*\b{function}\((?:[^;{{}}]*)\)\s*{{",
                     text, re.M) is not None


def test_every_function_exists():
    hops = HOP.findall(PAGE)
    assert len(hops) > 30
    missing = [f"{path}: {function}" for path, function in hops
               if not (ROOT / path).is_file() or not is_defined(path, function)]
    assert not missing


def body_of(path, function):
    text = (ROOT / path).read_text()
    return re.search(rf"^[a-zA-Z][\w *]*\b{function}\([^;{{}}]*\)\s*{{(.*?)^}}",
                     text, re.M | re.S)[1]


def test_a_request_calls_a_kernel_within_twelve_hops():
    """Each function calls the next; the device's is called through its table."""
    hops = walk("How a request runs")
    assert hops[0][1] == "limber_session_run"
    assert len(hops) <= MOST_HOPS
    for (path, caller), (_, called) in zip(hops, hops[1:]):
        if caller != "lb_device_submit":
            assert re.search(rf"\b{called}\(", body_of(path, caller)), called
    assert re.search(r"\bkernel\(", body_of(*hops[-1]))


def test_the_picture_names_every_module():
    picture = (ROOT / "docs/architecture.svg").read_text()
    rows = re.findall(r"^((?:src|jit)/\S+):", (
        ROOT / "scripts/modules.def").read_text(), re.M)
    names = {row.split("/")[1] if row.count("/") == 1 else row.split("/")[-1]
             for row in rows} - {"device", "program"}
    missing = [n for n in names if not re.search(rf">{n}<", picture)]
    assert not missing
