"""Comparison with torch's own errors and warnings, plain and in anomaly mode: do they name the failing line?

python bench/peers.py eighth ninth [--out FILE.json]

Each script of these sets of the corpus is run as it is, and once more with ``torch.autograd.set_detect_anomaly(True)``
in it and in the processes that it starts. What it writes on standard error is read: tracebacks (the forward's too,
which anomaly mode adds), and warnings. A line is named where the file and number of the script's main line (its marker:
where the value goes bad, where the path is cut, who writes) stand there. A failure counts as told if there is any error
or warning at all.

What backprobe said of the same scripts when they were new is in corpus/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from corpora import Script, load_set  # noqa: E402

SECONDS = 300
ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
#: A place in a traceback, and one in a warning.
PLACES = (re.compile(r'File "([^"]+)", line (\d+)'), re.compile(r"^(\S+\.py):(\d+): \w*Warning", re.MULTILINE))
#: What anomaly mode says of itself, in every run.
USUAL = re.compile(r"^.*Anomaly Detection has been enabled.*\n(?:  .*\n)?", re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """Of one script in one mode.

    :ivar told: an error or a warning; ``named``: the main line is among its places.
    """

    script: str
    healthy: bool
    anomaly: bool
    told: bool
    named: bool


def run(script: Script, anomaly: bool) -> Said:
    path = script.path
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": folder}
        if anomaly:
            (Path(folder) / "sitecustomize.py").write_text(ANOMALY)
            environment["PYTHONPATH"] = folder
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            said, failed = done.stderr, done.returncode != 0
        except subprocess.TimeoutExpired as error:
            said, failed = (error.stderr or b"").decode(errors="replace"), False
    said = USUAL.sub("", said)
    places = {(Path(file).name, int(line)) for pattern in PLACES for file, line in pattern.findall(said)}
    lines = set() if script.is_healthy else script.main_site().lines or set()
    told = failed or "Warning" in said or "Traceback" in said
    named = any((path.name, line) in places for line in lines)
    return Said(path.stem, script.is_healthy, anomaly, told, named)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    every: list[Said] = []
    for name in options.sets:
        mine = []
        for script in load_set(name).values():
            for anomaly in (False, True):
                mine.append(run(script, anomaly))
                print(f"{'anomaly' if anomaly else 'plain  '} {mine[-1]}", file=sys.stderr, flush=True)
        every += mine
        print(name)
        for anomaly in (False, True):
            bad = [one for one in mine if one.anomaly is anomaly and not one.healthy]
            healthy = [one for one in mine if one.anomaly is anomaly and one.healthy]
            counts = (len(bad), sum(s.told for s in bad), sum(s.named for s in bad))
            of = "of {} that fail: told {}, line named {}".format(*counts)
            told = f"of {len(healthy)} healthy: told {sum(s.told for s in healthy)}"
            print(f"  {'anomaly mode' if anomaly else 'plain':12s} {of}; {told}", flush=True)
    if options.out:
        options.out.write_text(json.dumps([asdict(one) for one in every], indent=1))


if __name__ == "__main__":
    main()
