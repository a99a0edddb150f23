"""Errors a user can act on: the message names the thing, its value, what is allowed and the next step."""


class RagenError(Exception):
    """Base of every error that is shown without a stack trace."""


class ConfigError(RagenError):
    """A setting is unknown, impossible, or contradicts another one."""


class ModelError(RagenError):
    """A model or tokenizer cannot be found, loaded or used."""


class TemplateError(ModelError):
    """A chat template rewrites history, so a conversation cannot grow by appending tokens."""


class EnvironmentFault(RagenError):
    """An environment raised or broke its contract."""


class SandboxError(RagenError):
    """A program cannot be walled in on this machine, so it was not run."""


class CheckpointError(RagenError):
    """A checkpoint or run directory is missing, incomplete, foreign or in the way."""


class TrainingError(RagenError):
    """Training cannot go on (for example non-finite numbers several steps in a row)."""


def reason(error: Exception) -> str:
    """What went wrong, in words only: the system's errors come with a number and a path in front."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
