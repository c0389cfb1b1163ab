"""Stores a run on disk: one SQLite file in a folder. Written while the script runs, read without torch."""

#: Version of the format. A run of another one is refused with a clear error.
#:
#: A new field of a record, with a default, does not change the version: a file names the fields of its records, and a
#: reader ignores unknown ones. The version changes if a table changes, or if a field gets another meaning. The keys
#: ``format`` and ``backprobe`` of the table ``info`` are the same in every format.
FORMAT = 3
#: The mode of a run's folder: only its owner can read it.
PRIVATE = 0o700
#: The file in a run's folder.
FILE = "run.sqlite"
#: Files of a process of a multi-process run, beside its run (``parts.py``, ``crashes.py``): its description, its exit
#: code, and its crash report.
PROCESS_DESCRIPTION, CODE, CRASH = "seen.json", "code", "crash"
