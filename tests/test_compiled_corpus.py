"""Compiled scripts as people write them: each with one mistake, or with none (the set ``compiled`` of ``corpus``).

``EXPECT`` is as in ``examples``; ``says``: words of the finding's title and advice.
``BACKPROBE_BACKEND=inductor`` runs the same through Inductor, which takes long and
needs a C++ compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
from corpora import load_set, selected_names
from forked import found_in

FAILING, HEALTHY = load_set("compiled", healthy=False), load_set("compiled", healthy=True)
no_compiler = os.environ.get("BACKPROBE_BACKEND") == "inductor" and not any(
    shutil.which(name) for name in ("c++", "g++", "clang++")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(no_compiler, reason="Inductor needs a C++ compiler, and there is none on this machine"),
]

#: After a healthy script: its weights as bits, and what Dynamo counted.
TAIL = """
import hashlib
from torch._dynamo.utils import counters
bits = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
rng = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
count = {k: sum(counters[k].values()) for k in ("frames", "graph_break", "unimplemented", "aot_autograd", "resumes")}
print("LEFT", bits, rng, count, dict(counters["stats"]), torch.compile.__module__, torch.compile.__qualname__)
"""


def backend() -> str:
    return os.environ.get("BACKPROBE_BACKEND", "aot_eager")


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """Name -> exit code, what was found, and the report."""
    selected = selected_names(request)
    folder = tmp_path_factory.mktemp("compiled")
    scripts = {}
    for name, script in {**FAILING, **HEALTHY}.items():
        if name in selected:
            own = folder / f"{name}.py"
            own.write_text(script.text + (TAIL if name in HEALTHY else ""))
            scripts[name] = (str(own), ["--budget", "none"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKEND", backend())
        return folder, found_in(folder, scripts)


@pytest.mark.parametrize("name", FAILING)
def test_the_first_finding_is_the_mistake(name: str, runs) -> None:
    script = FAILING[name]
    expect = script.expect
    _, findings, report = runs[1](name)
    assert "internal error" not in report, report
    assert findings, report
    first = findings[0]
    role, marker = expect["line"]
    wanted = [(expect["kind"], marker, role), *expect.get("or", ())]
    assert any(
        first["kind"] == kind
        and any(s["role"] == role and s["line"] in script.lines_of(marker) for s in first["sites"])
        for kind, marker, role in wanted
    ), report
    if "module" in expect:
        assert first["module"] == expect["module"], report
    if "op" in expect:
        assert first["evidence"].get("op") == expect["op"], report
    told = f"{first['title']} {first['advice']}"
    assert [word for word in expect.get("says", ()) if word not in told] == [], report


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_script_is_as_without_us(name: str, runs) -> None:
    """Nothing is found; the same bits in weights and random numbers, and Dynamo counts the same."""
    folder, of = runs
    _, findings, report = of(name)
    assert "internal error" not in report, report
    assert [f["title"] for f in findings if f["severity"] != "info"] == []
    environment = {**os.environ, "BACKEND": backend(), "OMP_NUM_THREADS": "1"}
    alone = subprocess.run(
        [sys.executable, folder / f"{name}.py"], capture_output=True, text=True, env=environment, check=True
    )
    assert _left((folder / name / "out").read_text()) == _left(alone.stdout)


def _left(text: str) -> str:
    found = re.search(r"^LEFT .*$", text, re.MULTILINE)
    assert found, text
    return found[0]
