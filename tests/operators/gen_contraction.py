"""Cases of contractions: matmuls, convolutions, attention, transforms."""

import numpy as np

from case import const, single
from registry import operator


def matmul_shapes(d):
    m, k, n = d.dim(17), d.dim(17), d.dim(17)
    if d.chance(0.2):
        return d.pick([((k,), (k, n)), ((m, k), (k,)), ((k,), (k,))])
    batch = d.shape(0, 2, 4)
    return d.narrowed(batch) + (m, k), d.narrowed(batch) + (k, n)


@operator("MatMul")
def matmul(d):
    a, b = matmul_shapes(d)
    dtype = d.dtype()
    return single(d, [d.array(dtype, a, special=False),
                      d.array(dtype, b, special=False)])


@operator("Gemm")
def gemm(d):
    m, k, n = d.dim(17), d.dim(17), d.dim(17)
    dtype = d.dtype()
    flip_a, flip_b = d.int(0, 1), d.int(0, 1)
    a = d.array(dtype, (k, m) if flip_a else (m, k), special=False)
    b = d.array(dtype, (n, k) if flip_b else (k, n), special=False)
    c = d.array(dtype, d.narrowed((m, n)), special=False)
    if d.version >= 11 and d.chance(0.3):
        c = None
    scalars = [1.0, 0.5, 2.0, 0.0] if a.dtype.kind == "f" else [1.0, 2.0]
    return single(d, [a, b, c], transA=flip_a, transB=flip_b,
                  alpha=d.maybe(d.pick(scalars)),
                  beta=d.maybe(d.pick(scalars)))


def operands_b(d, dtype, shape):
    """Operands B of integer matmuls. int8 values are small: without VNNI, ONNX
    Runtime adds two products in 16 bits."""
    return d.array(dtype, shape, special=dtype != np.int8)


@operator("MatMulInteger")
def matmul_integer(d):
    m, k, n = d.dim(9, 0), d.dim(17, 0), d.dim(9, 0)
    batch = d.shape(0, 1, 4, zero=0)
    a = d.array(d.dtype("T1"), batch + (m, k))
    b = operands_b(d, d.dtype("T2"), (k, n))
    zero_a = d.maybe(d.array(a.dtype, (), 0, 9))
    zero_b = d.maybe(d.array(b.dtype, d.pick([(), (1,), (n,)]), 0, 9))
    return single(d, [a, b, zero_a, zero_b])


@operator("QLinearMatMul")
def qlinear_matmul(d):
    m, k, n = d.dim(9, 0), d.dim(17, 0), d.dim(9, 0)
    a_type, b_type, y_type = (d.pick([np.int8, np.uint8]) for _ in range(3))
    scale = np.float32
    column = d.pick([(), (1,), (n,)])
    return single(d, [
        d.array(a_type, (m, k)), d.array(scale, (), 0.01, 0.1),
        d.array(a_type, (), 0, 9), operands_b(d, b_type, (k, n)),
        const(d.array(scale, column, 0.01, 0.1)),
        const(d.array(b_type, column, 0, 9)),
        d.array(scale, (), 0.05, 0.2), d.array(y_type, (), 0, 9)])


# -- windows of convolutions and pooling --------------------------------------


