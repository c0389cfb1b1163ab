"""``--ask divergence``: the first op where a run departs from float64, or from another model of one structure.

Faults and healthy scripts were written, with what is to be said of them, before they were run.
"""

from __future__ import annotations

import pytest
from scripts import line_of, run

NORM = """
class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps
    def forward(self, x):
        {body}
"""
FUNCTION = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {given}):
        {forward}
    @staticmethod
    def backward(ctx, g):
        {backward}
"""
#: Name -> a script, the module that is to be named and a word of the title. ``# HERE`` is on the line.
FAULTS = {
    "an eps that half precision cannot hold": (
        NORM.format(
            body="size = x.square().mean(-1, keepdim=True)\n"
            "        return self.weight * (x * torch.rsqrt(size + self.eps))  # HERE"
        )
        + """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), Norm(8, 1e-8), nn.Linear(8, 2)).half()
x = torch.randn(6, 8).half()
with torch.no_grad():
    model[0].bias.zero_()
x[3] = 0  # padding
model(x).float().square().mean().backward()
""",
        "1",
        "float64",
    ),
    "a backward that lacks a factor": (
        FUNCTION.format(
            given="x",
            forward="ctx.save_for_backward(x)\n        return x**3",
            backward="(x,) = ctx.saved_tensors\n        return 2 * g * x**2  # HERE",
        )
        + """
torch.manual_seed(0)
net = nn.Linear(5, 5)
for _ in range(2):
    F.apply(net(torch.randn(4, 5))).square().mean().backward()
""",
        "",
        "backward",
    ),
    "a backward that multiplies without transposing": (
        FUNCTION.format(
            given="x, w",
            forward="ctx.save_for_backward(x, w)\n        return x @ w",
            backward="x, w = ctx.saved_tensors\n        return g @ w, x.t() @ g  # HERE",
        )
        + """
class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6) / 3)
    def forward(self, x):
        return F.apply(x, self.w)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), Dense(), nn.Tanh(), Dense())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
""",
        "3",
        "backward",
    ),
    "a backward in bfloat16 of what was saved wrongly": (
        FUNCTION.format(
            given="x",
            forward="y = torch.tanh(x)\n        ctx.save_for_backward(x)\n        return y",
            backward="(y,) = ctx.saved_tensors\n        return g * (1 - y * y)  # HERE",
        )
        + """
class Act(nn.Module):
    def forward(self, x):
        return F.apply(x)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), Act(), nn.Linear(16, 2)).bfloat16()
model(torch.randn(32, 6).bfloat16()).float().square().mean().backward()
""",
        "1",
        "backward",
    ),
    "a variance in half precision that cancels": (
        """
class Center(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        square = (x * x).mean(-1, keepdim=True)
        var = square - mean * mean  # HERE
        return (x - mean) / (var.abs() + 1e-3).sqrt()
torch.manual_seed(0)
model = nn.Sequential(Center(), nn.Linear(16, 4)).half()
model((torch.randn(8, 16) + 100).half()).float().square().mean().backward()
""",
        "0",
        "cancel",
    ),
    "scores that overflow in half precision": (
        """
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1)  # HERE
        scores = scores - scores.amax(-1, keepdim=True)
        e = scores.exp()
        return e / e.sum(-1, keepdim=True) @ v
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), Attention(16)).half()
with torch.no_grad():
    model[1].q.weight.mul_(40), model[1].k.weight.mul_(40)
model(20 * torch.randn(2, 7, 16).half()).float().square().mean().backward()
""",
        "1",
        "overflow",
    ),
    "a hand-written logsumexp": (
        """
torch.manual_seed(0)
model = nn.Linear(8, 5)
x, y = 200 * torch.randn(16, 8), torch.randint(0, 5, (16,))
out = model(x)
e = out.exp()  # HERE
loss = (e.sum(-1).log() - out.gather(1, y[:, None])[:, 0]).mean()
loss.backward()
""",
        "",
        "overflow",
    ),
    "angles of positions in bfloat16": (
        """
