"""Private data that runs and pages leave out: secrets, home folders, unneeded source."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import backprobe
from backprobe import Trace
from backprobe.basics.privacy import (
    MASK,
    at_home,
    is_secret,
    masked,
    masked_arguments,
    masked_source,
    masked_variables,
    without_home,
)
from backprobe.commands import main
from backprobe.records import Facts, Finding, FindingSite, Site
from backprobe.records.places import NOT_KEPT, sites_in
from backprobe.report import columns
from backprobe.source.excerpts import sources
from backprobe.source.frames import Frames
from backprobe.store import FILE

SECRET = "hunter2-correct-horse"


SECRETS = (
    "--token --hf-token --hf_token HF_TOKEN --api-key --apiKey api_key model.token +db.password --wandb-key --pwd "
    "--passwd AWS_SECRET_ACCESS_KEY --auth --auth-token --credential --use-auth-token --secret --key OPENAI_API_KEY"
)
PLAIN = (
    "--tokenizer --secretary --max-tokens --num_tokens --pad-token --pad_token_id --eos-token --mask_token --sort-key "
    "--metrics --lr --batch-size --author --authors --monkey --keyboard --metric-key --state_dict_key --passes --q_key"
)


def test_names_of_secrets() -> None:
    assert [name for name in SECRETS.split() if not is_secret(name)] == []
    assert [name for name in PLAIN.split() if is_secret(name)] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--token=abc", "--lr=0.1"], ["--token=***", "--lr=0.1"]),
        (["--token", "abc", "--lr", "0.1"], ["--token", "***", "--lr", "0.1"]),
        (["-token", "abc"], ["-token", "***"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        (["--use-auth-token", "True"], ["--use-auth-token", "True"]),
        (["api.key=abc", "+db.password=a b"], ["api.key=***", "+db.password=***"]),
        (["--header", "Authorization: Bearer abcdefgh12"], ["--header", "Authorization: *** ***"]),
        (['--json={"api_key": "abc", "lr": 1}'], ['--json={"api_key": "***", "lr": 1}']),
        (["--url", "https://me:abc@host/x?token=abc&n=1"], ["--url", "https://me:***@host/x?token=***&n=1"]),
        (["--url=s3://k:abc@h/p"], ["--url=s3://k:***@h/p"]),
        (["hf_" + "a1" * 12], ["***"]),
        (["--x=sk-" + "a1" * 12], ["--x=***"]),
        (
            ["data/", "--name", "run-1", "x=y", "http://h/p?page=2"],
            ["data/", "--name", "run-1", "x=y", "http://h/p?page=2"],
        ),
    ],
)
def test_arguments(given: list[str], said: list[str]) -> None:
    before = list(given)
    assert masked_arguments(given) == said
    assert given == before


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "Ab1" * 10,
        "sk-" + "Ab1" * 10,
        "sk-proj-" + "Ab1_" * 10,
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 30,
        "AKIA" + "A1" * 8,
        "xoxb-1234567890-abc",
        "glpat-" + "a" * 20,
        "AIza" + "a" * 35,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3",
    ],
)
def test_tokens_by_their_form(token: str) -> None:
    assert masked(f'error: "{token}" is refused') == f'error: "{MASK}" is refused'
    assert masked_source(f"login({token!r})") == f"login('{MASK}')"


def test_code_is_no_secret() -> None:
    for line in (
        'key = "loss"',
        "token = tokenizer(text)",
        'tokenizer.pad_token = "<|endoftext|>"',
        "mask-sk-ask = task_hf_x",
        'key = "a sentence of several words"',
        "weights = high + thigh",
        "password = getpass()",
    ):
        assert masked_source(line) == line
    assert masked_source(f'api_key = "{SECRET}"') == f'api_key = "{MASK}"'
    assert masked_source(f'os.environ["HF_TOKEN"] = "{SECRET}"') == f'os.environ["HF_TOKEN"] = "{MASK}"'


def test_variables() -> None:
    given = {"NCCL_DEBUG": "INFO", "TORCH_HUB_TOKEN": "abc", "TORCH_URL": "https://me:abc@h/"}
    assert masked_variables(given) == {"NCCL_DEBUG": "INFO", "TORCH_HUB_TOKEN": "***", "TORCH_URL": "https://me:***@h/"}


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    for given, said in (
        ("/home/ann/x.py", "~/x.py"),
        ("/home/ann", "~"),
        ("/home/anna/x.py", "/home/anna/x.py"),
        ("/data/home/ann/x.py", "/data/home/ann/x.py"),
        ('{"file":"/home/ann/x.py","n":1}', '{"file":"~/x.py","n":1}'),
        ("No such file: '/home/ann/x'", "No such file: '~/x'"),
    ):
        assert without_home(given) == said
    assert at_home("~/x.py") == "/home/ann/x.py" and at_home("~ann/x.py") == "~ann/x.py" and at_home("/x") == "/x"
    monkeypatch.setenv("HOME", "/")
    assert without_home("/x/y") == "/x/y"


def test_columns_of_a_page_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprobe.basics.privacy.masked", lambda text: "masked")
    made = columns.column("B", range(200))
    assert json.loads(columns.text({"a": made, "b": ["x"]})) == {"a": made, "b": ["masked"]}


# What a run keeps of source

CODE = """\
import torch
PASSPHRASE = "not to be kept at all"
FAR = 1
X = 2
Y = 3
Z = 4


