/* outlast-guard: two small processes, the supervisor and the keeper, that stay with one command until nothing of it is
 * left. docs/guard.md describes the launch description, the messages, the files and the states. */
#ifndef OUTLAST_GUARD_H
#define OUTLAST_GUARD_H

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>
#include <time.h>

#include "launch.h"

#define GUARD_VERSION 1
#define SECOND 1000000000LL
#define MILLISECOND 1000000LL
#define NEVER INT64_MAX

enum { STREAMS = 2, BUFFER_BYTES = 64 * 1024 };

/* The life of a task. Only the supervisor moves it on, except that the keeper may record EXITED if it is the parent. */
enum state {
    STARTING, /* there is no task yet: nothing is published, the command has not begun */
    RUNNING,  /* the task is published and the command was let go */
    EXITED,   /* the command ended, and the record says how (or it can never be known) */
    DRAINED,  /* all that it printed before is in the files, and the record has its outcome */
    CLOSED,   /* the pipes are at their end and no process is left: the guards leave */
};

/* How much of the output to keep and how long the command may run. A prepared shell learns them when it begins. */
struct terms {
    int64_t limit, grace; /* nanoseconds; no limit is NEVER */
    uint64_t head, segment, floor;
};

/* What both processes must know. The kernel writes each pid while it forks (CLONE_PARENT_SETTID), so there is no
 * moment at which a process exists that only a dead one knew. */
struct shared {
    _Atomic int state;
    _Atomic int supervisor, keeper, child, on_end; /* pids */
    _Atomic int command;                           /* the child, or the first process inside of its sandbox */
    _Atomic uint64_t supervisor_tick, keeper_tick, command_tick;
    _Atomic int begun;           /* the terms are known and nothing but publication is left to do */
    _Atomic int released;        /* the command was let go */
    _Atomic int received;        /* how many messages of the supervisor the keeper has received */
    _Atomic int told;            /* the caller was told of the end */
    _Atomic int keeper_kids;     /* something of the command is below the keeper */
    _Atomic int keeper_let_go;   /* the keeper has closed its write ends */
    _Atomic int recoveries;      /* how often a guard was replaced */
    _Atomic int struck;          /* the limit was reached while the command ran */
    _Atomic int status_known;    /* `status` is the wait status of the command */
    _Atomic int wrapper_known;   /* `wrapper_status` is that of bubblewrap */
    _Atomic int spawn_errno;     /* why the command could not be started, and what could not be done */
    char spawn_what[160];
    int status, wrapper_status;
    int64_t started, monotonic;  /* when the command was let go, by both clocks */
    int64_t ended, elapsed;      /* when it ended */
    int session;                 /* the session of all guards of this task */
    struct terms terms;
    char go[LAUNCH_GO_BYTES];
    int go_bytes;
    /* Of each stream: how far it had come when bytes were last dropped; bytes that were read and not stored yet. */
    _Atomic uint64_t reached[STREAMS], loaded_at[STREAMS];
    _Atomic int loaded[STREAMS];
    _Atomic int last_stream;     /* of a split task: which stream came last, and how far */
    _Atomic uint64_t last_offset;
};

/* What one guard process holds. A fork inherits all of it; its descriptors are the same as its parent's. */
struct guard {
    struct shared *page;
    char *buffers; /* BUFFER_BYTES for each stream, shared */
    struct launch *launch;
    int lock, record, caller, go_read, go_write;
    int wake_supervisor, wake_keeper, signals; /* eventfds, signalfd */
    int hand[2];                               /* the supervisor sends the relay pipes to the keeper */
    int peer, command;                         /* pidfds */
    int stdin_read, stdin_write, wake_fifo;
    int streams;
    bool owns_directory; /* its lock is held: what is in there may be removed */
    uint64_t pid_namespace;
    char boot[40];
};
extern struct guard guard;

/* process.c: processes as the kernel knows them */
struct proc_stat {
    char state;
    int parent, session, exit_code;
    uint64_t tick, cpu_ticks;
    bool dead;
};
int64_t now(clockid_t clock);
void close_fd(int *fd);
bool is_ready(int fd, short events);
void wake(int eventfd);
void drain_fd(int fd);
ssize_t read_file(const char *path, char *into, size_t size);
bool read_stat(int pid, struct proc_stat *into);
uint64_t read_own_tick(void);
int open_pidfd(int pid);
bool signal_pidfd(int fd, int number);
bool is_unreaped(int pidfd);
int fork_process(_Atomic int *pid, int flags);
void close_all_but(const int *kept, size_t count);
bool note_exit(void);
bool reap_children(void);

/* record.c: the record page, the bells, and messages to the caller */
enum slot { GUARDS, CODE, ENDING, POSITION, OUTCOME };
bool open_record(void);
bool read_slot(int fd, enum slot slot, char *into, size_t size);
void write_slot(enum slot slot, const char *format, ...) __attribute__((format(printf, 2, 3)));
void write_guards(void);
void write_code(int status, int64_t cpu_us);
void write_spawn_failure(void);
bool make_bells(void);
void hold_bell(void);
void ring_bell(void);
void release_bell(void);
void ring_directory(void);
bool tell_caller(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SECONDS(t) (long long)((t) / SECOND), (long long)((t) % SECOND / 1000)

/* output.c: from the pipes to the files */
struct pollfd;
bool make_pipes(void);
bool open_outputs(void);
void begin_outputs(void);
void resume_outputs(void);
void poll_outputs(struct pollfd *fds);
bool move_outputs(void);
void drain_outputs(void);
void let_go_of_outputs(void);
void forget_output_files(void);
void take_relays(const int *fds, size_t count);
bool outputs_are_closed(void);
int write_end(int stream);

/* spawn.c: from the launch to a command that waits for its go */
bool make_cgroups(void);
void remove_cgroups(void);
int count_oom_kills(void);
bool open_stdin(void);
bool spawn_child(void);
bool await_child(void);

/* tree.c: ending everything that the command started */
void strike(void);
int64_t next_strike(void);
bool is_anything_left(void);
bool has_staged_guard(void);
void kill_everything(void);

/* supervisor.c and keeper.c */
noreturn void start_task(void);
noreturn void resume_task(void);
noreturn void keep_task(void);
noreturn void abandon_task(void);
noreturn void refuse(int number, const char *what);
bool is_published(void);
void continue_peer(void);
void run_on_end(void);
ssize_t receive_fds(int socket, char *text, size_t size, int *fds, size_t *count);
bool send_to_keeper(char word, const int *fds, size_t count);

/* main.c: forget what only the start needed, such as the variables of the command */
void drop_launch(void);

#endif
