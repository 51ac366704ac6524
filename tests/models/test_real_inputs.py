"""On real inputs the models give meaningful results, and both engines agree."""

import json
import subprocess
import wave

import numpy as np
import onnx
import pytest
from PIL import Image, ImageDraw, ImageFont

import shapes
from wordpiece import Tokenizer

MODELS = shapes.ROOT / "build" / "models"


# -- text in images -----------------------------------------------------------


def picture(text, size, at, points):
    """Black text on white, as a height x width x 3 array of bytes."""
    image = Image.new("RGB", size, "white")
    font = ImageFont.truetype("DejaVuSans.ttf", points)
    ImageDraw.Draw(image).text(at, text, "black", font)
    return np.asarray(image)


def line_of_text(text):
    """One line, 48 high and just wide enough."""
    font = ImageFont.truetype("DejaVuSans.ttf", 34)
    width = int(font.getlength(text)) + 20
    return picture(text, (width, 48), (10, 4), 34)


def planes(pixels, mean=0.5, deviation=0.5):
    scaled = (pixels / 255 - mean) / deviation
    return scaled.transpose(2, 0, 1)[None].astype(np.float32)


def decode(probabilities):
    """The best character at each time step, without repeats and blanks."""
    model = onnx.load(MODELS / "ocr-rec.onnx", load_external_data=False)
    [characters] = [p.value for p in model.metadata_props
                    if p.key == "character"]
    alphabet = ["", *characters.splitlines(), " "]
    best = probabilities.argmax(-1)
    keep = np.append(True, best[1:] != best[:-1])
    return "".join(alphabet[i] for i in best[keep])


@pytest.mark.parametrize("text", ["Limber", "shapes that change",
                                  "2048 tokens", "Quick Brown Fox"])
def test_rendered_text_is_recognised(run_both, text):
    [out] = run_both("ocr-rec", {"x": planes(line_of_text(text))}).values()
    assert decode(out[0]).strip() == text


def test_text_is_detected_where_it_is_and_nowhere_else(run_both):
    pixels = picture("Hello there", (320, 160), (40, 60), 32)
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    feeds = {"x": planes(pixels, mean, deviation)}
    [out] = run_both("ocr-det", feeds).values()
    found = out[0, 0] > 0.3
    assert found[70:85, 60:200].mean() > 0.6
    assert not found[:40].any() and not found[120:].any()


def test_upright_and_rotated_text_are_distinguished(run_both):
    line = Image.fromarray(line_of_text("upside down")).resize((192, 48))
    upright = planes(np.asarray(line))
    rotated = np.ascontiguousarray(upright[:, :, ::-1, ::-1])
    both = np.concatenate([upright, rotated])
    [out] = run_both("ocr-cls", {"x": both}).values()
    assert out.argmax(-1).tolist() == [0, 1]


# -- speech -------------------------------------------------------------------


def spoken(tmp_path, rate):
    """Synthesised speech at a sampling rate, samples in -1..1."""
    path = str(tmp_path / "speech.wav")
    text = "The shapes of the inputs change from one request to the next."
    subprocess.run(["espeak-ng", "-w", path, text], check=True)
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        spoken_rate = file.getframerate()
    steps = np.arange(0, len(samples), spoken_rate / rate)
    return np.interp(steps, np.arange(len(samples)), samples / 32768.0)


def chunks(samples, size):
    """Pieces of `size` samples, each preceded by the last eighth of the one
    before."""
    lead = size // 8
    samples = np.append(np.zeros(lead), samples)
    count = (len(samples) - lead) // size
    return np.stack([samples[i * size:(i + 1) * size + lead]
                     for i in range(count)]).astype(np.float32)


@pytest.mark.parametrize("rate, size", [(16000, 512), (8000, 256)])
def test_speech_is_distinguished_from_silence(run_both, tmp_path, rate, size):
    speech = chunks(spoken(tmp_path, rate), size)[:60]
    silence = np.zeros_like(speech[:20])

    def probabilities(pieces):
        state = np.zeros((2, 1, 128), np.float32)
        for piece in pieces:
            out = run_both("vad", {"input": piece[None], "state": state,
                                   "sr": np.array(rate)})
            state = out["stateN"]
            yield out["output"].item()

    assert np.median(list(probabilities(speech))) > 0.8
    assert max(probabilities(silence)) < 0.2


def test_a_whole_recording_is_distinguished_from_silence(run_both, tmp_path):
    speech = chunks(spoken(tmp_path, 16000), 512)
    pieces = np.concatenate([speech, np.zeros((40, 576), np.float32)])
    state = np.zeros((1, 1, 128), np.float32)
    out = run_both("vad-seq", {"input": pieces, "h": state, "c": state})
    probabilities = out["speech_probs"]
    assert np.median(probabilities[:len(speech)]) > 0.8
    assert probabilities[-20:].max() < 0.2


# -- texts and files ----------------------------------------------------------


def test_similar_sentences_are_closer_than_others(run_both):
    texts = ["A man is eating food.", "Someone eats a piece of bread.",
             "The stock market fell sharply today.",
             "Shares dropped on Wall Street this morning."]
    feeds = Tokenizer(MODELS / "minilm-vocab.txt").batch(texts)
    [hidden] = run_both("minilm", feeds).values()
    weights = feeds["attention_mask"][..., None]
    mean = (hidden * weights).sum(1) / weights.sum(1)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    likeness = mean @ mean.T
    near = min(likeness[0, 1], likeness[2, 3])
    far = max(likeness[0, 2], likeness[0, 3], likeness[1, 2], likeness[1, 3])
    assert near > far + 0.2


@pytest.mark.parametrize("label, text", [
    ("python", "import os\n\n\ndef main(path):\n    for name in "
     "os.listdir(path):\n        print(name)\n\n\nif __name__ == '__main__':\n"
     "    main('.')\n"),
    ("json", json.dumps({"name": "limber", "dims": [1, 3, 48, 320]},
                        indent=2)),
    ("html", "<!DOCTYPE html>\n<html><head><title>Limber</title></head>\n"
     "<body><p>Shapes change.</p></body></html>\n"),
])
def test_the_kind_of_a_file_is_detected(run_both, label, text):
    labels = json.loads((MODELS / "magika-config.json").read_text())
    content = np.frombuffer(text.encode().strip(), np.uint8)[:1024]
    bytes_ = np.full((1, 2048), 256, np.int32)  # 256: padding
    bytes_[0, :len(content)] = content
    bytes_[0, 2048 - len(content):] = content
    [out] = run_both("magika", {"bytes": bytes_}).values()
    assert labels["target_labels_space"][out[0].argmax()] == label
