/* The record page, the bells and the messages to the caller: how the guards report about a task. */
#include "guard.h"

#include <stdarg.h>
#include <sys/socket.h>

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

/* Make the record with its space, so that a full disk cannot lose an ending. A task that waited in a queue has one already. */
bool open_record(void) {
    char page[PAGE];
    struct stat found;
    guard.record = open("record", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (guard.record < 0 || fstat(guard.record, &found)) return false;
    if (!S_ISREG(found.st_mode)) return errno = EINVAL, false;
    if (found.st_size == PAGE) return true;
    memset(page, ' ', sizeof page);
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++) page[SLOTS[i].start + SLOTS[i].size - 1] = '\n';
    ssize_t written = pwrite(guard.record, page, sizeof page, 0);
    if (written == sizeof page) return true;
    if (written >= 0) errno = ENOSPC;
    return false;
}

void write_slot(enum slot slot, const char *format, ...) {
    char line[MOST_SLOT], check[CHECK + 1];
    unsigned size = SLOTS[slot].size;
    va_list values;
    va_start(values, format);
    int n = vsnprintf(line + CHECK, size - CHECK - 1, format, values);
    va_end(values);
    if (n < 0 || (unsigned)n >= size - CHECK - 1) return; /* cannot happen: every value is bounded */
    snprintf(check, sizeof check, "%08x ", crc32(line + CHECK, (size_t)n));
    memcpy(line, check, CHECK);
    memset(line + CHECK + n, ' ', size - CHECK - (unsigned)n);
    line[size - 1] = '\n';
    /* One write inside of one page whose block is there: all of it or nothing, also if this process is killed. */
    for (int tries = 0; tries < 3 && pwrite(guard.record, line, size, SLOTS[slot].start) != (ssize_t)size; tries++) continue;
}

void write_guards(void) {
    const struct shared *page = guard.page;
    write_slot(GUARDS,
               "{\"supervisor\":[%d,%llu],\"keeper\":[%d,%llu],\"command\":[%d,%llu],\"boot\":\"%s\","
               "\"started\":%lld.%06lld,\"monotonic\":%lld.%06lld,\"recoveries\":%d,"
               "\"pidns\":%llu,\"guard\":%d}",
               page->supervisor, (unsigned long long)page->supervisor_tick, page->keeper,
               (unsigned long long)page->keeper_tick, page->command, (unsigned long long)page->command_tick, guard.boot,
               SECONDS(page->started), SECONDS(page->monotonic), page->recoveries,
               (unsigned long long)guard.pid_namespace, GUARD_VERSION);
}

void write_code(int status, int64_t cpu_us) {
    char cpu[40] = "null";
    if (cpu_us >= 0) snprintf(cpu, sizeof cpu, "%lld.%06lld", (long long)(cpu_us / 1000000), (long long)(cpu_us % 1000000));
    if (WIFSIGNALED(status)) write_slot(CODE, "{\"signal\":%d,\"cpu\":%s}", WTERMSIG(status), cpu);
    else write_slot(CODE, "{\"exit\":%d,\"cpu\":%s}", WEXITSTATUS(status), cpu);
}

void write_spawn_failure(void) {
    char why[80];
    snprintf(why, sizeof why, "%s: %.60s", strerror(guard.page->spawn_errno), guard.page->spawn_what);
    for (char *at = why; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\') *at = '?'; /* so that it is JSON as it is */
    write_slot(CODE, "{\"spawn\":\"%s\"}", why);
}

/* --- the bells: the supervisor holds the write end of one of two named pipes. Waiters hold both read ends. To ring, the
 * supervisor opens the other one and closes the first: waiters see POLLHUP, also if the supervisor is killed. --- */

static const char *const BELLS[] = {"bell.0", "bell.1"};
static int bell = -1, turn;

bool make_bells(void) {
    for (int i = 0; i < 2; i++)
        if (mkfifo(BELLS[i], 0600) && errno != EEXIST) return false;
    return true;
}

void open_bell(void) {
    /* Opening a named pipe for writing fails while no process reads it, so read it for a moment. */
    int held = open(BELLS[turn], O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    bell = open(BELLS[turn], O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    close_fd(&held);
}

void ring_bell(void) {
    if (bell >= 0 && is_ready(bell, 0)) return; /* POLLERR on the write end: no process listens */
    int old = bell;
    turn = 1 - turn;
    open_bell();
    close_fd(&old);
}

void release_bell(void) { close_fd(&bell); }

/* Wake the processes that wait for any task: they hold the bells of one directory open. */
void ring_directory(void) {
    for (int i = 0; guard.launch->bells && i < 2; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", guard.launch->bells, BELLS[i]);
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        close_fd(&fd);
    }
}

/* Nothing depends on the caller: one that is gone, or does not read, misses the message. */
void send_to_caller(const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (guard.caller >= 0 && send(guard.caller, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}
