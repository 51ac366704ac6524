"""Devices and memory as ONNX Runtime describes them: the CPU alone."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

from limber._errors import InvalidArgument
from limber._limber import version
from limber.compat._enums import (OrtAllocatorType, OrtDeviceMemoryType,
                                  OrtDeviceVendorId, OrtHardwareDeviceType,
                                  OrtMemoryInfoDeviceType, OrtMemType)
from limber.compat._warn import warn_once

CPU = "CPUExecutionProvider"
PROVIDERS = [CPU]
# By the vendor_id in /proc/cpuinfo.
VENDORS = {"GenuineIntel": ("Intel", OrtDeviceVendorId.INTEL),
           "AuthenticAMD": ("AMD", OrtDeviceVendorId.AMD)}


def check_device(name: str) -> None:
    if name.lower().split(":")[0] != "cpu":
        raise InvalidArgument(
            f"Limber has no device '{name}'; it computes in the CPU's memory: "
            "pass 'cpu'")


def provider_name(provider: Any) -> str:
    return str(provider if isinstance(provider, str) else provider[0])


def check_providers(providers: Any) -> None:
    for provider in providers or []:
        if provider_name(provider) not in PROVIDERS:
            warn_once(f"Limber has no {provider_name(provider)}; it runs on "
                      f"{', '.join(PROVIDERS)}")


class OrtDevice:
    """A device; Limber has the CPU only."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0):
        check_device(device_type)
        self._id = device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int,
             vendor_id: int = -1) -> OrtDevice:
        """Returns the CPU; other names are an error."""
        return OrtDevice(ort_device_name, device_id)

    def device_type(self) -> int:
        """Returns 0: the CPU."""
        return 0

    def device_id(self) -> int:
        """Returns the number that the device was made with."""
        return self._id

    def device_mem_type(self) -> int:
        """Returns 0: usual memory."""
        return 0

    def device_vendor_id(self) -> int:
        """Returns 0: no vendor."""
        return 0

    def _get_c_device(self) -> OrtDevice:
        return self


class OrtMemoryInfo:
    """Describes where a tensor is: in the CPU's memory."""

    def __init__(self, name: str, allocator_type: OrtAllocatorType,
                 device_id: int = 0, mem_type: OrtMemType = OrtMemType.DEFAULT,
                 device_mem_type: OrtDeviceMemoryType =
                 OrtDeviceMemoryType.DEFAULT, vendor_id: int = 0):
        self.name = name
        self.allocator_type = allocator_type
        self.device_id = device_id
        self.mem_type = mem_type
        self.device_mem_type = device_mem_type
        self.device_vendor_id = vendor_id

    @staticmethod
    def create_v2(name: str, device_type: OrtMemoryInfoDeviceType,
                  vendor_id: int, device_id: int,
                  device_mem_type: OrtDeviceMemoryType, alignment: int,
                  allocator_type: OrtAllocatorType) -> OrtMemoryInfo:
        """Returns the description; other devices than the CPU are an error."""
        check_device(OrtMemoryInfoDeviceType(device_type).name)
        return OrtMemoryInfo(name, allocator_type, device_id,
                             OrtMemType.DEFAULT, device_mem_type, vendor_id)


def cpu_memory() -> OrtMemoryInfo:
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR)


class OrtArenaCfg:
    """The configuration of an arena, for create_and_register_allocator."""

    FIELDS = ("max_mem", "arena_extend_strategy", "initial_chunk_size_bytes",
              "max_dead_bytes_per_chunk", "initial_growth_chunk_size_bytes",
              "max_power_of_two_extend_bytes")

    def __init__(self, *arguments: Any):
        given = arguments[0] if arguments and isinstance(arguments[0], dict) \
            else dict(zip(self.FIELDS, arguments))
        for name in self.FIELDS:
            setattr(self, name, given.get(name, 0))


class OrtHardwareDevice(NamedTuple):
    """The processor."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: dict[str, str]


class OrtEpDevice:
    """The processor as a device of CPUExecutionProvider."""

    def __init__(self) -> None:
        self.ep_name = CPU
        self.ep_vendor = "Limber"
        self.ep_metadata = {"version": version}
        self.ep_options: dict[str, str] = {}
        self.device = processor()

    def memory_info(self, memory_type: Any = None) -> OrtMemoryInfo:
        """Returns the description of the CPU's memory."""
        return cpu_memory()

    def create_sync_stream(self, options: Any = None) -> None:
        """Returns None: the CPU has no streams."""


def processor() -> OrtHardwareDevice:
    name = ""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("vendor_id"):
                    name = line.split(":")[1].strip()
                    break
    except OSError:
        name = platform.processor()
    vendor, number = VENDORS.get(name, (name, OrtDeviceVendorId.NONE))
    return OrtHardwareDevice(OrtHardwareDeviceType.CPU, vendor, int(number), 0,
                             {})


class OrtEpAssignedNode(NamedTuple):
    """A node of the model file."""

    name: str
    domain: str
    op_type: str


class OrtEpAssignedSubgraph(NamedTuple):
    """Nodes that a provider runs."""

    ep_name: str
    nodes: list[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """Returns the nodes."""
        return self.nodes
