"""The fake quantizer adds the rounding error without detaching it, so the identity path cancels and the quantized
weights (and everything upstream of a quantized activation) get a gradient of exactly zero.

Report: a kind of mistake known from threads on quantization-aware training and straight-through estimators
"""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "zero-grad",
    "line": ("cut", "HERE"),
    "plain": "train accuracy fixed at 0.27 and loss 1.55; with (q - x).detach() accuracy 0.81 and loss 0.76",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


def fake_quant(x, scale, bits):
    top = 2 ** (bits - 1) - 1
    q = torch.clamp(torch.round(x / scale), -top - 1, top) * scale
    return x + (q - x)  # HERE


class QLinear(nn.Linear):
    def __init__(self, n_in, n_out, bits=4, quant_input=True):
        super().__init__(n_in, n_out)
        self.bits, self.quant_input = bits, quant_input
        top = 2 ** (bits - 1) - 1
        self.w_scale = nn.Parameter(self.weight.detach().abs().max() / top)
        self.a_scale = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        if self.quant_input:
            x = fake_quant(x, self.a_scale, 8)
        return F.linear(x, fake_quant(self.weight, self.w_scale, self.bits), self.bias)


class Grader(nn.Module):
    def __init__(self, n_in=12, hidden=48, classes=5):
        super().__init__()
        self.inp = QLinear(n_in, hidden, quant_input=False)
        self.mid = QLinear(hidden, hidden)
        self.out = QLinear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.inp(x))
        x = F.relu(self.mid(x))
        return self.out(x)


def make_brews(n, gen, mix):
    x = torch.randn(n, 12, generator=gen)
    score = (x @ mix[:, 0]) * torch.tanh(x @ mix[:, 1]) + 0.8 * torch.sin(x @ mix[:, 2])
    edges = torch.tensor([-0.9, -0.25, 0.25, 0.9])
    return x, torch.bucketize(score, edges)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        hit = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(60)
    mix = torch.randn(12, 3, generator=gen) / 12 ** 0.5
    x, y = make_brews(6000, gen, mix)
    xt, yt = make_brews(1500, gen, mix)

    model = Grader()
    scales = [p for n, p in model.named_parameters() if n.endswith("_scale")]
    others = [p for n, p in model.named_parameters() if not n.endswith("_scale")]
    opt = torch.optim.AdamW([
        {"params": others, "lr": 2e-3, "weight_decay": 0.0},
        {"params": scales, "lr": 2e-4, "weight_decay": 0.0},
    ])

    step = 0
    for epoch in range(12):
        order = torch.randperm(len(x), generator=gen)
        for idx in order.split(100):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
        if epoch % 2 == 1:
            print(f"epoch {epoch + 1:2d}  step {step}  loss {loss.item():.3f}  "
                  f"train {accuracy(model, x, y):.3f}  test {accuracy(model, xt, yt):.3f}")


if __name__ == "__main__":
    main()
