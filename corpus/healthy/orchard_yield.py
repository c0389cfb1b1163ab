"""Yield forecast per orchard with accelerate and gradient accumulation. Nothing is wrong.

Looks suspicious: optimizer.step() and optimizer.zero_grad() are called after every small batch, which would throw away what is
accumulated, the weights stay the same in three of four iterations, and the loss is not divided by the number of small batches.
It is right: inside accelerator.accumulate the prepared optimizer and scheduler ignore these calls until the group is complete,
and accelerator.backward divides the loss itself. Report of the suspicion: https://github.com/huggingface/transformers/issues/26312
"""
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none",
    "framework": "accelerate",
    "plain": "the loss falls and the validation error ends close to the noise",
    "set": "twentysixth",
    "written": "2026-11-29",
}

FEATURES, EPOCHS, BATCH, GROUP = 10, 9, 16, 4


def make_orchards(count, generator):
    site = torch.randn(count, FEATURES, generator=generator)
    tree_kind = torch.randint(0, 6, (count,), generator=generator)
    base = torch.tensor([0.0, 0.8, -0.5, 1.4, -1.0, 0.3])
    harvest = base[tree_kind] + site[:, 0] * torch.tanh(site[:, 1]) + 0.7 * site[:, 2].abs() - 0.5 * site[:, 3]
    return site, tree_kind, harvest + 0.3 * torch.randn(count, generator=generator)


class YieldNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.kind = nn.Embedding(6, 8)
        self.net = nn.Sequential(nn.Linear(FEATURES + 8, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, site, tree_kind):
        return self.net(torch.cat([site, self.kind(tree_kind)], 1)).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    squares = [(model(site, kind) - harvest).pow(2) for site, kind, harvest in loader]
    model.train()
    return torch.cat(squares).mean().item()


def main():
    torch.manual_seed(6)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=GROUP)
    train = DataLoader(TensorDataset(*make_orchards(4096, torch.Generator().manual_seed(1))), batch_size=BATCH, shuffle=True)
    check = DataLoader(TensorDataset(*make_orchards(1000, torch.Generator().manual_seed(2))), batch_size=250)
    model = YieldNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=6e-3, total_steps=EPOCHS * len(train) // GROUP + 1)
    model, optimizer, train, check, schedule = accelerator.prepare(model, optimizer, train, check, schedule)
    updates = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for site, kind, harvest in train:
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(site, kind), harvest)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 5.0)
                    updates += 1
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total += loss.item()
        rate = schedule.get_last_lr()[0]
        print(f"epoch {epoch}  updates {updates:4d}  rate {rate:.5f}  loss {total / len(train):.4f}  validation {validate(model, check):.4f}")


if __name__ == "__main__":
    main()
