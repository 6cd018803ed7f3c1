/* Parses the launch description. It trusts nothing about the bytes: every length is checked against what is left. */
#include "guard.h"

static const char HEADER[] = "outlast-launch 1\n";
enum { MOST_FD = 1023, MOST_LINE = 64, MOST_SECCOMP_BYTES = 4096 * 8 };
#define MOST_SECONDS 4000000000ULL /* a century */

static bool fail(struct launch *launch, const char *key, const char *why) {
    snprintf(launch->error, sizeof launch->error, "%.40s: %.70s", key, why);
    return false;
}

static bool parse_unsigned(const char *text, int base, uint64_t most, uint64_t *into) {
    char *end;
    errno = 0;
    *into = strtoull(text, &end, base);
    return *text >= '0' && *text <= '9' && !*end && !errno && *into <= most; /* no sign, no blank */
}

static bool parse_int(const char *text, unsigned most, int *into) {
    uint64_t value;
    if (!parse_unsigned(text, 10, most, &value)) return false;
    *into = (int)value;
    return true;
}

/* A descriptor that the caller passed to the guard. 0, 1 and 2 are never passed on. */
static bool parse_passed_fd(const char *text, int *into) { return parse_int(text, MOST_FD, into) && *into > 2; }

/* Seconds such as "12.5", as nanoseconds. */
static bool parse_seconds(const char *text, int64_t *into) {
    char *end;
    int64_t unit = SECOND;
    uint64_t whole = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || whole > MOST_SECONDS) return false;
    *into = (int64_t)whole * SECOND;
    if (*end == '.')
        while (*++end >= '0' && *end <= '9' && unit > 1) *into += (*end - '0') * (unit /= 10);
    return !*end;
}

/* Cut the next word off `*text`; "" if there is none. */
static char *take_word(char **text) {
    char *word = *text, *end = strchr(word, ' ');
    *text = end ? end + 1 : word + strlen(word);
    if (end) *end = 0;
    return word;
}

static int find_name(const char *const *names, const char *name) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

static bool parse_stdin(struct launch *launch, char *text) {
    static const char *const KINDS[] = {"empty", "text", "file", "open", NULL};
    int kind = find_name(KINDS, take_word(&text));
    launch->stdin_kind = (enum stdin_kind)kind;
    launch->stdin_path = text;
    return kind >= 0 && (kind == STDIN_FILE) == (*text != 0);
}

static bool parse_fd(struct launch *launch, char *text) {
    static const char *const SOURCES[] = {"stdin", "stdout", "stderr", "go", "ready", "errors", "inherit", NULL};
    size_t at = launch->fd_count;
    if (at == LAUNCH_MOST_FDS || !parse_int(take_word(&text), MOST_FD, &launch->fds[at].target)) return false;
    int source = find_name(SOURCES, take_word(&text));
    if (source < 0) return false;
    for (size_t i = 0; i < at; i++)
        if (launch->fds[i].target == launch->fds[at].target) return false;
    launch->fds[at].source = (enum fd_source)source;
    launch->fd_count++;
    return source == FD_INHERIT ? parse_passed_fd(text, &launch->fds[at].number) : *text == 0;
}

static bool parse_nice(struct launch *launch, char *text) {
    bool negative = *text == '-';
    if (!parse_int(text + negative, 20, &launch->nice)) return false;
    if (negative) launch->nice = -launch->nice;
    return true;
}

static bool parse_hold(struct launch *launch, char *text) {
    if (launch->held_count == LAUNCH_MOST_HELD || !parse_passed_fd(text, &launch->held[launch->held_count])) return false;
    launch->held_count++;
    return true;
}

/* A terminal's size, COLUMNSxROWS: in the launch, and later in the file `size`. */
bool parse_size(const char *text, struct size *into) {
    int end = 0;
    bool good = *text >= '0' && *text <= '9' && sscanf(text, "%4dx%4d%n", &into->columns, &into->rows, &end) == 2;
    return good && into->columns > 0 && into->rows > 0 && !text[end + (text[end] == '\n')];
}

static bool parse_tty(struct launch *launch, char *text) { return parse_size(text, &launch->tty); }

