"""docs/rules/ tells of every rule, with the needs and settings its signature has."""

import re
from pathlib import Path

from ragen.algos.advantages import KL_IN_REWARD, advantages
from ragen.algos.losses import losses
from ragen.loops.loss_checks import USED_BY
from ragen.loops.requirements import used_settings

PAGES = Path(__file__).parents[2] / "docs" / "rules"
NEEDS = {"group": "groups", "anchors": "states", "baseline": "running mean", "values": "critic"}


def test_the_table_of_advantages_is_what_the_signatures_say() -> None:
    section = re.findall(
        r"^## Advantages\n(.*?)(?=^## |\Z)", (PAGES / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section[0].splitlines() if line.startswith("| [")]
    own = [name for name in advantages if advantages.get(name).compute.__module__.startswith("ragen.") and name != "none"]
    told = {re.findall(r"`(\w+)`", row[0])[0]: row for row in rows}
    assert sorted(told) == own
    for name, (_, needs, settings, kl, source) in told.items():
        rule = advantages.get(name)
        assert needs == (", ".join(word for array, word in NEEDS.items() if array in rule.needs) or "–"), name
        assert settings == (" ".join(f"`{key}`" for key in used_settings(rule)) or "–"), name
        assert kl == ("yes" if KL_IN_REWARD in rule.traits else "no"), name
        assert source.split(",")[0].split()[-1] in (rule.compute.__doc__ or "").replace("(1992)", "1992"), name


def test_the_table_of_losses_is_what_the_signatures_say() -> None:
    section = (PAGES / "README.md").read_text("utf-8").partition("\n## Losses\n")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| [")]
    told = {re.findall(r"`(\w+)`", row[0])[0]: row for row in rows}
    assert sorted(told) == [name for name in losses if losses.get(name).compute.__module__.startswith("ragen.")]
    for name, (link, needs, settings, source) in told.items():
        rule = losses.get(name)
        shared = {key for key, uses in USED_BY.items() if uses(rule)} - {"tis_cap"}
        assert set(re.findall(r"`(\w+)`", settings)) == set(rule.settings) | shared, name
        assert ("advantages" in needs) == ("advantages" in rule.needs), name
        assert ("reference" in needs) == ("reference_logprobs" in rule.needs), name
        page = (PAGES / re.findall(r"\((.*?)\)", link)[0]).read_text("utf-8")
        assert f"`{name}`" in page
        assert all(part.split()[-1] in page for part in source.split(",")[:1]), name


def test_each_page_is_about_the_rules_that_lead_to_it() -> None:
    for rule, page in re.findall(r"\[`(\w+)`\]\((advantage-\w+\.md)\)", (PAGES / "README.md").read_text("utf-8")):
        title = (PAGES / page).read_text("utf-8").splitlines()[0]
        assert rule in re.findall(r"\w+", title)
    linked = set(re.findall(r"\]\((advantage-\w+\.md)\)", (PAGES / "README.md").read_text("utf-8")))
    assert linked == {path.name for path in PAGES.glob("advantage-*.md")}
