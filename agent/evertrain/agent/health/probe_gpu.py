"""Asks the driver (NVML) about each GPU, or reads what it answered from a file. In a probe process; judges nothing.

What a GPU or driver does not support is left out of the reading. NVML's field
230 is the recovery action; DCGM has another number space.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

FILE: Final = "nvml.json"
"""Below the root: what NVML answered, for the source ``file``."""
PROCESSES_MAX: Final = 64
RECOVERY_ACTION: Final = 230
MEMORY_TEMPERATURE: Final = 82
NVLINK_CRC_ERRORS: Final = 38
CORRUPTED_INFOROM, LOST, RESET_REQUIRED, MISMATCH, UNKNOWN_ERROR = 14, 15, 16, 18, 999
_TELLING: Final = frozenset({LOST, RESET_REQUIRED, UNKNOWN_ERROR})
"""Errors that say something of the GPU; others say that a figure cannot be had."""


class _Failed(Exception):
    """A GPU answered with an error that speaks for itself."""

    def __init__(self, code: int, says: str) -> None:
        super().__init__(says)
        self.code = code


class Gpus:
    """Keeps the library open between readings; opening it takes a second on a large node."""

    def __init__(self) -> None:
        self._nvml: Nvml | None = None

    def read(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One look at all GPUs."""
        if request["source"] == "file":
            recorded: dict[str, Any] = json.loads((Path(request["root"]) / FILE).read_text())
            return recorded
        try:
            import pynvml
        except ImportError:
            return {"unseen": "the Python package nvidia-ml-py is not installed: pip install 'evertrain[gpu]'"}
        if self._nvml is None:
            self._nvml = Nvml(pynvml)
        try:
            return self._nvml.read()
        except pynvml.NVMLError as err:
            self._nvml = None
            return {"error": int(err.value), "unseen": f"NVML: {err}"}


