"""DDPG on a noisy point mass; the critic's value estimates are driven up by the actor's loss.

Report: https://github.com/ray-project/ray/pull/65125 (the actor loss goes backward through the critics before the
critic optimizer steps, so its gradients are added to the critic's and every update also pushes Q-values up).
Effect: all rewards are negative, so the true Q is below zero, but the critic's mean Q ends at about +3; with the critic
gradients kept apart it stays negative (about -2).
"""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "foreign-gradient", "line": ("cause", "CAUSE"),
    "what": "the actor loss is backpropagated through the critic before critic_opt.step(), so its gradient is added to the critic's own and the critic learns to raise Q; step the critic first (or zero/freeze its gradients for the actor pass)",
    "set": "twentyfirst", "written": "2026-11-27",
}


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 1), nn.Tanh())

    def forward(self, s):
        return self.net(s)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, s, a):
        return self.net(torch.cat([s, a], dim=-1))


class PointMass:
    def __init__(self, n):
        self.n = n
        self.s = torch.randn(n, 2)

    def step(self, a):
        pos, vel = self.s[:, :1], self.s[:, 1:]
        vel = 0.95 * vel + 0.3 * a + 0.02 * torch.randn_like(vel)
        pos = pos + 0.3 * vel
        reward = -(pos ** 2 + 0.1 * vel ** 2 + 0.05 * a ** 2).clamp(max=4.0)
        prev, self.s = self.s, torch.cat([pos, vel], dim=-1)
        out = torch.rand(self.n) < 0.05
        nxt = self.s.clone()
        self.s[out] = torch.randn(int(out.sum()), 2)
        return prev, reward, nxt


torch.manual_seed(0)
actor, critic = Actor(), Critic()
actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=3e-3)
env, memory, gamma, tau = PointMass(32), [], 0.8, 0.1

for step in range(200):
    with torch.no_grad():
        a = (actor(env.s) + 0.3 * torch.randn(32, 1)).clamp(-1, 1)
        s, r, s2 = env.step(a)
    memory.append((s, a, r, s2))
    memory = memory[-100:]
    picks = [memory[i] for i in torch.randint(0, len(memory), (4,))]
    s, a, r, s2 = (torch.cat(c) for c in zip(*picks))

    with torch.no_grad():
        target = r + gamma * critic_t(s2, actor_t(s2))
    critic_loss = F.mse_loss(critic(s, a), target)
    actor_loss = -critic(s, actor(s)).mean()

    critic_opt.zero_grad()
    actor_opt.zero_grad()
    critic_loss.backward()
    actor_loss.backward()  # CAUSE
    critic_opt.step()  # OTHER
    actor_opt.step()

    with torch.no_grad():
        for net, net_t in ((actor, actor_t), (critic, critic_t)):
            for p, p_t in zip(net.parameters(), net_t.parameters()):
                p_t.lerp_(p, tau)
    if step % 40 == 39:
        print(f"step {step} critic {critic_loss.item():.3f} mean Q {-actor_loss.item():.3f} reward {r.mean().item():.3f}")
