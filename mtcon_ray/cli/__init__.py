"""The command line: each command parses its options, makes one call and prints the result."""
