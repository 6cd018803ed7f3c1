/* outlast-guard --far HOME SECONDS: the far end of a connection by ssh. It starts tasks, sends what is new of their files,
 * ends them. Requests come on standard input and answers go to standard output, each a line `WORD ID NUMBER... BYTES` and
 * so many bytes; docs/disk-format.md lists them. Tasks do not depend on this process: whenever the connection breaks it
 * exits, and another one goes on from the offsets that it is told.
 *
 * A task is started once: its directory is published by a rename, which fails if there is one with that id. */
#include "guard.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/utsname.h>

enum {
    PAGE = 4096,
    MOST_FILES = 48,       /* both streams, their segments, some of which were replaced, and the order */
    PIECE = 32 << 10,
    ROUND = 256 << 10,     /* bytes of one task before the others, and requests, have their turn */
    LOOK_MS = 50,
    LOOK_AGAIN_MS = 2000,  /* for what no bell tells */
    KILL_MS = 5000,
    INPUT_MS = 2000,       /* how long a command may take to start reading what it was sent */
    BEFORE_FD = 100, START_FD = 101, /* the session's files, under the numbers that the launch names */
    MOST_REQUEST = 96 << 20,
    NAME_BYTES = 64,
};

struct file { char name[NAME_BYTES]; uint64_t offset, target; };

struct task {
    struct task *next;
    char id[NAME_BYTES];
    int caller;             /* the connection to its guard, if we started it; tells when it began */
    int bells[2];
    size_t slot;            /* its place among the descriptors of this round; 0: none */
    bool is_watched, is_starting, is_captured, was_sent, small_sent;
    int alive;              /* whether guards live: as captured */
    char page[PAGE], sent_page[PAGE];
    int sent_alive;
    struct file files[MOST_FILES];
    size_t file_count;
};

/* What a child does that may block: its answer is what it writes into a pipe. */
struct job { struct job *next; char word[16], id[NAME_BYTES]; int fd; size_t size; char text[16 * PAGE]; };

static struct task *tasks;
static struct job *jobs;
static char tasks_dir[PATH_MAX / 2], staging_dir[PATH_MAX / 2], cache_dir[PATH_MAX / 2];
static char *request;
static size_t request_bytes;

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void send_all(const char *data, size_t size) {
    while (size) {
        ssize_t n = write(STDOUT_FILENO, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0); /* the connection is gone; tasks go on */
        data += n, size -= (size_t)n;
    }
}

static void reply(const char *head, const void *data, size_t size) {
    char line[512];
    int n = snprintf(line, sizeof line, "%s %zu\n", head, size);
    send_all(line, (size_t)n);
    send_all(data, size);
}

static void answer(const char *word, const char *id, const char *text) {
    char head[160];
    snprintf(head, sizeof head, "%s %s", word, id);
    reply(head, text, strlen(text));
}

static bool is_name(const char *name) {
    return *name && *name != '.' && !strchr(name, '/') && strlen(name) < NAME_BYTES;
}

static void path_of(char *into, const char *id, const char *name) {
    snprintf(into, PATH_MAX, "%s/%s%s%s", tasks_dir, id, *name ? "/" : "", name);
}

