/* Moves what the command prints from its pipes into the output files.
 *
 * `splice` moves bytes inside of the kernel: at every instant a byte is in the pipe or in the file, so a supervisor that is
 * killed loses none and doubles none. A successor finds where to go on from the names and sizes of the files.
 *
 * Where a file system has no splice, and where bytes have to be dropped and counted, they take two steps that can both be
 * repeated. First they are spliced into the relay, a pipe of our own. Then they are read from there into memory that
 * both guards share. Only the supervisor writes to the relay, so FIONREAD tells a successor whether a read that was
 * announced in the shared page (`loaded`) took place. From memory the bytes are written to the files, whose size says how
 * many of them are there already. */
#include "guard.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

enum {
    SEGMENTS = 8,              /* the tail that is kept is between 7 and 8 eighths of its half */
    NOTE_BYTES = 100,          /* the line for people where the head ends */
    PIECE_BYTES = 1 << 20,     /* one splice */
    PIECES_A_TURN = 16,        /* then look at everything else: a flood must not starve the limit */
    SPACE_EVERY = 1 << 20,     /* look at the free space once for so many bytes */
    FIRST_BYTES = 64 * 1024,   /* kept whatever the floor: a nearly full disk must not make every command mute */
    ORDER_BYTES = 32 * 1024,   /* the most that is noted about the order of two streams */
    NAME_BYTES = 32,
};

struct stream {
    const char *name;             /* of its first file */
    int index, reader, writer;
    int file;                     /* the current one, and where in the stream it starts */
    uint64_t start, offset, size; /* `offset`: how far the stream has come; `size`: what the current file takes */
    uint64_t segments[SEGMENTS];
    int count;
    bool gap;                     /* bytes were dropped: the next one starts a segment of its own */
    bool closed, no_splice;
    int64_t allowed;              /* bytes until the next look at the free space */
    int64_t dropping_since;
};

static struct stream streams[STREAMS] = {
    {.name = "output", .index = 0, .reader = -1, .writer = -1, .file = -1, .allowed = FIRST_BYTES},
    {.name = "stderr", .index = 1, .reader = -1, .writer = -1, .file = -1, .allowed = FIRST_BYTES},
};
static int relay[2] = {-1, -1};
static int order = -1;

/* --- files --- */

static void name_segment(const struct stream *s, uint64_t start, char *into) {
    if (start) snprintf(into, NAME_BYTES, "%s.%020llu", s->name, (unsigned long long)start);
    else snprintf(into, NAME_BYTES, "%s", s->name);
}

static bool open_file(struct stream *s, uint64_t start) {
    char name[NAME_BYTES];
    struct stat found;
    name_segment(s, start, name);
    /* Without O_NONBLOCK a named pipe that the command put there would block us for ever. */
    int fd = open(name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &found) || !S_ISREG(found.st_mode)) {
        close_fd(&fd);
        return false;
    }
    close_fd(&s->file);
    s->file = fd;
    s->start = start;
    s->size = start ? guard.page->terms.segment : guard.page->terms.head;
    return true;
}

bool make_pipes(void) {
    for (int i = 0; i < guard.streams; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC)) return false;
        streams[i].reader = ends[0], streams[i].writer = ends[1];
    }
    if (pipe2(relay, O_CLOEXEC | O_NONBLOCK)) return false;
    fcntl(relay[1], F_SETPIPE_SZ, RELAY_BYTES); /* the kernel bounds the pages of all pipes of a user */
    return true;
}

bool open_outputs(void) {
    for (int i = 0; i < guard.streams; i++)
        if (!open_file(&streams[i], 0)) return false;
    return true;
}

/* The bounds are known now, and nothing was printed yet. */
void apply_bounds(void) {
    for (int i = 0; i < guard.streams; i++) streams[i].size = guard.page->terms.head;
}

static void find_segments(struct stream *s) {
    DIR *here = opendir(".");
    size_t length = strlen(s->name);
    s->count = 0;
    for (struct dirent *entry; here && (entry = readdir(here));) {
        const char *digits = entry->d_name + length + 1;
        if (strncmp(entry->d_name, s->name, length) || entry->d_name[length] != '.' || strspn(digits, "0123456789") != 20 || digits[20])
            continue;
        uint64_t start = strtoull(digits, NULL, 10);
        if (s->count == SEGMENTS && start < s->segments[0]) continue;
        if (s->count == SEGMENTS) memmove(s->segments, s->segments + 1, (size_t)--s->count * sizeof *s->segments);
        int at = s->count++;
        for (; at > 0 && s->segments[at - 1] > start; at--) s->segments[at] = s->segments[at - 1];
        s->segments[at] = start;
    }
    if (here) closedir(here);
}

/* For people who read the head with ordinary tools; readers know that it is no output. */
static void write_note(struct stream *s) {
    char note[NOTE_BYTES + 1];
    int n = snprintf(note, sizeof note, "\n[outlast: the bound is reached; newer output is in %s.NUMBER, where NUMBER is its first byte", s->name);
    memset(note + n, ' ', (size_t)(NOTE_BYTES - n));
    memcpy(note + NOTE_BYTES - 2, "]\n", 2);
    if (pwrite(s->file, note, NOTE_BYTES, (off_t)guard.page->terms.head) < 0) return; /* not worth losing anything for */
}

