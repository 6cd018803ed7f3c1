/* Starts the command: a child that has its descriptors, limits and sandbox, and waits for its go before it begins. All
 * that can fail is done before the task is published, but for `execve` of a program that does not wait by itself. */
#include "guard.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
    READY_MS = 30000, /* a sandbox that is not made by then will not be */
    CAPABILITIES = 64,
    LANDLOCK_RESTRICT_SELF = 446, /* system call, on every architecture; older headers do not have it */
};

/* A socket pair: the child, or its program, says that it is ready, and the kernel which process said it. */
static int ready[2] = {-1, -1};
static int errors = -1; /* a memfd: what the program prints until it is ready */

static int make_memfd(struct bytes bytes) {
    int fd = (int)syscall(SYS_memfd_create, "outlast-input", 1u /* MFD_CLOEXEC */);
    if (fd >= 0 && (write(fd, bytes.data, bytes.size) != (ssize_t)bytes.size || lseek(fd, 0, SEEK_SET))) close_fd(&fd);
    return fd;
}

/* A named pipe that other processes write to. The guards hold its write end, so that it stays open between writers. */
static bool open_input_pipe(void) {
    if ((mkfifo("stdin", 0600) && errno != EEXIST) || (mkfifo("wake", 0600) && errno != EEXIST)) return false;
    guard.wake_fifo = open("wake", O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    guard.stdin_read = open("stdin", O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    guard.stdin_write = open("stdin", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    return guard.wake_fifo >= 0 && guard.stdin_write >= 0;
}

bool open_stdin(void) {
    const struct launch *launch = guard.launch;
    const char *path = launch->stdin_kind == STDIN_FILE ? launch->stdin_path : "/dev/null";
    if (launch->stdin_kind == STDIN_OPEN && !open_input_pipe()) return false;
    if (launch->stdin_kind == STDIN_TEXT) guard.stdin_read = make_memfd(launch->stdin_text);
    else if (launch->stdin_kind != STDIN_OPEN) guard.stdin_read = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    /* O_NONBLOCK: only so that opening cannot block. */
    return guard.stdin_read >= 0 && fcntl(guard.stdin_read, F_SETFL, 0) == 0;
}

static noreturn void give_up(const char *what, int number) {
    snprintf(guard.page->spawn_what, sizeof guard.page->spawn_what, "%s", what);
    guard.page->spawn_errno = number ? number : EINVAL;
    _exit(127);
}

static void set_limits(void) {
    const struct launch *launch = guard.launch;
    for (size_t i = 0; i < launch->rlimits.count; i++) {
        unsigned long long wanted[2], held[2];
        int which;
        if (sscanf(launch->rlimits.items[i], "%d %llu %llu", &which, &wanted[0], &wanted[1]) != 3) give_up("rlimit", EINVAL);
        if (syscall(SYS_prlimit64, 0, which, wanted, NULL) == 0 || syscall(SYS_prlimit64, 0, which, NULL, held)) continue;
        held[0] = wanted[0] < held[1] ? wanted[0] : held[1]; /* only root raises a hard limit: come as near as possible */
        syscall(SYS_prlimit64, 0, which, held, NULL);
    }
    if (launch->nice != NICE_UNCHANGED) setpriority(PRIO_PROCESS, 0, launch->nice); /* only root is nicer to itself */
}

static void drop_capabilities(void) {
    struct { uint32_t version; int pid; } header = {0x20080522, 0};
    uint32_t none[6] = {0};
    for (int i = 0; i < CAPABILITIES; i++) prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* refused to all but root */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &header, none)) give_up("capabilities", errno);
}

static void confine(void) {
    const struct launch *launch = guard.launch;
    int ruleset = launch->landlock_fd;
    if (launch->drop_capabilities) drop_capabilities();
    if ((ruleset >= 0 || launch->seccomp.size) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) give_up("no new privileges", errno);
    if (ruleset >= 0 && syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)) give_up("Landlock", errno);
    if (!launch->seccomp.size) return;
    struct sock_fprog program = {.len = (unsigned short)(launch->seccomp.size / sizeof(struct sock_filter)),
                                 .filter = (void *)(uintptr_t)launch->seccomp.data};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)) give_up("seccomp", errno);
}

static int duplicate_above(int fd, int least) {
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, least);
    if (copy < 0) give_up("descriptors", fd < 0 ? EBADF : errno == EINVAL ? EMFILE : errno); /* EINVAL: above the rlimit */
    return copy;
}

/* Give the command its descriptors. `*go` and `*tell` stay ours. `execve` closes all others, such as the lock. */
static void arrange_fds(int *go, int *tell) {
    struct launch *launch = guard.launch;
    const int sources[] = {[FD_STDIN] = has_terminal() ? write_end(0) : guard.stdin_read, [FD_STDOUT] = write_end(0), [FD_STDERR] = write_end(1),
                           [FD_GO] = guard.go_read, [FD_READY] = ready[1], [FD_ERRORS] = errors};
    int copies[LAUNCH_MOST_FDS], least = 3;
    close_fd(&guard.go_write); /* so that the end of both guards ends the wait for the go */
    for (size_t i = 0; i < launch->fd_count; i++)
        if (launch->fds[i].target >= least) least = launch->fds[i].target + 1;
    /* First copies above every target, so that no source is overwritten before its turn comes. */
    for (size_t i = 0; i < launch->fd_count; i++)
        copies[i] = duplicate_above(launch->fds[i].source == FD_INHERIT ? launch->fds[i].number : sources[launch->fds[i].source], least);
    *go = duplicate_above(guard.go_read, least);
    *tell = duplicate_above(ready[1], least);
    if (launch->landlock_fd >= 0) launch->landlock_fd = duplicate_above(launch->landlock_fd, least);
    for (size_t i = 0; i < launch->fd_count; i++)
        if (dup2(copies[i], launch->fds[i].target) < 0) give_up("descriptors", errno);
}

