"""PPO on a ring where the agent must walk to a marked cell; old log-probabilities and values are cached from the rollout and reused for several epochs. Healthy."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {"framework": "plain", "kind": None, "set": "nineteenth", "written": "2026-11-27"}

CELLS, ENVS, HORIZON = 11, 24, 16
GAMMA, LAM, CLIP = 0.95, 0.9, 0.2


class Ring:
    def __init__(self):
        self.pos = torch.randint(1, CELLS, (ENVS,))

    def obs(self):
        return nn.functional.one_hot(self.pos, CELLS).float()

    def step(self, action):
        self.pos = (self.pos + action - 1) % CELLS
        done = self.pos == 0
        reward = torch.where(done, 1.0, -0.05)
        fresh = torch.randint(1, CELLS, (ENVS,))
        self.pos = torch.where(done, fresh, self.pos)
        return reward, done.float()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh(), nn.Linear(32, 3))
        self.critic = nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, s):
        return Categorical(logits=self.actor(s)), self.critic(s).squeeze(-1)


@torch.no_grad()
def collect(env, policy):
    buf = {k: [] for k in ("s", "a", "logp", "v", "r", "d")}
    for _ in range(HORIZON):
        s = env.obs()
        dist, v = policy(s)
        a = dist.sample()
        r, d = env.step(a)
        for k, val in zip(buf, (s, a, dist.log_prob(a), v, r, d)):
            buf[k].append(val)
    last_v = policy(env.obs())[1]
    data = {k: torch.stack(v) for k, v in buf.items()}
    adv, gae = torch.zeros_like(data["r"]), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        nxt = last_v if t == HORIZON - 1 else data["v"][t + 1]
        delta = data["r"][t] + GAMMA * nxt * (1 - data["d"][t]) - data["v"][t]
        gae = delta + GAMMA * LAM * (1 - data["d"][t]) * gae
        adv[t] = gae
    data["adv"], data["ret"] = adv, adv + data["v"]
    return {k: v.flatten(0, 1) for k, v in data.items()}


def main():
    torch.manual_seed(0)
    env, policy = Ring(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for it in range(30):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - it / 30)
        data = collect(env, policy)
        adv = (data["adv"] - data["adv"].mean()) / (data["adv"].std() + 1e-8)
        for _ in range(4):
            for idx in torch.randperm(len(adv)).chunk(3):
                dist, v = policy(data["s"][idx])
                ratio = (dist.log_prob(data["a"][idx]) - data["logp"][idx]).exp()
                surr = torch.min(ratio * adv[idx], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[idx])
                loss = -surr.mean() + 0.5 * (v - data["ret"][idx]).pow(2).mean() - 0.01 * dist.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        if it % 5 == 4:
            print(f"iter {it + 1:2d}  reward per step {data['r'].mean():.3f}  entropy {dist.entropy().mean():.3f}")


if __name__ == "__main__":
    main()
