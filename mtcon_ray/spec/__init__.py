"""The fields of a spec, section by section, and the messages of their errors."""
