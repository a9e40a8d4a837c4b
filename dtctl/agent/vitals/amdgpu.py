"""AMD's GPUs by sysfs (Documentation/gpu/amdgpu/driver-misc.rst, thermal.rst), in the order of their cards."""

from __future__ import annotations

import os
import re
from glob import glob

from ..host import machine
from ..records.kinds import made
from ..records.vitals import MOST_GPUS, Gpu
from .usage import gpu_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional

    from ..records.vitals import GpuUser

SYSFS = "/sys"
_VENDOR = "0x1002"
_MOST_USERS = 100


class Amd:
    def __init__(self) -> None:
        cards = [path for path in glob(SYSFS + "/class/drm/card*") if re.search(r"card\d+$", path)]
        devices = [card + "/device" for card in sorted(cards, key=lambda path: int(path.rpartition("card")[2]))]
        self._devices = [device for device in devices if _is_amds(device)][:MOST_GPUS]
        self._driver = machine.text(SYSFS + "/module/amdgpu/version").strip()[:100] or os.uname().release[:100]

    def __len__(self) -> int:
        return len(self._devices)

    def busy(self, index: int) -> Optional[float]:
        """At this moment."""
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
        """Of ROCm: kfd counts what each process has in a GPU's memory."""
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
    """Devices, and the numbers that kfd knows them by (its topology has their render nodes)."""
    for node in glob(SYSFS + "/class/kfd/kfd/topology/nodes/*"):
        minor = re.search(r"^drm_render_minor (\d+)$", machine.text(node + "/properties"), re.MULTILINE)
        number = _number(node + "/gpu_id")
        if minor and number:
            yield os.path.realpath("%s/class/drm/renderD%s/device" % (SYSFS, minor[1])), number
