"""Needs of each kind of process: one profile per kind. Everything that is not listed here is taken away.

- `run`: calls a shared library. No exec, no fork, no network; reads the system's libraries and the build product.
- `run_interpreted`: the same for Python programs under Triton's interpreter; also reads the installed packages.
- `run_cuda`: sees the GPU. Exec is possible until `seal`, for compilers that Triton starts.
- `build`: runs compilers. Exec and fork, no network, no GPU; writes in its folder only.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence

_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/sys/vm",
    "/proc/sys/kernel",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)
"""Of /etc and /proc only the files that libraries read: no shadow passwords, no other process."""
_GPU_READS = ("/proc", "/sys", "/etc/vulkan", "/etc/nvidia", "/run/nvidia-persistenced")
_GPU_DEVICES = (("/dev", "nvidia"), ("/dev/nvidia-caps", "nvidia"), ("/dev/dri", "render"))
"""Folders, and the prefixes of the names."""
_OUR_PACKAGES = frozenset({"actors", "evaluators", "ksearch_async", "messages"})
"""Not readable for candidates, since they contain the bundled problems."""
OUR_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
"""Folder from which our packages are imported."""
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
_SCRATCH_BYTES = 64 << 20
_GPU_SCRATCH_BYTES = 512 << 20
"""Space for compilers' temporary files."""
_COMPILERS = ("gcc", "clang", "cc", "c++")
_SCRATCH_FILES = 4096


class Profile:
    """The rights of a process."""

    def __init__(
        self,
        name: str,
        *,
        folder: str,
        needs: tuple[str, ...],
        libraries: tuple[str, ...] = (),
        system: tuple[str, ...] = _SYSTEM,
        lists: tuple[str, ...] = (),
        writes: tuple[str, ...] = ("/dev/null",),
        memory_bytes: int = 0,
        file_bytes: int = 0,
        cpu_s: int = 0,
        processes: int = 0,
        open_files: int = 0,
        scratch_bytes: int = 0,
        may_start_processes: bool = False,
        sealed_later: bool = False,
        keeps_cores: bool = False,
    ) -> None:
        """Make a profile.

        `needs` and `libraries` are readable besides the system's files; folders in `lists` may be listed, not read.
        Limits of 0 mean none. With `scratch_bytes` the folder is fresh memory of this size, if the host allows it.
        `sealed_later`: system calls are removed by `seal` only; `keeps_cores`: threads stay on the cores that another
        process binds them to.
        """
        self.name = name
        self.folder = os.path.realpath(folder)
        self.needs = _existing(needs)
        self.libraries = _existing((*_interpreter(), *_library_folders(), *libraries))
        self.reads = (*system, *self.libraries, *self.needs)
        self.lists = lists
        self.writes = writes
        self.memory_bytes = memory_bytes
        self.file_bytes = file_bytes
        self.cpu_s = cpu_s
        self.processes = processes
        self.open_files = open_files
        self.scratch_bytes = scratch_bytes
        self.scratch_files = _SCRATCH_FILES
        self.may_start_processes = may_start_processes
        self.sealed_later = sealed_later
        self.keeps_cores = keeps_cores


def run(
    folder: str, *, reads: tuple[str, ...], memory_bytes: int, file_bytes: int, keeps_cores: bool = False
) -> Profile:
    """Return the profile of a process that calls a shared library."""
    return Profile(
        "run",
        folder=folder,
        needs=reads,
        memory_bytes=memory_bytes,
        file_bytes=file_bytes,
        processes=1024,
        open_files=256,
        scratch_bytes=_SCRATCH_BYTES,
        keeps_cores=keeps_cores,
    )


def run_interpreted(
    folder: str, *, reads: tuple[str, ...], memory_bytes: int, file_bytes: int, keeps_cores: bool = False
) -> Profile:
    """Return the profile of a process that runs a Python program with the packages of this interpreter."""
    return Profile(
        "run_interpreted",
        folder=folder,
        needs=reads,
        libraries=packages(),
        memory_bytes=memory_bytes,
        file_bytes=file_bytes,
        processes=1024,
        open_files=1024,
        scratch_bytes=_SCRATCH_BYTES,
        keeps_cores=keeps_cores,
    )


