"""A decoder that extends its cache of keys and values by one token at a time,
in Limber and in ONNX Runtime, each as its users write it.

    decoder = LimberDecoder(session, capacity=1024)
    decoder.start(past)           # the arrays of past_key_values.*
    logits = decoder.step(token)  # decoder.seconds: the time of the run

Only the call that runs the model is timed, not the Python code around it.
"""

import time

import c_api
import numpy as np

LAYERS, HEADS, HEAD_SIZE, VOCABULARY = 8, 8, 64, 8000


def token_at(position):
    """The token that all engines decode at a position."""
    return 7919 * position % VOCABULARY


def cache_names(layers, prefix):
    return [f"{prefix}.{i}.{kind}" for i in range(layers)
            for kind in ("key", "value")]


def random_past(length, seed, layers=LAYERS, heads=HEADS, size=HEAD_SIZE):
    rng = np.random.default_rng([seed, length])
    return [rng.standard_normal((1, heads, length, size), np.float32)
            for _ in range(2 * layers)]


class LimberDecoder:
    """Past and present are windows of one buffer for each cache, [1, heads,
    capacity, head size]. `shared=False`: two buffers, used alternately, so that
    every run copies the past."""

    def __init__(self, session, capacity, layers=LAYERS, heads=HEADS,
                 size=HEAD_SIZE, vocabulary=VOCABULARY, shared=True):
        self.session, self.layers = session, layers
        shape = (1, heads, capacity, size)
        self.buffers = [[c_api.aligned(shape) for _ in range(2 * layers)]
                        for _ in range(1 if shared else 2)]
        self.ids, self.position = np.zeros((2, 1, 1), np.int64)
        self.mask = np.ones((1, capacity), np.int64)
        self.logits = np.zeros((1, 1, vocabulary), np.float32)
        self.bound = [self.bind(i) for i in range(len(self.buffers))]

    def bind(self, which):
        """The tensors of the runs that read buffers `which` and write the
        others, if there are others. Only their sizes change."""
        after = self.buffers[(which + 1) % len(self.buffers)]
        of = c_api.Tensor.of
        inputs = [of("input_ids", self.ids), of("position_ids", self.position),
                  of("attention_mask", self.mask)]
        outputs = [of("logits", self.logits)]
        names = zip(cache_names(self.layers, "past_key_values"),
                    cache_names(self.layers, "present"))
        for (past, present), x, y in zip(names, self.buffers[which], after):
            # A window that is shorter than its buffer has strides.
            inputs.append(of(past, x[:, :, :-1]))
            outputs.append(of(present, y[:, :, :-1]))
        return c_api.tensors(inputs), c_api.tensors(outputs)

    def start(self, past):
        self.length = past[0].shape[2]
        for buffers in self.buffers:
            for buffer, x in zip(buffers, past):
                buffer[:, :, :self.length] = x

    def tensors(self, token):
        """The tensors of the next run."""
        self.ids[0], self.position[0] = token, self.length
        inputs, outputs = self.bound[self.length % len(self.bound)]
        for t in inputs[3:]:  # `bytes` 0: as many as the dims say
            t.dims[2], t.bytes = self.length, 0
        self.length += 1
        inputs[2].dims[1], inputs[2].bytes = self.length, 0
        outputs[0].bytes = self.logits.nbytes
        for t in outputs[1:]:
            t.bytes = self.buffers[0][0].nbytes
        return inputs, outputs

    def step(self, token):
        inputs, outputs = self.tensors(token)
        start = time.perf_counter()
        self.session.run(inputs, outputs)
        self.seconds = time.perf_counter() - start
        return self.logits

    def profile(self, token):
        """As step, but returns the steps of the run."""
        return self.session.profile(*self.tensors(token))

    def past_copied(self, token):
        """Decodes a token; returns how many bytes of past keys and values its
        steps moved. The new ones are moved by steps of their own."""
        new = self.buffers[0][0][:, :, :1].nbytes
        moved = [step["bytes"] // 2 for step in self.profile(token)
                 if step["op"] in ("Copy", "Concat")]
        return sum(n for n in moved if n > new)

    def present(self):
        """The keys and values of all tokens so far."""
        buffers = self.buffers[self.length % len(self.buffers)]
        return [b[:, :, :self.length] for b in buffers]


class OnnxRuntimeDecoder:
    """Past and present are dense and bound to two buffers for each cache, used
    alternately: the present of one run is the past of the next."""

    def __init__(self, session, capacity, layers=LAYERS, heads=HEADS,
                 size=HEAD_SIZE, vocabulary=VOCABULARY):
        self.session, self.binding = session, session.io_binding()
        self.heads, self.size = heads, size
        self.buffers = [[c_api.aligned((heads * capacity * size,))
                         for _ in range(2 * layers)] for _ in range(2)]
        self.names = list(zip(cache_names(layers, "past_key_values"),
                              cache_names(layers, "present")))
        self.ids, self.position = np.zeros((2, 1, 1), np.int64)
        self.mask = np.ones((1, capacity), np.int64)
        self.logits = np.zeros((1, 1, vocabulary), np.float32)

    def window(self, which, cache):
        shape = (1, self.heads, self.length, self.size)
        return self.buffers[which][cache][:np.prod(shape)].reshape(shape)

    def start(self, past):
        self.length = past[0].shape[2]
        for i, x in enumerate(past):
            self.window(self.length % 2, i)[:] = x

    def bind(self, names, bind):
        which = self.length % 2
        shape = [1, self.heads, self.length, self.size]
        for name, buffer in zip(names, self.buffers[which]):
            bind(name, "cpu", 0, np.float32, shape, buffer.ctypes.data)

    def step(self, token):
        b = self.binding
        self.ids[0], self.position[0] = token, self.length
        self.bind([past for past, _ in self.names], b.bind_input)
        self.length += 1
        self.bind([present for _, present in self.names], b.bind_output)
        for name, x in (("input_ids", self.ids),
                        ("position_ids", self.position),
                        ("attention_mask", self.mask[:, :self.length])):
            b.bind_input(name, "cpu", 0, x.dtype.type, x.shape, x.ctypes.data)
        b.bind_output("logits", "cpu", 0, np.float32, self.logits.shape,
                      self.logits.ctypes.data)
        start = time.perf_counter()
        self.session.run_with_iobinding(b)
        self.seconds = time.perf_counter() - start
        return self.logits

    def present(self):
        return [self.window(self.length % 2, i)
                for i in range(len(self.names))]
