"""The drivers of GPUs. Any call may block forever: see gpus.py for the caller.

NVIDIA's GPUs are read by their management library (nvml.h), AMD's by sysfs (Documentation/gpu/amdgpu/driver-misc.rst,
thermal.rst), in the order of their cards.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from glob import glob

from ..host import machine
from ..records.kinds import made
from ..records.vitals import MOST_GPUS, Gpu, GpuUser, Throttle
from .usage import gpu_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional


_LIBRARY = "libnvidia-ml.so.1"
_PLACES = ("", "/usr/lib/wsl/lib/", "/run/opengl-driver/lib/", "/usr/local/nvidia/lib64/")
"""Directories of the library: the linker's; those of WSL, NixOS, and containers of GKE."""

# nvmlReturn_t
_NO_DRIVER = (9, 12)
_TOO_SMALL = 7
_LOST = (15, 16)
"""The GPU is lost, or needs a reset."""

_SM_CLOCK = 1
_UNCORRECTED, _SINCE_LOADED = 1, 0
_XID_EVENT = 0x8
_NOT_KNOWN = 2**64 - 1
_MOST_USERS = 100
_MOST_EVENTS = 100
"""The most events that are read at once."""
_THROTTLES: Dict[Throttle, int] = {"thermal": 0x60, "power_cap": 0x4, "power_brake": 0x80, "hardware": 0x8}
"""nvmlClocksThrottleReasons"""


class Unavailable(Exception):
    """`problem` as in Gpus; the text is the driver's."""

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(text)
        self.problem = problem


class _Failed(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _User(ctypes.Structure):
    """nvmlProcessInfo_t, from its second version on."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _FirstUser(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong))


_USERS = "nvmlDeviceGetComputeRunningProcesses"


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """NVIDIA's management library. Raises Unavailable without a working driver."""

    def __init__(self) -> None:
        self._library = _load()
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        try:
            self._call("nvmlInit_v2")
            count = ctypes.c_uint()
            self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            self._devices = [self._device(index) for index in range(min(count.value, MOST_GPUS))]
        except _Failed as failed:
            text = (self._library.nvmlErrorString(failed.code) or b"").decode("utf-8", "replace")
            raise Unavailable("no_driver" if failed.code in _NO_DRIVER else "error", text[:4096]) from None
        self._driver = self._text("nvmlSystemGetDriverVersion")
        self._events = ctypes.c_void_p()
        self._xids: Dict[int, int] = {}
        self._await_events()

    def __len__(self) -> int:
        return len(self._devices)

    def busy(self, index: int) -> Optional[float]:
        """The current load."""
        rates = _Utilization()
        try:
            self._call("nvmlDeviceGetUtilizationRates", self._devices[index], ctypes.byref(rates))
        except _Failed:
            return None
        return min(1.0, int(rates.gpu) / 100)

    def look(self, index: int) -> Gpu:
        self._take_events()
        device = self._devices[index]
        memory, known = _Memory(), made(Gpu, index=index, driver=self._driver, xid=self._xids.get(index))
        try:
            if device is not None:
                self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        except _Failed as failed:
            known["lost"] = failed.code in _LOST
        if device is None or known["lost"]:
            return {**known, "lost": True}
        reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", device, kind=ctypes.c_ulonglong) or 0
        ecc = ("nvmlDeviceGetTotalEccErrors", device, _UNCORRECTED, _SINCE_LOADED)
        return {
            **known,
            "name": self._text("nvmlDeviceGetName", device),
            "used_bytes": memory.used,
            "memory_bytes": memory.total,
            "degrees": self._number("nvmlDeviceGetTemperature", device, 0),
            "clock_mhz": self._number("nvmlDeviceGetClockInfo", device, _SM_CLOCK),
            "most_clock_mhz": self._number("nvmlDeviceGetMaxClockInfo", device, _SM_CLOCK),
            "lanes": self._number("nvmlDeviceGetCurrPcieLinkWidth", device),
            "throttled": [reason for reason, bits in _THROTTLES.items() if reasons & bits],
            "ecc_errors": self._number(*ecc, kind=ctypes.c_ulonglong) or 0,
            "users": self._users(device),
        }

    def _device(self, index: int) -> Optional[ctypes.c_void_p]:
        """The handle of a GPU; None for a lost one."""
        device = ctypes.c_void_p()
        try:
            self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        except _Failed as failed:
            if failed.code in _LOST:
                return None
            raise
        return device

    def _users(self, device: ctypes.c_void_p) -> List[GpuUser]:
        names = ((_USERS + version, _User) for version in ("_v3", "_v2"))
        name, record = next((one for one in names if hasattr(self._library, one[0])), (_USERS, _FirstUser))
        count, users = ctypes.c_uint(_MOST_USERS), (record * _MOST_USERS)()
        try:
            self._call(name, device, ctypes.byref(count), users)
        except _Failed as failed:
            if failed.code != _TOO_SMALL:
                return []
        found = users[: min(count.value, _MOST_USERS)]
        return [gpu_user(one.pid, None if one.used == _NOT_KNOWN else one.used) for one in found if one.pid]

    def _await_events(self) -> None:
        with suppress(_Failed):  # some GPUs report none
            self._call("nvmlEventSetCreate", ctypes.byref(self._events))
            for device in filter(None, self._devices):
                kind = ctypes.c_ulonglong(_XID_EVENT)
                with suppress(_Failed):
                    self._call("nvmlDeviceRegisterEvents", device, kind, self._events)

    def _take_events(self) -> None:
        event, numbers = _Event(), {one.value: index for index, one in enumerate(self._devices) if one is not None}
        with suppress(_Failed):  # no further event
            for _ in range(_MOST_EVENTS if self._events else 0):
                self._call("nvmlEventSetWait_v2", self._events, ctypes.byref(event), 0)
                if event.type == _XID_EVENT and event.device in numbers:
                    self._xids[numbers[event.device]] = event.data

    def _text(self, name: str, *where: object) -> str:
        text = ctypes.create_string_buffer(96)
        try:
            self._call(name, *where, text, len(text))
        except _Failed:
            return ""
        return text.value.decode("utf-8", "replace")

    def _number(self, name: str, *where: object, kind: type = ctypes.c_uint) -> Optional[int]:
        """A figure of the driver; None if unknown, as this GPU may not have it."""
        value = kind()
        try:
            self._call(name, *where, ctypes.byref(value))
        except _Failed:
            return None
        return int(value.value)

    def _call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, name, None)
        code = function(*arguments) if function is not None else -1  # an older library
        if code:
            raise _Failed(code)