/* How many bytes the current file takes; goes on to a new one when it is full. 0 if that cannot be made. */
static uint64_t find_room(struct stream *s) {
    if (!s->gap && s->offset - s->start < s->size) return s->size - (s->offset - s->start);
    if (!s->start && !s->gap) write_note(s);
    while (s->count >= SEGMENTS) {
        char name[NAME_BYTES];
        name_segment(s, s->segments[0], name);
        unlink(name);
        memmove(s->segments, s->segments + 1, (size_t)--s->count * sizeof *s->segments);
    }
    /* Nothing was kept yet: a segment that starts at 0 has the name of the head. */
    if (!open_file(s, s->offset)) return 0;
    if (s->offset) s->segments[s->count++] = s->offset;
    s->gap = false;
    return s->size;
}

static bool has_space(struct stream *s) {
    struct statvfs disk;
    if (s->dropping_since) {
        if (now(CLOCK_MONOTONIC) - s->dropping_since < SECOND) return false;
    } else if (s->allowed > 0)
        return true;
    if (statvfs(".", &disk)) return true;
    uint64_t unit = disk.f_frsize, floor = disk.f_blocks * unit / 20;
    if (guard.page->terms.floor < floor) floor = guard.page->terms.floor;
    int64_t left = (int64_t)(disk.f_bavail * unit) - (int64_t)floor;
    s->allowed = left < SPACE_EVERY ? left : SPACE_EVERY;
    s->dropping_since = s->allowed > 0 ? 0 : now(CLOCK_MONOTONIC);
    return s->allowed > 0;
}

/* --- through memory --- */

static void drop_up_to(struct stream *s, uint64_t end) {
    struct shared *page = guard.page;
    page->dropped_up_to[s->index] = end;
    s->offset = end;
    s->gap = true;
    unsigned long long out = page->dropped_up_to[0], err = page->dropped_up_to[1];
    if (guard.streams > 1) write_slot(POSITION, "{\"stdout\":%llu,\"stderr\":%llu}", out, err);
    else write_slot(POSITION, "{\"stdout\":%llu}", out);
}

/* Store what is in memory; what cannot be stored is dropped, and the stream goes on behind it. */
static void store_loaded(struct stream *s) {
    struct shared *page = guard.page;
    uint64_t at = page->loaded_at, end = at + (uint64_t)page->loaded;
    while (s->offset < end) {
        uint64_t fits = has_space(s) ? find_room(s) : 0, most = end - s->offset;
        if (fits < most) most = fits;
        ssize_t n = most ? pwrite(s->file, page->relay_buffer + (s->offset - at), most, (off_t)(s->offset - s->start)) : -1;
        if (n > 0) s->offset += (uint64_t)n, s->allowed -= n;
        else if (n == 0 || !most || errno != EINTR) {
            if (!s->dropping_since) s->dropping_since = now(CLOCK_MONOTONIC);
            drop_up_to(s, end);
        }
    }
    page->loaded = 0;
}

static void announce(const struct stream *s, int bytes) {
    guard.page->loaded_at = s->offset;
    guard.page->loaded = bytes;
}

/* Where not even pipes can be spliced: a supervisor that is killed between `read` and `announce` loses these bytes. */
static ssize_t read_directly(struct stream *s) {
    if (!is_ready(s->reader, POLLIN)) return errno = EAGAIN, -1; /* our end of the pipe blocks */
    ssize_t n = read(s->reader, guard.page->relay_buffer, RELAY_BYTES);
    if (n > 0) announce(s, (int)n);
    return n;
}

/* Empty the relay, and what was read from it, into the file of the stream that it belongs to. */
static void empty_relay(void) {
    struct stream *s = &streams[guard.page->relay_stream];
    int bytes = 0;
    if (ioctl(relay[0], FIONREAD, &bytes) == 0 && bytes > 0) {
        announce(s, bytes);
        if (read(relay[0], guard.page->relay_buffer, (size_t)bytes) != bytes) return; /* cannot be: only we read it */
    }
    if (guard.page->loaded) store_loaded(s);
}

/* As `move_piece`, with two copies. */
static ssize_t move_through_memory(struct stream *s, size_t most) {
    guard.page->relay_stream = s->index; /* before the bytes are in the relay: a successor must know whose they are */
    ssize_t n = splice(s->reader, NULL, relay[1], NULL, most < RELAY_BYTES ? most : RELAY_BYTES, SPLICE_F_NONBLOCK);
    if (n < 0 && errno != EAGAIN && errno != EINTR) n = read_directly(s);
    if (n > 0) empty_relay();
    return n;
}

