"""Needs of a sweep, and the resources of this machine or the cluster."""
