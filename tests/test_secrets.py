"""No secret stands in the repository (case G8)."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECRETS = {
    "key of OpenAI's or Anthropic's kind": r"(?<![\w-])sk-[A-Za-z0-9_-]{20,}",
    "Hugging Face token": r"(?<!\w)hf_[A-Za-z0-9]{30,}",
    "AWS access key": r"(?<!\w)(?:AKIA|ASIA)[0-9A-Z]{16}(?!\w)",
    "GitHub token": r"(?<!\w)(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{60,})",
    "Google key": r"(?<!\w)AIza[0-9A-Za-z_-]{35}",
    "Slack token": r"(?<!\w)xox[abprs]-[0-9A-Za-z-]{10,}",
    "private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "address with a password": r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@'\"<>{}]+:[^\s/@'\"<>{}]+@\w",
}
MADE_UP = "CANARY"  # stands in what tests use in place of a secret
EXAMPLES = [  # put together here, so that this file holds none
    "sk-" + "proj-a1B2" * 5,
    "hf_" + "aB3" * 11,
    "AKIA" + "0123456789ABCDEF",
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 30,
    "AIza" + "Sy0-_" * 7,
    "xoxb-" + "1234567890",
    "-----BEGIN " + "RSA PRIVATE KEY-----",
    "-----BEGIN " + "PRIVATE KEY-----",
    "https_proxy=http://user:" + "pass@proxy.example:3128",
]
HARMLESS = [
    "a task-oriented-and-long-name-of-words",
    "hf_hub_download",
    "num_tokens",
    "https://host:8080/a@b",
    "http://user:sk-CANARY@host",
]


def found(text: str) -> list[str]:
    return [
        f"{what}: {match[0][:12]}…"
        for what, shape in SECRETS.items()
        for match in re.finditer(shape, text)
        if MADE_UP not in match[0]
    ]


def files() -> list[Path]:
    """What the repository holds, or would with the next commit; in a copy without one, all that is text and no cache."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    folders = ("src", "tests", "docs", "design", "examples", "scripts", "benchmarks")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return [path for path in (*ROOT.iterdir(), *inside) if path.is_file()]


def test_the_repository_holds_no_secret() -> None:
    paths = files()
    assert Path(__file__) in paths
    assert len(paths) > 300
    assert [(str(path), what) for path in paths for what in found(path.read_bytes().decode("utf-8", "replace"))] == []


@pytest.mark.parametrize("secret", EXAMPLES)
def test_each_shape_is_found(secret: str) -> None:
    assert len(found(f'KEY = "{secret}"\n')) == 1


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_is_left_alone(text: str) -> None:
    assert found(text) == []
