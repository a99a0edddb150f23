"""docs/metrics.md is what the code says."""

from pathlib import Path

from ragen.metrics import METRICS
from ragen.metrics.document import metrics_page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_metrics_page_is_what_the_definitions_generate() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "run: make docs"


def test_every_metric_stands_in_the_page_once() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in metrics_page().splitlines() if line.startswith("| `")]
    assert rows == [f"`{name}`" for name in METRICS]
