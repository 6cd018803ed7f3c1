/* Starts the command: a child that has its descriptors, limits and sandbox, and waits for its go before it begins.
 *
 * All that can fail is done before the task is published, so a refusal leaves nothing behind; only `execve` itself comes
 * later, unless the program waits by itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

enum {
    READY_MS = 30000,           /* a sandbox that is not made by then will not be */
    LANDLOCK_OF_FILES = 0x8007, /* rights that a file can have: execute, write, read, ioctl; and truncate */
    LANDLOCK_TRUNCATE = 0x4000,
    CAPABILITIES = 64,
    PATH_BYTES = 4096,
};

static int report[2] = {-1, -1};   /* the child says that it is set up, or ends */
static int ready_read = -1, status_read = -1, errors = -1;

/* --- control groups --- */

static bool write_text(const char *directory, const char *name, const char *text) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) return errno = ENAMETOOLONG, false;
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool written = write(fd, text, strlen(text)) >= 0;
    int why = errno;
    close(fd);
    errno = why;
    return written;
}

bool make_cgroups(void) {
    const struct launch *launch = guard.launch;
    for (size_t i = 0; i < launch->groups.count; i++)
        if (mkdir(launch->groups.items[i], 0755) && errno != EEXIST) return false;
    for (size_t i = 0; i < launch->group_setting_count; i++) {
        char name[128];
        const char *setting = launch->group_settings[i].setting, *value = strchr(setting, '=') + 1;
        bool optional = *setting == '?'; /* such as memory.swap.max, which a kernel without swap does not have */
        int n = snprintf(name, sizeof name, "%.*s", (int)(value - 1 - setting - optional), setting + optional);
        if (n >= (int)sizeof name) return errno = ENAMETOOLONG, false;
        if (!write_text(launch->group_settings[i].group, name, value) && !(optional && errno == ENOENT)) return false;
    }
    return true;
}

/* When no process is left in them. */
void remove_cgroups(void) {
    for (size_t i = 0; i < guard.launch->groups.count; i++) rmdir(guard.launch->groups.items[i]);
}

/* How many processes of the task the kernel ended because they had no memory left together. */
int count_oom_kills(void) {
    static const char *const FILES[] = {"memory.events", "memory.oom_control"};
    int found = 0;
    for (size_t i = 0; i < guard.launch->groups.count * 2; i++) {
        char path[PATH_BYTES], text[1024], *at;
        snprintf(path, sizeof path, "%.4000s/%s", guard.launch->groups.items[i / 2], FILES[i % 2]);
        if (read_file(path, text, sizeof text) > 0 && (at = strstr(text, "oom_kill "))) found += atoi(at + 9);
    }
    return found;
}

/* --- input --- */

static int make_memfd(const struct bytes *bytes) {
    int fd = (int)syscall(SYS_memfd_create, "outlast-input", 1u /* MFD_CLOEXEC */);
    for (size_t at = 0; fd >= 0 && at < bytes->size;) {
        ssize_t n = write(fd, bytes->data + at, bytes->size - at);
        if (n <= 0) {
            close(fd);
            return -1;
        }
        at += (size_t)n;
    }
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
    return fd;
}

