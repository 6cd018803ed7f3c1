/* Moves what the command prints from its pipes into the output files.
 *
 * `splice` moves bytes inside of the kernel: at every instant a byte is in the pipe or in the file, so a supervisor that is
 * killed loses none and doubles none. Its successor goes on where the file ends.
 *
 * Where a file system has no splice, and where bytes have to be dropped and counted, they take two steps that can both be
 * repeated. First they are spliced into the relay, a pipe of our own. Then they are read from there into memory that
 * both guards share. Only the supervisor writes to the relay, so FIONREAD tells a successor whether a read that was
 * announced in the shared page (`loaded`) took place. From memory the bytes are written to the files, whose size says how
 * many of them are there already. */
#include "guard.h"

#include <endian.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <termios.h>

enum {
    NOTE_BYTES = 100,        /* the line for people where the head ends */
    TURN_BYTES = 16 << 20,   /* then look at everything else: a flood must not starve the limit */
    SPACE_EVERY = 1 << 20,   /* look at the free space once for so many bytes */
    FIRST_BYTES = 64 * 1024, /* kept whatever the floor: a nearly full disk must not make every command mute */
    ORDER_BYTES = 32 * 1024, /* the most that is noted about the order of two streams */
    NAME_BYTES = 32,
    TERMINAL_BYTES = 128 << 10, /* more than the kernel holds of what was printed to a terminal */
    INPUT_BYTES = 64 << 10,
    SIZE_BYTES = 31, /* of a line in `sizes` */
};

struct stream {
    const char *name; /* of its first file */
    int index, reader, writer, file;
    bool gap;         /* bytes were dropped: the next one starts a segment of its own */
    bool closed, no_splice;
    uint64_t allowed; /* bytes until the next look at the free space */
    int64_t retry_at; /* bytes are dropped until then: the disk was full */
};

static struct stream streams[STREAMS] = {
    {.name = "output", .index = 0, .reader = -1, .writer = -1, .file = -1, .allowed = FIRST_BYTES},
    {.name = "stderr", .index = 1, .reader = -1, .writer = -1, .file = -1, .allowed = FIRST_BYTES},
};
static int relay[2] = {-1, -1};
static int order = -1;
static bool input_waits; /* the terminal takes no more input at the moment */

static struct progress *progress_of(const struct stream *s) { return &guard.page->progress[s->index]; }

/* Where in the stream the current file starts. */
static uint64_t find_start(const struct stream *s) {
    const struct progress *at = progress_of(s);
    return at->made ? at->segments[(at->made - 1) % SEGMENTS] : 0;
}

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
    return true;
}

bool has_terminal(void) { return guard.launch->tty.columns > 0; }

static bool set_size(struct size size) {
    struct winsize window = {.ws_col = (unsigned short)size.columns, .ws_row = (unsigned short)size.rows};
    bool good = ioctl(streams[0].reader, TIOCSWINSZ, &window) == 0; /* the kernel sends SIGWINCH */
    guard.page->size = size; /* last: a successor of a supervisor that dies before does it again */
    return good;
}

/* A pseudo-terminal instead of a pipe: its master is the reader, the command's side the writer. */
static bool make_terminal(struct stream *s) {
    struct termios mode;
    int locked = 0;
    s->reader = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (s->reader < 0 || ioctl(s->reader, TIOCSPTLCK, &locked) || !set_size(guard.launch->tty)) return false;
    s->writer = ioctl(s->reader, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); /* its name may be of another /dev/pts */
    s->no_splice = true; /* neither end is a pipe */
    if (s->writer < 0 || tcgetattr(s->writer, &mode)) return false;
    mode.c_iflag |= IUTF8; /* a backspace erases a whole character */
    return tcsetattr(s->writer, TCSANOW, &mode) == 0;
}

bool make_pipes(void) {
    if (has_terminal() && !make_terminal(&streams[0])) return false;
    for (int i = 0; i < guard.streams && !has_terminal(); i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC)) return false;
        streams[i].reader = ends[0], streams[i].writer = ends[1];
    }
    if (pipe2(relay, O_CLOEXEC | O_NONBLOCK)) return false;
    fcntl(relay[1], F_SETPIPE_SZ, RELAY_BYTES); /* the kernel bounds the pages of all pipes of a user */
    return true;
}

