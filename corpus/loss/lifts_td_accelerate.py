"""A lift learns where to wait, with temporal differences and Accelerate. The error of the critic is also the weight of the
log-probability, and is detached in neither place."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator

EXPECT = {
    "class": "advantage with a graph",
    "kind": "advantage-not-detached",
    "line": ["cause", "cause"],
    "framework": "accelerate",
    "what": "The temporal difference weights the log-probability with its graph; the actor's loss trains the critic.",
    "symptom": "no error; the values of the critic are off",
    "set": "ledger",
    "written": "2026-11-27",
}

FLOORS = 7


class LiftNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(2 * FLOORS, 40), nn.Tanh())
        self.policy = nn.Linear(40, FLOORS)
        self.value = nn.Linear(40, 1)

    def forward(self, state):
        h = self.shared(state)
        return F.log_softmax(self.policy(h), dim=-1), self.value(h)


def encoded(lift, busy):
    return torch.cat([F.one_hot(lift, FLOORS), F.one_hot(busy, FLOORS)], 1).float()


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    net = LiftNet()
    net, optimizer = accelerator.prepare(net, torch.optim.RMSprop(net.parameters(), lr=2e-3))
    lift, busy = torch.randint(0, FLOORS, (32,)), torch.randint(0, FLOORS, (32,))
    for step in range(120):
        logs, value = net(encoded(lift, busy))
        wait_at = logs.detach().exp().multinomial(1)
        caller = (busy + torch.randint(-1, 2, (32,))).clamp(0, FLOORS - 1)
        reward = -(wait_at[:, 0] - caller).abs().float() / FLOORS
        lift = wait_at[:, 0]
        with torch.no_grad():
            bootstrap = net(encoded(lift, caller))[1]
        error = reward[:, None] + 0.8 * bootstrap - value
        actor = (-logs.gather(1, wait_at) * error).mean()  # <-- cause
        critic = error.pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(actor + 0.5 * critic)
        optimizer.step()
        busy = caller
        if step % 30 == 29:
            print(f"step {step}  reward {reward.mean().item():.3f}  error {error.mean().item():.3f}")


main()
