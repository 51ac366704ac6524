"""Notes that basic-pitch hears in a synthesised melody."""

import contextlib
import json
import sys
import wave

import numpy as np
import onnxruntime

with contextlib.redirect_stdout(sys.stderr):
    from basic_pitch import build_icassp_2022_model_path, FilenameSuffix
    from basic_pitch.inference import predict

    path = sys.argv[1] + "/melody.wav"
    at = np.arange(11025) / 22050
    tones = [np.sin(2 * np.pi * f * at) * np.exp(-2 * at)
             for f in (261.63, 329.63, 392.0, 523.25)]
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(22050)
        file.writeframes((np.concatenate(tones) * 2e4).astype("<i2"))
    _, _, notes = predict(
        path, build_icassp_2022_model_path(FilenameSuffix.onnx))
print(json.dumps({
    "runtime": onnxruntime.get_build_info(),
    "results": sorted([int(pitch), round(float(start), 2), float(amplitude)]
                      for start, _, pitch, amplitude, _ in notes)}))
