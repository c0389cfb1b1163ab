"""A soft prompt and a small head are learned in front of a deliberately frozen GPT-2; warm-up, then decay to zero. Healthy.

Looks odd: nearly all parameters never move, and the last update has a learning rate close to zero. Both are wanted. The body is in
eval mode all the time so that its dropout stays off.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model, get_linear_schedule_with_warmup

EXPECT = {"framework": "transformers", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}


class PromptTuned(nn.Module):
    def __init__(self, n_prompt=4, n_class=3):
        super().__init__()
        cfg = GPT2Config(vocab_size=20, n_positions=32, n_embd=48, n_layer=2, n_head=4, use_cache=False, bos_token_id=0, eos_token_id=0,
                         initializer_range=0.15)
        self.body = GPT2Model(cfg)
        self.body.requires_grad_(False)
        self.prompt = nn.Parameter(0.1 * torch.randn(n_prompt, 48))
        self.head = nn.Linear(48, n_class)

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, ids):
        words = self.body.wte(ids)
        prompt = self.prompt.unsqueeze(0).expand(len(ids), -1, -1)
        hidden = self.body(inputs_embeds=torch.cat([words, prompt], dim=1)).last_hidden_state
        return self.head(hidden[:, -self.prompt.shape[0]:].mean(1))


def make_batch(n, gen):
    ids = torch.randint(0, 20, (n, 6), generator=gen)
    return ids, (ids[:, -1] % 3)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(2)
    model = PromptTuned().train()
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=2e-2, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 20, 200)
    valid = make_batch(300, gen)
    for step in range(200):
        ids, y = make_batch(48, gen)
        loss = F.cross_entropy(model(ids), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 5.0)
        optimizer.step()
        schedule.step()
        if step % 40 == 39:
            model.eval()
            with torch.no_grad():
                acc = (model(valid[0]).argmax(-1) == valid[1]).float().mean().item()
            model.train()
            print(f"step {step} loss {loss.item():.3f} lr {schedule.get_last_lr()[0]:.4f} valid {acc:.3f}")


if __name__ == "__main__":
    main()
