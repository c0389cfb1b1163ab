"""``backprobe completion``: completions of a real shell, and the message without shtab."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backprobe.commands import main
from backprobe.findings import own_rules

BASH = shutil.which("bash")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(folder: Path, text: str, *words: str) -> set[str]:
    """Return the completions that bash offers for the last of `words` after ``backprobe``."""
    (folder / "completion").write_text(text)
    line = " ".join(f"'{word}'" for word in ("backprobe", *words))
    commands = f"""source ./completion
COMP_WORDS=({line}); COMP_CWORD={len(words)}; COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
_shtab_backprobe
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert BASH is not None
    done = subprocess.run([BASH, "--norc", "-c", commands], capture_output=True, text=True, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    return {word.strip() for word in done.stdout.split()}


@pytest.mark.skipif(BASH is None, reason="no bash")
def test_bash_completes_commands_options_values_kinds_and_files(tmp_path, capsys) -> None:
    text = script("bash", capsys)
    assert completed(tmp_path, text, "com") == {"compare", "completion"}
    assert {"--findings", "--fail-on", "--format"} <= completed(tmp_path, text, "run", "--f")
    assert completed(tmp_path, text, "run", "--level", "n") == {"nodes"}
    assert completed(tmp_path, text, "run", "--log-to", "t") == {"tensorboard", "trackio"}
    kinds = {kind.name for kind in own_rules().kinds}
    assert completed(tmp_path, text, "explain", "") >= kinds | {"skill"}
    assert completed(tmp_path, text, "completion", "") >= {"bash", "fish", "zsh"}
    (tmp_path / "train.py").write_text("")
    assert completed(tmp_path, text, "run", "tr") == {"train.py"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_all_commands(shell, capsys) -> None:
    text = script(shell, capsys)
    assert all(name in text for name in ("doctor", "explain", "--findings", "none-grad"))


def test_without_shtab_it_says_what_to_install(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err.strip() == (
        "backprobe: completions are made by the package shtab: pip install 'backprobe[completion]'"
    )


def test_the_version_is_that_of_the_package(capsys) -> None:
    import backprobe

    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert not stop.value.code
    assert capsys.readouterr().out == f"backprobe {backprobe.__version__}\n"
