"""What nudenet detects in drawn pictures, and the scores behind it."""

import json

import numpy as np
import onnxruntime
from nudenet import NudeDetector
from PIL import Image, ImageDraw

detector = NudeDetector()
found = []
for size in ((320, 320), (200, 480)):
    image = Image.new("RGB", size, (120, 160, 90))
    ImageDraw.Draw(image).ellipse([40, 40, 150, 180], fill=(230, 190, 160))
    array = np.asarray(image)[:, :, ::-1].copy()
    found.append(detector.detect(array))
    small = np.asarray(image.resize((320, 320)), np.float32)
    [scores] = detector.onnx_session.run(
        None, {detector.input_name: small.transpose(2, 0, 1)[None] / 255})
    found.append(scores[0].mean(1).tolist())
print(json.dumps({"runtime": onnxruntime.get_build_info(), "results": found}))
