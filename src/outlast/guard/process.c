/* Processes as the kernel knows them: identity, signals, the other guard, and how the command ended. */
#include "guard.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

bool is_ready(int fd, short events) {
    struct pollfd one = {.fd = fd, .events = events};
    return fd >= 0 && poll(&one, 1, 0) > 0;
}

void drain_fd(int fd) {
    char skipped[sizeof(struct signalfd_siginfo)];
    while (read(fd, skipped, sizeof skipped) > 0) continue;
}

ssize_t read_file(const char *path, char *into, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return -1;
    ssize_t n = read(fd, into, size - 1);
    close(fd); /* leaves errno as it is */
    into[n > 0 ? n : 0] = 0;
    return n;
}

/* Field N of /proc/PID/stat, of which the third is at `at`. */
static const char *find_field(const char *at, int n) {
    for (int field = 3; field < n; field++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return at;
}

bool read_stat(int pid, struct proc_stat *into) {
    char path[40], text[1024], *at;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_file(path, text, sizeof text) <= 0) return false;
    at = strrchr(text, ')'); /* the name stands in brackets and may itself contain brackets and blanks */
    if (!at || at[1] != ' ') return false;
    at += 2;
    *into = (struct proc_stat){.state = *at, .tick = strtoull(find_field(at, 22), NULL, 10)};
    /* A process whose first thread ended looks like a zombie while its other threads go on. */
    into->dead = strchr("ZX", *at) && strtoull(find_field(at, 20), NULL, 10) <= 1;
    into->exit_code = atoi(find_field(at, 52));
    return true;
}

/* A process reads its own tick: reading that of a child that is inside of execve sleeps until execve is done. */
uint64_t read_own_tick(void) {
    struct proc_stat stat;
    return read_stat(getpid(), &stat) ? stat.tick : 0;
}

int open_pidfd(int pid) { return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1; }

bool signal_pidfd(int fd, int number) { return fd >= 0 && syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) == 0; }

bool is_unreaped(int pidfd) { return pidfd >= 0 && (signal_pidfd(pidfd, 0) || errno == EPERM); }

/* Fork; the kernel writes the new pid into shared memory. Without an exit signal in `flags` plain waits do not see it. */
int fork_process(_Atomic int *pid, int flags) {
    int made = (int)syscall(SYS_clone, CLONE_PARENT_SETTID | flags, NULL, pid, NULL, NULL);
    if (made >= 0 || errno != EINVAL) return made;
    /* qemu-user emulates a plain fork only. Then waits see guards too, and the program at the end is below the task. */
    made = (int)syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, NULL, pid, NULL, NULL);
    if (made > 0) *pid = made; /* the emulator writes it in the child, and late */
    return made;
}

/* Fork the other guard, so that both have a pidfd of each other. One that cannot be watched is killed again, which is safe
 * at any time: without a peer there is no process that could be taken for dead and be replaced while it lives. */
static int fork_guard(_Atomic int *pid) {
    int me = open_pidfd(getpid()), made = me >= 0 ? fork_process(pid, 0) : -1, why = errno;
    guard.peer = made == 0 ? me : made > 0 ? open_pidfd(made) : -1;
    if (made == 0) return 0;
    if (made > 0 && guard.peer < 0) {
        siginfo_t seen;
        why = errno;
        kill(made, SIGKILL); /* our child and not reaped: the pid is still its own */
        waitid(P_PID, (id_t)made, &seen, WEXITED | __WALL);
        made = -1;
    }
    close_fd(&me);
    errno = why;
    return made;
}

/* The other guard died: forget it and fork another one. If fork fails, `peer` stays -1 and the caller tries again. */
int replace_peer(_Atomic int *pid) {
    siginfo_t seen;
    if (guard.peer >= 0) {
        waitid(P_PIDFD, (id_t)guard.peer, &seen, WEXITED | WNOHANG | __WALL);
        close_fd(&guard.peer);
        guard.page->recoveries++;
    }
    return fork_guard(pid);
}

/* Both guards read SIGCHLD from a signalfd and then check everything. A stopped one cannot: let it go on. */
void wake_peer(void) {
    signal_pidfd(guard.peer, SIGCHLD);
    signal_pidfd(guard.peer, SIGCONT);
}

/* A stopped guard cannot do its part. Its parent gets SIGCHLD when it is stopped. */
void continue_peer(void) {
    siginfo_t seen = {0};
    if (guard.peer >= 0 && waitid(P_PIDFD, (id_t)guard.peer, &seen, WSTOPPED | WNOHANG | __WALL) == 0 && seen.si_pid)
        signal_pidfd(guard.peer, SIGCONT);
}

