"""What the agent is told. Wording is part of the task: ``short`` (each token costs) or ``verbose`` (the paper's style)."""

from collections.abc import Sequence
from dataclasses import dataclass

from ragen.text.parser import ANSWER, END_ANSWER, END_THINK, SEPARATOR, THINK, parse_reply
from ragen.tools import Tool
from ragen.tools.call import CALL, END_CALL, final_text, read_call

SHOWN_INVALID = 3  # invalid sub-actions quoted back, and the characters of each: a reply must not flood the next prompt
SHOWN_LENGTH = 20


@dataclass(frozen=True, slots=True)
class Task:
    """What stays the same in all messages of an episode; ``wording`` is "short" or "verbose".

    ``tools`` are what the agent may call (None: its actions are words); with ``tools_shown`` the chat template says which.
    """

    instructions: str
    actions: tuple[str, ...]
    max_turns: int
    max_actions: int
    max_actions_per_turn: int
    thinking: bool
    wording: str
    tools: tuple[Tool, ...] | None = None
    tools_shown: bool = False

    @property
    def one_action(self) -> bool:
        """Whether a turn never holds more than one action, so that prompts need not speak of separators."""
        return min(self.max_actions, self.max_actions_per_turn) == 1


def first_message(task: Task, observation: str) -> str:
    """The task, its symbols, action words, separator, budgets and format, then the state (an empty one is left out)."""
    if task.tools is not None:
        shown = () if task.tools_shown else _tool_lines(task.tools)
        return "\n".join(
            filter(None, (task.instructions, *shown, f"Reply: {_call_form(task)}", _call_budget(task), observation))
        )
    if task.wording == "verbose":
        state = f"\n\nTurn 1:\nState:\n{observation}" if observation else ""
        lines = (task.instructions, _verbose_actions(task), _verbose_budget(task), _verbose_format(task))
        return "\n".join(lines) + state
    return "\n".join(filter(None, (task.instructions, _short_actions(task), f"Reply: {_form(task)}", observation)))


def next_message(
    task: Task,
    *,
    reward: float,
    invalid: Sequence[str],
    valid_format: bool,
    observation: str,
    actions_left: int,
    turns_left: int,
) -> str:
    """The last turn's reward, what was invalid if anything, the state, what is left, and the format in short.

    ``invalid`` are the skipped sub-actions; ``valid_format`` False says that the reply held no answer to execute. The
    short wording gives as actions left what the remaining turns allow too. With tools the ``observation`` holds the answers
    of the calls, those that could not be made included; a reward of 0 is not told.
    """
    if task.tools is not None:
        problem = "" if valid_format else f"No call and no answer: use {_call_form(task)}"
        result = " ".join(filter(None, (f"Reward {_number(reward)}." if reward else "", problem)))
        next_step = "call or answer" if task.tools and turns_left > 1 and actions_left > 1 else "answer"
        order = f"Think, then {next_step}." if task.thinking else f"{next_step.capitalize()}."
        return "\n".join(filter(None, (result, observation, f"{_count(turns_left, 'turn')} left. {order}")))
    left = min(actions_left, turns_left * task.max_actions_per_turn)
    problems = [] if valid_format else [f"No valid answer: use {_form(task)}."]
    if invalid:
        problems.append(f"Invalid: {_quoted(invalid)}.")
    if task.wording == "verbose":
        turn = task.max_turns - turns_left + 1
        head = (f"Reward:\n{_number(reward)}", *problems, f"\nTurn {turn}:\nState:\n{observation}")
        tail = f"You have {_count(actions_left, 'action')} and {_count(turns_left, 'turn')} left. {_verbose_format(task)}"
        return "\n".join((*head, tail))
    reminder = "Think, then answer." if task.thinking else "Answer."
    result = " ".join((f"Reward {_number(reward)}.", *problems))
    return "\n".join(filter(None, (result, observation, f"{_count(left, 'action')} left. {reminder}")))


