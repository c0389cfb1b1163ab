"""The architectures of bench/zoo.py: how each is made small, with an input and a loss."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from zoo import Architecture, Made, loss_of, one

LIBRARIES = ("torch.nn", "torchvision", "timm", "torch_geometric", "x-transformers", "diffusers", "transformers")


def architectures(libraries: list[str], heads: int) -> list[Architecture]:
    """List the architectures of `libraries`, or of all libraries if the list is empty."""
    from zoo_transformers import transformers_models

    makers: dict[str, Callable[[], list[Architecture]]] = {
        "torch.nn": torch_modules,
        "torchvision": torchvision_models,
        "timm": timm_models,
        "torch_geometric": geometric_convs,
        "x-transformers": x_transformers,
        "diffusers": diffusers_models,
        "transformers": lambda: transformers_models(heads),
    }
    declare_torchvision()
    return [a for name in LIBRARIES if not libraries or name in libraries for a in makers[name]()]


def fed(model: nn.Module, *inputs: Any, **named: Any) -> Made:
    return model, lambda: loss_of(model(*inputs, **named))


# torch.nn: a module between two linear layers, or alone.


def torch_modules() -> list[Architecture]:
    def between(make: Callable[[], nn.Module], *shape: int) -> Callable[[], Made]:
        def made() -> Made:
            module = make()
            before = nn.Linear(shape[-1], shape[-1])
            return fed(nn.Sequential(before, module), torch.randn(*shape))

        return made

    def tokens(make: Callable[[], nn.Module]) -> Callable[[], Made]:
        return lambda: fed(make(), torch.randint(0, 20, (3, 5)))

    def recurrent(make: Callable[[], nn.Module]) -> Callable[[], Made]:
        return lambda: fed(make(), torch.randn(5, 3, 8))

    makes: dict[str, Callable[[], Made]] = {}
    acts = (
        "ELU",
        "Hardshrink",
        "Hardsigmoid",
        "Hardtanh",
        "Hardswish",
        "LeakyReLU",
        "LogSigmoid",
        "PReLU",
        "ReLU",
        "ReLU6",
        "RReLU",
        "SELU",
        "CELU",
        "GELU",
        "Sigmoid",
        "SiLU",
        "Mish",
        "Softplus",
        "Softshrink",
        "Softsign",
        "Tanh",
        "Tanhshrink",
        "Softmin",
        "Softmax",
        "LogSoftmax",
        "GLU",
        "Dropout",
        "AlphaDropout",
        "FeatureAlphaDropout",
        "Identity",
        "Flatten",
    )
    for name in acts:
        kind = getattr(nn, name)
        options = {"dim": -1} if name in ("Softmin", "Softmax", "LogSoftmax") else {}
        makes[name] = between(lambda kind=kind, options=options: kind(**options), 4, 8)
    for dims in (1, 2, 3):
        shape = (2, 4, *[8] * dims)
        for name in ("Conv", "ConvTranspose", "LazyConv"):
            sizes = (6, 3) if name == "LazyConv" else (4, 6, 3)
            kind = getattr(nn, f"{name}{dims}d")
            if name != "LazyConv":
                makes[kind.__name__] = between(lambda kind=kind, sizes=sizes: kind(*sizes), *shape)
        for name in ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool", "LPPool"):
            kind = getattr(nn, f"{name}{dims}d")
            sizes = (2, 2) if name == "LPPool" else (2,)
            makes[kind.__name__] = between(lambda kind=kind, sizes=sizes: kind(*sizes), *shape)
        for name in (
            "BatchNorm",
            "InstanceNorm",
            "ReflectionPad",
            "ReplicationPad",
            "ConstantPad",
            "ZeroPad",
            "CircularPad",
        ):
            kind = getattr(nn, f"{name}{dims}d")
            sizes = (4,) if "Norm" in name else (1, 0.5) if name == "ConstantPad" else (1,)
            makes[kind.__name__] = between(lambda kind=kind, sizes=sizes: kind(*sizes), *shape)
        drop = getattr(nn, f"Dropout{dims}d")
        makes[drop.__name__] = between(drop, *shape)
    makes |= {
        "LayerNorm": between(lambda: nn.LayerNorm(8), 4, 8),
        "RMSNorm": between(lambda: nn.RMSNorm(8), 4, 8),
        "GroupNorm": between(lambda: nn.GroupNorm(2, 4), 3, 4, 8),
        "LocalResponseNorm": between(lambda: nn.LocalResponseNorm(2), 3, 4, 8),
        "Linear": between(lambda: nn.Linear(8, 3), 4, 8),
        "Unflatten": between(lambda: nn.Unflatten(1, (2, 4)), 4, 8),
        "ChannelShuffle": between(lambda: nn.ChannelShuffle(2), 2, 4, 3, 3),
        "PixelShuffle": between(lambda: nn.PixelShuffle(2), 2, 4, 3, 3),
        "PixelUnshuffle": between(lambda: nn.PixelUnshuffle(2), 2, 4, 4, 4),
        "Fold": between(lambda: nn.Fold(4, 2), 2, 8, 9),
        "Unfold": between(lambda: nn.Unfold(2), 2, 3, 4, 4),
        "Upsample bilinear": between(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 2, 3, 4, 4),
        "Upsample bicubic": between(lambda: nn.Upsample(scale_factor=2, mode="bicubic"), 2, 3, 4, 4),
        "Embedding": tokens(lambda: nn.Embedding(20, 8)),
        "Embedding max_norm": tokens(lambda: nn.Embedding(20, 8, max_norm=1.0)),
        "Embedding sparse": tokens(lambda: nn.Embedding(20, 8, sparse=True)),
        "EmbeddingBag": tokens(lambda: nn.EmbeddingBag(20, 8)),
        "RNN": recurrent(lambda: nn.RNN(8, 6, 2)),
        "LSTM": recurrent(lambda: nn.LSTM(8, 6, 2, dropout=0.2, bidirectional=True)),
        "LSTM proj_size": recurrent(lambda: nn.LSTM(8, 6, proj_size=4)),
        "GRU": recurrent(lambda: nn.GRU(8, 6, 2)),
        "RNNCell": lambda: fed(nn.RNNCell(8, 6), torch.randn(3, 8)),
        "LSTMCell": lambda: fed(nn.LSTMCell(8, 6), torch.randn(3, 8)),
        "GRUCell": lambda: fed(nn.GRUCell(8, 6), torch.randn(3, 8)),
        "Bilinear": lambda: fed(nn.Bilinear(4, 5, 6), torch.randn(3, 4), torch.randn(3, 5)),
        "MultiheadAttention": lambda: fed(nn.MultiheadAttention(8, 2), *[torch.randn(5, 3, 8) for _ in range(3)]),
        "TransformerEncoder": lambda: fed(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2), torch.randn(5, 3, 8)
        ),
        "TransformerDecoder": lambda: fed(
            nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2), torch.randn(5, 3, 8), torch.randn(4, 3, 8)
        ),
        "Transformer": lambda: fed(nn.Transformer(8, 2, 1, 1, 16), torch.randn(5, 3, 8), torch.randn(4, 3, 8)),
        "AdaptiveLogSoftmaxWithLoss": lambda: fed(
            nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10]), torch.randn(6, 8), torch.randint(0, 20, (6,))
        ),
        "weight_norm": between(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)), 4, 8),
        "spectral_norm": between(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)), 4, 8),
        "orthogonal": between(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), 4, 8),
        "LazyLinear": lambda: _lazy(nn.LazyLinear(3), torch.randn(4, 8)),
        "LazyConv2d": lambda: _lazy(nn.LazyConv2d(3, 3), torch.randn(2, 3, 8, 8)),
        "LazyBatchNorm1d": lambda: _lazy(nn.LazyBatchNorm1d(), torch.randn(4, 8)),
    }
    return [one("torch.nn", name, make) for name, make in makes.items()]


def _lazy(module: nn.Module, x: Tensor) -> Made:
    """With its parameters made by a first call, so that an optimizer can have them."""
    module(x)
    return fed(module, x)


# torchvision.

_OPERATORS = """qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor
roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)
ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)
ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)
_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor
_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor
_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"""  # noqa: E501
#: Keeps the operators declared: they go when their library is garbage-collected.
_REGISTERED_LIBRARIES: list[Any] = []


def declare_torchvision() -> None:
    """Declare the operators of torchvision if its import fails because it was built for another kind of torch."""
    try:
        importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        return
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for schema in _OPERATORS.splitlines():
            library.define(schema)
        _REGISTERED_LIBRARIES.append(library)
        import torchvision  # noqa: F401


def torchvision_models() -> list[Architecture]:
    import torchvision.models as models

    sizes = {"inception_v3": 299, "alexnet": 64, "maxvit_t": 224}

    def image(name: str) -> Callable[[], Made]:
        size = sizes.get(name, 32 if "vgg" in name or "dense" in name else 64)
        options = {"image_size": size} if name.startswith("vit_") else {}
        return lambda: fed(
            models.get_model(name, weights=None, num_classes=4, **options), torch.randn(2, 3, size, size)
        )

    def segmented(name: str) -> Callable[[], Made]:
        options = {"weights": None, "weights_backbone": None, "num_classes": 4}
        return lambda: fed(models.get_model(name, **options), torch.randn(2, 3, 64, 64))

    def video(name: str) -> Callable[[], Made]:
        return lambda: fed(models.get_model(name, weights=None, num_classes=4), torch.randn(1, 3, 8, 64, 64))

    heavy = (
        "_l",
        "_h_14",
        "regnet_y_128gf",
        "efficientnet_b7",
        "efficientnet_b6",
        "regnet_x_32gf",
        "regnet_y_32gf",
        "101_64",
    )
    found = []
    for name in models.list_models(module=models):
        if not name.endswith(heavy) and "large" not in name:
            found.append(one("torchvision", name, image(name)))
    found += [one("torchvision", n, segmented(n)) for n in models.list_models(module=models.segmentation)]
    found += [
        one("torchvision", n, video(n)) for n in models.list_models(module=models.video) if n.startswith(("r", "mc"))
    ]
    return found


# timm.


def timm_models() -> list[Architecture]:
    """Of each of its files the smallest model, as far as names tell; of those, as the meta device tells."""
    import timm

    found = []
    for module in timm.list_modules():
        names = timm.list_models(module=module)
        if names:
            found.append(Architecture("timm", module, lambda names=tuple(names): _smallest(names)))
    return found


def _smallest(names: tuple[str, ...]) -> Iterator[Callable[[], Made]]:
    import timm

    small = (
        "test",
        "nano",
        "pico",
        "atto",
        "femto",
        "tiny",
        "_t",
        "small",
        "_s",
        "lite",
        "mini",
        "xx",
        "18",
        "26",
        "_0",
        "b0",
        "_b",
    )
    order = sorted(names, key=lambda n: (min((i for i, part in enumerate(small) if part in n), default=99), len(n), n))
    sized = []
    for name in order[:4]:
        try:
            with torch.device("meta"):
                model = timm.create_model(name, pretrained=False, num_classes=4)
        except Exception:
            sized.append((50_000_000, name, 224))
            continue
        side = model.pretrained_cfg.get("min_input_size") or model.pretrained_cfg.get("input_size") or (3, 224, 224)
        sized.append((sum(p.numel() for p in model.parameters()), name, side[-1]))

    def made(name: str, side: int, resized: bool) -> Made:
        options = {"img_size": side} if resized else {}
        model = timm.create_model(name, pretrained=False, num_classes=4, **options)
        return fed(model, torch.randn(2, model.pretrained_cfg["input_size"][0], side, side))

    for _, name, side in sorted(sized)[:2]:
        for wanted, resized in ((64, True), (96, False), (side, False), (224, False)):
            yield lambda name=name, wanted=wanted, resized=resized: made(name, wanted, resized)


# torch_geometric: each convolution with its default options, on a random graph.


def geometric_convs() -> list[Architecture]:
    from torch_geometric.nn import conv

    found = []
    for name in conv.__all__:
        if name not in ("MessagePassing", "SimpleConv", "HeteroConv") and not name.startswith("Cu"):
            found.append(Architecture("torch_geometric", name, partial(_conv, getattr(conv, name))))
    from torch_geometric.nn import models

    for name in ("GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN", "GraphUNet", "LightGCN", "DeepGCNLayer"):
        if hasattr(models, name):
            found.append(Architecture("torch_geometric", f"models.{name}", partial(_conv, getattr(models, name))))
    return found


def _conv(kind: Any) -> Iterator[Callable[[], Made]]:
    """Constructors and calls as the convolutions have them, one after the other until one fits."""
    nodes, edges = 12, 40

    def mlp(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Linear(a, 8), nn.ReLU(), nn.Linear(8, b))

    constructors: list[Callable[[], nn.Module]] = [
        lambda: kind(8, 6),
        lambda: kind(8, 6, 2),
        lambda: kind(8, 6, edge_dim=3),
        lambda: kind(mlp(8, 6)),
        lambda: kind(mlp(16, 6)),
        lambda: kind(8, 6, num_relations=3),
        lambda: kind(8, 6, mlp(3, 48)),
        lambda: kind(8),
        lambda: kind(8, 2),
        lambda: kind(8, 8, 2),
        lambda: kind(8, 6, 2, 2),
        lambda: kind(8, 6, 2, 1, 2),
        lambda: kind(8, alpha=0.5),
        lambda: kind(2, 0.1),
        lambda: kind(8, 6, dim=3, kernel_size=2),
        lambda: kind(8, 6, hidden_channels=4, num_layers=2),
        lambda: kind(8, 4, 2, 6),
        lambda: kind(8, hidden_channels=6, num_layers=2),
        lambda: kind(8, 4, 2, 6, 0.5),
        lambda: kind(8, 6, ["mean", "max"], ["identity"], torch.tensor([0, 2, 4, 2])),
        lambda: kind(mlp(6 + 3, 6), mlp(6, 4)),
        lambda: kind(mlp(8 + 3, 6), mlp(6, 4)),
        lambda: kind(mlp(8, 6), 0.5),
        lambda: kind(),
    ]
    state = torch.Generator().manual_seed(0)
    index = torch.randint(0, nodes, (2, edges), generator=state)
    weight, attributes = torch.rand(edges, generator=state), torch.randn(edges, 3, generator=state)
    x, place = torch.randn(nodes, 8, generator=state), torch.randn(nodes, 3, generator=state)
    kinds, batch = torch.randint(0, 3, (edges,), generator=state), torch.zeros(nodes, dtype=torch.long)
    inputs: list[tuple[Any, ...]] = [
        (x, index),
        (x, index, attributes),
        (x, index, weight),
        (x, index, torch.rand(edges, 3)),
        (x, index, kinds),
        (x, place, index),
        (place, index, attributes),
        (x, x, index),
        (x, index, batch),
        (x, batch),
        (x,),
        (x, place, batch),
    ]
    for make in constructors:
        try:
            if not list(make().parameters()):
                continue
        except Exception:
            continue
        for given in inputs:

            def made(make: Callable[[], nn.Module] = make, given: tuple[Any, ...] = given) -> Made:
                module = make()
                return fed(module, *given)

            yield made


# x-transformers: an option of its README each.


def x_transformers() -> list[Architecture]:
    import x_transformers as x

    options: dict[str, dict[str, Any]] = {
        name: {name: True}
        for name in (
            "rotary_pos_emb",
            "alibi_pos_bias",
            "rel_pos_bias",
            "dynamic_pos_bias",
            "use_rmsnorm",
            "use_scalenorm",
            "use_simple_rmsnorm",
            "ff_glu",
            "ff_swish",
            "ff_relu_squared",
            "ff_no_bias",
            "attn_talking_heads",
            "attn_on_attn",
            "attn_qk_norm",
            "attn_gate_values",
            "sandwich_norm",
            "resi_dual",
            "gate_residual",
            "scale_residual",
            "shift_tokens",
            "macaron",
            "rotary_xpos",
            "residual_attn",
            "cross_residual_attn",
            "attn_flash",
            "attn_value_residual",
            "attn_laser",
            "use_adaptive_layernorm",
            "ff_post_act_ln",
            "attn_gate_value_heads",
            "pre_norm_has_final_norm",
            "attn_one_kv_head",
            "attn_sigmoid",
            "use_layerscale",
            "softclamp_output",
            "unet_skips",
            "use_simple_layernorm",
            "use_dynamic_tanh",
            "polar_pos_emb",
            "attn_selective",
            "attn_softclamp_logits",
            "attn_orthog_projected_values",
        )
    }
    options |= {
        "plain": {},
        "attn_num_mem_kv": {"attn_num_mem_kv": 2},
        "attn_kv_heads": {"attn_kv_heads": 2},
        "attn_sparse_topk": {"attn_sparse_topk": 3},
        "attn_dropout": {"attn_dropout": 0.1, "ff_dropout": 0.1, "layer_dropout": 0.1},
        "sandwich_coef": {"sandwich_coef": 1},
        "num_residual_streams": {"num_residual_streams": 2},
        "weight_tie_layers": {"weight_tie_layers": True},
        "custom_layers": {"custom_layers": ("a", "f", "f")},
        "ff_glu ff_swish": {"ff_glu": True, "ff_swish": True},
    }

    def decoder(extra: dict[str, Any]) -> Made:
        layers = x.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **extra)
        model = x.AutoregressiveWrapper(x.TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers))
        return fed(model, torch.randint(0, 50, (2, 12)))

    def encoder() -> Made:
        layers = x.Encoder(dim=32, depth=2, heads=4)
        return fed(
            x.TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers), torch.randint(0, 50, (2, 12))
        )

    def vision() -> Made:
        model = x.ViTransformerWrapper(
            image_size=32, patch_size=8, num_classes=4, attn_layers=x.Encoder(dim=32, depth=2, heads=4)
        )
        return fed(model, torch.randn(2, 3, 32, 32))

    def continuous() -> Made:
        model = x.ContinuousTransformerWrapper(
            dim_in=6, dim_out=5, max_seq_len=16, attn_layers=x.Encoder(dim=32, depth=2, heads=4)
        )
        return fed(model, torch.randn(2, 12, 6))

    def pair() -> Made:
        sizes = {"num_tokens": 50, "depth": 1, "heads": 2, "max_seq_len": 16}
        both = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in sizes.items()}
        model = x.XTransformer(dim=32, **both)
        return fed(model, torch.randint(0, 50, (2, 12)), torch.randint(0, 50, (2, 9)), mask=torch.ones(2, 12).bool())

    found = [
        one("x-transformers", f"Decoder {name}", lambda extra=extra: decoder(extra)) for name, extra in options.items()
    ]
    others = {"Encoder": encoder, "ViTransformerWrapper": vision, "Continuous": continuous, "XTransformer": pair}
    return found + [one("x-transformers", name, make) for name, make in others.items()]


# diffusers.


def diffusers_models() -> list[Architecture]:
    import diffusers as d
    import diffusers.models.autoencoders.autoencoder_kl  # what all models import, once and not in each child
    import diffusers.models.unets.unet_2d_condition

    blocks, ups = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    small = {"block_out_channels": (16, 32), "norm_num_groups": 4, "layers_per_block": 1}
    step, text = torch.tensor([3, 7]), {"encoder_hidden_states": torch.randn(2, 5, 32)}
    x4, x3 = torch.randn(2, 4, 16, 16), torch.randn(2, 3, 16, 16)
    cross = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "cross_attention_dim": 32,
        "attention_head_dim": 4,
    }
    coder = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    makes: dict[str, Callable[[], Made]] = {
        "UNet2DModel": lambda: fed(
            d.UNet2DModel(16, 3, 3, down_block_types=blocks, up_block_types=ups, **small), x3, step
        ),
        "UNet2DModel skip": lambda: fed(
            d.UNet2DModel(
                16,
                3,
                3,
                down_block_types=("SkipDownBlock2D", "AttnSkipDownBlock2D"),
                up_block_types=("AttnSkipUpBlock2D", "SkipUpBlock2D"),
                **small,
            ),
            x3,
            step,
        ),
        "UNet2DConditionModel": lambda: fed(d.UNet2DConditionModel(16, **cross, **small), x4, step, **text),
        "UNet2DConditionModel ada": lambda: fed(
            d.UNet2DConditionModel(
                16, resnet_time_scale_shift="scale_shift", class_embed_type="timestep", **cross, **small
            ),
            x4,
            step,
            class_labels=step,
            **text,
        ),
        "UNet3DConditionModel": lambda: fed(
            d.UNet3DConditionModel(
                16,
                down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
                cross_attention_dim=32,
                attention_head_dim=4,
                **small,
            ),
            torch.randn(2, 4, 3, 16, 16),
            step,
            **text,
        ),
        "UNet1DModel": lambda: fed(
            d.UNet1DModel(
                64,
                in_channels=2,
                out_channels=2,
                extra_in_channels=16,
                block_out_channels=(16, 32),
                layers_per_block=1,
                down_block_types=("DownBlock1DNoSkip", "DownBlock1D"),
                up_block_types=("UpBlock1D", "UpBlock1DNoSkip"),
                mid_block_type="UNetMidBlock1D",
            ),
            torch.randn(2, 2, 64),
            step,
        ),
        "AutoencoderKL": lambda: fed(d.AutoencoderKL(**coder, **small), x3, sample_posterior=True),
        "AutoencoderTiny": lambda: fed(
            d.AutoencoderTiny(
                encoder_block_out_channels=(8, 8),
                decoder_block_out_channels=(8, 8),
                num_encoder_blocks=(1, 1),
                num_decoder_blocks=(1, 1),
            ),
            x3,
        ),
        "AsymmetricAutoencoderKL": lambda: fed(
            d.AsymmetricAutoencoderKL(
                **coder, down_block_out_channels=(16, 32), up_block_out_channels=(16, 32), norm_num_groups=4
            ),
            x3,
        ),
        "AutoencoderKLTemporalDecoder": lambda: fed(
            d.AutoencoderKLTemporalDecoder(
                down_block_types=("DownEncoderBlock2D",) * 2, block_out_channels=(32, 64), layers_per_block=1
            ),
            torch.randn(2, 3, 16, 16),
            num_frames=1,
        ),
        "VQModel": lambda: fed(d.VQModel(**coder, **small, num_vq_embeddings=16, vq_embed_dim=4), x3),
        "AutoencoderOobleck": lambda: fed(
            d.AutoencoderOobleck(
                encoder_hidden_size=8,
                downsampling_ratios=[2, 4],
                channel_multiples=[1, 2],
                decoder_channels=8,
                decoder_input_channels=4,
            ),
            torch.randn(1, 2, 64),
        ),
        "AutoencoderDC": lambda: fed(
            d.AutoencoderDC(
                encoder_block_out_channels=(16, 32),
                decoder_block_out_channels=(16, 32),
                encoder_layers_per_block=(1, 1),
                decoder_layers_per_block=(1, 1),
                encoder_block_types=("ResBlock", "EfficientViTBlock"),
                decoder_block_types=("ResBlock", "EfficientViTBlock"),
                attention_head_dim=8,
                encoder_qkv_multiscales=((), (5,)),
                decoder_qkv_multiscales=((), (5,)),
                latent_channels=4,
            ),
            torch.randn(1, 3, 16, 16),
        ),
        "Transformer2DModel": lambda: fed(
            d.Transformer2DModel(2, 8, in_channels=16, norm_num_groups=4, cross_attention_dim=32),
            torch.randn(2, 16, 8, 8),
            **text,
        ),
        "DiTTransformer2DModel": lambda: fed(
            d.DiTTransformer2DModel(2, 8, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=4),
            torch.randn(2, 4, 8, 8),
            step,
            step,
        ),
        "PixArtTransformer2DModel": lambda: fed(
            d.PixArtTransformer2DModel(
                2,
                8,
                in_channels=4,
                num_layers=2,
                sample_size=8,
                cross_attention_dim=16,
                caption_channels=32,
                use_additional_conditions=False,
            ),
            torch.randn(2, 4, 8, 8),
            timestep=step,
            **text,
        ),
        "SD3Transformer2DModel": lambda: fed(
            d.SD3Transformer2DModel(
                8,
                2,
                4,
                num_layers=2,
                attention_head_dim=8,
                num_attention_heads=2,
                joint_attention_dim=32,
                caption_projection_dim=16,
                pooled_projection_dim=12,
            ),
            torch.randn(2, 4, 8, 8),
            pooled_projections=torch.randn(2, 12),
            timestep=step,
            **text,
        ),
        "FluxTransformer2DModel": lambda: fed(
            d.FluxTransformer2DModel(
                1,
                4,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=32,
                pooled_projection_dim=12,
                axes_dims_rope=(4, 4, 8),
            ),
            torch.randn(2, 16, 4),
            pooled_projections=torch.randn(2, 12),
            timestep=step / 10,
            txt_ids=torch.zeros(5, 3),
            img_ids=torch.zeros(16, 3),
            **text,
        ),
        "PriorTransformer": lambda: fed(
            d.PriorTransformer(2, 8, num_layers=2, embedding_dim=12, num_embeddings=5, additional_embeddings=4),
            torch.randn(2, 12),
            step,
            torch.randn(2, 12),
            torch.randn(2, 5, 12),
        ),
        "UVit2DModel": lambda: fed(
            d.UVit2DModel(
                hidden_size=32,
                cond_embed_dim=32,
                micro_cond_encode_dim=4,
                micro_cond_embed_dim=20,
                encoder_hidden_size=32,
                vocab_size=20,
                codebook_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                block_out_channels=32,
                in_channels=32,
                block_num_heads=2,
                intermediate_size=64,
                sample_size=4,
            ),
            torch.randint(0, 16, (2, 4, 4)),
            torch.randn(2, 5, 32),
            torch.randn(2, 32),
            torch.ones(2, 5),
        ),
        "ControlNetModel": lambda: fed(
            d.ControlNetModel(
                down_block_types=cross["down_block_types"],
                cross_attention_dim=32,
                attention_head_dim=4,
                conditioning_embedding_out_channels=(8, 8),
                **small,
            ),
            x4,
            step,
            text["encoder_hidden_states"],
            torch.randn(2, 3, 32, 32),
        ),
        "MotionAdapter UNet": lambda: fed(
            d.UNetMotionModel(
                16,
                down_block_types=("CrossAttnDownBlockMotion", "DownBlockMotion"),
                up_block_types=("UpBlockMotion", "CrossAttnUpBlockMotion"),
                cross_attention_dim=32,
                num_attention_heads=2,
                motion_num_attention_heads=2,
                **small,
            ),
            torch.randn(2, 4, 3, 16, 16),
            step,
            text["encoder_hidden_states"],
        ),
        "LTXVideoTransformer3DModel": lambda: fed(
            d.LTXVideoTransformer3DModel(
                8,
                8,
                num_attention_heads=2,
                attention_head_dim=8,
                cross_attention_dim=16,
                num_layers=2,
                caption_channels=32,
            ),
            torch.randn(2, 8, 8),
            text["encoder_hidden_states"],
            step,
            torch.ones(2, 5),
            num_frames=2,
            height=2,
            width=2,
        ),
        "CogVideoXTransformer3DModel": lambda: fed(
            d.CogVideoXTransformer3DModel(
                2,
                8,
                in_channels=4,
                out_channels=4,
                time_embed_dim=4,
                text_embed_dim=32,
                num_layers=2,
                sample_width=8,
                sample_height=8,
                sample_frames=5,
                max_text_seq_length=5,
            ),
            torch.randn(2, 2, 4, 8, 8),
            text["encoder_hidden_states"],
            step,
        ),
        "WanTransformer3DModel": lambda: fed(
            d.WanTransformer3DModel(
                (1, 2, 2), 2, 12, in_channels=4, out_channels=4, text_dim=32, freq_dim=16, ffn_dim=32, num_layers=2
            ),
            torch.randn(2, 4, 2, 8, 8),
            step,
            text["encoder_hidden_states"],
        ),
        "SanaTransformer2DModel": lambda: fed(
            d.SanaTransformer2DModel(
                4,
                4,
                num_attention_heads=2,
                attention_head_dim=8,
                num_layers=2,
                num_cross_attention_heads=2,
                cross_attention_head_dim=8,
                cross_attention_dim=16,
                caption_channels=32,
                sample_size=8,
            ),
            torch.randn(2, 4, 8, 8),
            text["encoder_hidden_states"],
            step,
        ),
    }
    return [one("diffusers", name, make) for name, make in makes.items()]
