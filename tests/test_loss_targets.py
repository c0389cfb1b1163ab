"""Losses through whose targets or weights a gradient flows, by mistake and on purpose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import AttachedAdvantage, CollapsedEmbeddings, ReversedStep, StraightThroughLoss, UndetachedStep

Loss = Callable[[Any, torch.Tensor], torch.Tensor]


def watched(model: nn.Module, loss_of: Loss, width: int, steps: int, trained: Any = None, rate: float = 1e-2) -> Any:
    """Return the trace of some steps of Adam, each with a new batch."""
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.Adam(model.parameters() if trained is None else trained, lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, torch.randn(64, width)).backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    assert session.events.faults.unseen() == []
    return collector.trace(session)


# Embeddings that collapse


class Twins(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
        self.other = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
        self.predictor = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head, self.decoder = nn.Linear(16, 10), nn.Linear(16, 10)
        self.average = copy.deepcopy(self.encoder)

    def forward(self, x: torch.Tensor) -> Any:
        return [self.encoder(x + 0.3 * torch.randn_like(x)) for _ in range(2)]


def by_cosine(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return -F.cosine_similarity(model.predictor(a), b, dim=1).mean()


def by_both_orders(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    similarity = nn.CosineSimilarity(dim=-1)
    return 2 - similarity(model.predictor(a), b).mean() - similarity(model.predictor(b), a).mean()


def by_squares(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return F.mse_loss(model.predictor(a), b)


def by_difference(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return (model.predictor(a) - b).pow(2).sum(1).mean()


def by_product(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = (F.normalize(one, dim=-1) for one in model(x))
    return 2 - 2 * (a * b).sum(dim=-1).mean()


def by_halves(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(torch.cat([x, x + 0.3 * torch.randn_like(x)]))
    a, b = (z / z.norm(dim=1, keepdim=True)).chunk(2)
    return -(a * b).sum(dim=1).mean()


def by_normalised_squares(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = (F.normalize(one, dim=-1) for one in model(x))
    return F.mse_loss(a, b)


def by_two_encoders(model: Any, x: torch.Tensor) -> torch.Tensor:
    return 1 - F.cosine_similarity(model.encoder(x), model.other(x)).mean()


def of_patches(model: Any, x: torch.Tensor) -> torch.Tensor:
    patches = x[:, None] * torch.linspace(0.5, 2.0, 4)[:, None]
    return F.smooth_l1_loss(model.predictor(model.encoder(patches)), model.encoder(patches.roll(1, 1)))


COLLAPSES = [
    *(by_cosine, by_both_orders, by_squares, by_difference, by_product, by_normalised_squares, by_two_encoders),
    *(of_patches, by_halves),
]


@pytest.mark.parametrize("loss_of", COLLAPSES, ids=lambda one: one.__name__)
def test_embeddings_that_collapse(loss_of: Loss) -> None:
    trace = watched(Twins(), loss_of, 10, 150)
    (found,) = [one for one in trace.findings if one.kind == "embeddings-collapse"]
    assert {(one.role, one.site.function) for one in found.sites} == {("cause", loss_of.__name__)}
    assert found.evidence["last"] <= 0.25 * found.evidence["first"] and found.evidence["rows"] == 64


def detached(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return -F.cosine_similarity(model.predictor(a), b.detach(), dim=1).mean()


def in_batch_negatives(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = (F.normalize(one, dim=1) for one in model(x))
    positive = (a * b).sum(1, keepdim=True) / 0.1
    return (torch.logsumexp(torch.cat([positive, a @ b.roll(1, 0).T / 0.1], 1), 1) - positive[:, 0]).mean()


def shuffled_negatives(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return (F.cosine_similarity(a, b.roll(1, 0)).relu() - F.cosine_similarity(a, b)).mean()


def variance_kept(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    spread = sum(F.relu(1 - (one.var(0) + 1e-4).sqrt()).mean() for one in (a, b))
    return F.mse_loss(a, b) + spread


def beside_classes(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return F.cross_entropy(model.head(a), x.argmax(1)) + 0.3 * F.mse_loss(a, b)


def beside_reconstruction(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    return F.mse_loss(model.decoder(a), x) + 0.1 * (1 - F.cosine_similarity(a, b).mean())


def heads_of_values_far_from_zero(model: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = model.head(model.encoder(x)), model.decoder(model.encoder(x))
    return F.mse_loss(one, x + 8) + F.mse_loss(one, other)


def heads_whose_directions_agree(model: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = model.head(model.encoder(x)), model.decoder(model.encoder(x))
    return F.mse_loss(one, x + 8) - F.cosine_similarity(one, other).mean()


def normals_of_a_plane(model: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = model.head(model.encoder(x))[:, :3], model.decoder(model.encoder(x))[:, :3]
    return 1 - F.cosine_similarity(one, other).mean()


def smooth_beside_reconstruction(model: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = model.encoder(x[:, None] * torch.linspace(0.5, 2.0, 4)[:, None])
    return F.mse_loss(model.decoder(hidden[:, 0]), x) + (hidden[:, 1:] - hidden[:, :-1]).square().mean()


def average_that_nobody_trains(model: Any, x: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model.predictor(model.encoder(x)), model.average(x))


def contrastive_pairs(model: Any, x: torch.Tensor) -> torch.Tensor:
    a, b = model(x)
    same = (torch.rand(len(x)) > 0.5).float()
    distance = F.pairwise_distance(a, torch.where(same[:, None] > 0, b, b.roll(1, 0)))
    return (same * distance.square() + (1 - same) * F.relu(2 - distance).square()).mean()


def weights_alike(model: Any, x: torch.Tensor) -> torch.Tensor:
    apart = F.mse_loss(model.encoder[0].weight, model.other[0].weight)
    return apart + F.mse_loss(model.decoder(model.encoder(x)), x) + F.mse_loss(model.decoder(model.other(x)), x)


MEANT = [
    *(detached, in_batch_negatives, shuffled_negatives, variance_kept, beside_classes, beside_reconstruction),
    *(heads_of_values_far_from_zero, heads_whose_directions_agree, normals_of_a_plane, average_that_nobody_trains),
    *(contrastive_pairs, weights_alike, smooth_beside_reconstruction),
]


@pytest.mark.parametrize("loss_of", MEANT, ids=lambda one: one.__name__)
def test_embeddings_that_are_meant_to_be_compared(loss_of: Loss) -> None:
    model = Twins()
    trained = [p for name, p in model.named_parameters() if not name.startswith("average")]
    trace = watched(model, loss_of, 10, 150, trained)
    assert trace.facts.of(CollapsedEmbeddings) == ()


def test_a_target_that_is_detached_no_more() -> None:
    calls = iter(range(1000))

    def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
        return detached(model, x) if next(calls) < 60 else by_cosine(model, x)

    trace = watched(Twins(), loss_of, 10, 300)
    (found,) = [one for one in trace.findings if one.kind == "embeddings-collapse"]
    assert found.step is not None and found.step >= 60 and found.sites[0].site.function == "by_cosine"


# Advantages with a graph


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.actor, self.critic, self.scale = nn.Linear(16, 3), nn.Linear(16, 1), nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def returns_of(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1).tanh()


def plain(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    policy = Categorical(logits=logits)
    advantage = returns_of(x) - values  # made
    actor = -(policy.log_prob(policy.sample()) * advantage).mean()  # product
    return actor + 0.5 * F.mse_loss(values, returns_of(x)) - 0.01 * policy.entropy().mean()


def squared_advantage(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    chosen = torch.randint(0, 3, (len(x), 1))
    advantage = returns_of(x) - values  # made
    logs = F.log_softmax(logits, dim=-1).gather(1, chosen).squeeze(1)
    return (-logs * advantage).mean() + advantage.pow(2).mean()  # product


def ratio_and_normalised(model: Any, x: torch.Tensor) -> torch.Tensor:
    mean, values = model(x)
    policy = Independent(Normal(mean, model.scale.exp()), 1)
    action = policy.sample()
    advantage = returns_of(x) - values  # made
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (policy.log_prob(action) - policy.log_prob(action).detach()).exp()
    first = ratio * advantage  # product
    second = ratio.clamp(0.8, 1.2) * advantage
    return -torch.min(first, second).mean() + F.smooth_l1_loss(values, returns_of(x))


def temporal_difference(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    following = model(x.roll(1, 0))[1]
    error = returns_of(x) + 0.9 * following - values  # made
    loss = F.cross_entropy(logits, torch.randint(0, 3, (len(x),)), reduction="none")
    return (loss * error).mean() + error.square().mean()  # product


def state_by_state(model: Any, x: torch.Tensor) -> torch.Tensor:
    actors, critics = [], []
    for state in x[:8]:
        logits, value = model(state[None])
        policy = Categorical(F.softmax(logits, dim=-1))
        advantage = float(state.sum()) - value  # made
        actors.append(-policy.log_prob(policy.sample()) * advantage)  # product
        critics.append(F.smooth_l1_loss(value, state.sum()[None]))
    return torch.stack(actors).sum() + torch.stack(critics).sum()


ATTACHED = [plain, squared_advantage, ratio_and_normalised, temporal_difference, state_by_state]


@pytest.mark.parametrize("loss_of", ATTACHED, ids=lambda one: one.__name__)
def test_an_advantage_with_a_graph(loss_of: Loss) -> None:
    trace = watched(ActorCritic(), loss_of, 6, 3)
    found = next(one for one in trace.findings if one.kind == "advantage-not-detached")
    places = [(one.role, (one.site.text or "").partition("# ")[2]) for one in found.sites]
    assert places[0] == ("cause", "product") and ("cause", "made") in places
    assert [one.role for one in found.sites[-2:]] == ["term", "failed"] and found.step == 0


def advantage_detached(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    policy = Categorical(logits=logits)
    advantage = returns_of(x) - values
    return advantage.square().mean() - (policy.log_prob(policy.sample()) * advantage.detach()).mean()


def baseline_detached(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    policy = Categorical(logits=logits)
    actor = -(policy.log_prob(policy.sample()) * (returns_of(x) - values.detach())).mean()
    return actor + F.mse_loss(values, returns_of(x))


def focal(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    logs = F.log_softmax(logits, dim=-1).gather(1, torch.randint(0, 3, (len(x), 1)))
    return -(logs * (1 - logs.exp())).mean() + F.mse_loss(values, returns_of(x))


def entropy(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    logs = F.log_softmax(logits, dim=-1)
    return (logs.exp() * (logs - 0.5)).sum(-1).mean() + F.mse_loss(values, returns_of(x))


def expected(model: Any, x: torch.Tensor) -> torch.Tensor:
    """All actions are weighted by their probabilities: no action is chosen."""
    logits, values = model(x)
    probabilities, logs = F.softmax(logits, dim=-1), F.log_softmax(logits, dim=-1)
    return (probabilities * (0.2 * logs - values[:, None])).sum(1).mean() + F.mse_loss(values, returns_of(x))


def sampled_again(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The policy is trained through the critic, as in SAC."""
    mean, values = model(x)
    policy = Normal(mean, model.scale.exp())
    action = policy.rsample()
    quality = model.critic(model.body(torch.cat([action, x[:, 3:]], 1))).squeeze(-1)
    return (0.2 * policy.log_prob(action).sum(-1) - quality).mean() + F.mse_loss(values, returns_of(x))


