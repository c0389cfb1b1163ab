"""Dispatcher by policy gradient with an entropy bonus, the objective compiled: from some step on the simulator tells which orders are gone, these get minus infinity, and the entropy of a probability of exactly zero has a slope without end.

Report: https://github.com/huggingface/trl/pull/7252 (entropy of zero-probability tokens; masked logits still produce NaN gradients once the entropy bonus goes backward)
"""
import torch
from torch import nn

EXPECT = {
    "class": "compile", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 55,
    "set": "tenth", "written": "2026-11-23",
}
ORDERS = 8


class Dispatcher(nn.Module):
    def __init__(self, features=6, width=32):
        super().__init__()
        self.courier = nn.Linear(3, width)
        self.order = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))
        self.score = nn.Linear(width, 1)

    def forward(self, courier, orders):
        h = torch.tanh(self.courier(courier)[:, None] + self.order(orders))
        return self.score(h).squeeze(2)


class Town:
    def state(self, n):
        return torch.randn(n, 3), torch.randn(n, ORDERS, 6)

    def gone(self, n, busy):
        gone = torch.rand(n, ORDERS) < (0.3 if busy else 0.0)
        gone[:, 0] = False
        return gone

    def reward(self, courier, orders, choice):
        taken = orders[torch.arange(len(choice)), choice]
        return -(taken[:, :3] - courier).square().sum(1) + taken[:, 3]


def objective(scores, choice, advantage, bonus: float):
    log_p = scores.log_softmax(1)
    chosen = log_p.gather(1, choice[:, None]).squeeze(1)
    entropy = torch.special.entr(log_p.exp()).sum(1)  # CULPRIT
    return -(advantage * chosen).mean() - bonus * entropy.mean()


torch.manual_seed(0)
town, dispatcher = Town(), Dispatcher()
loss_of = torch.compile(objective, backend="aot_eager")
optimizer = torch.optim.Adam(dispatcher.parameters(), lr=3e-3)
baseline = torch.zeros(())
for step in range(90):
    courier, orders = town.state(64)
    gone = town.gone(64, busy=step >= 55)
    scores = dispatcher(courier, orders).masked_fill(gone, float("-inf"))
    with torch.no_grad():
        choice = torch.distributions.Categorical(logits=scores, validate_args=False).sample()
        reward = town.reward(courier, orders, choice)
        advantage = (reward - baseline) / 5
        baseline = 0.9 * baseline + 0.1 * reward.mean()
    loss = loss_of(scores, choice, advantage, 0.01)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or 54 <= step <= 57:
        print(step, loss.item(), reward.mean().item())