static bool exists(const char *id, const char *name) {
    char path[PATH_MAX];
    path_of(path, id, name);
    return access(path, F_OK) == 0;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static bool make_private(const char *path) {
    char part[PATH_MAX];
    for (const char *at = path + 1;; at++) {
        if (*at != '/' && *at) continue;
        if ((size_t)(at - path) >= sizeof part) return false;
        memcpy(part, path, (size_t)(at - path));
        part[at - path] = 0;
        if (mkdir(part, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES) return false;
        if (!*at) break;
    }
    struct stat found;
    return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() && chmod(path, 0700) == 0;
}

static bool write_new(const char *path, const char *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (fd >= 0 && size) {
        ssize_t n = write(fd, data, size);
        if (n <= 0) return close(fd), false;
        data += n, size -= (size_t)n;
    }
    return fd >= 0 && close(fd) == 0;
}

static void remove_directory(const char *path) {
    char inner[PATH_MAX];
    DIR *entries = opendir(path);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(inner, sizeof inner, "%.3000s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') unlink(inner);
    }
    if (entries) closedir(entries);
    rmdir(path);
}

static int lock_is_held(const char *id) {
    char path[PATH_MAX];
    path_of(path, id, "lock");
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close_fd(&fd);
    return held;
}

static void remove_task(const char *id) {
    char path[PATH_MAX], moved[PATH_MAX];
    path_of(path, id, "");
    snprintf(moved, sizeof moved, "%.3000s/%s.%d", staging_dir, id, getpid());
    if (rename(path, moved) == 0) remove_directory(moved);
}

/* Tasks that ended long ago are removed here, whether or not the other machine ever came back for them. */
static void prune(const char *directory, time_t older_than) {
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[PATH_MAX];
        struct stat found;
        bool is_task = directory == tasks_dir;
        snprintf(path, sizeof path, "%.3000s/%s%s", directory, entry->d_name, is_task ? "/record" : "");
        if (entry->d_name[0] == '.' || (is_task && lock_is_held(entry->d_name))) continue;
        if (stat(path, &found) || found.st_mtime > older_than) continue;
        if (is_task) remove_task(entry->d_name);
        else remove_directory(path);
    }
    if (entries) closedir(entries);
}

/* --- what is new of a task --------------------------------------------------------------------------------------- */

static struct task *find_task(const char *id, bool make) {
    for (struct task *one = tasks; one; one = one->next)
        if (!strcmp(one->id, id)) return one;
    struct task *made = make ? calloc(1, sizeof *made) : NULL;
    if (!made) return NULL;
    snprintf(made->id, sizeof made->id, "%s", id);
    made->caller = made->bells[0] = made->bells[1] = -1;
    made->next = tasks;
    return tasks = made;
}

static void leave_task(struct task *task) {
    task->is_watched = task->is_captured = task->was_sent = task->small_sent = false;
    task->file_count = 0;
    for (int i = 0; i < 2; i++) close_fd(&task->bells[i]);
}

/* Entries of segments that the guard removed are used again: their target stays behind. */
static struct file *find_file(struct task *task, const char *name) {
    struct file *unused = NULL;
    for (size_t i = 0; i < task->file_count; i++) {
        if (!strcmp(task->files[i].name, name)) return &task->files[i];
        if (!exists(task->id, task->files[i].name)) unused = &task->files[i];
    }
    if (!unused && task->file_count < MOST_FILES) unused = &task->files[task->file_count++];
    if (unused) {
        memset(unused, 0, sizeof *unused);
        snprintf(unused->name, sizeof unused->name, "%.63s", name);
    }
    return unused;
}

static bool is_output(const char *name) {
    return !strncmp(name, "output", 6) || (!strncmp(name, "stderr", 6)) || !strcmp(name, "order") || !strcmp(name, "sizes");
}

static void rearm(struct task *task) {
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        path_of(path, task->id, i ? "bell.1" : "bell.0");
        close_fd(&task->bells[i]);
        task->bells[i] = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    }
}

/* Read the record before the sizes of the files: what it says is then true of the output up to those sizes. The lock comes
 * first: the guards record the end before they release it. */
static bool capture(struct task *task) {
    char path[PATH_MAX];
    rearm(task);
    task->alive = lock_is_held(task->id);
    path_of(path, task->id, "record");
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool whole = fd >= 0 && pread(fd, task->page, PAGE, 0) == PAGE;
    close_fd(&fd);
    path_of(path, task->id, "");
    DIR *entries = whole ? opendir(path) : NULL;
    if (!entries) return false;
    for (struct dirent *entry; (entry = readdir(entries));) {
        struct stat found;
        struct file *file;
        path_of(path, task->id, entry->d_name);
        if (!is_output(entry->d_name) || lstat(path, &found) || !S_ISREG(found.st_mode)) continue;
        if ((file = find_file(task, entry->d_name))) file->target = (uint64_t)found.st_size;
    }
    closedir(entries);
    return task->is_captured = true;
}

