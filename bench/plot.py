"""Plots of measurements as SVG."""

import math

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 520, 70, 40, 60
COLOURS = ["#1b6ca8", "#c8553d", "#3a7d44", "#8f5aa8", "#b8860b", "#444444",
           "#1fa3a3", "#d36fa0"]


class LogAxis:
    """A logarithmic axis over whole decades: every tick is a power of ten."""

    def __init__(self, values, start, end):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.start, self.end = start, end

    def position(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        return [10.0**i for i in range(self.low, self.high + 1)]


def number(value):
    return f"{value:g}"


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>' \
           f'{words}</text>'


def line(x1, y1, x2, y2, colour):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" ' \
           f'stroke="{colour}"/>'


def frame(x, y, labels):
    right, floor = WIDTH - 150, HEIGHT - BOTTOM
    out = []
    for tick in x.ticks():
        out.append(line(x.position(tick), TOP, x.position(tick), floor, "#ddd"))
        out.append(text(x.position(tick), floor + 18, number(tick)))
    for tick in y.ticks():
        out.append(line(LEFT, y.position(tick), right, y.position(tick),
                        "#ddd"))
        out.append(text(LEFT - 8, y.position(tick) + 4, number(tick), "end"))
    middle = (TOP + floor) / 2
    out.append(text((LEFT + right) / 2, floor + 42, labels[0]))
    out.append(text(20, middle, labels[1],
                    more=f' transform="rotate(-90 20 {middle:.0f})"'))
    return out


class LinearAxis:
    """A linear axis from 0."""

    def __init__(self, high, step, start, end):
        self.high, self.step, self.start, self.end = high, step, start, end

    def position(self, value):
        share = min(max(value, 0), self.high) / self.high
        return self.start + share * (self.end - self.start)

    def ticks(self):
        return [i * self.step for i in range(round(self.high / self.step) + 1)]


def opening(title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            text((LEFT + WIDTH - 150) / 2, 22, title, more=' font-size="15"')]


def legend(i, name):
    right = WIDTH - 150
    return [f'<circle cx="{right + 16}" cy="{TOP + 18 * i}" r="4" '
            f'fill="{COLOURS[i % len(COLOURS)]}"/>',
            text(right + 26, TOP + 4 + 18 * i, name, "start")]


def curves(title, labels, series, high, mark):
    """An SVG of lines: x logarithmic, y from 0 to high. series: name ->
    [(x, y)], in order; mark: the target y, drawn as a line."""
    right, floor = WIDTH - 150, HEIGHT - BOTTOM
    x = LogAxis([p[0] for points in series.values() for p in points], LEFT,
                right)
    y = LinearAxis(high, 0.2, floor, TOP)
    out = opening(title) + frame(x, y, labels)
    out.append(line(LEFT, y.position(mark), right, y.position(mark), "#888"))
    for i, (name, points) in enumerate(series.items()):
        coords = " ".join(f"{x.position(a):.1f},{y.position(b):.1f}"
                          for a, b in points)
        out.append(f'<polyline points="{coords}" fill="none" stroke-width="1.5"'
                   f' stroke="{COLOURS[i % len(COLOURS)]}"/>')
        out += legend(i, name)
    return "\n".join([*out, "</svg>"]) + "\n"


def scatter(title, labels, series, diagonal=False):
    """An SVG of points, both axes logarithmic. labels: of x and y; series:
    name -> [(x, y)], all above 0; diagonal: draws the line x = y."""
    every = [point for points in series.values() for point in points]
    right, floor = WIDTH - 150, HEIGHT - BOTTOM
    xs, ys = [p[0] for p in every], [p[1] for p in every]
    if diagonal:
        xs = ys = xs + ys
    x, y = LogAxis(xs, LEFT, right), LogAxis(ys, floor, TOP)
    out = opening(title) + frame(x, y, labels)
    if diagonal:
        out.append(line(LEFT, floor, right, TOP, "#888"))
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(f'<g fill="{colour}" fill-opacity="0.55">')
        out += [f'<circle cx="{x.position(a):.1f}" '
                f'cy="{y.position(b):.1f}" r="2"/>'
                for a, b in points]
        out.append("</g>")
        out += legend(i, name)
    return "\n".join([*out, "</svg>"]) + "\n"
