/* The keeper: the parent of the supervisor. It holds the same descriptors and sleeps. If the supervisor dies, the command
 * and its orphans become the keeper's children, and it forks another supervisor. */
#include "guard.h"

#include <dirent.h>
#include <sched.h>
#include <sys/prctl.h>

extern char **environ;

static bool is_empty(const char *path) {
    DIR *directory = opendir(path);
    int entries = 0;
    while (directory && entries < 3 && readdir(directory)) entries++; /* "." and ".." are always there */
    if (directory) closedir(directory);
    return entries < 3;
}

/* Execute the program that starts the next task of a queue: once, also if a guard is killed, because the kernel writes its
 * pid into the shared page. Only the guard whose parent is not a guard can start it outside of the task (CLONE_PARENT). */
void run_on_end(void) {
    struct shared *page = guard.page;
    const struct strings *words = &guard.launch->on_end;
    int parent = getppid();
    if (!words->count || page->on_end || page->state < DRAINED || parent == page->keeper || parent == page->supervisor) return;
    int pid = guard.launch->on_end_if && is_empty(guard.launch->on_end_if) ? -1 : fork_process(&page->on_end, CLONE_PARENT);
    if (pid < 0) page->on_end = -1; /* fork failed: the next caller that starts a task does what this program would do */
    if (pid != 0) return;
    sigset_t none;
    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(words->items[0], words->items, environ); /* all but standard input, output and error is closed by this */
    _exit(127);
}

/* A supervisor that this keeper forks inherits the pidfd: it need not be the parent of the command. */
static void open_command(void) {
    struct shared *page = guard.page;
    struct proc_stat stat;
    if (guard.command >= 0 || page->command <= 0 || page->state >= EXITED) return;
    guard.command = open_pidfd(page->command);
    if (guard.command >= 0 && (!read_stat(page->command, &stat) || stat.tick != page->command_tick)) close_fd(&guard.command);
}

/* The supervisor is gone: because all is done, before there was a task, or in the middle of it. */
static void handle_death(void) {
    struct shared *page = guard.page;
    if (page->state == CLOSED) _exit(0);
    bool is_task = page->state >= RUNNING || (guard.launch->publish ? is_published() : page->begun);
    if (!is_task) refuse(ECHILD, "the supervisor was killed");
    /* A millisecond more each time: a fault that stays must not take a whole core. */
    poll(NULL, 0, page->recoveries < RETRY_MS ? page->recoveries : RETRY_MS);
    open_command();
    page->keeper_has_children = has_descendants();
    if (replace_peer(&page->supervisor) == 0) resume_task();
}

/* Do the keeper's part of what changed. */
static void catch_up(void) {
    struct shared *page = guard.page;
    enum state before = (enum state)page->state;
    bool has_children = has_descendants(); /* as the parent of the command this records its end */
    bool changed = has_children != (bool)page->keeper_has_children || (before < EXITED && page->state >= EXITED);
    page->keeper_has_children = has_children;
    if (guard.stdin_write >= 0 && (page->state >= EXITED || access("stdin.eof", F_OK) == 0)) close_fd(&guard.stdin_write);
    if (page->state >= EXITED) {
        close_write_ends();
        close_fd(&guard.stdin_read);
        page->keeper_closed_pipes = 1;
    }
    if (page->state >= DRAINED && guard.launch->on_end.count && !page->on_end) {
        run_on_end();
        changed = true;
    }
    if (changed) wake_peer();
}

noreturn void keep_task(void) {
    struct shared *page = guard.page;
    prctl(PR_SET_NAME, "outlast-keeper");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    page->keeper_tick = read_own_tick();
    if (page->begun) write_guards();
    for (;;) {
        catch_up();
        struct pollfd all[] = {{.fd = guard.peer, .events = POLLIN},
                               {.fd = guard.signals, .events = POLLIN}};
        if (poll(all, 2, guard.peer < 0 || guard.look_failed ? RETRY_MS : -1) < 0) continue;
        if (all[1].revents) drain_fd(guard.signals), continue_peer();
        if (all[0].revents || guard.peer < 0) handle_death();
    }
}
