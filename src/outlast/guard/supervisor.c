/* The supervisor: starts the command, moves its output, enforces its limit, records its end, and leaves when nothing of it is
 * left. If its keeper dies it forks another one. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

enum {
    UNSEEN_MS = 20,   /* only the command's parent may see how it ended, and has not recorded it yet */
    ALONE_MS = 1000,  /* there was no process to be had for another keeper: try again */
    KEEPER_MS = 100,  /* a keeper that has not let go of the pipes by then was stopped */
    BEGIN_BYTES = 4096,
};

/* --- before there is a task --- */

static void remove_directory(void) {
    if (!guard.launch->publish || !guard.owns_directory) return;
    DIR *here = opendir(".");
    for (struct dirent *entry; here && (entry = readdir(here));) unlink(entry->d_name);
    if (here) closedir(here);
    rmdir(guard.launch->directory);
}

/* Nothing was published and nothing will be. Either guard may do this, also after the other one died doing it. */
noreturn void abandon_task(void) {
    kill_everything();
    remove_cgroups();
    remove_directory();
    guard.page->state = CLOSED;
    _exit(0);
}

noreturn void refuse(int number, const char *what) {
    if (number == ENOTEMPTY) number = EEXIST;
    if (guard.page && guard.page->supervisor) kill_everything();
    remove_cgroups();
    remove_directory();
    /* Last: when the caller is told, nothing is left. */
    tell_caller("refused %d %s: %s", number, what, strerror(number));
    if (guard.page) guard.page->state = CLOSED;
    _exit(1);
}

