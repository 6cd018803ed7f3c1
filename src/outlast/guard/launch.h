/* The launch description: what to start, and how. Format and keys are in docs/guard.md. */
#ifndef OUTLAST_LAUNCH_H
#define OUTLAST_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    LAUNCH_MOST_BYTES = 64 << 20,
    LAUNCH_MOST_FDS = 64,     /* descriptors that a command is given */
    LAUNCH_MOST_HELD = 16,    /* descriptors that the guards hold while the command runs */
    LAUNCH_MOST_GROUPS = 8,   /* control groups */
    LAUNCH_MOST_RLIMITS = 32,
    LAUNCH_GO_BYTES = 256,
    LAUNCH_ERROR_BYTES = 120,
};

enum stdin_kind { STDIN_EMPTY, STDIN_TEXT, STDIN_FILE, STDIN_OPEN, STDIN_INHERIT };
enum fd_source { FD_STDIN, FD_STDOUT, FD_STDERR, FD_GO, FD_READY, FD_STATUS, FD_NULL, FD_ERRORS, FD_INHERIT, FD_READ, FD_WRITE };

struct given_fd {
    int target, number;   /* `number` of FD_INHERIT */
    enum fd_source source;
    const char *path;     /* of FD_READ and FD_WRITE, seen from the task's directory */
};

struct bytes {
    const char *data;
    size_t size;
};

/* A list of strings that ends with NULL, as `execve` takes it. */
struct strings {
    char **items;
    size_t count;
};

struct launch {
    const char *directory, *publish, *program, *cwd, *ring, *mark;
    struct strings args, env, on_end, remove, groups, rules;
    struct { const char *group; const char *setting; } *group_settings;
    size_t group_setting_count;
    struct given_fd fds[LAUNCH_MOST_FDS];
    size_t fd_count;
    int held[LAUNCH_MOST_HELD];
    size_t held_count;
    struct { int which; uint64_t soft, hard; } rlimits[LAUNCH_MOST_RLIMITS];
    size_t rlimit_count;
    enum stdin_kind stdin_kind;
    const char *stdin_path;
    int stdin_fd, lock_fd, nice;
    struct bytes stdin_text, seccomp, go;
    mode_t umask;
    bool split, prepare, program_waits, has_nice, drop_capabilities, no_new_privileges, has_landlock;
    uint64_t landlock_files, landlock_network, landlock_scopes;
    int64_t limit, grace; /* nanoseconds */
    uint64_t head, segment, floor;
    char error[LAUNCH_ERROR_BYTES]; /* why it was not understood */
    void *vectors;
};

/* Understand `size` bytes, which are changed: strings in the result point into them. */
bool parse_launch(struct launch *launch, char *data, size_t size);
/* The same for the terms of a prepared task: a few keys, no header. */
bool parse_terms(struct launch *launch, char *data, size_t size);
/* Split "RIGHTS PATH" of a Landlock rule. */
bool parse_rule(const char *rule, uint64_t *rights, const char **path);
bool gives_fd(const struct launch *launch, enum fd_source source);
void free_launch(struct launch *launch);

#endif
