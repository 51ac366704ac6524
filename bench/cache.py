"""Suite `cache`: what a hit, an eviction and the bookkeeping of a run cost, by
the number of entries."""

import json
import re
import shutil
import subprocess

ENTRIES = (1000, 10000, 100000)
GOALS = {("hit", 1000): 200, ("hit", 100000): 1000}  # ns
TRIES = 7  # of bench/cache.c


class Cache:
    def __init__(self, context):
        self.program = str(context.build / "bench" / "cache")
        self.times = 20000 if context.settings.rounds < 9 else 200000

    def run(self):
        rows = [self.row(what, n)
                for what in ("hit", "evict", "run") for n in ENTRIES]
        print("what     entries        ns  instructions      goal")
        for r in rows:
            goal = f"{r['goal']} ns" if r["goal"] else ""
            print(f"{r['what']:6} {r['entries']:9} {r['ns']:9.1f} "
                  f"{r['instructions'] or '-':>13} {goal:>9}")
        return {"rows": rows}

    def row(self, what, entries):
        done = subprocess.run(
            [self.program, what, str(entries), str(self.times)],
            capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        row["instructions"] = self.instructions(what, entries)
        row["goal"] = GOALS.get((what, entries))
        return row

    def instructions(self, what, entries):
        """Instructions of one repetition: the difference between 1,100 and 100
        of them. None without valgrind."""
        if not shutil.which("valgrind"):
            return None
        few, many = (self.count(what, entries, n) for n in (100, 1100))
        return round((many - few) / 1000 / TRIES)

    def count(self, what, entries, times):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
             self.program, what, str(entries), str(times)],
            capture_output=True, text=True, check=True)
        return int(re.search(r"Collected : (\d+)", done.stderr)[1])
