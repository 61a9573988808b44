"""Training methods. `METHODS["name"]` imports the module of a method at its first use."""

from mtcon_ray.methods.base import METHODS, Method
from mtcon_ray.spec.methods.base import MethodSpec

__all__ = ["METHODS", "Method", "MethodSpec"]
