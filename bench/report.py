"""Reports of benchmarks: tables on standard output, and the same as JSON."""

import json
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Table:
    """Prints rows at once. columns: (title, width); the first `numbers` of them
    are left-aligned text, the others are right-aligned."""

    def __init__(self, columns, numbers):
        self.widths = [width for _, width in columns]
        self.numbers = numbers
        self.row(*(title for title, _ in columns))

    def row(self, *cells):
        out = []
        for i, (cell, width) in enumerate(zip(cells, self.widths)):
            out.append(f"{cell:<{width}}" if i < self.numbers
                       else f"{cell:>{width}}")
        out += cells[len(self.widths):]
        print("  ".join(out).rstrip(), flush=True)


def ms(seconds):
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def ratio_text(ratio):
    """"1.23 [1.19, 1.27]" of a Ratio, or of one as JSON."""
    if ratio is None:
        return "n/a"
    if not isinstance(ratio, dict):
        ratio = ratio.as_json()
    low, high = ratio["interval"]
    return f"{ratio['value']:.2f} [{low:.2f}, {high:.2f}]"


def dims_text(dims):
    return " ".join(f"{symbol}={n}" for symbol, n in dims.items())


def inputs_text(model, dims):
    """Arguments for the programs of bench/: NAME=2x3 for each input, and
    NAME=2x3:5 for an input whose value is a symbol."""
    return [f"{i.name}=" + "x".join(str(dims.get(d, d)) for d in i.dims)
            + (f":{dims[i.values]}" if i.values in dims else "")
            for i in model.inputs]


def processor_name():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def commit_of(directory):
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"],
                            cwd=directory, capture_output=True, text=True)
    return done.stdout.strip() or None


def machine(build):
    """The machine and its peak rates, without its host name."""
    peak = subprocess.run([str(build / "bench" / "peak")], check=True,
                          capture_output=True, text=True)
    return {
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "commit": commit_of(ROOT),
        "one_core": json.loads(peak.stdout),
    }


def print_machine(machine):
    core = machine["one_core"]
    print(f"{machine['processor']}, {machine['cores']} cores, "
          f"{machine['memory_bytes'] / 2**30:.0f} GB; {core['isa']}; "
          f"{machine['system']}, Python {machine['python']}")
    reads = ", ".join(
        f"{level} {read['gb_per_s']:.0f} ({size_text(read['bytes'])})"
        for level, read in core["read"].items())
    print(f"one core: {core['gflops']:.1f} GFLOP/s of float32 multiply-adds "
          f"({core['bits']} bit); reads, GB/s: {reads}")


def size_text(n):
    return f"{n / 2**20:.0f} MB" if n >= 2**20 else f"{n / 2**10:.0f} KB"
