"""Healthy training loops, each of a different kind: none has a finding."""

from __future__ import annotations

import pytest
from scripts import findings

#: Small scripts that come close to a mistake.
SMALL_SCRIPTS = {
    "batch norm that runs twice before the backward": """
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        for _ in range(3):
            (net(torch.randn(5, 3)).mean() - net(torch.randn(5, 3)).mean()).square().backward()
        """,
    "a checkpoint of a method, called from the module's own forward": """
        from functools import partial
        from torch.utils.checkpoint import checkpoint
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.fc, self.drop = nn.LayerNorm(4), nn.Linear(4, 4), nn.Dropout(0.1)
            def body(self, x, scale):
                return x + self.drop(torch.relu(self.fc(self.norm(x)))) * scale
            def forward(self, x):
                return checkpoint(partial(self.body, scale=0.5), x, use_reentrant=False)
        net = nn.Sequential(nn.Linear(3, 4), Layer(), Layer(), nn.Linear(4, 1))
        for _ in range(4):
            net(torch.randn(5, 3)).square().mean().backward()
        """,
    "what numpy only reads": """
        import numpy as np
        net = nn.Linear(4, 3)
        buffer = np.ones((5, 4), dtype=np.float32)
        for k in range(3):
            out = torch.tanh(net(torch.from_numpy(buffer)))
            picture = out.detach().numpy().copy()
            picture -= picture.min()
            out.square().sum().backward()
            buffer += 1
        """,
    "frozen backbone": """
        body, head = nn.Sequential(nn.Linear(3, 8), nn.ReLU()), nn.Linear(8, 1)
        for p in body.parameters():
            p.requires_grad_(False)
        opt = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); head(body(torch.randn(4, 3))).square().mean().backward(); opt.step()
        """,
    "target network and moving average": """
        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        target = copy.deepcopy(net)
        opt = torch.optim.Adam(net.parameters())
        for _ in range(6):
            x = torch.randn(5, 3)
            with torch.no_grad():
                goal = x.sum(1) + 0.9 * target(x).max(1).values
            loss = F.mse_loss(net(x).max(1).values, goal)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                for p, q in zip(net.parameters(), target.parameters()):
                    q.lerp_(p, 0.1)
        """,
    "teacher whose output is detached": """
        student, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
        opt = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(5):
            x = torch.randn(4, 3)
            loss = F.mse_loss(student(x), teacher(x).detach())
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "gan": """
        G, D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), nn.Linear(3, 1)
        og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        for _ in range(5):
            fake = G(torch.randn(6, 2))
            d = F.softplus(-D(torch.randn(6, 3))).mean() + F.softplus(D(fake.detach())).mean()
            od.zero_grad(); d.backward(); od.step()
            g = F.softplus(-D(fake)).mean()
            og.zero_grad(); g.backward(); og.step()
        """,
    "branches taken in turn": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.branches, self.head = nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), nn.Linear(3, 1)
            def forward(self, x, i):
                return self.head(self.branches[i](x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(30):
            opt.zero_grad(); net(torch.randn(4, 3), i // 10).sum().backward(); opt.step()
        """,
    "batch norm, dropout and a checkpoint without state": """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.block = nn.BatchNorm1d(3), nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1), nn.ReLU())
                self.fc = nn.Linear(3, 1)
            def forward(self, x):
                return self.fc(checkpoint(self.block, self.norm(x), use_reentrant=False))
        net = Net()
        net.block.register_full_backward_hook(lambda m, gi, go: None)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(4, 3)).square().mean().backward(); opt.step()
        """,
    "weights updated through data": """
        net = nn.Linear(3, 1)
        for step in range(6):
            loss = net(torch.randn(2, 3)).square().sum()
            loss.backward()
            for p in net.parameters():
                p.data -= 0.1 * p.grad
                p.grad.data.zero_()
        """,
    "second order, tidied up": """
        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(4):
            loss = net(torch.randn(2, 3)).square().sum()
            loss.backward(create_graph=True)
            opt.step()
            opt.zero_grad()
        """,
    "low-rank adapter that begins at zero": """
        class Lora(nn.Module):
            def __init__(self):
                super().__init__()
                self.base = nn.Linear(4, 4).requires_grad_(False)
                self.a, self.b = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.zeros(2, 4))
            def forward(self, x):
                return self.base(x) + x @ self.a @ self.b
        net = Lora()
        net(torch.randn(3, 4)).square().sum().backward()
        """,
    "masked attention": """
        q = nn.Linear(8, 8)
        mask = torch.full((5, 5), float("-inf")).triu(1)
        opt = torch.optim.SGD(q.parameters(), lr=0.1)
        for _ in range(8):
            x = torch.randn(2, 5, 8)
            scores = q(x) @ x.transpose(1, 2) + mask
            weights = scores.softmax(-1).masked_fill(mask.isinf(), 0.0)
            loss = (weights @ x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "lstm and evaluation": """
        net, head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)
        opt = torch.optim.Adam([*net.parameters(), *head.parameters()])
        state = None
        for i in range(6):
            out, state = net(torch.randn(2, 20, 4), state)
            state = tuple(s.detach() for s in state)
            loss = F.cross_entropy(head(out[:, -1]), torch.randint(0, 2, (2,)))
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                accuracy = (head(net(torch.randn(2, 20, 4))[0][:, -1]).argmax(1) == 1).float().mean().item()
        """,
    "penalty on gradients": """
        net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(5):
            x = torch.randn(4, 3, requires_grad=True)
            (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            loss = net(x).square().mean() + (g.norm(dim=1) - 1).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "deep residual network": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.fc = nn.LayerNorm(16), nn.Linear(16, 16)
            def forward(self, x):
                return x + F.gelu(self.fc(self.norm(x)))
        net = nn.Sequential(*(Block() for _ in range(24)))
        opt = torch.optim.AdamW(net.parameters())
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(4, 16)).square().mean().backward(); opt.step()
        """,
    "ten plain layers": """
        net = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(32, 32), nn.ReLU())), nn.Linear(32, 4))
        opt = torch.optim.Adam(net.parameters())
        for _ in range(4):
            loss = F.cross_entropy(net(torch.randn(16, 32)), torch.randint(0, 4, (16,)))
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "loss scaling that looks for its scale": """
        net = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=100)
        for _ in range(12):
            opt.zero_grad()
            loss = net(torch.randn(8, 4) * 10).square().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        """,
    "weight tying and manual update": """
        e = nn.Embedding(7, 4)
        for _ in range(5):
            loss = F.cross_entropy(F.linear(e(torch.tensor([1, 2])), e.weight), torch.tensor([2, 3]))
            loss.backward()
            with torch.no_grad():
                e.weight -= 0.1 * e.weight.grad
                e.weight.grad = None
        """,
    "adversarial example": """
        net = nn.Linear(4, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            x = torch.randn(3, 4, requires_grad=True)
            y = torch.tensor([0, 1, 0])
            (g,) = torch.autograd.grad(F.cross_entropy(net(x), y), x)
            loss = F.cross_entropy(net((x + 0.1 * g.sign()).detach()), y)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "straight-through estimator": """
        net, head = nn.Linear(4, 4), nn.Linear(4, 1)
        opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
        for _ in range(5):
            h = net(torch.randn(3, 4))
            q = h + (torch.round(h) - h).detach()
            opt.zero_grad(); head(q).square().mean().backward(); opt.step()
        """,
    "policy gradient": """
        policy, value = nn.Linear(4, 2), nn.Linear(4, 1)
        opt = torch.optim.Adam([*policy.parameters(), *value.parameters()])
        for _ in range(5):
            s = torch.randn(16, 4)
            d = torch.distributions.Categorical(logits=policy(s))
            a = d.sample()
            r = (a == 0).float()
            v = value(s).squeeze(1)
            loss = -(d.log_prob(a) * (r - v.detach())).mean() + F.mse_loss(v, r)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "no backward at all": """
        net = nn.Linear(3, 2)
        net(torch.randn(4, 3)).argmax(1)
        """,
}