def reply_text(thought: str, actions: Sequence[str], *, thinking: bool, calls: bool = False) -> str:
    """A demonstration: ``<think>thought</think><answer>A || B</answer>`` (without the thinking if ``thinking`` is False).

    With ``calls`` the actions are calls: one ``<tool_call>`` block each, or the ``<answer>`` of a final one.

    Raises:
        ValueError: the text would not parse back to these actions (a tag in the thought, a separator in an action).
    """
    answer = _calls_text(actions) if calls else f"{ANSWER}{f' {SEPARATOR} '.join(actions)}{END_ANSWER}"
    text = f"{THINK}{thought}{END_THINK}{answer}" if thinking else answer
    if parse_reply(text, thinking=thinking, calls=calls).actions != tuple(actions):
        raise ValueError(
            f"the demonstration {text!r} does not parse to {tuple(actions)!r}: keep tags and '||' out of its parts"
        )
    return text


def _form(task: Task) -> str:
    """The format with place-holders, never with real actions: an example would favour them."""
    answer = "action" if task.one_action else f"action {SEPARATOR} action"
    return f"{THINK}why{END_THINK}{ANSWER}{answer}{END_ANSWER}" if task.thinking else f"{ANSWER}{answer}{END_ANSWER}"


def _calls_text(actions: Sequence[str]) -> str:
    answers = [text for action in actions if (text := final_text(read_call(action))) is not None]
    if answers and len(actions) == 1:
        return f"{ANSWER}{answers[0]}{END_ANSWER}"
    return "\n".join(f"{CALL}\n{action}\n{END_CALL}" for action in actions)


def _tool_lines(tools: Sequence[Tool]) -> list[str]:
    """A tool a line, with its arguments, as code has them: a schema in JSON takes several times as many tokens."""
    return ["Tools:", *(tool.summary for tool in tools)] if tools else []


def _call_form(task: Task) -> str:
    """The format of calls and answers with place-holders."""
    thought = f"{THINK}why{END_THINK}" if task.thinking else ""
    answer = f"{thought}{ANSWER}your answer{END_ANSWER}"
    if not task.tools:
        return f"{answer}."
    return f'{thought}{CALL}{{"name": "tool", "arguments": {{"argument": value}}}}{END_CALL}, or to end {answer}.'


def _call_budget(task: Task) -> str:
    if not task.tools:
        return ""
    per_turn = min(task.max_actions, task.max_actions_per_turn)
    calls = "1 call" if per_turn == 1 else f"At most {per_turn} calls"
    total = min(task.max_actions, task.max_turns * per_turn)
    return f"{calls} a turn, {total} in {_count(task.max_turns, 'turn')}, the answer included."


def _short_actions(task: Task) -> str:
    words = ", ".join(task.actions)
    if task.max_actions == 1 or (task.one_action and task.max_turns == 1):
        return f"Choose one: {words}."
    if task.one_action:
        return f"Actions: {words}. 1 a turn, {min(task.max_actions, task.max_turns)} in all."
    per_turn = min(task.max_actions, task.max_actions_per_turn)
    if task.max_turns == 1:
        return f"Actions: {words}. At most {per_turn}."
    total = min(task.max_actions, task.max_turns * per_turn)
    return f"Actions: {words}. At most {per_turn} a turn, {total} in {task.max_turns} turns."


def _verbose_actions(task: Task) -> str:
    words = ", ".join(task.actions)
    if task.one_action:
        return f"Your available actions are:\n{words}\nChoose exactly one action each turn."
    return (
        f"Your available actions are:\n{words}\nYou can make up to {_count(task.max_actions_per_turn, 'action')} each turn, "
        f'separated by the action separator "{SEPARATOR}".'
    )


def _verbose_budget(task: Task) -> str:
    return f"You have {_count(task.max_actions, 'action')} and {_count(task.max_turns, 'turn')} in all."


def _verbose_format(task: Task) -> str:
    answer = f"{ANSWER} [your answer] {END_ANSWER}"
    form = f"{THINK} [Your thoughts] {END_THINK} {answer}" if task.thinking else answer
    return f"Always output: {form} with no extra text. Strictly follow this format."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _number(value: float) -> str:
    return f"{round(value, 3) + 0.0:g}"


def _quoted(texts: Sequence[str]) -> str:
    """A bounded quotation on one line."""
    shown = []
    for text in texts[:SHOWN_INVALID]:
        line = " ".join(text[: 4 * SHOWN_LENGTH].split())
        shown.append(f"{line[:SHOWN_LENGTH]}…" if len(line) > SHOWN_LENGTH or len(text) > 4 * SHOWN_LENGTH else line)
    more = len(texts) - len(shown)
    return ", ".join(f"'{text}'" for text in shown) + (f" and {more} more" if more else "")
