"""How modules appear in `state_dict`: shared parts under one name, positive numbers fixed or learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from torch import nn

__all__ = ["fixed_or_learned", "name_once"]

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


def fixed_or_learned(state: dict[str, Any], prefix: str, log: str, learned: bool) -> None:
    """Let the value of a fixed number start a learned one, kept as its logarithm under the name `log`, or a learned
    value be fixed."""
    own, other = (f"{prefix}{name}" for name in ((log, "fixed") if learned else ("fixed", log)))
    if own not in state and other in state:
        value = state.pop(other)
        state[own] = value.log() if learned else value.exp()
