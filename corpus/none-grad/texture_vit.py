"""Fine-tuning a little vision transformer on synthetic textures with the Trainer; patch embeddings stay as they are, memory is saved.

After https://github.com/huggingface/transformers/issues/21381 (fine-tuning of a transformer).
"""
import tempfile
import warnings

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification
from transformers.utils import logging

EXPECT = {
    "kind": "none-grad",
    "line": ("enabled", "REENTRANT"),
    "framework": "transformers",
    "plain": "the loss falls a little and stays high, accuracy far below what the model can do",
    "set": "twentythird",
    "written": "2026-11-28",
}

logging.set_verbosity_error()
warnings.filterwarnings("ignore")
SIDE = 16


class Textures(Dataset):
    """Six kinds: stripes in three directions, checks, rings, blobs; random period, phase and noise."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
        self.images = np.zeros((n, 1, SIDE, SIDE), dtype=np.float32)
        self.labels = rng.integers(0, 6, size=n)
        for i, kind in enumerate(self.labels):
            w, p, q = rng.uniform(1.0, 1.7), rng.uniform(0, 6.28), rng.uniform(0, 6.28)
            if kind == 0:
                z = np.sin(w * xx + p)
            elif kind == 1:
                z = np.sin(w * yy + p)
            elif kind == 2:
                z = np.sin(w * (xx + yy) / 1.41 + p)
            elif kind == 3:
                z = 1.4 * np.sin(w * xx + p) * np.sin(w * yy + q)
            elif kind == 4:
                cx, cy = rng.uniform(4, 12, size=2)
                z = np.sin(w * np.hypot(xx - cx, yy - cy) + p)
            else:
                z = rng.normal(size=(SIDE, SIDE))
            self.images[i, 0] = z + 0.4 * rng.normal(size=(SIDE, SIDE))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": torch.from_numpy(self.images[i]), "labels": int(self.labels[i])}


def build():
    config = ViTConfig(image_size=SIDE, patch_size=4, num_channels=1, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
                       intermediate_size=96, num_labels=6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                       initializer_range=0.1)
    model = ViTForImageClassification(config)
    for p in model.vit.embeddings.parameters():
        p.requires_grad_(False)
    return model


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step:3d}  loss {float(logs['loss']):.4f}")
        elif "eval_accuracy" in logs:
            print(f"step {state.global_step:3d}  held-out loss {float(logs['eval_loss']):.4f}  accuracy {float(logs['eval_accuracy']):.3f}")


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=8, per_device_train_batch_size=32, per_device_eval_batch_size=200,  # REENTRANT
                                 learning_rate=1.5e-3, warmup_steps=20, lr_scheduler_type="cosine", logging_steps=40, seed=4,
                                 eval_strategy="epoch", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
                                 gradient_checkpointing=True,
                                 gradient_checkpointing_kwargs={"use_reentrant": True})
        trainer = Trainer(model=build(), args=args, train_dataset=Textures(1600, seed=1), eval_dataset=Textures(400, seed=2),
                          compute_metrics=accuracy, callbacks=[Show()])
        trainer.remove_callback(next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback"))
        trainer.train()


if __name__ == "__main__":
    main()