def punished_for_divergence(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    policy = Categorical(logits=logits)
    logs = policy.log_prob(policy.sample())
    reward = returns_of(x) - 0.1 * (logs - logs.detach())
    return -(logs * reward).mean() + F.mse_loss(values, returns_of(x))


def soft_targets(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    return F.cross_entropy(logits, F.softmax(x[:, :3], dim=-1)) + F.mse_loss(values, returns_of(x))


def weighted_by_uncertainty(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    losses = F.cross_entropy(logits, torch.randint(0, 3, (len(x),)), reduction="none")
    return (losses * (-values).exp() + values).mean()


def baseline_that_nothing_fits(model: Any, x: torch.Tensor) -> torch.Tensor:
    logits, values = model(x)
    policy = Categorical(logits=logits)
    return -(policy.log_prob(policy.sample()) * (returns_of(x) - values)).mean()


SEPARATE = [
    *(advantage_detached, baseline_detached, focal, entropy, expected, sampled_again, punished_for_divergence),
    *(soft_targets, weighted_by_uncertainty, baseline_that_nothing_fits),
]


@pytest.mark.parametrize("loss_of", SEPARATE, ids=lambda one: one.__name__)
def test_a_critic_that_only_its_own_loss_trains(loss_of: Loss) -> None:
    trace = watched(ActorCritic(), loss_of, 6, 3)
    assert trace.facts.of(AttachedAdvantage) == ()


class Agent:
    """A policy and a critic with an optimizer each, whose losses have a backward call each."""

    def __init__(self) -> None:
        self.policy, self.critic = (nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, n)) for n in (3, 1))
        self.optimizers = [torch.optim.Adam(one.parameters(), lr=1e-3) for one in (self.policy, self.critic)]

    def values(self, x: torch.Tensor) -> torch.Tensor:
        return self.critic(x).squeeze(-1)

    def policy_loss(self, x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        policy = Categorical(logits=self.policy(x))
        return -(policy.log_prob(policy.sample()) * (returns_of(x) - values)).mean()  # product


def critic_first(agent: Agent, x: torch.Tensor) -> None:
    values = agent.values(x)
    F.mse_loss(values, returns_of(x)).backward(retain_graph=True)
    agent.policy_loss(x, values).backward()


def policy_first(agent: Agent, x: torch.Tensor) -> None:
    agent.policy_loss(x, agent.values(x)).backward()
    F.smooth_l1_loss(agent.values(x), returns_of(x)).backward()


def detached_in_a_call_of_its_own(agent: Agent, x: torch.Tensor) -> None:
    agent.policy_loss(x, agent.values(x).detach()).backward()
    F.mse_loss(agent.values(x), returns_of(x)).backward()


def cleared_in_between(agent: Agent, x: torch.Tensor) -> None:
    agent.policy_loss(x, agent.values(x)).backward()
    agent.optimizers[1].zero_grad()
    F.mse_loss(agent.values(x), returns_of(x)).backward()


def zeroed_in_between(agent: Agent, x: torch.Tensor) -> None:
    agent.policy_loss(x, agent.values(x)).backward()
    agent.optimizers[1].zero_grad(set_to_none=False)
    F.mse_loss(agent.values(x), returns_of(x)).backward()


def critic_steps_in_between(agent: Agent, x: torch.Tensor) -> None:
    """Give the critic gradients that are cleared before it uses them."""
    F.mse_loss(agent.values(x), returns_of(x)).backward()
    agent.optimizers[1].step()
    agent.policy_loss(x, agent.values(x)).backward()


@pytest.mark.parametrize(
    ("calls", "is_attached"),
    [
        *((critic_first, True), (policy_first, True), (detached_in_a_call_of_its_own, False)),
        *((cleared_in_between, False), (zeroed_in_between, False), (critic_steps_in_between, False)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_losses_with_a_backward_call_each(calls: Callable[[Agent, torch.Tensor], None], is_attached: bool) -> None:
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    agent = Agent()
    for _ in range(4):
        for optimizer in agent.optimizers:
            optimizer.zero_grad()
        calls(agent, torch.randn(64, 6))
        for optimizer in agent.optimizers[: 1 if calls is critic_steps_in_between else 2]:
            optimizer.step()
    session.stop()
    assert session.events.faults.unseen() == []
    seen = collector.trace(session).facts.of(AttachedAdvantage)
    texts = [[(site.text or "").partition("# ")[2] for site in one.products] for one in seen]
    assert texts == ([["product"]] if is_attached else [])


# Straight-through steps


class Quantizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.codes = nn.Linear(10, 4), nn.Linear(4, 10), nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        z = self.encoder(x)
        y = self.codes(torch.cdist(z.detach(), self.codes.weight.detach()).argmin(dim=1))
        return z, y, z + (y - z).detach()


def late(model: Any, x: torch.Tensor) -> torch.Tensor:
    z, y, q = model(x)
    return F.mse_loss(model.decoder(q), x) + F.mse_loss(q.view(-1), z.detach().view(-1)) + F.mse_loss(z, y.detach())


def late_by_hand(model: Any, x: torch.Tensor) -> torch.Tensor:
    z, y, q = model(x)
    return F.mse_loss(model.decoder(q), x) + (q - z.detach()).pow(2).mean() + F.mse_loss(z, y.detach())


def early(model: Any, x: torch.Tensor) -> torch.Tensor:
    z, y, q = model(x)
    return F.mse_loss(model.decoder(q), x) + F.mse_loss(y, z.detach()) + F.mse_loss(z, q.detach())


def to_something_else(model: Any, x: torch.Tensor) -> torch.Tensor:
    z, y, q = model(x)
    return F.mse_loss(model.decoder(q), x) + F.mse_loss(q, x[:, :4]) + F.mse_loss(y, z.detach())


@pytest.mark.parametrize("loss", [late, late_by_hand])
def test_a_loss_of_the_result_of_a_straight_through_step(loss: Loss) -> None:
    trace = watched(Quantizer(), loss, 10, 6)
    found = trace.facts.of(StraightThroughLoss)
    assert [(one.site.function, one.made.function) for one in found] == [(loss.__name__, "forward")]
    first = trace.findings[0]
    assert (first.kind, first.parameters) == ("none-grad", ("codes.weight",))
    assert [site.role for site in first.sites[:2]] == ["loss", "cut"]


@pytest.mark.parametrize("loss", [early, to_something_else])
def test_losses_beside_a_straight_through_step(loss: Loss) -> None:
    trace = watched(Quantizer(), loss, 10, 6)
    assert not trace.facts.of(StraightThroughLoss) and not list(trace.findings)


def rounded(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (z + (z.round() - z)).square().mean()  # step


def rounded_and_detached(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (z + (z.round() - z).detach()).square().mean()


def residual(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (z + (z.tanh() - x[:, :4])).square().mean()


@pytest.mark.parametrize(("loss", "lines"), [(rounded, ["step"]), (rounded_and_detached, []), (residual, [])])
def test_a_straight_through_step_that_detaches_nothing(loss: Loss, lines: list[str]) -> None:
    trace = watched(Quantizer(), loss, 10, 6)
    assert [one.site.text.partition("# ")[2] for one in trace.facts.of(UndetachedStep)] == lines
    found = [one for one in trace.findings if one.kind == "zero-grad"]
    assert [one.sites[0].site.text.partition("# ")[2] for one in found] == lines
    assert all("straight-through step detaches nothing" in one.title and ".detach()" in one.advice for one in found)


def swapped(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    y = z.round()  # rounded
    return (y + (z - y).detach()).square().mean()  # step


def swapped_in_two_lines(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    y = (z * 4).floor() / 4  # rounded
    rest = z.detach() - y.detach()
    return (rest + y).square().mean()  # step


def swapped_without_gradients(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    y = torch.sign(z)  # rounded
    with torch.no_grad():
        rest = z - y
    return (y + rest).square().mean()  # step


def swapped_as_a_sum(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    y = torch.round(z)  # rounded
    return (z.detach() + y - y.detach()).square().mean()  # step


def swapped_as_a_difference(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    y = torch.round(z)  # rounded
    return (y - y.detach() + z.detach()).square().mean()  # step


def rounded_anew(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (torch.round(z) + (z - torch.round(z)).detach()).square().mean()  # rounded # step


def straight_through(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + (y - x).detach()  # step


def arguments_swapped(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return straight_through(z.round(), z).square().mean()  # rounded


SWAPPED = [
    swapped,
    swapped_in_two_lines,
    swapped_without_gradients,
    swapped_as_a_sum,
    swapped_as_a_difference,
    rounded_anew,
    arguments_swapped,
]


@pytest.mark.parametrize("loss", SWAPPED)
def test_a_straight_through_step_the_wrong_way_round(loss: Loss) -> None:
    trace = watched(Quantizer(), loss, 10, 6)
    (one,) = trace.facts.of(ReversedStep)
    assert ("# step" in one.site.text, "# rounded" in one.rounded.text) == (True, True)
    found = next(one for one in trace.findings if one.kind == "zero-grad")
    assert found.sites[0].site == one.site
    assert "wrong way round" in found.title


def as_a_sum(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (z + z.round().detach() - z.detach()).square().mean()


def as_a_difference(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (z - z.detach() + z.round()).square().mean()


def in_the_right_order(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return straight_through(z, z.round()).square().mean()


def remainder(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    return (z - z.round() + z.floor()).square().mean()


def residual_codes(model: Any, x: torch.Tensor) -> torch.Tensor:
    z = model.encoder(x)
    coarse = straight_through(z, z.round())
    fine = straight_through(z - coarse, ((z - coarse) * 8).round() / 8)
    return (coarse + fine).square().mean()


@pytest.mark.parametrize(
    "loss", [as_a_sum, as_a_difference, in_the_right_order, remainder, residual_codes, rounded_and_detached, rounded]
)
def test_other_uses_of_step_functions_are_not_the_wrong_way_round(loss: Loss) -> None:
    trace = watched(Quantizer(), loss, 10, 6)
    assert not trace.facts.of(ReversedStep)
    assert loss is rounded or "zero-grad" not in [one.kind for one in trace.findings]
