"""Source-free adaptation of a digit classifier to dimmed, shifted pictures; the classifier layer should stay fixed but is trained along.

Report: https://github.com/CSCYQJ/MICCAI23-ProtoContra-SFDA/issues/18 (self.model.outc.requires_grad = False on a module does not freeze the last layer)

Effect: the weights of the last layer drift by a norm of 8 although they are meant to stay those of the source model; accuracy on source and target ends a little lower than with a layer that is really frozen.
"""
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

EXPECT = {
    "framework": "plain", "kind": "freeze-without-effect", "line": ("cause", "CAUSE"),
    "what": "Setting requires_grad on the module only creates a plain attribute, its parameters keep training; use model.outc.requires_grad_(False).",
    "set": "eighteenth", "written": "2026-11-27",
}


class Segmenter(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.enc = nn.Linear(64, dim)
        self.outc = nn.Linear(dim, 10)

    def forward(self, x):
        return self.outc(self.enc(x))


def source_model(x, y):
    """closed-form stand-in for the model that was delivered by the source site"""
    model = Segmenter()
    mean = x.mean(0)
    _, _, v = torch.pca_lowrank(x - mean, q=24)
    with torch.no_grad():
        model.enc.weight.copy_(v.T)
        model.enc.bias.copy_(-(v.T @ mean))
        clf = LogisticRegression(max_iter=300).fit(model.enc(x).numpy(), y.numpy())
        model.outc.weight.copy_(torch.tensor(clf.coef_))
        model.outc.bias.copy_(torch.tensor(clf.intercept_))
    return model


class Adapter:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.model.outc.requires_grad = False  # CAUSE
        self.opt = torch.optim.Adam(self.model.parameters(), lr=lr)

    def step(self, x):
        p = self.model(x).softmax(1)
        entropy = -(p * (p + 1e-6).log()).sum(1).mean()
        mean_p = p.mean(0)
        diversity = (mean_p * (mean_p + 1e-6).log()).sum()
        loss = entropy + diversity
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(1)
    d = load_digits()
    x = torch.tensor(d.data / 16.0, dtype=torch.float32)
    y = torch.tensor(d.target)
    target = 0.55 * x + 0.2 + 0.15 * torch.randn(x.shape)
    model = source_model(x[:900], y[:900])
    head = model.outc.weight.detach().clone()
    print(f"before: source {accuracy(model, x, y):.3f} target {accuracy(model, target, y):.3f}")
    adapter = Adapter(model)
    for it in range(300):
        idx = torch.randint(0, len(target), (64,))
        loss = adapter.step(target[idx])
        if (it + 1) % 75 == 0:
            drift = (model.outc.weight - head).norm().item()
            print(f"it {it + 1} loss {loss:.3f} source {accuracy(model, x, y):.3f} "
                  f"target {accuracy(model, target, y):.3f} outc drift {drift:.3f}")
