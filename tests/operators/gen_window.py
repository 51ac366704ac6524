"""Cases of pooling and of resampling."""

import numpy as np

from case import const, single
from gen_contraction import window
from registry import operator


def image(d, dtype, most=9, rank=None):
    rank = rank or d.pick([1, 2, 2, 3])
    shape = (d.int(1, 2), d.int(1, 3)) + d.shape(rank, rank, most, zero=0,
                                                 budget=150)
    return d.array(dtype, shape, special=False)


@operator("AveragePool", "LpPool", "MaxPool")
def pool(d):
    since = {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}[d.op]
    x = image(d, d.dtype())
    attrs = window(d, x.shape[2:], dilate=d.version >= since)
    if d.version >= (10 if d.op != "LpPool" else 18):
        attrs["ceil_mode"] = d.maybe(d.int(0, 1))
    if d.op == "AveragePool":
        attrs["count_include_pad"] = d.maybe(d.int(0, 1))
    if d.op == "LpPool":
        attrs["p"] = d.maybe(d.int(1, 3))
    n_out = 1
    if d.op == "MaxPool" and d.version >= 8 and d.chance(0.5):
        n_out = 2
        attrs["storage_order"] = d.maybe(d.int(0, 1))
    return single(d, [x], n_out, **attrs)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d):
    return single(d, [image(d, d.dtype())],
                  p=d.maybe(d.int(1, 3)) if d.op == "GlobalLpPool" else None)


