# class: F8,F10,F11,F12,F13,F15,F17
# mechanism: tries every way out while its kernels are recorded, and says by an error which were open
# expect: did_not_build
import os
import signal
import socket
from pathlib import Path


def reads(path):
    return lambda: Path(path).read_bytes()


def makes(folder):
    def attempt():
        path = Path(folder) / "attack-@NONCE@"
        path.write_text("poison")
        path.unlink()

    return attempt


def connects(kind, address):
    def attempt():
        with socket.socket(kind, socket.SOCK_STREAM) as there:
            there.settimeout(1)
            there.connect(address)

    return attempt


def finds_key():
    for process in (os.getpid(), os.getppid(), @JUDGED_BY@):
        try:
            if b"@KEY@" in Path(f"/proc/{process}/environ").read_bytes():
                return
        except OSError:
            continue
    raise OSError("no key")


def survives():
    # Not said to be open: whoever looks for what is left finds it, and nobody waits for its end.
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.alarm(200)
        signal.pause()
    raise OSError


WAYS = {
    "secret": reads("@SECRET@"),
    "other candidate": reads("@STORE@/@OTHER@/kernel.py"),
    "shadow": reads("/etc/shadow"),
    "home": makes("@HOME@"),
    "store": makes("@STORE@"),
    "other's artifact": makes("@STORE@/@OTHER@"),
    "our code": makes("@REPOSITORY@/evaluators/judge"),
    "packages": makes("@SITE@"),
    "key": finds_key,
    "network": connects(socket.AF_INET, ("127.0.0.1", int("@PORT@"))),
    "local socket": connects(socket.AF_UNIX, "@SOCKET@"),
    "signal": lambda: os.kill(@JUDGED_BY@, signal.SIGCONT),
    "memory": lambda: os.close(os.open("/proc/@JUDGED_BY@/mem", os.O_RDWR)),
    "survivor": survives,
}


def ways_open():
    for name, attempt in WAYS.items():
        try:
            attempt()
        except Exception:
            continue
        yield name


class Tried(Exception):
    pass


raise Tried("open: " + (", ".join(ways_open()) or "none"))
