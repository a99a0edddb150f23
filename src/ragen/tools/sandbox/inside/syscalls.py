"""System calls by number: those that a computing Python needs and no other, for the two processors that are known.

The numbers are Linux's own interface (``asm/unistd_64.h``, ``asm-generic/unistd.h``) and never change.
"""

from typing import NamedTuple


class Arch(NamedTuple):
    """``audit``: what the kernel calls the processor; ``special``: calls whose arguments decide; ``allowed``: the others."""

    audit: int
    special: dict[str, int]
    allowed: dict[str, int]


def _numbers(table: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (entry.partition(":") for entry in table.split())}


ARCHES = {
    "x86_64": Arch(
        0xC000003E,
        {"clone": 56, "clone3": 435, "ioctl": 16, "prlimit64": 302},
        _numbers("""
        read:0 write:1 close:3 fstat:5 lstat:6 stat:4 newfstatat:262 statx:332 lseek:8 pread64:17 pwrite64:18 readv:19
        writev:20 preadv:295 pwritev:296 poll:7 ppoll:271 select:23 pselect6:270 mmap:9 mprotect:10 munmap:11 mremap:25
        madvise:28 brk:12 rt_sigaction:13 rt_sigprocmask:14 rt_sigreturn:15 rt_sigpending:127 rt_sigsuspend:130
        rt_sigtimedwait:128 sigaltstack:131 pause:34 access:21 faccessat:269 faccessat2:439 pipe:22 pipe2:293 dup:32
        dup2:33 dup3:292 fcntl:72 flock:73 fsync:74 fdatasync:75 truncate:76 ftruncate:77 fallocate:285 fadvise64:221
        getdents:78 getdents64:217 getcwd:79 chdir:80 fchdir:81 rename:82 renameat:264 renameat2:316 mkdir:83
        mkdirat:258 rmdir:84 creat:85 link:86 linkat:265 unlink:87 unlinkat:263 symlink:88 symlinkat:266 readlink:89
        readlinkat:267 chmod:90 fchmod:91 fchmodat:268 umask:95 utimensat:280 utime:132 utimes:235 open:2 openat:257
        sendfile:40 copy_file_range:326 nanosleep:35 clock_nanosleep:230 clock_gettime:228 clock_getres:229
        gettimeofday:96 time:201 times:100 getrusage:98 uname:63 getpid:39 getppid:110 gettid:186 getuid:102 geteuid:107
        getgid:104 getegid:108 getresuid:118 getresgid:120 getgroups:115 getpgrp:111 getpgid:121 getsid:124 kill:62
        tkill:200 tgkill:234 alarm:37 getitimer:36 setitimer:38 getrandom:318 futex:202 set_robust_list:273
        get_robust_list:274 set_tid_address:218 rseq:334 exit:60 exit_group:231 wait4:61 waitid:247 sched_yield:24
        sched_getaffinity:204 sched_getparam:143 sched_getscheduler:145 sched_get_priority_max:146
        sched_get_priority_min:147 restart_syscall:219 close_range:436 getrlimit:97 getpriority:140 membarrier:324
        getcpu:309 epoll_create:213 epoll_create1:291 epoll_ctl:233 epoll_wait:232 epoll_pwait:281 eventfd:284
        eventfd2:290
        """),
    ),
    "aarch64": Arch(
        0xC00000B7,
        {"clone": 220, "clone3": 435, "ioctl": 29, "prlimit64": 261},
        _numbers("""
        read:63 write:64 close:57 fstat:80 newfstatat:79 statx:291 lseek:62 pread64:67 pwrite64:68 readv:65 writev:66
        preadv:69 pwritev:70 ppoll:73 pselect6:72 mmap:222 mprotect:226 munmap:215 mremap:216 madvise:233 brk:214
        rt_sigaction:134 rt_sigprocmask:135 rt_sigreturn:139 rt_sigpending:136 rt_sigsuspend:133 rt_sigtimedwait:137
        sigaltstack:132 faccessat:48 faccessat2:439 pipe2:59 dup:23 dup3:24 fcntl:25 flock:32 fsync:82 fdatasync:83
        truncate:45 ftruncate:46 fallocate:47 fadvise64:223 getdents64:61 getcwd:17 chdir:49 fchdir:50 renameat:38
        renameat2:276 mkdirat:34 linkat:37 unlinkat:35 symlinkat:36 readlinkat:78 fchmod:52 fchmodat:53 umask:166
        utimensat:88 openat:56 sendfile:71 copy_file_range:285 nanosleep:101 clock_nanosleep:115 clock_gettime:113
        clock_getres:114 gettimeofday:169 times:153 getrusage:165 uname:160 getpid:172 getppid:173 gettid:178 getuid:174
        geteuid:175 getgid:176 getegid:177 getresuid:148 getresgid:150 getgroups:158 getpgid:155 getsid:156 kill:129
        tkill:130 tgkill:131 getitimer:102 setitimer:103 getrandom:278 futex:98 set_robust_list:99 get_robust_list:100
        set_tid_address:96 rseq:293 exit:93 exit_group:94 wait4:260 waitid:95 sched_yield:124 sched_getaffinity:123
        sched_getparam:121 sched_getscheduler:120 sched_get_priority_max:125 sched_get_priority_min:126
        restart_syscall:128 close_range:436 getrlimit:163 getpriority:141 membarrier:283 getcpu:168 epoll_create1:20
        epoll_ctl:21 epoll_pwait:22 eventfd2:19
        """),
    ),
}
