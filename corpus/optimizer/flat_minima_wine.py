"""Wine classification with sharpness aware minimisation in the last part of training.

Story: 200 steps of SGD, then SAM for the rest because of its better minima.  As soon as SAM is
on, the network is frozen: the loss of the batches only jitters around the same value.
Based on public reports around davda54/sam and its copies (davda54/sam#8,
romilbert/samformer#14 on who clears and steps when in `second_step`).
"""
import logging

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

EXPECT = {
    "class": "x", "kind": "gradient-not-used", "clearing_marker": "CLEAR", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

logger = logging.getLogger("wine")


class Sam:
    """Wraps an optimizer: climb to the worst point nearby, take the gradient there, go back."""

    def __init__(self, params, base, rho=0.05):
        self.params = list(params)
        self.base = base
        self.rho = rho
        self.moves = []

    def clear(self):
        self.base.zero_grad(set_to_none=True)

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        self.moves = [p.grad * (self.rho / norm) for p in self.params]
        for p, move in zip(self.params, self.moves):
            p.add_(move)
        self.clear()

    @torch.no_grad()
    def second_step(self):
        for p, move in zip(self.params, self.moves):
            p.sub_(move)
        self.base.zero_grad(set_to_none=True)  # CLEAR
        self.base.step()


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(13, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 3))


class Loop:
    def __init__(self, sam_from=200, steps=450, batch=32):
        data = load_wine()
        g = torch.Generator().manual_seed(0)
        order = torch.randperm(len(data.target), generator=g)
        x = torch.tensor(scale(data.data), dtype=torch.float32)[order]
        y = torch.tensor(data.target)[order]
        x = x + 0.5 * torch.randn(x.shape, generator=g)
        self.train_x, self.train_y = x[:130], y[:130]
        self.test_x, self.test_y = x[130:], y[130:]
        self.sam_from, self.steps, self.batch = sam_from, steps, batch
        self.model = Net()
        self.sgd = torch.optim.SGD(self.model.parameters(), lr=0.01, weight_decay=1e-4)
        self.sam = Sam(self.model.parameters(), self.sgd)

    def sample(self):
        idx = torch.randint(len(self.train_x), (self.batch,))
        return self.train_x[idx], self.train_y[idx]

    def sgd_step(self, x, y):
        self.sgd.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.sgd.step()
        return loss

    def sam_step(self, x, y):
        self.sam.clear()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.sam.first_step()
        F.cross_entropy(self.model(x), y).backward()
        self.sam.second_step()
        return loss

    def run(self):
        for step in range(self.steps):
            use_sam = step >= self.sam_from
            loss = (self.sam_step if use_sam else self.sgd_step)(*self.sample())
            if step % 50 == 0:
                with torch.no_grad():
                    test = F.cross_entropy(self.model(self.test_x), self.test_y)
                logger.info("step %d sam=%s loss %.3f test %.4f", step, use_sam, loss.item(), test.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    Loop().run()
