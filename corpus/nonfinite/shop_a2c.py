"""Actor-critic with invalid action masking: policy_entropy and then everything else becomes nan.

Source: https://github.com/hill-a/stable-baselines/pull/453
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "a", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class ShopEnv:
    """Sell one of five goods; a good that is out of stock cannot be sold."""

    def __init__(self, n_envs=8, n_goods=5, seed=3):
        self.g = torch.Generator().manual_seed(seed)
        self.n, self.k = n_envs, n_goods
        self.price = torch.rand(n_goods, generator=self.g) + 0.5
        self.reset()

    def reset(self):
        self.stock = torch.randint(6, 9, (self.n, self.k), generator=self.g)
        self.demand = torch.rand(self.n, self.k, generator=self.g)
        return self.observe()

    def observe(self):
        return torch.cat([self.stock / 8.0, self.demand], 1), self.stock > 0

    def step(self, action):
        rows = torch.arange(self.n)
        reward = self.price[action] * self.demand[rows, action]
        self.stock[rows, action] -= 1
        empty = self.stock.sum(1) == 0
        self.stock[empty] = 8
        self.demand = torch.rand(self.n, self.k, generator=self.g)
        return self.observe(), reward


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, n_actions), nn.Linear(32, 1)

    def forward(self, obs, mask):
        h = self.body(obs)
        logits = self.pi(h).masked_fill(~mask, -1e9)
        return F.softmax(logits, dim=-1), self.v(h).squeeze(-1)


def categorical_entropy(probs):
    return -(probs * probs.log()).sum(-1)  # CULPRIT


def rollouts(env, model, horizon):
    obs, mask = env.reset()
    while True:
        batch = []
        for _ in range(horizon):
            with torch.no_grad():
                probs, _ = model(obs, mask)
            if probs.isnan().any():
                return
            action = torch.multinomial(probs, 1, generator=env.g).squeeze(1)
            (next_obs, next_mask), reward = env.step(action)
            batch.append((obs, mask, action, reward))
            obs, mask = next_obs, next_mask
        yield [torch.stack(x) for x in zip(*batch)]


def main():
    torch.manual_seed(0)
    env = ShopEnv()
    model = ActorCritic(10, 5)
    opt = torch.optim.RMSprop(model.parameters(), lr=7e-4)
    for update, (obs, mask, action, reward) in enumerate(rollouts(env, model, 5)):
        probs, value = model(obs, mask)
        returns = reward.flip(0).cumsum(0).flip(0)
        adv = returns - value
        logp = probs.gather(-1, action.unsqueeze(-1)).clamp(min=1e-8).log().squeeze(-1)
        entropy = categorical_entropy(probs).mean()
        loss = -(adv.detach() * logp).mean() + 0.5 * adv.pow(2).mean() - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        if update % 5 == 0 or loss.isnan():
            print(f"update {update} loss {loss.item():.3f} entropy {entropy.item():.3f}")
        if update == 120:
            break


if __name__ == "__main__":
    main()
