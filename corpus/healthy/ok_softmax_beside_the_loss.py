"""Healthy: pseudo-labels and distillation use softmax beside cross entropies: as targets, as weights, in a mixture of
experts whose logarithm is taken, and with a temperature; two classifiers play against each other with log-likelihoods
that one of them minimises."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)
CLASSES = 6
body = nn.Sequential(nn.Linear(10, 32), nn.GELU())
first, second, gate = nn.Linear(32, CLASSES), nn.Linear(32, CLASSES), nn.Linear(32, 2)
teacher = nn.Linear(10, CLASSES)
domain = nn.Linear(32, 2)
optimizer = torch.optim.Adam(
    [p for m in (body, first, second, gate) for p in m.parameters()], lr=2e-3
)
domains = torch.optim.Adam(domain.parameters(), lr=2e-3)
for step in range(150):
    x, place = torch.randn(48, 10), torch.randint(0, 2, (48, 1))
    x[:, 0] += place[:, 0]
    y = x[:, :CLASSES].argmax(dim=1)
    h = body(x)
    share = gate(h).softmax(dim=1)
    mixture = share[:, :1] * first(h).softmax(1) + share[:, 1:] * second(h).softmax(1)
    loss = F.nll_loss(torch.log(mixture + 1e-8), y)
    loss = loss + F.kl_div(F.log_softmax(first(h) / 2, 1), F.softmax(teacher(x).detach() / 2, 1), reduction="batchmean")
    sure = second(h.detach()).softmax(1).detach()
    loss = loss + 0.1 * (sure.max(1).values * F.cross_entropy(first(h), sure.argmax(1), reduction="none")).mean()
    loss = loss + 0.1 * F.cross_entropy(second(h).log_softmax(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    domains.zero_grad()
    F.cross_entropy(domain(body(x).detach()), place[:, 0]).backward()
    domains.step()
    optimizer.zero_grad()
    (0.1 * domain(body(x)).log_softmax(1).gather(1, place)).mean().backward()
    optimizer.step()
