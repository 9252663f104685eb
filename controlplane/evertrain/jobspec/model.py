"""The YAML form of a job specification: which fields there are and of which type. Limits are in check.

Reads the tree of :mod:`evertrain.jobspec.document`, whose scalars are text as
it was written; each type here says what text it takes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator
from pydantic_core import PydanticCustomError

from evertrain.contract import jobspec as contract
from evertrain.contract.adapter import CheckpointAdapter, SaveKind
from evertrain.jobspec.document import Scalar
from evertrain.jobspec.units import UnitError, parse_duration, parse_size

_WHOLE_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?(e-?[0-9]{1,2})?")
AUTO: Final = -1
"""What ``every_steps: auto`` reads as; no number of steps is."""
_DEFAULT: Final = contract.JobSpec(name="")
_SETTLE_S: Final = CheckpointAdapter(pattern="").settle_s


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("spec", "{message}", {"message": message})


def _scalar(value: object, expected: str) -> Scalar:
    match value:
        case Scalar(empty=True):
            raise _wrong(f"has no value; give {expected} or remove the field")
        case Scalar():
            return value
        case _:
            raise _wrong(f"expected {expected}, got {'a list' if isinstance(value, list) else 'fields'}")


def _text(value: object) -> str:
    return _scalar(value, "text").text


def _env_text(value: object) -> str:
    if isinstance(value, Scalar) and value.empty:
        raise _wrong("has no value; write '' for an empty one")
    return _text(value)


def _whole_number(value: object) -> int:
    scalar = _scalar(value, "a whole number")
    if scalar.quoted and _WHOLE_NUMBER.fullmatch(scalar.text):
        raise _wrong(f"expected a whole number, got the text {scalar.text!r}; remove the quotes")
    if not _WHOLE_NUMBER.fullmatch(scalar.text):
        raise _wrong(f"expected a whole number, got {scalar.text[:40]!r}")
    return int(scalar.text)


def _steps(value: object) -> int:
    return AUTO if isinstance(value, Scalar) and value.text == "auto" and not value.quoted else _whole_number(value)


def _nodes_or_auto(value: object) -> int:
    return 0 if isinstance(value, Scalar) and value.text == "auto" and not value.quoted else _whole_number(value)


def _number(value: object) -> float:
    scalar = _scalar(value, "a number")
    if scalar.quoted or not _NUMBER.fullmatch(scalar.text):
        raise _wrong(f"expected a number such as 0.001, got {scalar.text[:40]!r}")
    return float(scalar.text)


def _truth(value: object) -> bool:
    scalar = _scalar(value, "true or false")
    if scalar.quoted or scalar.text not in ("true", "false"):
        raise _wrong(f"expected true or false, got {scalar.text[:40]!r}")
    return scalar.text == "true"


def _unit(parse: Callable[[str], float], expected: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        text = _scalar(value, expected).text
        try:
            return parse(text)
        except UnitError as err:
            raise _wrong(f"{text[:40]!r}: {err}") from err

    return read


def _items(value: object) -> object:
    match value:
        case list():
            return value
        case Scalar(empty=False, text=text):
            raise _wrong(f"expected a list, such as [{', '.join(_words(text))}]")
        case _:
            raise _wrong("expected a list; write [] for an empty one")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text[:80]) or ["item"]
    except ValueError:
        return [text[:80]]


def _fields(value: object) -> object:
    if isinstance(value, Mapping | BaseModel):
        return value
    raise _wrong("expected fields, each on a line of its own" if not isinstance(value, list) else "expected fields")


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
EnvText: TypeAlias = Annotated[str, BeforeValidator(_env_text)]
WholeNumber: TypeAlias = Annotated[int, BeforeValidator(_whole_number)]
Steps: TypeAlias = Annotated[int, BeforeValidator(_steps)]
NodesOrAuto: TypeAlias = Annotated[int, BeforeValidator(_nodes_or_auto)]
Number: TypeAlias = Annotated[float, BeforeValidator(_number)]
Truth: TypeAlias = Annotated[bool, BeforeValidator(_truth)]
Size: TypeAlias = Annotated[int, BeforeValidator(_unit(parse_size, "a size such as 64MiB"))]
Duration: TypeAlias = Annotated[float, BeforeValidator(_unit(parse_duration, "a duration such as 10s"))]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_items)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _must_be_fields(cls, value: object) -> object:
        return _fields(value)


class NodesModel(_Fields):
    """``nodes``: a range, or one number for both of its ends."""

    min: WholeNumber
    max: WholeNumber
    multiple_of: WholeNumber = _DEFAULT.nodes.multiple_of

    @model_validator(mode="before")
    @classmethod
    def _one_number_is_both(cls, value: object) -> object:
        if isinstance(value, Scalar):
            number = Scalar(text=str(_whole_number(value)))
            return {"min": number, "max": number}
        return value


class AdapterModel(_Fields):
    """``checkpoint.adapter``."""

    kind: Text = SaveKind.TORCH_SAVE.value
    pattern: Text
    step_key: Text = ""
    marker: Text = ""
    require: Texts = ()
    settle: Duration = _SETTLE_S

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in list(SaveKind):
            raise _wrong(f"expected one of {', '.join(SaveKind)}, got {value[:40]!r}")
        return value

    def to_contract(self) -> CheckpointAdapter:
        """The same in the form that every component carries."""
        return CheckpointAdapter(
            kind=SaveKind(self.kind),
            pattern=self.pattern,
            step_key=self.step_key,
            marker=self.marker,
            require=self.require,
            settle_s=self.settle,
        )


class DrillModel(_Fields):
    """``checkpoint.drill``."""

    every: Duration = _DEFAULT.checkpoint.drill.every_s
    steps: WholeNumber = _DEFAULT.checkpoint.drill.steps
    tolerance: Number = _DEFAULT.checkpoint.drill.tolerance
    nodes: NodesOrAuto = _DEFAULT.checkpoint.drill.nodes

    def to_contract(self) -> contract.DrillPolicy:
        """The same in the form that every component carries."""
        return contract.DrillPolicy(every_s=self.every, steps=self.steps, tolerance=self.tolerance, nodes=self.nodes)


class CheckpointModel(_Fields):
    """``checkpoint``."""

    dir: Text = _DEFAULT.checkpoint.dir
    every_steps: Steps = _DEFAULT.checkpoint.every_steps
    every: Duration = _DEFAULT.checkpoint.every_s
    keep_last: WholeNumber = _DEFAULT.checkpoint.keep
    keep_every_steps: WholeNumber = _DEFAULT.checkpoint.keep_every_steps
    keep_proven: WholeNumber = _DEFAULT.checkpoint.keep_proven
    exposed_max: Duration = _DEFAULT.checkpoint.exposed_max_s
    reshard: Truth = not _DEFAULT.checkpoint.fixed_size
    memory_every_steps: Steps = _DEFAULT.checkpoint.memory_every_steps
    peer_copies: Truth = _DEFAULT.checkpoint.peer_copies
    adapter: AdapterModel | None = None
    drill: DrillModel = DrillModel.model_construct()

    @model_validator(mode="before")
    @classmethod
    def _keep_is_keep_last(cls, value: object) -> object:
        """``keep`` was its name when it was the only one."""
        if isinstance(value, Mapping) and "keep" in value and "keep_last" not in value:
            return {("keep_last" if name == "keep" else name): each for name, each in value.items()}
        return value

    def to_contract(self) -> contract.CheckpointPolicy:
        """The same in the form that every component carries."""
        return contract.CheckpointPolicy(
            dir=self.dir,
            every_steps=0 if self.every_steps == AUTO else self.every_steps,
            auto=self.every_steps == AUTO,
            every_s=self.every,
            keep=self.keep_last,
            keep_every_steps=self.keep_every_steps,
            keep_proven=self.keep_proven,
            exposed_max_s=self.exposed_max,
            fixed_size=not self.reshard,
            memory_every_steps=0 if self.memory_every_steps == AUTO else self.memory_every_steps,
            memory_auto=self.memory_every_steps == AUTO,
            peer_copies=self.peer_copies,
            adapter=None if self.adapter is None else self.adapter.to_contract(),
            drill=self.drill.to_contract(),
        )


class ReproducibleModel(_Fields):
    """``reproducible``: true, false, or how many microbatches a step has."""

    microbatches: WholeNumber = 0
    """0: as many as the largest gang has workers."""
    wanted: bool = False

    @model_validator(mode="before")
    @classmethod
    def _a_word_or_fields(cls, value: object) -> object:
        if isinstance(value, Scalar):
            return {"wanted": _truth(value)}
        fields = _fields(value)
        if isinstance(fields, Mapping) and "wanted" in fields:
            raise _wrong("expected true, false, or {microbatches: NUMBER}")
        return {**fields, "wanted": True} if isinstance(fields, Mapping) else fields


class RetryModel(_Fields):
    """``retry``."""

    max_failures: WholeNumber = _DEFAULT.retry.max_failures
    max_without_progress: WholeNumber = _DEFAULT.retry.max_without_progress


class LogsModel(_Fields):
    """``logs``."""

    bytes_max: Size = _DEFAULT.logs.bytes_max
    files_max: WholeNumber = _DEFAULT.logs.files_max


class JobModel(_Fields):
    """A whole specification file."""

    name: Text
    script: Text = ""
    args: Texts = ()
    command: Texts = ()
    python: Text = ""
    workdir: Text = ""
    env: dict[str, EnvText] = {}
    preload: Texts = ()
    nodes: NodesModel = NodesModel.model_construct(min=_DEFAULT.nodes.min, max=_DEFAULT.nodes.max)
    nproc_per_node: WholeNumber = _DEFAULT.nproc_per_node
    devices_per_worker: WholeNumber = _DEFAULT.devices_per_worker
    checkpoint: CheckpointModel = CheckpointModel.model_construct()
    reproducible: ReproducibleModel = ReproducibleModel.model_construct()
    retry: RetryModel = RetryModel.model_construct()
    logs: LogsModel = LogsModel.model_construct()
    stop_grace: Duration = _DEFAULT.stop_grace_s
    prepare_timeout: Duration = _DEFAULT.prepare_timeout_s

    def to_contract(self) -> contract.JobSpec:
        """The same in the form that every component carries; paths as they were written."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name not in ("nodes", "checkpoint", "reproducible", "retry", "logs", "stop_grace", "prepare_timeout")
        }
        microbatches = self.reproducible.microbatches or self.nodes.max * self.nproc_per_node
        return contract.JobSpec(
            **given,
            reproducible_microbatches=microbatches if self.reproducible.wanted else 0,
            nodes=contract.NodeRange(**self.nodes.model_dump()),
            checkpoint=self.checkpoint.to_contract(),
            retry=contract.RetryPolicy(**self.retry.model_dump()),
            logs=contract.LogPolicy(**self.logs.model_dump()),
            stop_grace_s=self.stop_grace,
            prepare_timeout_s=self.prepare_timeout,
        )


def field_names(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """Names of the fields that a mapping at ``path`` may have; empty where any name goes."""
    kind: Any = model
    for part in path:
        kind = kind.model_fields[part].annotation
        kind = next((each for each in get_args(kind) if each is not NoneType), kind)
    return list(kind.model_fields)
