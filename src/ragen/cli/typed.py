"""What a person types at a prompt, read with good will: as the reply it means, or as a near miss that costs nothing.

A line that holds the tags of a reply is taken as it is, as an agent's would be.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ragen.text.parser import ANSWER, END_ANSWER, END_THINK, SEPARATOR, THINK, named_actions
from ragen.tools.call import CALL, END_CALL, FINAL, CallError, final_text, read_call

if TYPE_CHECKING:
    from ragen.envs import Environment
    from ragen.tools import Tool

CLOSE = 0.75  # likeness from which a word counts as a slip of the pen
ASIDE = ("help", "?", "quit", "exit", "q")  # what a person may say to the program instead of playing
FREE = "zq"  # a text that no label has: where it may stand in an action's brackets, any words may
EXAMPLES, LABELS = 3, 60  # actions that are told, of many and of a page


@dataclass(frozen=True, slots=True)
class Typed:
    """The ``reply`` that a line means; where it is None nothing is played, and ``problem`` says why and what to type."""

    reply: str | None
    problem: str = ""


def understood(line: str, env: "Environment", *, thinking: bool) -> Typed:
    """What a line means in this state of an environment."""
    if any(tag in line for tag in (ANSWER, END_THINK, CALL)):
        return Typed(line)
    tools, aside = env.tools(), line.strip().casefold() in ASIDE
    if tools is not None:
        typed = _called(line, tools, how_to(env), thinking=thinking)
        return Typed(None, f"Ctrl-D leaves; {how_to(env)}") if aside and typed.reply is None else typed
    if aside and env.match(line) is None:  # as it stands: where any words may be searched for, these still are none
        return Typed(None, f"Ctrl-D leaves; {possible(env)}")
    parts = [_action(part.strip(), env) for part in line.split(SEPARATOR)]
    problem = "; ".join(part.problem for part in parts if part.reply is None)
    return Typed(None, problem) if problem else Typed(_tagged(f" {SEPARATOR} ".join(p.reply or "" for p in parts), thinking))


def how_to(env: "Environment") -> str:
    """How a person answers here, with an example of this state."""
    tools, words = env.tools(), env.examples()
    if tools is not None:
        said = [spoken(word, tools) for word in reversed(words)]
        shown = {each.partition(" ")[0]: each for each in said}
        named = [*(shown.get(tool.name, f"{tool.name} …") for tool in tools), shown.get(FINAL, f"{FINAL} …")]
        return f"Type {' or '.join(f'`{each}`' for each in named)}, without tags"
    several = _per_turn(env) > 1 and len(words) > 1
    more = f", or several as `{f' {SEPARATOR} '.join(words[:2])}`" if several else ""
    form = _forms_here(env)
    bare = ", or only what stands in its brackets" if "[" in form else ""
    return f"Type {form or 'an action'}, such as `{words[-1 if bare else 0]}`{bare}{more}, without tags"


def possible(env: "Environment") -> str:
    """The actions of this state in words: all of them, or some where there are too many or any text will do."""
    words, forms = env.actions(), env.forms()
    if tuple(forms) == tuple(words):
        return f"the actions are: {', '.join(words)}"
    if any(env.match(f"{verb}[{FREE}]") is not None for verb in _verbs(words)):
        return f"here you type {_forms_here(env)}, such as {words[-1]}"
    if _verbs(forms):
        shown = (f"[{word.partition('[')[2]}" for word in words[:LABELS])
        return f"here you {' or '.join(_verbs(words))} {' '.join(shown)}{' …' if len(words) > LABELS else ''}"
    return f"here you type {', '.join(forms)}, such as {', '.join(words[:EXAMPLES])}"


def spoken(call: str, tools: "Sequence[Tool]" = ()) -> str:
    """How a person types a call: the tool's name and its only text, or its arguments as JSON; ``answer TEXT``.

    One of ``tools`` with several arguments takes the text of ``Tool.sole`` alone.

    >>> spoken('{"name": "calculator", "arguments": {"expression": "2 + 3"}}')
    'calculator 2 + 3'
    """
    try:
        read = read_call(call)
        said = final_text(read)
    except CallError:
        return call
    values = list(read.arguments.values())
    alone = all(tool.sole in read.arguments for tool in tools if tool.name == read.name)
    only = values[0] if alone and len(values) == 1 and isinstance(values[0], str) and values[0][:1] != "{" else None
    told = said or only or json.dumps(dict(read.arguments), ensure_ascii=False)
    return f"{read.name} {' '.join(told.split())}"


def _tagged(answer: str, thinking: bool) -> str:
    """An answer's text as a reply: the person's thoughts stay their own."""
    return f"{f'{THINK}{END_THINK}' if thinking else ''}{ANSWER}{answer}{END_ANSWER}"


def _called(line: str, tools: "Sequence[Tool]", how: str, *, thinking: bool) -> Typed:
    """``NAME ARGUMENTS`` as a call, ``answer TEXT`` as the final answer."""
    thought = f"{THINK}{END_THINK}" if thinking else ""
    said, _, rest = line.strip().partition(" ")
    known, rest = {tool.name: tool for tool in tools}, rest.strip()
    names = (*known, FINAL)
    name = next((each for each in names if each.casefold() == said.rstrip(":").casefold()), None)
    if said.startswith("{"):
        return Typed(f"{thought}{CALL}{line.strip()}{END_CALL}")
    if name is None:
        close = _close(said, names)
        return Typed(None, f"'{_short(said)}' is no tool{f', did you mean `{close}`?' if close else '.'} {how}")
    if name == FINAL:
        return Typed(_tagged(rest, thinking)) if rest else Typed(None, f"`{FINAL}` needs the answer behind it. {how}")
    if problem := _unsaid(known[name], rest):
        return Typed(None, f"{problem} {how}")
    return Typed(f"{thought}{CALL}{known[name].typed(rest)}{END_CALL}")


def _unsaid(tool: "Tool", rest: str) -> str:
    """Why what stands behind a tool's name cannot be its arguments: one is missing, or it is not told which one it is."""
    if rest.startswith("{") or (tool.sole is not None if rest else not tool.required):
        return ""
    if rest and not tool.parameters["properties"]:
        return f"`{tool.name}` takes nothing behind it."
    values = ", ".join(f'"{name}": …' for name in tool.required or tool.parameters["properties"])
    return f"`{tool.name}` needs {f'JSON, {{{values}}},' if tool.sole is None else f'its {tool.sole}'} behind it."


