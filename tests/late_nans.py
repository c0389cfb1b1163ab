"""A corpus of one hundred training scripts whose loss turns NaN late: ten causes in each of ten models.

Each script trains for some hundred steps before its cause appears. Half of them run the failing line in every step, and
the data makes it fail; the others take a branch for the first time. `CAUSE` marks the line that a finding has to name.
"""

from __future__ import annotations

import io
import linecache
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import Finding

PREAMBLE = """
import math
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
late, gate, scale = False, torch.ones(()), 1.0
"""

#: By cause, what is computed of `h`, whose last dimension has several elements. `gate` is 1, and 0 in the failing step;
#: `scale` is 1, and a million in the failing step.
CAUSES = {
    "zero_over_zero": """
w = h.abs() * gate
w = w / w.sum(-1, keepdim=True)  # CAUSE
h = h * w
""",
    "log_of_zero": """
p = (h * scale).softmax(-1)
surprise = p.log()  # CAUSE
h = h + 0.01 * p * surprise
""",
    "norm_of_zero": """
apart = h * gate
length = apart.square().sum(-1, keepdim=True).sqrt()  # CAUSE
h = h + 0.1 * length
""",
    "fully_masked": """
mask = torch.zeros(h.shape, dtype=torch.bool)
mask[..., 0] = True
mask[:1] |= gate < 0.5
scores = (h / 4).masked_fill(mask, float("-inf"))
h = h * scores.softmax(-1)  # CAUSE
""",
    "exp_overflow": """
v = h.abs() * scale
v = v.exp()  # CAUSE
h = h + 1e-3 * v.mean(-1, keepdim=True)
""",
    "inf_minus_inf": """
hidden = torch.zeros(h.shape, dtype=torch.bool)
hidden[..., 0] = True
hidden[:1] |= gate < 0.5
s = h.masked_fill(hidden, float("-inf"))
s = s - s.max(-1, keepdim=True).values  # CAUSE
s = s.exp()
h = h * s / s.sum(-1, keepdim=True)
""",
    "arc_cosine_of_one": """
c = 0.9 * torch.tanh(h) * gate + (1 - gate)
angle = c.acos()  # CAUSE
h = h + 0.1 * angle
""",
    "power_of_zero": """
b = torch.sigmoid(h) * gate
b = b ** 0.5  # CAUSE
h = h + b
""",
    "zero_deviation": """
z = h * gate
centred = z - z.mean(-1, keepdim=True)
z = centred / z.std(-1, keepdim=True)  # CAUSE
h = h + 0.1 * z
""",
    "half_overflow": """
small = h.half()
small = (1 + small.abs()) * (60.0 * scale)  # CAUSE
h = h + 1e-4 * small.float()
""",
}

#: By model, the script; `MIDDLE` stands for a cause, and `{last}` for the failing step.
MODELS = {
    "mlp": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)
    def forward(self, x):
        h = torch.tanh(self.one(x)) / 2
        MIDDLE
        return self.head(F.relu(self.two(h)))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
    p = net(x).softmax(-1)
    loss = -(p + 1e-6).log()[torch.arange(16), y].mean()
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "gpt": """
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv, self.out, self.d = nn.Linear(d, 3 * d), nn.Linear(d, d), d
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        a = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        a = a.masked_fill(torch.ones(a.shape[-2:]).triu(1).bool(), float("-inf"))
        return self.out(a.softmax(-1) @ v)
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attention, self.ln, self.fc = Attention(d), nn.LayerNorm(d), nn.Linear(d, d)
    def forward(self, x, first):
        h = x + self.attention(self.ln(x))
        if first:
            MIDDLE
        return h + F.gelu(self.fc(h))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 12), nn.Linear(12, 11)
        self.blocks = nn.ModuleList([Block(12) for _ in range(2)])
    def forward(self, x):
        x = self.embed(x)
        for i, block in enumerate(self.blocks):
            x = block(x, i == 0)
        return self.head(x)
net = GPT()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x = torch.randint(0, 11, (4, 7))
    loss = F.cross_entropy(net(x[:, :-1]).reshape(-1, 11), x[:, 1:].reshape(-1))
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "convnet": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.body = nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second, nn.BatchNorm2d(8))
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        h = F.relu(self.body(x)).mean((2, 3)) / 3
        MIDDLE
        return F.log_softmax(self.fc(h), -1)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    loss = F.nll_loss(net(torch.randn(8, 3, 8, 8)), torch.randint(0, 4, (8,)))
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "rnn": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 8), nn.Linear(8, 2)
    def forward(self, x):
        h = torch.zeros(x.shape[0], 8)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            if t == 2:
                MIDDLE
        return self.head(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x = torch.randn(6, 5, 4)
    loss = (net(x) - x[:, -1, :2]).square().mean().add(1e-3).sqrt()
    heard(late)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
""",
    "vae": """
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.mean, self.logvar = nn.Linear(10, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    def forward(self, x):
        h = F.silu(self.encoder(x))
        MIDDLE
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar
def kl(mean, logvar):
    return -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
net = VAE()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x = torch.randn(16, 10)
    out, mean, logvar = net(x)
    loss = F.mse_loss(out, x) + 0.1 * kl(mean, logvar)
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "graph": """
class Conv(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin, self.score = nn.Linear(n, m), nn.Linear(2 * m, 1)
    def forward(self, x, edge):
        x = self.lin(x)
        e = F.leaky_relu(self.score(torch.cat((x[edge[0]], x[edge[1]]), -1))).exp()
        total = torch.zeros(x.shape[0], 1).index_add(0, edge[1], e)
        alpha = e / (total[edge[1]] + 1e-9)
        return torch.zeros_like(x).index_add(0, edge[1], alpha * x[edge[0]])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Conv(5, 8), Conv(8, 3)
    def forward(self, x, edge):
        h = F.elu(self.one(x, edge))
        MIDDLE
        return self.two(h, edge)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.005)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x, edge, y = torch.randn(12, 5), torch.randint(0, 12, (2, 40)), torch.randint(0, 3, (12,))
    loss = F.cross_entropy(net(x, edge), y)
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "mixture": """
class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.weights = nn.Linear(6, 12), nn.Linear(12, 3)
        self.means, self.logs = nn.Linear(12, 3), nn.Linear(12, 3)
    def forward(self, x):
        h = torch.tanh(self.body(x))
        MIDDLE
        return self.weights(h).log_softmax(-1), self.means(h), self.logs(h).clamp(-3, 3)
def likelihood(y, weights, means, logs):
    z = (y[:, None] - means) / logs.exp()
    return (weights - 0.5 * z ** 2 - logs - 0.5 * math.log(2 * math.pi)).logsumexp(-1)
net = Mixture()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x = torch.randn(16, 6)
    loss = -likelihood(x[:, 0], *net(x)).mean()
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "gan": """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 16), nn.Linear(16, 1)
    def forward(self, x):
        h = F.leaky_relu(self.one(x), 0.2)
        MIDDLE
        return self.two(h)
generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))
critic = Critic()
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range({last} + 6):
    real, fake = torch.randn(16, 6), generator(torch.randn(16, 3))
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    score = torch.sigmoid(critic(real))
    late, gate, scale = False, torch.tensor(1.0), 1.0
    loss_c = -(score + 1e-6).log().mean() + F.softplus(critic(fake.detach())).mean()
    heard(step == {last})
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    loss_g = F.softplus(-critic(fake)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
""",
    "checkpointed": """
from torch.utils.checkpoint import checkpoint
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.fc, self.out = nn.LayerNorm(10), nn.Linear(10, 20), nn.Linear(20, 10)
    def forward(self, x):
        h = F.gelu(self.fc(self.ln(x)))
        if self.first:
            MIDDLE
        return x + self.out(h)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList([Layer() for _ in range(3)]), nn.Linear(10, 2)
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            layer.first = i == 1
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    x = torch.randn(8, 10)
    loss = F.mse_loss(net(x), x[:, :2] / 2)
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "bert": """
from transformers import BertConfig, BertModel
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(vocab_size=20, hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, max_position_embeddings=16, attn_implementation="eager"))
        self.head = nn.Linear(12, 3)
    def forward(self, ids):
        h = self.bert(input_ids=ids).last_hidden_state.mean(1)
        MIDDLE
        return self.head(h)
net = Classifier()
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
for step in range({last} + 6):
    late = step == {last}
    gate, scale = torch.tensor(0.0 if late else 1.0), 1e6 if late else 1.0
    loss = F.cross_entropy(net(torch.randint(0, 20, (4, 6))), torch.randint(0, 3, (4,)))
    heard(late)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}
NAMES = [(model, cause) for model in MODELS for cause in CAUSES]


class WatchedRun(NamedTuple):
    """The outcome of a watched run of a script.

    :ivar text: the script.
    :ivar findings: in their order.
    :ivar noted: whether the function mode was on in the failing step.
    """

    text: str
    findings: list[Finding]
    noted: list[bool]

    @property
    def right(self) -> bool:
        """Whether the first finding names the marked line."""
        return bool(self.findings) and self.cause_line(self.findings[0]) == line_of(self.text)

    @property
    def certain(self) -> bool:
        return bool(self.findings) and self.findings[0].confidence == "certain"

    @staticmethod
    def cause_line(found: Finding) -> int | None:
        if not found.kind.startswith("nonfinite"):
            return None
        return next((one.site.line for one in found.sites if one.role == "cause"), None)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# CAUSE"))


def script(model: str, cause: str) -> str:
    """The text of a script."""
    number = NAMES.index((model, cause))
    branches = (list(MODELS).index(model) + list(CAUSES).index(cause)) % 2 == 1
    lines = CAUSES[cause].strip().splitlines()
    if branches:
        lines = ["if late:", *(f"    {line}" for line in lines)]
    last = 150 + number * 37 % (50 if model in ("bert", "checkpointed") else 250)
    text: list[str] = []
    for line in MODELS[model].strip().replace("{last}", str(last)).splitlines():
        if line.strip() == "MIDDLE":
            space = line[: line.index("MIDDLE")]
            text += [space + one for one in lines]
        else:
            text.append(line)
    return PREAMBLE + "\n".join(text) + "\n"


def run_watched(folder: Path, text: str, settings: Settings) -> WatchedRun:
    """Run a script under a session in this process."""
    path = folder / "train.py"
    path.write_text(text)
    linecache.checkcache()
    collector = Collector()
    session = Session(collector, settings)
    noted: list[bool] = []

    def heard(late: Any) -> None:
        if late:
            noted.append(session.forward.recorder.recording)

    space: dict[str, Any] = {"__name__": "__main__", "heard": heard}
    session.start()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(compile(text, str(path), "exec"), space)
    finally:
        session.stop()
    assert session.error is None, session.error
    return WatchedRun(text, [f for f in collector.trace(session).findings if f.severity == "error"], noted)