class Nvml:
    """The driver's library."""

    def __init__(self, library: Any) -> None:
        assert isinstance(library, ModuleType) or library is not None, "pynvml, or what answers like it"
        self._lib = library
        self._handles: dict[int, Any] = {}
        self._events: Any = None
        self._open = False

    def read(self) -> dict[str, Any]:
        lib = self._lib
        if not self._open:
            lib.nvmlInit()
            self._open = True
        gpus = [self._gpu(index) for index in range(lib.nvmlDeviceGetCount())]
        return {
            "driver": lib.nvmlSystemGetDriverVersion(),
            "gpus": gpus,
            "xids": self._xids(),
        }

    def _gpu(self, index: int) -> dict[str, Any]:
        lib, found = self._lib, dict[str, Any](index=index)
        try:
            handle = self._handle(index)
            found["pci"] = lib.nvmlDeviceGetPciInfo(handle).busId
            found["uuid"] = lib.nvmlDeviceGetUUID(handle)
            for part in (self._verdict, self._memory, self._speed, self._links, self._load):
                part(handle, found)
        except _Failed as err:
            found |= {"error": err.code, "says": str(err)}
        except lib.NVMLError as err:
            found |= {"error": int(err.value), "says": str(err)}
        if "error" in found:
            self._handles.pop(index, None)
        return found

    def _handle(self, index: int) -> Any:
        if index not in self._handles:
            self._handles[index] = self._lib.nvmlDeviceGetHandleByIndex(index)
            self._watch(self._handles[index])
        return self._handles[index]

    def _ask(self, name: str, *arguments: Any) -> Any:
        """One figure; None where it cannot be had. Raises :class:`_Failed` for an error that is about the GPU."""
        function: Callable[..., Any] | None = getattr(self._lib, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._lib.NVMLError as err:
            if int(err.value) in _TELLING:
                raise _Failed(int(err.value), str(err)) from err
            return None

    def _fields(self, handle: Any, *numbers: int) -> dict[int, int]:
        """Values of field numbers, those the GPU has."""
        values = self._ask("nvmlDeviceGetFieldValues", handle, list(numbers)) or ()
        return {each.fieldId: _of_field(each) for each in values if each.nvmlReturn == 0}

    def _verdict(self, handle: Any, found: dict[str, Any]) -> None:
        fields = self._fields(handle, RECOVERY_ACTION, MEMORY_TEMPERATURE, NVLINK_CRC_ERRORS)
        found["recovery_action"] = fields.get(RECOVERY_ACTION)
        found["memory_temperature_c"] = fields.get(MEMORY_TEMPERATURE)
        found["nvlink_errors"] = fields.get(NVLINK_CRC_ERRORS)

    def _memory(self, handle: Any, found: dict[str, Any]) -> None:
        lib = self._lib
        for name, bit in (("corrected", 0), ("uncorrected", 1)):
            found[f"ecc_{name}"] = self._ask("nvmlDeviceGetTotalEccErrors", handle, bit, 0)
        if (kind := getattr(lib, "c_nvmlEccSramErrorStatus_v1_t", None)) is not None:
            status = kind()
            if self._ask("nvmlDeviceGetSramEccErrorStatus", handle, ctypes.byref(status)) == 0:
                found["sram_threshold_exceeded"] = bool(status.bThresholdExceeded)
        rows = self._ask("nvmlDeviceGetRemappedRows", handle)
        if rows is not None:
            names = ("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed")
            found |= dict(zip(names, map(int, rows), strict=True))
        for name, cause in (("retired_single_bit", 0), ("retired_double_bit", 1)):
            pages = self._ask("nvmlDeviceGetRetiredPages", handle, cause)
            found[name] = None if pages is None else len(pages)
        found["retired_pending"] = self._ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)
        found["inforom_valid"] = self._inforom(handle)

    def _inforom(self, handle: Any) -> bool | None:
        """Whether the InfoROM's checksum fits; None where it cannot be asked."""
        try:
            self._lib.nvmlDeviceValidateInforom(handle)
        except (self._lib.NVMLError, AttributeError) as err:
            return False if getattr(err, "value", 0) == CORRUPTED_INFOROM else None
        return True

    def _speed(self, handle: Any, found: dict[str, Any]) -> None:
        found["throttle"] = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        found["clock_mhz"] = self._ask("nvmlDeviceGetClockInfo", handle, 1)  # of the multiprocessors
        found["temperature_c"] = self._ask("nvmlDeviceGetTemperature", handle, 0)
        found["power_mw"] = self._ask("nvmlDeviceGetPowerUsage", handle)
        found["pcie_width"] = self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle)
        found["pcie_width_max"] = self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        found["pcie_generation"] = self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle)
        found["pcie_generation_max"] = self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
        found["pcie_replays"] = self._ask("nvmlDeviceGetPcieReplayCounter", handle)

    def _links(self, handle: Any, found: dict[str, Any]) -> None:
        states = [
            self._ask("nvmlDeviceGetNvLinkState", handle, link)
            for link in range(getattr(self._lib, "NVML_NVLINK_MAX_LINKS", 18))
        ]
        if any(each is not None for each in states):
            found["nvlink_active"] = sum(1 for each in states if each)
        kind = getattr(self._lib, "c_nvmlGpuFabricInfo_v2_t", None)
        if kind is not None:
            fabric = kind()
            if self._ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(fabric)) == 0:
                found["fabric_state"], found["fabric_status"] = int(fabric.state), int(fabric.status)
                found["fabric_health"] = int(fabric.healthMask)

    def _load(self, handle: Any, found: dict[str, Any]) -> None:
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        found["busy_percent"] = None if rates is None else rates.gpu
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        found["memory_used"] = None if memory is None else memory.used
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if processes is not None:
            found["processes"] = [each.pid for each in processes[:PROCESSES_MAX]]
            # Inside a container NVML names processes by the numbers of another name space.
            found["processes_seen"] = [pid for pid in found["processes"] if os.path.exists(f"/proc/{pid}")]

    # -- events -----------------------------------------------------------------------

    def _watch(self, handle: Any) -> None:
        lib = self._lib
        try:
            self._events = self._events or lib.nvmlEventSetCreate()
            mask = lib.nvmlEventTypeXidCriticalError & lib.nvmlDeviceGetSupportedEventTypes(handle)
            if mask:
                lib.nvmlDeviceRegisterEvents(handle, mask, self._events)
        except lib.NVMLError:
            return  # the kernel log tells the same, and more

    def _xids(self) -> list[dict[str, Any]]:
        """Xid events since the last reading: for nodes whose kernel log cannot be read."""
        found: list[dict[str, Any]] = []
        while self._events is not None and len(found) < PROCESSES_MAX:
            try:
                event = self._lib.nvmlEventSetWait_v2(self._events, 0)
                address = self._lib.nvmlDeviceGetPciInfo(event.device).busId
            except self._lib.NVMLError:
                break
            found.append({"pci": address, "xid": int(event.eventData)})
        return found


def _of_field(value: Any) -> int:
    """A field's value as an integer, whatever it is kept as."""
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return int(getattr(value.value, kinds[value.valueType] if value.valueType < len(kinds) else "ullVal"))
