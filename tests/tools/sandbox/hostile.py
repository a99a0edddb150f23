"""Programs that try to get out. Each prints DONE once it has what it came for; HOST tells it where things are.

``OUTSIDE``: harmless, so that the tests also show that it succeeds where there is no wall. ``AS_ROOT``: the same, where the
tests run as root. ``INSIDE``: would do harm, so it runs in the sandbox only.
"""

from typing import NamedTuple

OUTSIDE, AS_ROOT, INSIDE = "outside", "as root", "inside"

PRELUDE = """
import ctypes, errno, os, sys
LIBC = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    ctypes.set_errno(0)
    done = LIBC.syscall(ctypes.c_long(number), *[a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments])
    return done, ctypes.get_errno()

def reached(number, *arguments):
    # the kernel did it, or looked at the arguments and found them wrong
    done, error = call(number, *arguments)
    if done >= 0 or error not in (errno.EPERM, errno.ENOSYS):
        print("DONE")
"""


class Hostile(NamedTuple):
    where: str
    code: str


PROGRAMS = {
    # the network
    "tcp": Hostile(OUTSIDE, "import socket; socket.create_connection(('127.0.0.1', HOST['port']), 5); print('DONE')"),
    "udp": Hostile(
        OUTSIDE,
        "import socket as s; s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', HOST['port'])); print('DONE')",
    ),
    "ipv6": Hostile(OUTSIDE, "import socket; socket.socket(socket.AF_INET6); print('DONE')"),
    "dns": Hostile(OUTSIDE, "import socket; socket.getaddrinfo('localhost', 80); print('DONE')"),
    "raw socket": Hostile(AS_ROOT, "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('DONE')"),
    "netlink": Hostile(OUTSIDE, "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); print('DONE')"),
    "listen": Hostile(OUTSIDE, "import socket; socket.create_server(('127.0.0.1', 0)); print('DONE')"),
    "unix socket": Hostile(OUTSIDE, "import socket; socket.socket(socket.AF_UNIX).connect(HOST['socket']); print('DONE')"),
    "abstract socket": Hostile(
        OUTSIDE, "import socket; socket.socket(socket.AF_UNIX).connect(HOST['abstract']); print('DONE')"
    ),
    "socket pair": Hostile(OUTSIDE, "import socket; socket.socketpair(); print('DONE')"),
    # files of others
    "shadow": Hostile(AS_ROOT, "open('/etc/shadow').read(); print('DONE')"),
    "passwd": Hostile(OUTSIDE, "open('/etc/passwd').read(); print('DONE')"),
    "secret file": Hostile(OUTSIDE, "print('DONE' if 'CANARY' in open(HOST['secret']).read() else '')"),
    "temporary files of others": Hostile(
        OUTSIDE, "print('DONE' if os.path.basename(HOST['folder']) in os.listdir('/tmp') else '')"
    ),
    "write to a file": Hostile(OUTSIDE, "open(HOST['log'], 'a').write('x'); print('DONE')"),
    "symlink out": Hostile(
        OUTSIDE, "os.symlink(HOST['secret'], 'l'); print('DONE' if 'CANARY' in open('l').read() else '')"
    ),
    "hard link out": Hostile(OUTSIDE, "os.link(HOST['secret'], HOST['secret'] + str(os.getpid())); print('DONE')"),
    "dot dot": Hostile(OUTSIDE, "print('DONE' if 'CANARY' in open('../' * 20 + HOST['secret'][1:]).read() else '')"),
    "the library": Hostile(INSIDE, "open(os.__file__, 'a').write('#'); print('DONE')"),
    "the root directory": Hostile(INSIDE, "open('/x', 'w').write('x'); print('DONE')"),
    "devices": Hostile(OUTSIDE, "print('DONE' if os.listdir('/dev') else '')"),
    "a device of its own": Hostile(AS_ROOT, "os.mknod('n', 0o20600, os.makedev(1, 3)); open('n').read(); print('DONE')"),
    "a pipe of its own": Hostile(OUTSIDE, "os.mkfifo('f'); print('DONE')"),
    "terminal": Hostile(OUTSIDE, "os.openpty(); print('DONE')"),
    "shared memory": Hostile(
        OUTSIDE, "n = f'/dev/shm/x{os.getpid()}'; open(n, 'w').write('x'); os.unlink(n); print('DONE')"
    ),
    "System V memory": Hostile(
        OUTSIDE, "i, _ = call(29, 0, 4096, 0o1600); i >= 0 and call(31, i, 0, 0); print('DONE' if i >= 0 else '')"
    ),
    "memory file": Hostile(OUTSIDE, "os.memfd_create('m'); print('DONE')"),
    "file handle": Hostile(AS_ROOT, "reached(304, -1, 0, 0)"),
    "inherited files": Hostile(
        OUTSIDE,
        "import stat\n"
        "for fd in range(3, 64):\n"
        "    try:\n"
        "        if 'CANARY' in os.pread(fd, 99, 0).decode(): print('DONE')\n"
        "    except OSError: pass",
    ),
    # secrets and other processes
    "keys in the environment": Hostile(OUTSIDE, "print('DONE' if 'CANARY' in str(os.environ) else '')"),
    "environment of the parent": Hostile(
        OUTSIDE, "print('DONE' if b'PATH' in open(f\"/proc/{HOST['victim']}/environ\", 'rb').read() else '')"
    ),
    "own environment in proc": Hostile(OUTSIDE, "open('/proc/self/environ').read(); print('DONE')"),
    "process list": Hostile(OUTSIDE, "print('DONE' if str(HOST['victim']) in os.listdir('/proc') else '')"),
    "memory of another": Hostile(
        OUTSIDE, "d, e = call(310, HOST['victim'], 0, 0, 0, 0, 0); print('DONE' if d == 0 else '')"
    ),
    "memory of the keeper": Hostile(INSIDE, "d, e = call(310, 1, 0, 0, 0, 0, 0); print('DONE' if d == 0 else '')"),
    "ptrace": Hostile(OUTSIDE, "d, e = call(101, 0x4206, HOST['victim'], 0, 0); print('DONE' if d == 0 else '')"),
    "signal to another": Hostile(OUTSIDE, "os.kill(HOST['victim'], 0); print('DONE')"),
    "file of another by pidfd": Hostile(OUTSIDE, "os.pidfd_open(HOST['victim']); print('DONE')"),
    "ragen": Hostile(OUTSIDE, "import ragen; print('DONE')"),
    "packages": Hostile(INSIDE, "sys.path += [HOST['packages']]; import pip; print('DONE')"),
    "name of the machine": Hostile(OUTSIDE, "print('DONE' if os.uname().nodename == HOST['name'] else '')"),
    # more processes
    "fork": Hostile(OUTSIDE, "os.fork() or os._exit(0); os.wait(); print('DONE')"),
    "fork bomb": Hostile(INSIDE, "while True:\n    os.fork(); print('DONE', flush=True)"),
    "daemon": Hostile(
        OUTSIDE, "os.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\nprint('DONE', flush=True)"
    ),
    "vfork": Hostile(OUTSIDE, "import subprocess; subprocess.run(['/bin/true'], check=True); print('DONE')"),
    "spawn": Hostile(OUTSIDE, "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0); print('DONE')"),
    "shell": Hostile(OUTSIDE, "os.execv('/bin/sh', ['sh', '-c', 'echo DONE'])"),
    "its own Python": Hostile(OUTSIDE, "os.execv(sys.executable, [sys.executable, '-c', 'print(\"DONE\")'])"),
    "the loader": Hostile(INSIDE, "os.execv('/lib64/ld-linux-x86-64.so.2', ['ld', '/bin/sh', '-c', 'echo DONE'])"),
    "many threads": Hostile(
        OUTSIDE,
        "import threading\n"
        "go = threading.Event()\n"
        "all = [threading.Thread(target=go.wait, daemon=True) for _ in range(64)]\n"
        "try:\n"
        "    for t in all: t.start()\n"
        "    print('DONE')\n"
        "finally: go.set()",
    ),
    "process group": Hostile(OUTSIDE, "os.fork() and os._exit(0)\nos.setpgid(0, 0); print('DONE')"),
    # privileges
    "root": Hostile(AS_ROOT, "os.setuid(0); print('DONE')"),
    "another user": Hostile(AS_ROOT, "os.setresuid(1000, 1000, 1000); print('DONE')"),
    "groups": Hostile(AS_ROOT, "os.setgroups([0]); print('DONE')"),
    "limits": Hostile(AS_ROOT, "import resource as r; r.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY,) * 2); print('DONE')"),
    "soft limits": Hostile(
        OUTSIDE, "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, r.getrlimit(r.RLIMIT_NOFILE)); print('DONE')"
    ),
    "priority": Hostile(AS_ROOT, "os.nice(-1); print('DONE')"),
    "processors": Hostile(OUTSIDE, "os.sched_setaffinity(0, os.sched_getaffinity(0)); print('DONE')"),
    "namespaces": Hostile(OUTSIDE, "d, e = call(272, 0x10000000 | 0x20000); print('DONE' if d == 0 else '')"),
    "namespaces by clone": Hostile(
        OUTSIDE, "d, e = call(56, 0x10000011, 0, 0, 0, 0)\nd or os._exit(0)\nprint('DONE' if d > 0 else '')"
    ),
    "namespace of another": Hostile(
        AS_ROOT, "d, e = call(308, os.open('/proc/self/ns/net', 0), 0); print('DONE' if d == 0 else '')"
    ),
    "mount": Hostile(
        AS_ROOT, "d, e = call(165, b'none', b'/nowhere', b'tmpfs', 0, 0); print('DONE' if e == errno.ENOENT else '')"
    ),
    "chroot": Hostile(AS_ROOT, "os.chroot('.'); print('DONE')"),
    "pivot_root": Hostile(AS_ROOT, "d, e = call(155, b'/nowhere', b'/'); print('DONE' if e == errno.ENOENT else '')"),
    "capabilities": Hostile(AS_ROOT, "import struct; reached(126, struct.pack('Ii', 0x20080522, 0), bytes(24))"),
    # parts of the kernel that were a way out before
    "io_uring": Hostile(OUTSIDE, "reached(425, 1, 0)"),
    "userfaultfd": Hostile(AS_ROOT, "reached(323, 0)"),
    "keyring": Hostile(OUTSIDE, "reached(250, 0, -3, 0)"),
    "add_key": Hostile(OUTSIDE, "reached(248, 0, 0, 0, 0, 0)"),
    "bpf": Hostile(AS_ROOT, "reached(321, 0, 0, 0)"),
    "perf": Hostile(AS_ROOT, "reached(298, 0, 0, -1, -1, 0)"),
    "kernel module": Hostile(INSIDE, "reached(313, -1, b'', 0)"),
    "reboot": Hostile(AS_ROOT, "reached(169, 0, 0, 0, 0)"),
    "swap": Hostile(AS_ROOT, "reached(167, b'/nowhere', 0)"),
    "clock": Hostile(AS_ROOT, "reached(227, 99, 0)"),
    "clone3": Hostile(OUTSIDE, "d, e = call(435, 0, 0); print('DONE' if e == errno.EINVAL else '')"),
    "personality": Hostile(OUTSIDE, "reached(135, 0xFFFFFFFF)"),
    "landlock": Hostile(OUTSIDE, "reached(444, 0, 0, 1)"),
    "splice": Hostile(OUTSIDE, "reached(278, -1, 0, 0, 0)"),
    "32-bit calls": Hostile(
        OUTSIDE,
        "import mmap\n"
        "m = mmap.mmap(-1, 4096, prot=7)\n"
        "m.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20 (getpid); int 0x80; ret\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "print('DONE' if f() == os.getpid() else '')",
    ),
    "x32 calls": Hostile(INSIDE, "d, e = call(0x40000000 | 39); print('DONE' if d > 0 else '')"),
    # too much
    "memory": Hostile(OUTSIDE, "bytearray(600 * 2**20); print('DONE')"),
    "mapped memory": Hostile(OUTSIDE, "import mmap; mmap.mmap(-1, 600 * 2**20); print('DONE')"),
    "big file": Hostile(OUTSIDE, "open('big', 'wb').truncate(64 * 2**20); print('DONE')"),
    "much data": Hostile(OUTSIDE, "for i in range(40):\n    open(f'd{i}', 'wb').write(bytes(2**20))\nprint('DONE')"),
    "many files": Hostile(OUTSIDE, "for i in range(2000):\n    open(f'm{i}', 'w').close()\nprint('DONE')"),
    "many folders": Hostile(OUTSIDE, "for i in range(2000):\n    os.mkdir(f'f{i}')\nprint('DONE')"),
    "many open files": Hostile(OUTSIDE, "all = [os.open('.', 0) for i in range(200)]; print('DONE')"),
    # against the keeper
    "a made-up report": Hostile(
        INSIDE,
        "for fd in range(3, 4096):\n"
        "    try:\n"
        "        os.write(fd, b'{\"fault\": \"x\"}'); print('DONE')\n"
        "    except OSError: pass",
    ),
    "words of the launcher": Hostile(
        INSIDE,
        "f = sys._getframe()\n"
        "while f:\n"
        "    if 'CAN' 'ARY' in repr(f.f_globals) + repr(f.f_locals): print('DONE')\n"
        "    f = f.f_back",
    ),
}
