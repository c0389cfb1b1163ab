"""Masked autoencoding of digits with a small ViT: after forty steps a second decoder predicts edges from the same tokens; each decoder adds its positions in place, and the first one still needs what the second writes on.

Report: https://github.com/thuanz123/enhancing-transformers/issues/11 (token += de_pos_embedding in the decoder writes into its input, which two decoders share)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from transformers import ViTConfig, ViTModel

EXPECT = {
    "class": "late-inplace", "framework": "transformers", "kind": "inplace", "mutating_marker": "MUTATES", "step": 40,
    "set": "ninth", "written": "2026-11-23",
}
DIM, PATCHES = 16, 16


class PatchDecoder(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + PATCHES, DIM))
        self.mix, self.head = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, outputs)

    def forward(self, tokens):
        tokens += self.position  # MUTATES
        return self.head(F.gelu(self.mix(tokens)))[:, 1:]


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        config = ViTConfig(image_size=8, patch_size=2, num_channels=1, hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        self.encoder = ViTModel(config, add_pooling_layer=False)
        self.pixels, self.edges = PatchDecoder(4), PatchDecoder(4)

    def forward(self, images, with_edges):
        tokens = self.encoder(pixel_values=images).last_hidden_state
        out = {"pixels": self.pixels(tokens)}
        if with_edges:
            out["edges"] = self.edges(tokens)
        return out


def patches(images):
    return F.unfold(images, 2, stride=2).transpose(1, 2)


def edges_of(images):
    dx = F.pad(images[..., 1:] - images[..., :-1], (0, 1))
    dy = F.pad(images[..., 1:, :] - images[..., :-1, :], (0, 0, 0, 1))
    return (dx.square() + dy.square()).sqrt()


torch.manual_seed(0)
images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
model = Autoencoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(80):
    batch = images[torch.randint(0, len(images), (32,))]
    hidden = F.interpolate((torch.rand(len(batch), 1, 4, 4) < 0.4).float(), scale_factor=2)
    out = model(batch * (1 - hidden), with_edges=step >= 40)
    loss = F.mse_loss(out["pixels"], patches(batch))
    if "edges" in out:
        loss = loss + 0.5 * F.l1_loss(out["edges"], patches(edges_of(batch)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
