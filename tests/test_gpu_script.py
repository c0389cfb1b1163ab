"""The script that checks and measures on an accelerator, with the CPU in the accelerator's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402


def test_all_parts_fit_into_eight_minutes() -> None:
    assert sum(gpu.PARTS.values()) <= gpu.TOTAL < 8 * 60


def test_a_missing_package_is_taken_from_a_wheel_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a package that is not installed, with a wheel for another Python and one for any."""
    for name in ("absentpackage-1.0-cp27-cp27m-win32.whl", "absentpackage-2.0-py3-none-any.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            wheel.writestr("absentpackage.py", f"name = {name!r}")
    monkeypatch.setattr(gpu, "PACKAGES", ("pytest", "absentpackage", "nowherepackage"))
    monkeypatch.setenv("BACKPROBE_WHEELS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    found = gpu.find_packages()
    assert found["pytest"] == "installed"
    assert found["absentpackage"] == "from absentpackage-2.0-py3-none-any.whl"
    assert found["nowherepackage"].startswith("MISSING: put its wheel into")
    site = Path(os.environ["PYTHONPATH"].split(os.pathsep)[1])
    assert (site / "absentpackage.py").read_text() == "name = 'absentpackage-2.0-py3-none-any.whl'"


def test_a_part_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "hangs.py"
    script.write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.setattr(gpu, "__file__", str(script))
    result = gpu.run_part("bits", tmp_path, 1)
    assert result["holds"] is False and result["ended"] == "stopped after 1 s"


@pytest.mark.slow
def test_the_script_writes_every_part_and_no_step_waits(tmp_path: Path) -> None:
    environment = {**os.environ, "BACKPROBE_GPU": "cpu", "PYTHON": sys.executable, "BACKPROBE_GPU_TIME_FACTOR": "20"}
    command = ["bash", str(ROOT / "bench" / "gpu.sh"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=7200)
    results = {part: json.loads((tmp_path / f"{part}.json").read_text()) for part in gpu.PARTS}
    assert {part for part, result in results.items() if not result["holds"]} == set(), done.stdout
    assert done.returncode == 0, done.stderr
    assert results["synchronization"]["most waits a step beyond the plain step, but for fetches"] == 0
    assert results["synchronization"]["most fetches a step, every step recorded"] <= 2.2
    assert results["tests"]["passed"] and not results["tests"]["failed"]
    assert json.loads((tmp_path / "environment.json").read_text())["runs on"] == "cpu"
    summary = (tmp_path / "summary.txt").read_text()
    assert all(f"{part}: holds" in summary for part in gpu.PARTS)
