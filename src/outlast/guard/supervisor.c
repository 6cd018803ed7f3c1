/* The supervisor: starts the command, moves its output, enforces its limit, records its end, and exits when nothing of it
 * is left. If its keeper dies it forks another one. */
#include "guard.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum {
    STATUS_MS = 20,  /* only the command's parent can read the exit status, and has not recorded it yet: look again */
    KEEPER_MS = 100, /* a keeper that has not closed its pipes by then is stopped */
    TERMS_BYTES = 4096,
};

static void clean_up(void) {
    if (guard.page && guard.page->supervisor) kill_everything();
    remove_cgroups();
    if (!guard.launch->publish || guard.lock < 0) return;
    DIR *here = opendir(".");
    for (struct dirent *entry; here && (entry = readdir(here));) remove(entry->d_name); /* a sandbox has a directory in it */
    if (here) closedir(here);
    rmdir(guard.launch->directory);
}

/* The keeper repeats this if the supervisor dies doing it. */
noreturn void refuse(int number, const char *what) {
    clean_up(); /* first: when the caller gets the message, nothing is left */
    if (number == ENOTEMPTY) number = EEXIST; /* rename to a place that is taken */
    bool said = guard.page && number == ENOEXEC && what == guard.page->spawn_what; /* by the program, in its own words */
    send_to_caller("refused %d %s%s%s", number, what, said ? "" : ": ", said ? "" : strerror(number));
    if (guard.page) guard.page->state = CLOSED;
    _exit(1);
}

/* The task is published: release the command. A successor does all of it again if it cannot know that it was done. */
static void release_command(void) {
    struct shared *page = guard.page;
    send_to_caller("started %d %llu %lld.%06lld", page->command, (unsigned long long)page->command_tick, SECONDS(page->started));
    if (guard.go_write >= 0 && write(guard.go_write, page->terms.go, page->terms.go_bytes) < 0) errno = 0; /* it was killed */
    close_fd(&guard.go_write);
    for (size_t i = 0; i < guard.launch->remove.count; i++) unlink(guard.launch->remove.items[i]);
    page->state = RUNNING;
    ring_bell();
    ring_directory();
}

