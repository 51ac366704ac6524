"""scripts/bench: measures Limber beside ONNX Runtime and OpenVINO."""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "models"))

import cache
import callers
import curves
import disk
import judge
import kernels
import models
import package
import pressure
import primitives
import report
import shapes
import smooth
import start
import stream
import worth
import tune

SUITES = {
    "models": (models.Models, "run times after settle, beside both peers"),
    "pack": (models.Pack, "the same without compiler, beside ONNX Runtime"),
    "start": (start.Start, "opening, first run and memory, fresh processes"),
    "callers": (callers.Callers, "1, 2, 4, 8 threads calling at once"),
    "stream": (stream.Stream, "1,000 shapes never seen, one request each"),
    "curves": (curves.Curves, "how soon a fresh process has its final speed"),
    "pressure": (pressure.Pressure,
                 "what requests lose to compiling, and how soon it is done"),
    "smooth": (smooth.Smooth, "the first run at a shape against the next"),
    "primitives": (primitives.Primitives,
                   "1,000 shapes of one primitive: kernels, reusable or not"),
    "cache": (cache.Cache, "a hit, an eviction, a run, by entries"),
    "disk": (disk.Disk, "kernels from a warm store, fresh processes"),
    "judge": (judge.Judge, "kernels on trial: kept, demoted, and planted ones"),
    "worth": (worth.Worth, "what is worth most first, against first come"),
    "kernels": (kernels.Kernels, "each kernel against what the core can do"),
    "tune": (tune.Tune, "the tiles chosen against all others"),
}
PEERS = ["onnxruntime", "openvino"]
BACKGROUND = ("stream", "curves", "judge", "worth")  # compiled beside requests


@dataclass
class Settings:
    threads: list
    rounds: int = 9
    seeds: int = 3
    random: int = 10       # shapes a seed
    fixed: int = 99        # at most so many of the fixed shapes
    turn_seconds: float = 0.03
    callers: tuple = (1, 2, 4, 8)
    caller_seconds: float = 0.5
    shapes: int = 1000     # of a stream
    curve_seconds: float = 10.5
    alternations: int = 20
    press_seconds: float = 1.5
    smooth_shapes: int = 60
    processes: int = 5


@dataclass
class Context:
    settings: Settings
    build: Path
    models: list
    peers: list
    engines: list
    environments: dict
    plot: str = None
    versions: dict = field(default_factory=dict)


def arguments():
    text = "\n".join(f"  {name:9} {about}"
                     for name, (_, about) in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"suites:\n{text}")
    add = parser.add_argument
    add("suite", nargs="?", default="models", choices=SUITES)
    add("--quick", action="store_true",
        help="a minute or two: fewer shapes, shorter turns")
    add("--json", metavar="FILE", help="write all numbers there")
    add("--models", default="minilm,magika", metavar="NAME,...",
        help="or `all`; `others`, `bytes`: those of bench/heldout.def, of "
             "bench/int8.def; default: minilm,magika")
    add("--threads", default="1,2", metavar="N,...", help="default: 1,2")
    add("--peers", default=None, metavar="NAME,...",
        help=f"of {','.join(PEERS)}; default: those the suite compares with")
    add("--rounds", type=int, metavar="N", help="at least 7 for a claim")
    add("--seeds", type=int, metavar="N", help="of random shapes")
    add("--random", type=int, metavar="N", help="random shapes a seed")
    add("--fixed", type=int, metavar="N", help="at most so many fixed shapes")
    add("--shapes", type=int, metavar="N", help="of a stream; default: 1000")
    add("--alternations", type=int, metavar="N",
        help="of compiling on and off; default: 20")
    add("--plot", metavar="FILE",
        help="a picture of a stream, of curves or of first runs, as SVG")
    add("--against", metavar="DIR",
        help="another build directory of Limber, measured in the same run")
    add("--deterministic", action="store_true",
        help="measure deterministic mode as well: its price")
    add("--build", default=ROOT / "build", type=Path, metavar="DIR",
        help="the build directory to measure; default: build")
    return parser.parse_args()


def settings_of(options):
    cores = len(os.sched_getaffinity(0))
    threads = [int(n) for n in options.threads.split(",")]
    settings = Settings([n for n in threads if n <= cores])
    if not settings.threads:
        raise SystemExit(f"bench: --threads: there are {cores} cores")
    if options.quick:
        settings.rounds, settings.seeds, settings.random = 7, 1, 2
        settings.turn_seconds, settings.caller_seconds = 0.01, 0.15
        settings.callers = (1, 4)
        settings.alternations = 5
        settings.shapes, settings.smooth_shapes, settings.processes = 100, 8, 3
    for name in ("rounds", "seeds", "random", "fixed", "shapes",
                 "alternations"):
        if getattr(options, name) is not None:
            setattr(settings, name, getattr(options, name))
    return settings


def environment(build, suite):
    """Of a Limber process; of a peer where build is None."""
    # NumPy's threads spin for 30 ms after they are made.
    found = dict(os.environ, PYTHONDONTWRITEBYTECODE="1",
                 OPENBLAS_NUM_THREADS="1")
    if build:
        found["PYTHONPATH"] = str(package.prepare(build))
        off = suite in ("pack", "smooth")
        found["LIMBER_JIT"] = "off" if off else "process"
        # What is timed after settle is not to share the processor with it.
        found["LIMBER_COMPILE"] = \
            "background" if suite in BACKGROUND else "settle"
    return found


def group_of(name):
    subprocess.run([str(ROOT / "scripts" / "models"), name], check=True)
    return list(shapes.load(name).values())


def models_of(text):
    if text in ("others", "bytes"):
        return group_of(text)
    known = shapes.load()
    names = list(known) if text == "all" else text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"bench: no model {name}; there are: "
                             f"{', '.join(known)}")
    return [known[name] for name in names]


def context_of(options):
    chosen = ["onnxruntime"] if options.suite == "pack" else \
        [] if options.suite in ("judge", "worth") else PEERS
    if options.peers is not None:
        chosen = [p for p in options.peers.split(",") if p]
    environments = {p: environment(None, options.suite) for p in chosen}
    if options.suite not in ("kernels", "tune", "cache", "disk", "primitives"):
        environments["limber"] = environment(options.build, options.suite)
    engines = ["limber", *chosen]
    if options.against:
        environments["against"] = environment(options.against, options.suite)
        engines.append("against")
    if options.deterministic:
        environments["deterministic"] = dict(
            environment(options.build, options.suite), LIMBER_DETERMINISTIC="1")
        engines.append("deterministic")
    return Context(settings_of(options), options.build.resolve(),
                   models_of(options.models), chosen, engines, environments,
                   options.plot)


def main():
    options = arguments()
    context = context_of(options)
    began = time.time()
    machine = report.machine(context.build)
    report.print_machine(machine)
    print()
    result = SUITES[options.suite][0](context).run()
    took = time.time() - began
    if context.versions:
        print("versions: " + ", ".join(f"{e} {v}" for e, v in
                                       context.versions.items()))
    print(f"{took:.0f} s")
    if options.json:
        everything = {"suite": options.suite, "quick": options.quick,
                      "machine": machine, "versions": context.versions,
                      "settings": vars(context.settings),
                      "seconds": took, "result": result}
        Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
