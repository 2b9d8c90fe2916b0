"""Writes a Llama of `models/` as a GGUF file for llama.cpp: the same weights, in float32 or bfloat16. No tokenizer."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize
from safetensors.numpy import load_file

KINDS = {"float32": GGMLQuantizationType.F32, "bfloat16": GGMLQuantizationType.BF16}


def gguf_file(model: Path, dtype: str) -> Path:
    """Where the file is, in a hidden directory beside the model; written if it is not there yet."""
    path = model.parent / ".gguf" / f"{model.name}-{dtype}.gguf"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            write(model, KINDS[dtype], unfinished)
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path


def write(model: Path, kind: GGMLQuantizationType, path: Path) -> None:
    """Matrices in that kind; what llama.cpp wants in float32 (the norms) stays so."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    layers, heads, kv_heads = (
        config[f"num_{name}"] for name in ("hidden_layers", "attention_heads", "key_value_heads")
    )
    writer, names = GGUFWriter(path, "llama"), get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    for name, weight in load_file(model / "model.safetensors").items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = interleaved(weight, heads if "q_proj" in name else kv_heads)
        sort = kind if weight.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(names.get_name(name, (".weight",)) or name, quantize(weight, sort), raw_dtype=sort)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(weight: "np.ndarray[Any, Any]", heads: int) -> "np.ndarray[Any, Any]":
    """llama.cpp rotates neighbors, where transformers rotates a head's first half against its second."""
    rows, width = weight.shape
    return np.ascontiguousarray(weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2)).reshape(rows, width)
