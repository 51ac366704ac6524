"""Characters that ddddocr reads from rendered pictures."""

import json

import ddddocr
import onnxruntime
from io import BytesIO
from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"


def picture(text, size):
    image = Image.new("RGB", (20 + len(text) * size, size * 2), "white")
    ImageDraw.Draw(image).text((10, size // 2), text, "black",
                               ImageFont.truetype(FONT, size))
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


reader = ddddocr.DdddOcr(show_ad=False)
print(json.dumps({
    "runtime": onnxruntime.get_build_info(),
    "results": [reader.classification(picture(text, size))
                for text, size in (("8a3k", 30), ("HELLO", 24), ("42", 40))]}))
