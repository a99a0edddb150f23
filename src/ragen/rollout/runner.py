"""One episode, turn by turn: what the policy is shown, what its reply does, and why the episode ends."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from ragen.envs.base import Environment, Step
from ragen.envs.guard import guarded
from ragen.episode import Completion, EndReason, Trajectory, Turn
from ragen.errors import ConfigError, EnvironmentFault, RagenError
from ragen.rewards import Reasoning
from ragen.rollout.answers import answers
from ragen.rollout.contexts import Context, ContextPolicy
from ragen.rollout.shaping import Shaping
from ragen.text.parser import Choice, choose_actions, parse_reply
from ragen.text.prompts import Task, first_message, next_message

EnvironmentFactory = Callable[[], Environment]
NO_CHOICE = Choice((), (), 0, valid=False)
C = TypeVar("C", bound=Context[Any])


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Which episode to play: its place in the collection and the seeds of its three kinds of chance."""

    env: str
    group: int
    member: int
    instance_seed: int
    dynamics_seed: int
    sampling_seed: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The rollout's own rules: budgets in tokens, format, and what history a turn sees.

    ``max_context`` counts the tokens of a segment, the reply included. ``format_penalty`` (≤ 0) is added once to a turn
    without a valid answer. ``shaping`` is what training adds beyond that.
    """

    max_new_tokens: int
    max_context: int
    max_trajectory_tokens: int | None = None
    thinking: bool = True
    format_penalty: float = -0.1
    context: ContextPolicy = field(default_factory=ContextPolicy)
    shaping: Shaping = field(default_factory=Shaping)


@dataclass(frozen=True, slots=True)
class Opened:
    """How an episode begins, as its environment tells it; or the ``fault`` it ended with before it began."""

    observation: str = ""
    task: Task | None = None
    fault: EnvironmentFault | None = None


def opened(env: Environment, spec: EpisodeSpec, *, thinking: bool) -> Opened:
    """Begin an episode in its environment; knows nothing of tokens, so it may run beside others."""
    guard = guarded(env)
    try:
        observation = guard.reset(instance_seed=spec.instance_seed, dynamics_seed=spec.dynamics_seed).text
        task = make_task(guard, thinking=thinking)
        guard.content()  # where it cannot be told, nobody could say whether the instance is held out
    except EnvironmentFault as fault:
        return Opened(fault=fault)
    return Opened(observation, task)


@dataclass(frozen=True, slots=True)
class Acted:
    """What a reply did in the environment; or the ``fault`` that it met, and then only the ``anchor``, if it got so far.

    With tools ``told`` is what the calls were answered, and ``well_formed`` whether the reply made or tried any.
    """

    anchor: str | None = None
    choice: Choice = NO_CHOICE
    reasoning: Reasoning | None = None
    steps: tuple[Step, ...] = ()
    success: bool = False
    told: str | None = None
    well_formed: bool = False
    fault: EnvironmentFault | None = None


class EpisodeRunner(Generic[C]):
    """Plays one episode: sample a reply to ``context``, hand it to ``apply()``, until ``end`` is set.

    ``apply`` is ``act``, which knows only the environment and may run beside other episodes, and ``take``, which does not.

    Faults of the environment (an exception, or an answer that breaks the contract) end the episode with
    ``EndReason.ERROR``: nothing is invented, ``fault`` is kept. So does a first prompt that does not fit into the context.
    """

    def __init__(self, spec: EpisodeSpec, env: Environment, context: C, rules: Rules, begun: Opened | None = None) -> None:
        self.spec, self.env, self.rules = spec, guarded(env), rules
        self.turns: list[Turn] = []
        self.end: EndReason | None = None
        self.fault: RagenError | None = None
        self.actions_used = 0
        self.tokens_used = 0
        self.observation = ""
        self.context = context
        begun = begun or opened(self.env, spec, thinking=rules.thinking)
        if begun.task is None:  # a fault costs this episode only
            self.fail(begun.fault or EnvironmentFault("the episode did not begin"))
            return
        self.task = begun.task
        if self.task.tools:
            self.task = replace(self.task, tools_shown=context.offer(self.task.tools))
        self._question = begun.observation if self.task.tools is not None else ""
        self._state = begun.observation
        self._show(first_message(self.task, begun.observation), begun.observation)

    @property
    def token_budget(self) -> int:
        """Tokens the next reply may have."""
        limit = self.rules.max_trajectory_tokens
        return self.rules.max_new_tokens if limit is None else min(self.rules.max_new_tokens, limit - self.tokens_used)

    def apply(self, completion: Completion) -> None:
        """Execute a reply and set up the next turn, or the end."""
        self.take(completion, self.act(completion))

    def act(self, completion: Completion) -> Acted:
        """Execute a reply in the environment; changes nothing here."""
        settings = self.env.settings
        limit = min(settings.max_actions_per_turn, settings.max_actions - self.actions_used)
        reply = parse_reply(completion.text, thinking=self.rules.thinking, calls=self.task.tools is not None)
        anchor = None
        try:
            anchor = self.env.anchor()
            choice = choose_actions(reply, self.env.match, limit)
            reasoning = self.rules.shaping.reasoning(self.env, reply.thought, self.observation)
            steps = self._execute(choice.actions)
            told = answers(self.env, reply, choice, steps) if self.task.tools is not None else None
            return Acted(anchor, choice, reasoning, tuple(steps), self.env.success, told, bool(reply.actions))
        except EnvironmentFault as fault:
            return Acted(anchor, fault=fault)

    def take(self, completion: Completion, acted: Acted) -> None:
        """Record what a reply did, and set up the next turn, or the end."""
        anchor, choice, steps, told = acted.anchor, acted.choice, acted.steps, acted.told
        if acted.fault is not None:  # as above
            self._record(completion, (), valid=False, steps=[], info={}, anchor=anchor)
            self.fail(acted.fault)
            return
        info = {**(steps[-1].info if steps else {}), "success": acted.success, "ignored_actions": choice.ignored}
        executed = choice.actions[: len(steps)]
        if told is not None:
            self.observation = told
        else:
            self._state = steps[-1].observation if steps else self._state
            self.observation = "\n".join(filter(None, (*(step.told for step in steps), self._state)))
        info["next_observation"] = self.observation
        score = self.rules.shaping.score(acted.reasoning, executed, valid=choice.valid)
        invalid = len(choice.invalid)
        self._record(
            completion, executed, valid=choice.valid, steps=steps, info=info, anchor=anchor, invalid=invalid, score=score
        )
        self._finish(steps)
        if self.end is None:
            if told is None:
                self._next(choice.invalid, valid_format=choice.valid)
            else:  # what could not be called is among the answers
                self._next((), valid_format=acted.well_formed)

    def trajectory(self, policy_version: int) -> Trajectory:
        """The record of the finished episode."""
        if self.end is None:
            raise RuntimeError("the episode has not ended")
        return Trajectory(
            env=self.spec.env,
            instance_seed=self.spec.instance_seed,
            member=self.spec.member,
            turns=tuple(self.turns),
            end=self.end,
            success=bool(self.turns and self.turns[-1].info.get("success", False)),
            policy_version=policy_version,
            error="" if self.fault is None else str(self.fault),
        )

    def _execute(self, actions: Sequence[str]) -> list[Step]:
        steps: list[Step] = []
        for action in actions:
            step = self.env.step(action)
            steps.append(step)
            if step.terminated or step.truncated:
                break
        return steps

    def _record(
        self,
        completion: Completion,
        actions: tuple[str, ...],
        *,
        valid: bool,
        steps: Sequence[Step],
        info: Mapping[str, Any],
        anchor: str | None,
        invalid: int = 0,
        score: float | None = None,
    ) -> None:
        shaping, length = self.rules.shaping, completion.length
        rewards = [step.reward for step in steps]
        reward = math.fsum(rewards)
        self.actions_used += len(actions)
        self.tokens_used += length
        turn = Turn(
            prompt_ids=self.context.prompt_ids,
            extends=self.context.extends,
            completion=completion,
            observation=self.context.shown,
            actions=actions,
            valid=valid,
            reward=reward,
            rounding=math.fsum([*rewards, -reward]),
            penalty=0.0 if valid else self.rules.format_penalty,
            process_reward=shaping.process_coef * (score or 0.0),
            overlong_penalty=shaping.overlong(length, self.rules.max_new_tokens),
            process_score=score,
            invalid_actions=invalid,
            anchor=anchor,
            info={**info, "effective_actions": sum(s.info.get("action_is_effective", True) for s in steps)},
        )
        self.turns.append(turn)
        self.context.replied(completion)

    def _finish(self, steps: Sequence[Step]) -> None:
        settings = self.env.settings
        if steps and steps[-1].terminated:
            self.end = EndReason.TERMINATED
        elif steps and steps[-1].truncated:
            self.end = EndReason.TRUNCATED
        elif len(self.turns) >= settings.max_turns or self.actions_used >= settings.max_actions or self.token_budget < 1:
            self.end = EndReason.BUDGET

    def _next(self, invalid: Sequence[str], *, valid_format: bool) -> None:
        settings = self.env.settings
        turns_left = settings.max_turns - len(self.turns)
        actions_left = settings.max_actions - self.actions_used
        last = self.turns[-1]
        follow_up = next_message(
            self.task,
            reward=last.reward + last.penalty,
            invalid=invalid,
            valid_format=valid_format,
            observation=self.observation,
            actions_left=actions_left,
            turns_left=turns_left,
        )
        left = replace(self.task, max_turns=turns_left, max_actions=actions_left)
        state = "\n".join(filter(None, (self._question, self.observation)))  # with tools an answer means nothing by itself
        self._show(follow_up, self.observation, fresh=first_message(left, state))

    def _show(self, message: str, observation: str, *, fresh: str | None = None) -> None:
        self.observation = observation
        self.context.show(message, fresh=message if fresh is None else fresh)
        needed = self.context.tokens + self.token_budget
        if needed > self.rules.max_context:
            self.overflow(
                f"the first prompt of '{self.spec.env}' has {self.context.tokens} tokens and a reply may have "
                f"{self.token_budget}, which exceeds the context of {self.rules.max_context}: lower "
                "rollout.max_new_tokens, raise rollout.max_context (if it is set), or choose a model with a longer context"
            )

    def overflow(self, reason: str) -> None:
        """End the episode because the coming turn does not fit; where that is the first one, ``reason`` is its fault."""
        if self.turns:
            self.end = EndReason.OVERFLOW
        else:
            self.fail(ConfigError(reason))

    def fail(self, fault: RagenError) -> None:
        """End the episode as one that is not trained on."""
        self.end, self.fault = EndReason.ERROR, fault


def make_task(env: Environment, *, thinking: bool) -> Task:
    """The prompt's view of an environment."""
    settings = env.settings
    return Task(
        instructions=env.instructions(),
        actions=env.forms(),
        max_turns=settings.max_turns,
        max_actions=settings.max_actions,
        max_actions_per_turn=settings.max_actions_per_turn,
        thinking=thinking,
        wording=settings.wording,
        tools=env.tools(),
    )
