"""Records: events, their log, results, and their folder."""