/* A named pipe that others write to. The guards hold its write end, so it does not end before someone ends it. */
static bool open_input_pipe(void) {
    if ((mkfifo("stdin", 0600) && errno != EEXIST) || (mkfifo("wake", 0600) && errno != EEXIST)) return false;
    guard.wake_fifo = open("wake", O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    guard.stdin_read = open("stdin", O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    guard.stdin_write = open("stdin", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    return guard.wake_fifo >= 0 && guard.stdin_read >= 0 && guard.stdin_write >= 0 &&
           fcntl(guard.stdin_read, F_SETFL, 0) == 0;
}

bool open_stdin(void) {
    const struct launch *launch = guard.launch;
    switch (launch->stdin_kind) {
    case STDIN_OPEN: return open_input_pipe();
    case STDIN_TEXT: guard.stdin_read = make_memfd(&launch->stdin_text); break;
    case STDIN_INHERIT: guard.stdin_read = launch->stdin_fd; break;
    case STDIN_FILE:
        guard.stdin_read = open(launch->stdin_path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (guard.stdin_read >= 0) fcntl(guard.stdin_read, F_SETFL, 0); /* O_NONBLOCK: only so that opening cannot block */
        break;
    case STDIN_EMPTY: guard.stdin_read = open("/dev/null", O_RDONLY | O_CLOEXEC); break;
    }
    return guard.stdin_read >= 0;
}

/* --- in the child --- */

static noreturn void give_up(const char *what, int number) {
    snprintf(guard.page->spawn_what, sizeof guard.page->spawn_what, "%s", what);
    guard.page->spawn_errno = number ? number : EINVAL;
    _exit(127);
}

static void set_limits(void) {
    const struct launch *launch = guard.launch;
    for (size_t i = 0; i < launch->rlimit_count; i++) {
        struct rlimit wanted = {launch->rlimits[i].soft, launch->rlimits[i].hard}, held;
        if (setrlimit((__rlimit_resource_t)launch->rlimits[i].which, &wanted) == 0) continue;
        /* Only root raises a hard limit: come as near as possible. */
        if (getrlimit((__rlimit_resource_t)launch->rlimits[i].which, &held)) continue;
        held.rlim_cur = wanted.rlim_cur < held.rlim_max ? wanted.rlim_cur : held.rlim_max;
        setrlimit((__rlimit_resource_t)launch->rlimits[i].which, &held);
    }
    if (launch->has_nice) setpriority(PRIO_PROCESS, 0, launch->nice); /* only root is nicer to itself */
}

static void drop_capabilities(void) {
    struct { uint32_t version; int pid; } header = {0x20080522, 0};
    uint32_t none[6] = {0};
    for (int i = 0; i < CAPABILITIES; i++) prctl(PR_CAPBSET_DROP, i, 0, 0, 0); /* refused to all but root */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &header, none)) give_up("capabilities", errno);
}

static void add_rule(int ruleset, const char *rule) {
    struct { uint64_t rights; int fd; } __attribute__((packed)) beneath;
    struct stat found;
    const char *path = "";
    uint64_t rights = 0;
    if (!parse_rule(rule, &rights, &path)) give_up(rule, EINVAL);
    beneath.fd = open(path, O_PATH | O_CLOEXEC);
    if (beneath.fd < 0) return; /* there is nothing to allow */
    if (fstat(beneath.fd, &found) == 0 && !S_ISDIR(found.st_mode))
        rights &= (uint64_t)(LANDLOCK_OF_FILES | LANDLOCK_TRUNCATE);
    beneath.rights = rights & guard.launch->landlock_files;
    if (beneath.rights && syscall(SYS_landlock_add_rule, ruleset, 1, &beneath, 0)) give_up(path, errno);
    close(beneath.fd);
}

static int make_ruleset(void) {
    const struct launch *launch = guard.launch;
    uint64_t handled[3] = {launch->landlock_files, launch->landlock_network, launch->landlock_scopes};
    size_t size = handled[2] ? 24 : handled[1] ? 16 : 8; /* an older kernel takes no longer one */
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, handled, size, 0);
    if (ruleset < 0) give_up("Landlock", errno);
    for (size_t i = 0; i < launch->rules.count; i++) add_rule(ruleset, launch->rules.items[i]);
    return ruleset;
}

static void confine(void) {
    const struct launch *launch = guard.launch;
    int ruleset = launch->has_landlock ? make_ruleset() : -1;
    if (launch->drop_capabilities) drop_capabilities();
    if ((launch->has_landlock || launch->seccomp.size || launch->no_new_privileges) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        give_up("no new privileges", errno);
    if (ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0)) give_up("Landlock", errno);
    close_fd(&ruleset);
    if (!launch->seccomp.size) return;
    struct sock_filter *steps = malloc(launch->seccomp.size); /* the bytes of the description may be unaligned */
    if (!steps) give_up("seccomp", ENOMEM);
    memcpy(steps, launch->seccomp.data, launch->seccomp.size);
    struct sock_fprog program = {.len = (unsigned short)(launch->seccomp.size / sizeof *steps), .filter = steps};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)) give_up("seccomp", errno);
    free(steps);
}