struct pidfd_info { uint64_t mask, cgroup; uint32_t ids[11]; int32_t exit_code; };
enum { PIDFD_INFO_EXIT = 1 << 3 };

enum known { NOT_YET, KNOWN, NEVER_KNOWN };

static int as_wait_status(const siginfo_t *seen) {
    return seen->si_code == CLD_EXITED ? (seen->si_status & 0xff) << 8 : seen->si_status & 0x7f;
}

/* As the parent of the command. A pid alone could be that of another child by now, if init has reaped the command. */
static enum known wait_for_status(int *status, int64_t *cpu_us) {
    struct rusage used;
    siginfo_t seen = {0};
    bool by_fd = guard.command >= 0;
    if (syscall(SYS_waitid, by_fd ? P_PIDFD : P_PID, by_fd ? guard.command : guard.page->command, &seen,
                WEXITED | WNOHANG | WNOWAIT, &used))
        return NEVER_KNOWN;
    if (!seen.si_pid) return NOT_YET;
    *status = as_wait_status(&seen);
    *cpu_us = ((int64_t)used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    return KNOWN;
}

/* The zombie's line in the process table: its parent may be a process that never reaps it. For a command with more rights
 * than ours the kernel shows 0 there, whatever it was; reading the `exe` link takes the same right, so that tells. */
static bool read_zombie(int pid, int *status) {
    char path[40], skipped[8];
    struct proc_stat stat;
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    if (!read_stat(pid, &stat) || !stat.dead) return false;
    if (readlink(path, skipped, sizeof skipped) < 0 && (errno == EACCES || errno == EPERM)) return false;
    *status = stat.exit_code;
    return is_unreaped(guard.command); /* checked last: the lines above were about this process */
}

static enum known find_status(int *status, int64_t *cpu_us) {
    const struct shared *page = guard.page;
    struct pidfd_info info = {.mask = PIDFD_INFO_EXIT};
    enum known known = wait_for_status(status, cpu_us);
    if (known != NEVER_KNOWN || guard.command < 0) return known;
    if (!is_ready(guard.command, POLLIN)) return NOT_YET;
    if (read_zombie(page->command, status)) return KNOWN;
    if (is_unreaped(guard.command)) return NOT_YET; /* only its parent may see it, and has not recorded it yet */
    if (syscall(SYS_ioctl, guard.command, _IOWR(0xFF, 11, struct pidfd_info), &info) == 0 && info.mask & PIDFD_INFO_EXIT) {
        *status = info.exit_code; /* since Linux 6.15 the descriptor still knows */
        return KNOWN;
    }
    if (page->command == page->child) return NEVER_KNOWN;
    if (!page->wrapper_known) return NOT_YET;
    if (!WIFEXITED(page->wrapper_status)) return NEVER_KNOWN;
    *status = page->wrapper_status; /* an older kernel: bubblewrap ends with the same code, a signal is 128 and its number */
    return KNOWN;
}

/* Record how the command ended, if it did. Both guards may do it at the same time: they write the same. */
bool note_exit(void) {
    struct shared *page = guard.page;
    int status = 0;
    int64_t cpu_us = -1;
    if (page->state >= EXITED) return true;
    enum known known = find_status(&status, &cpu_us);
    if (known == NOT_YET || page->state >= EXITED) return page->state >= EXITED;
    if (page->spawn_errno) write_spawn_failure(); /* 127 of our own child is not an exit code of the command */
    else if (known == KNOWN) write_code(status, cpu_us);
    if (known == KNOWN) {
        page->status = status;
        page->status_known = 1;
    }
    /* Not a plain store: the other guard may have recorded the same meanwhile and gone on to DRAINED. */
    int running = RUNNING;
    atomic_compare_exchange_strong(&page->state, &running, EXITED);
    return true;
}

/* Reap every child that ended, the command only after its end is recorded. Returns whether children are left. */
bool reap_children(void) {
    struct shared *page = guard.page;
    for (;;) {
        siginfo_t seen = {0};
        if (waitid(P_ALL, 0, &seen, WEXITED | WNOHANG | WNOWAIT)) return guard.look_failed |= errno != ECHILD;
        if (!seen.si_pid) return true;
        if (seen.si_pid == page->command && (page->state < RUNNING || !note_exit())) return true; /* not recorded yet */
        if (seen.si_pid == page->child && !page->wrapper_known) {
            page->wrapper_status = as_wait_status(&seen);
            page->wrapper_known = 1;
        }
        waitid(P_PID, (id_t)seen.si_pid, &seen, WEXITED | WNOHANG);
    }
}
