"""Parts for all folders: paths, files, the registry of classes, plugins, names of metrics."""
