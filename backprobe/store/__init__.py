"""A run on disk: one SQLite file in a folder. Written as it happens, read without torch."""

#: Version of the format. Every older one is read (``older.py``); a newer one is refused with a line that says so.
#:
#: A field that is added to a record, with a default, leaves the number as it is: a file names the fields of its
#: records, and a reader takes those that it knows. The number goes up when a table changes, or when a field gets
#: another meaning.
#: Keys ``format`` and ``backprobe`` of the table ``info`` stay what they are in every format.
FORMAT = 2
#: The mode of the folder of a run: nobody else reads it.
PRIVATE = 0o700
#: The file in a run's folder.
FILE = "run.sqlite"
#: What a process of several has in its folder besides a run (``parts.py``, ``crashes.py``): what it is, its exit code,
#: and how it crashed.
SEEN, CODE, CRASH = "seen.json", "code", "crash"
