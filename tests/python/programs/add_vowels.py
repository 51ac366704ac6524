"""Vowels that piper-tts adds to Arabic and Hebrew text."""

import json

import onnxruntime
from piper.hebrew import NakdimonDiacritizer
from piper.tashkeel import TashkeelDiacritizer

arabic, hebrew = TashkeelDiacritizer(), NakdimonDiacritizer()
results = [arabic(text) for text in ("السلام عليكم", "هذا نص قصير للاختبار")]
results += [hebrew(text) for text in ("שלום עולם", "זה משפט קצר לבדיקה")]
print(json.dumps({"runtime": onnxruntime.get_build_info(),
                  "results": results}))
