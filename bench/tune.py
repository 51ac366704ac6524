"""Suite `tune`: the tile sizes that src/spec/choose.c chooses, against all
others."""

import report
import suite


class Tune(suite.ByShape):
    goal = "the chosen tiles within 3 % of the fastest ones, over all kernels"
    program = "tune"

    def report_shape(self, shape, lines):
        kernels = shape["kernels"]
        if not kernels:
            return
        for kernel in kernels:
            rate(kernel)
        print_kernels(kernels)
        shape["loss"] = sum(k["count"] * k["taken"] for k in kernels) / \
            sum(k["count"] * k["fastest"]["best"] for k in kernels) - 1

    def summary(self):
        for shape in self.shapes:
            if shape["kernels"]:
                print(f"{shape['model']}, {report.dims_text(shape['dims'])}: "
                      f"{100 * shape['loss']:.1f} % slower than the fastest")


def rate(kernel):
    """The chosen tile was measured first and last: its time is the smaller of
    the two, and their difference is the noise."""
    first, *others, last = kernel["tiles"]
    kernel["taken"] = min(first["best"], last["best"])
    kernel["noise"] = max(first["best"], last["best"]) / kernel["taken"] - 1
    kernel["fastest"] = min([dict(first, best=kernel["taken"]), *others],
                            key=lambda tile: tile["best"])


def tile_text(tile):
    return f"{tile['rows']}x{tile['cols'] or '*'}"


def print_kernels(kernels):
    table = report.Table(
        [("form", 9), ("dims", 28), ("count", 5), ("tiles", 5),
         ("chosen", 7), ("us", 8), ("noise", 6), ("fastest", 7), ("us", 8),
         ("slower", 7)], numbers=2)
    for k in sorted(kernels, key=lambda k: -k["count"] * k["taken"]):
        dims = [*map(str, k["loops"]), "x".join(map(str, k["dims"].values()))]
        table.row(k["form"], " ".join(dims), str(k["count"]),
                  str(len(k["tiles"]) - 1), tile_text(k["tiles"][0]),
                  f"{1e6 * k['taken']:.1f}", f"{100 * k['noise']:.0f} %",
                  tile_text(k["fastest"]), f"{1e6 * k['fastest']['best']:.1f}",
                  f"{100 * (k['taken'] / k['fastest']['best'] - 1):.0f} %")
