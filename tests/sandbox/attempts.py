"""What a command could try against its sandbox, as data: run as a program inside of one, it tries all of it.

    python attempts.py WORLD.json        tries everything; prints one JSON object: what became of each
    python attempts.py --table           prints the table of docs/sandbox.md

Only the standard library: the Python of the sandbox has nothing else. An attempt is a function that returns if it
succeeded and raises OSError if it was refused. Each runs in a process of its own, against victims of its own, which
`test_attempts.py` makes. What would harm the machine is only begun: a device is opened, not written to.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

REFUSED, POSSIBLE = "refused", "possible"
NOT_FOR_ROOT = "possible, but not for root"  # whose processes outside have more capabilities than it
PATIENCE_S = 20
_X86 = os.uname().machine == "x86_64"
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class World:
    """What is outside, and where. Every attempt has files of its own there."""

    def __init__(self, said: dict[str, Any], name: str) -> None:
        self.said = said
        self.here = f"{said['outside']}/{name}"  # a directory with `file` and `empty/`
        self.file = f"{self.here}/file"
        self.home, self.project, self.state = said["home"], said["project"], said["state"]
        self.pid: int = said["pid"]

    @property
    def own(self) -> str:
        """A directory that can be written to."""
        path = f"{os.environ.get('TMPDIR', '/tmp')}/own-{os.getpid()}"
        os.makedirs(path, exist_ok=True)
        return path

    def sock(self, name: str) -> str:
        return str(self.said["sockets"][name])


class Attempt(NamedTuple):
    name: str
    group: str
    what: str
    run: Callable[[World], object]
    bubblewrap: str
    landlock: str
    control: str
    """Whether it succeeds without a sandbox: yes, root (for root alone), or no (it is not tried, or depends)."""

    def expected(self, kind: str) -> str:
        found = self.bubblewrap if kind == "bubblewrap" else self.landlock
        return (REFUSED if os.geteuid() == 0 else POSSIBLE) if found == NOT_FOR_ROOT else found


ATTEMPTS: dict[str, Attempt] = {}
_group = [""]


def attempt(what: str, bubblewrap: str = REFUSED, landlock: str = REFUSED, control: str = "yes") -> Any:
    def added(run: Callable[[World], object]) -> Callable[[World], object]:
        name = run.__name__.strip("_")
        assert name not in ATTEMPTS, name
        ATTEMPTS[name] = Attempt(name, _group[0], what, run, bubblewrap, landlock, control)
        return run

    return added


def group(name: str) -> None:
    _group[0] = name


def put(path: str, data: str = "evil", flags: int = os.O_WRONLY) -> None:
    fd = os.open(path, flags, 0o644)
    try:
        os.write(fd, data.encode())
    finally:
        os.close(fd)


def create(path: str) -> None:
    put(path, flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def syscall(x86: int, arm: int, *args: object) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in args]
    return checked(_libc.syscall(ctypes.c_long(x86 if _X86 else arm), *words))


def open_any(flags: int, *paths: str) -> None:
    """Open one of these; refused if none can be."""
    last = OSError(errno.ENOENT, "there is none")
    for path in paths:
        try:
            os.close(os.open(path, flags, 0o644))
            return
        except OSError as error:
            last = error
    raise last


def expect(so: bool, why: str) -> None:
    """What is not as it would be if the attempt had succeeded counts as refused."""
    if not so:
        raise OSError(errno.EPERM, why)


# --- files -------------------------------------------------------------------------------

group("files outside")


@attempt("create a file")
def create_file(w: World) -> None:
    create(f"{w.here}/new")


@attempt("overwrite a file")
def overwrite(w: World) -> None:
    put(w.file)


@attempt("append to a file")
def append(w: World) -> None:
    put(w.file, flags=os.O_WRONLY | os.O_APPEND)


@attempt("empty a file by opening it")
def open_truncate(w: World) -> None:
    os.close(os.open(w.file, os.O_WRONLY | os.O_TRUNC))


@attempt("empty a file that is open for reading, by O_TRUNC alone")
def read_truncate(w: World) -> None:
    os.close(os.open(w.file, os.O_RDONLY | os.O_TRUNC))


@attempt("truncate a file by its path")
def truncate(w: World) -> None:
    os.truncate(w.file, 0)


@attempt("remove a file")
def unlink(w: World) -> None:
    os.unlink(w.file)


@attempt("remove a directory")
def rmdir(w: World) -> None:
    os.rmdir(f"{w.here}/empty")


@attempt("create a directory")
def mkdir(w: World) -> None:
    os.mkdir(f"{w.here}/new")


@attempt("create a symbolic link")
def symlink(w: World) -> None:
    os.symlink("/etc", f"{w.here}/new")


@attempt("create a named pipe")
def mkfifo(w: World) -> None:
    os.mkfifo(f"{w.here}/new")


@attempt("create a socket")
def mksock(w: World) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(f"{w.here}/s")


@attempt("create an unnamed file (O_TMPFILE) there")
def o_tmpfile(w: World) -> None:
    put(w.here, flags=os.O_WRONLY | os.O_TMPFILE)


@attempt("give an unnamed file of its own a name there", control="no")
def link_unnamed(w: World) -> None:
    fd = os.open(w.own, os.O_WRONLY | os.O_TMPFILE, 0o600)
    os.link(f"/proc/self/fd/{fd}", f"{w.here}/new", follow_symlinks=True)


@attempt("rename a file")
def rename(w: World) -> None:
    os.rename(w.file, f"{w.here}/new")


@attempt("move a file into the project", control="no")
def rename_in(w: World) -> None:
    os.rename(w.file, f"{w.project}/src/stolen")


@attempt("move a file of the project over one outside", control="no")
def rename_out(w: World) -> None:
    put(f"{w.project}/src/mine", flags=os.O_WRONLY | os.O_CREAT)
    os.rename(f"{w.project}/src/mine", w.file)


@attempt("exchange a file of the project with one outside (RENAME_EXCHANGE)", control="no")
def exchange(w: World) -> None:
    put(f"{w.project}/src/other", flags=os.O_WRONLY | os.O_CREAT)
    syscall(316, 276, -100, f"{w.project}/src/other".encode(), -100, w.file.encode(), 2)


@attempt("write through a hard link that it makes in the project", control="no")
def hard_link_in(w: World) -> None:
    os.link(w.file, f"{w.project}/src/linked")
    put(f"{w.project}/src/linked")


@attempt("make a hard link outside to a file of its own", control="no")
def hard_link_out(w: World) -> None:
    put(f"{w.project}/src/linked-out", flags=os.O_WRONLY | os.O_CREAT)
    os.link(f"{w.project}/src/linked-out", f"{w.here}/new")


@attempt("write through a symbolic link in the project")
def through_link(w: World) -> None:
    os.symlink(w.file, f"{w.own}/link")
    put(f"{w.own}/link")


@attempt("write through a linked directory")
def through_directory(w: World) -> None:
    os.symlink(w.here, f"{w.own}/link")
    create(f"{w.own}/link/new")


@attempt("write by way of `..` from the project")
def through_parent(w: World) -> None:
    put(f"{w.project}/{os.path.relpath(w.file, w.project)}")


@attempt("write by way of /proc/self/root")
def through_root(w: World) -> None:
    put(f"/proc/self/root{w.file}")


@attempt("write by way of /proc/self/cwd")
def through_cwd(w: World) -> None:
    os.chdir(w.here)
    put("/proc/self/cwd/file")


@attempt("open a file for reading, and once more for writing by /proc/self/fd")
def reopen(w: World) -> None:
    fd = os.open(w.file, os.O_RDONLY)
    put(f"/proc/self/fd/{fd}")


@attempt("write by way of a directory that is open (openat)")
def through_descriptor(w: World) -> None:
    directory = os.open(w.here, os.O_RDONLY | os.O_DIRECTORY)
    os.write(os.open("file", os.O_WRONLY, dir_fd=directory), b"evil")


@attempt("write by way of an O_PATH descriptor")
def through_o_path(w: World) -> None:
    fd = os.open(w.file, os.O_PATH)
    put(f"/proc/self/fd/{fd}")


@attempt("map a file that is open for reading, to write to it", control="no")
def map_shared(w: World) -> None:
    fd = os.open(w.file, os.O_RDONLY)
    with mmap.mmap(fd, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
        memory[0:4] = b"evil"


@attempt("open a file by its handle (open_by_handle_at)", control="no")
def by_handle(w: World) -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    checked(_libc.name_to_handle_at(-100, w.file.encode(), handle, ctypes.byref(mount), 0))
    root = os.open("/", os.O_RDONLY)
    fd = checked(_libc.open_by_handle_at(root, handle, os.O_WRONLY))
    os.write(fd, b"evil")


@attempt("change the mode of a file", landlock=POSSIBLE)
def chmod(w: World) -> None:
    os.chmod(w.file, 0o600)


@attempt("change the mode by an open descriptor", landlock=POSSIBLE)
def fchmod(w: World) -> None:
    os.fchmod(os.open(w.file, os.O_RDONLY), 0o600)


@attempt("change the group of a file to one of its own", landlock=POSSIBLE)
def chgrp(w: World) -> None:
    os.chown(w.file, -1, os.getgid())


@attempt("change the times of a file", landlock=POSSIBLE)
def utime(w: World) -> None:
    os.utime(w.file, (1, 1))


@attempt("set an extended attribute", control="no")
def setxattr(w: World) -> None:
    os.setxattr(w.file, "user.evil", b"1")


@attempt("remove an extended attribute", control="no")
def removexattr(w: World) -> None:
    os.removexattr(w.file, "user.victim")


@attempt("take a lock (flock) on a file that it can read", bubblewrap=POSSIBLE, landlock=POSSIBLE)
def lock(w: World) -> None:
    fcntl.flock(os.open(w.file, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


@attempt("write into a named pipe that a program outside reads", bubblewrap=POSSIBLE)
def write_fifo(w: World) -> None:
    put(w.said["fifo"], flags=os.O_WRONLY | os.O_NONBLOCK)


@attempt("overwrite a file in the machine's /tmp")
def machine_tmp(w: World) -> None:
    put(w.said["tmp_file"])


@attempt("overwrite a file in the machine's /dev/shm")
def machine_shm(w: World) -> None:
    put(w.said["shm_file"])


# --- places from which code is run later --------------------------------------------------

group("code that is run later")


@attempt("write a hook of git")
def git_hook(w: World) -> None:
    create(f"{w.project}/.git/hooks/pre-commit")


@attempt("write git's configuration")
def git_config(w: World) -> None:
    put(f"{w.project}/.git/config", flags=os.O_WRONLY | os.O_APPEND)


@attempt("replace git's configuration by another file")
def git_config_renamed(w: World) -> None:
    put(f"{w.project}/.git/config.lock", flags=os.O_WRONLY | os.O_CREAT)
    os.rename(f"{w.project}/.git/config.lock", f"{w.project}/.git/config")


@attempt("remove git's configuration")
def git_config_removed(w: World) -> None:
    os.unlink(f"{w.project}/.git/config")


@attempt("rename .git, to put another one there")
def git_renamed(w: World) -> None:
    os.rename(f"{w.project}/.git", f"{w.project}/src/.git")
    os.rename(f"{w.project}/src/.git", f"{w.project}/.git")


@attempt("rename the directory of the hooks")
def git_hooks_renamed(w: World) -> None:
    os.rename(f"{w.project}/.git/hooks", f"{w.project}/.git/other")
    os.rename(f"{w.project}/.git/other", f"{w.project}/.git/hooks")


@attempt("write a file that git's configuration includes")
def git_include(w: World) -> None:
    put(f"{w.project}/.gitinclude", flags=os.O_WRONLY | os.O_APPEND)


@attempt("write a hook where core.hooksPath says")
def git_hooks_path(w: World) -> None:
    create(f"{w.project}/own-hooks/pre-push")


@attempt("write the configuration of a submodule")
def git_submodule(w: World) -> None:
    put(f"{w.project}/.git/modules/sub/config", flags=os.O_WRONLY | os.O_APPEND)


@attempt("lead another work tree of the repository to a repository of its own")
def git_worktree(w: World) -> None:
    put(f"{w.project}/.git/worktrees/linked/commondir")


@attempt("write an agent's settings in the project (.claude)")
def agent_settings(w: World) -> None:
    create(f"{w.project}/.claude/settings.json")


@attempt("make an agent's directory that was not there (.codex)")
def agent_directory(w: World) -> None:
    create(f"{w.project}/.codex/config.toml")


@attempt("write an editor's tasks (.vscode)")
def editor_tasks(w: World) -> None:
    put(f"{w.project}/.vscode/tasks.json")


@attempt("write .envrc of the project")
def envrc(w: World) -> None:
    put(f"{w.project}/.envrc")


@attempt("write .mcp.json of the project")
def mcp_json(w: World) -> None:
    put(f"{w.project}/.mcp.json")


@attempt("write a start-up file that is a link into the project")
def linked_start_up(w: World) -> None:
    put(f"{w.project}/dotfiles/bashrc")


@attempt("append to ~/.profile")
def profile(w: World) -> None:
    put(f"{w.home}/.profile", flags=os.O_WRONLY | os.O_APPEND)


@attempt("create ~/.zshenv")
def zshenv(w: World) -> None:
    create(f"{w.home}/.zshenv")


@attempt("write ~/.ssh/authorized_keys")
def authorized_keys(w: World) -> None:
    put(f"{w.home}/.ssh/authorized_keys", flags=os.O_WRONLY | os.O_CREAT)


@attempt("put a program into ~/.local/bin")
def local_bin(w: World) -> None:
    create(f"{w.home}/.local/bin/git")


@attempt("write ~/.gitconfig")
def gitconfig(w: World) -> None:
    put(f"{w.home}/.gitconfig", flags=os.O_WRONLY | os.O_CREAT)


@attempt("write /etc/profile.d, /etc/ld.so.preload or a crontab", control="no")
def etc(w: World) -> None:
    places = ("/etc/profile.d/evil.sh", "/etc/ld.so.preload", "/var/spool/cron/evil", "/etc/cron.d/evil")
    open_any(os.O_WRONLY | os.O_CREAT, *places)


@attempt("write into the package of Outlast", control="no")
def own_package(w: World) -> None:
    os.close(os.open(f"{w.said['package']}/__init__.py", os.O_WRONLY))


# --- Outlast's own state -------------------------------------------------------------------

group("Outlast's state")


@attempt("list the state directory")
def state_listed(w: World) -> None:
    expect(bool(os.listdir(w.state)) and "config.toml" in os.listdir(w.state), "it is empty")


@attempt("read config.toml")
def state_read(w: World) -> None:
    os.read(os.open(f"{w.state}/config.toml", os.O_RDONLY), 10)


@attempt("write config.toml")
def state_config(w: World) -> None:
    put(f"{w.state}/config.toml", flags=os.O_WRONLY | os.O_CREAT)


@attempt("write policy.toml")
def state_policy(w: World) -> None:
    put(f"{w.state}/policy.toml", flags=os.O_WRONLY | os.O_CREAT)


@attempt("rename the directory that holds the state", control="no")
def state_moved(w: World) -> None:
    os.rename(os.path.dirname(w.state), os.path.dirname(w.state) + ".gone")


@attempt("read the output of another task")
def state_output(w: World) -> None:
    os.read(os.open(w.said["task_output"], os.O_RDONLY), 10)


@attempt("change its own launch, or put files beside it", control="no")
def state_own_task(w: World) -> None:
    create(f"{w.state}/tasks/{os.environ['OUTLAST_TASK_ID']}/new")


# --- other processes -----------------------------------------------------------------------

group("processes outside")


@attempt("send a signal")
def signal_sent(w: World) -> None:
    os.kill(w.pid, signal.SIGWINCH)  # which does it no harm


@attempt("send a signal by pidfd")
def signal_by_pidfd(w: World) -> None:
    signal.pidfd_send_signal(os.pidfd_open(w.pid), signal.SIGWINCH)


@attempt("send a signal to the process group of one")
def signal_group(w: World) -> None:
    os.killpg(w.pid, signal.SIGWINCH)


@attempt("attach to one (ptrace)")
def ptrace(w: World) -> None:
    checked(_libc.ptrace(0x4206, w.pid, 0, 0))  # PTRACE_SEIZE: it goes on when we end


@attempt("read its memory by /proc")
def memory_read(w: World) -> None:
    os.close(os.open(f"/proc/{w.pid}/mem", os.O_RDONLY))


@attempt("write its memory by /proc")
def memory_written(w: World) -> None:
    os.close(os.open(f"/proc/{w.pid}/mem", os.O_RDWR))


def _vector(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("PN", address, size))


@attempt("read its memory by process_vm_readv")
def vm_read(w: World) -> None:
    into = ctypes.create_string_buffer(8)
    ours, theirs = _vector(ctypes.addressof(into), 8), _vector(w.said["address"], 8)
    checked(_libc.process_vm_readv(w.pid, ours, 1, theirs, 1, 0))


@attempt("write its memory by process_vm_writev")
def vm_write(w: World) -> None:
    into = ctypes.create_string_buffer(8)
    ours, theirs = _vector(ctypes.addressof(into), 8), _vector(w.said["address"], 8)
    checked(_libc.process_vm_writev(w.pid, ours, 1, theirs, 1, 0))


@attempt("read its environment")
def environ(w: World) -> None:
    expect(bool(os.read(os.open(f"/proc/{w.pid}/environ", os.O_RDONLY), 10)), "nothing is there")


@attempt("see its command line", landlock=POSSIBLE)
def cmdline(w: World) -> None:
    os.read(os.open(f"/proc/{w.pid}/cmdline", os.O_RDONLY), 10)


@attempt("reach the files that it has open, by /proc")
def open_files(w: World) -> None:
    put(f"/proc/{w.pid}/fd/{w.said['fd']}")


@attempt("reach files by its root directory")
def its_root(w: World) -> None:
    put(f"/proc/{w.pid}/root{w.file}")


@attempt("reach files by its working directory")
def its_cwd(w: World) -> None:
    create(f"/proc/{w.pid}/cwd/new-{os.getpid()}")


@attempt("take a descriptor from it (pidfd_getfd)")
def pidfd_getfd(w: World) -> None:
    syscall(438, 438, os.pidfd_open(w.pid), w.said["fd"], 0)


@attempt("change its limits (prlimit)")
def prlimit(w: World) -> None:
    resource.prlimit(w.pid, resource.RLIMIT_CORE, (0, 0))


@attempt("make it the first to be killed when memory is short")
def oom(w: World) -> None:
    put(f"/proc/{w.pid}/oom_score_adj", "1000")


@attempt("lower its priority", landlock=NOT_FOR_ROOT)
def renice(w: World) -> None:
    os.setpriority(os.PRIO_PROCESS, w.pid, 19)


@attempt("choose its processors", landlock=NOT_FOR_ROOT)
def affinity(w: World) -> None:
    os.sched_setaffinity(w.pid, os.sched_getaffinity(w.pid))


@attempt("enter its namespaces (setns)", control="root")
def setns(w: World) -> None:
    fd = os.open(f"/proc/{w.pid}/ns/uts", os.O_RDONLY)
    checked(_libc.setns(fd, 0))


@attempt("watch what it does (perf_event_open)", control="no")
def perf(w: World) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 1) + bytes(112))
    syscall(298, 241, attributes, w.pid, -1, -1, 0)


@attempt("attach to its System V memory")
def system_v(w: World) -> None:
    _libc.shmat.restype = ctypes.c_void_p
    expect(_libc.shmat(w.said["shm"], 0, 0) not in (None, ctypes.c_void_p(-1).value), "shmat")


@attempt("open its POSIX message queue", control="no")
def message_queue(w: World) -> None:
    syscall(240, 180, w.said["queue"].encode(), os.O_RDWR, 0, None)


@attempt("signal the guard that watches it", control="no")
def guard(w: World) -> None:
    os.kill(w.said["host"], signal.SIGWINCH)


# --- sockets -------------------------------------------------------------------------------

group("sockets and network")


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(path)


@attempt("connect to a socket in the home directory")
def socket_home(w: World) -> None:
    _connect(w.sock("home"))


@attempt("send to a datagram socket in the home directory")
def socket_datagram(w: World) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(b"evil", w.sock("datagram"))


@attempt("connect to a socket in /tmp")
def socket_tmp(w: World) -> None:
    _connect(w.sock("tmp"))


@attempt("connect to a socket in /run", control="root")
def socket_run(w: World) -> None:
    _connect(w.sock("run"))


@attempt("connect to an ssh agent")
def ssh_agent(w: World) -> None:
    _connect(w.sock("ssh-agent"))


@attempt("connect to gpg's agent")
def gpg_agent(w: World) -> None:
    _connect(w.sock("gpg-agent"))


@attempt("connect to docker's socket")
def docker(w: World) -> None:
    _connect(w.sock("docker"))


@attempt("connect to an X server's socket")
def x11(w: World) -> None:
    _connect(w.sock("x11"))


@attempt("connect to a Wayland socket")
def wayland(w: World) -> None:
    _connect(w.sock("wayland"))


@attempt("connect to D-Bus")
def dbus(w: World) -> None:
    _connect(w.sock("dbus"))


@attempt("connect to an abstract socket")
def abstract(w: World) -> None:
    _connect("\0" + w.said["abstract"])


@attempt("connect to a TCP port of the machine")
def tcp(w: World) -> None:
    socket.create_connection(("127.0.0.1", w.said["tcp"]), 5).close()


@attempt("send to a UDP port of the machine")
def udp(w: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect(("127.0.0.1", w.said["udp"]))
        line.send(b"evil")
        time.sleep(0.2)
        line.send(b"evil")  # the first one brought the answer that nobody is there


@attempt("reach another machine", control="no")
def internet(w: World) -> None:
    socket.create_connection(("192.0.2.1", 80), 2).close()


@attempt("make a raw socket", control="root")
def raw(w: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()


@attempt("make a packet socket", control="root")
def packet(w: World) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


@attempt("make a socket to the host of this virtual machine (AF_VSOCK)", control="no")
def vsock(w: World) -> None:
    socket.socket(40, socket.SOCK_STREAM).close()


@attempt("make a socket of the kernel's ciphers (AF_ALG)", control="no")
def alg(w: World) -> None:
    socket.socket(38, socket.SOCK_SEQPACKET).close()


@attempt("make a Bluetooth or CAN socket", control="no")
def bluetooth(w: World) -> None:
    try:
        socket.socket(31, socket.SOCK_RAW, 1).close()
    except OSError:
        socket.socket(29, socket.SOCK_RAW, 1).close()


@attempt("make sockets past the filter by io_uring", control="no")
def io_uring(w: World) -> None:
    syscall(425, 425, 4, ctypes.create_string_buffer(120))


# --- terminals and devices -----------------------------------------------------------------

group("terminals and devices")


@attempt("write to another terminal")
def terminal(w: World) -> None:
    put(w.said["terminal"], flags=os.O_WRONLY | os.O_NOCTTY)


@attempt("type into another terminal (TIOCSTI)", control="no")
def tiocsti(w: World) -> None:
    fd = os.open(w.said["terminal"], os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(fd, 0x5412, b"x")


@attempt("type into a terminal of its own that it was given (TIOCSTI)", control="no")
def tiocsti_own(w: World) -> None:
    _, fd = os.openpty()
    os.setsid()
    fcntl.ioctl(fd, 0x540E, 0)
    fcntl.ioctl(fd, 0x5412, b"x")


@attempt("open a disk", control="no")
def disk(w: World) -> None:
    open_any(os.O_RDONLY, "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/zram0")


@attempt("open the memory of the machine, its log or its virtual machines", control="no")
def memory_device(w: World) -> None:
    names = ("mem", "kmsg", "kvm", "fuse", "loop-control", "vsock", "net/tun", "userfaultfd")
    open_any(os.O_RDWR, *(f"/dev/{name}" for name in names))


@attempt("make a device of its own", control="root")
def mknod(w: World) -> None:
    os.mknod(f"{w.own}/null", 0o20666, os.makedev(1, 3))


@attempt("use a descriptor that was left open for it", control="no")
def inherited(w: World) -> None:
    known = {0, 1, 2, *w.said["own_fds"]}
    found = {int(name) for name in os.listdir("/proc/self/fd")} - known
    expect(any(_is_open(fd) for fd in found), "there is none")


def _is_open(fd: int) -> bool:
    try:
        return bool(os.fstat(fd)) and not os.readlink(f"/proc/self/fd/{fd}").startswith("/proc/")
    except OSError:
        return False


# --- the kernel ----------------------------------------------------------------------------

group("namespaces, mounts and the kernel")


def _mount(source: str, target: str, flags: int, kind: str = "none") -> None:
    checked(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, None))


@attempt("mount something", control="no")
def mount(w: World) -> None:
    _mount("none", w.own, 0, "tmpfs")


@attempt("make what is protected writable again (remount)", control="no")
def remount(w: World) -> None:
    _mount("none", f"{w.project}/.git/hooks", 0x1020)
    create(f"{w.project}/.git/hooks/remounted")


@attempt("take away what covers a protected place (umount)", control="no")
def umount(w: World) -> None:
    checked(_libc.umount2(f"{w.project}/.git/hooks".encode(), 2))
    create(f"{w.project}/.git/hooks/uncovered")


def _as_root_of_a_namespace() -> None:
    """Be root in a user namespace and a mount namespace of its own."""
    uid, gid = os.getuid(), os.getgid()
    checked(_libc.unshare(0x10000000 | 0x00020000))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        put(f"/proc/self/{name}", text)


@attempt("make it writable in namespaces of its own", control="no")
def namespace_remount(w: World) -> None:
    _as_root_of_a_namespace()
    _mount("none", f"{w.project}/.git/hooks", 0x1020)
    create(f"{w.project}/.git/hooks/remounted")


@attempt("uncover it in namespaces of its own", control="no")
def namespace_umount(w: World) -> None:
    _as_root_of_a_namespace()
    checked(_libc.umount2(f"{w.project}/.git/hooks".encode(), 2))
    create(f"{w.project}/.git/hooks/uncovered")


@attempt("mount the project elsewhere in namespaces of its own, to write there", control="no")
def namespace_bind(w: World) -> None:
    _as_root_of_a_namespace()
    _mount(w.project, w.own, 0x1000)  # without what is mounted in it
    create(f"{w.own}/.git/hooks/bound")


@attempt("uncover the state directory in namespaces of its own", control="no")
def namespace_state(w: World) -> None:
    _as_root_of_a_namespace()
    checked(_libc.umount2(w.state.encode(), 2))
    put(f"{w.state}/config.toml", flags=os.O_WRONLY | os.O_CREAT)


@attempt("change the root directory (chroot, pivot_root)", control="no")
def pivot(w: World) -> None:
    try:
        os.chroot(w.own)
    except OSError:
        syscall(155, 41, w.own.encode(), w.own.encode())


@attempt("read a key of the user's keyring")
def keyring(w: World) -> None:
    syscall(250, 219, 11, w.said["key"], ctypes.create_string_buffer(64), 64, 0)


@attempt("put a key into the user's keyring")
def add_key(w: World) -> None:
    syscall(248, 217, b"user", b"outlast-test-new", b"x", 1, -4)


@attempt("load a program into the kernel (bpf)", control="no")
def bpf(w: World) -> None:
    syscall(321, 280, 0, ctypes.create_string_buffer(struct.pack("IIII", 1, 4, 4, 1) + bytes(112)), 128)


@attempt("load a module, or another kernel", control="no")
def module(w: World) -> None:
    try:
        syscall(175, 105, b"x", 1, b"")
    except OSError as error:
        expect(error.errno == errno.ENOEXEC, os.strerror(error.errno or 0))  # it was looked at
    syscall(246, 104, 0, 0, None, 0)


@attempt("change the name or the clock of the machine", control="no")
def hostname(w: World) -> None:
    try:
        name = os.uname().nodename.encode()
        checked(_libc.sethostname(name, len(name)))
    except OSError:
        time.clock_settime(time.CLOCK_REALTIME, time.time())


@attempt("change a setting of the kernel (/proc/sys)", control="root")
def proc_sys(w: World) -> None:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))


@attempt("use the magic keys of the kernel (/proc/sysrq-trigger)", control="no")
def sysrq(w: World) -> None:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))


@attempt("write to sysfs", control="no")
def sysfs(w: World) -> None:
    names = ("kernel/uevent_helper", "power/state", "kernel/mm/transparent_hugepage/enabled")
    open_any(os.O_WRONLY, *(f"/sys/{name}" for name in names))


@attempt("leave its control group, or change another one", control="no")
def cgroup(w: World) -> None:
    for top, names, _ in os.walk("/sys/fs/cgroup"):
        names[:] = names[:3] if top.count("/") < 6 else []
        try:
            os.close(os.open(f"{top}/cgroup.procs", os.O_WRONLY))
            return
        except OSError:
            pass
    raise PermissionError(errno.EACCES, "none can be opened")


group("privileges")


@attempt("leave a file that runs as its owner (chmod u+s)")
def set_user_id(w: World) -> None:
    path = f"{w.own}/suid"
    create(path)
    os.chmod(path, 0o4755)


@attempt("create one that does (open)")
def set_user_id_open(w: World) -> None:
    path = f"{w.own}/suid"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o4755))
    expect(os.stat(path).st_mode & 0o4000 != 0, "the bit is not set")


@attempt("create one that does (openat2)")
def set_user_id_openat2(w: World) -> None:
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_WRONLY | os.O_CREAT, 0o4755, 0), 24)
    syscall(437, 437, -100, f"{w.own}/suid".encode(), how, 24)


@attempt("create one that does (mknod)")
def set_user_id_mknod(w: World) -> None:
    os.mknod(f"{w.own}/suid", 0o104755)


@attempt("gain privileges by a set-user-ID program", control="no")
def gain(w: World) -> None:
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    expect(status["NoNewPrivs"].strip() == "0", "no new privileges")


@attempt("have capabilities", control="root")
def capabilities(w: World) -> None:
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    expect(int(status["CapEff"], 16) != 0, "it has none")


@attempt("become another user", control="root")
def setuid(w: World) -> None:
    os.setresuid(12345, 12345, 12345)


# --- running them --------------------------------------------------------------------------


def outcome(one: Attempt, said: dict[str, Any]) -> str:
    """What became of an attempt: done, the name of the error, or what went wrong with the attempt itself."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(PATIENCE_S)
        try:
            one.run(World({**said, "own_fds": [*said["own_fds"], read, write]}, one.name))
            text = "done"
        except OSError as error:
            # A time-out of a socket has no number.
            text = f"refused: {errno.errorcode.get(error.errno or 0, str(error))}"
        except BaseException:
            text = "broken: " + traceback.format_exc()
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    text = ""
    while piece := os.read(read, 65536):
        text += piece.decode()
    os.close(read)
    os.waitpid(pid, 0)
    return text or "refused: it was killed"


def table() -> str:
    """The table of docs/sandbox.md."""
    rows = ["| a command tries to … | bubblewrap | Landlock |", "|---|---|---|"]
    last = ""
    for one in ATTEMPTS.values():
        if one.group != last:
            rows.append(f"| **{one.group}** | | |")
            last = one.group
        marks = [said if said == REFUSED else f"**{said}**" for said in (one.bubblewrap, one.landlock)]
        rows.append(f"| {one.what} | {' | '.join(marks)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(table(), end="")
    else:
        with open(sys.argv[1]) as file:
            world = json.load(file)
        world["own_fds"] = [int(name) for name in sys.argv[2].split(",") if name] if len(sys.argv) > 2 else []
        names = world.get("only") or list(ATTEMPTS)
        print(json.dumps({name: outcome(ATTEMPTS[name], world) for name in names}))
