"""Neural ODE with a hand-written discrete adjoint (a custom autograd.Function).

Right because: the forward pass integrates without a graph and keeps only the states; the
backward pass walks back through the RK4 steps, rebuilding each step's small graph under
enable_grad, which gives the exact gradient; None is returned for the vector field object and
for the step size, which are not differentiable inputs.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def rk4(field, z, h):
    k1 = field(z)
    k2 = field(z + h / 2 * k1)
    k3 = field(z + h / 2 * k2)
    k4 = field(z + h * k3)
    return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Integrate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, field, h, n_steps, z0, *params):
        states = [z0.detach()]
        with torch.no_grad():
            for _ in range(n_steps):
                states.append(rk4(field, states[-1], h))
        path = torch.stack(states)
        ctx.field, ctx.h, ctx.params = field, h, params
        ctx.save_for_backward(path)
        return path.clone()

    @staticmethod
    def backward(ctx, grad_path):
        path, = ctx.saved_tensors
        adjoint = grad_path[-1]
        grads = [torch.zeros_like(p) for p in ctx.params]
        for i in range(len(path) - 2, -1, -1):
            with torch.enable_grad():
                z = path[i].detach().requires_grad_(True)
                out = rk4(ctx.field, z, ctx.h)
                dz, *dp = torch.autograd.grad(out, (z, *ctx.params), adjoint)
            adjoint = dz + grad_path[i]
            for g, d in zip(grads, dp):
                g += d
        return (None, None, None, adjoint, *grads)


class Field(nn.Module):
    def __init__(self, d=2, hidden=40):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                 nn.Linear(hidden, d))

    def forward(self, z):
        return self.net(z)


class ODEModel(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.field, self.h = Field(), h
        self.shift = nn.Parameter(torch.zeros(2))        # systematic error of the first reading

    def forward(self, z0, n_steps):
        return Integrate.apply(self.field, self.h, n_steps, z0 + self.shift, *self.field.parameters())


def van_der_pol(z, mu=0.8):
    x, v = z.unbind(-1)
    return torch.stack([v, mu * (1 - x ** 2) * v - x], -1)


def trajectories(n, steps, h, gen):
    z = torch.rand(n, 2, generator=gen) * 5 - 2.5
    out = [z]
    for _ in range(steps):
        out.append(rk4(van_der_pol, out[-1], h))
    return torch.stack(out)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    h, window = 0.1, 10
    data = trajectories(40, 60, h, gen)
    test = trajectories(20, 30, h, gen)
    bias = torch.tensor([0.2, -0.15])
    net = ODEModel(h)
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.995)
    for step in range(400):
        t = torch.randint(0, 60 - window, (1,), generator=gen).item()
        who = torch.randperm(40, generator=gen)[:24]
        truth = data[t:t + window + 1, who]
        reading = truth[0] - bias
        loss = F.mse_loss(net(reading, window), truth)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 80 == 79 or step == 0:
            with torch.no_grad():
                err = F.mse_loss(net(test[0] - bias, 30), test).item()
            print(f"step {step} loss {loss.item():.5f} long test {err:.4f} shift {net.shift.detach().tolist()}")


if __name__ == "__main__":
    main()
