/* Ends everything that the command started, also what left its process group or its session.
 *
 * Both guards are subreapers, so whatever the command forked is below one of them. First every process is asked to end (TERM,
 * and CONT for one that is stopped). After the grace all are stopped until no new one turns up, then killed: what forks
 * faster than we look would otherwise always be one child ahead. Signals go by pidfd to a process whose start tick was
 * compared after the pidfd was opened. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

enum {
    FIRST_LOOK_MS = 10, /* after the first TERM: a shell between fork and exec loses it, see `would_end_by_term` */
    LOOK_MS = 250,      /* while a tree is ending: look for new members this often */
    KILL_LOOK_MS = 20,
    KILL_MS = 5000,     /* what survives KILL for so long hangs in the kernel */
    FREEZE_ROUNDS = 50,
};

struct member {
    int pid;
    uint64_t tick;
    char state;
    bool asked;
};

struct members {
    struct member *items;
    size_t count, size;
};

static struct members known; /* at the last look */
static bool staged_guard;
static int64_t next_look = NEVER, stage_ends, look_after;
static enum { IDLE, ASKING, FORCING, GIVEN_UP } stage;

static struct member *find_member(const struct members *list, int pid) {
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].pid == pid) return &list->items[i];
    return NULL;
}

static void add_member(struct members *list, int pid, const struct proc_stat *stat) {
    if (list->count == list->size) {
        size_t size = list->size * 2 + 64;
        struct member *more = realloc(list->items, size * sizeof *more);
        if (!more) return; /* it is found at the next look */
        list->items = more, list->size = size;
    }
    list->items[list->count++] = (struct member){.pid = pid, .tick = stat->tick, .state = stat->state};
}

/* --- who belongs to the tree --- */

/* Whether a process is a guard of another task in the same directory of tasks. A task that was started from inside of this
 * one is below our guards in the process table, because orphans come to them, but it is not a part of this task. */
static bool guards_other_task(int pid, const struct proc_stat *who) {
    char path[64], text[1024], needle[64];
    struct stat theirs, ours;
    snprintf(path, sizeof path, "/proc/%d/cwd/..", pid);
    if (stat(path, &theirs) || stat("..", &ours) || theirs.st_ino != ours.st_ino || theirs.st_dev != ours.st_dev) return false;
    snprintf(path, sizeof path, "/proc/%d/cwd/record", pid);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool found = false, read = false;
    for (int i = 0; fd >= 0 && i < 3 && !read; i++) read = read_slot(fd, GUARDS, text, sizeof text); /* it may be torn */
    close_fd(&fd);
    if (!read) return false;
    /* A new guard is not recorded in the moment it is forked, but it is in the session of its guards, which no other
     * process can join. */
    snprintf(needle, sizeof needle, "\"session\":%d,", who->session);
    found = strstr(text, needle);
    snprintf(needle, sizeof needle, "\"supervisor\":[%d,%llu]", pid, (unsigned long long)who->tick);
    found = found || strstr(text, needle);
    snprintf(needle, sizeof needle, "\"keeper\":[%d,%llu]", pid, (unsigned long long)who->tick);
    return found || strstr(text, needle);
}

static void visit(struct members *list, int pid) {
    struct proc_stat who;
    if (pid <= 1 || find_member(list, pid) || !read_stat(pid, &who) || who.dead) return;
    if (who.session == guard.page->session || guards_other_task(pid, &who)) return; /* a guard */
    add_member(list, pid, &who);
}

/* Children belong to the thread that forked them. Returns whether this kernel lists them at all. */
static bool visit_children(struct members *list, int pid) {
    char path[64], text[8192];
    bool listed = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.12s/children", pid, entry->d_name);
        ssize_t n = read_file(path, text, sizeof text);
        listed |= n >= 0;
        char *at = text, *end;
        for (int child; n > 0 && (child = (int)strtol(at, &end, 10)) > 0; at = end) visit(list, child);
    }
    if (threads) closedir(threads);
    return listed;
}

