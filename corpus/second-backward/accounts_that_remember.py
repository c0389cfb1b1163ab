"""Fraud on a stream of payments with a temporal graph network: every account has a memory that a recurrent cell renews after a batch; it is kept over the batches with the graph that made it. The first batches run without memory.

Report: https://github.com/memgraph/mage/pull/121 (TGN: detach_tensor_grads for the memory container after each batch, because of "Trying to backward through the graph a second time")
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "dies-late", "kind": "second-backward", "bridge_marker": "BRIDGE", "step": 31,
    "set": "eleventh", "written": "2026-11-23",
}
ACCOUNTS, FEATURES, MEMORY = 60, 6, 16


class AccountMemory(nn.Module):
    """State of every account after the payments seen so far."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(MEMORY + FEATURES, MEMORY)
        self.reset()

    def reset(self):
        self.state = torch.zeros(ACCOUNTS, MEMORY)

    def read(self, accounts):
        return self.state[accounts]  # BRIDGE

    def renew(self, accounts, before, message):
        after = self.cell(message, before)
        state = self.state.detach().clone()
        state[accounts] = after
        self.state = state
        return after


class FraudModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.memory = AccountMemory()
        self.score = nn.Sequential(nn.Linear(2 * MEMORY + FEATURES, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, payer, payee, payment, with_memory):
        if not with_memory:
            blank = torch.zeros(len(payer), 2 * MEMORY)
            return self.score(torch.cat([blank, payment], -1)).squeeze(-1)
        a, b = self.memory.read(payer), self.memory.read(payee)
        a = self.memory.renew(payer, a, torch.cat([b, payment], -1))
        return self.score(torch.cat([a, b, payment], -1)).squeeze(-1)


def stream(batches, size=40):
    honest = torch.rand(ACCOUNTS) > 0.2
    for _ in range(batches):
        payer = torch.randperm(ACCOUNTS)[:size]
        payee = torch.randint(0, ACCOUNTS, (size,))
        payment = torch.randn(size, FEATURES)
        payment[~honest[payer], 0] += 1.0
        yield payer, payee, payment, (~honest[payer]).float()


def main(warm_up=30):
    torch.manual_seed(0)
    model = FraudModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for batch, (payer, payee, payment, fraud) in enumerate(stream(70)):
        logit = model(payer, payee, payment, with_memory=batch >= warm_up)
        loss = F.binary_cross_entropy_with_logits(logit, fraud)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 10 == 0:
            print(f"batch {batch} loss {loss.item():.4f}")


main()
