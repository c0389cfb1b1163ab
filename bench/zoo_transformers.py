"""The architectures of transformers for bench/zoo.py: every family of its auto classes, from its own configuration made
small by the names of its fields; inputs by the names of its forward's arguments."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from zoo import Architecture, Made, loss_of

#: Heads in the order in which they are chosen.
HEADS = (
    "CAUSAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "IMAGE_TEXT_TO_TEXT",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "SEQUENCE_CLASSIFICATION",
    "IMAGE_CLASSIFICATION",
    "CTC",
    "OBJECT_DETECTION",
    "SEMANTIC_SEGMENTATION",
    "UNIVERSAL_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "MASKED_IMAGE_MODELING",
    "VIDEO_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "QUESTION_ANSWERING",
    "TOKEN_CLASSIFICATION",
    "MULTIPLE_CHOICE",
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "TIME_SERIES_PREDICTION",
    "AUDIO_XVECTOR",
    "AUDIO_FRAME_CLASSIFICATION",
    "PRETRAINING",
    "VISUAL_QUESTION_ANSWERING",
    "DOCUMENT_QUESTION_ANSWERING",
    "TEXT_TO_SPECTROGRAM",
    "TEXT_TO_WAVEFORM",
    "MASK_GENERATION",
    "IMAGE_TO_IMAGE",
    "NEXT_SENTENCE_PREDICTION",
    "TIME_SERIES_CLASSIFICATION",
    "TIME_SERIES_REGRESSION",
    "POSE_ESTIMATION",
    "KEYPOINT_DETECTION",
)

VOCABULARY, LENGTH, MAX_PARAMETERS = 160, 12, 40_000_000

_COUNTS = re.compile(r"(^|_)(n_?)?(num_)?(\w*_)?(layers?|depth|blocks?)$")
_HEADS = re.compile(r"(attention_heads|num_heads|n_heads?|^heads|head_num)$")
_WIDTHS = re.compile(
    r"(hidden_size|hidden_dim|d_model|embed_dim|embedding_size|embedding_dim|n_embd|projection_dim|^dim|output_dim|mlp_dim"
    r"|out_hidden_size|width|feature_size|proj_size|hidden_dimension)$"
)
_WIDE = re.compile(r"(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|n_inner|inner_dim|d_inner|feed_forward\w*)$")
_HEAD_WIDTH = re.compile(r"(head_dim|d_kv|head_size|kv_channels)$")
_EXPERTS = re.compile(r"(num_experts|n_routed_experts|num_local_experts|moe_num_experts|num_routed_experts)$")


def small(name: str, value: Any, sizes: bool, new_ids: Iterator[int]) -> Any:
    """Return the value that makes the model small for the configuration field `name`."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        if name in ("depths", "num_blocks", "layers", "encoder_depths", "num_block_repeats", "num_layers"):
            return type(value)(min(v, 1) if isinstance(v, int) else v for v in value)
        if name == "image_size" and sizes:
            return type(value)(min(v, 64) for v in value)
        return value
    if not isinstance(value, int):
        return value
    if name.endswith(("token_id", "token_index")) or name in ("mask_index", "ignore_index"):
        return value if value < VOCABULARY // 2 else next(new_ids)
    if "vocab_size" in name and "type" not in name:
        return min(value, VOCABULARY)
    if name in ("image_size", "input_size", "pretrain_image_size"):
        return min(value, 64) if sizes else value
    if name.startswith("max_") and "position" in name:
        return min(value, 128) if value > 128 else value
    if _EXPERTS.search(name):
        return min(value, 4)
    if name in ("num_experts_per_tok", "moe_topk", "moe_top_k", "top_k_experts"):
        return min(value, 2)
    if name in ("n_group", "topk_group", "first_k_dense_replace"):
        return min(value, 1)
    if _COUNTS.search(name) and "per" not in name:
        return min(value, 2)
    if not sizes:
        return value
    if _HEADS.search(name):
        return min(value, 4)
    if name.endswith(("key_value_heads", "kv_heads", "n_head_kv")):
        return min(value, 2)
    if name == "patch_size":
        return min(value, 8)
    if _HEAD_WIDTH.search(name):
        return min(value, 8)
    if _WIDTHS.search(name):
        return min(value, 32)
    if _WIDE.search(name):
        return min(value, 64)
    if name in ("num_queries", "num_query_tokens", "num_latents"):
        return min(value, 8)
    return value


