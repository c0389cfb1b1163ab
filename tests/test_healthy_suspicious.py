"""Correct training loops that look suspicious: none has a warning."""

from __future__ import annotations

import pytest
from scripts import findings

SCRIPTS = {
    "targets without a graph, and a teacher that follows": """
        student = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 4))
        teacher = copy.deepcopy(student).requires_grad_(False)
        opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
        for step in range(50):
            x = torch.randn(16, 6)
            with torch.no_grad():
                goal = (teacher(x) / 0.1).softmax(-1)
            own = student(x + 0.1 * torch.randn_like(x)).log_softmax(-1)
            sure = goal.max(-1).values.detach() > 0.3
            loss = -(goal * own).sum(-1).mul(sure).sum() / sure.sum().clamp(min=1)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), student.parameters()):
                    slow.mul_(0.99).add_(fast, alpha=0.01)
        """,
    "a trunk that thaws layer by layer": """
        trunk = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        head = nn.Linear(6, 3)
        trunk.requires_grad_(False)
        opt = torch.optim.Adam(head.parameters(), lr=1e-3)
        for step in range(60):
            if step in (15, 30, 45):
                layer = trunk[3 - step // 15]
                layer.requires_grad_(True)
                opt.add_param_group({"params": layer.parameters(), "lr": 1e-4})
            x = torch.randn(16, 6)
            h = x
            for layer in trunk:
                h = h + torch.tanh(layer(h))
            loss = F.cross_entropy(head(h), x[:, :3].argmax(1))
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "generator and critic in turn": """
        G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        og, od = torch.optim.Adam(G.parameters(), 1e-3, (0.5, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, (0.5, 0.9))
        for step in range(60):
            real = torch.randn(16, 2) * 0.5 + 1
            fake = G(torch.randn(16, 4))
            loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake.detach())).mean()
            od.zero_grad(); loss.backward(); od.step()
            if step % 4 == 3:
                D.requires_grad_(False)
                og.zero_grad(); (-D(G(torch.randn(16, 4))).mean()).backward(); og.step()
                D.requires_grad_(True)
        """,
    "a warm-up that starts at zero": """
        net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(s / 10, 1.0) * max(0.0, 1 - s / 60))
        for step in range(60):
            x = torch.randn(16, 6)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            opt.zero_grad(); loss.backward(); opt.step(); plan.step()
        """,
    "accumulation, with gradients set to zero after the step": """
        net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
        opt = torch.optim.Adam(net.parameters())
        opt.zero_grad()
        for micro in range(120):
            x = torch.randn(8, 6)
            (F.cross_entropy(net(x), x[:, :3].argmax(1)) / 4).backward()
            if micro % 4 == 3:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
                net.zero_grad(set_to_none=micro % 8 == 3)
        """,
    "rows in which all is masked": """
        class Attend(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.kv, self.out = nn.Linear(6, 8), nn.Linear(6, 16), nn.Linear(8, 3)
            def forward(self, x, keep):
                q, (k, v) = self.q(x), self.kv(x).chunk(2, -1)
                scores = (q @ k.transpose(1, 2) / 8**0.5).masked_fill(~keep[:, None], float("-inf"))
                empty = ~keep.any(-1)
                scores = torch.where(empty[:, None, None], torch.zeros_like(scores), scores)
                a = scores.softmax(-1) * keep[:, None]
                h = self.out(a @ v)
                n = keep.sum(1).clamp(min=1)
                return (h * keep[..., None]).sum(1) / n[:, None], ~empty
        net = Attend()
        opt = torch.optim.Adam(net.parameters())
        for step in range(60):
            x, keep = torch.randn(8, 5, 6), torch.rand(8, 5) > 0.4
            keep[step % 8] = False
            if step == 40:
                keep[:] = False
            y, there = net(x, keep)
            each = F.cross_entropy(y, x[:, 0, :3].argmax(1), reduction="none")
            loss = (each * there).sum() / there.sum().clamp(min=1)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "actor and critic with stopped gradients": """
        body, pi, value = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 1)
        opt = torch.optim.Adam([*body.parameters(), *pi.parameters(), *value.parameters()], 1e-3)
        for step in range(50):
            s = torch.randn(16, 4)
            h = body(s)
            dist = torch.distributions.Categorical(logits=pi(h))
            a = dist.sample()
            reward = (a == s[:, :3].argmax(1)).float()
            v = value(h.detach()).squeeze(-1)
            gain = (reward - v).detach()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -(dist.log_prob(a) * gain).mean() + F.mse_loss(v, reward) - 0.01 * dist.entropy().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "experts that are idle in some steps": """
        class Routed(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(6, 4), nn.ModuleList(nn.Linear(6, 3) for _ in range(4))
            def forward(self, x):
                p, which = self.gate(x).softmax(-1).max(-1)
                out = x.new_zeros(len(x), 3)
                for i, expert in enumerate(self.experts):
                    at = (which == i).nonzero().squeeze(1)
                    if len(at):
                        out = out.index_add(0, at, p[at, None] * expert(x[at]))
                return out
        net = Routed()
        opt = torch.optim.Adam(net.parameters(), 1e-2)
        for step in range(60):
            x = torch.randn(6, 6)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "hooks that only look": """
        net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
        seen = {}
        net[0].register_forward_hook(lambda m, i, o: seen.__setitem__("rms", o.detach().square().mean().sqrt().item()))
        net[2].register_full_backward_hook(lambda m, gi, go: seen.__setitem__("g", go[0].norm().item()))
        for name, p in net.named_parameters():
            p.register_hook(lambda g, name=name: seen.__setitem__(name, float(g.abs().max())))
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(40):
            x = torch.randn(16, 6)
            h = net(x)
            h.register_hook(lambda g: None)
            loss = F.cross_entropy(h, x[:, :3].argmax(1))
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "checkpoints under autocast, a gate that starts at zero": """
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
                self.gate = nn.Parameter(torch.zeros(8))
            def inner(self, x):
                return self.gate * self.down(F.gelu(self.up(self.norm(x))))
            def forward(self, x):
                return x + checkpoint(self.inner, x, use_reentrant=False)
        net = nn.Sequential(nn.Linear(6, 8), Block(), Block(), nn.Linear(8, 3))
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        for step in range(40):
            x = torch.randn(16, 6)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "custom functions in a checkpoint": """
        from torch.utils.checkpoint import checkpoint
        class Gate(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.save_for_backward(x, y)
                return x * torch.sigmoid(y)
            @staticmethod
            def backward(ctx, grad):
                x, y = ctx.saved_tensors
                s = torch.sigmoid(y)
                return grad * s, grad * x * s * (1 - s)
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(8, 8), nn.Dropout(0.1)
            def forward(self, x):
                return x + self.down(Gate.apply(*self.up(self.drop(x)).chunk(2, -1)))
        blocks = nn.ModuleList([nn.Linear(6, 8), Block(), Block(), nn.Linear(8, 3)])
        opt = torch.optim.AdamW(blocks.parameters(), 1e-3)
        for step in range(40):
            x = torch.randn(16, 6)
            h = blocks[0](x)
            for block in blocks[1:3]:
                h = checkpoint(block, h, use_reentrant=False)
            loss = F.cross_entropy(blocks[3](h), x[:, :3].argmax(1))
            opt.zero_grad(); loss.backward(); opt.step()
        """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_warning(name: str, tmp_path) -> None:
    _, found = findings(tmp_path, SCRIPTS[name])
    assert [str(f) for f in found if f.severity != "info"] == []
