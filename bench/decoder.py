"""Suite `decoder`: a decoder that extends its keys and values by one token at a
time, from 64 to 1,024 tokens. Limber has past and present in one buffer, ONNX
Runtime has its IO binding.

In each round the buffers have another capacity, so that Limber sees every
signature for the first time and plans each token, as in one long conversation.
Engines alternate after each chunk of tokens."""

import tempfile
from pathlib import Path

import fleet as fleets
import numpy as np
import report
import stats
import suite

CHUNK = 32
RANGES = ((64, 128), (128, 256), (256, 512), (512, 1024))
SETTLE_SECONDS = 600


def chunks_of(first, end, step):
    return list(range(first, end, CHUNK))[::step]


class Decoder(suite.ByModel):
    goal = "0 bytes of the past are copied; time per token, 64 to 1,024 " \
           "tokens, <= 0.95 of ONNX Runtime's (goal 0.8)"

    def __init__(self, context):
        self.context = context
        self.rows, self.failed = [], []
        self.idle_burnt = self.busy = 0.0
        names = [("thr", 3), ("tokens", 10)]
        names += [(f"{fleets.NAMES[e]} ms", 16) for e in context.engines]
        names += [("limber / " + fleets.NAMES[e], 22)
                  for e in context.engines[1:]]
        names += [("known [95 %]", 18), ("past copied", 12)]
        self.table = report.Table(names, numbers=2)

    def run_model(self, model, threads):
        context = self.context
        with fleets.Fleet(context.engines, model.name, threads,
                          context.environments, "open_decoder") as fleet:
            error = self.prepare(fleet)
            times = self.measure(fleet)
            copied = self.copied(fleet)
            for span in (*RANGES, (RANGES[0][0], RANGES[-1][1])):
                self.add_row(threads, span, times, copied, error)
            self.idle_burnt += fleet.idle_burnt
            self.busy += fleet.busy
            context.versions.update(
                {e: a["version"] for e, a in fleet.opened.items()})
        for engine, why in fleet.failed.items():
            self.failed.append({"threads": threads, "engine": engine,
                                "failed": why})
            print(f"{threads:3}  {fleets.NAMES[engine]} failed: {why}")

    def chunks(self):
        return [first for span in RANGES
                for first in chunks_of(*span, self.context.settings.chunk_step)]

    def prepare(self, fleet):
        """Compiles what all chunks need, decodes all of them once more, which
        ends the trials of kernels, and compares results. Returns the largest
        difference from ONNX Runtime's, or None where one differs too much."""
        fleet.all("new_decoder", capacity=RANGES[-1][1] + 8)
        for first in self.chunks():
            fleet.all("decode", first=first, count=4)
        for engine in ("limber", *fleets.BESIDES):
            fleet.ask(engine, "settle_decoder", seconds=SETTLE_SECONDS,
                      timeout=900)
        worst = 0.0
        for first in self.chunks():
            with tempfile.TemporaryDirectory() as directory:
                worst = max(worst, decode_and_compare(fleet, first, directory))
        return worst if worst <= 1 else None

    def measure(self, fleet):
        """engine -> [round][chunk] seconds per token; `known`: Limber's at
        signatures that it has planned."""
        times = {e: [] for e in [*fleet.workers, "known"]}
        for i in range(self.context.settings.rounds):
            fleet.all("new_decoder", capacity=RANGES[-1][1] + 16 + 8 * i)
            for rows in times.values():
                rows.append([])
            order = list(fleet.workers)
            order = order[i % len(order):] + order[:i % len(order)]
            for first in self.chunks():
                for engine in order:
                    decode_chunk(fleet, engine, first, times[engine][-1])
                    if engine == "limber":
                        decode_chunk(fleet, engine, first, times["known"][-1])
        return {e: np.array(t) for e, t in times.items()
                if e == "known" or e not in fleet.failed}

    def copied(self, fleet):
        """first token of a range -> bytes of the past that Limber copied."""
        return {first: (fleet.ask("limber", "past_copied", position=first) or
                        {}).get("bytes") for first, _ in RANGES}

    def add_row(self, threads, span, times, copied, error):
        chunks = self.chunks()
        means = {e: mean_over(chunks, span, t) for e, t in times.items()
                 if t.shape == (self.context.settings.rounds, len(chunks))}
        ours, theirs = means.get("limber"), means.get("onnxruntime")
        past = [copied[first] for first, _ in RANGES
                if span[0] <= first < span[1]]
        row = {"threads": threads, "tokens": span, "past_copied": past,
               "max_error": error,
               "seconds": {e: t.tolist() for e, t in means.items()},
               "ratio": {e: stats.Ratio([ours], t).as_json()
                         for e, t in means.items()
                         if e not in ("limber", "known") and ours is not None}}
        known = None
        if theirs is not None and "known" in means:
            known = row["known"] = stats.Ratio([means["known"]],
                                               theirs).as_json()
        self.rows.append(row)
        self.print_row(row, known)

    def print_row(self, row, known):
        cells = [str(row["threads"]), f"{row['tokens'][0]}-{row['tokens'][1]}"]
        for engine in self.context.engines:
            times = row["seconds"].get(engine)
            cells.append(report.ms(stats.median(times)) if times else "-")
        cells += [report.ratio_text(row["ratio"].get(e))
                  for e in self.context.engines[1:]]
        cells += [report.ratio_text(known),
                  "/".join(str(n) for n in sorted(set(row["past_copied"])))]
        if row["max_error"] is None:
            cells.append("WRONG")
        self.table.row(*cells)

    def summary(self):
        print(f"\ngoal: {self.goal}")
        burnt = self.idle_burnt / self.busy if self.busy else 0
        print(f"CPU time of the other engines while one ran: "
              f"{100 * burnt:.1f} %")
        return {"goal": self.goal, "rows": self.rows, "failed": self.failed,
                "idle_burnt": burnt}


def mean_over(chunks, span, times):
    """Seconds per token in each round. Ranges count by their tokens, also where
    chunks are left out."""
    chunks, total = np.array(chunks), 0
    inside = [(first, end) for first, end in RANGES
              if span[0] <= first and end <= span[1]]
    for first, end in inside:
        some = times[:, (chunks >= first) & (chunks < end)]
        total = total + some.mean(axis=1) * (end - first)
    return total / (span[1] - span[0])


def decode_chunk(fleet, engine, first, out):
    response = fleet.run_one(engine, "decode", first=first, count=CHUNK)
    if response:
        out.append(stats.median(response["times"]))


def decode_and_compare(fleet, first, directory):
    """The largest error, relative to what is tolerated."""
    from reference import ATOL, RTOL
    found = {}
    for engine in list(fleet.workers):
        path = str(Path(directory) / f"{engine}.npz")
        if fleet.ask(engine, "decode", first=first, count=CHUNK, save=path):
            with np.load(path) as arrays:
                found[engine] = [arrays[name] for name in arrays.files]
    if "limber" not in found or "onnxruntime" not in found:
        return 0.0
    return max(float((np.abs(a - b) / (ATOL + RTOL * np.abs(b))).max())
               for a, b in zip(found["limber"], found["onnxruntime"]))
