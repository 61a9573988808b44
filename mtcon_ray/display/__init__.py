"""Display for people: tables, progress, plans, figures and the report."""
