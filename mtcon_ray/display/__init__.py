"""Display for people: tables."""
