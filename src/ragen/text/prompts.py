"""What the agent is told. Wording is part of the task: ``short`` (each token costs) or ``verbose`` (the paper's style)."""

from collections.abc import Sequence
from dataclasses import dataclass

from ragen.text.parser import ANSWER, END_ANSWER, END_THINK, SEPARATOR, THINK, parse_reply

SHOWN_INVALID = 3  # invalid sub-actions quoted back, and the characters of each: a reply must not flood the next prompt
SHOWN_LENGTH = 20


@dataclass(frozen=True, slots=True)
class Task:
    """What stays the same in all messages of an episode; ``wording`` is "short" or "verbose"."""

    instructions: str
    actions: tuple[str, ...]
    max_turns: int
    max_actions: int
    max_actions_per_turn: int
    thinking: bool
    wording: str

    @property
    def one_action(self) -> bool:
        """Whether a turn never holds more than one action, so that prompts need not speak of separators."""
        return min(self.max_actions, self.max_actions_per_turn) == 1


def first_message(task: Task, observation: str) -> str:
    """The task, its symbols, action words, separator, budgets and format, then the state (an empty one is left out)."""
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
    short wording gives as actions left what the remaining turns allow too.
    """
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


def reply_text(thought: str, actions: Sequence[str], *, thinking: bool) -> str:
    """A demonstration: ``<think>thought</think><answer>A || B</answer>`` (without the thinking if ``thinking`` is False).

    Raises:
        ValueError: the text would not parse back to these actions (a tag in the thought, a separator in an action).
    """
    answer = f"{ANSWER}{f' {SEPARATOR} '.join(actions)}{END_ANSWER}"
    text = f"{THINK}{thought}{END_THINK}{answer}" if thinking else answer
    if parse_reply(text, thinking=thinking).actions != tuple(actions):
        raise ValueError(
            f"the demonstration {text!r} does not parse to {tuple(actions)!r}: keep tags and '||' out of its parts"
        )
    return text


def _form(task: Task) -> str:
    """The format with place-holders, never with real actions: an example would favour them."""
    answer = "action" if task.one_action else f"action {SEPARATOR} action"
    return f"{THINK}why{END_THINK}{ANSWER}{answer}{END_ANSWER}" if task.thinking else f"{ANSWER}{answer}{END_ANSWER}"


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
