"""Suite `curves`: how soon a fresh process has its final speed, compiling in
the background, while requests come back to back.

Another process has that speed already. The two take turns at the same requests,
so that whatever else slows the machine down slows both; the fresh one is
stopped, and its time with it, while the other has its turn."""

from pathlib import Path

import numpy as np

import fleet as fleets
import plot
import report
import suite

AT = (1, 10, 50, 200)  # requests
FRESH = 5  # processes, each of which has a first request
SECONDS = 10
TURN = 20, 0.5  # requests, and seconds, at least
AROUND = 10   # as many neighbours on each side smooth the share of a request
AROUND_SECONDS = 0.25
WANTED = 0.95
POINTS = 60   # of a curve


class Curve:
    """What runs took, beside what the same runs took at the final speed."""

    def __init__(self, times, final, firsts=()):
        """firsts: shares of the first request, of several processes."""
        self.times, self.final = np.array(times), np.array(final)
        self.firsts = firsts
        self.began = np.cumsum(self.times) - self.times

    def share(self, i):
        """Of the final speed, around request i (from 0); of the first request
        the median of all processes."""
        if i == 0 and len(self.firsts):
            return float(np.median(self.firsts))
        width = min(AROUND, i)
        part = slice(i - width, i + width + 1)
        return float(self.final[part].sum() / self.times[part].sum())

    def share_at(self, seconds):
        """Of the requests that began around then."""
        part = np.abs(self.began - seconds) <= AROUND_SECONDS
        return float(self.final[part].sum() / self.times[part].sum())

    def points(self):
        places = np.unique(np.geomspace(1, len(self.times), POINTS).astype(int))
        return [(int(n), self.share(n - 1)) for n in places]


class Curves(suite.ByModel):
    goal = (f"share of the final speed >= 0.7 at request 1, >= {WANTED} by "
            f"request 200 or {SECONDS} s")

    def __init__(self, context):
        self.context = context
        self.rows, self.failed, self.curves = [], [], {}
        self.table = report.Table(
            [("model", 8), ("thr", 3), ("requests", 8),
             *[(f"at {n}", 6) for n in AT], (f"{SECONDS} s", 6),
             ("kernels", 7), ("lacking", 7), ("goal", 6)], numbers=2)

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
            times, at_last = self.turns(fresh, final)
            firsts.append(at_last[0] / times[0])
            self.print_row(model, threads, Curve(times, at_last, firsts),
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
        """Of the final speed, in the first request of one more process."""
        fresh = self.worker(model, threads)
        try:
            fresh("open")
            fresh("shapes", shapes=shapes[:1], seed=1)
            [first] = fresh("round", first=0, count=1, seconds=0)["times"]
        finally:
            fresh.close()
        at_last = final("round", first=-1, count=2, seconds=0)["times"][1]
        return at_last / first

    def turns(self, fresh, final):
        """What requests took, of each."""
        times, at_last = [], []
        seconds = self.context.settings.curve_seconds
        while len(times) < max(AT) + AROUND or sum(times) < seconds:
            first, (count, turn) = len(times), TURN
            times += fresh("round", first=first, count=count,
                           seconds=turn)["times"]
            fresh.freeze()
            # One more before, which finds processor and caches cold.
            at_last += final("round", first=first - 1, seconds=0,
                             count=len(times) - first + 1)["times"][1:]
            fresh.thaw()
        return times, at_last

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
                "How soon a fresh process has its final speed",
                ("request", "share of the final speed"), self.curves,
                high=1.2, mark=WANTED))
        return {"goal": self.goal, "rows": self.rows, "failed": self.failed}
