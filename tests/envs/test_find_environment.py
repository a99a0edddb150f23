"""Environments by name, by file and by hand: all take ``env.*`` settings or say why not, and can be found again."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragen.envs import Environment, EnvPreset, EnvSettings, Observation, Step, environment_factory, find_environment
from ragen.errors import ConfigError

SOURCE = '''
import ragen
from neighbour import WORD

class ParitySettings(ragen.EnvSettings):
    max_turns: int = 4
    digits: int = 3

class Parity(ragen.Environment):
    """Odd or even."""
    settings_class = ParitySettings
    success = False
    def reset(self, *, instance_seed, dynamics_seed):
        return ragen.Observation(WORD)
    def step(self, action):
        return ragen.Step("so", 1.0, terminated=True)
    def actions(self):
        return ("odd", "even")
    def instructions(self):
        return "Which?"

class Inside:
    class Deep(Parity):
        pass

def make():
    return Parity(ParitySettings(digits=5))
'''


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of one's own, with a neighbour it imports."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour.py").write_text("WORD = 'odd or even?'\n")
    file = tmp_path / "parity.py"
    file.write_text(SOURCE)
    yield file
    for name in [n for n in sys.modules if n in ("neighbour", "parity") or n.startswith("ragen_file")]:
        del sys.modules[name]


class Plain(Environment):
    """As little as an environment can be."""

    @property
    def success(self) -> bool:
        return False

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        return Observation("?")

    def step(self, action: str) -> Step:
        return Step("!", 0.0, terminated=True)

    def actions(self) -> tuple[str, ...]:
        return ("go",)

    def instructions(self) -> str:
        return "Go."


class Deaf(Plain):
    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(EnvSettings(max_turns=2))


class Skips(Plain):
    def __init__(self, settings: EnvSettings | None = None) -> None:
        pass


class Raises(Plain):
    def __init__(self, settings: EnvSettings | None = None) -> None:
        raise OSError("no display")


class Needs(Plain):
    def __init__(self, board: int, size: int) -> None:
        super().__init__()


class Quits(Plain):
    def __init__(self, settings: EnvSettings | None = None) -> None:
        sys.exit()


class Inner(Plain):
    def __init__(self, settings: EnvSettings | None = None) -> None:
        len()  # type: ignore[call-arg]


class Abstract(Environment):
    def step(self, action: str) -> Step:
        return Step("!", 0.0, terminated=True)

    def instructions(self) -> str:
        return "Go."


SHARED = Plain()


def test_a_class_in_a_file_takes_settings_and_is_found_again_from_anywhere(
    parity: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(parity.parent)
    found = find_environment({"name": "parity.py:Parity", "digits": 7})
    assert (found.name, found.settings.model_dump()["digits"]) == ("Parity", 7)
    assert found.spec == {"name": f"{parity}:Parity", "digits": 7}
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert type(environment_factory(found.spec)()) is type(found.make())
    assert find_environment({"name": f"{parity}:Inside.Deep"}).name == "Deep"
    assert find_environment({"name": f"{parity}:make"}).settings.model_dump()["digits"] == 5


def test_a_class_passed_by_hand_is_told_by_its_place_and_found_again(parity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(parity.parent))
    module = importlib.import_module("parity")
    found = find_environment({"name": "whatever", "max_turns": 1}, module.Parity)
    assert found.spec == {"name": f"{parity}:Parity", "max_turns": 1}
    assert find_environment(found.spec).settings.max_turns == 1


@pytest.mark.parametrize("source", [Plain, EnvPreset(Plain, "plain")], ids=["class", "preset"])
def test_settings_reach_what_is_passed_by_hand(source: Any) -> None:
    assert find_environment({"max_turns": 1}, source).make().settings.max_turns == 1
    with pytest.raises(ConfigError, match=r"unknown setting 'env\.nosuch'"):
        find_environment({"nosuch": 1}, source)
    with pytest.raises(ConfigError, match=r"env\.max_turns"):
        find_environment({"max_turns": 0}, source)


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        (lambda: Plain(None), {"max_turns": 1}, r"env\.max_turns is set, but '.*' is a function"),
        (Deaf, {"max_turns": 1}, r"env\.max_turns would be ignored: Deaf\.__init__ must take `settings`"),
        (Needs, {"max_turns": 1}, r"'Needs' cannot be made: TypeError"),
        (Needs, {}, r"'Needs' cannot be made: TypeError.*lambda"),
        (Raises, {}, r"'Raises' cannot be made: OSError: no display"),
        (Abstract, {}, r"^env 'Abstract' cannot be made: Abstract must define actions, reset and success$"),
        (Quits, {}, r"^env 'Quits' cannot be made: SystemExit \(test_find_environment\.py, line \d+\)$"),
        (lambda: Quits(None), {}, r"^env '.*' cannot be made: SystemExit \(test_find_environment\.py, line \d+\)$"),
        (Inner, {}, r"cannot be made: TypeError: len\(\) takes .* argument \(0 given\) \(test_find_.*, line \d+\)$"),
        (Skips, {}, r"'Skips' has no settings: call super\(\).__init__"),
        (lambda: SHARED, {}, r"gives the same object each time"),
        (lambda: None, {}, r"must make a ragen\.Environment, got NoneType"),
        (SHARED, {}, r"env is .*a class that extends ragen\.Environment"),
        (int, {}, r"env is .*a class that extends ragen\.Environment"),
        (3, {}, r"env is 3: give an environment's name"),
    ],
)
def test_what_cannot_be_used_says_why_and_what_to_do(source: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_environment(settings, source)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("parit.py:Parity", r"^there is no file '/.*/parit\.py': did you mean 'parity\.py'\?$"),
        ("sub/parity.py:Parity", r"^there is no folder '/.*/sub'$"),
        ("empty/parity.py:Parity", r"^there is no file '/.*/empty/parity\.py': its folder holds no Python file$"),
        ("parity.py:Party", r"^'/.*/parity\.py' has no 'Party': did you mean 'Parity'\?$"),
        ("parity.py:parity", r"has no 'parity': did you mean 'Parity'\?$"),
        ("parity.py:Zzz", r"has no 'Zzz': known: Parity$"),
        ("parity.py:Inside.Dep", r"has no 'Inside\.Dep': did you mean 'Deep'\?$"),
        ("neighbour.py:Parity", r"has no 'Parity': nor a class that extends ragen\.Environment$"),
        ("parity.py:Inside", r"has a class 'Inside', but it does not extend ragen\.Environment; these do: Parity$"),
        ("parity.py", r"name the class as well, parity\.py:Parity$"),
        ("parity.py:", r"name the class as well, /.*/parity\.py:Parity$"),
        *(
            (wrong, r"did you mean '(/.*/)?parity\.py:Parity'\?$")
            for wrong in (
                "parity.pyParity",
                "parity.py Parity",
                "./parity.py/Parity",
                "parity.py.Party",
                "parity.py::Parity",
                "parity.py:Parity:",
                "parity.Parity",
            )
        ),
        ("parit.py", r"there is no file 'parit\.py': did you mean 'parity\.py'\?$"),
        (":Parity", r"a class in a file is written FILE\.py:Parity$"),
        ("table.csv:Parity", r"'table\.csv' is not a Python file"),
        ("bandit-starpo-s-grpo", r"that is a training preset; its environment is 'bandit'$"),
        ("BANDIT", r"did you mean 'bandit'\?$"),
        ("outside.Parity", r"a class of a module is written outside:Parity$"),
        ("no_such_module:Parity", r"module 'no_such_module' is not found by Python: A class that was passed by hand"),
        ("empty.parity:Parity", r"module 'empty\.parity' is not found by Python"),
        ("folder.inside:Parity", r"did you mean 'folder/inside\.py:Parity'\?$"),
        (
            "needing.py:Parity",
            r"^'/.*/needing\.py' cannot be loaded: ModuleNotFoundError: No module named 'nosuch' \(.*line 2\)$",
        ),
        ("__main__:Parity", r"passed by hand.*ragen\.evaluate\(run, env=Parity\).*--env FILE\.py:Parity"),
        ("tests.test_x:test.<locals>.Parity", r"passed by hand"),
        ("broken.py:Parity", r"cannot be loaded: SyntaxError"),
        ("raising.py:Parity", r"cannot be loaded: ZeroDivisionError"),
        ("leaving.py:Parity", r"^'/.*/leaving\.py' cannot be loaded: SystemExit: bye \(.*leaving\.py, line 2\)$"),
        ("leaving:Parity", r"^'leaving' cannot be loaded: SystemExit: bye \(.*leaving\.py, line 2\)$"),
        ("parity.py:WORD", r"env is 'odd or even\?'"),
        ("~nosuchuser/parity.py:Parity", r"^there is no folder '~nosuchuser'$"),
        ("loop.py:Parity", r"^there is no file 'loop\.py': "),
        ("parity.d.py:Parity", r"^there is no file '/.*/parity\.d\.py': did you mean 'parity\.py'\?$"),
        ("x" * 5000 + ".py:Parity", r"cannot be read: File name too long$"),
        ("x" * 5000 + ":Parity", r"cannot be read: File name too long$"),
    ],
)
def test_a_place_that_leads_nowhere_says_so(name: str, words: str, parity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parity.parent)
    Path("broken.py").write_text("class Parity(\n")
    Path("raising.py").write_text("1 / 0\n")
    Path("leaving.py").write_text("import sys\nsys.exit('bye')\n")
    monkeypatch.syspath_prepend(str(parity.parent / "modules"))
    Path("modules").mkdir()
    Path("modules/leaving.py").write_text(Path("leaving.py").read_text())
    Path("needing.py").write_text("import sys\nimport nosuch\n")
    Path("table.csv").write_text("1\n")
    Path("loop.py").symlink_to("loop.py")
    for folder in ("empty", "folder", "parity.d.py"):
        Path(folder).mkdir()
    Path("folder/inside.py").write_text("class Parity: pass\n")
    with pytest.raises(ConfigError, match=words):
        find_environment({"name": name})


def test_a_function_and_a_local_class_have_names_that_say_what_they_are() -> None:
    class Local(Plain):
        pass

    def make() -> Plain:
        return Plain()

    sources: list[tuple[Callable[[], Environment], str]] = [(Local, "Local"), (make, "make")]
    for source, name in sources:
        found = find_environment({}, source)
        assert found.name == name
        with pytest.raises(ConfigError, match="passed by hand"):
            find_environment(found.spec)
