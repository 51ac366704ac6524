"""The engines behind one interface. Only worker processes import this module:
each engine is loaded in its own process, by its class.

    engine = ENGINES["limber"]()        # loads the library
    session = engine.open(path, threads)
    run = session.caller()              # one for each calling thread
    outputs = run(feeds)                # in the model's order
"""

import os
from pathlib import Path

import c_api
import decode


class Limber:
    """The Python package of the build that PYTHONPATH names."""

    def __init__(self):
        import limber
        self.module = limber

    def version(self):
        return self.module.__version__

    def open(self, path, threads, event=None):
        options = self.module.SessionOptions()
        if threads:
            options.intra_op_num_threads = threads
        if event:
            options.event = event
        return LimberSession(self.module.InferenceSession(path, options))

    def open_decoder(self, path, threads):
        """A function of the capacity that returns a decoder; see decode.py."""
        build = Path(self.module.__file__).parents[3]  # see package.py
        session = c_api.Library(build / "liblimber.so").open(path, threads)
        return lambda capacity: decode.LimberDecoder(session, capacity)


class LimberSession:
    def __init__(self, session):
        self.session = session

    def caller(self):
        return lambda feeds: self.session.run(None, feeds)

    def settle(self, seconds):
        self.session.settle(seconds)

    def stats(self):
        return self.session.stats()._asdict()

    def tiers(self, feeds):
        """Seconds of one run's steps by tier; {} if profile() is missing."""
        found = {}
        if hasattr(self.session, "profile"):
            for step in self.session.profile(None, feeds):
                seconds = 1e-9 * (step["end_ns"] - step["start_ns"])
                found[step["tier"]] = found.get(step["tier"], 0) + seconds
        return found


class OnnxRuntime:
    """Everything at its default but the number of threads."""

    def __init__(self):
        import onnxruntime
        self.module = onnxruntime

    def version(self):
        return self.module.__version__

    def open(self, path, threads):
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return OnnxRuntimeSession(self.module.InferenceSession(
            path, options, ["CPUExecutionProvider"]))

    def open_decoder(self, path, threads):
        session = self.open(path, threads).session
        return lambda capacity: decode.OnnxRuntimeDecoder(session, capacity)


class OnnxRuntimeSession:
    def __init__(self, session):
        self.session = session

    def caller(self):
        return lambda feeds: self.session.run(None, feeds)

    def settle(self, seconds):
        pass

    def stats(self):
        return {}


class OpenVino:
    """float32 arithmetic, tuned for latency, one stream."""

    def __init__(self):
        import openvino
        self.module = openvino

    def version(self):
        return self.module.__version__

    def open(self, path, threads):
        config = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        core = self.module.Core()
        return OpenVinoSession(core.compile_model(path, "CPU", config))


class OpenVinoSession:
    def __init__(self, compiled):
        self.compiled = compiled

    def caller(self):
        request = self.compiled.create_infer_request()

        def run(feeds):
            result = request.infer(feeds, share_inputs=True)
            return [result[port] for port in self.compiled.outputs]
        return run

    def settle(self, seconds):
        pass

    def stats(self):
        return {}


ENGINES = {"limber": Limber, "against": Limber, "deterministic": Limber,
           "skip=off": Limber,
           "onnxruntime": OnnxRuntime, "openvino": OpenVino}


def memory():
    """Resident bytes of this process: peak, now, and anonymous."""
    found = {}
    with open("/proc/self/status") as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name in ("VmHWM", "VmRSS", "RssAnon"):
                found[name] = 1024 * int(rest.split()[0])
    return found


def pin(threads):
    """Restricts this process to the last `threads` processors; 0: all."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[-threads:])