static bool parse_go(struct launch *launch, char *text) {
    size_t size = strlen(text);
    if (!size || size > LAUNCH_GO_BYTES) return false;
    memcpy(launch->terms.go, text, size);
    launch->terms.go_bytes = size;
    return true;
}

enum kind { PATH, TEXT, LIST, PATHS, BYTES, FLAG, SECS, SIZE, OCTAL, PASSED_FD, OTHER };
enum { KEPT = 1, TERM = 2 }; /* needed after the start, so copied; may be sent late to a prepared task */

static const struct key {
    const char *name;
    enum kind kind;
    int flags;
    size_t field;
    bool (*parse)(struct launch *, char *);
} KEYS[] = {
#define FIELD(name) offsetof(struct launch, name), NULL
    {"directory", PATH, KEPT, FIELD(directory)},
    {"publish", PATH, KEPT, FIELD(publish)},
    {"bells", PATH, KEPT, FIELD(bells)},
    {"mark", TEXT, KEPT, FIELD(mark)},
    {"program", PATH, 0, FIELD(program)},
    {"cwd", PATH, 0, FIELD(cwd)},
    {"arg", LIST, 0, FIELD(args)},
    {"env", LIST, 0, FIELD(env)},
    {"on-end", LIST, KEPT, FIELD(on_end)},
    {"on-end-if", PATH, KEPT, FIELD(on_end_if)},
    {"remove", LIST, KEPT, FIELD(remove)},
    {"cgroup", PATHS, KEPT, FIELD(cgroups)},
    {"stdin-text", BYTES, 0, FIELD(stdin_text)},
    {"seccomp", BYTES, 0, FIELD(seccomp)},
    {"go", OTHER, TERM, 0, parse_go},
    {"limit", SECS, TERM, FIELD(terms.limit)},
    {"grace", SECS, TERM, FIELD(terms.grace)},
    {"head", SIZE, TERM, FIELD(terms.head)},
    {"segment", SIZE, TERM, FIELD(terms.segment)},
    {"floor", SIZE, TERM, FIELD(terms.floor)},
    {"split", FLAG, 0, FIELD(split)},
    {"prepare", FLAG, 0, FIELD(prepare)},
    {"program-waits", FLAG, 0, FIELD(program_waits)},
    {"drop-capabilities", FLAG, 0, FIELD(drop_capabilities)},
    {"lock", PASSED_FD, 0, FIELD(lock_fd)},
    {"landlock", PASSED_FD, 0, FIELD(landlock_fd)},
    {"hold", OTHER, 0, 0, parse_hold},
    {"stdin", OTHER, 0, 0, parse_stdin},
    {"fd", OTHER, 0, 0, parse_fd},
    {"tty", OTHER, 0, 0, parse_tty},
    {"rlimit", LIST, 0, FIELD(rlimits)},
    {"nice", OTHER, 0, 0, parse_nice},
    {"umask", OCTAL, 0, FIELD(umask)},
};

static bool add_string(struct strings *list, char *value) {
    char **more = realloc(list->items, (list->count + 2) * sizeof *more);
    if (!more) return false;
    list->items = more;
    list->items[list->count++] = value;
    list->items[list->count] = NULL;
    return true;
}

static bool parse_value(struct launch *launch, const struct key *key, char *value, size_t size) {
    void *field = (char *)launch + key->field;
    bool is_path = key->kind == PATH || key->kind == PATHS;
    if (is_path && (*value != '/' || size >= PATH_MAX - MOST_LINE)) return false; /* a name is appended to some */
    if (key->flags & KEPT && !(value = strdup(value))) return false;
    switch (key->kind) {
    case PATH:
    case TEXT: *(const char **)field = value; return true;
    case LIST:
    case PATHS: return add_string(field, value);
    case BYTES: *(struct bytes *)field = (struct bytes){value, size}; return true;
    case FLAG: *(bool *)field = *value == '1'; return size == 1 && (*value == '0' || *value == '1');
    case SECS: return parse_seconds(value, field);
    case SIZE: return parse_unsigned(value, 10, INT64_MAX / 2, field);
    case OCTAL: return parse_unsigned(value, 8, 0777, field);
    case PASSED_FD: return parse_passed_fd(value, field);
    case OTHER: return key->parse(launch, value);
    }
    return false;
}