bool is_published(void) {
    struct stat here, there;
    return guard.launch->publish && stat(".", &here) == 0 && stat(guard.launch->publish, &there) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

static void publish(void) {
    struct shared *page = guard.page;
    page->terms = guard.launch->terms;
    page->started = now(CLOCK_REALTIME);
    page->monotonic = now(CLOCK_MONOTONIC);
    page->begun = 1;
    write_guards();
    if (guard.launch->publish && rename(guard.launch->directory, guard.launch->publish)) refuse(errno, guard.launch->publish);
    /* From here on there is a task, and nothing that happens to either guard takes it back. */
    release_command();
}

/* The caller of a prepared task sent the terms, or went away. */
static void begin_prepared(void) {
    char text[TERMS_BYTES];
    ssize_t n = recv(guard.caller, text, sizeof text, MSG_DONTWAIT);
    if (n <= 0) refuse(ECANCELED, "the caller went away");
    if (!parse_terms(guard.launch, text, (size_t)n)) refuse(EINVAL, guard.launch->error);
    publish();
}

static void write_outcome(void) {
    struct shared *page = guard.page;
    if (!page->ended) { /* a successor must write the same */
        page->elapsed = now(CLOCK_MONOTONIC) - page->monotonic;
        page->ended = now(CLOCK_REALTIME);
    }
    bool unheard = guard.caller < 0 || is_ready(guard.caller, 0); /* POLLHUP: the caller is gone */
    bool alone = !page->recoveries && !reap_children();
    write_slot(OUTCOME, "{\"ended\":%lld.%06lld,\"elapsed\":%lld.%06lld,\"oom\":%d%s%s}", SECONDS(page->ended),
               SECONDS(page->elapsed), count_oom_kills(), unheard ? ",\"unheard\":true" : "", alone ? ",\"alone\":true" : "");
}

static void announce_end(void) {
    struct shared *page = guard.page;
    if (page->spawn_errno) send_to_caller("ended spawn %d", page->spawn_errno);
    else if (!page->status_known) send_to_caller("ended unknown");
    else if (WIFSIGNALED(page->status)) send_to_caller("ended signal %d", WTERMSIG(page->status));
    else send_to_caller("ended exit %d", WEXITSTATUS(page->status));
    ring_bell();
    ring_directory();
    /* Unlocking acts on the open file, so also for every other process that inherited the descriptor. */
    for (size_t i = 0; i < guard.launch->held_count; i++) flock(guard.launch->held[i], LOCK_UN);
    page->state = DRAINED;
}

/* The command ended and the record says how: keep what it printed before, record the outcome, announce it. */
static void finish_command(void) {
    struct shared *page = guard.page;
    if (page->state == EXITED) {
        drain_outputs();
        if (page->status_known || page->spawn_errno) write_outcome();
        announce_end();
    }
    close_write_ends();
    close_fd(&guard.stdin_write);
    close_fd(&guard.stdin_read);
    wake_peer();
    if (move_outputs()) ring_bell(); /* if no other process holds the pipe, this sees its end */
}

static bool may_close(void) {
    const struct shared *page = guard.page;
    if (page->state < DRAINED || !outputs_are_closed() || page->keeper_has_children) return false;
    if (guard.launch->on_end.count && !page->on_end) return false;
    return !has_descendants();
}

static noreturn void close_task(void) {
    remove_cgroups();
    guard.page->state = CLOSED;
    flock(guard.lock, LOCK_UN); /* all is recorded; the keeper still holds the descriptor for a moment */
    ring_bell();
    ring_directory();
    _exit(0);
}

/* What the keeper had below it went to init. The new keeper writes its pid into the record. */
static void replace_keeper(void) {
    guard.page->keeper_has_children = 0;
    guard.page->keeper_closed_pipes = 0;
    if (replace_peer(&guard.page->keeper) != 0) return;
    release_bell();
    close_output_files();
    keep_task();
}

static void close_stdin_if_asked(void) {
    if (guard.stdin_write < 0 || access("stdin.eof", F_OK)) return;
    close_fd(&guard.stdin_write);
    wake_peer();
}

/* How long `poll` may wait, in milliseconds. */
static int find_timeout(bool status_is_hidden) {
    const struct shared *page = guard.page;
    int64_t wait = next_limit_check();
    bool keeper_is_late = page->state >= DRAINED && (!page->keeper_closed_pipes || (guard.launch->on_end.count && !page->on_end));
    if (wait != NEVER) wait = (wait - now(CLOCK_MONOTONIC)) / MILLISECOND + 1;
    if ((guard.peer < 0 || guard.look_failed) && wait > RETRY_MS) wait = RETRY_MS;
    if (keeper_is_late && wait > KEEPER_MS) wait = KEEPER_MS;
    if (status_is_hidden && wait > STATUS_MS) wait = STATUS_MS;
    return wait == NEVER ? -1 : wait < 0 ? 0 : wait > INT32_MAX ? INT32_MAX : (int)wait;
}

static noreturn void watch_task(void) {
    struct shared *page = guard.page;
    bool status_is_hidden = false, finished = false;
    for (;;) {
        struct pollfd all[STREAMS + 6];
        bool is_prepared = page->state == STARTING;
        poll_outputs(all);
        all[3] = (struct pollfd){.fd = page->state >= EXITED || status_is_hidden ? -1 : guard.command, .events = POLLIN};
        all[4] = (struct pollfd){.fd = guard.peer, .events = POLLIN};
        all[5] = (struct pollfd){.fd = guard.signals, .events = POLLIN};
        all[6] = (struct pollfd){.fd = guard.stdin_write < 0 ? -1 : guard.wake_fifo, .events = POLLIN};
        all[7] = (struct pollfd){.fd = is_prepared ? guard.caller : -1, .events = POLLIN};
        int found = poll(all, STREAMS + 6, find_timeout(status_is_hidden));
        if (found < 0) continue;
        if (all[5].revents) drain_fd(guard.signals), continue_peer();
        if (all[6].revents) {
            drain_fd(guard.wake_fifo);
            close_stdin_if_asked();
            if (resize_terminal()) ring_bell();
        }
        if (is_prepared && all[3].revents) refuse(ECHILD, "the prepared shell ended");
        if (is_prepared && all[7].revents) begin_prepared();
        if ((all[0].revents & POLLOUT) || all[2].revents) feed_terminal();
        if (found == 0 && (page->state >= DRAINED || status_is_hidden)) wake_peer();
        if ((all[0].revents || all[1].revents) && move_outputs()) ring_bell();
        if (page->state == RUNNING && (status_is_hidden || all[3].revents)) status_is_hidden = !note_exit();
        if (guard.peer < 0 || all[4].revents) replace_keeper();
        reap_children();
        if (page->state >= EXITED && !finished) finish_command(), finished = true;
        if (finished) run_on_end();
        if (now(CLOCK_MONOTONIC) >= next_limit_check()) enforce_limit();
        if (may_close()) close_task();
    }
}

static void become_supervisor(void) {
    prctl(PR_SET_NAME, "outlast-sup");
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* before anything that the command starts can become an orphan */
    guard.page->supervisor_tick = read_own_tick();
}

/* The first supervisor of a task. */
noreturn void start_task(void) {
    become_supervisor();
    if (!spawn_child()) refuse(errno, "fork");
    /* Do the rest while the child sets itself up. */
    if (!make_bells() || !open_outputs()) refuse(errno, "output");
    open_bell();
    if (!await_child()) refuse(guard.page->spawn_errno, guard.page->spawn_what);
    drop_launch();
    if (guard.launch->prepare) send_to_caller("prepared %d", guard.page->command);
    else publish();
    watch_task();
}

/* A successor, forked by the keeper: go on where the files end. */
noreturn void resume_task(void) {
    become_supervisor();
    open_bell();
    resume_outputs();
    write_guards();
    if (guard.page->state < RUNNING) release_command();
    close_fd(&guard.go_write);
    close_stdin_if_asked();
    resize_terminal();
    kill(getpid(), SIGCHLD); /* check everything once */
    watch_task();
}
