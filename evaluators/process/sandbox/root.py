"""A private root: a file system with the profile's paths and nothing else, read-only except where the profile says.

Built in fresh memory from bind mounts at the same paths; symbolic links on the way are kept. Everything else does not
exist: home folders, credentials, other candidates, /tmp, other processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping

from evaluators.process.sandbox import kernel
from evaluators.process.sandbox.profiles import Profile

NAME = "private root"

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC = 2, 4, 8, 0x1000, 0x4000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MAX_LINKS = 40


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def apply(profile: Profile, active: Mapping[str, str]) -> str:
    """Enter the private root; its folder is the working directory."""
    if "namespaces" not in active:
        raise PermissionError("without a mount namespace there is no private root")
    own = os.open(profile.folder, os.O_PATH | os.O_CLOEXEC)
    old = os.open(".", os.O_PATH | os.O_CLOEXEC)
    new = profile.folder
    umask = os.umask(0o022)  # another user is to pass through the folders made here
    try:
        kernel.mount("ksearch", new, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
        try:
            _lay_out(new, profile, own)
            os.chdir(new)
            kernel.system_call(kernel.PIVOT_ROOT, b".", b".")
        except OSError:
            os.fchdir(old)
            with contextlib.suppress(OSError):
                kernel.detach(new)
            raise
        kernel.detach(".")
        os.chdir("/")
        _make_read_only("/", recursive=False)
        os.chdir(profile.folder)
    finally:
        os.umask(umask)
        os.close(own)
        os.close(old)
    return "private root"


def _lay_out(root: str, profile: Profile, own: int) -> None:
    tree = _Tree(root)
    # Sorted: paths below an existing mount are not mounted again.
    if "/proc" in profile.reads:
        tree.show_processes()
    for path in sorted({os.path.realpath(path) for path in profile.reads}):
        tree.show(path, writable=False)
    tree.show_own_process()
    for path in profile.writes:
        if path == "/dev/shm":  # noqa: S108 - a fresh one
            tree.add_memory(path, "mode=1777", profile)
        else:
            tree.show(os.path.realpath(path), writable=True)
    for path in (*profile.reads, *profile.writes):
        tree.keep_links(path)
    if profile.scratch_bytes:
        tree.add_memory(profile.folder, f"size={profile.scratch_bytes},mode=755", profile)
    else:
        tree.add_folder(profile.folder, own)


class _Tree:
    """The new root while it is built."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._shown: list[str] = []

    def show(self, path: str, *, writable: bool) -> None:
        """Show a path without links at the same path; do nothing if it does not exist."""
        if not os.path.exists(path) or self._is_shown(path):
            return
        target = self._make(path, is_folder=os.path.isdir(path))
        kernel.mount(path, target, None, _MS_BIND | _MS_REC)
        if not writable and not path.startswith("/proc"):
            _make_read_only(target, recursive=True)
        self._shown.append(path)

    def add_memory(self, path: str, options: str, profile: Profile) -> None:
        """Mount fresh memory at a path."""
        target = self._make(path, is_folder=True)
        files = f"nr_inodes={profile.scratch_files}"
        kernel.mount("ksearch", target, "tmpfs", _MS_NOSUID | _MS_NODEV, f"{options},{files}")

    def add_folder(self, path: str, descriptor: int) -> None:
        """Show an open folder, for writing."""
        target = self._make(path, is_folder=True)
        # Not the mounts on it, which are this tree.
        kernel.mount(f"/proc/self/fd/{descriptor}", target, None, _MS_BIND)

    def show_processes(self) -> None:
        """Mount a /proc, if permitted one that shows a user only its own processes."""
        with contextlib.suppress(OSError):
            target = self._make("/proc", is_folder=True)
            kernel.mount("proc", target, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "hidepid=2")
            self._shown.append("/proc")

    def show_own_process(self) -> None:
        """Show this process's own folder of /proc as /proc/self, unless all of /proc is there."""
        if self._is_shown("/proc"):
            return
        target = self._make("/proc/self", is_folder=True)
        kernel.mount(f"/proc/{os.getpid()}", target, None, _MS_BIND | _MS_REC)

    def _is_shown(self, path: str) -> bool:
        return any(path == shown or path.startswith(f"{shown}/") for shown in self._shown)

    def _make(self, path: str, *, is_folder: bool) -> str:
        target = self._root + path
        os.makedirs(target if is_folder else os.path.dirname(target), mode=0o755, exist_ok=True)
        if not is_folder and not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        return target

    def keep_links(self, path: str) -> None:
        """Create the symbolic links of a path in the new root, too."""
        for _ in range(_MAX_LINKS):
            link = _first_link(path)
            if not link:
                break
            target = os.readlink(link)
            if not self._is_shown(link) and not os.path.lexists(self._root + link):
                os.makedirs(os.path.dirname(self._root + link), mode=0o755, exist_ok=True)
                os.symlink(target, self._root + link)
            whole = os.path.join(os.path.dirname(link), target)
            path = os.path.normpath(whole + path[len(link) :])


def _first_link(path: str) -> str:
    at = 0
    while at >= 0:
        at = path.find("/", at + 1)
        part = path if at < 0 else path[:at]
        if os.path.islink(part):
            return part
    return ""


def _make_read_only(path: str, *, recursive: bool) -> None:
    attributes = _MountAttributes(_ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    kernel.system_call(
        kernel.MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, ctypes.sizeof(_MountAttributes)
    )
