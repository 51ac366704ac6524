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
import decoder
import rampup
import disk
import trials
import kernels
import models
import package
import pressure
import primitives
import report
import shapes
import first_run
import fusion
import start
import stream
import priority
import skip
import tune

SUITES = {
    "models": (models.Models, "run times after settle, against both peers"),
    "pack": (models.Pack, "the same without compiler, against ONNX Runtime"),
    "start": (start.Start, "load time, first run, memory, fresh processes"),
    "callers": (callers.Callers, "1, 2, 4, 8 threads calling at once"),
    "stream": (stream.Stream, "1,000 new shapes, one request each"),
    "rampup": (rampup.Rampup, "how soon a new process reaches its final speed"),
    "pressure": (pressure.Pressure,
                 "latency while kernels compile, and how long that takes"),
    "first_run": (first_run.FirstRun,
                  "the first run at a shape against the next ones"),
    "primitives": (primitives.Primitives,
                   "1,000 shapes of a primitive: reusable kernels or not"),
    "cache": (cache.Cache, "cost of a hit, an eviction and a run, by entries"),
    "decoder": (decoder.Decoder, "one token at a time, past keys and values in "
                "shared buffers, against ONNX Runtime with IO binding"),
    "disk": (disk.Disk, "kernels from a warm store, in fresh processes"),
    "trials": (trials.Trials, "kernel trials: kept, demoted, and planted ones"),
    "priority": (priority.Priority, "compile queue by priority, against FIFO"),
    "skip": (skip.Skip, "nodes that do nothing: skipped, against executed"),
    "kernels": (kernels.Kernels, "each kernel against one core's roofline"),
    "fusion": (fusion.Fusion, "padded batches, live fusion against static"),
    "tune": (tune.Tune, "the chosen tile sizes against all others"),
}
PEERS = ["onnxruntime", "openvino"]
# Suites that compile while requests run.
BACKGROUND = ("stream", "rampup", "trials", "priority")


@dataclass
class Settings:
    threads: list
    rounds: int = 9
    seeds: int = 3
    random: int = 10       # shapes per seed
    fixed: int = 99        # maximum number of fixed shapes
    round_seconds: float = 0.03
    callers: tuple = (1, 2, 4, 8)
    caller_seconds: float = 0.5
    shapes: int = 1000     # of a stream
    curve_seconds: float = 10.5
    alternations: int = 20
    window_seconds: float = 1.5
    first_run_shapes: int = 60
    processes: int = 5
    chunk_step: int = 1    # of the chunks of a decoder, every n-th is measured


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
        help="fewer shapes and shorter rounds: a minute or two")
    add("--json", metavar="FILE", help="write all figures to FILE")
    add("--models", metavar="NAME,...",
        help="names of bench/shapes.def, or `all` of them, `heldout` "
             "(bench/heldout.def) or `int8` (bench/int8.def); default: "
             "minilm,magika; of `skip`: all")
    add("--threads", default="1,2", metavar="N,...", help="default: 1,2")
    add("--peers", default=None, metavar="NAME,...",
        help=f"a list of {','.join(PEERS)}; default: depends on the suite")
    add("--rounds", type=int, metavar="N", help="at least 7 for a claim")
    add("--seeds", type=int, metavar="N", help="seeds of random shapes")
    add("--random", type=int, metavar="N", help="random shapes per seed")
    add("--fixed", type=int, metavar="N", help="maximum number of fixed shapes")
    add("--shapes", type=int, metavar="N",
        help="shapes of a stream; default: 1000")
    add("--alternations", type=int, metavar="N",
        help="alternations of compiling on and off; default: 20")
    add("--plot", metavar="FILE",
        help="write a plot of stream, rampup or first_run as SVG")
    add("--against", metavar="DIR",
        help="another build directory of Limber to measure in the same run")
    add("--deterministic", action="store_true",
        help="measure deterministic mode as well")
    add("--build", default=ROOT / "build", type=Path, metavar="DIR",
        help="the build directory to measure; default: build")
    return parser.parse_args()


def settings_of(options):
    cores = len(os.sched_getaffinity(0))
    threads = [int(n) for n in options.threads.split(",")]
    settings = Settings([n for n in threads if n <= cores])
    if not settings.threads:
        raise SystemExit(f"bench: --threads {options.threads}: there are "
                         f"only {cores} cores")
    if options.quick:
        settings.rounds, settings.seeds, settings.random = 7, 1, 2
        settings.round_seconds, settings.caller_seconds = 0.01, 0.15
        settings.callers = (1, 4)
        settings.alternations = 5
        settings.shapes, settings.first_run_shapes = 100, 8
        settings.processes, settings.chunk_step = 3, 4
    for name in ("rounds", "seeds", "random", "fixed", "shapes",
                 "alternations"):
        if getattr(options, name) is not None:
            setattr(settings, name, getattr(options, name))
    return settings


def environment(build, suite):
    """The environment of a Limber process, or of a peer where build is None."""
    # NumPy's threads spin for 30 ms after they are created.
    found = dict(os.environ, PYTHONDONTWRITEBYTECODE="1",
                 OPENBLAS_NUM_THREADS="1")
    if build:
        found["PYTHONPATH"] = str(package.prepare(build))
        off = suite in ("pack", "first_run")
        found["LIMBER_JIT"] = "off" if off else "process"
        # Runs timed after settle must not share the processor with compiling.
        found["LIMBER_COMPILE"] = \
            "background" if suite in BACKGROUND else "settle"
    return found


def group_of(name):
    subprocess.run([str(ROOT / "scripts" / "models"), name], check=True)
    return list(shapes.load(name).values())


def models_of(text):
    if text in ("heldout", "int8", "decoder"):
        return group_of(text)
    known = shapes.load()
    names = list(known) if text == "all" else text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"bench: --models: no model {name}; models: "
                             f"{', '.join(known)}")
    return [known[name] for name in names]


def default_models(suite):
    return {"skip": "all", "decoder": "decoder"}.get(suite, "minilm,magika")


def context_of(options):
    chosen = ["onnxruntime"] if options.suite in ("pack", "decoder") else \
        [] if options.suite in ("trials", "priority", "skip", "fusion") \
        else PEERS
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
                   models_of(options.models or default_models(options.suite)),
                   chosen, engines, environments,
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
