"""Scripts that differ from float64, or from another model, only by ordinary rounding: they have no findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from divergence import FUNCTION, departures

#: Name -> a script.
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
    # Of the second set, written when the first was right.
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


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_script_has_no_findings(tmp_path: Path, name: str) -> None:
    assert departures(tmp_path, HEALTHY[name])[1] == []