def run_cuda(folder: str, *, reads: tuple[str, ...], writes: tuple[str, ...] = (), file_bytes: int) -> Profile:
    """Return the profile of a process that uses a GPU. Its address space has no limit.

    The driver reserves far more addresses than it uses.
    """
    return Profile(
        "run_cuda",
        folder=folder,
        needs=reads,
        libraries=(*packages(), *compilers()),
        system=(*_SYSTEM, *_GPU_READS),
        # CUDA names its threads in its own folder of /proc. Shared memory is the driver's, private if possible.
        writes=("/dev/null", "/dev/shm", "/proc/self", *gpu_devices(), *writes),  # noqa: S108
        file_bytes=file_bytes,
        processes=4096,
        open_files=4096,
        scratch_bytes=_GPU_SCRATCH_BYTES,
        may_start_processes=True,
        sealed_later=True,
    )


def build(folder: str, *, reads: tuple[str, ...]) -> Profile:
    """Return the profile of compilers. Their limits are set by the guard that starts them."""
    return Profile(
        "build",
        folder=folder,
        needs=reads,
        system=(*_SYSTEM, "/proc"),
        lists=(OUR_FOLDER,),
        processes=512,
        may_start_processes=True,
    )


def readable_by(command: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that a command of ours reads besides system files: arguments and folders of programs."""
    named = [text for part in command for text in (part, part[2:], part.partition("=")[2])]
    found = [path for path in named if path.startswith("/") and os.path.exists(path)]
    programs = [path for path in found if os.path.isfile(path) and os.access(path, os.X_OK)]
    found += [_installation(path) for path in programs]
    if command[0] == sys.executable:
        own = [os.path.join(OUR_FOLDER, name) for name in sorted(_OUR_PACKAGES)]
        found += [os.path.join(sys.prefix, "pyvenv.cfg"), *packages(), *own]
    return tuple(found)


def _installation(program: str) -> str:
    """Return the folder that a program was installed to; its own folder if that would be a home."""
    folder = os.path.dirname(os.path.realpath(program))
    whole = os.path.dirname(folder)
    home = os.path.expanduser("~")
    is_home = whole == os.path.join(home, ".local") or f"{home}/".startswith(f"{whole.rstrip('/')}/")
    return folder if is_home or os.path.basename(folder) != "bin" else whole


@functools.cache
def packages() -> tuple[str, ...]:
    """Return the installed packages that this process can import, without our own. Asked once per process."""
    found: list[str] = []
    for folder in sys.path:
        if not os.path.isdir(folder) or os.path.basename(folder) not in _PACKAGE_FOLDERS:
            continue
        names = os.listdir(folder)
        if _OUR_PACKAGES.isdisjoint(names):
            found.append(folder)
        else:
            found += [os.path.join(folder, name) for name in names if name not in _OUR_PACKAGES]
    return tuple(found)


@functools.cache
def compilers() -> tuple[str, ...]:
    """Return the paths of the host's C compilers, which Triton starts for launchers of kernels. Cached per process."""
    import shutil  # noqa: PLC0415 - needed for GPUs only, and every evaluation pays for imports

    named = (os.environ.get("CC", ""), *_COMPILERS)
    found = [path for name in named if name and (path := shutil.which(name))]
    return readable_by(found) if found else ()


def gpu_devices() -> tuple[str, ...]:
    """Return the device files of this host's GPUs."""
    found: list[str] = []
    for folder, beginning in _GPU_DEVICES:
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        found += [os.path.join(folder, name) for name in names if name.startswith(beginning)]
    return tuple(found)


def _existing(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if os.path.exists(path))


def _interpreter() -> tuple[str, ...]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [os.path.join(sys.base_prefix, "lib", name) for name in (version, f"{version}/lib-dynload")]
    return tuple(found)


def _library_folders() -> tuple[str, ...]:
    return tuple(path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(path))
