"""Scripts in which something writes in place, in step ``WHEN``, to what the backward needs: the line that writes ends
with ``# mutated``. In all other steps they are healthy. The corpus of ``test_inplace_attribution.py``."""

from __future__ import annotations

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)
    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))

net = Net()
x, y = torch.randn(16, 4), torch.randn(16, 1)
def losses():
    out = net(x)
    return (out - y).square().mean(), out.abs().mean()
"""

#: Name -> (before the loop, one step with ``late`` true in step WHEN only).
STEPS = {
    "optimizer": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        clip_grad_norm_(net.parameters(), 1.0)
        if not late:
            loss2.backward()
        opt.step()  # mutated
        if late:
            loss2.backward()
        """,
    ),
    "optimizer in a new branch": (
        "opt = torch.optim.Adam(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        if late:
            loss1.backward(retain_graph=True)
            clip_grad_norm_(net.parameters(), 1.0)
            opt.step()  # mutated
            loss2.backward()
        else:
            (loss1 + loss2).backward()
        opt.step()
        """,
    ),
    "gradients cleared after the step": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)",
        """
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()  # mutated
        opt.zero_grad()
        if late:
            loss2.backward()
        """,
    ),
    "two optimizers, the first": (
        "one = torch.optim.SGD(net.a.parameters(), lr=0.01); two = torch.optim.SGD(net.b.parameters(), lr=0.01)\n"
        "three = torch.optim.SGD(net.c.parameters(), lr=0.01)",
        """
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        clip_grad_norm_(net.parameters(), 1.0)
        one.step()
        if not late:
            loss2.backward()
        clip_grad_norm_(net.b.parameters(), 1.0)
        two.step()  # mutated
        one.zero_grad(); two.zero_grad(); three.zero_grad()
        if late:
            loss2.backward()
        """,
    ),
    "two optimizers, the last": (
        "one = torch.optim.SGD(net.b.parameters(), lr=0.01); two = torch.optim.Adam(net.c.parameters(), lr=0.01)\n"
        "three = torch.optim.SGD(net.a.parameters(), lr=0.01)",
        """
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        clip_grad_norm_(net.parameters(), 1.0)
        three.step()
        if not late:
            loss2.backward()
        clip_grad_norm_(net.c.parameters(), 1.0)
        two.step()  # mutated
        if late:
            loss2.backward()
        one.step()
        one.zero_grad(); two.zero_grad(); three.zero_grad()
        """,
    ),
    "one optimizer, two lines": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if late:
            clip_grad_norm_(net.parameters(), 1.0)
            opt.step()  # mutated
        loss2.backward()
        opt.step()
        """,
    ),
    "gradient scaler": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01); scaler = torch.amp.GradScaler('cpu', init_scale=4.0)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        scaler.scale(loss1).backward(retain_graph=True)
        if not late:
            scaler.scale(loss2).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)  # mutated
        scaler.update()
        if late:
            scaler.scale(loss2).backward()
        """,
    ),
    "closure": (
        "opt = torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=2)",
        """
        loss2 = losses()[1]
        def closure():
            opt.zero_grad()
            loss1 = losses()[0]
            loss1.backward()
            clip_grad_norm_(net.parameters(), 1.0)
            return loss1
        if not late:
            loss2.backward()
        opt.step(closure)  # mutated
        if late:
            loss2.backward()
        """,
    ),
    "scheduler": (
        "opt = torch.optim.AdamW(net.parameters(), lr=0.01)\n"
        "sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.99 ** step)",
        """
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()  # mutated
        sched.step()
        opt.zero_grad()
        if late:
            loss2.backward()
        """,
    ),
    "helper": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)\n"
        "def update():\n    clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()  # mutated\n    opt.zero_grad()",
        """
        loss1, loss2 = losses()
        if late:
            loss1.backward(retain_graph=True)
            update()
            loss2.backward()
        (loss1 + loss2).backward()
        update()
        """,
    ),
    "graph of the step before": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)\nh = torch.zeros(16, 8)\ncell = nn.RNNCell(4, 8)\n"
        "opt.add_param_group({'params': list(cell.parameters())})",
        """
        h = net.b(cell(x, h if late else h.detach())).tanh()
        loss = net.c(h).square().mean()
        loss.backward(retain_graph=True)
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()  # mutated
        opt.zero_grad()
        """,
    ),
    "own optimizer": (
        "class Own(torch.optim.Optimizer):\n"
        "    def __init__(self, params, lr):\n        super().__init__(params, {'lr': lr})\n"
        "    @torch.no_grad()\n    def step(self):\n"
        "        for group in self.param_groups:\n            for p in group['params']:\n"
        "                if p.grad is not None:\n"
        "                    p.add_(p.grad, alpha=-group['lr'])\n"
        "opt = Own(net.parameters(), 0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()  # mutated
        if late:
            loss2.backward()
        """,
    ),
    "loop by hand": (
        "",
        """
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.01 * p.grad  # mutated
                p.grad = None
        if late:
            loss2.backward()
        """,
    ),
    "moving average": (
        "import copy\nopt = torch.optim.SGD(net.parameters(), lr=0.01)\nteacher = copy.deepcopy(net)\n"
        "@torch.no_grad()\ndef follow():\n    for t, p in zip(teacher.parameters(), net.parameters()):\n"
        "        t.mul_(0.9).add_(p, alpha=0.1)  # mutated",
        """
        opt.zero_grad()
        loss = (teacher(net(x) * x) - y).square().mean()
        clip_grad_norm_(net.parameters(), 1.0)
        if late:
            follow()
        loss.backward()
        opt.step()
        follow()
        """,
    ),
    "weights copied": (
        "import copy\nopt = torch.optim.SGD(net.parameters(), lr=0.01)\ntarget = copy.deepcopy(net)",
        """
        opt.zero_grad()
        loss = (target(net(x) * x) - y).square().mean()
        if late:
            target.load_state_dict(net.state_dict())  # mutated
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "clipped gradient": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        grads = torch.autograd.grad(loss1, list(net.parameters()), create_graph=True)
        for p, g in zip(net.parameters(), grads):
            p.grad = g if late else g.detach().clone()
        penalty = sum(g.square().sum() for g in grads)
        clip_grad_norm_(net.parameters(), 1e-3)  # mutated
        for p in net.parameters():
            p.grad = p.grad.detach()
        penalty.backward()
        opt.step()
        """,
    ),
    "weights clamped": (
        "opt = torch.optim.RMSprop(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss = losses()[0]
        if not late:
            loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p.clamp_(-0.5, 0.5)  # mutated
        if late:
            loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "result added to": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01); seen = 0",
        """
        opt.zero_grad()
        seen += 1
        h = torch.tanh(net.a(x))
        if late:
            h += 1  # mutated
        loss = net.c(net.b(h).tanh()).square().mean()
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "result added to after the step of another": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01); other = nn.Linear(2, 1)\n"
        "two = torch.optim.SGD(other.parameters(), lr=0.1)",
        """
        opt.zero_grad(); two.zero_grad()
        h = torch.sigmoid(net.a(x))
        other(torch.ones(2)).sum().backward()
        clip_grad_norm_(other.parameters(), 1.0)
        two.step()
        if late:
            h.mul_(2)  # mutated
        loss = net.c(net.b(h).tanh()).square().mean()
        loss.backward()
        opt.step()
        """,
    ),
    "element set": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01); history = {}",
        """
        opt.zero_grad()
        h = torch.exp(net.a(x))
        history["step"] = step
        if late:
            h[:, 0] = 0.0  # mutated
        loss = net.c(h).square().mean()
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "activation in place": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        h = torch.sigmoid(net.a(x)) - 0.0
        g = torch.tanh(h)
        h = F.relu(g, inplace=late)  # mutated
        loss = net.c(h).square().mean()
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "initialised again": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss = losses()[0]
        if late:
            nn.init.xavier_uniform_(net.b.weight)
            nn.init.xavier_uniform_(net.c.weight)  # mutated
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "step, then a write by hand": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        opt.step()  # mutated
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(0.999)
        if late:
            loss2.backward()
        """,
    ),
    "a write by hand, then a step": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)",
        """
        opt.zero_grad()
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(0.999)  # mutated
        opt.step()
        if late:
            loss2.backward()
        """,
    ),
    "buffer written": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.01); net.register_buffer('scale', torch.ones(16, 1))",
        """
        opt.zero_grad()
        loss = (losses()[0] * net.scale).mean()
        if late:
            net.scale.add_(0.1)  # mutated
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        """,
    ),
    "foreach": (
        "",
        """
        loss1, loss2 = losses()
        loss1.backward(retain_graph=True)
        if not late:
            loss2.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), [p.grad for p in net.parameters()], alpha=-0.01)  # mutated
        net.zero_grad()
        if late:
            loss2.backward()
        """,
    ),
}


def script(name: str, when: int) -> str:
    """The text of the script `name` that goes wrong in step `when`."""
    before, body = STEPS[name]
    lines = [line[4:] for line in body.strip("\n").splitlines()]
    when = max(when, 1) if name == "graph of the step before" else when  # there is none in step 0
    return "\n".join(
        [HEAD, before, f"for step in range({when + 3}):", f"    late = step == {when}", *(line for line in lines), ""]
    )
