/* Parses the launch description. It trusts nothing about the bytes: every length is checked against what is left. */
#define _GNU_SOURCE
#include "launch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HEADER[] = "outlast-launch 1\n";
enum { MOST_KEY = 24, MOST_TARGET = 1023, NANO_DIGITS = 9 };

struct item {
    const char *key;
    char *value; /* ends with a NUL, which is not counted */
    size_t size;
};

static bool fail(struct launch *launch, const char *key, const char *why) {
    snprintf(launch->error, sizeof launch->error, "%.40s: %.70s", key, why);
    return false;
}

/* --- values --- */

static bool parse_unsigned(const char *text, unsigned base, uint64_t most, uint64_t *into) {
    uint64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        unsigned digit = *text >= '0' && *text <= '9' ? (unsigned)(*text - '0')
                         : *text >= 'a' && *text <= 'f' ? (unsigned)(*text - 'a' + 10)
                                                        : base;
        if (digit >= base || value > (UINT64_MAX - digit) / base) return false;
        value = value * base + digit;
        if (value > most) return false;
    }
    *into = value;
    return true;
}

static bool parse_number(const char *text, int most, int *into) {
    uint64_t value;
    if (!parse_unsigned(text, 10, (uint64_t)most, &value)) return false;
    *into = (int)value;
    return true;
}

/* Seconds such as "12.5", as nanoseconds. */
static bool parse_seconds(char *text, int64_t *into) {
    uint64_t whole, part = 0;
    char *dot = strchr(text, '.');
    if (dot) {
        char padded[NANO_DIGITS + 1];
        size_t digits = strlen(dot + 1);
        if (digits < 1 || digits > NANO_DIGITS) return false;
        memset(padded, '0', NANO_DIGITS);
        memcpy(padded, dot + 1, digits);
        padded[NANO_DIGITS] = 0;
        *dot = 0;
        if (!parse_unsigned(padded, 10, 999999999, &part)) return false;
    }
    if (!parse_unsigned(text, 10, 4000000000ULL, &whole)) return false; /* a century */
    *into = (int64_t)(whole * 1000000000ULL + part);
    return true;
}

/* Cut the next word off `*text`; NULL if there is none. */
static char *take_word(char **text) {
    char *word = *text, *end = strchr(word, ' ');
    if (!*word) return NULL;
    *text = end ? end + 1 : word + strlen(word);
    if (end) *end = 0;
    return word;
}

static bool parse_flag(const struct item *item, bool *into) {
    if (item->size != 1 || (*item->value != '0' && *item->value != '1')) return false;
    *into = *item->value == '1';
    return true;
}

static bool add_string(struct strings *list, char *value) {
    list->items[list->count++] = value; /* there is room for every item of the description */
    return true;
}

/* --- one function for each kind of item that is more than one value --- */

static bool parse_stdin(struct launch *launch, char *text) {
    char *kind = take_word(&text);
    if (!kind) return false;
    if (!strcmp(kind, "empty")) launch->stdin_kind = STDIN_EMPTY;
    else if (!strcmp(kind, "text")) launch->stdin_kind = STDIN_TEXT;
    else if (!strcmp(kind, "open")) launch->stdin_kind = STDIN_OPEN;
    else if (!strcmp(kind, "file")) launch->stdin_kind = STDIN_FILE, launch->stdin_path = text;
    else if (!strcmp(kind, "inherit")) {
        launch->stdin_kind = STDIN_INHERIT;
        return parse_number(text, MOST_TARGET, &launch->stdin_fd) && launch->stdin_fd > 2;
    } else return false;
    return launch->stdin_kind == STDIN_FILE ? *text != 0 : *text == 0;
}

static bool parse_fd(struct launch *launch, char *text) {
    static const char *const NAMES[] = {"stdin", "stdout", "stderr", "go", "ready", "status", "null", "errors", "inherit", "read", "write"};
    if (launch->fd_count == LAUNCH_MOST_FDS) return false;
    struct given_fd *given = &launch->fds[launch->fd_count];
    char *target = take_word(&text), *source = take_word(&text);
    if (!target || !source || !parse_number(target, MOST_TARGET, &given->target)) return false;
    size_t at = 0;
    while (at < sizeof NAMES / sizeof *NAMES && strcmp(NAMES[at], source)) at++;
    if (at == sizeof NAMES / sizeof *NAMES) return false;
    for (size_t i = 0; i < launch->fd_count; i++)
        if (launch->fds[i].target == given->target) return false;
    given->source = (enum fd_source)at;
    launch->fd_count++;
    if (given->source == FD_INHERIT) return parse_number(text, MOST_TARGET, &given->number) && given->number > 2;
    given->path = text;
    return given->source == FD_READ || given->source == FD_WRITE ? *text != 0 : *text == 0;
}

