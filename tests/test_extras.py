"""How to install an extra depends on where the package came from."""

import json
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from ragen import extras


class Installed:
    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (json.dumps({"url": "file:///home/a%20b/ragen", "dir_info": {"editable": True}}), "-e '/home/a b/ragen[plots]'"),
        (json.dumps({"url": "file:///home/x/ragen", "dir_info": {}}), "'ragen-rl[plots]'"),
        (json.dumps({"url": "https://x/y.whl", "archive_info": {}}), "'ragen-rl[plots]'"),
        ("nonsense", "'ragen-rl[plots]'"),
        (None, "'ragen-rl[plots]'"),
    ],
)
def test_a_clone_is_named_by_its_place_and_a_package_by_its_name(monkeypatch, origin, source):
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(origin))
    assert extras.install_command("plots") == f"{sys.executable} -m pip install {source}"


def test_a_clone_with_pinned_versions_installs_those(monkeypatch, tmp_path):
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    origin = json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(origin))
    source = f"-c '{tmp_path}/constraints.txt' -e '{tmp_path}[wandb]'"
    assert extras.install_command("wandb") == f"{sys.executable} -m pip install {source}"


def test_a_source_tree_that_was_never_installed_is_a_package(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", missing)
    assert extras.install_command("lora").endswith("'ragen-rl[lora]'")
