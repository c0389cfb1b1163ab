"""PPO on a contextual routing task; the ratio is a constant 1 and its gradient exactly zero, so only the entropy bonus trains the policy.
Report: https://github.com/higgsfield-ai/higgsfield/issues/20 (old_log_probs turn out to be computed with the very same policy as new_log_probs); https://github.com/abhisheksuran/Reinforcement_Learning/issues/4 (ratio of old and new probabilities is always 1)

Printed: reward stays at chance (about 0.2) and entropy stays at ln 5 = 1.61; a copy that keeps the log-probs from
the rollout reaches about 0.9.
"""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "framework": "plain", "kind": "gradient-cancels", "line": ("cause", "CAUSE"),
    "what": "the old log-probabilities are recomputed with the current policy inside the update (and carry gradient), so logp - old_logp cancels and the surrogate has zero gradient; store them at rollout time under no_grad",
    "set": "twentysecond", "written": "2026-11-28",
}


class Policy(nn.Module):
    def __init__(self, n_obs=8, n_act=5, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, n_act)
        self.v = nn.Linear(hidden, 1)

    def dist(self, obs):
        return Categorical(logits=self.pi(self.body(obs)))

    def value(self, obs):
        return self.v(self.body(obs).detach()).squeeze(-1)


class RoutingTask:
    def __init__(self, gen):
        self.gen = gen
        self.w = torch.randn(8, 5, generator=gen)

    def reset(self, n):
        return torch.randn(n, 8, generator=self.gen)

    def reward(self, obs, act):
        return (act == (obs @ self.w).argmax(1)).float()


def rollout(policy, task, n=256):
    obs = task.reset(n)
    with torch.no_grad():
        act = policy.dist(obs).sample()
    return obs, act, task.reward(obs, act)


def update(policy, optimizer, obs, act, rew, epochs=4, clip=0.2):
    with torch.no_grad():
        adv = rew - policy.value(obs)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(epochs):
        for idx in torch.randperm(len(obs)).split(128):
            dist = policy.dist(obs[idx])
            logp = dist.log_prob(act[idx])
            old_logp = policy.dist(obs[idx]).log_prob(act[idx])  # CAUSE
            ratio = torch.exp(logp - old_logp)  # RATIO
            clipped = ratio.clamp(1 - clip, 1 + clip)
            surrogate = torch.min(ratio * adv[idx], clipped * adv[idx]).mean()
            value_loss = nn.functional.mse_loss(policy.value(obs[idx]), rew[idx])
            loss = -surrogate + 0.5 * value_loss - 0.005 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
    return dist.entropy().mean().item()


torch.manual_seed(2)
task = RoutingTask(torch.Generator().manual_seed(4))
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
for it in range(45):
    obs, act, rew = rollout(policy, task)
    entropy = update(policy, optimizer, obs, act, rew)
    if it % 9 == 8:
        print(f"iteration {it + 1}: reward {rew.mean():.3f} entropy {entropy:.3f}")
