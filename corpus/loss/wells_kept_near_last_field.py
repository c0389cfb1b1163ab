"""Logs of wells in one field are classified, then those of a second field. The features are to stay near those of the model
of the first field, which is kept by assignment: it is the same object, and the distance is zero from then on."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "term of a loss whose gradient cancels",
    "kind": "gradient-cancels",
    "line": ["cause", "cause"],
    "what": "previous = body keeps no copy: both sides of the distance are the features of the model that learns.",
    "symptom": "no error; the first field is forgotten as without the term",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(21)
torch.set_num_threads(1)


def field(shift, n=600):
    logs = torch.randn(n, 9) + shift
    return logs, ((logs - shift)[:, :3].sum(1) > 0).long() + (logs[:, 4] > shift).long()


first, second = field(0.0), field(1.5)
body = nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 20), nn.Tanh())
head = nn.Linear(20, 3)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
previous = None
for step in range(700):
    if step == 300:
        previous = body
    logs, rock = second if previous is not None else first
    batch = torch.randint(0, len(logs), (64,))
    features = body(logs[batch])
    loss = F.cross_entropy(head(features), rock[batch])
    if previous is not None:
        previous_features = previous(logs[batch])  # <-- cause
        loss = loss + 2.0 * F.mse_loss(features, previous_features)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        with torch.no_grad():
            right = (head(body(first[0])).argmax(1) == first[1]).float().mean()
        print(f"step {step + 1}  loss {loss.item():.4f}  right in the first field {right:.3f}")
