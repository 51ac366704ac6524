"""Text that rapidocr-onnxruntime reads from a rendered picture."""

import json

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
LINES = ["Invoice 2024-117", "Total: 1,284.50 EUR",
         "Changing shapes need no padding"]

picture = Image.new("RGB", (620, 260), "white")
draw = ImageDraw.Draw(picture)
for i, line in enumerate(LINES):
    draw.text((20, 20 + 75 * i), line, "black",
              ImageFont.truetype(FONT, 24 + 6 * i))
results, _ = RapidOCR()(np.asarray(picture))
print(json.dumps({
    "runtime": onnxruntime.get_build_info(),
    "results": [[np.round(box).astype(int).tolist(), text, float(score)]
                for box, text, score in results]}))