bool open_outputs(void) { return open_file(&streams[0], 0) && (guard.streams == 1 || open_file(&streams[1], 0)); }

/* For people who read the head with ordinary tools; readers know that it is no output. */
static void write_note(struct stream *s) {
    char note[NOTE_BYTES + 1];
    int n = snprintf(note, sizeof note, "\n[outlast: the bound is reached; newer output is in %s.NUMBER, where NUMBER is its first byte", s->name);
    memset(note + n, ' ', (size_t)(NOTE_BYTES - n));
    memcpy(note + NOTE_BYTES - 2, "]\n", 2);
    if (pwrite(s->file, note, NOTE_BYTES, (off_t)guard.page->terms.head) < 0) return; /* not worth losing anything for */
}

static int count_waiting(const struct stream *s) {
    int bytes = 0;
    return ioctl(s->reader, FIONREAD, &bytes) == 0 ? bytes : 0;
}

/* How many bytes the current file takes; goes on to a new one when it is full. 0 if that cannot be made. */
static uint64_t find_room(struct stream *s) {
    const struct terms *terms = &guard.page->terms;
    struct progress *at = progress_of(s);
    uint64_t start = find_start(s), size = start ? terms->segment : terms->head, *oldest = &at->segments[at->made % SEGMENTS];
    if (!s->gap && at->offset - start < size) return size - (at->offset - start);
    if (!guard.page->loaded && !count_waiting(s)) return 0; /* a file is made when there is something to put into it */
    if (!start && !s->gap) write_note(s);
    if (at->made >= SEGMENTS) {
        char name[NAME_BYTES];
        name_segment(s, *oldest, name);
        unlink(name);
    }
    if (!open_file(s, at->offset)) return 0;
    s->gap = false;
    if (!at->offset) return terms->head; /* nothing was kept yet */
    *oldest = at->offset;
    at->made++; /* last: a supervisor that dies before has made an empty file, which its successor makes again */
    return terms->segment;
}

/* How many bytes may be kept before the next look: 0 if the free space is at its floor. */
static uint64_t find_space(struct stream *s) {
    struct statvfs disk;
    if (s->retry_at && now(CLOCK_MONOTONIC) < s->retry_at) return 0;
    s->retry_at = 0;
    if (s->allowed) return s->allowed;
    if (statvfs(".", &disk)) return SPACE_EVERY;
    uint64_t floor = disk.f_blocks * disk.f_frsize / 20, free_bytes = disk.f_bavail * disk.f_frsize;
    if (guard.page->terms.floor < floor) floor = guard.page->terms.floor;
    uint64_t left = free_bytes > floor ? free_bytes - floor : 0;
    return s->allowed = left < SPACE_EVERY ? left : SPACE_EVERY;
}

static void advance(struct stream *s, uint64_t bytes) {
    progress_of(s)->offset += bytes;
    s->allowed -= bytes < s->allowed ? bytes : s->allowed;
}

static void drop_up_to(struct stream *s, uint64_t end) {
    const struct progress *all = guard.page->progress;
    progress_of(s)->offset = progress_of(s)->dropped_up_to = end;
    s->gap = true;
    if (!s->retry_at) s->retry_at = now(CLOCK_MONOTONIC) + SECOND; /* what is dropped while we wait must not put it off */
    unsigned long long out = all[0].dropped_up_to, err = all[1].dropped_up_to;
    if (guard.streams > 1) write_slot(POSITION, "{\"stdout\":%llu,\"stderr\":%llu}", out, err);
    else write_slot(POSITION, "{\"stdout\":%llu}", out);
}

/* Store what is in memory; what cannot be stored is dropped, and the stream goes on behind it. */
static void store_loaded(struct stream *s) {
    struct shared *page = guard.page;
    struct progress *at = progress_of(s);
    uint64_t first = page->loaded_at, end = first + (uint64_t)page->loaded;
    while (at->offset < end) {
        uint64_t most = end - at->offset, space = find_space(s), room = space ? find_room(s) : 0;
        if (room < most) most = room;
        if (space < most) most = space;
        ssize_t n = most ? pwrite(s->file, page->relay_buffer + (at->offset - first), most, (off_t)(at->offset - find_start(s))) : 0;
        if (n > 0) advance(s, (uint64_t)n);
        else if (n == 0 || errno != EINTR) drop_up_to(s, end);
    }
    page->loaded = 0;
}

