"""Tests of paths and URLs in a spec, and of what is derived from the types of its fields."""

import pytest
from pydantic import TypeAdapter, ValidationError

from mtcon_ray.base.registry import LocalPath, PathMark, fields_with
from mtcon_ray.spec.resources import StorageSpec
from mtcon_ray.spec.run_spec import RunSpec

LOCAL = TypeAdapter(LocalPath)


def test_paths_and_mappings_with_free_keys_are_found_by_type_in_every_registered_kind() -> None:
    paths, mappings = fields_with(RunSpec, PathMark), fields_with(RunSpec, dict)
    assert {"data.csv", "data.images", "model.encoder.weights", "storage.root"} < paths
    assert {"data.label_noise", "search.space"} < mappings
    assert not paths & mappings


def test_the_home_of_an_unknown_user_is_refused() -> None:
    told = "the home folder in '~no-such-user/x' is unknown on this"
    with pytest.raises(ValidationError, match=told):
        LOCAL.validate_python("~no-such-user/x")


@pytest.mark.parametrize("url", ["s3://me:key@bucket/x", "file:///x", "https://host/x"])
def test_a_local_path_is_no_url(url: str) -> None:
    """It would become a folder named `s3:` below that of the spec."""
    told = rf"got a URL that begins with {url.partition(':')[0]}:/"
    with pytest.raises(ValidationError, match=rf"must be a path of this machine, {told}"):
        LOCAL.validate_python(url)
    with pytest.raises(ValidationError, match=r"must (begin with|read) s3://"):
        StorageSpec.model_validate({"root": url})
    assert LOCAL.validate_python("a/s3://x") == "a/s3:/x"
