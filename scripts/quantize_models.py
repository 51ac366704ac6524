"""Creates the models of bench/int8.def: public models quantised by ONNX
Runtime.

Usage: quantize_models.py MODELS DIRECTORY. Reads the public models from the
directory MODELS; models that exist in DIRECTORY are not created again. Static
scales are calibrated on a few requests of bench/shapes.def: enough to measure
speed, not accuracy.
"""

import logging
import os
import sys
import tempfile
from pathlib import Path

from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
import shapes  # noqa: E402

REQUESTS = 3
WEIGHT_TYPES = {"s8": quantization.QuantType.QInt8,
                "u8": quantization.QuantType.QUInt8}

# name: (model, method, dtype of weights)
MODELS = {
    "minilm-dynamic": ("minilm", "dynamic", "s8"),
    "minilm-dynamic-u8": ("minilm", "dynamic", "u8"),
    "minilm-pairs": ("minilm", "QDQ", "s8"),
    "minilm-qlinear": ("minilm", "QOperator", "s8"),
    "ocr-det-dynamic": ("ocr-det", "dynamic", "u8"),
    "ocr-det-qlinear": ("ocr-det", "QOperator", "s8"),
    "yolo-dynamic": ("yolo", "dynamic", "u8"),
    "yolo-pairs": ("yolo", "QDQ", "s8"),
    "yolo-qlinear": ("yolo", "QOperator", "s8"),
}


class Requests(quantization.CalibrationDataReader):
    def __init__(self, model):
        self.left = [model.feeds(dims, seed)
                     for seed, dims in enumerate(model.draws(REQUESTS, 0))]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantise(source, model, how, dtype, target):
    if how == "dynamic":
        return quantization.quantize_dynamic(source, target,
                                             weight_type=WEIGHT_TYPES[dtype])
    return quantization.quantize_static(
        source, target, Requests(model),
        quant_format=quantization.QuantFormat[how],
        activation_type=WEIGHT_TYPES["u8"], weight_type=WEIGHT_TYPES[dtype])


def main(models, directory):
    logging.disable(logging.WARNING)
    directory.mkdir(parents=True, exist_ok=True)
    public = shapes.load()
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        for name, (model, how, dtype) in MODELS.items():
            target = directory / f"{name}.onnx"
            if target.exists():
                continue
            print(f"models: {name} from {model}", flush=True)
            plain, made = Path(scratch, "plain"), Path(scratch, "made")
            quant_pre_process(models / f"{model}.onnx", plain,
                              skip_symbolic_shape=True)
            quantise(plain, public[model], how, dtype, made)
            os.replace(made, target)
    print(f"models: {len(MODELS)} in {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
