"""What the commands write: words for people, which cannot steer a terminal wherever they come from, and data as it is."""

import logging
import sys

from ragen.wording import printable


def tell(text: str) -> None:
    """Words on the output."""
    sys.stdout.write(printable(text))


def complain(text: str) -> None:
    """Words on the error stream."""
    sys.stderr.write(printable(text))


def give(text: str) -> None:
    """JSON, YAML and the like, for programs: every character counts."""
    sys.stdout.write(text)


class PrintableFormatter(logging.Formatter):
    """The message of a log record, as ``complain`` would write it."""

    def format(self, record: logging.LogRecord) -> str:
        """The words of the record."""
        return printable(super().format(record))
