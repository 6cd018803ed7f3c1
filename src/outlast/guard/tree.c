/* Everything that the command started, also what left its process group or its session: finds it and ends it.
 *
 * Both guards are subreapers, so whatever the command forked is below one of them. At the limit every process gets TERM
 * (and CONT, if it is stopped). After the grace all are stopped until no new one turns up, then killed: a process that
 * forks faster than we look would otherwise always be one child ahead. Signals go by pidfd to a process whose start tick
 * was compared after the pidfd was opened. */
#include "guard.h"

#include <dirent.h>

enum {
    LOOK_MS = 50,      /* while a tree is ending: look for new processes, and for those that lost a signal, this often */
    KILL_MS = 5000,    /* what survives KILL for so long hangs in the kernel, or is of another user: look every RETRY_MS */
    FREEZE_ROUNDS = 50,
};

static struct member *find_member(const struct members *list, int pid, uint64_t tick) {
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].pid == pid && list->items[i].tick == tick) return &list->items[i];
    return NULL;
}

/* A task that was started from inside of this one is below our guards, because orphans come to them, but it is not a part
 * of this task. Its guards run the same program as we do. So does our own child until its `execve`. */
static bool is_guard(int pid) {
    char path[40];
    struct stat exe;
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    return pid != guard.page->child && stat(path, &exe) == 0 && exe.st_ino == guard.exe_inode && exe.st_dev == guard.exe_device;
}

/* A process that cannot be read because it is gone is no failure; one for which there is no descriptor is. */
static void note_failure(void) { guard.look_failed |= errno != ENOENT && errno != ESRCH; }

static void add_member(struct members *list, int pid) {
    struct proc_stat who;
    bool is_there = read_stat(pid, &who);
    if (!is_there) note_failure();
    if (!is_there || who.dead || find_member(list, pid, who.tick) || is_guard(pid)) return;
    if (list->count == list->size) {
        struct member *more = realloc(list->items, (list->size * 2 + 64) * sizeof *more);
        if (!more) note_failure();
        if (!more) return;
        list->items = more, list->size = list->size * 2 + 64;
    }
    list->items[list->count++] = (struct member){.pid = pid, .tick = who.tick, .state = who.state};
}

/* Children belong to the thread that forked them. `tick` is 0 for this process itself. Returns whether this kernel lists
 * them (CONFIG_PROC_CHILDREN). */
static bool add_children(struct members *list, int pid, uint64_t tick) {
    char path[64];
    struct proc_stat after;
    size_t before = list->count;
    bool listed = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    if (!threads) note_failure();
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.12s/children", pid, entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file) note_failure();
        for (int child; file && fscanf(file, "%d", &child) == 1;) add_member(list, child);
        listed |= file != NULL;
        if (file) fclose(file);
    }
    if (threads) closedir(threads);
    /* Compared after they were read: children of a process that got the pid meanwhile are not ours. */
    if (tick && read_stat(pid, &after) && after.tick != tick) list->count = before;
    return listed;
}

/* When both guards have been replaced, processes of the task may be children of init. The `mark`, a variable that the
 * command was started with, still tells them. */