static void announce(const struct stream *s, int bytes) {
    guard.page->loaded_at = progress_of(s)->offset;
    guard.page->loaded = bytes;
}

/* Empty the relay, and what was read from it, into the file of the stream that it belongs to. */
static void empty_relay(void) {
    struct stream *s = &streams[guard.page->relay_stream];
    int bytes = 0;
    if (ioctl(relay[0], FIONREAD, &bytes) == 0 && bytes > 0) {
        if (bytes > RELAY_BYTES) bytes = RELAY_BYTES;
        announce(s, bytes);
        if (read(relay[0], guard.page->relay_buffer, (size_t)bytes) != bytes) return; /* cannot be: only we read it */
    }
    if (guard.page->loaded) store_loaded(s);
}

/* As `move_piece`, with two copies. */
static ssize_t move_through_memory(struct stream *s) {
    guard.page->relay_stream = s->index; /* before the bytes are in the relay: a successor must know whose they are */
    ssize_t n = splice(s->reader, NULL, relay[1], NULL, RELAY_BYTES, SPLICE_F_NONBLOCK);
    if (n < 0 && errno == EIO && has_terminal()) return 0; /* no process has the terminal open any more */
    if (n < 0 && errno != EAGAIN && errno != EINTR && is_ready(s->reader, POLLIN)) { /* our end of the pipe blocks */
        n = read(s->reader, guard.page->relay_buffer, RELAY_BYTES);
        if (n > 0) announce(s, (int)n); /* not even pipes can be spliced: a supervisor that is killed here loses these bytes */
    }
    if (n > 0) empty_relay();
    return n;
}

/* As a successor: go on where the file ends. If the stream was further, bytes were dropped, or the file was truncated. */
void resume_outputs(void) {
    for (int i = 0; i < guard.streams; i++) {
        struct stream *s = &streams[i];
        struct stat found = {0};
        uint64_t start = find_start(s), head = guard.page->terms.head;
        if (!open_file(s, start) || fstat(s->file, &found)) found.st_size = 0;
        uint64_t kept = (uint64_t)found.st_size;
        if (!start && kept > head) kept = head; /* the note follows the head */
        if (progress_of(s)->offset < start + kept) progress_of(s)->offset = start + kept;
        s->gap = s->file < 0 || progress_of(s)->offset > start + kept;
    }
    empty_relay();
}

/* node makes the pipe that it shares with its siblings non-blocking and leaves it so; they would lose output to EAGAIN.
 * A terminal is input as well: a program that made it non-blocking would hang in its next read. */
static void make_blocking(struct stream *s) {
    int flags = s->writer >= 0 && !has_terminal() ? fcntl(s->writer, F_GETFL) : 0;
    if (flags > 0 && flags & O_NONBLOCK) fcntl(s->writer, F_SETFL, flags & ~O_NONBLOCK);
}

/* Move up to `most` bytes: how many, 0 at the end of the stream, -1 if there are none now. */
static ssize_t move_piece(struct stream *s, size_t most) {
    struct progress *at = progress_of(s);
    make_blocking(s);
    uint64_t space = s->no_splice ? 0 : find_space(s), room = space ? find_room(s) : 0;
    if (room < most) most = (size_t)room;
    if (space < most) most = (size_t)space;
    if (!most) return move_through_memory(s);
    off_t place = (off_t)(at->offset - find_start(s));
    ssize_t n = splice(s->reader, NULL, s->file, &place, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n >= 0) advance(s, (uint64_t)n);
    if (n >= 0 || errno == EAGAIN || errno == EINTR) return n;
    if (errno == EINVAL || errno == ENOSYS || errno == EPERM) s->no_splice = true;
    return move_through_memory(s);
}

