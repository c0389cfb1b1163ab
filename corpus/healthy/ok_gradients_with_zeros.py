"""Gradients that have zeros for good reasons: rows of a table that a batch does not use (under weight decay, and clipped),
gradients of which only the largest tenth is used, as in compressed communication, and rows frozen by a hook under plain
SGD, which does not move them."""
import torch
import torch.nn as nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(3)
torch.set_num_threads(1)


class Ratings(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(200, 8), nn.Embedding(300, 8)
        self.mix = nn.Linear(16, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, user, item):
        return self.out(torch.tanh(self.mix(torch.cat([self.users(user), self.items(item)], 1)))).squeeze(1)


model, frozen = Ratings(), nn.Linear(8, 6)
first_rows = frozen.weight.detach()[:3].clone()


def first_rows_stay(grad):
    grad = grad.clone()
    grad[:3] = 0
    return grad


frozen.weight.register_hook(first_rows_stay)
adam = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
sgd = torch.optim.SGD(frozen.parameters(), lr=0.05)
taste = torch.randn(200, 300)
for step in range(160):
    user, item = torch.randint(0, 200, (32,)), torch.randint(0, 250, (32,))
    loss = (model(user, item) - taste[user, item]).square().mean()
    x = torch.randn(16, 8)
    other = (frozen(x) - x[:, :6].flip(1)).square().mean()
    adam.zero_grad()
    sgd.zero_grad()
    (loss + other).backward()
    for p in (model.mix.weight, model.out.weight):
        bound = p.grad.abs().flatten().kthvalue(max(1, int(0.9 * p.numel()))).values
        p.grad.mul_((p.grad.abs() >= bound).float())
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    sgd.step()
print(f"losses {loss.item():.3f} {other.item():.3f}")
assert torch.equal(frozen.weight[:3], first_rows)