/* Take the next `KEY LENGTH\nBYTES\n` off the front. */
static bool next_item(char **at, const char *end, char **key, char **value, size_t *size) {
    size_t left = (size_t)(end - *at);
    char *line = memchr(*at, '\n', left < MOST_LINE ? left : MOST_LINE);
    char *blank = line ? memchr(*at, ' ', (size_t)(line - *at)) : NULL;
    uint64_t length;
    if (!blank) return false;
    *line = *blank = 0;
    *key = *at, *value = line + 1;
    left = (size_t)(end - *value);
    if (!parse_unsigned(blank + 1, 10, LAUNCH_MOST_BYTES, &length) || length >= left || (*value)[length] != '\n') return false;
    *size = (size_t)length;
    (*value)[length] = 0;
    *at = *value + length + 1;
    return true;
}

/* Parse items whose key has all of `flags`, up to `end`. */
static bool parse_items(struct launch *launch, char *at, const char *end, int flags) {
    char *name, *value;
    size_t size;
    while (at < end) {
        if (!next_item(&at, end, &name, &value, &size)) return fail(launch, "launch", "damaged or cut off");
        const struct key *key = NULL;
        for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS && !key; i++)
            if (!strcmp(KEYS[i].name, name) && (KEYS[i].flags & flags) == flags) key = &KEYS[i];
        if (!key) return fail(launch, name, "unknown key");
        if (key->kind != BYTES && memchr(value, 0, size)) return fail(launch, name, "has a NUL");
        if (!parse_value(launch, key, value, size)) return fail(launch, name, "bad value");
    }
    return (launch->terms.head && launch->terms.segment) || fail(launch, "head", "head and segment are at least 1");
}

static bool check_launch(struct launch *launch) {
    if (!launch->directory) return fail(launch, "directory", "missing");
    if (!launch->program || !launch->args.count) return fail(launch, "program", "needs a path and at least one arg");
    if (!launch->cwd) return fail(launch, "cwd", "missing");
    if (launch->on_end.count && *launch->on_end.items[0] != '/') return fail(launch, "on-end", "does not begin with a path");
    if (launch->mark && !strchr(launch->mark, '=')) return fail(launch, "mark", "is no variable");
    if (launch->prepare && !launch->publish) return fail(launch, "prepare", "needs a place to publish");
    if (launch->seccomp.size % 8 || launch->seccomp.size > MOST_SECCOMP_BYTES) return fail(launch, "seccomp", "bad size");
    if (launch->tty.columns && (launch->split || launch->prepare || launch->stdin_kind != STDIN_OPEN))
        return fail(launch, "tty", "needs stdin open, and neither split nor prepare");
    if (launch->program_waits != gives_fd(launch, FD_GO)) return fail(launch, "program-waits", "needs a go descriptor, and go needs it");
    for (size_t i = 0; i < launch->env.count; i++)
        if (!strchr(launch->env.items[i], '=')) return fail(launch, "env", "is no variable");
    for (bool none = !launch->fd_count; none && launch->fd_count < 3; launch->fd_count++) {
        launch->fds[launch->fd_count].target = (int)launch->fd_count;
        launch->fds[launch->fd_count].source = (enum fd_source)(FD_STDIN + launch->fd_count);
    }
    return true;
}

bool parse_launch(struct launch *launch, char *data, size_t size) {
    static const struct launch EMPTY = {.lock_fd = -1, .landlock_fd = -1, .umask = 022, .nice = NICE_UNCHANGED,
                                        .terms = {INT64_MAX, 2000000000, 50000000, 6249987, 0, "g\n", 2}};
    static const char END[] = "end 0\n\n";
    size_t head = sizeof HEADER - 1, tail = sizeof END - 1;
    *launch = EMPTY;
    if (size < head || memcmp(data, HEADER, head)) return fail(launch, "launch", "not of version 1");
    if (size < head + tail || memcmp(data + size - tail, END, tail)) return fail(launch, "launch", "damaged or cut off");
    return parse_items(launch, data + head, data + size - tail, 0) && check_launch(launch);
}

bool parse_terms(struct launch *launch, char *data, size_t size) { return parse_items(launch, data, data + size, TERM); }

bool gives_fd(const struct launch *launch, enum fd_source source) {
    for (size_t i = 0; i < launch->fd_count; i++)
        if (launch->fds[i].source == source) return true;
    return false;
}