/* Of a split task: note where one stream stopped because the other one went on. */
static void note_order(const struct stream *s) {
    struct shared *page = guard.page;
    if (guard.streams < 2) return;
    if (page->last_offset && page->last_stream != s->index && page->order_bytes < ORDER_BYTES) {
        uint64_t entry = htole64(page->last_offset | (page->last_stream ? 1ULL << 63 : 0));
        if (order < 0) order = open("order", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (order >= 0 && write(order, &entry, sizeof entry) > 0) page->order_bytes += 8; /* on a full disk readers do without */
    }
    page->last_stream = s->index;
    page->last_offset = progress_of(s)->offset;
}

/* Move up to `most` bytes of a stream. Returns whether there were any. */
static bool move_stream(struct stream *s, ssize_t most) {
    bool moved = false;
    for (ssize_t n; most > 0 && !s->closed && (n = move_piece(s, (size_t)most)) >= 0; most -= n) {
        s->closed = n == 0;
        moved |= n > 0;
    }
    if (moved) note_order(s);
    return moved;
}

void poll_outputs(struct pollfd *fds) {
    for (int i = 0; i < STREAMS; i++) {
        /* A pipe at its end is always ready, and poll would spin. The bounds are not known until the task begins. */
        bool open = i < guard.streams && !streams[i].closed && guard.page->state > STARTING;
        fds[i] = (struct pollfd){.fd = open ? streams[i].reader : -1, .events = input_waits ? POLLIN | POLLOUT : POLLIN};
    }
    bool feeds = has_terminal() && !input_waits && guard.page->state == RUNNING;
    fds[STREAMS] = (struct pollfd){.fd = feeds ? guard.stdin_read : -1, .events = POLLIN};
}

/* Move input from the named pipe to the terminal. What it does not take now stays in the pipe, and writers wait. One
 * system call takes the bytes and gives them, so a supervisor that is killed neither loses nor repeats any. */
void feed_terminal(void) {
    if (!has_terminal() || !is_ready(guard.stdin_read, POLLIN) || guard.page->state != RUNNING) return;
    ssize_t n = splice(guard.stdin_read, NULL, streams[0].reader, NULL, INPUT_BYTES, SPLICE_F_NONBLOCK);
    input_waits = n < 0 && errno == EAGAIN;
}

/* Do what the file `size` asks for, and note where in the output that was. A successor may do it again. Returns whether
 * the size changed: the screen is another one then, also if the program prints nothing. */
bool resize_terminal(void) {
    char text[16], line[SIZE_BYTES + 1];
    struct size size, *set = &guard.page->size;
    struct stat found;
    if (!has_terminal() || read_file("size", text, sizeof text) <= 0 || !parse_size(text, &size)) return false;
    if (size.columns == set->columns && size.rows == set->rows) return false;
    drain_outputs(); /* what was printed before belongs to the old size */
    unsigned long long offset = progress_of(&streams[0])->offset;
    int fd = open("sizes", O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%020llu %4dx%4d\n", offset, size.columns, size.rows);
    bool good = n == SIZE_BYTES && fd >= 0 && fstat(fd, &found) == 0;
    off_t most = (ORDER_BYTES / SIZE_BYTES - 1) * SIZE_BYTES; /* then the last line is written again and again */
    if (good && pwrite(fd, line, SIZE_BYTES, found.st_size < most ? found.st_size : most) < 0) errno = 0; /* a full disk */
    close_fd(&fd);
    set_size(size);
    return true;
}

/* Move what is there, up to a bound. Returns whether there was anything. */
bool move_outputs(void) {
    bool moved = false;
    for (int i = 0; i < guard.streams; i++) moved |= move_stream(&streams[i], TURN_BYTES);
    return moved;
}

/* Move what is in the pipes now: a child that goes on printing does not hold us up. The kernel counts only a part of what
 * a terminal holds, but a read that finds nothing waits for the rest. */
void drain_outputs(void) {
    for (int i = 0; i < guard.streams; i++)
        move_stream(&streams[i], has_terminal() ? TERMINAL_BYTES : count_waiting(&streams[i]));
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

bool outputs_are_closed(void) { return streams[0].closed && (guard.streams == 1 || streams[1].closed); }

int write_end(int stream) { return streams[stream < guard.streams ? stream : 0].writer; }
