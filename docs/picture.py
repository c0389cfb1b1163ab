"""Make docs/pictures/run.svg: what `backprobe run` prints of the demo's broken GPT.

python docs/picture.py
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 96


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "backprobe" / "examples" / "gpt_broken.py", Path(folder, "train.py"))
        command = [sys.executable, "-m", "backprobe", "run", "--no-keep", "train.py"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print("[bold]$ backprobe run train.py[/bold]")
    console.print(done.stdout.rstrip(), markup=False, highlight=False)
    console.print(Text.from_ansi(done.stderr.rstrip()))
    console.save_svg(str(ROOT / "docs" / "pictures" / "run.svg"), title="backprobe")


if __name__ == "__main__":
    main()