def _action(part: str, env: "Environment") -> Typed:
    """One action: as it is matched, completed by what a form has around it, or a near miss. Others stay as typed."""
    if not part or env.match(part) is not None:
        return Typed(part)
    verbs = _verbs(env.forms())
    if verbs:
        return _bracketed(part, env, verbs)
    words = env.actions()
    listed = named_actions(part, words, env.match)
    if len(listed) > 1 and _bare("".join(listed)) == _bare(part):
        several = f"'{_short(part)}': several actions are typed as `{f' {SEPARATOR} '.join(listed)}`"
        return Typed(
            None, several if _per_turn(env) > 1 else f"'{_short(part)}': one action a turn here, such as `{listed[0]}`"
        )
    close = env.match(" ".join(part)) if len(part) <= max(map(len, words)) else None
    if env.forms() == words:
        close = close or _close(part, words)
    return Typed(None, f"'{_short(part)}' is no action, did you mean `{close}`?") if close else Typed(part)


def _bracketed(part: str, env: "Environment", verbs: Sequence[str]) -> Typed:
    """An action of a form such as ``click[label]``: the brackets may be left out, and the verb as well."""
    words = env.actions()
    here = _verbs(words)
    said = re.match(rf"({'|'.join(map(re.escape, verbs))})\b\s*:?(.*)", part, re.IGNORECASE | re.DOTALL)
    verb, rest = (said[1].casefold(), said[2].strip()) if said else ("", part)
    bare = rest.strip("[]() ")
    if verb and not bare:
        return Typed(None, f"`{verb}` needs what to {verb}: {possible(env)}")
    tries = [f"{each}[{text}]" for each in ((verb,) if verb else here) for text in (bare, rest)]
    tries += [f"{verb}[{part}]"] if verb in here else []  # a label that begins with the verb
    if found := next(filter(None, map(env.match, tries)), None):
        return Typed(found)
    labels = {word.partition("[")[2].removesuffix("]"): word for word in words}
    if verb and verb not in here:
        return Typed(None, f"there is nothing to {verb} on this page: {possible(env)}")
    close = _close(bare, tuple(labels))
    return Typed(None, f"'{_short(bare)}' is not on this page, did you mean `{labels[close]}`?") if close else Typed(part)


def _close(said: str, words: Sequence[str]) -> str | None:
    """The word that a slip of the pen stands for: the only one that begins so, or one that is nearly equal."""
    folded = {word.casefold(): word for word in words}
    text = said.casefold()[: 2 * max(map(len, folded), default=0)]
    begun = [word for key, word in folded.items() if text and key.startswith(text)]
    close = get_close_matches(text, list(folded), n=1, cutoff=CLOSE)
    return begun[0] if len(begun) == 1 else folded[close[0]] if close else None


def _bare(text: str) -> str:
    """A list of actions without what may stand between them."""
    return "".join(re.split(r"[\s,;|→.]+|[-=]>", text.casefold()))


def _per_turn(env: "Environment") -> int:
    return min(env.settings.max_actions, env.settings.max_actions_per_turn)


def _verbs(forms: Sequence[str]) -> list[str]:
    """The words in front of the brackets of forms or actions, each once."""
    return list(dict.fromkeys(form.partition("[")[0] for form in forms if form.endswith("]") and "[" in form[1:]))


def _forms_here(env: "Environment") -> str:
    """The forms that this state has actions of; empty where actions are words."""
    return " or ".join(_fitting(env.forms(), _verbs(env.actions()))) if env.forms() != env.actions() else ""


def _fitting(forms: Sequence[str], here: Sequence[str]) -> Iterator[str]:
    return (form for form in forms if not here or form.partition("[")[0] in here)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
