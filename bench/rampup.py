"""Suite `rampup`: how soon a fresh process that compiles in the background
reaches its final speed, while requests come back to back.

A second process has reached its final speed already. The two alternate on the
same requests, so that noise of the machine affects both. While the second one
runs, the fresh one is stopped, and that time is not counted for it."""

from pathlib import Path

import numpy as np

import fleet as fleets
import plot
import report
import suite

AT = (1, 10, 50, 200)  # numbers of the requests that the table shows
FRESH = 5  # processes whose first request is measured
SECONDS = 10
ROUND = 20, 0.5  # requests and seconds, both minima of a round
AROUND = 10   # neighbours on each side, averaged to smooth a request's share
AROUND_SECONDS = 0.25
WANTED = 0.95
POINTS = 60   # of a curve


class Curve:
    """Times of runs, and of the same runs at the final speed."""

    def __init__(self, times, final, firsts=()):
        """firsts: shares of the final speed in the first request, one per
        process."""
        self.times, self.final = np.array(times), np.array(final)
        self.firsts = firsts
        self.began = np.cumsum(self.times) - self.times

    def share(self, i):
        """The share of the final speed around request i (from 0); for the first
        request the median of all processes."""
        if i == 0 and len(self.firsts):
            return float(np.median(self.firsts))
        width = min(AROUND, i)
        part = slice(i - width, i + width + 1)
        return float(self.final[part].sum() / self.times[part].sum())

    def share_at(self, seconds):
        """The share of the final speed over the requests that began within
        AROUND_SECONDS of `seconds`."""
        part = np.abs(self.began - seconds) <= AROUND_SECONDS
        return float(self.final[part].sum() / self.times[part].sum())

    def points(self):
        counts = np.geomspace(1, len(self.times), POINTS).astype(int)
        return [(int(n), self.share(n - 1)) for n in np.unique(counts)]


class Rampup(suite.ByModel):
    goal = (f"share of the final speed >= 0.7 at request 1, >= {WANTED} by "
            f"request 200 or {SECONDS} s")

    def __init__(self, context):
        self.context = context
        self.rows, self.failed, self.curves = [], [], {}
        self.table = report.Table(
            [("model", 8), ("thr", 3), ("requests", 8),
             *[(f"at {n}", 6) for n in AT], (f"{SECONDS} s", 6),
             ("kernels", 7), ("pending", 7), ("goal", 6)], numbers=2)

    def run_model(self, model, threads):
        fresh, final = [self.worker(model, threads) for _ in range(2)]
        shapes = model.stream_draws(max(AT), seed=1)
        try:
            for worker in (final, fresh):
                worker("open")
                worker("shapes", shapes=shapes, seed=1)
            final("become_final", timeout=3600)
            firsts = [self.first_share(model, threads, shapes, final)
                      for _ in range(FRESH - 1)]
            times, final_times = self.rounds(fresh, final)
            firsts.append(final_times[0] / times[0])
            self.print_row(model, threads, Curve(times, final_times, firsts),
                           fresh("stats")["stats"])
        except fleets.Failed as failure:
            self.failed.append({"model": model.name, "threads": threads,
                                "failed": str(failure)})
            print(f"{model.name:8}  {threads:3}  failed: {failure}", flush=True)
        finally:
            fresh.close()
            final.close()

    def worker(self, model, threads):
        return fleets.Worker("limber", model.name, threads,
                             self.context.environments["limber"])

    def first_share(self, model, threads, shapes, final):
        """The share of the final speed in the first request of a new
        process."""
        fresh = self.worker(model, threads)
        try:
            fresh("open")
            fresh("shapes", shapes=shapes[:1], seed=1)
            [first] = fresh("round", first=0, count=1, seconds=0)["times"]
        finally:
            fresh.close()
        final_times = final("round", first=-1, count=2, seconds=0)["times"][1]
        return final_times / first

    def rounds(self, fresh, final):
        """Times of the same requests in the fresh and in the final process."""
        times, final_times = [], []
        seconds = self.context.settings.curve_seconds
        while len(times) < max(AT) + AROUND or sum(times) < seconds:
            first, (count, seconds_each) = len(times), ROUND
            times += fresh("round", first=first, count=count,
                           seconds=seconds_each)["times"]
            fresh.freeze()
            # One more run comes first, and its time is dropped, because it
            # finds processor and caches cold.
            final_times += final("round", first=first - 1, seconds=0,
                             count=len(times) - first + 1)["times"][1:]
            fresh.thaw()
        return times, final_times

    def print_row(self, model, threads, curve, stats):
        shares = [curve.share(n - 1) for n in AT]
        late = curve.share_at(SECONDS)
        good = shares[0] >= 0.7 and max(shares[-1], late) >= WANTED
        self.rows.append({"model": model.name, "threads": threads,
                          "share": dict(zip(AT, shares)), "late": late,
                          "good": good, "times": curve.times.tolist(),
                          "final": curve.final.tolist(),
                          "firsts": list(curve.firsts), "stats": stats})
        self.curves[f"{model.name}, {threads}"] = curve.points()
        self.table.row(model.name, str(threads), str(len(curve.times)),
                       *[f"{s:.2f}" for s in shares], f"{late:.2f}",
                       str(stats["kernels"]), str(stats["kernels_pending"]),
                       "yes" if good else "NO")

    def summary(self):
        print(f"\ngoal: {self.goal}")
        print(f"reached by {sum(row['good'] for row in self.rows)} of "
              f"{len(self.rows)}")
        if self.context.plot and self.curves:
            Path(self.context.plot).write_text(plot.curves(
                "How soon a fresh process reaches its final speed",
                ("request", "share of the final speed"), self.curves,
                high=1.2, mark=WANTED))
        return {"goal": self.goal, "rows": self.rows, "failed": self.failed}
