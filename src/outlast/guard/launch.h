/* The launch description: what to start, and how. Format and keys are in docs/guard.md. */
#ifndef OUTLAST_LAUNCH_H
#define OUTLAST_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LAUNCH_MOST_BYTES = 64 << 20,
    LAUNCH_MOST_FDS = 64,  /* descriptors that the command is given */
    LAUNCH_MOST_HELD = 16, /* descriptors that the guards hold while the command runs */
    LAUNCH_MOST_RLIMITS = 32,
    LAUNCH_GO_BYTES = 256,
    LAUNCH_ERROR_BYTES = 120,
};

enum stdin_kind { STDIN_EMPTY, STDIN_TEXT, STDIN_FILE, STDIN_OPEN };
enum fd_source { FD_STDIN, FD_STDOUT, FD_STDERR, FD_GO, FD_READY, FD_ERRORS, FD_INHERIT };

struct bytes {
    const char *data;
    size_t size;
};

/* A list of strings that ends with NULL, as `execve` takes it. */
struct strings {
    char **items;
    size_t count;
};

/* How much of the output to keep, how long the command may run, and what releases a program that waits. A prepared shell
 * gets them when it begins. */
struct terms {
    int64_t limit, grace; /* nanoseconds; INT64_MAX is no limit */
    uint64_t head, segment, floor;
    char go[LAUNCH_GO_BYTES];
    size_t go_bytes;
};

struct launch {
    const char *directory, *publish, *program, *cwd, *bells, *mark, *on_end_if;
    struct strings args, env, on_end, remove, cgroups;
    struct { int target, number; enum fd_source source; } fds[LAUNCH_MOST_FDS]; /* `number` of FD_INHERIT */
    struct { int which; uint64_t soft, hard; } rlimits[LAUNCH_MOST_RLIMITS];
    int held[LAUNCH_MOST_HELD];
    size_t fd_count, rlimit_count, held_count;
    enum stdin_kind stdin_kind;
    const char *stdin_path;
    int lock_fd, landlock_fd, nice;
    unsigned umask;
    struct bytes stdin_text, seccomp;
    bool split, prepare, program_waits, has_nice, drop_capabilities;
    struct terms terms;
    char error[LAUNCH_ERROR_BYTES]; /* why it was refused */
};

/* Parse `size` bytes in place. Strings that only the start needs point into `data`; the others are copies. */
bool parse_launch(struct launch *launch, char *data, size_t size);
/* The same for the terms of a prepared task: a few keys, no header. */
bool parse_terms(struct launch *launch, char *data, size_t size);
bool gives_fd(const struct launch *launch, enum fd_source source);

#endif
