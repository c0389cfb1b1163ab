"""A focal loss: the log-probability of the class is weighted by one minus the probability, with its graph, as the paper says. A
second head is fitted to a number beside it, and a soft policy weights the values of all its actions."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy: log-probabilities are multiplied by differences with a graph",
    "kind": "none",
    "what": "The weight of a focal loss, and the expectation over all actions, have graphs on purpose.",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(7)
torch.set_num_threads(1)
body, classes, size = nn.Sequential(nn.Linear(10, 32), nn.GELU()), nn.Linear(32, 5), nn.Linear(32, 5)
optimizer = torch.optim.Adam([*body.parameters(), *classes.parameters(), *size.parameters()], lr=2e-3)
for step in range(200):
    x = torch.randn(64, 10)
    kind, length = x[:, :5].argmax(1), x[:, 5:] ** 2
    hidden = body(x)
    logits, sizes = classes(hidden), size(hidden)
    log_p = F.log_softmax(logits, dim=-1)
    chosen = log_p.gather(1, kind[:, None])
    focal = -(chosen * (1 - chosen.exp())).mean()
    expected = (log_p.exp() * (0.05 * log_p - sizes)).sum(1).mean()
    loss = focal + 0.01 * expected + F.mse_loss(sizes, length)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}  loss {loss.item():.4f}")