static bool has_mark(int pid) {
    char path[40], text[1 << 16];
    size_t length = guard.launch->mark ? strlen(guard.launch->mark) : 0;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    ssize_t n = length ? read_file(path, text, sizeof text) : 0;
    for (char *at = text; n > 0 && at < text + n; at += strlen(at) + 1)
        if (!strcmp(at, guard.launch->mark)) return true;
    return false;
}

/* Look at every process: for children on a kernel that does not list them, and for the processes of a task of which both
 * guards were replaced. Those have become children of init, and are known by a variable that they were started with. */
static void visit_all(struct members *list, bool by_parent) {
    DIR *table = opendir("/proc");
    for (struct dirent *entry; table && (entry = readdir(table));) {
        int pid = (int)strtol(entry->d_name, NULL, 10);
        struct proc_stat who;
        if (pid <= 1 || !read_stat(pid, &who)) continue;
        bool below = by_parent && (who.parent == guard.page->supervisor || who.parent == guard.page->keeper ||
                                   find_member(list, who.parent));
        if (below || (guard.page->recoveries > 1 && has_mark(pid))) visit(list, pid);
    }
    if (table) closedir(table);
}

static struct members look_at_tree(void) {
    struct members list = {0};
    struct proc_stat who;
    bool listed = visit_children(&list, guard.page->supervisor) | visit_children(&list, guard.page->keeper);
    int command = guard.page->command;
    if (command > 0 && read_stat(command, &who) && who.tick == guard.page->command_tick) visit(&list, command);
    if (!listed || guard.page->recoveries > 1) visit_all(&list, !listed);
    for (size_t i = 0; listed && i < list.count; i++) visit_children(&list, list.items[i].pid);
    for (size_t before = 0; !listed && list.count > before;) before = list.count, visit_all(&list, true);
    return list;
}

/* --- signals --- */

static bool send_signal(const struct member *member, int number) {
    struct proc_stat after;
    int fd = open_pidfd(member->pid);
    /* Compared after the pidfd was opened: the signal goes to the process that was below us and to no other. */
    bool sent = fd >= 0 && read_stat(member->pid, &after) && after.tick == member->tick && signal_pidfd(fd, number);
    close_fd(&fd);
    return sent;
}

/* Whether TERM would end the process. If it was asked and is still there, it lost the signal: bash resets its handlers
 * between fork and exec. One that catches TERM must not be asked twice. */
static bool would_end_by_term(int pid) {
    char path[40], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (read_file(path, text, sizeof text) <= 0) return false;
    uint64_t bit = 1ULL << (SIGTERM - 1);
    const char *const FIELDS[] = {"\nSigBlk:\t", "\nSigIgn:\t", "\nSigCgt:\t"};
    for (size_t i = 0; i < 3; i++) {
        char *at = strstr(text, FIELDS[i]);
        if (!at || strtoull(at + 9, NULL, 16) & bit) return false;
    }
    return true;
}

/* bubblewrap leaves by itself when its command does, and on older kernels only its exit code says how that ended. */
static bool is_wrapper(const struct member *member) {
    return guard.page->command != guard.page->child && member->pid == guard.page->child;
}

static void ask_all(struct members *list) {
    for (size_t i = 0; i < list->count; i++) {
        struct member *member = &list->items[i], *before = find_member(&known, member->pid);
        member->asked = before && before->tick == member->tick && before->asked;
        if (is_wrapper(member)) continue;
        if (!member->asked || would_end_by_term(member->pid)) member->asked = send_signal(member, SIGTERM);
        if (member->state == 'T' || member->state == 't') send_signal(member, SIGCONT);
    }
}

static void kill_cgroups(void) {
    for (size_t i = 0; i < guard.launch->groups.count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%.4000s/cgroup.kill", guard.launch->groups.items[i]);
        int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && write(fd, "1", 1) < 0) errno = 0; /* the walk below does it */
        close_fd(&fd);
    }
}

static void kill_all(struct members *list) {
    kill_cgroups();
    for (int round = 0; round < FREEZE_ROUNDS; round++) {
        bool fresh = false;
        for (size_t i = 0; i < list->count; i++) {
            struct member *before = find_member(&known, list->items[i].pid);
            fresh |= round > 0 && (!before || before->tick != list->items[i].tick);
            if (!is_wrapper(&list->items[i])) send_signal(&list->items[i], SIGSTOP);
        }
        free(known.items);
        known = *list;
        *list = look_at_tree();
        if (round > 0 && !fresh && list->count <= known.count) break;
    }
    for (size_t i = 0; i < list->count; i++)
        if (!is_wrapper(&list->items[i]) || list->count == 1) send_signal(&list->items[i], SIGKILL);
}