static bool parse_rlimit(struct launch *launch, char *text) {
    if (launch->rlimit_count == LAUNCH_MOST_RLIMITS) return false;
    char *which = take_word(&text), *soft = take_word(&text), *hard = take_word(&text);
    if (!which || !soft || !hard || *text) return false;
    size_t at = launch->rlimit_count++;
    return parse_number(which, 64, &launch->rlimits[at].which) &&
           parse_unsigned(soft, 10, UINT64_MAX, &launch->rlimits[at].soft) &&
           parse_unsigned(hard, 10, UINT64_MAX, &launch->rlimits[at].hard);
}

static bool parse_landlock(struct launch *launch, char *text) {
    char *files = take_word(&text), *network = take_word(&text), *scopes = take_word(&text);
    launch->has_landlock = true;
    return files && network && scopes && !*text && parse_unsigned(files, 16, UINT64_MAX, &launch->landlock_files) &&
           parse_unsigned(network, 16, UINT64_MAX, &launch->landlock_network) &&
           parse_unsigned(scopes, 16, UINT64_MAX, &launch->landlock_scopes);
}

bool parse_rule(const char *rule, uint64_t *rights, const char **path) {
    char digits[17];
    const char *blank = strchr(rule, ' ');
    if (!blank || blank - rule > 16 || blank[1] != '/') return false;
    memcpy(digits, rule, (size_t)(blank - rule));
    digits[blank - rule] = 0;
    *path = blank + 1;
    return parse_unsigned(digits, 16, UINT64_MAX, rights);
}

static bool parse_nice(struct launch *launch, const char *text) {
    bool negative = *text == '-';
    launch->has_nice = true;
    if (!parse_number(text + negative, 20, &launch->nice)) return false;
    if (negative) launch->nice = -launch->nice;
    return true;
}

static bool add_group_setting(struct launch *launch, const char *text) {
    const char *equals = strchr(text, '=');
    if (!launch->groups.count || !equals || memchr(text, '/', (size_t)(equals - text))) return false;
    launch->group_settings[launch->group_setting_count].group = launch->groups.items[launch->groups.count - 1];
    launch->group_settings[launch->group_setting_count++].setting = text;
    return true;
}

static bool is_bytes(const char *key) {
    return !strcmp(key, "stdin-text") || !strcmp(key, "seccomp") || !strcmp(key, "go");
}

/* --- items --- */

enum answer { UNKNOWN, GOOD, BAD };
#define ANSWER(condition) ((condition) ? GOOD : BAD)

static enum answer take_path(struct launch *launch, const struct item *item) {
    const char **into = !strcmp(item->key, "directory") ? &launch->directory
                        : !strcmp(item->key, "publish") ? &launch->publish
                        : !strcmp(item->key, "program") ? &launch->program
                        : !strcmp(item->key, "cwd")     ? &launch->cwd
                        : !strcmp(item->key, "ring")    ? &launch->ring
                                                        : NULL;
    if (!into) return UNKNOWN;
    *into = item->value;
    return ANSWER(*item->value == '/' && item->size < PATH_MAX);
}

static enum answer take_list(struct launch *launch, const struct item *item) {
    if (!strcmp(item->key, "arg")) return ANSWER(add_string(&launch->args, item->value));
    if (!strcmp(item->key, "env")) return ANSWER(strchr(item->value, '=') && add_string(&launch->env, item->value));
    if (!strcmp(item->key, "on-end")) return ANSWER(add_string(&launch->on_end, item->value));
    if (!strcmp(item->key, "remove")) return ANSWER(*item->value && add_string(&launch->remove, item->value));
    if (!strcmp(item->key, "cgroup"))
        return ANSWER(*item->value == '/' && item->size < PATH_MAX - 64 && launch->groups.count < LAUNCH_MOST_GROUPS &&
                      add_string(&launch->groups, item->value));
    if (!strcmp(item->key, "cgroup-set")) return ANSWER(add_group_setting(launch, item->value));
    if (!strcmp(item->key, "landlock-rule")) {
        uint64_t rights;
        const char *path;
        return ANSWER(parse_rule(item->value, &rights, &path) && add_string(&launch->rules, item->value));
    }
    return UNKNOWN;
}