#: Training loops of many kinds.
LOOPS = {
    "swa": """
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
        from torch.optim.swa_utils import AveragedModel, SWALR, update_bn

        avg = AveragedModel(net)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        sch = SWALR(opt, swa_lr=0.05)
        data = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(6)]
        for x, y in data:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            avg.update_parameters(net)
            sch.step()
        update_bn([x for x, _ in data], avg)
        with torch.no_grad():
            avg(data[0][0])
        """,
    "weightnorm": """
        from torch.nn.utils.parametrizations import weight_norm, spectral_norm

        net = nn.Sequential(weight_norm(nn.Linear(4, 8)), nn.Tanh(), spectral_norm(nn.Linear(8, 1)))
        opt = torch.optim.Adam(net.parameters())
        for _ in range(6):
            opt.zero_grad()
            net(torch.randn(5, 4)).square().mean().backward()
            opt.step()
        """,
    "reinforce": """
        policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
        for episode in range(8):
            logps, rewards = [], []
            s = torch.randn(4)
            for t in range(10):
                d = torch.distributions.Categorical(logits=policy(s))
                a = d.sample()
                logps.append(d.log_prob(a))
                rewards.append(float(a))
                s = torch.randn(4)
            R = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
            R = (R - R.mean()) / (R.std() + 1e-6)
            loss = -(torch.stack(logps) * R).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "vae": """
        class VAE(nn.Module):
            def __init__(s):
                super().__init__()
                s.e = nn.Linear(8, 16)
                s.mu = nn.Linear(16, 2)
                s.lv = nn.Linear(16, 2)
                s.d = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8))

            def forward(s, x):
                h = F.relu(s.e(x))
                mu, lv = s.mu(h), s.lv(h)
                z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
                return torch.sigmoid(s.d(z)), mu, lv


        net = VAE()
        opt = torch.optim.Adam(net.parameters())
        total = 0.0
        for _ in range(8):
            x = torch.rand(16, 8)
            r, mu, lv = net(x)
            loss = F.binary_cross_entropy(r, x, reduction="sum") - 0.5 * (1 + lv - mu**2 - lv.exp()).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        """,
    "moco": """
        q = nn.Linear(8, 4)
        k = copy.deepcopy(q)
        for p in k.parameters():
            p.requires_grad = False
        queue = F.normalize(torch.randn(4, 32), dim=0)
        ptr = 0
        opt = torch.optim.SGD(q.parameters(), lr=0.1)
        for _ in range(8):
            x = torch.randn(8, 8)
            a = F.normalize(q(x), dim=1)
            with torch.no_grad():
                for pq, pk in zip(q.parameters(), k.parameters()):
                    pk.data = pk.data * 0.99 + pq.data * 0.01
                b = F.normalize(k(x + 0.1 * torch.randn_like(x)), dim=1)
            logits = torch.cat([(a * b).sum(1, keepdim=True), a @ queue.clone().detach()], 1) / 0.1
            loss = F.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
            opt.zero_grad()
            loss.backward()
            opt.step()
            queue[:, ptr : ptr + 8] = b.T
            ptr = (ptr + 8) % 32
        """,
    "maml": """
        from torch.func import functional_call

        net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        opt = torch.optim.Adam(net.parameters())
        for _ in range(5):
            meta = 0
            for task in range(3):
                a = torch.rand(1)
                x = torch.randn(8, 1)
                y = a * x
                params = dict(net.named_parameters())
                inner = F.mse_loss(functional_call(net, params, (x,)), y)
                g = torch.autograd.grad(inner, list(params.values()), create_graph=True)
                fast = {n: p - 0.1 * gg for (n, p), gg in zip(params.items(), g)}
                meta = meta + F.mse_loss(functional_call(net, fast, (x,)), y)
            opt.zero_grad()
            meta.backward()
            opt.step()
        """,
    "wgangp": """
        G = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
        D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        og = torch.optim.Adam(G.parameters())
        od = torch.optim.Adam(D.parameters())
        for i in range(12):
            real = torch.randn(8, 2)
            fake = G(torch.randn(8, 2)).detach()
            e = torch.rand(8, 1)
            m = (e * real + (1 - e) * fake).requires_grad_(True)
            (g,) = torch.autograd.grad(D(m).sum(), m, create_graph=True)
            ld = D(fake).mean() - D(real).mean() + 10 * ((g.norm(2, dim=1) - 1) ** 2).mean()
            od.zero_grad()
            ld.backward()
            od.step()
            if i % 3 == 0:
                lg = -D(G(torch.randn(8, 2))).mean()
                og.zero_grad()
                lg.backward()
                og.step()
        """,
    "bf16accum": """
        net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
        opt = torch.optim.AdamW(net.parameters())
        sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
        for step in range(12):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(torch.randn(8, 8)), torch.randint(0, 4, (8,))) / 4
            loss.backward()
            if step % 4 == 3:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
                sch.step()
        """,
    "charnn": """
        class RNN(nn.Module):
            def __init__(s):
                super().__init__()
                s.i = nn.Linear(8, 16)
                s.h = nn.Linear(16, 16)
                s.o = nn.Linear(16, 8)

            def forward(s, x):
                h = torch.zeros(x.shape[1], 16)
                out = []
                for f in x:
                    h = torch.tanh(s.i(f) + s.h(h))
                    out.append(s.o(h))
                return torch.stack(out)


        net = RNN()
        opt = torch.optim.Adam(net.parameters())
        for _ in range(5):
            x = torch.randn(40, 4, 8)
            opt.zero_grad()
            F.mse_loss(net(x), x.roll(1, 0)).backward()
            opt.step()
        """,
    "resnetish": """
        class B(nn.Module):
            def __init__(s, c):
                super().__init__()
                s.c1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
                s.b1 = nn.BatchNorm2d(c)
                s.c2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
                s.b2 = nn.BatchNorm2d(c)
                s.r = nn.ReLU(inplace=True)

            def forward(s, x):
                o = s.r(s.b1(s.c1(x)))
                o = s.b2(s.c2(o))
                o += x
                return s.r(o)


        net = nn.Sequential(
            nn.Conv2d(3, 8, 3), B(8), B(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(8, 5)
        )
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        best = None
        losses = []
        for e in range(3):
            for _ in range(3):
                loss = F.cross_entropy(net(torch.randn(4, 3, 12, 12)), torch.randint(0, 5, (4,)), label_smoothing=0.1)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.detach())
            net.eval()
            with torch.inference_mode():
                acc = (net(torch.randn(4, 3, 12, 12)).argmax(1) == 0).float().mean()
            net.train()
            best = copy.deepcopy(net.state_dict())
            net.load_state_dict(best)
        """,
    "saliency": """
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
        net.eval()
        acts = {}
        h = net[0].register_forward_hook(lambda m, i, o: acts.__setitem__("a", o))
        for _ in range(5):
            x = torch.rand(1, 1, 8, 8, requires_grad=True)
            s = net(x)[0].max()
            s.backward()
            sal = x.grad.abs()
            acts["a"].detach()
        h.remove()
        """,
    "style": """
        img = torch.rand(1, 3, 16, 16, requires_grad=True)
        vgg = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval().requires_grad_(False)
        goal = vgg(torch.rand(1, 3, 16, 16)).detach()
        opt = torch.optim.LBFGS([img], max_iter=5)
        for _ in range(4):

            def closure():
                opt.zero_grad()
                l = F.mse_loss(vgg(img), goal)
                l.backward()
                return l

            opt.step(closure)
            img.data.clamp_(0, 1)
        """,
    "transformer": """
        net = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        emb = nn.Embedding(20, 16)
        out = nn.Linear(16, 20)
        opt = torch.optim.Adam([*net.parameters(), *emb.parameters(), *out.parameters()])
        for _ in range(5):
            s, t = torch.randint(0, 20, (3, 6)), torch.randint(0, 20, (3, 7))
            mask = nn.Transformer.generate_square_subsequent_mask(6)
            pad = torch.zeros(3, 6, dtype=torch.bool)
            pad[0, 4:] = True
            y = out(net(emb(s), emb(t[:, :-1]), tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad))
            loss = F.cross_entropy(y.flatten(0, 1), t[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "multitask": """
        class N(nn.Module):
            def __init__(s):
                super().__init__()
                s.b = nn.Linear(4, 8)
                s.a = nn.Linear(8, 1)
                s.c = nn.Linear(8, 3)
                s.w = nn.Parameter(torch.zeros(2))

            def forward(s, x):
                h = torch.relu(s.b(x))
                return s.a(h), s.c(h)


        n = N()
        opt = torch.optim.Adam(n.parameters())
        for i in range(6):
            a, c = n(torch.randn(6, 4))
            la = a.square().mean()
            lc = F.cross_entropy(c, torch.randint(0, 3, (6,)))
            opt.zero_grad()
            (la * torch.exp(-n.w[0]) + n.w[0]).backward(retain_graph=True)
            (lc * torch.exp(-n.w[1]) + n.w[1]).backward()
            opt.step()
        """,
    "quant": """
        class STE(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, g):
                return g


        n = nn.Linear(4, 4)
        o = nn.Linear(4, 1)
        opt = torch.optim.SGD([*n.parameters(), *o.parameters()], lr=0.1)
        for _ in range(5):
            opt.zero_grad()
            o(STE.apply(n(torch.randn(6, 4)))).square().mean().backward()
            opt.step()
        """,
    "evalmetrics": """
        n = nn.Linear(4, 2)
        opt = torch.optim.SGD(n.parameters(), lr=0.1)
        hist = {"loss": [], "acc": []}
        preds = []
        for e in range(4):
            run = 0.0
            for _ in range(4):
                x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
                o = n(x)
                l = F.cross_entropy(o, y)
                opt.zero_grad()
                l.backward()
                opt.step()
                run += l.item() * 8
                preds.append(o.argmax(1).numpy())
            hist["loss"].append(run)
            hist["acc"].append(float((o.argmax(1) == y).float().mean()))
            w = n.weight.data.clone()
            gn = n.weight.grad.data.norm(2)
            print(f"{run:.3f} {gn:.3f} {l}")
        """,
}


@pytest.mark.parametrize("name", [*SMALL_SCRIPTS, *LOOPS])
def test_no_finding(name: str, tmp_path) -> None:
    _, found = findings(tmp_path, {**SMALL_SCRIPTS, **LOOPS}[name])
    assert [str(f) for f in found] == []
