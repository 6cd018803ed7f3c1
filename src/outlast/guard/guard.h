/* outlast-guard: two small processes, the supervisor and the keeper, that stay with one command until nothing of it is
 * left. docs/guard.md describes the launch description, the messages, the files and the states. */
#ifndef OUTLAST_GUARD_H
#define OUTLAST_GUARD_H
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GUARD_VERSION 1
#define SECOND 1000000000LL
#define MILLISECOND 1000000LL
#define NEVER INT64_MAX

enum {
    STREAMS = 2,
    SEGMENTS = 8, /* the tail that is kept is between 7 and 8 eighths of its half */
    RELAY_BYTES = 4096,
    RETRY_MS = 1000, /* a system call failed that has to succeed at last, such as fork */
    LAUNCH_MOST_BYTES = 64 << 20,
    LAUNCH_MOST_FDS = 64,  /* descriptors that the command is given */
    LAUNCH_MOST_HELD = 16, /* descriptors that the guards hold while the command runs */
    LAUNCH_GO_BYTES = 256,
    NICE_UNCHANGED = 100,
};

/* launch.c: the launch description, what to start and how. Format and keys are in docs/guard.md. */
enum stdin_kind { STDIN_EMPTY, STDIN_TEXT, STDIN_FILE, STDIN_OPEN };
enum fd_source { FD_STDIN, FD_STDOUT, FD_STDERR, FD_GO, FD_READY, FD_ERRORS, FD_INHERIT };

struct bytes { const char *data; size_t size; };
struct size { int columns, rows; };
struct strings { char **items; size_t count; }; /* ends with NULL, as `execve` takes it */

/* What a prepared shell gets when it begins. */
struct terms {
    int64_t limit, grace; /* nanoseconds; INT64_MAX is no limit */
    uint64_t head, segment, floor;
    char go[LAUNCH_GO_BYTES];
    size_t go_bytes;
};

struct launch {
    const char *directory, *publish, *program, *cwd, *bells, *mark, *on_end_if;
    struct strings args, env, rlimits, on_end, remove, cgroups;
    struct { int target, number; enum fd_source source; } fds[LAUNCH_MOST_FDS]; /* `number` of FD_INHERIT */
    int held[LAUNCH_MOST_HELD];
    size_t fd_count, held_count;
    enum stdin_kind stdin_kind;
    const char *stdin_path;
    int lock_fd, landlock_fd, nice;
    uint64_t umask;
    struct bytes stdin_text, seccomp;
    bool split, prepare, program_waits, drop_capabilities;
    struct size tty; /* of the terminal; no columns: there is none */
    struct terms terms;
    char error[120]; /* why it was refused */
};

/* Parse `size` bytes in place. Strings that only the start needs point into `data`; the others are copies. */
bool parse_launch(struct launch *launch, char *data, size_t size);
bool parse_terms(struct launch *launch, char *data, size_t size);
bool parse_size(const char *text, struct size *into);
bool gives_fd(const struct launch *launch, enum fd_source source);

/* The life of a task. Only the supervisor moves it on, except that the keeper, as parent of the command, may set EXITED. */
enum state {
    STARTING, /* there is no task yet, or the command was not released */
    RUNNING,  /* the task is published and the command was released */
    EXITED,   /* the command ended, and the record says how (or it can never be known) */
    DRAINED,  /* all that it printed before is in the files, the outcome is in the record, the caller was told */
    CLOSED,   /* the pipes are at their end and no process is left: the guards exit */
};

/* How far a stream of output has come: enough for a successor to go on. The last `made` segments are kept, as a ring. */
struct progress {
    _Atomic uint64_t offset, made;
    _Atomic uint64_t dropped_up_to; /* where the stream stood when bytes were last dropped */
    uint64_t segments[SEGMENTS];    /* where in the stream each one starts */
};

/* What both processes must know. The kernel writes each pid while it forks (CLONE_PARENT_SETTID), so there is no
 * moment at which a process exists that only a dead one knew. */
