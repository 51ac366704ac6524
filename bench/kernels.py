"""Suite `kernels`: every kernel of a model against the roofline of one core."""

import report
import suite

# Share of the roofline that a kernel must reach; elementwise and data movement
# kernels need less.
GOOD, GOOD_ELTWISE = 0.9, 0.7


class Kernels(suite.ByShape):
    goal = "85 % of kernel time at >= 90 % of the roofline (elementwise and " \
           "movement: 70 %)"
    program = "kernels"

    def report_shape(self, shape, lines):
        kernels = shape["kernels"]
        shape["share_good"] = 0.0
        if kernels:
            rate(kernels)
            shape["share_good"] = sum(k["share"] for k in kernels if k["good"])
            print_kernels(kernels)
        if lines and "launches" in lines[-1]:
            shape["model_facts"] = lines[-1]
            print_total(shape)

    def summary(self):
        for model in self.context.models:
            some = [s for s in self.shapes
                    if s["model"] == model.name and s["kernels"]]
            if some:
                print(f"{model.name}: " + ", ".join(
                    f"{100 * s['share_good']:.0f} %" for s in some)
                    + "; " + of_all([k for s in some for k in s["kernels"]]))


def rate(kernels):
    """Adds to each kernel its share of the kernel time, its seconds at the
    roofline, and whether it reaches GOOD or GOOD_ELTWISE."""
    total = sum(k["count"] * k["median"] for k in kernels)
    for k in kernels:
        k["share"] = k["count"] * k["median"] / total
        k["roofline"] = k["fraction"] * k["median"]
        k["good"] = k["fraction"] >= (GOOD_ELTWISE if k["form"] == "eltwise"
                                      else GOOD)


def of_all(kernels):
    """Describes the kernels of all shapes, weighted by time: the share that is
    good, and the mean share of the roofline."""
    def seconds(which, some=kernels):
        return sum(k["count"] * k[which] for k in some)
    good = seconds("median", [k for k in kernels if k["good"]])
    return f"{100 * good / seconds('median'):.0f} % of all time, which is at " \
           f"{100 * seconds('roofline') / seconds('median'):.0f} % of the " \
           "roofline"


def print_kernels(kernels):
    table = report.Table(
        [("form", 9), ("dims", 28), ("count", 5), ("us", 8), ("best", 8),
         ("share", 6), ("GFLOP/s", 8), ("GB/s", 7), ("bound", 9),
         ("of roof", 7)], numbers=2)
    for k in sorted(kernels, key=lambda k: -k["share"]):
        dims = [*map(str, k["loops"]), "x".join(map(str, k["dims"].values()))]
        bound = k["bound"] if k["bound"] == "fma" else k["level"]
        table.row(k["form"], " ".join(dims), str(k["count"]),
                  f"{1e6 * k['median']:.1f}", f"{1e6 * k['best']:.1f}",
                  f"{100 * k['share']:.1f} %",
                  f"{1e-9 * k['flops'] / k['median']:.1f}",
                  f"{1e-9 * k['bytes'] / k['median']:.1f}", bound,
                  f"{100 * k['fraction']:.0f} %",
                  "" if k["good"] else "below",
                  f"{k['spec']} [{k['facts']}]")


def print_total(out):
    facts = out["model_facts"]
    total = sum(k["count"] * k["median"] for k in out["kernels"])
    roofline = sum(k["count"] * k["roofline"] for k in out["kernels"])
    print(f"{facts['launches']} launches of {len(out['kernels'])} kernels, "
          f"{1e3 * total:.3g} ms, at the roofline {1e3 * roofline:.3g} "
          f"ms; without {facts['reference_steps']} steps of reference kernels"
          + (" and without stages whose shapes depend on data"
             if facts["later_stages"] else ""))
    print(f"share of kernel time that is good: {100 * out['share_good']:.0f} %")
