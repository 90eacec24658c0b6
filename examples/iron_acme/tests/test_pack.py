"""The pack as Iron sees it: by its entry points, each of which loads."""

from importlib.metadata import distribution

from iron_core.plugins.registry import registry

NAME = "iron-acme"


def test_what_it_brings_is_found_and_loads() -> None:
    """Nobody else has the names, and each is what its group wants."""
    found = {(record.group, record.name) for record in registry().records if record.distribution == NAME}
    assert found == {(entry.group.split(".")[1], entry.name) for entry in distribution(NAME).entry_points}
    for group, name in sorted(found):
        assert registry().load(group, name) is registry().load(group, f"{NAME}:{name}")
