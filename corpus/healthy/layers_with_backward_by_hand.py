"""Digits with a quantised layer whose gradient the script computes by hand: each block has a method called backward, and
the trainer calls them from the last to the first. The model's own backward takes the loss, as that of a wrapper does."""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29"}


class Block(nn.Module):
    """A linear layer with a hard step, which is trained for itself: its output is detached."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        self.given = x.detach()
        self.sum = self.linear(self.given)
        return torch.tanh(self.sum).detach()

    def backward(self, grad_output):
        grad_sum = grad_output * (1 - torch.tanh(self.sum.detach()).square())
        self.linear.weight.grad = grad_sum.t() @ self.given
        self.linear.bias.grad = grad_sum.sum(0)
        return grad_sum @ self.linear.weight.detach()


class Wrapper(nn.Module):
    """Holds the head, and starts its backward."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.head(x)

    def backward(self, loss):
        loss.backward()


def main():
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    blocks = [Block(64, 48), Block(48, 32)]
    head = Wrapper(nn.Linear(32, 10))
    optimizer = torch.optim.SGD([*(p for b in blocks for p in b.parameters()), *head.parameters()], lr=0.3)
    for step in range(200):
        rows = torch.randint(1400, (64,))
        hidden = x[rows]
        for block in blocks:
            hidden = block(hidden)
        hidden.requires_grad_()
        loss = F.cross_entropy(head(hidden), y[rows])
        optimizer.zero_grad()
        head.backward(loss)
        grad = hidden.grad
        for block in reversed(blocks):
            grad = block.backward(grad)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
