"""docs/settings.md is what the code says."""

from pathlib import Path

from ragen.config.document import PAPER, settings_page
from ragen.config.paths import ENV_COMMON, fields

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_e14_the_settings_page_is_what_the_schema_generates():
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run: python -m ragen.config.document docs/settings.md"


def test_e14_every_symbol_of_the_paper_maps_to_a_setting_that_exists():
    known = {*fields(), *(f"env.{name}" for name in ENV_COMMON)}
    assert [key for _, _, key in PAPER if key not in known] == []
    assert "| k (online-k, rollout reuse) | passes over one collected batch | `optim.online_k` | 1 |" in settings_page()


def test_every_setting_stands_in_the_page_with_its_meaning():
    page = settings_page()
    for key in fields():
        assert f"| `{key}` |" in page
