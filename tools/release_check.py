"""Release check: build the release, inspect its files, and use it in a new environment. make release-check

python tools/release_check.py [--torch 2.13.0] [--python python3.12] [--out build/release]

Builds the sdist, and the wheel from it; checks their metadata (twine) and what is in them; installs the wheel with
torch and the package's own dependencies into an environment of its own, and runs the commands that a newcomer does,
away from the checkout. The first thing that is not as it should be ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Limit on the size of the wheel, most of which is the report's page.
MAX_WHEEL_BYTES = 4 << 20
NEEDED = (
    "report/page.html",
    "findings/findings.schema.json",
    "findings/none_grad/none-grad.md",
    "SKILL.md",
    "examples/gpt.py",
    "py.typed",
)
#: What users may do with a release, and the notices of the libraries in its page.
LICENCES = ("LICENSE", "THIRD_PARTY_NOTICES")
#: Folders of the repository that are in no release.
OUTSIDE = {"tests", "docs", "bench", "corpus", "page", "examples", "tools", ".ci", ".github"}


class ReleaseError(Exception):
    """Raised if the release fails a check."""


def ran(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(
            f"{' '.join(map(str, command))} exits with {done.returncode}\n{done.stdout}{done.stderr}"[-3000:]
        )
    return done.stdout + done.stderr


def built(folder: Path) -> tuple[Path, Path]:
    shutil.rmtree(folder, ignore_errors=True)
    ran(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    ran(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def names_of(archive: Path) -> list[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            return file.namelist()
    with tarfile.open(archive) as file:
        return [member.name.partition("/")[2] for member in file if member.isfile()]


def wrong_files(names: list[str], pages: set[str]) -> list[str]:
    """List the missing and the unwanted files of a release."""
    found = [f"has {name}" for name in names if name.partition("/")[0] in OUTSIDE]
    found += [f"has {name}" for name in names if re.search(r"(^|/)(test_\w+\.py|conftest\.py|__pycache__/)", name)]
    wanted = {f"backprobe/{name}" for name in (*NEEDED, *pages)}
    found += [f"lacks {name}" for name in sorted(wanted - set(names))]
    # A wheel has them in the folder of its metadata.
    return found + [f"lacks {name}" for name in LICENCES if name not in {one.rpartition("/")[2] for one in names}]


def wrong_notices() -> list[str]:
    """Return an error if the page does not end with a copy of THIRD_PARTY_NOTICES."""
    notices = (ROOT / "THIRD_PARTY_NOTICES").read_text(encoding="utf-8")
    page = (ROOT / "backprobe" / "report" / "page.html").read_text(encoding="utf-8")
    if not page.rstrip().endswith(f"<!--\n{notices}-->"):
        return ["THIRD_PARTY_NOTICES is not what the page has at its end: run make page"]
    return []


def looked_into(wheel: Path, sdist: Path) -> None:
    if wrong_notices():
        raise ReleaseError(*wrong_notices())
    package = ROOT / "backprobe"
    kept = (path for path in package.rglob("*") if path.suffix in (".py", ".md", ".html"))
    pages = {str(path.relative_to(package)) for path in kept if not path.name.startswith("test_")}
    for archive in (wheel, sdist):
        wrong = wrong_files(names_of(archive), pages)
        if wrong:
            raise ReleaseError(f"{archive.name}: {', '.join(wrong[:10])}")
        size = archive.stat().st_size
        if size > MAX_WHEEL_BYTES:
            raise ReleaseError(f"{archive.name} has {size:,} bytes, more than {MAX_WHEEL_BYTES:,}")
        print(f"{archive.name}: {len(names_of(archive))} files, {size / 2**20:.2f} MiB")


def check_installed(wheel: Path, python: str, torch: str) -> None:
    """Install the wheel in a new environment and run the first commands of a new user."""
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ran(python, "-m", "venv", folder / "venv")
        own = folder / "venv" / "bin"
        ran(own / "python", "-m", "pip", "install", "--quiet", f"torch=={torch}", wheel)
        print(ran(own / "python", "--version").strip(), "with", *ran(own / "python", "-m", "pip", "list").split()[4:])
        backprobe = own / "backprobe"
        for arguments, said in (
            (["--version"], f"backprobe {version}"),
            (["explain", "none-grad"], "# none-grad"),
            (["schema"], '"$schema"'),
            (["doctor"], f"torch {torch}"),
            (["demo"], "nonfinite"),
        ):
            text = ran(backprobe, *arguments, cwd=folder)
            if said not in text:
                raise ReleaseError(f"backprobe {' '.join(arguments)} does not say {said!r}:\n{text[-2000:]}")
            print(f"backprobe {' '.join(arguments)}: as it should be")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the fresh environment")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    options = parser.parse_args()
    try:
        wheel, sdist = built(options.out)
        looked_into(wheel, sdist)
        check_installed(wheel, options.python, options.torch)
    except ReleaseError as wrong:
        print(f"release-check: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
