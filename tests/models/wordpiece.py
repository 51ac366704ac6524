"""A small WordPiece tokenizer: lower case, split at punctuation, then
repeatedly the longest matching piece of the vocabulary."""

import re
import unicodedata

import numpy as np


class Tokenizer:
    def __init__(self, path):
        words = open(path, encoding="utf-8").read().splitlines()
        self.ids = {word: i for i, word in enumerate(words)}

    def pieces(self, word):
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    break
            else:
                return ["[UNK]"]
            found.append(piece)
            start = end
        return found

    def encode(self, text):
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        words = re.findall(r"\w+|[^\w\s]", text)
        pieces = [p for word in words for p in self.pieces(word)]
        return [self.ids[p] for p in ["[CLS]", *pieces, "[SEP]"]]

    def batch(self, texts):
        """The three inputs of a BERT model, padded to the longest text."""
        rows = [self.encode(text) for text in texts]
        longest = max(map(len, rows))
        ids = np.zeros((len(rows), longest), np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = row
            mask[i, :len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask,
                "token_type_ids": np.zeros_like(ids)}
