"""The command line: each command parses its options, makes a call and prints the result."""

import gc

# With Python's 700 new objects the search for garbage takes a tenth of the time of short commands.
gc.set_threshold(50_000)