def window(d, image, dilate=True, ceil=False):
    """Attributes of a window that fits the feature map: kernel_shape etc."""
    rank = len(image)
    kernel = [d.int(1, min(4, n)) for n in image]
    dilations = [d.int(1, max(1, min(3, (n - 1) // max(1, k - 1))))
                 if dilate and d.chance(0.3) else 1
                 for n, k in zip(image, kernel)]
    attrs = {"kernel_shape": kernel,
             "strides": d.maybe([d.int(1, 3) for _ in range(rank)])}
    if dilate and any(n > 1 for n in dilations):
        attrs["dilations"] = dilations
    style = d.int(0, 5)
    if style < 2:
        attrs["pads"] = [d.int(0, k - 1) for _ in range(2) for k in kernel]
    elif style == 2:
        attrs["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if attrs["auto_pad"] != "VALID":
            attrs.pop("dilations", None)
    return attrs


def conv_parts(d, transposed=False):
    """(feature map shape, weight shape, attributes, output channels)"""
    rank = d.pick([1, 2, 2, 3])
    image = d.shape(rank, rank, 9, zero=0, budget=150)
    groups = d.pick([1, 1, 1, 2, 3])
    c_in, c_out = groups * d.int(1, 3), groups * d.int(1, 3)
    if d.chance(0.15):  # depthwise
        groups = c_out = c_in
    attrs = window(d, image)
    attrs["group"] = groups
    ends = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
    weight = ends + tuple(attrs["kernel_shape"])
    if d.chance(0.3):
        attrs["kernel_shape"] = None
    return (d.int(1, 2), c_in) + image, weight, attrs, c_out


@operator("Conv")
def conv(d):
    x, w, attrs, c_out = conv_parts(d)
    dtype = d.dtype()
    bias = d.maybe(d.array(dtype, (c_out,), -1, 1))
    return single(d, [d.array(dtype, x, special=False),
                      d.array(dtype, w, -1, 1), bias], **attrs)


@operator("ConvTranspose")
def conv_transpose(d):
    x, w, attrs, c_out = conv_parts(d, transposed=True)
    dtype = d.dtype()
    strides = attrs["strides"] or [1] * (len(x) - 2)
    if d.chance(0.4):
        attrs["output_padding"] = [d.int(0, s - 1) for s in strides]
    if d.chance(0.2):
        attrs.pop("pads", None)
        attrs.pop("output_padding", None)
        dilations = attrs.get("dilations") or [1] * len(strides)
        attrs["output_shape"] = [
            max(1, s * (n - 1) + (k - 1) * l + 1 - d.int(0, 1))
            for s, n, k, l in zip(strides, x[2:], w[2:], dilations)]
    bias = d.maybe(d.array(dtype, (c_out,), -1, 1))
    return single(d, [d.array(dtype, x, special=False),
                      d.array(dtype, w, -1, 1), bias], **attrs)


@operator("ConvInteger")
def conv_integer(d):
    x, w, attrs, c_out = conv_parts(d)
    x_type, w_type = d.dtype("T1"), d.dtype("T2")
    zero_w = d.maybe(d.array(w_type, (), 0, 9))
    return single(d, [d.array(x_type, x), operands_b(d, w_type, w),
                      d.maybe(d.array(x_type, (), 0, 9)), zero_w], **attrs)


@operator("QLinearConv")
def qlinear_conv(d):
    x, w, attrs, c_out = conv_parts(d)
    x_type, w_type = d.pick([np.int8, np.uint8]), d.pick([np.int8, np.uint8])
    per = d.pick([(), (c_out,)])
    zero_w = np.zeros(per, w_type) if per else d.array(w_type, per, 0, 9)
    return single(d, [
        d.array(x_type, x), d.array(np.float32, (), 0.01, 0.1),
        d.array(x_type, (), 0, 9), const(operands_b(d, w_type, w)),
        const(d.array(np.float32, per, 0.01, 0.1)), const(zero_w),
        d.array(np.float32, (), 0.05, 0.2), d.array(x_type, (), 0, 9),
        d.maybe(const(d.array(np.int32, (c_out,), -50, 50)))], **attrs)


@operator("DeformConv")
def deform_conv(d):
    groups, offset_groups = d.int(1, 2), d.int(1, 2)
    c_in, c_out = groups * offset_groups, groups * d.int(1, 2)
    image = (d.int(3, 7), d.int(3, 7))
    kernel = (d.int(1, 3), d.int(1, 3))
    strides = [d.int(1, 2), d.int(1, 2)]
    pads = [d.int(0, 1) for _ in range(4)]
    out = tuple((image[i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1
                for i in range(2))
    area = offset_groups * kernel[0] * kernel[1]
    n = d.int(1, 2)
    dtype = d.dtype()
    return single(d, [
        d.array(dtype, (n, c_in) + image, -2, 2),
        d.array(dtype, (c_out, c_in // groups) + kernel, -1, 1),
        d.array(dtype, (n, 2 * area) + out, -2, 2),
        d.maybe(d.array(dtype, (c_out,), -1, 1)),
        d.maybe(d.array(dtype, (n, area) + out, 0, 1))],
        strides=strides, pads=pads, group=groups, offset_group=offset_groups,
        kernel_shape=d.maybe(list(kernel)))


@operator("Col2Im")
def col2im(d):
    rank = d.int(1, 3)
    block = [d.int(1, 3) for _ in range(rank)]
    image = [d.int(k, 6) for k in block]
    strides = [d.int(1, 2) for _ in range(rank)]
    pads = [d.int(0, 1) for _ in range(2 * rank)]
    columns = np.prod([(n + pads[i] + pads[i + rank] - k) // s + 1
                       for i, (n, k, s) in enumerate(zip(image, block,
                                                         strides))])
    x = d.array(d.dtype(), (d.int(1, 2), d.int(1, 2) * int(np.prod(block)),
                            int(columns)), special=False)
    return single(d, [x, d.ints(image), d.ints(block)], strides=strides,
                  pads=pads)


# -- einsum, attention, transforms --------------------------------------------

EQUATIONS = ("ij,jk->ik", "ij,jk", "bij,bjk->bik", "...ij,...jk->...ik",
             "ij->ji", "ij->", "ij->i", "ii->i", "ii->", "ii", "i,j->ij",
             "i,i->", "ij,ij->ij", "bhid,bhjd->bhij", "bhij,bhjd->bhid",
             "...ij->...ji", "ij,jk,kl->il", "ba", "abc,cd->abd",
             " ij , jk -> ik ", "...i,...i->...", "aij,akj->aik", "ijk->kij",
             "i...->...i", "ab,ab->a", "iij->ij", "ahi,hij,ah->aj",
             "ab,bc,cd,d->a", "ab,ab,bc->ac", "ab,cd,bc->ad", "a,b,c->abc",
             "abc,abd,bd->cd", "ab,ac,bc->")


@operator("Einsum")
def einsum(d):
    equation = d.pick(EQUATIONS)
    # No empty dims: ONNX Runtime divides by them.
    sizes = {c: d.dim(5, 0) for c in "abcdhijkl"}
    batch = d.shape(0, 2, 3, zero=0)
    dtype = d.dtype()
    inputs = []
    for term in equation.split("->")[0].replace(" ", "").split(","):
        shape = []
        for piece in term.replace("...", "."):
            # All of one rank: ONNX Runtime crashes where ranks differ.
            shape += [d.pick([n, n, 1]) for n in batch] if piece == "." \
                else [sizes[piece]]
        inputs.append(d.array(dtype, shape, special=False))
    return single(d, inputs, equation=equation)


def attention_heads(d):
    kv = d.int(1, 2)
    return kv * d.int(1, 2), kv


@operator("Attention")
def attention(d):
    batch, (q_heads, kv_heads) = d.int(1, 2), attention_heads(d)
    q_len, kv_len, past = d.dim(5, 0), d.dim(7, 0), d.maybe(d.int(1, 4), 0.3)
    size, v_size = d.pick([1, 2, 4, 8]), d.pick([1, 2, 4, 8])
    dtype = np.float32
    q = d.array(dtype, (batch, q_heads, q_len, size), -2, 2)
    k = d.array(dtype, (batch, kv_heads, kv_len, size), -2, 2)
    v = d.array(dtype, (batch, kv_heads, kv_len, v_size), -2, 2)
    attrs = {}
    if d.chance(0.4):
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1)
                   for x in (q, k, v))
        attrs = {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
    pasts = [None, None]
    if past:
        pasts = [d.array(dtype, (batch, kv_heads, past, s), -2, 2)
                 for s in (size, v_size)]
    whole = (batch, q_heads, q_len, kv_len + (past or 0))
    lead = d.pick([(), whole[1:2], whole[:2], (1, 1)])
    mask = d.maybe(d.array(d.pick([np.bool_, np.float32]), lead + whole[2:],
                           -2, 2))
    if mask is not None and mask.dtype == np.bool_:
        mask[..., 0] = True
    n_out = 4 if d.chance(0.3) else 3 if past else 1
    mode = d.maybe(d.int(0, 3)) if n_out == 4 else None
    return single(d, [q, k, v, mask, *pasts], n_out,
                  is_causal=d.maybe(d.int(0, 1)), softcap=d.maybe(2.0, 0.3),
                  scale=d.maybe(d.real(0.1, 1)), qk_matmul_output_mode=mode,
                  **attrs)


@operator("RotaryEmbedding")
def rotary(d):
    batch, heads, length = d.int(1, 2), d.int(1, 3), d.int(1, 5)
    size = d.pick([2, 4, 8, 16])
    rotated = d.pick([k for k in (2, 4, 8, 16) if k <= size])
    dtype = d.dtype()
    x = d.array(dtype, (batch, heads, length, size), -2, 2)
    flat = d.chance(0.4)
    if flat:
        x = x.transpose(0, 2, 1, 3).reshape(batch, length, -1)
    at = d.maybe(d.array(np.int64, (batch, length), 0, 6))
    lead = (batch, length) if at is None else (7,)
    caches = [d.array(dtype, lead + (rotated // 2,), -1, 1) for _ in range(2)]
    return single(d, [x, *caches, at], interleaved=d.maybe(d.int(0, 1)),
                  num_heads=heads if flat else None,
                  rotary_embedding_dim=rotated if rotated < size else None)


@operator("Det")
def det(d):
    n = d.int(1, 5)
    return single(d, [d.array(d.dtype(), d.shape(0, 2, 4) + (n, n), -2, 2)])


@operator("DFT")
def dft(d):
    parts = d.int(1, 2)
    shape = d.shape(2, 3, 17, zero=0) + (parts,)
    axis = d.int(0 if d.version >= 20 else 1, len(shape) - 2)
    length = d.maybe(np.array(d.int(1, 17), d.dtype("T2")), 0.3)
    inverse = d.maybe(d.int(0, 1)) if parts == 2 else None
    onesided = d.maybe(d.int(0, 1)) if parts == 1 else None
    x = d.array(d.dtype("T1"), shape, -3, 3)
    if d.version < 20:
        return single(d, [x, length], axis=axis, inverse=inverse,
                      onesided=onesided)
    if d.chance(0.4):
        axis -= len(shape)
    return single(d, [x, length, np.array(axis, np.int64)], inverse=inverse,
                  onesided=onesided)


@operator("STFT")
def stft(d):
    length, frame = d.int(16, 40), d.pick([3, 4, 7, 8, 16])
    parts = d.pick([1, 1, 2])
    dtype = d.dtype("T1")
    flat = parts == 1 and d.chance(0.3)     # ONNX Runtime accepts this, too
    x = d.array(dtype, (d.int(1, 2), length) + (() if flat else (parts,)), -3,
                3)
    whole = d.dtype("T2")
    win = d.maybe(d.array(dtype, (frame,), 0, 1))
    size = np.array(frame, whole) if win is None else d.maybe(
        np.array(frame, whole))
    onesided = 0 if parts == 2 else d.maybe(d.int(0, 1))
    return single(d, [x, np.array(d.int(1, 5), whole), win, size],
                  onesided=onesided)


# -- recurrent ----------------------------------------------------------------

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign")
PER_DIRECTION = {"LSTM": 3, "GRU": 2, "RNN": 1}


@operator("LSTM", "GRU", "RNN")
def recurrent(d):
    steps, batch = d.int(1, 5), d.int(1, 3)
    size, gates = d.int(1, 5), GATES[d.op]
    hidden = d.int(1, 5) if d.chance(0.7) else d.int(15, 33)
    direction = d.pick(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    late = d.version >= 14 and d.chance(0.3)
    dtype = d.dtype()

    def draw(*shape):
        return d.array(dtype, shape, -1, 1)

    def state():
        return draw(*((batch, ways, hidden) if late else
                      (ways, batch, hidden)))

    weights = [draw(ways, gates * hidden, size),
               draw(ways, gates * hidden, hidden),
               d.maybe(draw(ways, 2 * gates * hidden))]
    if d.chance(0.7):  # as models have them
        weights = [const(w) for w in weights]
    inputs = [draw(*((batch, steps, size) if late else (steps, batch, size))),
              *weights,
              d.maybe(d.array(np.int32, (batch,), 1, steps), 0.3),
              d.maybe(state())]
    attrs = {"direction": direction, "hidden_size": hidden,
             "layout": 1 if late else None,
             "clip": d.maybe(d.real(0.2, 2), 0.2)}
    if d.chance(0.3):
        attrs["activations"] = [d.pick(ACTIVATIONS) for _ in range(
            PER_DIRECTION[d.op] * ways)]
    if d.op == "LSTM":
        inputs += [d.maybe(state()), d.maybe(draw(ways, 3 * hidden), 0.3)]
        attrs["input_forget"] = d.maybe(d.int(0, 1), 0.3)
    if d.op == "GRU":
        attrs["linear_before_reset"] = d.maybe(d.int(0, 1))
    outputs = 3 if d.op == "LSTM" else 2
    absent = [i for i in range(outputs) if d.chance(0.3)][:outputs - 1]
    return single(d, inputs, outputs, absent, **attrs)
