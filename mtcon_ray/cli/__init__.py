"""The command line: each command parses its options, makes a call and prints the result."""
