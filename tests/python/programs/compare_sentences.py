"""Sentence embeddings by sentence-transformers through optimum, with the MiniLM
of build/models in place of a download."""

import json
import sys
from pathlib import Path

import onnxruntime
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import BertConfig, BertTokenizerFast

directory = Path(sys.argv[1], "minilm")
source = Path(__file__).resolve().parents[3] / "build" / "models"
(directory / "onnx").mkdir(parents=True, exist_ok=True)
if not (directory / "onnx" / "model.onnx").exists():
    (directory / "onnx" / "model.onnx").symlink_to(source / "minilm.onnx")
BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
           intermediate_size=1536).save_pretrained(directory)
BertTokenizerFast(str(source / "minilm-vocab.txt")).save_pretrained(directory)

words = modules.Transformer(
    str(directory), backend="onnx", max_seq_length=128,
    model_kwargs={"file_name": "onnx/model.onnx",
                  "provider": "CPUExecutionProvider"})
model = SentenceTransformer(modules=[words, modules.Pooling(384)])
sentences = ["A cat sits on the mat.", "A kitten rests on a rug.",
             "Shapes change from request to request, and nothing is padded."]
vectors = model.encode(sentences, normalize_embeddings=True)
print(json.dumps({"runtime": onnxruntime.get_build_info(),
                  "results": vectors.tolist() +
                  (vectors @ vectors.T).tolist()}))
