/* outlast-guard LAUNCH CALLER: read the launch description from one descriptor, talk to the caller on the other. */
#include "guard.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_UNKNOWN = 125 };

struct guard guard = {.lock = -1, .record = -1, .caller = -1, .go_read = -1, .go_write = -1, .signals = -1,
                      .peer = -1, .command = -1, .stdin_read = -1, .stdin_write = -1, .wake_fifo = -1, .streams = 1};
static struct launch launch;
static char *text;

static bool read_launch(int fd, size_t *size) {
    *size = 0;
    text = mmap(NULL, LAUNCH_MOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (text == MAP_FAILED) return false;
    for (ssize_t n; (n = read(fd, text + *size, LAUNCH_MOST_BYTES - *size)) != 0;) {
        if (n < 0 && errno != EINTR) return false;
        *size += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* The environment may hold secrets, and standard input may be large. Strings that are needed later are copies. */
void drop_launch(void) {
    if (text) munmap(text, LAUNCH_MOST_BYTES);
    text = NULL;
}

static int list_given_fds(int *into) {
    int count = 0;
    into[count++] = guard.caller, into[count++] = launch.lock_fd, into[count++] = launch.landlock_fd;
    for (size_t i = 0; i < launch.held_count; i++) into[count++] = launch.held[i];
    for (size_t i = 0; i < launch.fd_count; i++)
        if (launch.fds[i].source == FD_INHERIT) into[count++] = launch.fds[i].number;
    return count;
}

/* Descriptors of the caller that are not named would stay open as long as the task lives. */
static void close_other_fds(void) {
    int given[LAUNCH_MOST_FDS + LAUNCH_MOST_HELD + 3], count = list_given_fds(given);
    DIR *table = opendir("/proc/self/fd");
    if (!table) refuse(errno, "/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(table));) {
        int fd = (int)strtol(entry->d_name, NULL, 10), at = 0;
        while (at < count && given[at] != fd) at++;
        if (fd > 2 && at == count && fd != dirfd(table)) close(fd);
    }
    closedir(table);
    for (int i = 0; i < count; i++)
        if (given[i] >= 0 && fcntl(given[i], F_SETFD, FD_CLOEXEC)) refuse(EBADF, "a descriptor of the launch");
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        if (null < 0 || dup2(null, fd) < 0) refuse(errno, "/dev/null");
    if (null > 2) close(null);
}

static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* a closed terminal or a Ctrl-C somewhere must not end a task */
    signal(SIGCHLD, SIG_DFL);
}

static void read_identity(void) {
    struct stat space, exe;
    ssize_t n = read_file("/proc/sys/kernel/random/boot_id", guard.boot, sizeof guard.boot);
    guard.boot[n > 36 ? 36 : n > 0 ? n : 0] = 0;
    guard.pid_namespace = stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
    if (stat("/proc/self/exe", &exe) == 0) guard.exe_device = exe.st_dev, guard.exe_inode = exe.st_ino;
}

static void take_lock(void) {
    int fd = launch.lock_fd >= 0 ? launch.lock_fd : open("lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) refuse(errno, "lock");
    guard.lock = fd; /* from now on a refusal removes what is in the directory */
}

/* Everything that both guards hold, before there is a second one. */
static void open_everything(void) {
    int go[2];
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (chdir(launch.directory)) refuse(errno, launch.directory);
    guard.streams = launch.split ? 2 : 1;
    take_lock();
    if (!open_record()) refuse(errno, "record");
    if (!make_pipes()) refuse(errno, has_terminal() ? "a terminal" : "pipe");
    if (pipe2(go, O_CLOEXEC)) refuse(errno, "pipe");
    guard.go_read = go[0], guard.go_write = go[1];
    if (!open_stdin()) refuse(errno, launch.stdin_path ? launch.stdin_path : "stdin");
    guard.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (guard.signals < 0) refuse(errno, "signalfd");
}

/* In a process of its own: become the keeper, and fork the supervisor. */
static noreturn void become_keeper(void) {
    struct shared *page = guard.page;
    struct rlimit size;
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(077);
    if (getrlimit(RLIMIT_FSIZE, &size) == 0) size.rlim_cur = size.rlim_max, setrlimit(RLIMIT_FSIZE, &size);
    read_identity();
    open_everything();
    page->keeper_tick = read_own_tick();
    int pid = replace_peer(&page->supervisor);
    if (pid == 0) start_task();
    if (pid < 0 && !page->begun) refuse(errno, "fork");
    close_fd(&guard.go_read);
    if (!has_terminal()) close_fd(&guard.stdin_read);
    drop_launch();
    keep_task();
}

/* A refusal has no caller to go to: leave it in the file `refused`. */
static bool note_refusal(int line, const char *directory) {
    char message[4096];
    for (ssize_t n; (n = recv(line, message, sizeof message, MSG_DONTWAIT)) > 0;) {
        if (n < 8 || memcmp(message, "refused ", 8)) continue;
        int fd = chdir(directory) ? -1 : open("refused", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
        return write(fd, message + 8, (size_t)n - 8) || true;
    }
    return false;
}

/* Exit when the task is closed, with the code of the command: a batch system ends a job, and kills what is left of it, when
 * the process exits that it started. Orphans of two killed guards come to this process, so they stay in the job, too. */
static int stay(int line) {
    char *directory = strdup(launch.directory);
    drop_launch();
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR) {}
    if (directory && note_refusal(line, directory)) return EXIT_REFUSED;
    int status = guard.page->status;
    if (!guard.page->status_known) return EXIT_UNKNOWN;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int parse_fd_argument(const char *word) {
    char *end;
    long fd = strtol(word, &end, 10);
    return *word && !*end && fd >= 0 && fd < 1 << 20 ? (int)fd : -1;
}

int main(int argc, char **argv) {
    size_t size;
    int lines[2] = {-1, -1};
    bool check = argc == 3 && !strcmp(argv[1], "--check"), stays = argc == 3 && !strcmp(argv[1], "--stay");
    if (argc == 2 && !strcmp(argv[1], "--version")) return printf("outlast-guard %d\n", GUARD_VERSION) < 0;
    if (argc == 4 && !strcmp(argv[1], "--far")) return serve_far(argv[2], argv[3]);
    int from = argc == 3 ? parse_fd_argument(argv[check || stays ? 2 : 1]) : -1;
    guard.caller = argc == 3 && !check && !stays ? parse_fd_argument(argv[2]) : -1;
    if (from < 0 || (guard.caller < 0 && !check && !stays && strcmp(argv[2], "-"))) {
        fputs("usage: outlast-guard LAUNCH_FD CALLER_FD|-\n"
              "       outlast-guard --stay LAUNCH_FD\n"
              "       outlast-guard --check LAUNCH_FD\n       outlast-guard --far HOME SECONDS\n       outlast-guard --version\n", stderr);
        return EXIT_USAGE;
    }
    guard.launch = &launch;
    bool good = read_launch(from, &size);
    if (!good) snprintf(launch.error, sizeof launch.error, "launch: %s", strerror(errno));
    if (!good || !parse_launch(&launch, text, size)) {
        if (check || stays) printf("%s\n", launch.error);
        send_to_caller("refused %d %s", EINVAL, launch.error);
        return EXIT_REFUSED;
    }
    if (check) return 0;
    if (launch.prepare && guard.caller < 0) return EXIT_USAGE;
    block_signals();
    close_other_fds();
    struct shared *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) refuse(errno, "memory");
    guard.page = page;
    if (stays && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lines)) refuse(errno, "socketpair");
    if (stays) guard.caller = lines[0], prctl(PR_SET_CHILD_SUBREAPER, 1);
    int pid = fork_process(&guard.page->keeper, SIGCHLD);
    if (pid < 0) refuse(errno, "fork");
    if (pid == 0) {
        close_fd(&lines[1]);
        become_keeper();
    }
    if (stays) return stay(lines[1]);
    return 0; /* the caller need not wait for the task, only for us */
}
