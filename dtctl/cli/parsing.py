"""The parser of the command line: its values, and what it refuses in dtctl's words: the reason, and what to type.

Typer's parser is click, or a copy of it, and its words change from version to version. Its errors are
recognised by their types and fields, never by their text.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from dtctl.errors import UsageError


REFUSAL: type[Exception] = typer.BadParameter.__mro__[1]
"""click's UsageError, or that of the copy which Typer brings along."""

_USUAL = 20
"""A number for examples, where it may be that one."""


def _in_color(ctx: Any, words: str) -> str:
    """The help of a command as its stream may show it."""
    from dtctl.render.terminal.console import colored

    if not colored():
        return words
    from dtctl.cli.helping import colored_help

    ctx.color = True
    return colored_help(words)


class Command(TyperCommand):
    """A command whose mistakes are reported by dtctl itself."""

    def get_help(self, ctx: Any) -> str:
        return _in_color(ctx, super().get_help(ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from dtctl.cli.helping import write_examples

        super().format_epilog(ctx, formatter)
        write_examples(ctx.info_name, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments as they are declared: some versions of Typer put brackets around them, and their types behind."""
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        for one in arguments:
            one.display_type_rich = lambda ctx: None  # type: ignore[attr-defined]
        return ["[OPTIONS]", *map(_metavar, arguments)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_plain_values(self.get_params(ctx), self.callback)
        arguments, takes_more = list(args), ctx.allow_extra_args
        with translated_errors(ctx, arguments):
            ctx.allow_extra_args = True
            try:
                more = super().parse_args(ctx, args)
            finally:
                ctx.allow_extra_args = takes_more
        if more and not takes_more and not ctx.resilient_parsing:
            raise _more_than_it_takes(ctx, more)
        return more


class Group(TyperGroup):
    """The same for `dtctl` itself, and for what is no command."""

    def get_help(self, ctx: Any) -> str:
        return _in_color(ctx, super().get_help(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_plain_values(self.get_params(ctx), self.callback)
        with translated_errors(ctx, list(args)):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise no_command(args, self.list_commands(ctx))
        return super().resolve_command(ctx, args)


@contextmanager
def translated_errors(ctx: Any, arguments: Sequence[str]) -> Iterator[None]:
    """`words` is what follows the command's name. Raises UsageError for what the parser refuses."""
    try:
        yield
    except REFUSAL as error:
        kind = type(error).__name__
        if kind == "NoArgsIsHelpError":
            raise
        message_of = _MESSAGES.get(kind)
        raise (message_of(ctx, arguments, error) if message_of else _unforeseen(ctx, error)) from None


def _error(summary: str, hint: str) -> UsageError:
    from dtctl.errors import UsageError

    return UsageError(summary, hint=hint)


def _help(ctx: Any) -> str:
    shows = "lists the commands" if ctx.parent is None else "shows what it takes"
    return f"{ctx.command_path} -h    {shows}"


def _unforeseen(ctx: Any, error: Any) -> UsageError:
    return _error(error.format_message(), _help(ctx))


def _no_such_option(ctx: Any, arguments: Sequence[str], error: Any) -> UsageError:
    name, own = error.option_name, _names(ctx.command)
    summary = f"{ctx.command_path} has no option {name}"
    if ctx.parent is None and (command := meant_for(ctx.command, name, arguments)):
        return _error(f"{name} is an option of commands, and follows their names", f"for example, dtctl {command}")
    return _error(summary, other_option(name, own) or _help(ctx))


def _bad_use(ctx: Any, arguments: Sequence[str], error: Any) -> UsageError:
    """An option without its value, or a flag with one."""
    option = _option(ctx.command, error.option_name)
    if option is None:
        return _unforeseen(ctx, error)
    if option.is_flag:
        return _error(f"{error.option_name} takes no value", f"write it alone: {ctx.command_path} {error.option_name}")
    return _error(f"{error.option_name} needs a value", f"write {error.option_name} {_metavar(option)}")


def _missing(ctx: Any, arguments: Sequence[str], error: Any) -> UsageError:
    if error.param is None:
        return _unforeseen(ctx, error)
    arguments = [_metavar(param) for param in ctx.command.params if param.param_type_name == "argument"]
    needed = _metavar(error.param)
    return _error(
        f"{ctx.command_path} needs {needed}",
        f"write {' '.join([ctx.command_path, *arguments])}; {ctx.command_path} -h    shows more",
    )


def _bad_value(ctx: Any, arguments: Sequence[str], error: Any) -> UsageError:
    param, value = error.param, getattr(error, "given", None)
    expected = expectation(ctx.command.callback, param.name) if param is not None else None
    name = _typed(param, arguments) if param is not None else None
    if expected is None or name is None or not isinstance(value, str):
        return _unforeseen(ctx, error)
    what, example = expected
    shown = value if value.removeprefix("-").isdecimal() else repr(value)
    return _error(f"{name} is {shown}, expected {what}", f"write, for example, {name} {example}")


def _more_than_it_takes(ctx: Any, more: Sequence[str]) -> UsageError:
    hint = place_for(ctx, more[0], _names(ctx.command)) or _help(ctx)
    return _error(f"{ctx.command_path} does not take {' '.join(map(repr, more))}", hint)


_MESSAGES = {
    "NoSuchOption": _no_such_option,
    "BadOptionUsage": _bad_use,
    "MissingParameter": _missing,
    "BadParameter": _bad_value,
}


def expectation(callback: Any, name: str) -> tuple[str, str] | None:
    """The expected value of a parameter, and an example; None if the parser does not check it."""
    parameters: Mapping[str, Any] = inspect.signature(callback, eval_str=True).parameters
    if name not in parameters or not hasattr(parameters[name].annotation, "__metadata__"):
        return None
    kind, *options = typing.get_args(parameters[name].annotation)
    kinds = (kind, *typing.get_args(kind))  # int | None
    for one in kinds:
        if typing.get_origin(one) is Literal:
            *others, last = typing.get_args(one)
            return f"{', '.join(others)} or {last}", others[0]
    if int not in kinds:
        return None
    least, most = options[0].min, options[0].max
    example = str(min(max(least or 0, _USUAL), most or _USUAL))
    if most is not None:
        return f"a whole number from {least or 0} to {most}", example
    return ("a whole number" if least is None else f"a whole number of {least} or more"), example


def _typed(param: Any, arguments: Sequence[str]) -> str | None:
    """The option as it was typed, in the last of its places."""
    for argument in reversed(arguments[: arguments.index("--")] if "--" in arguments else arguments):
        for name in param.opts:
            short = not name.startswith("--") and not argument.startswith("--")
            if argument.partition("=")[0] == name or (short and argument.startswith(name)):
                return str(name)
    return None


def _names(command: Any) -> list[str]:
    return [name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]


def _option(command: Any, name: str) -> Any:
    return next((one for one in command.params if name in (*one.opts, *one.secondary_opts)), None)


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _habits(kind: str) -> dict[str, str]:
    """Habits from other programs: `commands` or `options` -> dtctl's equivalent; `several` -> a hint."""
    import yaml

    habits: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("habits.yaml").read_text("utf-8"))
    return habits[kind]


def no_command(arguments: Sequence[str], commands: Collection[str]) -> UsageError:
    """`words`: what was typed behind `dtctl`."""
    from dtctl.errors import UsageError, did_you_mean

    argument, *others = arguments
    summary = f"there is no command {argument!r}"
    if argument == "help":
        return UsageError(summary, hint=f"dtctl {' '.join([*others[:1], '-h'])}    shows what it takes")
    if habit := _habits("commands").get(argument):
        return UsageError(summary, hint=f"did you mean this? dtctl {' '.join([habit, *others])}")
    if hint := _habits("several").get(argument):
        return UsageError(summary, hint=hint)
    if argument.endswith((".yaml", ".yml")):
        return UsageError(f"{argument!r} is a file, not a command", hint=f"did you mean this? dtctl up {argument}")
    if ":" in argument or argument.startswith("@"):
        return UsageError(f"{argument!r} is a task, not a command", hint=f"did you mean this? dtctl logs {argument}")
    return UsageError(summary, hint=did_you_mean(argument, commands) or "dtctl -h    lists the commands")


def meant_for(group: Any, option: str, arguments: Sequence[str]) -> str:
    """The right command line if an option comes before its command: `status -c FILE`; "" if no command has it."""
    named = [command for argument in arguments if (command := group.commands.get(argument)) is not None]
    often = (group.commands[name] for name in ("status", "up", "logs", "down"))
    for command in named or (*often, *group.commands.values()):
        if any(option in param.opts for param in command.params):
            rest = [argument for argument in arguments if argument != command.name]
            return " ".join([command.name, *rest])
    return ""


def other_option(name: str, own: Collection[str]) -> str:
    """A hint; empty where nothing is near."""
    from dtctl.errors import did_you_mean

    habit = _habits("options").get(name)
    if habit in own:
        return f"did you mean '{habit}'?"
    if name == "--json" and "--output" in own:
        return "did you mean '-o json'?"
    return did_you_mean(name, [option for option in own if option.startswith("--")])


def place_for(ctx: Any, argument: str, own: Collection[str]) -> str:
    """A hint where an argument belongs that a command does not accept; empty if unknown."""
    if "--config" in own and (argument.endswith((".yaml", ".yml")) or Path(argument).is_file()):
        return f"a cluster file is named by an option: {ctx.command_path} -c {argument}"
    if ":" in argument or argument.startswith("@"):
        takers = [name for name, command in ctx.parent.command.commands.items() if _takes_tasks(command)]
        return f"commands that take tasks: {', '.join(takers)}"
    return ""


def _takes_tasks(command: Any) -> bool:
    return any(one.param_type_name == "argument" and "TASK" in (one.metavar or "") for one in command.params)


_OTHER = object()
"""A value that Typer converts, or refuses."""


def take_plain_values(params: Iterable[Any], command: Callable[..., Any] | None) -> None:
    """Defaults, texts, choices and paths are taken as they are. `command`: the function that has these parameters.

    Typer reads each value through pydantic, which takes longer to import than most commands take.
    """
    for param in params:
        param.process_value = partial(_processed, param, param.process_value, command)


def _processed(param: Any, process: Callable[[Any, Any], Any], command: Any, ctx: Any, value: Any) -> Any:
    plain = _plain(param, command, value)
    if plain is _OTHER:
        try:
            return process(ctx, value)
        except REFUSAL as error:
            error.given = value  # type: ignore[attr-defined]  # the parser's own error has it in its words alone
            raise
    return plain if param.callback is None else param.callback(ctx, param, plain)


def _plain(param: Any, command: Any, value: Any) -> Any:
    several = param.multiple if param.param_type_name == "option" else param.nargs == -1
    if value is None:
        return _OTHER if param.required else () if several else None
    if isinstance(value, str | int) and value is param.default:
        return value
    if several:
        arguments = isinstance(value, list | tuple) and value and _kind(param, command) == list[str]
        return tuple(value) if arguments else _OTHER
    return _of_kind(_kind(param, command), value) if isinstance(value, str) else _OTHER


def _kind(param: Any, command: Any) -> Any:
    """The type of the function's parameter, without None."""
    annotation: Any = inspect.signature(command, eval_str=True).parameters[param.name].annotation
    kind, *_ = typing.get_args(annotation) or (annotation,)
    kinds = [one for one in typing.get_args(kind) if one is not type(None)]
    return kinds[0] if len(kinds) == 1 and typing.get_origin(kind) not in (Literal, list) else kind


def _of_kind(kind: Any, text: str) -> Any:
    if kind is str or (typing.get_origin(kind) is Literal and text in typing.get_args(kind)):
        return text
    return Path(text) if kind is Path and os.access(text, os.R_OK) else _OTHER