def _load() -> ctypes.CDLL:
    for place in _PLACES:
        with suppress(OSError):
            return ctypes.CDLL(place + _LIBRARY)
    raise Unavailable("no_driver", "there is no %s" % _LIBRARY)


SYSFS = "/sys"
_VENDOR = "0x1002"


class Amd:
    def __init__(self) -> None:
        cards = [path for path in glob(SYSFS + "/class/drm/card*") if re.search(r"card\d+$", path)]
        devices = [card + "/device" for card in sorted(cards, key=lambda path: int(path.rpartition("card")[2]))]
        self._devices = [device for device in devices if _is_amds(device)][:MOST_GPUS]
        self._driver = machine.text(SYSFS + "/module/amdgpu/version").strip()[:100] or os.uname().release[:100]

    def __len__(self) -> int:
        return len(self._devices)

    def busy(self, index: int) -> Optional[float]:
        """The current load."""
        percent = _number(self._devices[index] + "/gpu_busy_percent")
        return None if percent is None else min(1.0, percent / 100)

    def look(self, index: int) -> Gpu:
        device = self._devices[index]
        used_bytes, memory_bytes = _number(device + "/mem_info_vram_used"), _number(device + "/mem_info_vram_total")
        thousandths, hertz = _monitored(device, "temp1_input"), _monitored(device, "freq1_input")
        return made(
            Gpu,
            index=index,
            name=machine.text(device + "/product_name").strip()[:200] or "AMD GPU",
            driver=self._driver,
            lost=memory_bytes is None,
            used_bytes=used_bytes or 0,
            memory_bytes=memory_bytes or 0,
            degrees=None if thousandths is None else thousandths // 1000,
            clock_mhz=None if hertz is None else hertz // 1_000_000,
            lanes=_number(device + "/current_link_width"),
            users=self._users(device),
        )

    def _users(self, device: str) -> List[GpuUser]:
        """Processes that use ROCm: kfd counts the memory of each process on a GPU."""
        pattern = "%s/class/kfd/kfd/proc/*/vram_%d" % (SYSFS, dict(_kfd_numbers()).get(os.path.realpath(device), -1))
        users = ((os.path.basename(os.path.dirname(path)), _number(path)) for path in sorted(glob(pattern)))
        return [gpu_user(int(pid), used) for pid, used in users if pid.isdigit() and used][:_MOST_USERS]


def _is_amds(device: str) -> bool:
    return machine.text(device + "/vendor").strip() == _VENDOR and os.path.exists(device + "/mem_info_vram_total")


def _number(path: str) -> Optional[int]:
    text = machine.text(path).strip()
    return int(text) if len(text) < 19 and text.isdigit() else None


def _monitored(device: str, name: str) -> Optional[int]:
    return next((value for path in sorted(glob(device + "/hwmon/*/" + name)) for value in [_number(path)]), None)


def _kfd_numbers() -> Iterator[tuple[str, int]]:
    """Devices, and their numbers in kfd (its topology has their render nodes)."""
    for node in glob(SYSFS + "/class/kfd/kfd/topology/nodes/*"):
        minor = re.search(r"^drm_render_minor (\d+)$", machine.text(node + "/properties"), re.MULTILINE)
        number = _number(node + "/gpu_id")
        if minor and number:
            yield os.path.realpath("%s/class/drm/renderD%s/device" % (SYSFS, minor[1])), number