struct shared {
    _Atomic int state;
    _Atomic int supervisor, keeper, child, on_end; /* pids */
    _Atomic int command;                           /* the child, or the first process inside of its sandbox */
    _Atomic uint64_t supervisor_tick, keeper_tick, command_tick;
    _Atomic int begun;               /* the terms are known and only publication is left to do */
    _Atomic int keeper_has_children; /* processes of the command are below the keeper */
    _Atomic int keeper_closed_pipes; /* the keeper closed its write ends */
    _Atomic int recoveries;          /* how often a guard was replaced */
    _Atomic int status_known;        /* `status` is the wait status of the command */
    _Atomic int wrapper_known;       /* `wrapper_status` is that of bubblewrap */
    _Atomic int spawn_errno;         /* why the command could not be started, and what could not be done */
    char spawn_what[160];
    int status, wrapper_status;
    int64_t started, monotonic;      /* when the command was released, by both clocks */
    int64_t ended, elapsed;          /* when it ended */
    _Atomic int64_t limit_at;        /* when it reached its limit, by the monotonic clock; 0 if it did not */
    struct terms terms;
    struct progress progress[STREAMS];
    /* Bytes on their way from the relay into a file: of which stream, where in it, how many. */
    _Atomic int relay_stream, loaded;
    _Atomic uint64_t loaded_at;
    char relay_buffer[RELAY_BYTES];
    _Atomic int last_stream, order_bytes; /* of a split task: which stream moved last, and how far */
    _Atomic uint64_t last_offset;
    struct size size; /* of the terminal, as it was last set */
};

/* What one guard process holds. A fork inherits all of it; its descriptors are the same as its parent's. */
struct guard {
    struct shared *page;
    struct launch *launch;
    int lock, record, caller, go_read, go_write;
    int signals;       /* signalfd */
    int peer, command; /* pidfds */
    int stdin_read, stdin_write, wake_fifo;
    int streams;
    bool look_failed;    /* processes could not be read from /proc, for want of a descriptor: look again soon */
    uint64_t pid_namespace;
    dev_t exe_device; /* this program: how guards of other tasks are recognised */
    ino_t exe_inode;
    char boot[40];
};
extern struct guard guard;

/* process.c: processes as the kernel knows them */
struct proc_stat { char state; bool dead; int exit_code; uint64_t tick; };
int64_t now(clockid_t clock);
void close_fd(int *fd);
bool is_ready(int fd, short events);
void drain_fd(int fd);
ssize_t read_file(const char *path, char *into, size_t size);
bool read_stat(int pid, struct proc_stat *into);
uint64_t read_own_tick(void);
int open_pidfd(int pid);
bool signal_pidfd(int fd, int number);
bool is_unreaped(int pidfd);
int fork_process(_Atomic int *pid, int flags);
int replace_peer(_Atomic int *pid);
void wake_peer(void);
void continue_peer(void);
bool note_exit(void);
bool reap_children(void);

/* record.c: the record page, the bells, and messages to the caller */
enum slot { GUARDS, CODE, ENDING, POSITION, OUTCOME };
bool open_record(void);
void write_slot(enum slot slot, const char *format, ...) __attribute__((format(printf, 2, 3)));
void write_guards(void);
void write_code(int status, int64_t cpu_us);
void write_spawn_failure(void);
bool make_bells(void);
void open_bell(void);
void ring_bell(void);
void release_bell(void);
void ring_directory(void);
void send_to_caller(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SECONDS(t) (long long)((t) / SECOND), (long long)((t) % SECOND / 1000) /* for %lld.%06lld */

/* output.c: from the pipes to the files */
bool make_pipes(void);
bool open_outputs(void);
void resume_outputs(void);
void poll_outputs(struct pollfd *fds);
bool move_outputs(void);
void drain_outputs(void);
void close_write_ends(void);
void close_output_files(void);
bool outputs_are_closed(void);
int write_end(int stream);
bool has_terminal(void);
void feed_terminal(void);
bool resize_terminal(void);

/* spawn.c: from the launch to a child that waits for its go */
bool open_stdin(void);
bool spawn_child(void);
bool await_child(void);

/* tree.c: everything that the command started */
struct members {
    struct member { int pid; uint64_t tick; char state; bool got_term; } *items;
    size_t count, size;
};
struct members find_tree(void);
void terminate_all(void);
void kill_all(void);
void enforce_limit(void);
int64_t next_limit_check(void);
bool has_descendants(void);
void kill_everything(void);
bool write_to_cgroup(const char *group, const char *name, const char *text);
int count_oom_kills(void);
void remove_cgroups(void);

/* supervisor.c and keeper.c */
noreturn void start_task(void);
noreturn void resume_task(void);
noreturn void keep_task(void);
noreturn void refuse(int number, const char *what);
bool is_published(void);
void run_on_end(void);
void drop_launch(void); /* main.c */
int serve_far(const char *home, const char *retention); /* far.c: the other end of a connection by ssh */

#endif