static void add_marked(struct members *list) {
    char path[40], text[1 << 16];
    const char *mark = guard.launch->mark;
    DIR *table = mark ? opendir("/proc") : NULL;
    for (struct dirent *entry; table && (entry = readdir(table));) {
        int pid = (int)strtol(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        ssize_t n = pid > 1 ? read_file(path, text, sizeof text) : 0;
        if (n > 0 && memmem(text, (size_t)n, mark, strlen(mark) + 1)) add_member(list, pid);
    }
    if (table) closedir(table);
}

struct members find_tree(void) {
    const struct shared *page = guard.page;
    struct members list = {0};
    struct proc_stat who;
    int me = getpid(), peer = me == page->supervisor ? page->keeper : page->supervisor;
    bool is_ours = me == page->supervisor || me == page->keeper; /* otherwise far.c ends the tree from outside */
    bool listed = is_ours ? add_children(&list, me, 0) : add_children(&list, page->keeper, page->keeper_tick);
    if (!is_ours) listed |= add_children(&list, page->supervisor, page->supervisor_tick);
    /* A peer that was reaped has none, and its pid may be that of another process by now. */
    if (is_ours && is_unreaped(guard.peer)) add_children(&list, peer, peer == page->keeper ? page->keeper_tick : page->supervisor_tick);
    if (page->command > 0 && read_stat(page->command, &who) && who.tick == page->command_tick) add_member(&list, page->command);
    if (!listed || page->recoveries > 1) add_marked(&list);
    for (size_t i = 0; i < list.count; i++) add_children(&list, list.items[i].pid, list.items[i].tick);
    return list;
}

/* Whether processes of the task are below this one. If that cannot be seen they may be. */
bool has_descendants(void) {
    struct members list = {0};
    guard.look_failed = false;
    if (!reap_children()) return false;
    bool found = !add_children(&list, getpid(), 0) || guard.look_failed || list.count > 0;
    free(list.items);
    return found || is_ready(guard.signals, POLLIN); /* one that ended meanwhile may have left us a child */
}

static bool send_signal(const struct member *member, int number) {
    struct proc_stat after;
    int fd = open_pidfd(member->pid);
    /* Compared after the pidfd was opened: the signal goes to the process that was below us and to no other. */
    bool sent = fd >= 0 && read_stat(member->pid, &after) && after.tick == member->tick && signal_pidfd(fd, number);
    close_fd(&fd);
    return sent;
}

/* Whether TERM ends the process. One that got TERM and is still there lost the signal: bash resets its handlers between
 * fork and exec. A process that catches TERM must not get it twice. */
static bool would_end_by_term(int pid) {
    static const char *const FIELDS[] = {"\nSigBlk:\t", "\nSigIgn:\t", "\nSigCgt:\t"};
    char path[40], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (read_file(path, text, sizeof text) <= 0) return false;
    for (size_t i = 0; i < 3; i++) {
        char *at = strstr(text, FIELDS[i]);
        if (!at || strtoull(at + 9, NULL, 16) & 1ULL << (SIGTERM - 1)) return false;
    }
    return true;
}

/* bubblewrap exits by itself when its command does, and on older kernels only its exit code says how that ended. */
static bool is_wrapper(const struct member *member) {
    return guard.page->command != guard.page->child && member->pid == guard.page->child;
}

void terminate_all(void) {
    static struct members last; /* at the last look */
    struct members list = find_tree();
    for (size_t i = 0; i < list.count; i++) {
        struct member *member = &list.items[i], *before = find_member(&last, member->pid, member->tick);
        if (is_wrapper(member)) continue;
        member->got_term = before && before->got_term;
        if (has_terminal() && !before) send_signal(member, SIGHUP); /* the terminal hangs up: an interactive shell ignores TERM */
        if (!member->got_term || would_end_by_term(member->pid)) member->got_term = send_signal(member, SIGTERM);
        if (member->state == 'T' || member->state == 't') send_signal(member, SIGCONT);
    }
    free(last.items);
    last = list;
}

/* Stop every process until no new one turns up. */
static struct members stop_all(void) {
    struct members list = find_tree(), last = {0};
    for (int round = 0; round < FREEZE_ROUNDS; round++) {
        bool fresh = false;
        for (size_t i = 0; i < list.count; i++) {
            const struct member *member = &list.items[i];
            if (!is_wrapper(member) && !find_member(&last, member->pid, member->tick)) fresh |= send_signal(member, SIGSTOP);
        }
        if (!fresh) break;
        free(last.items);
        last = list;
        list = find_tree();
    }
    free(last.items);
    return list;
}

void kill_all(void) {
    const struct strings *groups = &guard.launch->cgroups;
    for (size_t i = 0; i < groups->count; i++) write_to_cgroup(groups->items[i], "cgroup.kill", "1"); /* or the walk does it */
    struct members list = stop_all();
    for (size_t i = 0; i < list.count; i++)
        if (!is_wrapper(&list.items[i]) || list.count == 1) send_signal(&list.items[i], SIGKILL);
    free(list.items);
}

static int64_t next_look;

/* When to call `enforce_limit` next. The limit is for the command: once reached, it is for all that the command started. */
int64_t next_limit_check(void) {
    const struct shared *page = guard.page;
    if (page->limit_at) return next_look; /* 0 in a supervisor that replaces one: at once */
    return page->state == RUNNING && page->terms.limit != NEVER ? page->monotonic + page->terms.limit : NEVER;
}

void enforce_limit(void) {
    struct shared *page = guard.page;
    int64_t at = now(CLOCK_MONOTONIC);
    if (!page->limit_at) {
        write_slot(ENDING, "{\"by\":\"limit\",\"rule\":\"limit of %.10g s\",\"at\":%lld.%06lld}",
                   (double)page->terms.limit / (double)SECOND, SECONDS(now(CLOCK_REALTIME)));
        page->limit_at = at;
    }
    int64_t kill_at = page->limit_at + page->terms.grace;
    if (at < kill_at) terminate_all();
    else kill_all();
    next_look = at + (at < kill_at + KILL_MS * MILLISECOND ? LOOK_MS : RETRY_MS) * MILLISECOND;
    if (at < kill_at && next_look > kill_at) next_look = kill_at;
}

/* There will be no task: kill the child and all that it started. */
void kill_everything(void) {
    int64_t until = now(CLOCK_MONOTONIC) + KILL_MS * MILLISECOND;
    guard.page->command = 0; /* nothing is recorded about it, so it may be reaped */
    while (has_descendants() && now(CLOCK_MONOTONIC) < until) {
        kill_all();
        struct pollfd one = {.fd = guard.signals, .events = POLLIN};
        if (poll(&one, 1, LOOK_MS) > 0) drain_fd(guard.signals);
    }
}

bool write_to_cgroup(const char *group, const char *name, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", group, name);
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) > 0;
    close_fd(&fd);
    return written;
}

/* When no process is left in them. */
void remove_cgroups(void) {
    for (size_t i = 0; i < guard.launch->cgroups.count; i++) rmdir(guard.launch->cgroups.items[i]);
}

/* How many processes of the task the kernel killed because the group had no memory left. */
int count_oom_kills(void) {
    static const char *const FILES[] = {"memory.events", "memory.oom_control"}; /* of version 2 and 1 */
    int found = 0;
    for (size_t i = 0; i < guard.launch->cgroups.count * 2; i++) {
        char path[PATH_MAX], text[1024], *at;
        snprintf(path, sizeof path, "%s/%s", guard.launch->cgroups.items[i / 2], FILES[i % 2]);
        if (read_file(path, text, sizeof text) > 0 && (at = strstr(text, "oom_kill "))) found += atoi(at + 9);
    }
    return found;
}