/* Send some of what is new; returns whether all up to the captured sizes was sent. */
static bool send_output(struct task *task) {
    static char piece[PIECE];
    size_t sent = 0;
    for (size_t i = 0; i < task->file_count; i++) {
        struct file *file = &task->files[i];
        char path[PATH_MAX], head[200];
        if (file->offset >= file->target) continue;
        path_of(path, task->id, file->name);
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        while (fd >= 0 && file->offset < file->target && sent < ROUND) {
            uint64_t left = file->target - file->offset;
            ssize_t n = pread(fd, piece, left < PIECE ? (size_t)left : PIECE, (off_t)file->offset);
            if (n <= 0) file->offset = file->target; /* the command truncated it */
            if (n <= 0) break;
            snprintf(head, sizeof head, "data %s %s %llu", task->id, file->name, (unsigned long long)file->offset);
            reply(head, piece, (size_t)n);
            file->offset += (uint64_t)n, sent += (size_t)n;
        }
        if (fd < 0) file->offset = file->target; /* the guard dropped the segment */
        close_fd(&fd);
        if (sent >= ROUND) return false;
    }
    return true;
}

/* What the shell wrote before its end: small, and read whole. */
static void send_small_files(struct task *task) {
    static const char *const NAMES[] = {"pipes", "start", "state"};
    for (size_t i = 0; i < 3; i++) {
        char path[PATH_MAX], head[120];
        struct stat found;
        path_of(path, task->id, NAMES[i]);
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        size_t size = fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? (size_t)found.st_size : 0;
        char *data = size && size < LAUNCH_MOST_BYTES ? malloc(size) : NULL;
        if (data && pread(fd, data, size, 0) == (ssize_t)size) {
            snprintf(head, sizeof head, "file %s %s", task->id, NAMES[i]);
            reply(head, data, size);
        }
        free(data);
        close(fd);
    }
    task->small_sent = true;
}

/* --- a task's processes, from outside ---------------------------------------------------------------------------- */

static bool parse_identity(const char *page, const char *name, int *pid, _Atomic uint64_t *tick) {
    char key[32];
    unsigned long long value = 0;
    snprintf(key, sizeof key, "\"%s\":[", name);
    const char *at = strstr(page, key);
    bool found = at && sscanf(at + strlen(key), "%d,%llu", pid, &value) == 2;
    *tick = value;
    return found;
}

/* Let tree.c see the task as one of its guards would. False: it has none, or runs under another kernel or pid namespace. */
static bool adopt_tree(const char *id, const char *page) {
    static struct shared shared;
    static struct launch launch;
    static char mark[NAME_BYTES + 20], boot[40], text[PAGE + 1];
    struct stat exe, space;
    int supervisor = 0, keeper = 0, command = 0;
    memcpy(text, page, PAGE);
    memset(&shared, 0, sizeof shared);
    guard.page = &shared, guard.launch = &launch;
    snprintf(mark, sizeof mark, "OUTLAST_TASK_ID=%s", id);
    launch.mark = mark;
    ssize_t n = read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    boot[n > 36 ? 36 : n > 0 ? n : 0] = 0;
    const char *ns = strstr(text, "\"pidns\":"), *again = strstr(text, "\"recoveries\":");
    if (n <= 0 || !strstr(text, boot) || !ns || stat("/proc/self/ns/pid", &space)) return false;
    if (strtoull(ns + 8, NULL, 10) != (unsigned long long)space.st_ino) return false;
    shared.recoveries = again ? atoi(again + 13) : 0;
    parse_identity(text, "supervisor", &supervisor, &shared.supervisor_tick);
    parse_identity(text, "keeper", &keeper, &shared.keeper_tick);
    if (!parse_identity(text, "command", &command, &shared.command_tick)) return false;
    shared.supervisor = supervisor;
    shared.keeper = keeper;
    shared.command = command;
    /* Guards are recognised by their program, which may be another version than this one. */
    for (int i = 0; i < 2; i++) {
        char path[40];
        struct proc_stat who;
        int pid = i ? keeper : supervisor;
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        if (pid > 0 && read_stat(pid, &who) && who.tick == (i ? shared.keeper_tick : shared.supervisor_tick) && !stat(path, &exe))
            guard.exe_device = exe.st_dev, guard.exe_inode = exe.st_ino;
    }
    return true;
}