/* What a prepared task may be told late. */
static enum answer take_term(struct launch *launch, const struct item *item) {
    if (!strcmp(item->key, "limit")) return ANSWER(parse_seconds(item->value, &launch->limit));
    if (!strcmp(item->key, "grace")) return ANSWER(parse_seconds(item->value, &launch->grace));
    if (!strcmp(item->key, "head")) return ANSWER(parse_unsigned(item->value, 10, INT64_MAX / 2, &launch->head) && launch->head);
    if (!strcmp(item->key, "segment"))
        return ANSWER(parse_unsigned(item->value, 10, INT64_MAX / 2, &launch->segment) && launch->segment);
    if (!strcmp(item->key, "floor")) return ANSWER(parse_unsigned(item->value, 10, INT64_MAX / 2, &launch->floor));
    if (!strcmp(item->key, "go")) {
        launch->go = (struct bytes){item->value, item->size};
        return ANSWER(item->size > 0 && item->size <= LAUNCH_GO_BYTES);
    }
    return UNKNOWN;
}

static enum answer take_number(struct launch *launch, const struct item *item) {
    uint64_t value;
    if (!strcmp(item->key, "umask")) {
        if (!parse_unsigned(item->value, 8, 0777, &value)) return BAD;
        launch->umask = (mode_t)value;
        return GOOD;
    }
    if (!strcmp(item->key, "nice")) return ANSWER(parse_nice(launch, item->value));
    if (!strcmp(item->key, "lock")) return ANSWER(parse_number(item->value, MOST_TARGET, &launch->lock_fd) && launch->lock_fd > 2);
    if (!strcmp(item->key, "hold"))
        return ANSWER(launch->held_count < LAUNCH_MOST_HELD &&
                      parse_number(item->value, MOST_TARGET, &launch->held[launch->held_count]) &&
                      launch->held[launch->held_count++] > 2);
    if (!strcmp(item->key, "split")) return ANSWER(parse_flag(item, &launch->split));
    if (!strcmp(item->key, "prepare")) return ANSWER(parse_flag(item, &launch->prepare));
    if (!strcmp(item->key, "program-waits")) return ANSWER(parse_flag(item, &launch->program_waits));
    if (!strcmp(item->key, "drop-capabilities")) return ANSWER(parse_flag(item, &launch->drop_capabilities));
    if (!strcmp(item->key, "no-new-privileges")) return ANSWER(parse_flag(item, &launch->no_new_privileges));
    return UNKNOWN;
}

static enum answer take_rest(struct launch *launch, const struct item *item) {
    if (!strcmp(item->key, "stdin")) return ANSWER(parse_stdin(launch, item->value));
    if (!strcmp(item->key, "fd")) return ANSWER(parse_fd(launch, item->value));
    if (!strcmp(item->key, "rlimit")) return ANSWER(parse_rlimit(launch, item->value));
    if (!strcmp(item->key, "landlock")) return ANSWER(parse_landlock(launch, item->value));
    if (!strcmp(item->key, "mark")) return launch->mark = item->value, ANSWER(strchr(item->value, '='));
    if (!strcmp(item->key, "stdin-text")) return launch->stdin_text = (struct bytes){item->value, item->size}, GOOD;
    if (!strcmp(item->key, "seccomp")) {
        launch->seccomp = (struct bytes){item->value, item->size};
        return ANSWER(item->size && item->size % 8 == 0 && item->size <= 4096 * 8);
    }
    return UNKNOWN;
}

/* Take the next `KEY LENGTH\nBYTES\n` off the front. */
static bool next_item(char **at, const char *end, struct item *item) {
    size_t left = (size_t)(end - *at);
    char *line = memchr(*at, '\n', left < 64 ? left : 64);
    char *blank = line ? memchr(*at, ' ', (size_t)(line - *at)) : NULL;
    uint64_t size;
    if (!blank || blank == *at || blank - *at > MOST_KEY) return false;
    *line = *blank = 0;
    left = (size_t)(end - (line + 1));
    if (!parse_unsigned(blank + 1, 10, LAUNCH_MOST_BYTES, &size) || size + 1 > left || line[1 + size] != '\n') return false;
    *item = (struct item){.key = *at, .value = line + 1, .size = (size_t)size};
    line[1 + size] = 0;
    *at = line + 1 + size + 1;
    return true;
}

