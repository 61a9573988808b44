"""What the project costs beside the training itself; results stand in README.md."""
