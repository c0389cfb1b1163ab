"""Kinds of records: lookup by name, ours and third parties'; fields that are stored by name."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import backprobe
from backprobe import Trace
from backprobe.records import KINDS, Aside, Cut, Facts, Finding, ModuleCall, Parameter, Retained, Site, Unseen, record
from backprobe.records import registry as known
from backprobe.store import FILE
from backprobe.store.codec import Decoder, checksum, from_plain, squeeze, to_plain


@dataclass(frozen=True)
class Peak:
    """Not registered: it is part of a record only."""

    at: float
    sites: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Spectrum:
    """A record as a plugin would have one."""

    module: str
    values: tuple[float, ...]
    peak: Peak | None = None
    by_name: Mapping[str, Site] = dataclasses.field(default_factory=dict)
    inside: Spectrum | None = None


SITE = Site("a.py", 3, "f", "x.log()")
SPECTRA = (
    Spectrum("encoder", (1.0, 0.5), Peak(0.25, (SITE,)), {"weight": SITE}, Spectrum("inner", ())),
    Spectrum("head", ()),
)
CUT = Cut("detach", SITE, "encoder", ("weight",))


def test_facts_are_asked_for_by_kind() -> None:
    facts = Facts((), (), (), (SPECTRA[0], CUT, SPECTRA[1]))
    assert facts.of(Spectrum) == SPECTRA
    assert facts.of(Cut) == (CUT,)
    assert facts.of(Retained) == ()
    assert (facts.one(Cut), facts.one(Retained)) == (CUT, None)


#: Modules whose records are stored in files or tables of their own.
MODULES_WITH_OWN_TABLES = ("backprobe.records.compared", "backprobe.records.statistics")


def test_every_record_of_ours_is_known_by_name() -> None:
    from backprobe import records

    known = {name: getattr(records, name) for name in records.__all__}
    found = {
        name
        for name, one in known.items()
        if dataclasses.is_dataclass(one) and one.__module__ not in MODULES_WITH_OWN_TABLES
    }
    assert found - {"Aside", "BriefSteps", "Facts"} == set(KINDS) - {"Spectrum"}
    with pytest.raises(TypeError):
        KINDS["other"] = Peak  # type: ignore[index]


def test_two_kinds_of_one_name_are_refused() -> None:
    with pytest.raises(
        TypeError,
        match=r"two kinds of records are called Site: backprobe\.records\.places\.Site and .*\.Site; a stored run "
        "tells them apart by that name, so give yours another",
    ):
        record(dataclasses.make_dataclass("Site", ["file"], frozen=True, namespace={"__module__": __name__}))
    assert KINDS["Site"] is Site
    with pytest.raises(TypeError, match=r"Loose is no record: put @record above @dataclass\(frozen=True\)"):
        record(dataclasses.make_dataclass("Loose", ["file"]))
    with pytest.raises(TypeError, match="int is no record"):
        record(int)
    assert record(Spectrum) is Spectrum  # a module that is loaded again


def test_a_record_of_others_is_stored(tmp_path: Path) -> None:
    facts = Facts(asked=("memory",), seen=(CUT, *SPECTRA))
    read = backprobe.load_run(Trace((), facts).save(tmp_path / "run"))
    assert read.facts == facts
    assert read.facts.of(Spectrum) == SPECTRA


def test_a_record_that_is_not_known_by_name_is_counted(tmp_path: Path) -> None:
    facts = Facts(seen=(Peak(1.0), CUT, Peak(2.0)))
    read = backprobe.load_run(Trace((), facts).save(tmp_path / "run"))
    assert read.facts.seen == (CUT,)
    (said,) = read.coverage.unseen
    assert (said.what, said.count) == ("records that could not be stored", 2)
    assert said.note.endswith("Peak is not known by its name: put @record above the class")


def test_an_unknown_kind_is_kept_separately(tmp_path: Path, monkeypatch: Any) -> None:
    run = Trace((), Facts(unseen=(Unseen("nodes", 1, "why"),), seen=(CUT, *SPECTRA))).save(tmp_path / "run")
    monkeypatch.delitem(known._kinds, "Spectrum")  # as where its package is not installed
    read = backprobe.load_run(run)
    assert read.facts.of(Cut) == (CUT,)
    aside = read.facts.one(Aside)
    assert aside is not None and aside.kind == "Spectrum" and len(aside.rows) == 2
    said = Unseen(
        "stored records of the kind Spectrum",
        2,
        "kept as they are: they are of a package that is not installed here, or of a newer backprobe",
    )
    assert read.coverage.unseen == (Unseen("nodes", 1, "why"), said)
    again = backprobe.load_run(read.save(tmp_path / "again"))
    assert again.coverage.unseen == read.coverage.unseen
    monkeypatch.undo()
    third = backprobe.load_run(again.save(tmp_path / "third"))
    assert third.facts.of(Spectrum) == SPECTRA
    assert third.coverage.unseen == (Unseen("nodes", 1, "why"),)


def test_separate_records_are_not_mixed_with_other_fields(tmp_path: Path) -> None:
    aside = Aside("Spectrum9", ([1],), {"Spectrum9": ("module",), "Site": ("line", "file")}, "gone")
    read = backprobe.load_run(Trace((), Facts(seen=(aside,))).save(tmp_path / "run"))
    assert read.facts.seen == ()
    assert [u.what for u in read.coverage.unseen] == ["records that could not be stored"]


def test_a_record_that_a_package_makes_differently_now_is_kept_aside(tmp_path: Path, monkeypatch: Any) -> None:
    run = Trace((), Facts(seen=SPECTRA)).save(tmp_path / "run")
    other = dataclasses.make_dataclass("Spectrum", [("required", int)], frozen=True, namespace={"__module__": __name__})
    monkeypatch.setitem(known._kinds, "Spectrum", other)
    (said,) = backprobe.load_run(run).coverage.unseen
    assert said.note.startswith("kept as they are: what is installed here cannot read them: TypeError: ")


PLUGIN = """
import sys
from dataclasses import dataclass
from backprobe.records import record

