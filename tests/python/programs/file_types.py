"""What magika takes files of many types for."""

import json
import zipfile
import zlib
from io import BytesIO

import onnxruntime
from magika import Magika

TEXTS = {
    "python": "import os\n\ndef main():\n    print(os.getcwd())\n" * 9,
    "c": "#include <stdio.h>\nint main(void) {\n  puts(\"x\");\n}\n" * 9,
    "html": "<!doctype html><html><body><p>text</p></body></html>\n" * 9,
    "json": json.dumps({"name": ["values", 1, 2.5, None]}) * 9,
    "markdown": "# Title\n\n- one\n- two\n\n| a | b |\n|---|---|\n" * 9,
    "shell": "#!/bin/sh\nset -e\nfor f in *; do echo \"$f\"; done\n" * 9,
    "csv": "id,name,value\n1,one,1.5\n2,two,2.5\n" * 9,
    "prose": "It was a bright cold day in April, and the clocks. " * 9,
}


def contents():
    for name, text in TEXTS.items():
        yield name, text.encode()
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr(zipfile.ZipInfo("member.txt"), "text " * 100)  # no time
    yield "zip", archive.getvalue()
    yield "zlib", zlib.compress(b"text" * 1000)
    yield "png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 4
    yield "elf", b"\x7fELF\2\1\1" + bytes(9) + bytes(range(256)) * 4
    yield "short", b"ab"
    yield "empty", b""


detector = Magika()
found = {}
for name, data in contents():
    result = detector.identify_bytes(data)
    found[name] = [str(result.output.label), float(result.score)]
print(json.dumps({"runtime": onnxruntime.get_build_info(), "results": found}))
