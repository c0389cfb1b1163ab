"""Vision and language in two stages: in the first only the projector learns, in the second the vision tower joins with a rate of its own; the tower still encodes under no_grad, as it did when it was frozen for good.

Report: https://github.com/TinyLLaVA/TinyLLaVA_Factory/issues/17 (the forward of the vision encoder is decorated with no_grad although there is an option to tune it)
"""
import torch
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

EXPECT = {
    "class": "grad-mode", "framework": "transformers", "kind": "grad-mode-disabled", "cut_marker": "CUT", "step": 50,
    "set": "ninth", "written": "2026-11-23",
}
COLOURS, VOCAB = 4, 12


class VisionTower(nn.Module):
    def __init__(self, config, select_layer=-1):
        super().__init__()
        self.vision = CLIPVisionModel(config)
        self.select_layer = select_layer

    def forward(self, images):
        with torch.no_grad():  # CUT
            out = self.vision(pixel_values=images, output_hidden_states=True)
        return out.hidden_states[self.select_layer][:, 1:]


class TinyLLaVA(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.tower = VisionTower(CLIPVisionConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, image_size=8, patch_size=4))
        self.projector = nn.Sequential(nn.Linear(16, dim), nn.GELU(), nn.Linear(dim, dim))
        self.language = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=dim, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32))

    def forward(self, images, ids, labels):
        visual = self.projector(self.tower(images))
        words = self.language.get_input_embeddings()(ids)
        ignored = torch.full(visual.shape[:2], -100)
        return self.language(inputs_embeds=torch.cat([visual, words], 1), labels=torch.cat([ignored, labels], 1)).loss


def captioned(n):
    """A picture of one colour on the left and one on the right, the caption names both."""
    left, right = torch.randint(0, COLOURS, (2, n))
    palette = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    images = torch.zeros(n, 3, 8, 8)
    images[..., :4], images[..., 4:] = palette[left][:, :, None, None], palette[right][:, :, None, None]
    ids = torch.stack([torch.full((n,), 1), left + 4, right + 8], 1)
    labels = ids.clone()
    labels[:, 0] = -100
    return images + 0.05 * torch.randn_like(images), ids, labels


def stage(model, number):
    model.requires_grad_(True)
    if number == 1:
        model.tower.requires_grad_(False)
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    tower = []
    for name, p in model.tower.vision.named_parameters():
        if "post_layernorm" in name:  # serves the pooled output, which is not used
            p.requires_grad_(False)
        else:
            tower.append(p)
    rest = [*model.projector.parameters(), *model.language.parameters()]
    return torch.optim.AdamW([{"params": tower, "lr": 2e-4}, {"params": rest, "lr": 1e-3}], weight_decay=0.0)


torch.manual_seed(0)
model = TinyLLaVA()
optimizer = stage(model, 1)
for step in range(110):
    if step == 50:
        optimizer = stage(model, 2)
    loss = model(*captioned(16))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        without = sum(p.grad is None for p in model.tower.parameters() if p.requires_grad)
        print(step, loss.item(), "trainable in the tower without gradient:", without)