def used(x):
    # a comment in it
    y = x.exp()
    return y.sum()


def other(x):
    return x + 41


class Net:
    def also(self, x):
        def inner(z):
            return z * 2
        return inner(x)


A = 1
B = 2
C = 3
used(A)
D = 4
"""


def spot(names: dict[str, object], line: int) -> tuple[object, int]:
    """A place on a line of ``CODE``."""
    stack = [names["code"]]
    while stack:
        code = stack.pop()
        stack += [one for one in code.co_consts if hasattr(one, "co_lines")]  # type: ignore[attr-defined]
        for begin, _, at in code.co_lines():  # type: ignore[attr-defined]
            if at == line and code.co_name != "Net":  # type: ignore[attr-defined]
                found = code, begin
    return found


@pytest.fixture
def frames(tmp_path: Path) -> Frames:
    (tmp_path / "train.py").write_text(CODE)
    code = compile(CODE, str(tmp_path / "train.py"), "exec")
    made = Frames((str(tmp_path),))
    lines = CODE.splitlines()
    for text in ("    y = x.exp()", "            return z * 2", "used(A)"):
        made.site(spot({"code": code}, lines.index(text) + 1))  # type: ignore[arg-type]
    return made


def test_the_functions_of_recorded_lines_are_kept(frames: Frames) -> None:
    (kept,) = sources(frames).values()
    lines = dict(zip(CODE.splitlines(), kept.splitlines(), strict=False))
    for text, there in lines.items():
        assert there in (text, NOT_KEPT)
    gone = {text for text, there in lines.items() if there == NOT_KEPT and text}
    assert gone >= {"import torch", 'PASSPHRASE = "not to be kept at all"', "def other(x):", "    return x + 41"}
    assert not gone & {
        "def used(x):",
        "    # a comment in it",
        "    return y.sum()",
        "        def inner(z):",
        "used(A)",
    }
    assert [*sources(frames, mode="full").values()] == [CODE]
    assert sources(frames, mode="none") == {} and sources(frames, most=10) == {}


def test_lines_that_records_name_are_kept_and_files_that_changed_are_not(frames: Frames, tmp_path: Path) -> None:
    file = str(tmp_path / "train.py")
    site = Site(file, 16, "other", "return x + 41")
    finding = Finding("x", "error", "t", "certain", sites=(FindingSite("cut", site),))
    assert [*sites_in({"a": [finding]})] == [site]
    assert "return x + 41" in sources(frames, finding)[file]
    wrong = Site(file, 16, "other", "return x + 42")
    assert sources(frames, wrong) == {}


# The whole of it

SCRIPT = """\
import hashlib, os, sys, torch
UNUSED = "this line stands far from all others that are recorded"
assert hashlib.sha256(" ".join(sys.argv[1:]).encode()).hexdigest() == "{digest}"


def distant():
    return "nobody comes here"