/* An upper bound of the items: each takes at least "k 0\n\n". */
static bool make_vectors(struct launch *launch, size_t size) {
    size_t most = size / 5 + 2, lists = 6;
    struct strings *all[] = {&launch->args, &launch->env, &launch->on_end, &launch->remove, &launch->groups, &launch->rules};
    launch->vectors = calloc(most * (lists + 2), sizeof(char *)); /* only the pages that are used take memory */
    if (!launch->vectors) return fail(launch, "launch", "no memory");
    for (size_t i = 0; i < lists; i++) all[i]->items = (char **)launch->vectors + most * i;
    launch->group_settings = (void *)((char **)launch->vectors + most * lists);
    return true;
}

static bool check_launch(struct launch *launch) {
    if (!launch->directory) return fail(launch, "directory", "missing");
    if (!launch->program || !launch->args.count) return fail(launch, "program", "needs a path and at least one arg");
    if (!launch->cwd) return fail(launch, "cwd", "missing");
    if (launch->on_end.count && launch->on_end.items[0][0] != '/') return fail(launch, "on-end", "begins with no path");
    if (launch->prepare && !launch->publish) return fail(launch, "prepare", "needs a place to publish");
    if (gives_fd(launch, FD_STATUS) && !gives_fd(launch, FD_READY)) return fail(launch, "fd", "status needs ready");
    if (launch->program_waits && !gives_fd(launch, FD_GO)) return fail(launch, "program-waits", "needs a go descriptor");
    for (size_t i = 0; i < launch->fd_count; i++)
        if (launch->fds[i].source == FD_GO && !launch->program_waits) return fail(launch, "fd", "go needs program-waits");
    if (!launch->fd_count)
        for (int i = 0; i < 3; i++)
            launch->fds[launch->fd_count++] = (struct given_fd){.target = i, .source = (enum fd_source)(FD_STDIN + i)};
    return true;
}

bool parse_launch(struct launch *launch, char *data, size_t size) {
    static const struct launch EMPTY = {.stdin_fd = -1, .lock_fd = -1, .umask = 022, .limit = INT64_MAX, .grace = 2000000000,
                                        .head = 50000000, .segment = 6249987, .go = {"g\n", 2}};
    char *at = data + sizeof HEADER - 1, *end = data + size;
    struct item item;
    *launch = EMPTY;
    if (size < sizeof HEADER || memcmp(data, HEADER, sizeof HEADER - 1)) return fail(launch, "launch", "not of version 1");
    if (!make_vectors(launch, size)) return false;
    while (next_item(&at, end, &item)) {
        if (!strcmp(item.key, "end")) return at == end ? check_launch(launch) : fail(launch, "end", "something follows");
        if (!is_bytes(item.key) && memchr(item.value, 0, item.size)) return fail(launch, item.key, "has a NUL");
        enum answer found = take_path(launch, &item);
        if (found == UNKNOWN) found = take_list(launch, &item);
        if (found == UNKNOWN) found = take_term(launch, &item);
        if (found == UNKNOWN) found = take_number(launch, &item);
        if (found == UNKNOWN) found = take_rest(launch, &item);
        if (found != GOOD) return fail(launch, item.key, found == BAD ? "bad value" : "unknown key");
    }
    return fail(launch, "launch", "damaged or cut off");
}

bool parse_terms(struct launch *launch, char *data, size_t size) {
    char *at = data, *end = data + size;
    struct item item;
    while (at < end) {
        if (!next_item(&at, end, &item)) return fail(launch, "begin", "damaged");
        if (!strcmp(item.key, "go") || !memchr(item.value, 0, item.size)) {
            if (take_term(launch, &item) == GOOD) continue;
        }
        return fail(launch, item.key, "no term");
    }
    return true;
}

bool gives_fd(const struct launch *launch, enum fd_source source) {
    for (size_t i = 0; i < launch->fd_count; i++)
        if (launch->fds[i].source == source) return true;
    return false;
}

void free_launch(struct launch *launch) {
    free(launch->vectors);
    launch->vectors = NULL;
}