/* As a successor: go on where the files end, or where the stream stood when bytes were last dropped. */
void resume_outputs(void) {
    for (int i = 0; i < guard.streams; i++) {
        struct stream *s = &streams[i];
        struct stat found = {0};
        find_segments(s);
        uint64_t last = s->count ? s->segments[s->count - 1] : 0, head = guard.page->terms.head;
        if (!open_file(s, last) || fstat(s->file, &found)) found.st_size = 0;
        s->start = last;
        uint64_t kept = (uint64_t)found.st_size, dropped = guard.page->dropped_up_to[i];
        if (!last && kept > head) kept = head; /* the note follows the head */
        s->offset = dropped > last + kept ? dropped : last + kept;
        s->gap = dropped > last + kept || s->file < 0;
    }
    empty_relay();
}

/* --- moving --- */

/* node makes the pipe that it shares with its siblings non-blocking and leaves it so; they would lose output to EAGAIN. */
static void make_blocking(struct stream *s) {
    int flags = s->writer >= 0 ? fcntl(s->writer, F_GETFL) : 0;
    if (flags > 0 && flags & O_NONBLOCK) fcntl(s->writer, F_SETFL, flags & ~O_NONBLOCK);
}

/* A segment is made when there is something to put into it. */
static bool is_full_and_idle(const struct stream *s) {
    int waiting = 0;
    return s->offset - s->start >= s->size && ioctl(s->reader, FIONREAD, &waiting) == 0 && !waiting;
}

/* Move up to `most` bytes: how many, 0 at the end of the stream, -1 if there are none now. */
static ssize_t move_piece(struct stream *s, size_t most) {
    make_blocking(s);
    uint64_t fits = s->no_splice || !has_space(s) || is_full_and_idle(s) ? 0 : find_room(s);
    if (!fits) return move_through_memory(s, most);
    size_t piece = fits < most ? (size_t)fits : most;
    if (s->allowed < (int64_t)piece) piece = (size_t)s->allowed;
    off_t place = (off_t)(s->offset - s->start);
    ssize_t n = splice(s->reader, NULL, s->file, &place, piece, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return -1;
        if (errno == EINVAL || errno == ENOSYS || errno == EPERM) s->no_splice = true;
        else s->dropping_since = now(CLOCK_MONOTONIC);
        return move_through_memory(s, most);
    }
    s->offset += (uint64_t)n;
    s->allowed -= n;
    return n;
}

/* Of a split task: note where one stream stopped because the other one went on. */
static void note_order(const struct stream *s) {
    struct shared *page = guard.page;
    struct stat found;
    if (guard.streams < 2) return;
    if (page->last_offset && page->last_stream != s->index) {
        uint64_t entry = page->last_offset | (page->last_stream ? 1ULL << 63 : 0);
        unsigned char bytes[8];
        for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(entry >> (8 * i));
        if (order < 0) order = open("order", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (order >= 0 && fstat(order, &found) == 0 && S_ISREG(found.st_mode) && found.st_size < ORDER_BYTES &&
            write(order, bytes, sizeof bytes) < 0)
            close_fd(&order); /* a full disk: readers do without */
    }
    page->last_stream = s->index;
    page->last_offset = s->offset;
}

static bool move_stream(struct stream *s) {
    bool moved = false;
    for (int i = 0; i < PIECES_A_TURN && !s->closed; i++) {
        ssize_t n = move_piece(s, PIECE_BYTES);
        if (n < 0) break;
        s->closed = n == 0;
        moved |= n > 0;
    }
    if (moved) note_order(s);
    return moved;
}

void poll_outputs(struct pollfd *fds) {
    for (int i = 0; i < STREAMS; i++) {
        /* A pipe at its end is always ready, and poll would spin. */
        bool open = i < guard.streams && !streams[i].closed;
        fds[i] = (struct pollfd){.fd = open ? streams[i].reader : -1, .events = POLLIN};
    }
}

/* Move what is there, up to a bound. Returns whether there was anything. */
bool move_outputs(void) {
    bool moved = false;
    for (int i = 0; i < guard.streams; i++) moved |= !streams[i].closed && move_stream(&streams[i]);
    return moved;
}

/* Move exactly what is in the pipes now: a child that goes on printing does not hold us up. */
void drain_outputs(void) {
    for (int i = 0; i < guard.streams; i++) {
        struct stream *s = &streams[i];
        int left = 0;
        bool moved = false;
        if (ioctl(s->reader, FIONREAD, &left)) left = 0;
        for (ssize_t n; left > 0 && (n = move_piece(s, (size_t)left)) > 0; left -= (int)n) moved = true;
        if (moved) note_order(s);
    }
}

/* The command ended: from now on the end of a pipe means that no process prints any more. */
void close_write_ends(void) {
    for (int i = 0; i < guard.streams; i++) close_fd(&streams[i].writer);
}

/* In a keeper that was forked by a supervisor: only a supervisor has files open. */
void close_output_files(void) {
    for (int i = 0; i < guard.streams; i++) close_fd(&streams[i].file);
    close_fd(&order);
}

bool outputs_are_closed(void) {
    for (int i = 0; i < guard.streams; i++)
        if (!streams[i].closed) return false;
    return true;
}

int write_end(int stream) { return streams[stream < guard.streams ? stream : 0].writer; }