@record
@dataclass(frozen=True)
class Tone:
    module: str
    pitch: float

assert "torch" not in sys.modules
"""
SHOW = "import sys; from backprobe.commands import main; sys.exit(main(['show', 'run']))"
MAKE = """
from plugged import Tone
from backprobe.records import Facts
from backprobe import Trace
Trace((), Facts(seen=(Tone("encoder", 440.0),))).save("run")
"""


def test_a_package_that_defines_a_kind_is_found_by_its_entry_point(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "plugged-1.0.dist-info").mkdir(parents=True)
    (site / "plugged.py").write_text(PLUGIN)
    (site / "plugged-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (site / "plugged-1.0.dist-info" / "entry_points.txt").write_text("[backprobe.records]\nTone = plugged:Tone\n")
    root = str(Path(backprobe.__file__).parents[1])

    def run(code: str, *paths: str) -> str:
        paths_code = f"import sys; sys.path[:0] = {[root, *paths]!r}\n"
        done = subprocess.run(
            [sys.executable, "-c", paths_code + code], cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    run(MAKE, str(site))
    note = "Not seen: 1 stored records of the kind Tone"
    assert note in run(SHOW)
    assert note not in run(SHOW, str(site))
    assert "pitch=440.0" in run("import backprobe; print(backprobe.load_run('run').facts.seen)", str(site))
    (site / "plugged.py").write_text("raise RuntimeError('broken')")
    assert "cannot read them: RuntimeError: broken" in run(SHOW, str(site))


def test_fields_are_found_by_their_names() -> None:
    cut = ("count", "op", "site", "why", "module")
    newer = Decoder({"Site": ("column", "text", "line", "function", "file"), "Cut": cut})
    plain = [2, "detach", [7, "x.log()", 3, "f", "a.py"], "because", "encoder"]
    with pytest.raises(TypeError, match="parameters"):  # which has no default
        newer(Cut, plain)
    assert newer(Site, plain[2]) == SITE
    call = ("index", "path", "class_name", "call", "depth", "parent", "site", "outputs", "later")
    assert Decoder({"ModuleCall": call})(ModuleCall, [0, "a", "Linear", 1, 0, -1, None, [[2, 3]], "x"]) == ModuleCall(
        0, "a", "Linear", 1, 0, -1, None, ((2, 3),)
    )
    with pytest.raises(ValueError, match="a Site has 5 fields, not as in"):
        newer(Site, [1, 2])


def test_a_file_with_other_fields_reads(tmp_path: Path) -> None:
    """As one of another version that writes the same format: a field more, and one less."""
    parameter = Parameter("weight", (2, 3), True, 1, True, None, 1, 0, "model", SITE, thawed_unseen=True)
    finding = Finding("none-grad", "error", "title", "certain", parameters=("weight",), evidence={"peak": Peak(1.0)})
    run = Trace((), Facts((parameter,)), findings=[finding]).save(tmp_path / "run")
    with closing(sqlite3.connect(run / FILE, isolation_level=None)) as db:
        text = db.execute("select value from info where key = 'fields'").fetchone()[0]
        fields = json.loads(text)
        fields["Parameter"] = ["color", *fields["Parameter"][:-1]]
        row = ["red", *to_plain(parameter)[:-1]]
        for table, key, value in (("info", "fields", json.dumps(fields)), ("records", "Parameter", squeeze([row]))):
            db.execute(f"insert or replace into {table} values (?, ?, ?)", (key, value, checksum(table, key, value)))
    read = backprobe.load_run(run)
    assert read.parameters == (dataclasses.replace(parameter, thawed_unseen=False),)
    assert read.findings == [dataclasses.replace(finding, evidence={"peak": {"at": 1.0, "sites": []}})]


def test_records_go_to_another_process_as_lists() -> None:
    assert from_plain(Spectrum, json.loads(json.dumps(to_plain(SPECTRA[0])))) == SPECTRA[0]
