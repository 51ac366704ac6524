"""The Python examples of README.md, docs/python.md and docs/onnxruntime.md
run."""

import re

import numpy as np
import pytest

from conftest import ROOT, negate_model

# Blocks that need a package of scripts/packages or a model with other inputs.
NOT_RUN = ["from rapidocr_onnxruntime import", "attention_mask"]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(),
                      re.M | re.S)


@pytest.mark.parametrize("page,count", [
    ("docs/python.md", 5), ("docs/onnxruntime.md", 1), ("README.md", 1)])
def test_the_examples_of_a_page_run(page, count, tmp_path, monkeypatch,
                                    same_onnxruntime):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(negate_model())
    known = {"x": np.ones(4, np.float32)}
    ran = 0
    for block in blocks(page):
        if not any(text in block for text in NOT_RUN):
            exec(compile(block, page, "exec"), known)
            ran += 1
    assert ran >= count
