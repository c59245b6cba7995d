"""The types of the environment contract."""
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class EnvironmentName:
    """The name of an environment: a Python identifier."""
    value: str

    def __post_init__(self):
        if not self.value.isidentifier():
            raise ValueError(f"Invalid environment name: {self.value}")


@dataclass(frozen=True)
class CommandText:
    """The text of a command."""
    value: str


@dataclass(frozen=True)
class CommandResponse:
    """The result of a command."""
    output: str
    success: bool


@dataclass(frozen=True)
class ScreenSection:
    """An environment's part of the screen."""
    content: str
    max_lines: int = 50


class Environment(Protocol):
    """The interface of an environment; `shutdown` is optional."""

    def handle_command(self, cmd: CommandText) -> CommandResponse: ...

    def get_screen(self) -> ScreenSection: ...
