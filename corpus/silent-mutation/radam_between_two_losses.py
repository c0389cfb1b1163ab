"""Critic and policy on one trunk with a RAdam from a repository that writes through p.data: the critic steps before the policy's backward, and nothing complains.

Report: https://github.com/pytorch/pytorch/pull/33640 (use of .data in optimizers is removed because it hides this; the error that it hides is pytorch/pytorch issue 37573)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 60,
    "set": "seventh", "written": "2026-11-22",
}


class RAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p.data), exp_avg_sq=torch.zeros_like(p.data))
                grad, state["step"] = p.grad.data, state["step"] + 1
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
                beta2_t, limit = beta2 ** state["step"], 2 / (1 - beta2) - 1
                sma = limit - 2 * state["step"] * beta2_t / (1 - beta2_t)
                if sma >= 5:
                    size = math.sqrt((1 - beta2_t) * (sma - 4) / (limit - 4) * (sma - 2) / sma * limit / (limit - 2))
                    denominator = state["exp_avg_sq"].sqrt().add_(group["eps"])
                    p.data.addcdiv_(state["exp_avg"], denominator, value=-group["lr"] * size / (1 - beta1 ** state["step"]))  # MUTATES
                else:
                    p.data.add_(state["exp_avg"], alpha=-group["lr"] / (1 - beta1 ** state["step"]))  # MUTATES


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.value, self.policy = nn.Linear(32, 1), nn.Linear(32, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.value(h).squeeze(1), self.policy(h)


torch.manual_seed(0)
net = ActorCritic()
critic_opt = RAdam([*net.trunk.parameters(), *net.value.parameters()], lr=3e-3)
actor_opt = RAdam([*net.trunk.parameters(), *net.policy.parameters()], lr=1e-3)
for step in range(150):
    state = torch.randn(16, 4)
    value, logits = net(state)
    action = torch.distributions.Categorical(logits=logits.detach()).sample()
    reward = (action == state[:, :3].argmax(1)).float()
    value_loss = (value - reward).square().mean()
    critic_opt.zero_grad()
    value_loss.backward(retain_graph=True)
    critic_opt.step()
    if step >= 60:  # the critic has warmed up
        advantage = (reward - value).detach()
        log_prob = logits.log_softmax(1).gather(1, action[:, None]).squeeze(1)
        actor_opt.zero_grad()
        (-(advantage * log_prob).mean()).backward()
        actor_opt.step()
    if step % 30 == 0:
        print(step, value_loss.item(), reward.mean().item())
