"""Reads and formats name maps: JSON objects or Python dicts from old names to new names."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Mapping, Optional

from ... import special_files
from ..checkpoint_files import tensor_names

OldToNew = Mapping[str, Optional[str]]  # names; None leaves a tensor out
GUESS = "guess"  # in place of a file: the name map is guessed
_ARGUMENT = re.compile(r"\s*name_map\s*=\s*")


def as_text(name_map: OldToNew) -> str:
    """Returns a dict of strings as text that is valid JSON and valid Python."""
    return json.dumps(name_map, ensure_ascii=False)


def read_file(path: Optional[str], command: str) -> Any:
    """Reads a name map for a command that cannot guess; returns None if `path` is None."""
    if path == GUESS:
        raise ValueError(f"--name-map guess has no meaning with {command}.")
    return None if path is None else read(path)


def read(path: str) -> Any:
    """Reads a name map from a file with a JSON object or a Python dict; returns `GUESS` for it.

    The dict may follow `name_map=`. A ValueError says that the file cannot be read or is not a name
    map, that a key occurs twice, or that a new name is not allowed.
    """
    if path == GUESS:
        return GUESS
    try:
        special_files.refuse(path, most=special_files.MOST_OF_TEXT)
        with open(path, encoding="utf-8") as file:
            pairs = _parse(file.read())
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        text = str(error) or type(error).__name__
        raise ValueError(f"The name map {path!r} cannot be read: {text}") from error
    is_map = isinstance(pairs, tuple) and all(
        isinstance(old, str) and (new is None or isinstance(new, str)) for old, new in pairs
    )
    if not is_map:
        raise ValueError(
            f"The name map {path!r} must be one object, {{old name: new name or null}}."
        )
    name_map = {}
    for old, new in pairs:
        problem = None if new is None else tensor_names.problem(new)
        if problem is not None:
            raise ValueError(
                f"The name map {path!r} maps {old!r} to {new!r}, but this cannot be a tensor's "
                f"name: it {problem}."
            )
        if old in name_map:
            raise ValueError(f"The name map {path!r} has {old!r} twice.")
        name_map[old] = new
    return name_map


def _parse(text: str) -> Any:
    """Parses a text. A dict becomes a tuple of pairs, so that duplicate keys are not lost."""
    try:
        return json.loads(text, object_pairs_hook=tuple)
    except ValueError as error:
        try:
            node = ast.parse(_ARGUMENT.sub("", text, 1).strip(), mode="eval").body
            if not isinstance(node, ast.Dict):
                raise error
            return tuple(
                # The key of `**x` is None, for which literal_eval raises a ValueError.
                (ast.literal_eval(old), ast.literal_eval(new))  # pyright: ignore[reportArgumentType]
                for old, new in zip(node.keys, node.values)
            )
        except (SyntaxError, ValueError, TypeError):
            raise error from None
