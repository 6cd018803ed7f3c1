/* Runs outlast-guard under ptrace and kills one of its processes at its N-th system call stop.
 *
 *   stepper ROLE N [ROLE2 N2] -- GUARD ARGUMENTS...
 *
 * ROLE is `supervisor` or `keeper`. A system call has two stops: before it (the call is then not made) and after it. The second
 * pair kills the guard that has ROLE2 then, counted from the moment the first kill is done. Prints one line:
 *
 *   KILLS BOTH STOPS LEFT
 *
 * how many were killed, whether a kill hit the last guard (no other one lived at that moment), how many stops the first target
 * had, and whether processes were left. What is left some time after the last guard died is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum role { NONE, MAIN, KEEPER, SUPERVISOR };
enum { MOST = 512, PATIENCE_S = 20, LOST_S = 2, EVENT_MS = 500 };

static struct {
    int pid;
    enum role role;
    bool alive;
} tracees[MOST];
static int count, kills, stops, first_stops, both;
static struct {
    enum role role;
    int at;
} wanted[2];
static int planned;

static int find(int pid) {
    for (int i = 0; i < count; i++)
        if (tracees[i].pid == pid && tracees[i].alive) return i;
    return -1;
}

static bool lives(enum role role) {
    for (int i = 0; i < count; i++)
        if (tracees[i].alive && tracees[i].role == role) return true;
    return false;
}

static void add(int pid, enum role role) {
    if (count == MOST) exit(3);
    tracees[count].pid = pid, tracees[count].role = role, tracees[count++].alive = true;
}

static int read_parent(int pid) {
    char path[40], text[512] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fgets(text, sizeof text, file) && strrchr(text, ')')) sscanf(strrchr(text, ')') + 1, " %*c %d", &parent);
    fclose(file);
    return parent;
}

/* Which role `child` has, which `pid` with the role `parent` forked. */
static enum role role_of(int pid, enum role parent, int child, int event) {
    if (parent == MAIN) return KEEPER;
    if (event != PTRACE_EVENT_CLONE) return NONE; /* the command */
    if (read_parent(child) != pid) return NONE;   /* a sibling: the program at the end */
    if (parent == KEEPER && !lives(SUPERVISOR)) return SUPERVISOR;
    if (parent == SUPERVISOR && !lives(KEEPER)) return KEEPER;
    return NONE;
}

static void resume(int pid, int number) {
    ptrace(kills < planned ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL, (void *)(long)number);
}

static void handle_event(int pid, int event) {
    unsigned long child = 0;
    ptrace(PTRACE_GETEVENTMSG, pid, NULL, &child);
    int at = find(pid);
    enum role role = role_of(pid, at < 0 ? NONE : tracees[at].role, (int)child, event);
    add((int)child, role);
}

static void handle_stop(int pid, int status) {
    int number = WSTOPSIG(status), event = status >> 16, at = find(pid);
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_VFORK) {
        handle_event(pid, event);
        resume(pid, 0);
        return;
    }
    /* A new child may stop before its parent's event is seen. Not without a bound: a parent that was killed has none, and
     * its keeper learns of its end only when it is reaped here. */
    struct timespec pause = {0, 1000000};
    for (int tries = 0; at < 0 && tries < EVENT_MS; tries++) {
        int more;
        siginfo_t parent;
        memset(&parent, 0, sizeof parent);
        if (waitid(P_ALL, 0, &parent, WSTOPPED | __WALL | WNOWAIT | WNOHANG)) break;
        if (!parent.si_pid) nanosleep(&pause, NULL);
        else if (parent.si_pid != pid && waitpid(parent.si_pid, &more, __WALL) > 0) handle_stop(parent.si_pid, more);
        at = find(pid);
    }
    if (at >= 0 && tracees[at].role == NONE) { /* not a guard: let it go */
        tracees[at].alive = false;
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
        return;
    }
    if (number == (SIGTRAP | 0x80)) {
        if (at >= 0 && kills < planned && tracees[at].role == wanted[kills].role) {
            stops++;
            if (kills == 0) first_stops++;
            if (stops == wanted[kills].at) {
                kills++;
                stops = 0;
                tracees[at].alive = false; /* its exit is not waited for: it counts as dead from now on */
                both |= !lives(KEEPER) && !lives(SUPERVISOR);
                kill(pid, SIGKILL);
                return;
            }
        }
        number = 0;
    } else if (number == SIGSTOP || number == SIGTRAP)
        number = 0;
    resume(pid, number);
}

static enum role parse_role(const char *word) { return !strcmp(word, "keeper") ? KEEPER : SUPERVISOR; }

static void kill_children(void) {
    char text[4096] = "", *at = text, *end;
    FILE *file = fopen("/proc/thread-self/children", "r");
    if (!file || !fgets(text, sizeof text, file)) text[0] = 0;
    for (int pid; (pid = (int)strtol(at, &end, 10)) > 0; at = end) kill(pid, SIGKILL);
    if (file) fclose(file);
}

static int count_left(void) {
    struct timespec start, at, pause = {0, 2000000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        int status;
        int pid = waitpid(-1, &status, __WALL | WNOHANG);
        if (pid < 0 && errno == ECHILD) return 0;
        if (pid > 0 && WIFSTOPPED(status)) ptrace(PTRACE_DETACH, pid, NULL, NULL); /* of the program at the end */
        if (pid > 0) continue;
        clock_gettime(CLOCK_MONOTONIC, &at);
        if (both && at.tv_sec - start.tv_sec >= LOST_S) kill_children();
        if (at.tv_sec - start.tv_sec > PATIENCE_S) return 1;
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv) {
    int at = 1;
    for (; at + 2 < argc && strcmp(argv[at], "--") && planned < 2; at += 2) {
        wanted[planned].role = parse_role(argv[at]);
        wanted[planned++].at = atoi(argv[at + 1]);
    }
    if (at >= argc || strcmp(argv[at], "--") || !planned) return 2;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(argv[at + 1], argv + at + 1);
        _exit(127);
    }
    for (int fd = 3; fd < 64; fd++) close(fd); /* the caller must see the end of its line */
    int status;
    if (waitpid(pid, &status, __WALL) != pid) return 3;
    add(pid, MAIN);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options);
    resume(pid, 0);
    while (lives(MAIN) || lives(KEEPER) || lives(SUPERVISOR)) {
        pid = waitpid(-1, &status, __WALL);
        if (pid < 0) break;
        if (WIFSTOPPED(status)) handle_stop(pid, status);
        else if ((at = find(pid)) >= 0) tracees[at].alive = false;
    }
    printf("%d %d %d %d\n", kills, both, first_stops, count_left());
    return 0;
}