/* --- the limit --- */

static void begin_strike(void) {
    struct shared *page = guard.page;
    long long ms = (long long)(page->terms.limit / MILLISECOND);
    if (!page->struck && page->state < EXITED) {
        char rule[48];
        int n = snprintf(rule, sizeof rule, "limit of %lld.%03lld", ms / 1000, ms % 1000);
        while (rule[n - 1] == '0') rule[--n] = 0;
        if (rule[n - 1] == '.') rule[--n] = 0;
        write_slot(ENDING, "{\"by\":\"limit\",\"rule\":\"%s s\",\"at\":%lld.%06lld}", rule, SECONDS(now(CLOCK_REALTIME)));
    }
    page->struck = 1;
    stage = ASKING;
    stage_ends = now(CLOCK_MONOTONIC) + page->terms.grace;
    look_after = FIRST_LOOK_MS * MILLISECOND;
}

/* When to call `strike` next. A successor of the process that struck strikes again. */
int64_t next_strike(void) {
    const struct shared *page = guard.page;
    if (page->terms.limit == NEVER || stage == GIVEN_UP) return NEVER;
    if (stage == IDLE) return page->state < EXITED || page->struck ? page->monotonic + page->terms.limit : NEVER;
    return next_look;
}

/* One look at the tree that has to end. */
void strike(void) {
    int64_t at = now(CLOCK_MONOTONIC);
    if (stage == IDLE) begin_strike();
    if (stage == ASKING && at >= stage_ends) stage = FORCING, stage_ends = at + KILL_MS * MILLISECOND;
    struct members list = look_at_tree();
    if (stage == ASKING) {
        ask_all(&list);
        next_look = at + look_after < stage_ends ? at + look_after : stage_ends;
        look_after = look_after * 2 < LOOK_MS * MILLISECOND ? look_after * 2 : LOOK_MS * MILLISECOND;
    } else {
        kill_all(&list);
        next_look = at + KILL_LOOK_MS * MILLISECOND;
        if (at >= stage_ends) stage = GIVEN_UP; /* what is left hangs in the kernel */
    }
    if (!list.count) next_look = at + LOOK_MS * MILLISECOND;
    free(known.items);
    known = list;
}

/* Whether a child of this process belongs to the task: guards of other tasks do not. */
bool is_anything_left(void) {
    struct members list = {0};
    staged_guard = false;
    if (!reap_children()) return false;
    bool left = !visit_children(&list, getpid()) || list.count > 0;
    for (size_t i = 0; i < list.count; i++) {
        char path[40], name[24];
        snprintf(path, sizeof path, "/proc/%d/comm", list.items[i].pid);
        staged_guard |= read_file(path, name, sizeof name) > 0 && !strncmp(name, "outlast-", 8);
    }
    free(list.items);
    return left || is_ready(guard.signals, POLLIN); /* one that ended meanwhile may have left us a child */
}

/* A guard that has not published its task yet counts as left, and no signal says when it has: look again. */
bool has_staged_guard(void) { return staged_guard; }

/* There will be no task: end what a prepared shell has started, and the shell. */
void kill_everything(void) {
    int64_t until = now(CLOCK_MONOTONIC) + KILL_MS * MILLISECOND;
    siginfo_t seen = {0};
    int child = guard.page->child;
    if (child > 0 && waitid(P_PID, (id_t)child, &seen, WEXITED | WNOHANG | WNOWAIT) == 0) kill(child, SIGKILL); /* not reaped */
    while (is_anything_left() && now(CLOCK_MONOTONIC) < until) {
        struct members list = look_at_tree();
        kill_all(&list);
        free(list.items);
        struct pollfd one = {.fd = guard.signals, .events = POLLIN};
        if (poll(&one, 1, KILL_LOOK_MS) > 0) drain_fd(guard.signals);
    }
}
