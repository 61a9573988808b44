"""Sentences of the report."""

from mtcon_ray.display.presentation import gauge_warnings


def test_gauges_of_a_method_say_that_it_has_learned_nothing() -> None:
    fine = {"triplet_accuracy": 0.9, "cosine/positive": 0.8, "cosine/random": 0.3}
    assert gauge_warnings(fine) == []
    hinge, triplets = gauge_warnings({"triplet_accuracy": 0.53, "loss/triplet": 0.2}, 0.2)
    assert hinge.startswith("the hinge loss is 0.200, and 0.2 for an embedding that is constant")
    assert gauge_warnings({"loss/triplet": 0.19}, 0.2) == []
    assert triplets.startswith("the network orders 53% of its own triplets right, by chance 50%")
    (alone,) = gauge_warnings({"cosine/positive": 0.999, "cosine/random": 0.998})
    assert alone.startswith("positive pairs are as similar as random pairs: it has coll")
    heads = {"cosine/positive/shape": 0.9, "cosine/random/shape": 0.1, "cosine/positive/tilt": 0.2}
    (one,) = gauge_warnings(heads | {"cosine/random/tilt": 0.2})
    assert "pairs in the space of tilt: " in one
