"""The load of routers of experts, read from the graph, against what they chose; and choices that are no router's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watching import watched

from backprobe.observe.session import Settings
from backprobe.traces import Statistics

TOKENS, WIDTH, EXPERTS = 24, 8, 6


def looked_at(net: nn.Module, loss: Any) -> Statistics:
    session, sink = watched(Settings("minimal", layer_stats=1))
    session.start()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    loss().backward()
    optimizer.step()
    session.stop()
    assert session.error is None
    return sink.trace(session).statistics


def of(found: Statistics) -> dict[str, tuple[float, float]]:
    return {
        name: (found.curve("router_max", name)[0][1], found.curve("router_idle", name)[0][1])
        for name in found.names("router_max")
    }


def plain(chosen: torch.Tensor, experts: int) -> tuple[float, float]:
    counts = torch.bincount(chosen.flatten(), minlength=experts).double()
    return float(counts.max() / counts.sum() * experts), float((counts == 0).double().mean())


class Experts(nn.Module):
    """Experts that are all run, and weighed by what `route` makes of the scores: weights and indices by token."""

    def __init__(self, route: Any, bias: bool = False) -> None:
        super().__init__()
        self.route, self.score = route, nn.Linear(WIDTH, EXPERTS, bias=bias)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.chosen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, WIDTH)
        weights, chosen = self.route(self.score(flat))
        self.chosen.append(chosen)
        out = torch.zeros_like(flat)
        for at, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == at)
            out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, places, None])
        return out.view_as(x)


class Mixed(nn.Module):
    def __init__(self, route: Any) -> None:
        super().__init__()
        self.into, self.moe = nn.Linear(4, WIDTH), Experts(route)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        return x + self.moe(torch.tanh(x))


def topk_then_softmax(scores: torch.Tensor) -> Any:
    values, chosen = scores.topk(2, -1)
    return values.softmax(-1), chosen


def softmax_then_topk(scores: torch.Tensor) -> Any:
    values, chosen = scores.softmax(-1).topk(2, 1)
    return values / values.sum(-1, keepdim=True), chosen


def sigmoid_and_gather(scores: torch.Tensor) -> Any:
    """Chosen by scores with a bias, without a gradient; weighed by those without."""
    probable = scores.sigmoid()
    with torch.no_grad():
        chosen = (probable + torch.linspace(0, 0.2, EXPERTS)).topk(3, -1).indices
    return 2.5 * probable.gather(1, chosen), chosen


def noisy(scores: torch.Tensor) -> Any:
    """Softmax over all, where those that are not chosen have a score of minus infinity (arXiv 1701.06538)."""
    values, chosen = (scores + torch.randn_like(scores)).topk(2, -1)
    gates = torch.full_like(scores, -math.inf).scatter(-1, chosen, values).softmax(-1)
    return gates.gather(1, chosen), chosen


def greatest(scores: torch.Tensor) -> Any:
    values, chosen = scores.softmax(-1).max(-1, keepdim=True)
    return values, chosen


@pytest.mark.parametrize("route", [topk_then_softmax, softmax_then_topk, sigmoid_and_gather, noisy, greatest])
def test_the_load_matches_the_choices_of_the_router(route: Any) -> None:
    torch.manual_seed(1)
    net = Mixed(route)
    net.moe.score.weight.data[0].mul_(5)
    found = of(looked_at(net, lambda: net(torch.randn(2, TOKENS // 2, 4)).square().mean()))
    assert found == {"moe": pytest.approx(plain(net.moe.chosen[0], EXPERTS), rel=1e-6)}
    assert found["moe"][0] > 1.2


@pytest.mark.parametrize("how", ["autocast", "frozen", "normalised"])
def test_routers_whose_weight_is_cast_frozen_or_normalised(how: str) -> None:
    torch.manual_seed(1)
    net = Mixed(softmax_then_topk)
    if how == "frozen":
        net.moe.score.requires_grad_(False)
    if how == "normalised":
        weight = net.moe.score.weight
        net.moe.score.forward = lambda x: F.normalize(x, dim=-1) @ F.normalize(weight, dim=-1).t()

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
            return net(torch.randn(2, 12, 4)).float().square().mean()

    assert of(looked_at(net, loss)) == {"moe": pytest.approx(plain(net.moe.chosen[0], EXPERTS), rel=1e-6)}


def test_one_expert_takes_all_and_the_others_are_idle() -> None:
    net = Mixed(greatest)
    nn.init.zeros_(net.moe.score.weight)
    found = of(looked_at(net, lambda: net(torch.randn(5, 4)).square().mean()))
    assert found == {"moe": pytest.approx((EXPERTS, 1 - 1 / EXPERTS))}


class Chooses(nn.Module):
    """Something that chooses, and is no router."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.into, self.key = kind, nn.Linear(4, WIDTH), nn.Linear(4, WIDTH)
        self.words, self.out, self.one = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.into(x)
        return getattr(self, self.kind)(x, h)

    def neighbours_by_distance(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        near, at = (-torch.cdist(h, h)).topk(3, -1)
        return (near.softmax(-1)[..., None] * h[at]).sum(-2)

    def neighbours_by_keys(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        near, at = (h @ self.key(x).t()).topk(3, -1)
        return (near.softmax(-1)[..., None] * h[at]).sum(-2)

    def sparse_attention(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        near, at = (h @ self.key(x).t()).softmax(-1).topk(3, -1)
        return (near[..., None] * h[at]).sum(-2)

    def positions(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        near, at = self.one(h).squeeze(-1).softmax(-1).topk(3, -1)
        return near[:, None] * h[at]

    def positions_for_each_unit(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """As experts that choose tokens do: each has the same load."""
        near, at = self.words(h).softmax(-1).t().topk(3, -1)
        return (near[..., None] * h[at]).sum(-2)

    def words_put_out(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return 0.5 * self.words(h).softmax(-1).topk(5, -1).values

    def words_in_the_loss(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return self.words(h).softmax(-1).topk(5, -1).values.clamp(min=1e-9).log().sum(-1)

    def beams(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        before = self.one(h)
        return (before + self.words(h).log_softmax(-1)).view(2, -1).topk(4, -1).values

    def labels(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        label = torch.arange(len(h))[:, None]
        return self.words(h).softmax(-1).gather(1, label) * h

    def first_units(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """As a sparse autoencoder does."""
        values, at = self.words(h).relu().topk(4, -1)
        return torch.zeros(len(h), 32).scatter(-1, at, values) @ self.words.weight

    def all_of_them(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        values, at = self.words(h).softmax(-1).topk(32, -1)
        return (values[..., None] * self.words.weight[at]).sum(-2)


KINDS = [name for name in vars(Chooses) if not name.startswith("_") and name != "forward"]


@pytest.mark.parametrize("kind", KINDS)
def test_other_choices_are_not_reported_as_a_router(kind: str) -> None:
    torch.manual_seed(0)
    net = Chooses(kind)
    found = looked_at(net, lambda: net(torch.randn(32 if kind != "labels" else 10, 4)).square().mean())
    assert found.names("activation_rms")
    assert of(found) == {}


SMALL_CONFIG: dict[str, Any] = {
    **{"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "num_experts_per_tok": 2, "eos_token_id": None},
}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Mixtral", {"num_local_experts": 4}),
        ("Qwen2Moe", {"num_experts": 8, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}),
        ("Olmoe", {"num_experts": 8}),
    ],
)
def test_models_of_transformers(kind: str, more: Any) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL_CONFIG, **more)
    net = getattr(transformers, f"{kind}ForCausalLM")(config)
    chosen: dict[str, torch.Tensor] = {}
    experts = next(iter(more.values()))
    for name, module in net.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(lambda m, a, out, name=name: chosen.update({name: out[-1]}))
    words = torch.randint(0, 50, (2, 9))
    found = of(looked_at(net, lambda: net(input_ids=words, labels=words).loss))
    assert len(chosen) == 2
    assert found == {name: pytest.approx(plain(at, experts), rel=1e-6) for name, at in chosen.items()}