def shrunk(kind: type, sizes: bool, given: Any = None, new_ids: Iterator[int] | None = None) -> Any:
    """A configuration of `kind` that is small; `given` has the defaults."""
    given = given if given is not None else kind()
    new_ids = new_ids if new_ids is not None else iter(range(VOCABULARY // 2, VOCABULARY))
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        value = getattr(given, field.name, None)
        if field.name in getattr(kind, "sub_configs", {}) and dataclasses.is_dataclass(value):
            changed[field.name] = shrunk(type(value), sizes, value, new_ids)
        elif field.init and field.name in kind.__dataclass_fields__ and field.name not in ("transformers_version",):
            new = small(field.name, value, sizes, new_ids)
            default = field.default if field.default is not dataclasses.MISSING else None
            # What a class derives from other fields it derives again.
            if new != value or (default is not None and default != value):
                changed[field.name] = new
    for name in ("layer_types", "mlp_layer_types"):
        changed.pop(name, None)
    # As people set them to train.
    if getattr(given, "use_cache", None) is True:
        changed["use_cache"] = False
    if hasattr(given, "pad_token_id") and given.pad_token_id is None:
        changed["pad_token_id"] = 0
    return kind(**changed)


class Inputs:
    """Inputs of a model by the arguments that its forward has."""

    def __init__(self, model: nn.Module, images: int | None, video: bool, variant: int) -> None:
        self.config, self.model, self.variant = model.config, model, variant
        self.arguments = inspect.signature(model.forward).parameters
        self.images, self.video = images, video

    def number(self, *names: str, default: int) -> int:
        for config in (self.config, *(getattr(self.config, n, None) for n in getattr(self.config, "sub_configs", {}))):
            for name in names:
                value = getattr(config, name, None)
                if isinstance(value, (list, tuple)) and value:
                    value = value[0]
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return default

    def tokens(self) -> torch.Tensor:
        top = min(self.number("vocab_size", default=50), VOCABULARY) // 2
        ids = torch.randint(min(5, top - 2), max(top, 6), (2, LENGTH))
        end = self.number("eos_token_id", default=2)
        if 0 <= end < top * 2:
            ids[:, -1] = end
        if self.images:
            picture = self.number("image_token_id", "image_token_index", default=VOCABULARY - 1)
            ids = torch.cat([ids[:, :1], torch.full((2, self.images), picture), ids[:, 1:]], 1)
        return ids

    def made(self, labelled: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        side = self.number("image_size", "input_size", default=64)
        channels = self.number("num_channels", "in_channels", "in_chans", default=3)
        for name, argument in self.arguments.items():
            required = argument.default is inspect.Parameter.empty
            if name == "input_ids":
                found[name] = self.tokens()
            elif name == "bbox":
                found[name] = torch.zeros(2, LENGTH, 4, dtype=torch.long)
            elif name == "decoder_input_ids" and not (labelled and "labels" in self.arguments):
                found[name] = torch.randint(5, 40, (2, 7))
            elif name in ("pixel_values", "pixel_values_images") and self.images != 0:
                if self.video:
                    found[name] = torch.randn(2, self.number("num_frames", default=4), channels, side, side)
                else:
                    found[name] = torch.randn(2, channels, side, side)
            elif name == "pixel_values_videos" and required:
                found[name] = torch.randn(
                    2, self.number("num_frames", "frames_per_clip", default=4), channels, side, side
                )
            elif name == "input_features":
                mels = self.number(
                    "num_mel_bins", "feature_size", "input_feat_per_channel", "input_channels", default=80
                )
                frames = 2 * self.number("max_source_positions", default=50)
                found[name] = torch.randn(2, mels, frames) if self.variant == 0 else torch.randn(2, 100, mels)
            elif name == "input_values":
                shapes = ((2, 4000), (2, 1, 4000), (2, 1024, 128), (2, 30, 80))
                found[name] = torch.randn(*shapes[self.variant % 4])
            elif name == "past_values":
                length = self.number("context_length", default=16) + max(
                    getattr(self.config, "lags_sequence", None) or [0]
                )
                many = self.number("num_input_channels", "input_size", default=1)
                found[name] = torch.randn(2, length, many) if many > 1 or self.variant else torch.randn(2, length)
            elif name in ("past_time_features", "past_observed_mask") and required:
                found[name] = (
                    torch.ones_like(found["past_values"])
                    if name.endswith("mask")
                    else torch.zeros(2, found["past_values"].shape[1], self.number("num_time_features", default=0))
                )
            elif name == "future_values" and labelled:
                found[name] = torch.randn(2, self.number("prediction_length", default=4))
            elif name == "future_time_features":
                found[name] = torch.zeros(
                    2, self.number("prediction_length", default=4), self.number("num_time_features", default=0)
                )
            elif name in ("hidden_states", "inputs_embeds", "inputs") and required:
                width = self.number("hidden_size", "d_model", "embed_dim", default=32)
                found[name] = torch.randn(2, LENGTH, width)
            elif name in ("encoder_hidden_states", "encoder_outputs") and required:
                found[name] = torch.randn(2, LENGTH, self.number("hidden_size", "d_model", default=32))
            elif name == "return_loss" and labelled:
                found[name] = True
        if (
            self.variant == 2
            and "input_ids" in found
            and len(self.arguments)
            and "MultipleChoice" in type(self.model).__name__
        ):
            found["input_ids"] = torch.stack([found["input_ids"]] * 2, 1)
        if labelled:
            found |= self.labels(found)
        return found

    def labels(self, given: dict[str, Any]) -> dict[str, Any]:
        kind, many = type(self.model).__name__, self.number("num_labels", default=2)
        ids = given.get("input_ids")
        if "start_positions" in self.arguments:
            return {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}
        if "labels" not in self.arguments:
            return {}
        if "Classification" in kind and "Token" not in kind and "Frame" not in kind:
            return {"labels": torch.tensor([0, 1])}
        if "TokenClassification" in kind and ids is not None:
            return {"labels": torch.randint(0, many, ids.shape)}
        if "MultipleChoice" in kind or "NextSentence" in kind:
            return {"labels": torch.tensor([0, 1])}
        if any(word in kind for word in ("Detection", "Segmentation", "XVector", "Depth")):
            return {}
        if "decoder_input_ids" in self.arguments or ids is None:
            return {"labels": torch.randint(5, 40, (2, 7))}
        return {"labels": ids.clone()}


_FEATURES = re.compile(r"tokens[^\d]*(\d+)[^\d]*features[^\d]*(\d+)", re.IGNORECASE)


def ways(model_class: Any, config_class: type) -> Iterator[Callable[[], Made]]:
    """Sizes by the names first, then widths as they are; labels first; images, then text alone."""
    torch.manual_seed(0)
    for sizes in (True, False):
        try:
            with torch.device("meta"):
                model = model_class(shrunk(config_class, sizes))
            if sum(p.numel() for p in model.parameters()) > MAX_PARAMETERS:
                raise ValueError(f"more than {MAX_PARAMETERS:,} parameters")
        except Exception as error:
            yield _raising(error)
            continue
        arguments = inspect.signature(model.forward).parameters
        mixed = "input_ids" in arguments and "pixel_values" in arguments
        images: list[int | None] = [_images_wanted(model_class, config_class, sizes), None, 0] if mixed else [None]
        variants = range(4) if {"input_values", "input_features", "past_values"} & {*arguments} else range(1)
        if "MultipleChoice" in model_class.__name__:
            variants = range(2, 3)
        videos = (False, True) if "pixel_values" in arguments and not mixed else (False,)
        for choice in itertools.product((True, False), images, videos, variants):
            yield partial(_made, model_class, config_class, sizes, *choice)


def _made(
    model_class: Any, config_class: type, sizes: bool, labelled: bool, images: int | None, video: bool, variant: int
) -> Made:
    model = model_class(shrunk(config_class, sizes))
    given = Inputs(model, images, video, variant).made(labelled)
    return model, lambda: loss_of(model(**given))


def _images_wanted(model_class: Any, config_class: type, sizes: bool) -> int | None:
    """How many tokens an image takes, which the model says where it gets another number."""
    try:
        model = model_class(shrunk(config_class, sizes))
        model(**Inputs(model, 1, False, 0).made(False))
    except Exception as error:
        found = _FEATURES.search(str(error))
        return max(int(found[2]) // 2, 1) if found else None
    return 1


def _raising(error: Exception) -> Callable[[], Made]:
    def made() -> Made:
        raise error

    return made


def transformers_models(heads: int) -> list[Architecture]:
    """The base of each family, and up to `heads` models with a head."""
    import transformers
    import transformers.models.bert.modeling_bert  # what all models import, once and not in each child
    import transformers.models.llama.modeling_llama
    import transformers.models.vit.modeling_vit
    from transformers.models.auto import configuration_auto, modeling_auto

    chosen: dict[str, Architecture] = {}
    for family, config_name in configuration_auto.CONFIG_MAPPING_NAMES.items():
        bases = modeling_auto.MODEL_MAPPING_NAMES.get(family, ())
        names = [bases] if isinstance(bases, str) else list(bases)[:1]
        added = 0
        for head in HEADS:
            name = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").get(family)
            if isinstance(name, str) and added < heads and name not in (*chosen, *names):
                names.append(name)
                added += 1
        for name in names:
            if name not in chosen and not name.startswith(("Timm",)):
                chosen[name] = Architecture("transformers", name, _ways_of(transformers, name, config_name))
    return list(chosen.values())


def _ways_of(transformers: Any, name: str, config_name: str) -> Callable[[], Iterator[Callable[[], Made]]]:
    def found() -> Iterator[Callable[[], Made]]:
        kind = getattr(transformers, name)
        config = kind.config_class or getattr(transformers, config_name)
        yield from ways(kind, config)

    return found
