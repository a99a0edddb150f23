"""Level files: the 1,011 solved levels, Boxoban, and what is refused."""

import os
import re
import tarfile
from pathlib import Path

import pytest

from ragen.envs.sokoban.env import SokobanEnv, SokobanSettings
from ragen.envs.sokoban.levels import level_rows, load_levels, parse_level, split_levels
from ragen.envs.sokoban.rules import DOWN, LEFT, RIGHT, UP, move, solved
from ragen.errors import ConfigError

LETTERS = {"u": UP, "d": DOWN, "l": LEFT, "r": RIGHT}


ORIGINS = {
    "cavepacker_maps.tgz": "the folder maps of Debian's package cavepacker-data (`apt-get download cavepacker-data`, "
    "`dpkg-deb -x cavepacker-data_*.deb .`, `tar czf cavepacker_maps.tgz -C usr/share/games/cavepacker maps`)",
    "unfiltered_valid_000.txt": "unfiltered/valid/000.txt of the repository google-deepmind/boxoban-levels",
}


def data(name):
    root = Path(os.environ.get("RAGEN_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
    path = root / "sokoban" / name
    if not path.exists():
        pytest.skip(
            f"no {name}: it is {ORIGINS[name]}; put it into a folder `sokoban` and set RAGEN_DATA to what holds that"
        )
    return path


def expand(text):
    """Moves of a ``.sol`` text: a number repeats the letter or the group ``(…)`` after it; case does not matter.

    >>> expand("2uR2(d3l)")
    'uurdllldlll'
    """
    group = re.compile(r"(\d*)\(([^()]*)\)")
    while group.search(text):
        text = group.sub(lambda found: int(found[1] or 1) * expand(found[2]), text)
    return re.sub(r"(\d+)([a-z])", lambda found: int(found[1]) * found[2], text.lower())


def test_all_1011_levels_end_solved_by_their_solutions():
    with tarfile.open(data("cavepacker_maps.tgz")) as archive:
        texts = {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}
    solutions = {name: text for name, text in texts.items() if name.endswith(".sol")}
    assert len(solutions) == 1011
    unsolved = []
    for name, solution in solutions.items():
        (rows,) = split_levels(texts[name.removesuffix("sol") + "sok"])
        level = parse_level(rows)
        player, boxes = level.player, level.boxes
        for letter in expand("".join(solution.split())):
            player, boxes = move(level.board, player, boxes, LETTERS[letter])
        if not solved(level.board, boxes):
            unsolved.append(name)
    assert unsolved == []


def test_a_boxoban_file_gives_its_1000_levels():
    path = data("unfiltered_valid_000.txt")
    levels = load_levels(str(path))
    assert len(levels) == 1000
    text = path.read_text()
    for number, level in enumerate(levels):
        assert (level.board.width, level.board.height, level.boxes.bit_count()) == (10, 10, 4)
        original = text.split(f"; {number}\n", 1)[1].split("\n\n")[0].split("\n")[:10]
        kept = level_rows(level)
        assert all(
            a == b or (a, b) == (" ", "#")
            for old, new in zip(original, kept, strict=True)
            for a, b in zip(old, new, strict=True)
        )


def test_rows_round_trip_and_outside_floor_becomes_wall():
    rows = ["  ####", "###  #", "#@$* #", "# +###"]
    with pytest.raises(ConfigError, match="2 players"):
        parse_level(rows)
    rows = ["  ####", "###  #", "#@$*.#", "#  ###", "####"]
    kept = level_rows(parse_level(rows))
    assert kept == ["######", "###  #", "#@$*.#", "#  ###", "######"]
    assert level_rows(parse_level(kept)) == kept
    assert level_rows(parse_level(["#####", "#+$-#", "#_ ##", "#####"])) == ["#####", "#+$ #", "#  ##", "#####"]


def test_levels_are_split_at_any_other_line():
    text = "Title: x\n; 1\n###\n#@#\n\n\nAuthor: y\n ##\r\n #.#\n"
    assert split_levels(text) == [["###", "#@#"], [" ##", " #.#"]]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("#####\n# $.#\n#####", "level 0: it has 0 players"),
        ("#####\n#@ .#\n#####", "level 0: it has 0 boxes"),
        ("######\n#@$..#\n######", "1 boxes .* and 2 targets"),
        ("#####\n#@* #\n#####", "level 0: it is already solved"),
        ("nothing here", "has no level"),
    ],
)
def test_a_bad_level_file_is_refused_by_name_and_number(tmp_path, grid, message):
    path = tmp_path / "levels.txt"
    path.write_text(grid)
    with pytest.raises(ConfigError, match=message) as caught:
        SokobanEnv(SokobanSettings(level_file=str(path)))
    assert "levels.txt" in str(caught.value)


def test_a_missing_level_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent"):
        SokobanEnv(SokobanSettings(level_file=str(tmp_path / "absent.txt")))


def test_an_unknown_character_is_named():
    with pytest.raises(ConfigError, match="'x' is unknown"):
        parse_level(["####", "#@x#"])


def test_c17_the_instance_seed_numbers_the_levels_of_a_file(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("; 0\n#####\n#@$.#\n#####\n; 1\n#######\n#@ $ .#\n#######\n")
    env = SokobanEnv(SokobanSettings(level_file=str(path)))
    assert env.reset(instance_seed=1, dynamics_seed=0).text == "#######\n#P_X_O#\n#######"
    assert env.reset(instance_seed=2, dynamics_seed=0).text == "#####\n#PXO#\n#####"
    assert env.step("Right").reward == pytest.approx(10.9)
