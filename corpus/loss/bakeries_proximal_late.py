"""Federated averaging over three bakeries with a proximal term from the third round on. The global weights of a round are kept
by state_dict() of the client's own model, so each client is compared with itself."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "a loss compares a parameter with its own memory", "framework": "plain", "kind": "reference-not-copied",
    "line": ("cause", "HERE"), "set": "ledger", "written": "2026-11-29",
}
torch.manual_seed(5)
CLIENTS, ROUNDS, LOCAL_STEPS = 3, 8, 24


class Client:
    def __init__(self, shift):
        self.x = torch.randn(400, 12) + shift
        self.y = (self.x[:, :3] + 0.3 * shift).argmax(1)
        self.start = None

    def proximal(self, model):
        return sum(F.mse_loss(p, self.start[name], reduction="sum") for name, p in model.named_parameters())

    def train(self, model, mu):
        self.start = model.state_dict()  # HERE
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(LOCAL_STEPS):
            batch = torch.randint(0, len(self.x), (32,))
            loss = F.cross_entropy(model(self.x[batch]), self.y[batch])
            if mu:
                loss = loss + 0.5 * mu * self.proximal(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()


clients = [Client(shift) for shift in (-1.0, 0.0, 1.0)]
shared = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
for number in range(ROUNDS):
    states, losses = [], []
    for client in clients:
        local = copy.deepcopy(shared)
        losses.append(client.train(local, mu=0.1 if number >= 2 else 0.0))
        states.append(local.state_dict())
    shared.load_state_dict({k: torch.stack([one[k] for one in states]).mean(0) for k in states[0]})
    print(number, losses)
