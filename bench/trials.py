"""Suite `trials`: kernels on trial against the code that they replace. How many
were kept and how many demoted; whether runs are slower with trials once all are
decided; and whether kernels that are 1.5 times slower on purpose are demoted
(bench/planted/planted.c)."""

import collections

import fleet as fleets
import report
import stats
import suite

# Trials of kernels with a smaller difference may end either way. A planted
# kernel is 1.5 times slower; its step less, as not all of it is the kernel.
CLEAR = 1.25
MOST = 400    # runs of each shape
TIMED = 30    # runs after all trials are decided


def kernel_of(text):
    return text.split(" pairs: ", 1)[-1]


def usual_ratios(processes):
    """kernel -> its speed relative to the baseline, median over processes."""
    found = collections.defaultdict(list)
    for process in processes:
        for _, _, ratio, text in process["results"]:
            found[kernel_of(text)].append(ratio)
    return {kernel: stats.median(all) for kernel, all in found.items()}


class Trials(suite.ByModel):
    goal = "no kernel as fast as its baseline is demoted; all planted " \
           f"kernels whose steps are {CLEAR} times slower are, in 100 runs"

    def __init__(self, context):
        self.context = context
        self.rows, self.failed = [], []
        self.table = report.Table(
            [("model", 8), ("thr", 3), ("tried", 6), ("faster", 6),
             ("equal", 5), ("demoted", 7), ("wrong", 5), ("planted", 7),
             ("found", 5), ("runs", 5), ("settled ms", 10), ("untried", 7)],
            numbers=2)

    def process(self, model, threads, listens, **more):
        worker = fleets.Worker("limber", model.name, threads,
                               {**self.context.environments["limber"], **more})
        shapes = model.fixed[:self.context.settings.fixed]
        try:
            return worker("trials", timeout=3600, shapes=shapes, most=MOST,
                          listens=listens, count=TIMED)
        except fleets.Failed as failure:
            self.failed.append({"model": model.name, "threads": threads,
                                "failed": str(failure)})
            print(f"{model.name:8}  {threads:3}  failed: {failure}", flush=True)
            return None
        finally:
            worker.close()

    def run_model(self, model, threads):
        planted = str(self.context.build / "bench" / "planted")
        tried, slow, timed, untried = [], [], [], []
        for i in range(self.context.settings.processes):
            def process(listens, **more):
                return self.process(model, threads, listens, **more)
            tried.append(process(True))
            slow.append(process(True, LIMBER_JIT_PATH=planted))
            for trials in ("on", "off") if i % 2 else ("off", "on"):
                (timed if trials == "on" else untried).append(
                    process(False, LIMBER_KERNEL_TRIALS=trials))
        if None not in tried + slow + timed + untried:
            self.print_row(model, threads, tried, slow, (timed, untried))

    def print_row(self, model, threads, tried, slow, settled):
        found = collections.Counter(
            reason for p in tried for _, reason, _, _ in p["results"])
        usual, planted = usual_ratios(tried), usual_ratios(slow)
        wrong = sum(name == "kernel_demoted" and usual[kernel_of(text)] > 0.97
                    for p in tried for name, _, _, text in p["results"])
        results = [name for p in slow for name, _, _, text in p["results"]
                   if planted[kernel_of(text)] < 1 / CLEAR]
        clear, out = len(results), results.count("kernel_demoted")
        times = [[stats.median(of) for p in group for of in p["times"]]
                 for group in settled]
        row = {"model": model.name, "threads": threads, "found": found,
               "wrong": wrong, "clear": clear, "out": out, "tried": tried,
               "slow": slow, "timed": settled,
               "settled": stats.geomean(times[0]),
               "untimed": stats.geomean(times[1])}
        self.rows.append(row)
        self.table.row(
            model.name, str(threads), str(sum(found.values())),
            str(found["faster"]), str(found["no_difference"]),
            str(found["slower"]),
            str(wrong), str(clear), str(out),
            f"{stats.median([p['runs'] for p in tried]):.0f}",
            report.ms(row["settled"]), report.ms(row["untimed"]))

    def summary(self):
        def total(name):
            return sum(row[name] for row in self.rows)
        tried = sum(sum(row["found"].values()) for row in self.rows)
        demoted = sum(row["found"]["slower"] for row in self.rows)
        print(f"\ngoal: {self.goal}")
        print(f"trials: {tried}, demoted: {demoted}, of these wrongly (the "
              f"median over processes is not slower): {total('wrong')}; "
              f"planted kernels that are slower: {total('clear')}, of these "
              f"demoted: {total('out')}")
        ratio = stats.geomean([row["settled"] / row["untimed"]
                               for row in self.rows])
        if ratio:
            print(f"settled, with trials / without: geomean {ratio:.3f}")
        return {"goal": self.goal, "rows": self.rows, "failed": self.failed,
                "ratio": ratio}
