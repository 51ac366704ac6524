"""Embeddings of sentences of different lengths by fastembed, with the MiniLM
of build/models in place of a download."""

import json
import sys
from pathlib import Path

import onnxruntime
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from tokenizers import BertWordPieceTokenizer

directory = Path(sys.argv[1])
models = Path(__file__).resolve().parents[3] / "build" / "models"
if not (directory / "model.onnx").exists():
    (directory / "model.onnx").symlink_to(models / "minilm.onnx")
BertWordPieceTokenizer(str(models / "minilm-vocab.txt")).save(
    str(directory / "tokenizer.json"))
(directory / "config.json").write_text('{"pad_token_id": 0}')
(directory / "tokenizer_config.json").write_text(
    '{"model_max_length": 128, "pad_token": "[PAD]"}')
TextEmbedding.add_custom_model(
    "local/minilm", PoolingType.MEAN, True, ModelSource(hf="local/minilm"),
    384, "model.onnx")
model = TextEmbedding("local/minilm", specific_model_path=str(directory))
sentences = ["Short.", "A cat sits on the mat.",
             "Shapes change from request to request, and nothing is padded."]
vectors = [vector.tolist() for vector in model.embed(sentences, batch_size=1)]
vectors += [vector.tolist() for vector in model.embed(sentences)]
print(json.dumps({"runtime": onnxruntime.get_build_info(),
                  "results": vectors}))
