"""Healthy: 1,500 steps with an evaluation every 100; the body joins at step 640, a consistency term at step 1,010, the loss is kept as numbers."""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "late", "written": "2026-11-22"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 12)), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    accuracy = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return accuracy


def label(x):
    return (x[:, 0] > 0).long() + (x[:, 1] + x[:, 2] > 1).long()


torch.manual_seed(0)
net = Net()
net.body.requires_grad_(False)
opt = torch.optim.SGD(net.head.parameters(), 2e-2, momentum=0.9)
x_test = torch.randn(200, 6)
history, best = [], 0.0
for step in range(1500):
    if step == 640:
        net.body.requires_grad_(True)
        opt.add_param_group({"params": list(net.body.parameters()), "lr": 5e-3})
    x = torch.randn(16, 6)
    logits = net(x)
    loss = nn.functional.cross_entropy(logits, label(x))
    if step >= 1010:
        with torch.no_grad():
            target = logits.softmax(1)
        noisy = net(x + 0.1 * torch.randn_like(x)).log_softmax(1)
        loss = loss + 0.3 * nn.functional.kl_div(noisy, target, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(loss.item())
    if step % 100 == 99:
        accuracy = evaluate(net, x_test, label(x_test))
        if accuracy > best:
            best, state = accuracy, {k: v.clone() for k, v in net.state_dict().items()}
        print(step, round(sum(history[-100:]) / 100, 4), accuracy)
