"""Where the voice activity detector of faster-whisper finds speech, in a
synthesised recording with pauses."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
from faster_whisper.audio import decode_audio
from faster_whisper.vad import get_speech_timestamps, get_vad_model

path = sys.argv[1] + "/speech.wav"
subprocess.run(["espeak-ng", "-w", path, "One, two, three. This is a test."],
               check=True)
speech = decode_audio(path, sampling_rate=16000)
pause = np.zeros(24000, np.float32)
audio = np.concatenate([pause, speech, pause, pause, speech[:20000], pause])
padded = np.pad(audio, (0, -len(audio) % 512))
print(json.dumps({
    "runtime": onnxruntime.get_build_info(),
    "results": [get_speech_timestamps(audio),
                np.ravel(get_vad_model()(padded)).tolist()]}))
