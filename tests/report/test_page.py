"""The page: whatever a run holds, it stays data; what is inside is what was packed."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from tests.report.conftest import HOSTILE, evaluation

from ragen.report.file import NO_TEXT, write_report
from ragen.report.page import SCRIPTS, Block, packed, page
from ragen.report.steps import Packer
from ragen.runs.tokens import decoder

ASSETS = files("ragen.report") / "assets"


class Reader(HTMLParser):
    """Every tag, and the text of each script element by its id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=False)
        self.tags, self.scripts, self._open = [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "script":
            self._open = dict(attrs).get("id", "code")
            self.scripts[self._open] = ""
        self.policy = (
            dict(attrs)["content"] if ("http-equiv", "Content-Security-Policy") in attrs else getattr(self, "policy", "")
        )

    def handle_endtag(self, tag):
        self._open = None if tag == "script" else self._open

    def handle_data(self, data):
        if self._open:
            self.scripts[self._open] += data


def opened(scripts, name):
    return json.loads(gzip.decompress(base64.b64decode(scripts[name])))


def report(runs, tmp_path, **options):
    out = tmp_path / "report.html"
    made = write_report(runs, out, **options)
    text = out.read_text(encoding="utf-8")
    assert made.bytes == len(text.encode())
    return text, made


def test_the_page_holds_what_was_packed(run, tmp_path):
    text, made = report([run], tmp_path)
    scripts = Reader(text).scripts
    packer = Packer(decoder(run), _drawing(run), run.config.seed)
    expected = [packer.pack(step, run.trajectories(step)) for step in (1, 2, 3)]
    assert opened(scripts, "run0-index") == json.loads(json.dumps([one.index for one in expected]))
    for step, one in enumerate(expected, start=1):
        assert opened(scripts, f"run0-step{step}") == json.loads(json.dumps(one.body))
    assert (made.steps, made.trajectories) == (3, 36)
    assert made.with_tokens == sum(sum(one.index["detail"]) for one in expected)
    head = json.loads(scripts["head"])
    assert [step for step, _ in head["runs"][0]["steps"]] == [1, 2, 3]
    assert head["runs"][0]["curves"]["rollout/success"] == [0.1, 0.2, pytest.approx(0.3)]


def _drawing(run):
    from ragen.report.drawing import drawing_of

    return drawing_of(run.config.env)


def test_texts_that_would_be_markup_stay_text(maker, tmp_path):
    run = maker.run(steps=1)
    maker.add(run, 2, maker.groups(2), (maker.hostile(),))
    run.write_eval("before", 0, evaluation(notes=(HOSTILE.replace("\ud800", ""),), model=HOSTILE))
    plain = Reader(report([maker.run("plain", steps=2)], tmp_path)[0])
    text, _ = report([run], tmp_path)
    found = Reader(text)
    assert found.tags == plain.tags  # not one element more
    assert "<img" not in text
    assert "<script>alert" not in text
    record = opened(found.scripts, "run0-step2")[-1]
    assert record["error"] == record["turns"][0]["said"] == record["turns"][0]["seen"] == HOSTILE
    assert record["turns"][0]["actions"] == [HOSTILE]
    assert json.loads(found.scripts["head"])["runs"][0]["notes"] == [HOSTILE.replace("\ud800", "")]
    for name, data in found.scripts.items():
        assert name == "code" or data.isascii()
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", found.scripts["run0-step2"])


def test_the_policy_allows_the_pages_own_script_and_style_and_no_network(run, tmp_path):
    found = Reader(report([run], tmp_path)[0])
    digest = base64.b64encode(hashlib.sha256(found.scripts["code"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in found.policy
    assert "default-src 'none'" in found.policy
    assert "connect-src 'none'" in found.policy
    assert "unsafe" not in found.policy
    assert "connect-src 'self'" in Reader("".join(page(None))).policy


def test_a_placeholder_in_the_data_is_data():
    text = "".join(page({"runs": "{{SCRIPT}} <!-- blocks -->"}, [Block("x", packed([1]))]))
    assert json.loads(Reader(text).scripts["head"]) == {"runs": "{{SCRIPT}} <!-- blocks -->"}
    assert opened(Reader(text).scripts, "x") == [1]


def test_no_asset_makes_html_from_strings_or_names_another_place():
    names = {item.name for item in ASSETS.iterdir()}
    assert names == {*SCRIPTS, "page.html", "style.css"}
    for name in names:
        text = (ASSETS / name).read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML", text
        ), name
        places = set(re.findall(r"(?:https?:)?//[a-z][^\s\"')]*\.[a-z]+", text))
        assert places <= {"http://www.w3.org"}, name
        assert text.count("\n") <= 400
        assert "</script" not in text or name == "page.html"


def test_equal_runs_give_equal_pages(maker, tmp_path):
    run = maker.run()
    assert report([run], tmp_path)[0] == report([run], tmp_path)[0]


def test_without_a_tokenizer_tokens_are_shown_by_their_numbers(maker, tmp_path):
    run = maker.run(tokenizer=False)
    (run.path / "config.yaml").write_text(
        (run.path / "config.yaml").read_text().replace("name: tiny", "name: /nowhere/model")
    )
    from ragen.runs.directory import RunDirectory

    scripts = Reader(report([RunDirectory.open(run.path)], tmp_path, all_tokens=True)[0]).scripts
    turn, ids, pieces, *_ = opened(scripts, "run0-step1")[0]["rows"][0][1]
    assert turn == 0
    assert pieces == [f"⟨{i}⟩" for i in ids]
    assert json.loads(scripts["head"])["runs"][0]["notes"] == [NO_TEXT]


def test_runs_are_told_apart(maker, tmp_path):
    scripts = Reader(report([maker.run("one", steps=1), maker.run("two", steps=2)], tmp_path)[0]).scripts
    head = json.loads(scripts["head"])
    assert [run["name"] for run in head["runs"]] == ["one", "two"]
    assert {name for name in scripts if name.startswith("run")} == {
        "run0-index",
        "run0-step1",
        "run1-index",
        "run1-step1",
        "run1-step2",
    }