static void reset_signals(void) {
    static const char usual[64]; /* SIG_DFL, no flags. Not by sigaction(): the library keeps signals 32 to 34 for itself. */
    for (int i = 1; i < NSIG; i++) syscall(SYS_rt_sigaction, i, usual, NULL, 8);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static noreturn void become_command(void) {
    const struct launch *launch = guard.launch;
    int go, tell;
    ssize_t n = 1;
    char byte = 'r';
    if (setsid() < 0) give_up("session", errno);
    guard.page->command_tick = read_own_tick();
    reset_signals();
    for (size_t i = 0; i < launch->cgroups.count; i++)
        if (!write_to_cgroup(launch->cgroups.items[i], "cgroup.procs", "0")) give_up(launch->cgroups.items[i], errno);
    arrange_fds(&go, &tell);
    if (has_terminal() && isatty(0) && ioctl(0, TIOCSCTTY, 0)) give_up("terminal", errno); /* in a sandbox it is not 0 yet */
    if (chdir(launch->cwd)) give_up(launch->cwd, errno);
    umask((mode_t)launch->umask);
    if (!launch->program_waits && access(launch->program, X_OK)) give_up(launch->program, errno);
    confine();
    set_limits();
    if (!launch->program_waits && (write(tell, &byte, 1) != 1 || (n = read(go, &byte, 1)) < 0)) give_up("go", errno);
    if (n == 0) _exit(127); /* the end of the pipe: both guards died before the go */
    execve(launch->program, launch->args.items, launch->env.items);
    give_up(launch->program, errno);
}

bool spawn_child(void) {
    const struct launch *launch = guard.launch;
    int on = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ready)) return false;
    if (setsockopt(ready[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on)) return false;
    if (gives_fd(launch, FD_ERRORS) && (errors = make_memfd((struct bytes){"", 0})) < 0) return false;
    int pid = fork_process(&guard.page->child, SIGCHLD);
    if (pid == 0) become_command();
    close_fd(&ready[1]);
    if (!has_terminal()) close_fd(&guard.stdin_read); /* so that a writer gets EPIPE when the command closes its input */
    close_fd(&guard.go_read);
    return pid > 0;
}

/* The refusal quotes what the program printed before it ended, such as an error of bubblewrap. */
static void read_errors(void) {
    char *what = guard.page->spawn_what;
    ssize_t n = errors >= 0 ? pread(errors, what, sizeof guard.page->spawn_what - 1, 0) : 0;
    if (n <= 0) n = snprintf(what, sizeof guard.page->spawn_what, "%.150s", "the program ended before it was ready");
    what[n] = 0;
    for (char *at = what; *at; at++)
        if (*at < ' ') *at = ' ';
    while (n > 0 && what[n - 1] == ' ') what[--n] = 0;
    guard.page->spawn_errno = ENOEXEC;
}

/* Wait for a byte from the child. Returns the pid of the process that wrote it, 0 at the end, -1 if it takes too long. */
static int await_ready(void) {
    char byte, control[CMSG_SPACE(sizeof(struct ucred))] = {0};
    struct iovec into = {&byte, 1};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct pollfd one = {.fd = ready[0], .events = POLLIN};
    struct ucred writer;
    int64_t until = now(CLOCK_MONOTONIC) + READY_MS * MILLISECOND, left = READY_MS;
    while (poll(&one, 1, (int)left) <= 0)
        if ((left = (until - now(CLOCK_MONOTONIC)) / MILLISECOND) <= 0) return errno = ETIMEDOUT, -1;
    if (recvmsg(ready[0], &message, MSG_DONTWAIT) != 1 || !CMSG_FIRSTHDR(&message)) return 0;
    memcpy(&writer, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof writer);
    return writer.pid;
}

/* The command is the process that said that it is ready: in a sandbox it is not our child but a process below that. */
static void watch_command(int pid) {
    struct shared *page = guard.page;
    struct proc_stat stat;
    guard.command = open_pidfd(pid);
    if (guard.command < 0) page->spawn_errno = errno;
    else if (pid != page->child && (!read_stat(pid, &stat) || !is_unreaped(guard.command))) read_errors();
    else if (pid != page->child) page->command_tick = stat.tick;
    page->command = pid;
}

/* Wait until the child is ready. False: `spawn_errno` and `spawn_what` say why it is not. */
bool await_child(void) {
    struct shared *page = guard.page;
    int said = await_ready();
    /* If the program does not say it, the end at `execve` does. */
    if (said == 0 && guard.launch->program_waits && !gives_fd(guard.launch, FD_READY)) said = page->child;
    if (said < 0) page->spawn_errno = errno;
    if (said == 0 && !page->spawn_errno) read_errors();
    if (!page->spawn_errno) watch_command(said);
    close_fd(&ready[0]);
    close_fd(&errors);
    return !page->spawn_errno;
}