def train():
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    api_key = "{secret}"
    for _ in range(3):
        out = model(torch.ones(2, 3))
        (out - out.detach()).abs().sqrt().sum().backward()
        optimizer.step()


train()
raise ValueError("no access to https://me:{secret}@host/ from " + os.path.expanduser("~/data"))
"""


def everything(folder: Path) -> str:
    """All that is in the files below `folder`, unpacked."""
    found = []
    for path in folder.rglob("*"):
        if path.name == FILE:
            db = sqlite3.connect(path)
            for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
                for row in db.execute(f"select * from {table}"):
                    found += [_unpacked(value) for value in row]
            db.close()
        elif path.is_file():
            data = path.read_bytes()
            found.append((gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace"))
    # In JSON.
    return "\n".join(found).replace("\\u2026", NOT_KEPT)


def _unpacked(value: object) -> str:
    if isinstance(value, bytes):
        try:
            return zlib.decompress(value).decode()
        except zlib.error:
            return ""
    return str(value)


@pytest.mark.parametrize("option", [(), ("--source", "full"), ("--no-source",)])
def test_a_run_of_a_script_with_secrets(option: tuple[str, ...], tmp_path: Path) -> None:
    home = tmp_path / "home" / "ann"
    work = home / "work"
    work.mkdir(parents=True)
    args = [f"--token={SECRET}", "--password", SECRET, "--url", f"https://me:{SECRET}@host/"]
    digest = hashlib.sha256(" ".join(args).encode()).hexdigest()
    (work / "train.py").write_text(SCRIPT.replace("{secret}", SECRET).replace("{digest}", digest))
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(Path(backprobe.__file__).parents[1])}
    args = [f"--token={SECRET}", "--password", SECRET, "--url", f"https://me:{SECRET}@host/"]
    command = [
        sys.executable,
        "-m",
        "backprobe",
        "run",
        *option,
        "--record-ops",
        "--out",
        "run",
        "train.py",
        *args,
    ]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=600)
    assert f"ValueError: no access to https://me:{SECRET}@host/" in done.stderr  # what is the script's is its own
    assert stat.S_IMODE((work / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((work / "run" / FILE).stat().st_mode) == 0o600
    report = [sys.executable, "-m", "backprobe", "report", "run", "-o", str(tmp_path / "page.html")]
    said = subprocess.run(report, cwd=work, env=env, capture_output=True, text=True, timeout=600)
    assert said.returncode == 0, said.stderr
    stored = everything(work / "run")
    assert SECRET not in stored and str(home) not in stored
    assert "~/work/train.py" in stored and f"--token={MASK}" in stored and "from ~/data" in stored
    line = "(out - out.detach()).abs().sqrt().sum().backward()"
    assert (line in stored) == ("--no-source" not in option)
    assert ("nobody comes here" in stored) == ("full" in option)
    shown = subprocess.run(
        [sys.executable, "-m", "backprobe", "show", "--json", "run"], cwd=work, env=env, capture_output=True, text=True
    )
    sites = [site for one in json.loads(shown.stdout)["findings"] for site in one["sites"]]
    assert sites and {site["file"] for site in sites} == {str(work / "train.py")}
    page = (tmp_path / "page.html").read_text()
    data = page.partition('<script id="data" type="text/plain">')[2].partition("<")[0]
    document = gzip.decompress(base64.b64decode(data)).decode()
    assert SECRET not in document and str(home) not in document
    files = {one["file"] for one in json.loads(document)["sources"] if not one["library"]}
    assert files == (set() if "--no-source" in option else {"train.py"})
    # The command says what the page contains.
    assert "This file contains" in said.stdout and "arguments" in said.stdout
    assert ("source lines" in said.stdout) == ("--no-source" not in option)


def test_the_command_says_what_a_page_contains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Trace(facts=Facts(), info={"script": "train.py", "started": 0.0}).save(tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "arguments" not in capsys.readouterr().out


def test_a_line_is_the_same_with_its_text_and_without() -> None:
    """Ranks are compared by their lines: one of this process, and one of a run that keeps no source."""
    assert Site("/x/train.py", 3, "main", "x = 1") == Site("/x/train.py", 3, "main")
    assert Site("/x/train.py", 3, "main") != Site("/x/train.py", 4, "main")
