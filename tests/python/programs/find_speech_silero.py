"""Where silero-vad finds speech, by its streaming and its sequence model."""

import json
import subprocess
import sys
import wave

import numpy as np
import onnxruntime
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

path = sys.argv[1] + "/speech.wav"
subprocess.run(["espeak-ng", "-w", path, "One, two, three. This is a test."],
               check=True)
with wave.open(path) as file:
    rate = file.getframerate()
    speech = np.frombuffer(file.readframes(file.getnframes()), np.int16)
at = np.arange(0, len(speech), rate / 16000)
speech = np.interp(at, np.arange(len(speech)), speech / 32768)
pause = np.zeros(16000)
audio = torch.from_numpy(
    np.concatenate([pause, speech, pause]).astype(np.float32))
model = load_silero_vad(onnx=True)
scores = model.audio_forward(audio, 16000)
print(json.dumps({
    "runtime": onnxruntime.get_build_info(),
    "results": [get_speech_timestamps(audio, model, sampling_rate=16000),
                np.ravel(scores).tolist()]}))
