"""The kernel's calls that Python has no function for, by ctypes; a call that fails is a Fault that names it."""

import ctypes
import errno
import os
import struct

from .syscalls import Arch

LIBC = ctypes.CDLL(None, use_errno=True)

NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC = 1, 2, 4, 8  # MOUNT_ATTR_*
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442  # the same on every processor
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_SET_DEATH_SIGNAL, _SET_DUMPABLE, _DROP_BOUND, _SET_SECCOMP, _NO_NEW_PRIVILEGES, _AMBIENT = 1, 4, 24, 22, 38, 47
_AMBIENT_CLEAR, _SECCOMP_FILTER = 4, 2
_CAPABILITY_VERSION = 0x20080522

_THREAD = 0x100 | 0x800 | 0x10000  # CLONE_VM | CLONE_SIGHAND | CLONE_THREAD
_NAMESPACES = 0x7E020000  # every CLONE_NEW* that clone() knows
_TERMINAL_QUERIES = (0x5401, 0x5413, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONCLEX, FIOCLEX
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE, _UNKNOWN = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _PROCESSOR, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; each argument has 8 bytes

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


class Fault(Exception):
    """A wall could not be built: which, and what the kernel said."""


def _checked(what: str, result: int) -> int:
    if result < 0:
        raise Fault(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def unshare(what: str, flags: int) -> None:
    """Leave the namespaces of these flags for new ones."""
    _checked(what, LIBC.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """``mount(2)``."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _checked(f"mount {target}", LIBC.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]))


def seal(path: str, attributes: int, *, recursive: bool = True) -> None:
    """Set mount attributes, on every mount below as well; they can only be added to what an outer mount has."""
    request = struct.pack("=QQQQ", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    result = LIBC.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR), _AT_FDCWD, os.fsencode(path), flags, request, ctypes.c_size_t(len(request))
    )
    _checked(f"mount_setattr {path}", result)


def pivot_into(path: str) -> None:
    """Make ``path`` the root directory and let go of the old one."""
    os.chdir(path)
    _checked("pivot_root", LIBC.syscall(ctypes.c_long(_SYS_PIVOT_ROOT[os.uname().machine]), b".", b"."))
    _checked("umount of the old root", LIBC.umount2(b".", MNT_DETACH))
    os.chdir("/")


def name_host(name: str) -> None:
    """Give the machine, as this namespace sees it, another name."""
    _checked("sethostname", LIBC.sethostname(name.encode(), ctypes.c_size_t(len(name))))


def _prctl(what: str, option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(what, LIBC.prctl(ctypes.c_int(option), *padded))


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that started this process ends."""
    _prctl("PR_SET_PDEATHSIG", _SET_DEATH_SIGNAL, 9)
    if os.getppid() != parent:
        raise Fault("the process that asked for the sandbox has ended")


def bar_capabilities() -> None:
    """No capability can be had again by executing a file; needs one itself, so it comes before the others are dropped."""
    for number in range(64):
        if LIBC.prctl(ctypes.c_int(_DROP_BOUND), ctypes.c_ulong(number), 0, 0, 0) and ctypes.get_errno() != errno.EINVAL:
            raise Fault(f"capability {number} cannot be dropped: {os.strerror(ctypes.get_errno())}")
    _prctl("PR_SET_NO_NEW_PRIVS", _NO_NEW_PRIVILEGES, 1)


def drop_capabilities() -> None:
    """Give up every capability; a Fault if one is left."""
    _prctl("PR_CAP_AMBIENT", _AMBIENT, _AMBIENT_CLEAR)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _checked("capset", LIBC.capset(header, bytes(24)))
    left = ctypes.create_string_buffer(24)
    _checked("capget", LIBC.capget(header, left))
    if any(left.raw):
        raise Fault("capabilities are left after all were given up")
    _prctl("PR_SET_DUMPABLE", _SET_DUMPABLE, 0)


def install_filter(arch: Arch) -> None:
    """From here on only the system calls of ``arch`` are answered, in this thread and those it starts."""
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in filter_program(arch))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    request = ctypes.create_string_buffer(header, len(header))
    _prctl("PR_SET_SECCOMP", _SET_SECCOMP, _SECCOMP_FILTER, ctypes.addressof(request))


def filter_program(arch: Arch) -> list[Instruction]:
    """The filter, in the kernel's packet-filter language: what is not allowed gets EPERM.

    ``clone`` makes threads only, never a process: so the limits of one process are those of the whole program. ``clone3``
    is unknown (its flags lie in memory, where no filter sees them): the C library then takes ``clone``. ``ioctl`` answers
    whether a file is a terminal; ``prlimit64`` reads a limit of the own process and sets none.
    """
    special = arch.special
    program = [(_LOAD, 0, 0, _PROCESSOR), (_EQUAL, 1, 0, arch.audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    program += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE)]  # x86's x32 calls
    for number in sorted(arch.allowed.values()):
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    program += [(_EQUAL, 0, 1, special["clone3"]), (_RETURN, 0, 0, _UNKNOWN)]
    flags = [(_LOAD, 0, 0, _ARGUMENTS), (_AND, 0, 0, _THREAD | _NAMESPACES), (_EQUAL, 0, 1, _THREAD)]
    program += _when(special["clone"], [*flags, (_RETURN, 0, 0, _ALLOW)])
    queries = [step for query in _TERMINAL_QUERIES for step in ((_EQUAL, 0, 1, query), (_RETURN, 0, 0, _ALLOW))]
    program += _when(special["ioctl"], [(_LOAD, 0, 0, _ARGUMENTS + 8), *queries])
    program += _when(special["prlimit64"], [*_zero(0), *_zero(2), *_zero(2, high=4), (_RETURN, 0, 0, _ALLOW)])
    return [*program, (_RETURN, 0, 0, _REFUSE)]


def _when(number: int, block: list[Instruction]) -> list[Instruction]:
    """``block``, then a refusal, for the system call ``number``; others go on behind it with the number loaded."""
    return [(_EQUAL, 0, len(block) + 1, number), *block, (_RETURN, 0, 0, _REFUSE)]


def _zero(argument: int, high: int = 0) -> list[Instruction]:
    """Refuse unless half of an argument is 0."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument + high), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _REFUSE)]