static int open_source(const struct given_fd *given, int write_ready, int write_status) {
    switch (given->source) {
    case FD_STDIN: return guard.stdin_read;
    case FD_STDOUT: return write_end(0);
    case FD_STDERR: return write_end(1);
    case FD_GO: return guard.go_read;
    case FD_READY: return write_ready;
    case FD_STATUS: return write_status;
    case FD_ERRORS: return errors;
    case FD_INHERIT: return given->number;
    case FD_NULL: return open("/dev/null", O_RDWR | O_CLOEXEC);
    case FD_READ: return open(given->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    case FD_WRITE: return open(given->path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    }
    return -1;
}

static int move_high(int fd, int least, const char *what) {
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, least);
    if (high < 0) give_up(what, fd >= 0 && errno == EINVAL ? EMFILE : errno); /* EINVAL: there are not so many numbers */
    return high;
}

/* Give the command its descriptors and close all others, also the lock. Returns the ones that stay ours. */
static void arrange_fds(int write_ready, int write_status, int *go, int *tell) {
    const struct launch *launch = guard.launch;
    int high[LAUNCH_MOST_FDS], kept[LAUNCH_MOST_FDS + 2], least = 3;
    for (size_t i = 0; i < launch->fd_count; i++)
        if (launch->fds[i].target >= least) least = launch->fds[i].target + 1;
    /* All above every target, so that none is overwritten before its turn comes. */
    for (size_t i = 0; i < launch->fd_count; i++) {
        const struct given_fd *given = &launch->fds[i];
        high[i] = move_high(open_source(given, write_ready, write_status), least, given->path && *given->path ? given->path : "descriptors");
    }
    *go = move_high(guard.go_read, least, "descriptors");
    *tell = move_high(report[1], least, "descriptors");
    for (size_t i = 0; i < launch->fd_count; i++) {
        kept[i] = launch->fds[i].target;
        if (dup2(high[i], kept[i]) < 0) give_up("descriptors", errno);
        if (launch->fds[i].source == FD_READ || launch->fds[i].source == FD_WRITE) fcntl(kept[i], F_SETFL, 0);
    }
    kept[launch->fd_count] = *go, kept[launch->fd_count + 1] = *tell;
    close_all_but(kept, launch->fd_count + 2);
}

static void reset_signals(void) {
    struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int i = 1; i < NSIG; i++) sigaction(i, &usual, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static noreturn void become_command(int write_ready, int write_status) {
    const struct launch *launch = guard.launch;
    int go, tell;
    char byte = 'r';
    if (setsid() < 0) give_up("session", errno); /* the session tells the command from its guards */
    uint64_t tick = read_own_tick();
    guard.page->command_tick = tick;
    reset_signals();
    for (size_t i = 0; i < launch->groups.count; i++)
        if (!write_text(launch->groups.items[i], "cgroup.procs", "0")) give_up(launch->groups.items[i], errno);
    arrange_fds(write_ready, write_status, &go, &tell);
    if (chdir(launch->cwd)) give_up(launch->cwd, errno);
    umask(launch->umask);
    if (!launch->program_waits && access(launch->program, X_OK)) give_up(launch->program, errno);
    confine();
    set_limits();
    if (!launch->program_waits) {
        /* If both guards die before the go, the read sees the end of the pipe. */
        if (write(tell, &byte, 1) != 1 || read(go, &byte, 1) != 1) _exit(127);
    }
    execve(launch->program, launch->args.items, launch->env.items);
    give_up(launch->program, errno);
}

/* --- in the supervisor --- */

bool spawn_child(void) {
    int ready[2] = {-1, -1}, status[2] = {-1, -1};
    bool wants_ready = gives_fd(guard.launch, FD_READY), wants_status = gives_fd(guard.launch, FD_STATUS);
    static const struct bytes NOTHING = {"", 0};
    if (pipe2(report, O_CLOEXEC) || (wants_ready && pipe2(ready, O_CLOEXEC)) || (wants_status && pipe2(status, O_CLOEXEC)))
        return false;
    if (gives_fd(guard.launch, FD_ERRORS) && (errors = make_memfd(&NOTHING)) < 0) return false;
    int pid = fork_process(&guard.page->child, SIGCHLD);
    if (pid == 0) become_command(ready[1], status[1]);
    int why = errno;
    close_fd(&report[1]);
    close_fd(&ready[1]);
    close_fd(&status[1]);
    ready_read = ready[0], status_read = status[0];
    close_fd(&guard.stdin_read); /* a command that closes its input must be seen to */
    close_fd(&guard.go_read);
    errno = why;
    return pid > 0;
}

/* bubblewrap says in JSON which process it started; that is the init of the sandbox, and the command is its child. */
static int find_inner(void) {
    char text[1024], path[64];
    if (!is_ready(status_read, POLLIN)) return 0;
    ssize_t n = read(status_read, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    char *at = strstr(text, "\"child-pid\":");
    int init = at ? (int)strtol(at + 12, NULL, 10) : 0;
    if (init <= 1) return 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", init, init);
    return read_file(path, text, sizeof text) > 0 ? (int)strtol(text, NULL, 10) : 0;
}

/* What a wrapper complained about, as the reason of a refusal. */
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

/* Wait for a byte or the end on `fd`. */
static ssize_t await_byte(int fd) {
    char byte;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int64_t until = now(CLOCK_MONOTONIC) + READY_MS * MILLISECOND;
    for (;;) {
        int64_t left = (until - now(CLOCK_MONOTONIC)) / MILLISECOND;
        int found = poll(&one, 1, left > 0 ? (int)left : 0);
        if (found > 0) return read(fd, &byte, 1);
        if (found == 0) return errno = ETIMEDOUT, -1;
    }
}

/* Wait until the child is set up. False: `spawn_errno` and `spawn_what` say why it is not. */
bool await_child(void) {
    struct shared *page = guard.page;
    ssize_t said = await_byte(report[0]); /* a byte, or the end at `execve` */
    if (said < 0) page->spawn_errno = errno;
    close_fd(&report[0]);
    page->command = page->child;
    if (!page->spawn_errno && said == 0 && !guard.launch->program_waits) {
        snprintf(page->spawn_what, sizeof page->spawn_what, "the command was killed before it began");
        page->spawn_errno = ECHILD;
    }
    if (!page->spawn_errno && ready_read >= 0 && await_byte(ready_read) != 1) read_errors();
    if (!page->spawn_errno && status_read >= 0) {
        struct proc_stat stat;
        int inner = find_inner();
        if (inner > 0 && read_stat(inner, &stat) && !stat.dead) {
            page->command_tick = stat.tick;
            page->command = inner;
        } else
            read_errors();
    }
    close_fd(&ready_read);
    close_fd(&status_read);
    close_fd(&errors);
    if (!page->spawn_errno && (guard.command = open_pidfd(page->command)) < 0) page->spawn_errno = errno;
    return !page->spawn_errno;
}
