"""A run on disk: one SQLite file in a folder. Written as it happens, read without torch."""

#: Version of the format. A reader refuses another.
FORMAT = 1
#: The file in a run's folder.
FILE = "run.sqlite"