bool is_published(void) {
    struct stat here, there;
    return guard.launch->publish && stat(".", &here) == 0 && stat(guard.launch->publish, &there) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* A stopped guard is of no use. Its parent learns of the stop by SIGCHLD. */
void continue_peer(void) {
    siginfo_t seen = {0};
    if (guard.peer >= 0 && waitid(P_PIDFD, (id_t)guard.peer, &seen, WSTOPPED | WNOHANG | __WALL) == 0 && seen.si_pid)
        signal_pidfd(guard.peer, SIGCONT);
}

static void fork_keeper(void) {
    int me = open_pidfd(getpid());
    int pid = me >= 0 ? fork_process(&guard.page->keeper, 0) : -1;
    if (pid == 0) {
        guard.peer = me;
        release_bell();
        forget_output_files();
        keep_task();
    }
    close_fd(&me);
    if (pid > 0) guard.peer = open_pidfd(pid);
}

/* The keeper died: what it had below it went to init. Never be alone. */
static void replace_keeper(void) {
    struct shared *page = guard.page;
    siginfo_t seen;
    if (guard.peer >= 0) {
        waitid(P_PIDFD, (id_t)guard.peer, &seen, WEXITED | WNOHANG | __WALL);
        close_fd(&guard.peer);
        page->keeper_kids = 0;
        page->keeper_let_go = 0;
        page->recoveries++;
    }
    fork_keeper(); /* which writes its name into the record */
}

static void copy_terms(void) {
    const struct launch *launch = guard.launch;
    struct shared *page = guard.page;
    page->terms = (struct terms){launch->limit, launch->grace, launch->head, launch->segment, launch->floor};
    memcpy(page->go, launch->go.data, launch->go.size);
    page->go_bytes = (int)launch->go.size;
}

/* The word to begin, with the terms and perhaps descriptors to hold. False if the caller is gone. */
static bool receive_begin(void) {
    struct launch *launch = guard.launch;
    char text[BEGIN_BYTES];
    int fds[LAUNCH_MOST_HELD];
    size_t count = 0;
    ssize_t n = receive_fds(guard.caller, text, sizeof text, fds, &count);
    if (n <= 0) return false;
    if (!parse_terms(launch, text, (size_t)n)) refuse(EINVAL, launch->error);
    copy_terms();
    if (launch->held_count + count > LAUNCH_MOST_HELD) refuse(E2BIG, "descriptors to hold");
    for (size_t i = 0; i < count; i++) launch->held[launch->held_count++] = fds[i];
    if (count && !send_to_keeper('h', fds, count)) refuse(ETIMEDOUT, "the keeper does not answer");
    return true;
}

/* Keep a prepared shell until the caller wants it, or goes away. */
static void await_begin(void) {
    tell_caller("prepared %d", guard.page->command);
    for (;;) {
        struct pollfd all[] = {{.fd = guard.caller, .events = POLLIN},
                               {.fd = guard.command, .events = POLLIN},
                               {.fd = guard.peer, .events = POLLIN},
                               {.fd = guard.signals, .events = POLLIN}};
        if (poll(all, 4, guard.peer < 0 ? ALONE_MS : -1) < 0) continue;
        if (all[3].revents) drain_fd(guard.signals);
        reap_children();
        if (guard.peer < 0 || all[2].revents) replace_keeper();
        if (all[1].revents) refuse(ECHILD, "the prepared shell ended");
        if (!all[0].revents) continue;
        if (!receive_begin()) abandon_task();
        return;
    }
}

/* The task is published: let the command go. A successor does all of it again if it cannot know that it was done. */
static void release_command(void) {
    struct shared *page = guard.page;
    page->state = RUNNING;
    tell_caller("started %d %llu %lld.%06lld", page->command, (unsigned long long)page->command_tick, SECONDS(page->started));
    if (guard.go_write >= 0 && write(guard.go_write, page->go, (size_t)page->go_bytes) < 0) errno = 0; /* it is gone: its end is recorded */
    close_fd(&guard.go_write);
    for (size_t i = 0; i < guard.launch->remove.count; i++) unlink(guard.launch->remove.items[i]);
    page->released = 1;
    ring_bell();
    ring_directory();
}

static void publish(void) {
    struct shared *page = guard.page;
    begin_outputs();
    page->started = now(CLOCK_REALTIME);
    page->monotonic = now(CLOCK_MONOTONIC);
    page->begun = 1;
    write_guards();
    if (guard.launch->publish && rename(guard.launch->directory, guard.launch->publish)) refuse(errno, guard.launch->publish);
    /* From here on there is a task, and nothing that happens to either guard can take it back. */
    release_command();
}

/* --- the end --- */

static void end_input_if_asked(void) {
    if (guard.stdin_write < 0 || access("stdin.eof", F_OK)) return;
    close_fd(&guard.stdin_write);
    signal_pidfd(guard.peer, SIGCONT); /* a stopped keeper would hold it open */
    wake(guard.wake_keeper);
}

static void write_outcome(void) {
    struct shared *page = guard.page;
    char oom[32] = "";
    int kills = count_oom_kills();
    if (kills) snprintf(oom, sizeof oom, ",\"oom\":%d", kills);
    if (!page->ended) { /* a successor must write the same */
        page->elapsed = now(CLOCK_MONOTONIC) - page->monotonic;
        page->ended = now(CLOCK_REALTIME);
    }
    bool unheard = guard.caller < 0 || is_ready(guard.caller, 0); /* it hung up */
    bool alone = !page->recoveries && !reap_children();
    write_slot(OUTCOME, "{\"ended\":%lld.%06lld,\"elapsed\":%lld.%06lld%s%s%s}", SECONDS(page->ended), SECONDS(page->elapsed),
               unheard ? ",\"unheard\":true" : "", alone ? ",\"alone\":true" : "", oom);
}

static void announce_end(void) {
    struct shared *page = guard.page;
    if (page->spawn_errno) tell_caller("ended spawn %d", page->spawn_errno);
    else if (!page->status_known) tell_caller("ended unknown");
    else if (WIFSIGNALED(page->status)) tell_caller("ended signal %d", WTERMSIG(page->status));
    else tell_caller("ended exit %d", WEXITSTATUS(page->status));
    ring_bell();
    ring_directory();
    for (size_t i = 0; i < guard.launch->held_count; i++) flock(guard.launch->held[i], LOCK_UN); /* also for its other holders */
    page->told = 1;
}

/* The command ended and the record says how: keep what it printed before, record the outcome, tell everybody. */
static void finish(void) {
    struct shared *page = guard.page;
    if (page->state == EXITED) {
        drain_outputs();
        if (page->status_known || page->spawn_errno) write_outcome();
        page->state = DRAINED;
    }
    if (!page->told) announce_end();
    let_go_of_outputs();
    close_fd(&guard.stdin_write);
    wake(guard.wake_keeper);
}

static noreturn void close_task(void) {
    remove_cgroups();
    guard.page->state = CLOSED;
    flock(guard.lock, LOCK_UN); /* all is recorded: nobody watches any more, whatever else holds the descriptor */
    ring_bell();
    ring_directory();
    _exit(0);
}

static bool may_close(void) {
    const struct shared *page = guard.page;
    if (page->state < DRAINED || !page->told || !outputs_are_closed() || page->keeper_kids) return false;
    if (guard.launch->on_end.count && !page->on_end) return false;
    return !is_anything_left();
}

/* --- the loop --- */

static int find_patience(bool unseen) {
    int64_t next = next_strike(), at = now(CLOCK_MONOTONIC);
    const struct shared *page = guard.page;
    if (guard.peer < 0 && next > at + ALONE_MS * MILLISECOND) next = at + ALONE_MS * MILLISECOND;
    if (unseen && next > at + UNSEEN_MS * MILLISECOND) next = at + UNSEEN_MS * MILLISECOND;
    bool waits = page->state >= DRAINED && (!page->keeper_let_go || (guard.launch->on_end.count && !page->on_end));
    if (waits && next > at + KEEPER_MS * MILLISECOND) next = at + KEEPER_MS * MILLISECOND;
    if (page->state >= DRAINED && has_staged_guard() && next > at + ALONE_MS * MILLISECOND) next = at + ALONE_MS * MILLISECOND;
    if (next == NEVER) return -1;
    int64_t left = (next - at) / MILLISECOND + 1;
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

static noreturn void watch(void) {
    struct shared *page = guard.page;
    bool unseen = false, finished = false;
    for (;;) {
        struct pollfd all[STREAMS + 5];
        poll_outputs(all);
        all[2] = (struct pollfd){.fd = page->state >= EXITED || unseen ? -1 : guard.command, .events = POLLIN};
        all[3] = (struct pollfd){.fd = guard.peer, .events = POLLIN};
        all[4] = (struct pollfd){.fd = guard.signals, .events = POLLIN};
        all[5] = (struct pollfd){.fd = guard.wake_supervisor, .events = POLLIN};
        all[6] = (struct pollfd){.fd = guard.stdin_write < 0 ? -1 : guard.wake_fifo, .events = POLLIN};
        int found = poll(all, STREAMS + 5, find_patience(unseen));
        if (found < 0) continue;
        for (int i = 4; i < 7; i++)
            if (all[i].revents) drain_fd(all[i].fd);
        if (found == 0 && page->state >= DRAINED) signal_pidfd(guard.peer, SIGCONT), wake(guard.wake_keeper); /* it was stopped */
        if ((all[0].revents || all[1].revents) && move_outputs()) ring_bell();
        if (all[6].revents) end_input_if_asked();
        if (page->state < EXITED && (unseen || all[2].revents)) unseen = !note_exit();
        if (guard.peer < 0 || all[3].revents) replace_keeper();
        if (all[4].revents) continue_peer();
        reap_children();
        if (page->state >= EXITED && !finished) {
            finish();
            finished = true;
            if (move_outputs()) ring_bell(); /* if no other process holds the pipe, this sees its end */
        }
        if (finished) run_on_end();
        if (now(CLOCK_MONOTONIC) >= next_strike()) strike();
        if (may_close()) close_task();
    }
}

static void introduce_supervisor(void) {
    prctl(PR_SET_NAME, "outlast-sup");
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* before anything that the command starts can become an orphan */
    guard.page->supervisor_tick = read_own_tick();
}

/* The first supervisor of a task. */
noreturn void start_task(void) {
    introduce_supervisor();
    if (!make_cgroups()) refuse(errno, "control group");
    if (!spawn_child()) refuse(errno, "fork");
    /* While the child gets itself ready, do the rest. */
    if (!make_bells() || !open_outputs()) refuse(errno, "output");
    hold_bell();
    copy_terms();
    if (!await_child()) refuse(guard.page->spawn_errno, guard.page->spawn_what);
    drop_launch();
    if (guard.launch->prepare) await_begin();
    publish();
    watch();
}

/* A successor, forked by the keeper: go on where the files end. */
noreturn void resume_task(void) {
    introduce_supervisor();
    hold_bell();
    resume_outputs();
    write_guards();
    if (!guard.page->released) release_command();
    close_fd(&guard.go_write);
    end_input_if_asked();
    wake(guard.wake_supervisor); /* look at everything once */
    watch();
}
