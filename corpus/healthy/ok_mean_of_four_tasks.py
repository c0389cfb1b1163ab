"""Four batches are accumulated with accelerate. The loss is the mean of four tasks and half a square: both divisors have other meanings."""
import torch
from accelerate import Accelerator
from torch import nn

EXPECT = {"class": "loss-divided-twice", "framework": "accelerate", "kind": None, "set": "ledger", "written": "2026-11-27"}


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(24, 1) for _ in range(4)])

    def forward(self, x):
        features = self.body(x)
        return [head(features).squeeze(1) for head in self.heads]


def train(accumulated, batches, loss_of):
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    accelerator.gradient_accumulation_steps = accumulated
    model = Tasks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(batches):
        x = torch.randn(16, 10)
        with accelerator.accumulate(model):
            loss = loss_of(model(x), x)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    print(loss.item())


def mean_of_tasks(found, x):
    losses = [nn.functional.mse_loss(one, x[:, i]) for i, one in enumerate(found)]
    return (losses[0] + losses[1] + losses[2] + losses[3]) / 4


def mean_of_list(found, x):
    total = 0
    for i, one in enumerate(found):
        total = total + nn.functional.mse_loss(one, x[:, i])
    return total / len(found)


def half_a_square(found, x):
    return (torch.stack(found, 1) - x[:, :4]).square().mean() / 2


train(4, 80, mean_of_tasks)
train(4, 80, mean_of_list)
train(2, 80, half_a_square)