class Rotary(nn.Module):
    def __init__(self, d, dtype):
        super().__init__()
        self.register_buffer("freq", (1.0 / 10000 ** (torch.arange(0, d, 2) / d)).to(dtype))
    def forward(self, x):
        angle = torch.arange(3000, 3000 + x.shape[1], dtype=x.dtype)[:, None] * self.freq[:2]
        s, c = angle.sin(), angle.cos()  # HERE
        a, b, rest = x[..., :2], x[..., 2:4], x[..., 4:]
        return torch.cat([a * c - b * s, a * s + b * c, rest], -1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), Rotary(8, torch.bfloat16), nn.Linear(8, 2)).bfloat16()
model(torch.randn(2, 64, 8).bfloat16()).float().square().mean().backward()
""",
        "1",
        "float64",
    ),
    "squares that underflow in half precision": (
        """
torch.manual_seed(0)
model = nn.Linear(6, 6).half()
h = model(torch.randn(4, 6).half()) * 1e-4
power = (h * h).sum(-1)  # HERE
(power.float().sqrt() + 1).sum().backward()
""",
        "",
        "float64",
    ),
    "one minus a probability that is one": (
        """
torch.manual_seed(0)
model = nn.Linear(4, 3)
p = torch.sigmoid(model(torch.randn(8, 4)) + 25)
q = 1 - p  # HERE
(-(q + 1e-12).log()).mean().backward()
""",
        "",
        "cancel",
    ),
    "a port with another eps": (
        """
class Net(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8, eps=eps)  # HERE
        self.b = nn.Linear(8, 2)
    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x))))
torch.manual_seed(0)
one, two = Net(1e-5), Net(1e-6)
two.load_state_dict(one.state_dict())
x = torch.randn(5, 6)
print((one(x) - two(x)).abs().max() > 0)
""",
        "norm",
        "two models",
    ),
    "a port that lacks a weight": (
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.b = nn.Linear(8, 8)  # HERE
        self.c = nn.Linear(8, 2)
    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))
torch.manual_seed(0)
one, two = Net(), Net()
two.load_state_dict({k: v for k, v in one.state_dict().items() if not k.startswith("b.")}, strict=False)
x = torch.randn(5, 6)
for model in (one, two):
    model(x).square().mean().backward()
""",
        "b",
        "two models",
    ),
    "a port without a scale": (
        """
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # HERE
    def forward(self, x):
        return self.scores(self.q(x), self.k(x)).softmax(-1) @ self.v(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Attention(8) for _ in range(3))
    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
torch.manual_seed(0)
one, two = Model(), Model()
two.load_state_dict(one.state_dict())
two.blocks[1].scores = lambda q, k: q @ k.transpose(-2, -1)
x = torch.randn(2, 5, 8)
for model in (one, two):
    model(x).square().mean().backward()
""",
        "blocks.1",
        "two models",
    ),
}
HEALTHY = {
    "float32, with dropout and a bias before a batch norm": """
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(),
    nn.Linear(32, 3),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(4):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(24, 10)), torch.randint(0, 3, (24,))).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""",
    "a transformer under autocast in bfloat16": """
torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(50, 32),
    nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False),
    nn.Linear(32, 50),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    ids = torch.randint(0, 50, (4, 12))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.roll(-1, 1).flatten())
    loss.backward()
    optimizer.step()
""",
    "half precision with a scaler that skips steps": """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = (model(torch.randn(32, 8)) - 3).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "a recurrent net": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(6, 16, 2, batch_first=True, dropout=0.1), nn.Linear(16, 4)
    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 20, 6)), torch.randint(0, 4, (8,))).backward()
    optimizer.step()
""",
    "a convnet in bfloat16": """
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
    nn.GroupNorm(4, 32), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    out = model(torch.randn(16, 3, 16, 16).bfloat16())
    nn.functional.cross_entropy(out.float(), torch.randint(0, 10, (16,))).backward()
    optimizer.step()
""",
    "custom functions that are right, or meant": FUNCTION.format(
        given="x",
        forward="ctx.save_for_backward(x)\n        return torch.log1p(torch.exp(x))",
        backward="(x,) = ctx.saved_tensors\n        return g * torch.sigmoid(x)",
    )
    + """
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 8).round() / 8
    @staticmethod
    def backward(ctx, g):
        return g
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)
    @staticmethod
    def backward(ctx, g):
        return -ctx.scale * g, None
class Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x, g.sum(0)
torch.manual_seed(0)
net, out = nn.Linear(6, 12), nn.Linear(12, 2)
for dtype in (torch.float32, torch.bfloat16):
    net, out = net.to(dtype), out.to(dtype)
    h = Round.apply(F.apply(net(torch.randn(16, 6).to(dtype))))
    Reverse.apply(Dense.apply(h, out.weight, out.bias), 0.3).float().square().mean().backward()
    net.zero_grad(), out.zero_grad()
""",
    "two models that calculate the same in other ways, with dropout": """
class Net(nn.Module):
    def __init__(self, plain):
        super().__init__()
        self.a, self.b, self.drop, self.plain = nn.Linear(6, 8), nn.Linear(8, 2), nn.Dropout(0.3), plain
    def forward(self, x):
        h = self.a(x) if self.plain else x @ self.a.weight.t() + self.a.bias
        return self.b(self.drop(torch.relu(h)))
torch.manual_seed(0)
one, two = Net(True), Net(False)
two.load_state_dict(one.state_dict())
x = torch.randn(5, 6)
for model in (one, two):
    model(x).square().mean().backward()
""",
    "two critics and a target that follows": """
import copy
torch.manual_seed(0)
def critic():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1))
one, two = critic(), critic()
target = copy.deepcopy(one)
optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=1e-2)
for _ in range(3):
    x, later = torch.randn(16, 6), torch.randn(16, 6)
    with torch.no_grad():
        aim = 0.9 * target(later) + 1
    loss = (one(x) - aim).square().mean() + (two(x) - aim).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p, q in zip(target.parameters(), one.parameters()):
            p.lerp_(q, 0.1)
""",
}


