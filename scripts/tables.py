"""Write the generated pages of docs/: settings.md from the schema, metrics.md from the metrics' definitions."""

from pathlib import Path

from ragen.config.document import settings_page
from ragen.metrics.document import metrics_page

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"settings.md": settings_page, "metrics.md": metrics_page}


def main() -> None:
    """Write each page that changed and name it."""
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: docs/{name}")


if __name__ == "__main__":
    main()