static void look(struct task *task) {
    char head[400], children[2048] = "";
    if (!task->is_captured && !capture(task)) {
        if (exists(task->id, "record") || task->is_starting) return; /* it cannot be read at this moment */
        answer("none", task->id, ""); /* also if its start was given up */
        leave_task(task);
        return;
    }
    bool has_ended = task->page[1664] > ' ';
    if (!send_output(task)) return;
    if (has_ended && !task->small_sent) send_small_files(task);
    task->is_captured = false;
    if (task->was_sent && task->alive == task->sent_alive && !memcmp(task->page, task->sent_page, PAGE)) return;
    if (has_ended && task->alive && adopt_tree(task->id, task->page)) {
        struct members left = find_tree();
        for (size_t i = 0, n = 0; i < left.count && n < sizeof children - 16; i++)
            n += (size_t)snprintf(children + n, sizeof children - n, "%s%d", n ? "," : "", left.items[i].pid);
        free(left.items);
    }
    snprintf(head, sizeof head, "state %s %d %.180s", task->id, task->alive, *children ? children : "-");
    char whole[PAGE];
    memcpy(whole, task->page, PAGE);
    reply(head, whole, PAGE);
    memcpy(task->sent_page, task->page, PAGE);
    task->sent_alive = task->alive, task->was_sent = true;
    if (!task->alive && task->caller < 0) leave_task(task); /* it is closed: no more will come */
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static bool next_item(char **at, char *name, char **data, size_t *size) {
    int used = 0;
    unsigned long long bytes;
    if (sscanf(*at, "%63s %llu%n", name, &bytes, &used) != 2 || (*at)[used] != '\n') return false;
    *data = *at + used + 1, *size = (size_t)bytes;
    if (*size > request_bytes - (size_t)(*data - request)) return false;
    *at = *data + *size + 1;
    return true;
}

static void refuse_start(const char *id, int number, const char *what) {
    char head[160], text[400];
    snprintf(head, sizeof head, "refused %s %d", id, number);
    snprintf(text, sizeof text, "%s", what);
    reply(head, text, strlen(text));
}

/* A task with this id is there already: the request was repeated, or its start was given up. */
static bool is_taken(const char *id) {
    if (!exists(id, "")) return false;
    if (exists(id, "never")) refuse_start(id, EEXIST, "its start was given up before");
    else {
        char head[160];
        snprintf(head, sizeof head, "started %s 0 0 0", id);
        reply(head, "", 0);
    }
    return true;
}

static void run_guard(struct task *task, int launch) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        refuse_start(task->id, errno, strerror(errno));
        return;
    }
    int pid = fork();
    if (pid == 0) {
        char from[16], to[16];
        fcntl(launch, F_SETFD, 0), fcntl(pair[1], F_SETFD, 0);
        snprintf(from, sizeof from, "%d", launch), snprintf(to, sizeof to, "%d", pair[1]);
        signal(SIGPIPE, SIG_DFL);
        const char *program = getenv("OUTLAST_FAR_GUARD"); /* an emulator cannot execute this program by itself */
        execl(program ? program : "/proc/self/exe", "outlast-guard", from, to, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    if (pid > 0) waitpid(pid, NULL, 0);
    if (pid < 0) refuse_start(task->id, errno, strerror(errno));
    task->is_starting = pid > 0;
    task->caller = pair[0];
    if (pid < 0) close_fd(&task->caller);
}

/* The items are files of the task, or: `cache:NAME`, a file for all tasks; `program` and `cwd`, to be checked; `skip`, the
 * session's file is only read; `launch`, which comes last. */
static void start(const char *id) {
    char staged[PATH_MAX], path[PATH_MAX], name[NAME_BYTES], *at = request, *data, why[500] = "";
    size_t size;
    int launch = -1;
    if (is_taken(id)) return;
    snprintf(staged, sizeof staged, "%.3000s/%s.%d", staging_dir, id, getpid());
    if (mkdir(staged, 0700)) {
        refuse_start(id, errno, strerror(errno));
        return;
    }
    while (!*why && at < request + request_bytes && next_item(&at, name, &data, &size)) {
        bool good = true;
        char *text = data;
        if (!strcmp(name, "program") || !strcmp(name, "cwd")) {
            text[size] = 0;
            good = access(text, X_OK) == 0;
            if (!good) snprintf(why, sizeof why, "%s: %.400s", strerror(errno), text);
            continue;
        }
        if (!strcmp(name, "launch")) {
            launch = memfd_create("launch", MFD_CLOEXEC);
            good = launch >= 0 && dprintf(launch, "outlast-launch 1\ndirectory %zu\n%s\n", strlen(staged), staged) > 0 &&
                   write(launch, data, size) == (ssize_t)size && lseek(launch, 0, SEEK_SET) == 0;
        } else if (!strcmp(name, "skip")) {
            snprintf(path, sizeof path, "%.3500s/before", staged);
            unlink(path);
        } else if (!strncmp(name, "cache:", 6)) {
            char made[PATH_MAX + 16];
            snprintf(path, sizeof path, "%.3500s/%s", cache_dir, name + 6);
            snprintf(made, sizeof made, "%s.%d", path, getpid());
            good = is_name(name + 6) && (access(path, R_OK) == 0 || (write_new(made, data, size) && rename(made, path) == 0));
        } else {
            snprintf(path, sizeof path, "%.3500s/%s", staged, name);
            good = is_name(name) && write_new(path, data, size);
            int number = !strcmp(name, "before") ? BEFORE_FD : !strcmp(name, "start") ? START_FD : -1;
            int fd = good && number > 0 ? open(path, number == START_FD ? O_RDWR : O_RDONLY) : -1;
            if (number > 0) good = fd >= 0 && dup2(fd, number) == number;
            close_fd(&fd);
        }
        if (!good) snprintf(why, sizeof why, "%s: %s", name, strerror(errno));
    }
    if (!*why && launch < 0) snprintf(why, sizeof why, "the request is not complete");
    struct task *task = *why ? NULL : find_task(id, true);
    if (task) run_guard(task, launch);
    else refuse_start(id, EINVAL, *why ? why : "no memory");
    if (!task || !task->is_starting) remove_directory(staged);
    close_fd(&launch);
    close(BEFORE_FD), close(START_FD);
}

static void listen_to_guard(struct task *task) {
    char text[1024], head[200];
    ssize_t n = recv(task->caller, text, sizeof text - 1, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    text[n > 0 ? n : 0] = 0;
    int number, used = 0;
    bool was_starting = task->is_starting;
    if (n <= 0) close_fd(&task->caller);
    if (!was_starting) return;
    task->is_starting = false;
    if (!strncmp(text, "started ", 8)) {
        snprintf(head, sizeof head, "started %s %.80s", task->id, text + 8);
        reply(head, "", 0);
    } else if (sscanf(text, "refused %d %n", &number, &used) == 1) {
        close_fd(&task->caller);
        if (number != EEXIST && number != ENOTEMPTY) refuse_start(task->id, number, text + used);
        else if (!is_taken(task->id)) refuse_start(task->id, number, text + used);
    } else if (n <= 0) {
        if (!is_taken(task->id)) refuse_start(task->id, ECHILD, "both guard processes were killed at the start");
    } else task->is_starting = true;
}

/* Make sure that a task whose start was not confirmed never begins: its place is taken by a directory that says so. */
static void give_up(const char *id) {
    char staged[PATH_MAX], path[PATH_MAX];
    snprintf(staged, sizeof staged, "%.3000s/%s.never.%d", staging_dir, id, getpid());
    snprintf(path, sizeof path, "%.3500s/never", staged);
    bool made = mkdir(staged, 0700) == 0 && write_new(path, "", 0);
    path_of(path, id, "");
    if (!made || rename(staged, path)) remove_directory(staged);
    if (!exists(id, "never")) answer("never", id, exists(id, "") ? "started" : strerror(errno));
    else answer("never", id, "");
}

static void begin_job(const char *word, const char *id) {
    int pipes[2];
    struct job *job = calloc(1, sizeof *job);
    if (!job || pipe2(pipes, O_CLOEXEC | O_NONBLOCK)) {
        answer(word, id, "failed no descriptor or memory is left");
        free(job);
        return;
    }
    int pid = fork();
    if (pid == 0) {
        fcntl(pipes[1], F_SETFL, 0);
        setsid(); /* what was asked for is done even if the connection breaks now */
        signal(SIGHUP, SIG_IGN);
        dup2(pipes[1], STDOUT_FILENO);
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO), dup2(null, STDERR_FILENO);
        free(job);
        return;
    }
    close(pipes[1]);
    snprintf(job->word, sizeof job->word, "%s", word);
    snprintf(job->id, sizeof job->id, "%s", id);
    job->fd = pipes[0], job->next = jobs;
    jobs = job;
}

static void say(const char *text) { send_all(text, strlen(text)); }

static bool read_page(char *page) {
    int fd = open("record", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool whole = fd >= 0 && pread(fd, page, PAGE, 0) == PAGE;
    close_fd(&fd);
    return whole;
}

/* In a child, in the task's directory. Says `ended PID... survived PID...`. */
static noreturn void end_tree(const char *id, double grace, const char *ending) {
    char page[PAGE + 1] = "", text[32];
    struct members all = {0}, list = {0};
    if (!read_page(page) || !adopt_tree(id, page)) say("failed its processes are not those of this machine"), _exit(0);
    if (page[1664] <= ' ' && page[1152] <= ' ' && open_record()) write_slot(ENDING, "%s", ending);
    int64_t begun = now(CLOCK_MONOTONIC), kill_at = begun + (int64_t)(grace * (double)SECOND);
    if (grace > 1e8) kill_at = NEVER - KILL_MS * MILLISECOND;
    int guards[] = {guard.page->supervisor, guard.page->keeper};
    for (int i = 0; i < 2; i++) { /* a stopped guard would not record the end */
        int fd = open_pidfd(guards[i]);
        struct proc_stat who;
        uint64_t tick = i ? guard.page->keeper_tick : guard.page->supervisor_tick;
        if (read_stat(guards[i], &who) && who.tick == tick) signal_pidfd(fd, SIGCONT);
        close_fd(&fd);
    }
    for (;;) {
        if (read_page(page)) adopt_tree(id, page); /* a guard may have been replaced */
        list = find_tree();
        for (size_t i = 0; i < list.count; i++) {
            size_t at = 0;
            while (at < all.count && all.items[at].pid != list.items[i].pid) at++;
            if (at < all.count) continue;
            struct member *more = realloc(all.items, (all.count + 1) * sizeof *more);
            if (more) all.items = more, all.items[all.count++] = list.items[i];
        }
        int64_t at = now(CLOCK_MONOTONIC);
        if ((!list.count && !lock_is_held(id)) || at > kill_at + KILL_MS * MILLISECOND) break;
        if (list.count && at < kill_at) terminate_all();
        else if (list.count) kill_all();
        free(list.items);
        poll(NULL, 0, list.count ? LOOK_MS : 5);
    }
    say("ended");
    for (size_t i = 0; i < all.count; i++) {
        bool is_left = false;
        for (size_t at = 0; at < list.count; at++) is_left |= list.items[at].pid == all.items[i].pid;
        snprintf(text, sizeof text, " %s%d", is_left ? "-" : "", all.items[i].pid);
        say(text);
    }
    _exit(0);
}

/* In a child. A command that does not read must not hold up this connection. */
static noreturn void feed(bool eof) {
    char text[100];
    size_t sent = 0;
    int fd = open("stdin", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) say(errno == ENXIO ? "closed" : "failed it takes no input"), _exit(0);
    signal(SIGPIPE, SIG_IGN);
    while (sent < request_bytes) {
        struct pollfd one = {.fd = fd, .events = POLLOUT};
        ssize_t n = poll(&one, 1, INPUT_MS) > 0 ? write(fd, request + sent, request_bytes - sent) : -1;
        if (n < 0 && errno == EAGAIN && one.revents & POLLOUT) continue;
        if (n < 0) break;
        sent += (size_t)n;
    }
    if (eof && sent == request_bytes) {
        if (!write_new("stdin.eof", "", 0)) say("failed the end of the input cannot be noted"), _exit(0);
        int wake = open("wake", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (wake >= 0 && write(wake, "", 1) < 0) errno = 0; /* the pipe is full, so the guard wakes up anyway */
    }
    snprintf(text, sizeof text, "sent %zu", sent);
    say(text);
    _exit(0);
}

static void send_signal(const char *id, int number) {
    char page[PAGE + 1] = "", path[PATH_MAX];
    struct proc_stat who;
    path_of(path, id, "");
    bool found = chdir(path) == 0 && read_page(page) && adopt_tree(id, page);
    int command = found ? guard.page->command : 0;
    bool sent = command > 0 && read_stat(command, &who) && who.tick == guard.page->command_tick && !kill(-command, number);
    if (chdir("/")) sent = false;
    answer("signal", id, sent ? "sent" : "gone");
}

static void resize(const char *id) {
    char path[PATH_MAX];
    path_of(path, id, "size");
    bool done = exists(id, "") && write_new(path, request, request_bytes);
    path_of(path, id, "wake");
    int wake = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (wake >= 0 && write(wake, "", 1) < 0) errno = 0; /* the pipe is full, so the guard wakes up anyway */
    close_fd(&wake);
    answer("resize", id, done ? "" : "failed");
}

/* The offsets from which to send: `NAME OFFSET` on each line. */
static void watch(const char *id) {
    struct task *task = find_task(id, true);
    if (!task) {
        answer("none", id, "");
        return;
    }
    leave_task(task);
    task->is_watched = true;
    for (char *line = strtok(request, "\n"); line; line = strtok(NULL, "\n")) {
        char name[NAME_BYTES];
        unsigned long long offset;
        struct file *file;
        if (sscanf(line, "%63s %llu", name, &offset) != 2 || !is_output(name) || !is_name(name)) continue;
        if (task->file_count < MOST_FILES) {
            file = &task->files[task->file_count++];
            snprintf(file->name, sizeof file->name, "%s", name);
            file->offset = offset, file->target = 0;
        }
    }
}

static void obey(const char *word, const char *id, double number) {
    static int parent;
    if (!parent) parent = getpid();
    request[request_bytes] = 0;
    if (!strcmp(word, "start")) {
        start(id);
        return;
    }
    if (!strcmp(word, "watch")) {
        watch(id);
        return;
    }
    if (!strcmp(word, "never")) {
        give_up(id);
        return;
    }
    if (!strcmp(word, "signal")) {
        send_signal(id, (int)number);
        return;
    }
    if (!strcmp(word, "resize")) {
        resize(id);
        return;
    }
    if (!strcmp(word, "ping")) {
        answer("pong", id, "");
        return;
    }
    if (!strcmp(word, "forget") && !lock_is_held(id)) {
        remove_task(id);
        return;
    }
    if (!strcmp(word, "leave")) {
        struct task *task = find_task(id, false);
        if (task) leave_task(task);
        return;
    }
    if (strcmp(word, "kill") && strcmp(word, "input")) return;
    begin_job(word, id);
    if (getpid() == parent) return;
    char path[PATH_MAX];
    path_of(path, id, "");
    if (chdir(path)) say("failed there is no such task"), _exit(0);
    if (!strcmp(word, "kill")) end_tree(id, number, request);
    feed(number > 0);
}

/* Read one request; false at the end of the connection. */
static bool read_exactly(char *into, size_t size) {
    while (size) {
        ssize_t n = read(STDIN_FILENO, into, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        into += n, size -= (size_t)n;
    }
    return true;
}

static bool read_request(void) {
    char line[256], word[16], id[NAME_BYTES];
    size_t n = 0;
    double number;
    unsigned long long bytes;
    do {
        if (n == sizeof line - 1 || !read_exactly(line + n, 1)) return false;
    } while (line[n++] != '\n');
    line[n] = 0;
    if (sscanf(line, "%15s %63s %lf %llu", word, id, &number, &bytes) != 4 || bytes > MOST_REQUEST || !is_name(id)) return false;
    request = realloc(request, bytes + 1);
    request_bytes = (size_t)bytes;
    if (!request || !read_exactly(request, request_bytes)) return false;
    obey(word, id, number);
    return true;
}

static void finish_jobs(void) {
    for (struct job **at = &jobs; *at;) {
        struct job *job = *at;
        ssize_t n = read(job->fd, job->text + job->size, sizeof job->text - 1 - job->size);
        if (n > 0) job->size += (size_t)n;
        if (n > 0 || (n < 0 && errno == EAGAIN)) {
            at = &job->next;
            continue;
        }
        answer(job->word, job->id, job->text);
        *at = job->next;
        close(job->fd);
        free(job);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

/* --- the connection ---------------------------------------------------------------------------------------------- */

static const char *find_shell(char *into) {
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(into, PATH_MAX, "%.*s/bash", (int)strcspn(at, ":"), at);
        if (*at == '/' && access(into, X_OK) == 0) return into;
    }
    return "/bin/sh";
}

/* What the other side has to know before it can ask for anything: lines, then the variables of a login here. */
static void say_hello(const char *home) {
    extern char **environ;
    char head[64], shell[PATH_MAX];
    struct utsname system;
    size_t size = 0, most = 16384;
    mode_t mask = umask(077);
    uname(&system);
    for (char **one = environ; *one; one++) most += strlen(*one) + 1;
    char *text = calloc(1, most);
    if (!text) _exit(1);
    size = (size_t)snprintf(text, most, "%s\n%s\n%s\n%o\n%s %s %s\n", home, getenv("HOME") ? getenv("HOME") : "/",
                            find_shell(shell), mask, system.sysname, system.release, system.machine);
    for (char **one = environ; *one; one++) {
        memcpy(text + size, *one, strlen(*one) + 1);
        size += strlen(*one) + 1;
    }
    snprintf(head, sizeof head, "hello far %d", GUARD_VERSION);
    reply(head, text, size);
    free(text);
}

static size_t list_fds(struct pollfd *fds, size_t most) {
    size_t count = 0;
    for (struct task *one = tasks; one; one = one->next) one->slot = 0;
    fds[count++] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    for (struct job *one = jobs; one && count < most; one = one->next) fds[count++] = (struct pollfd){.fd = one->fd, .events = POLLIN};
    for (struct task *one = tasks; one && count + 3 < most; one = one->next) {
        one->slot = count;
        fds[count++] = (struct pollfd){.fd = one->caller, .events = POLLIN};
        for (int i = 0; i < 2; i++) fds[count++] = (struct pollfd){.fd = one->bells[i]};
    }
    return count;
}

/* Of each watched task what is new, in turn; returns whether there is more. `all`: also where no descriptor is ready. */
static bool look_at_tasks(const struct pollfd *fds, bool all) {
    bool more = false;
    for (struct task *one = tasks; one; one = one->next) {
        bool is_due = all || !one->slot || !one->was_sent || one->is_captured;
        for (size_t i = 0; one->slot && i < 3; i++) is_due |= fds[one->slot + i].revents != 0;
        if (one->caller >= 0 && is_due) listen_to_guard(one);
        if (one->is_watched && is_due) look(one);
        more |= one->is_watched && one->is_captured;
    }
    for (struct task **at = &tasks; *at;) {
        struct task *one = *at;
        if (one->is_watched || one->caller >= 0) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one);
    }
    return more;
}

int serve_far(const char *home, const char *retention) {
    static struct pollfd fds[4096];
    time_t keep = (time_t)strtoll(retention, NULL, 10), today = time(NULL);
    const char *base = getenv("OUTLAST_FAR_HOME"), *user = getenv("HOME");
    char state[PATH_MAX / 4];
    if (base && *base == '/') snprintf(state, sizeof state, "%s/%s", base, home);
    else snprintf(state, sizeof state, "%s/.local/state/outlast-far/%s", user && *user == '/' ? user : "/tmp", home);
    snprintf(tasks_dir, sizeof tasks_dir, "%s/tasks", state);
    snprintf(staging_dir, sizeof staging_dir, "%s/staging", state);
    snprintf(cache_dir, sizeof cache_dir, "%s/cache", state);
    signal(SIGPIPE, SIG_IGN);
    say_hello(state);
    if (!is_name(home) || !make_private(tasks_dir) || !make_private(staging_dir) || !make_private(cache_dir)) {
        answer("failed", "far", strerror(errno));
        return 1;
    }
    prune(tasks_dir, today - keep);
    prune(staging_dir, today - 3600);
    for (bool more = false;;) {
        size_t count = list_fds(fds, sizeof fds / sizeof *fds);
        int ready = poll(fds, count, more ? 0 : LOOK_AGAIN_MS);
        if (ready < 0 && errno != EINTR) return 1;
        if (ready > 0 && fds[0].revents && !read_request()) return 0;
        finish_jobs();
        more = look_at_tasks(fds, ready == 0 && !more);
    }
}
