/* The record page, the bells, and the messages to the caller: all that the guards say about a task. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

enum { PAGE = 4096, CHECK = 9, MOST_SLOT = 2432 };

static const struct {
    unsigned start, size;
} SLOTS[] = {[GUARDS] = {0, 1024}, [CODE] = {1024, 128}, [ENDING] = {1152, 448}, [POSITION] = {1600, 64}, [OUTCOME] = {1664, 2432}};

static uint32_t crc32(const char *data, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned char)data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}

/* Make the record with its space, so that a full disk cannot lose an ending. A task that waited has one already. */
bool open_record(void) {
    char page[PAGE];
    struct stat found;
    guard.record = open("record", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (guard.record < 0 || fstat(guard.record, &found)) return false;
    if (!S_ISREG(found.st_mode)) return errno = EINVAL, false;
    if (found.st_size == PAGE) return true;
    memset(page, ' ', sizeof page);
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++) page[SLOTS[i].start + SLOTS[i].size - 1] = '\n';
    int reserved = posix_fallocate(guard.record, 0, sizeof page);
    if (reserved && reserved != EOPNOTSUPP) return errno = reserved, false;
    ssize_t written = pwrite(guard.record, page, sizeof page, 0);
    if (written == sizeof page) return true;
    if (written >= 0) errno = ENOSPC;
    return false;
}

bool read_slot(int fd, enum slot slot, char *into, size_t size) {
    char text[MOST_SLOT + 1];
    ssize_t n = pread(fd, text, SLOTS[slot].size, SLOTS[slot].start);
    if (n != (ssize_t)SLOTS[slot].size) return false;
    text[n] = 0;
    char *end = strrchr(text, '}');
    size_t length = end ? (size_t)(end + 1 - text) : 0;
    if (length <= CHECK || length - CHECK >= size || strtoul(text, NULL, 16) != crc32(text + CHECK, length - CHECK)) return false;
    memcpy(into, text + CHECK, length - CHECK);
    into[length - CHECK] = 0;
    return true;
}

void write_slot(enum slot slot, const char *format, ...) {
    char line[MOST_SLOT], check[CHECK + 1];
    unsigned size = SLOTS[slot].size;
    va_list values;
    va_start(values, format);
    int n = vsnprintf(line + CHECK, size - CHECK - 1, format, values);
    va_end(values);
    if (n < 0 || (unsigned)n >= size - CHECK - 1) return; /* no value here can be so long */
    snprintf(check, sizeof check, "%08x ", crc32(line + CHECK, (size_t)n));
    memcpy(line, check, CHECK);
    memset(line + CHECK + n, ' ', size - CHECK - (unsigned)n);
    line[size - 1] = '\n';
    /* One write inside of one page whose block is there: all of it or nothing, also if this process is killed. */
    while (pwrite(guard.record, line, size, SLOTS[slot].start) < 0 && errno == EINTR) continue;
}

void write_guards(void) {
    const struct shared *page = guard.page;
    write_slot(GUARDS,
               "{\"supervisor\":[%d,%llu],\"keeper\":[%d,%llu],\"command\":[%d,%llu],\"boot\":\"%s\","
               "\"started\":%lld.%06lld,\"monotonic\":%lld.%06lld,\"recoveries\":%d,"
               "\"session\":%d,\"pidns\":%llu,\"guard\":%d}",
               page->supervisor, (unsigned long long)page->supervisor_tick, page->keeper,
               (unsigned long long)page->keeper_tick, page->command, (unsigned long long)page->command_tick, guard.boot,
               SECONDS(page->started), SECONDS(page->monotonic), page->recoveries, page->session,
               (unsigned long long)guard.pid_namespace, GUARD_VERSION);
}

void write_code(int status, int64_t cpu_us) {
    char cpu[40] = "null";
    if (cpu_us >= 0) snprintf(cpu, sizeof cpu, "%lld.%06lld", (long long)(cpu_us / 1000000), (long long)(cpu_us % 1000000));
    if (WIFSIGNALED(status)) write_slot(CODE, "{\"signal\":%d,\"cpu\":%s}", WTERMSIG(status), cpu);
    else write_slot(CODE, "{\"exit\":%d,\"cpu\":%s}", WEXITSTATUS(status), cpu);
}

/* As much of `text` as fits, as the inside of a JSON string. A byte that is no ASCII is escaped as Python decodes it. */
static void escape(const char *text, char *into, size_t size) {
    size_t at = 0;
    for (; *text && at + 7 < size; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') at += (size_t)snprintf(into + at, size - at, "\\%c", c);
        else if (c >= ' ' && c < 0x7f) into[at++] = (char)c;
        else at += (size_t)snprintf(into + at, size - at, "\\u%04x", c < 0x80 ? c : 0xdc00u + c);
    }
    into[at] = 0;
}

void write_spawn_failure(void) {
    char what[80], text[106];
    snprintf(what, sizeof what, "%s: %.60s", strerror(guard.page->spawn_errno), guard.page->spawn_what);
    escape(what, text, sizeof text);
    write_slot(CODE, "{\"spawn\":\"%s\"}", text);
}

/* --- the bell: waiters hold both named pipes open and see a hang-up, also when the supervisor is killed --- */

static const char *const BELLS[] = {"bell.0", "bell.1"};
static int bell = -1, turn;

bool make_bells(void) {
    for (int i = 0; i < 2; i++)
        if (mkfifo(BELLS[i], 0600) && errno != EEXIST) return false;
    return true;
}

static bool grip(void) {
    /* Opening a named pipe for writing fails while no process reads it, so read it for a moment. */
    int held = open(BELLS[turn], O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    bell = open(BELLS[turn], O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    close_fd(&held);
    return bell >= 0;
}

void hold_bell(void) {
    if (bell < 0) grip();
}

void ring_bell(void) {
    if (bell >= 0 && is_ready(bell, 0)) return; /* an error on the write end: no process listens */
    int old = bell;
    turn = 1 - turn;
    grip();
    close_fd(&old);
}

void release_bell(void) { close_fd(&bell); }

/* Wake those who wait for any task: their bells are in one directory, and no process holds them. */
void ring_directory(void) {
    char path[4096];
    for (int i = 0; guard.launch->ring && i < 2; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", guard.launch->ring, BELLS[i]);
        int fd = n < (int)sizeof path ? open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC) : -1;
        close_fd(&fd);
    }
}

/* Returns whether the caller is still there. */
bool tell_caller(const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    int n = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (guard.caller < 0 || n < 0) return false;
    size_t size = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (send(guard.caller, text, size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    return errno == EAGAIN || errno == ENOBUFS; /* it is there and does not read */
}