#: A second set, written when the first was right.
FAULTS |= {
    "a loss that half precision cannot hold": (
        """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).half()
out = model(torch.randn(8, 6).half())
loss = out.square().mean() * 1e-9  # HERE
loss.backward()
""",
        "",
        "underflow",
    ),
    "a softplus of large negative numbers": (
        """
torch.manual_seed(0)
model = nn.Linear(6, 6)
h = model(torch.randn(8, 6)) - 25
rate = (1 + h.exp()).log()  # HERE
((rate * 1e9 - 1) ** 2).mean().backward()
""",
        "",
        "no digit is left",
    ),
    "squared distances written out": (
        """
torch.manual_seed(0)
model = nn.Linear(4, 8)
a = model(torch.randn(16, 4)) + 3000
b = a.detach() + 0.1 * torch.randn(16, 8)
square = (a * a).sum(-1) + (b * b).sum(-1)
both = 2 * (a * b).sum(-1)
apart = square - both  # HERE
apart.relu().mean().backward()
""",
        "",
        "cancel",
    ),
    "a norm whose derivative is forgotten": (
        FUNCTION.format(
            given="x",
            forward="size = x.norm(dim=-1, keepdim=True)\n        ctx.save_for_backward(size)\n        return x / size",
            backward="(size,) = ctx.saved_tensors\n        return g / size  # HERE",
        )
        + """
class Unit(nn.Module):
    def forward(self, x):
        return F.apply(x)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), Unit(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(0, 3, (16,))).backward()
    optimizer.step()
""",
        "1",
        "backward of F",
    ),
    "a port whose mask is off by one": (
        """
class Attention(nn.Module):
    def __init__(self, d, first):
        super().__init__()
        self.qkv, self.out, self.first = nn.Linear(d, 3 * d), nn.Linear(d, d), first
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(self.first)
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask, float("-inf"))
        return self.out(scores.softmax(-1) @ v)
class Model(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.inp = nn.Linear(4, 8)
        self.attn = Attention(8, first)  # HERE
    def forward(self, x):
        return self.attn(self.inp(x))
torch.manual_seed(0)
one, two = Model(1), Model(2)
two.load_state_dict(one.state_dict())
x = torch.randn(2, 6, 4)
for model in (one, two):
    model(x).square().mean().backward()
""",
        "attn",
        "two models",
    ),
    "a product of many probabilities": (
        """
torch.manual_seed(0)
model = nn.Linear(4, 80)
hazard = torch.sigmoid(model(torch.randn(6, 4)) + 2)
survival = (1 - hazard).cumprod(-1)
score = survival.log()  # HERE
(-score[:, -1]).mean().backward()
""",
        "",
        "float64",
    ),
    "a sum of losses in half precision": (
        """
torch.manual_seed(0)
model = nn.Linear(8, 1)
losses = (model(torch.randn(2000, 8)) - 9).square()
total = losses.half().sum()  # HERE
(total / 2000).backward()
""",
        "",
        "overflow",
    ),
}
HEALTHY |= {
    "a convnet in half precision with a scaler": """
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(8 * 36, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 3, 16, 16)), torch.randint(0, 10, (8,)))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "a penalty on gradients": """
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
for _ in range(3):
    x = torch.randn(16, 4, requires_grad=True)
    out = critic(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = out.mean() + 10 * (g.norm(dim=-1) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "checkpoints of both kinds, with dropout": """
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))
    def forward(self, x):
        return x + self.net(x)
torch.manual_seed(0)
first, blocks, last = nn.Linear(6, 16), nn.ModuleList(Block() for _ in range(3)), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*first.parameters(), *blocks.parameters(), *last.parameters()], lr=0.1)
for step in range(3):
    x = first(torch.randn(8, 6))
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=bool(step % 2))
    optimizer.zero_grad()
    last(x).square().mean().backward()
    optimizer.step()
""",
    "a student in bfloat16 of a teacher in float32": """
import copy
torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
student = copy.deepcopy(teacher).bfloat16()
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
for _ in range(3):
    x = torch.randn(16, 8)
    with torch.no_grad():
        aim = teacher(x).softmax(-1)
    loss = nn.functional.kl_div(student(x.bfloat16()).float().log_softmax(-1), aim, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "a ratio of probabilities that begins at one": """
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
x, action, advantage = torch.randn(32, 5), torch.randint(0, 3, (32, 1)), torch.randn(32, 1)
with torch.no_grad():
    old = torch.cat([policy(part).log_softmax(-1) for part in x.split(8)]).gather(1, action)
for _ in range(3):
    new = policy(x).log_softmax(-1).gather(1, action)
    ratio = (new - old).exp()
    loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() + 0.1 * (new - old).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "attention with padding, and views of one batch held together": """
torch.manual_seed(0)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(40, 24), nn.Linear(24, 72), nn.Linear(24, 16)
    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = (one.unflatten(-1, (4, 6)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        mask = torch.zeros(ids.shape).masked_fill(ids == 0, float("-inf"))[:, None, None]
        x = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return nn.functional.normalize(self.out(x.mean(1)), dim=-1)
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    ids = torch.randint(1, 40, (8, 10))
    ids[:, 7:] = 0
    one, two = model(ids), model(ids.roll(1, 1).clamp(min=1))
    loss = nn.functional.cross_entropy(one @ two.t() / 0.07, torch.arange(8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
}


FAULTS |= {
    "a port that comes when the original has been trained": (
        """
class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.up = nn.Linear(6, 24)
        self.act = act  # HERE
        self.down = nn.Linear(24, 3)
    def forward(self, x):
        return self.down(self.act(self.up(x)))
def step(model, optimizer, x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.manual_seed(0)
one, two = Net(nn.GELU()), Net(nn.GELU(approximate="tanh"))
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (one, two)]
for _ in range(12):
    step(one, optimizers[0], torch.randn(8, 6))
two.load_state_dict(one.state_dict())
for _ in range(6):
    x = torch.randn(8, 6)
    for model, optimizer in zip((one, two), optimizers):
        step(model, optimizer, x)
""",
        "act",
        "two models",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_its_line(tmp_path, name) -> None:
    script, module, word = FAULTS[name]
    text, found, _ = run(tmp_path, script, "divergence")
    mine = [one for one in found if one.kind == "first-divergence"]
    assert len(mine) == 1, found
    (finding,) = mine
    assert finding.sites[0].site.line == line_of(text, "# HERE"), finding
    assert finding.module == module and word in finding.title


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_script(tmp_path, name) -> None:
    _, found, _ = run(tmp_path, HEALTHY[name], "divergence")
    assert [one for one in found if one.kind == "first-divergence"] == []
