"""What a training step hands to the next besides weights and optimiser."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Carried:
    """Stored as JSON in every checkpoint, so that a resumed run goes on as an unbroken one would.

    ``flat_in_row``: how many of the last steps had only flat groups; ``rollbacks``: how often the run has returned to an
    earlier checkpoint because of the Echo Trap. ``return_sum`` and ``return_weight``: their ratio is the running mean of the
    returns trained on (`reinforce`).
    """

    flat_in_row: int = 0
    rollbacks: int = 0
    return_sum: float = 0.0
    return_weight: float = 0.0

    @property
    def mean_return(self) -> float:
        """The running mean; 0 before there is one."""
        return self.return_sum / self.return_weight if self.return_weight else 0.0

    def record(self) -> dict[str, Any]:
        """As it is stored."""
        return asdict(self)

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "Carried":
        """From what ``record`` gave; raises ValueError where a part is missing."""
        missing = [field.name for field in fields(cls) if field.name not in record]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        return cls(**{field.name: record[field.name] for field in fields(cls)})
