"""How modules appear in `state_dict`: shared parts under one name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from torch import nn

__all__ = ["name_once"]

Module = TypeVar("Module", bound=nn.Module)


def name_once(module: Module) -> Module:
    """Give every shared part of a module, such as the curvature, a single name in `state_dict`.

    Formats such as safetensors refuse a tensor under two names. A state with all the names, as older files have it,
    still loads.
    """
    module.register_state_dict_post_hook(_drop_aliases)
    module.register_load_state_dict_pre_hook(_restore_aliases)
    return module


def _shared(module: nn.Module, prefix: str) -> Iterator[list[str]]:
    """The names under which each shared part is held, with a dot at the end."""
    names: dict[int, list[str]] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        names.setdefault(id(part), []).append(f"{prefix}{name}.")
    return (group for group in names.values() if len(group) > 1)


def _drop_aliases(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    aliases = tuple(alias for _, *rest in _shared(module, prefix) for alias in rest)
    for key in [key for key in state if key.startswith(aliases)]:
        del state[key]


def _restore_aliases(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for group in _shared(module, prefix):
        held = [(name, key) for name in group for key in state if key.startswith(name)]
        for name, key in held:
            for alias in group:
                state.setdefault(alias + key.removeprefix(name), state[key])
