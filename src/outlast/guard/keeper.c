/* The keeper: the parent of the supervisor. It holds the same descriptors and sleeps. If the supervisor dies, the command
 * and its orphans become the keeper's children, and it forks another supervisor. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

enum {
    ANSWER_MS = 1000,  /* how long the supervisor waits until the keeper has received descriptors */
    SHORT_LIFE_MS = 1000,
    SHORT_LIVES = 100, /* so many in a row are a fault that stays, which must not take a whole core */
    RETRY_MS = 1000,
};

extern char **environ;

/* --- descriptors for the keeper that the supervisor got or made after it was forked --- */

bool send_to_keeper(char word, const int *fds, size_t count) {
    char control[CMSG_SPACE(sizeof(int) * LAUNCH_MOST_HELD)] __attribute__((aligned(sizeof(size_t)))) = {0};
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int before = guard.page->received;
    if (!head) return false;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
    if (sendmsg(guard.hand[0], &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) return false;
    wake(guard.wake_keeper);
    int64_t until = now(CLOCK_MONOTONIC) + ANSWER_MS * MILLISECOND;
    while (guard.page->received == before && now(CLOCK_MONOTONIC) < until) {
        struct pollfd all[] = {{.fd = guard.wake_supervisor, .events = POLLIN}, {.fd = guard.peer, .events = POLLIN}};
        if (poll(all, 2, (int)((until - now(CLOCK_MONOTONIC)) / MILLISECOND) + 1) > 0 && all[1].revents) break; /* it died */
        if (all[0].revents) drain_fd(guard.wake_supervisor);
    }
    wake(guard.wake_supervisor); /* what else it was woken for is looked at later */
    return guard.page->received != before;
}

/* A message and the descriptors that came with it. 0 at the end, -1 if there is none or it is damaged. */
ssize_t receive_fds(int socket, char *text, size_t size, int *fds, size_t *count) {
    char control[CMSG_SPACE(sizeof(int) * LAUNCH_MOST_HELD)] __attribute__((aligned(sizeof(size_t))));
    struct iovec part = {.iov_base = text, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *count = 0;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(head), *count * sizeof(int));
    }
    return n > 0 && message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -1 : n;
}

static void receive_from_supervisor(void) {
    struct launch *launch = guard.launch;
    int fds[LAUNCH_MOST_HELD];
    size_t count;
    char word;
    while (receive_fds(guard.hand[1], &word, 1, fds, &count) == 1) {
        if (word == 'r') take_relays(fds, count);
        for (size_t i = 0; word == 'h' && i < count && launch->held_count < LAUNCH_MOST_HELD; i++)
            launch->held[launch->held_count++] = fds[i];
        guard.page->received++;
        wake(guard.wake_supervisor);
    }
}

/* --- the program that is to run when the command ended --- */

/* Only the guard whose parent is not a guard can start a process that is not below this task: as its own sibling. The
 * kernel writes the pid of the new process into the shared page, so it is started once, whoever is killed. */
void run_on_end(void) {
    struct shared *page = guard.page;
    const struct strings *words = &guard.launch->on_end;
    int parent = getppid();
    if (!words->count || page->on_end || page->state < DRAINED || parent == page->keeper || parent == page->supervisor) return;
    int pid = fork_process(&page->on_end, CLONE_PARENT);
    if (pid < 0) page->on_end = -1; /* no process to be had: the next caller does what this program would do */
    if (pid != 0) return;
    static const int STANDARD[] = {0, 1, 2};
    sigset_t none;
    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close_all_but(STANDARD, 3);
    execve(words->items[0], words->items, environ);
    _exit(127);
}

/* --- the keeper's life --- */

static void open_command(void) {
    struct shared *page = guard.page;
    struct proc_stat stat;
    if (guard.command >= 0 || page->command <= 0 || page->state >= EXITED) return;
    guard.command = open_pidfd(page->command);
    if (guard.command >= 0 && (!read_stat(page->command, &stat) || stat.tick != page->command_tick)) close_fd(&guard.command);
}

static void slow_down(void) {
    static int64_t last;
    static int short_lives;
    int64_t at = now(CLOCK_MONOTONIC);
    short_lives = at - last < SHORT_LIFE_MS * MILLISECOND ? short_lives + 1 : 0;
    last = at;
    if (short_lives > SHORT_LIVES) poll(NULL, 0, RETRY_MS);
}

static void replace_supervisor(void) {
    struct shared *page = guard.page;
    slow_down();
    open_command();
    page->keeper_kids = is_anything_left();
    page->recoveries++;
    for (;;) {
        int me = open_pidfd(getpid());
        int pid = me >= 0 ? fork_process(&page->supervisor, 0) : -1;
        if (pid == 0) {
            guard.peer = me;
            resume_task();
        }
        close_fd(&me);
        if (pid > 0) {
            guard.peer = open_pidfd(pid);
            return;
        }
        poll(NULL, 0, RETRY_MS); /* there is no process to be had, and no other process can do this */
    }
}

/* The supervisor is gone: because all is done, before there was a task, or in the middle of it. */
static void mourn(void) {
    struct shared *page = guard.page;
    siginfo_t seen;
    waitid(P_PIDFD, (id_t)guard.peer, &seen, WEXITED | WNOHANG | __WALL);
    close_fd(&guard.peer);
    if (page->state == CLOSED) _exit(0);
    bool is_task = page->state >= RUNNING || (guard.launch->publish ? is_published() : page->begun);
    if (!is_task) refuse(ECHILD, "the supervisor was killed");
    replace_supervisor();
}

static void look(void) {
    struct shared *page = guard.page;
    receive_from_supervisor();
    if (guard.stdin_write >= 0 && (page->state >= EXITED || access("stdin.eof", F_OK) == 0)) close_fd(&guard.stdin_write);
    if (page->state >= EXITED) {
        let_go_of_outputs();
        page->keeper_let_go = 1;
    }
    if (page->state >= DRAINED && guard.launch->on_end.count && !page->on_end) {
        run_on_end();
        wake(guard.wake_supervisor);
    }
    bool kids = is_anything_left();
    if (kids == (bool)page->keeper_kids) return;
    page->keeper_kids = kids;
    wake(guard.wake_supervisor);
}

noreturn void keep_task(void) {
    struct shared *page = guard.page;
    prctl(PR_SET_NAME, "outlast-keeper");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    page->keeper_tick = read_own_tick();
    if (page->begun) write_guards();
    for (;;) {
        enum state before = (enum state)page->state;
        look();
        if (before < EXITED && page->state >= EXITED) wake(guard.wake_supervisor); /* we are the parent, and have recorded it */
        struct pollfd all[] = {{.fd = guard.peer, .events = POLLIN},
                               {.fd = guard.wake_keeper, .events = POLLIN},
                               {.fd = guard.signals, .events = POLLIN}};
        if (poll(all, 3, guard.peer < 0 ? 0 : -1) < 0) continue;
        if (all[1].revents) drain_fd(guard.wake_keeper);
        if (all[2].revents) {
            drain_fd(guard.signals);
            continue_peer();
        }
        if (all[0].revents || guard.peer < 0) mourn();
    }
}
