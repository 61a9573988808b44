"""Records: events, their log, results, and the folder that holds them."""