@operator("MaxUnpool")
def max_unpool(d):
    out = (d.int(1, 2), d.int(1, 2), 2 * d.int(1, 4), 2 * d.int(1, 4))
    pooled = out[:2] + (out[2] // 2, out[3] // 2)
    area = out[2] * out[3]
    planes = np.arange(pooled[0] * pooled[1]).reshape(pooled[:2] + (1, 1))
    cells = [d.rng.permutation(area)[:pooled[2] * pooled[3]]
             for _ in range(planes.size)]
    at = np.array(cells, np.int64).reshape(pooled) + planes * area
    shape = d.maybe(d.ints(out))
    return single(d, [d.array(d.dtype("T1"), pooled), at, shape],
                  kernel_shape=[2, 2], strides=[2, 2])


# -- resampling ---------------------------------------------------------------


@operator("Upsample")
def upsample(d):
    x = image(d, d.dtype(), 7, 2)
    scales = [1.0, 1.0] + [d.pick([1.0, 2.0, 3.0, 1.5]) for _ in range(2)]
    mode = d.maybe(d.pick(["nearest", "linear"]))
    if d.version < 9:
        return single(d, [x], mode=mode, scales=scales)
    return single(d, [x, np.array(scales, np.float32)], mode=mode)


def resize_attrs(d, mode):
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    if d.version >= 19:
        modes.append("half_pixel_symmetric")
    if d.version < 13 and mode == "nearest":
        modes.append("tf_half_pixel_for_nn")
    attrs = {"mode": mode,
             "coordinate_transformation_mode": d.maybe(d.pick(modes), 0.8)}
    if mode == "nearest":
        attrs["nearest_mode"] = d.maybe(d.pick(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if mode == "cubic":
        attrs["cubic_coeff_a"] = d.maybe(d.pick([-0.5, -0.75]))
        attrs["exclude_outside"] = d.maybe(d.int(0, 1))
    if d.version >= 18 and mode != "nearest":
        attrs["antialias"] = d.maybe(d.int(0, 1), 0.3)
    return attrs


@operator("Resize")
def resize(d):
    mode = d.pick(["nearest", "linear", "cubic"])
    if d.version < 11:
        mode = d.pick(["nearest", "linear"])
    x = image(d, d.dtype("T1" if d.version >= 11 else "T",
                         "f" if mode == "cubic" else None), 9,
              2 if mode == "cubic" else None)
    rank = x.ndim - 2
    scales = [d.pick([1.0, 2.0, 0.5, 1.5, 3.0, 0.75, 1.3])
              for _ in range(rank)]
    if d.version < 11:
        return single(d, [x, np.array([1, 1, *scales], np.float32)], mode=mode)
    attrs = resize_attrs(d, mode)
    lead = [1.0, 1.0]
    if d.version >= 18 and d.chance(0.3):
        lead = []
        attrs["axes"] = list(range(2, x.ndim))
    roi = None
    if d.version < 13:
        roi = const(np.zeros(0, np.float32))
    if d.chance(0.5):
        return single(d, [x, roi, np.array(lead + scales, np.float32)],
                      **attrs)
    sizes = [d.int(1, 12) for _ in range(rank)]
    if lead:
        sizes = list(x.shape[:2]) + sizes
    if d.version >= 18 and d.chance(0.3):
        attrs["keep_aspect_ratio_policy"] = d.pick(
            ["stretch", "not_larger", "not_smaller"])
    empty = const(np.zeros(0, np.float32)) if d.version < 13 else None
    return single(d, [x, roi, empty, d.ints(sizes)], **attrs)


@operator("GridSample")
def grid_sample(d):
    rank = 2 if d.version < 20 else d.int(2, 3)
    x = image(d, d.dtype("T1"), 7, rank)
    shape = (x.shape[0],) + d.shape(rank, rank, 5, zero=0) + (rank,)
    modes = ["bilinear", "nearest", "bicubic"] if d.version < 20 else \
        ["linear", "nearest"] + ["cubic"] * (rank == 2)
    grid = d.array(d.dtype("T2") if d.version >= 20 else np.float32, shape,
                   -1.5, 1.5)
    return single(d, [x, grid], mode=d.maybe(d.pick(modes)),
                  padding_mode=d.maybe(d.pick(["zeros", "border",
                                               "reflection"])),
                  align_corners=d.maybe(d.int(0, 1)))


@operator("AffineGrid")
def affine_grid(d):
    rank = d.int(2, 3)
    n = d.int(1, 2)
    size = [n, d.int(1, 2)] + [d.int(1, 5) for _ in range(rank)]
    return single(d, [d.array(np.float32, (n, rank, rank + 1), -1, 1),
                      d.ints(size)], align_corners=d.maybe(d.int(0, 1)))


def boxes(d, dtype, count, width, height):
    starts = d.array(dtype, (count, 2), 0, 3)
    sizes = d.array(dtype, (count, 2), 0, min(width, height))
    return np.concatenate([starts, starts + sizes], 1)


@operator("RoiAlign")
def roi_align(d):
    x = image(d, d.dtype("T1"), 9, 2)
    count = d.int(1, 3)
    rois = boxes(d, x.dtype, count, *x.shape[2:])
    batch = d.array(np.int64, (count,), 0, x.shape[0] - 1)
    style = d.maybe(d.pick(["half_pixel", "output_half_pixel"])) \
        if d.version >= 16 else None
    return single(d, [x, rois, batch], mode=d.maybe(d.pick(["avg", "max"])),
                  coordinate_transformation_mode=style,
                  output_height=d.maybe(d.int(1, 3)),
                  output_width=d.maybe(d.int(1, 3)),
                  sampling_ratio=d.maybe(d.int(0, 3)),
                  spatial_scale=d.maybe(d.pick([1.0, 0.5])))


@operator("MaxRoiPool")
def max_roi_pool(d):
    x = image(d, d.dtype(), 9, 2)
    count = d.int(1, 3)
    rois = np.round(boxes(d, x.dtype, count, *x.shape[2:]))
    batch = d.array(x.dtype, (count, 1), 0, 0) + d.int(0, x.shape[0] - 1)
    return single(d, [x, np.concatenate([batch.astype(x.dtype), rois], 1)],
                  pooled_shape=[d.int(1, 3), d.int(1, 3)],
                  spatial_scale=d.maybe(d.pick([1.0, 0.5])))
