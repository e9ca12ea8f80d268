/* A swap area for a program that measures swap: finds a device, makes it one, and gives it back.
 *
 * The area is the device's beginning, and no longer than asked for. All of it is written once
 * before it is used: a disk in RAM gets its memory at the first write, which is no part of swap.
 */
#ifndef SWAP_H
#define SWAP_H

#include "common.h"

#include <sys/stat.h>
#include <sys/swap.h>

#define CHUNK MIB
#define SECTOR ((size_t)512)
#define MAX_PAGE ((size_t)64 << 10)
#define MAGIC "SWAPSPACE2"
#define MAGIC_BYTES (sizeof MAGIC - 1)

/* There is one at a time. */
static struct {
    char path[64];
    size_t bytes; /* of the area, header included */
    bool is_on;
    pid_t owner;  /* children leave it alone */
} swap_area;

static const char *const swap_devices[] = {"/dev/vdb", "/dev/ram0", "/dev/zram0"};

/* Ends the program where there is no swap at all. */
static inline void need_swap(void)
{
    if (swapon("", 0) && errno == ENOSYS)
        end(UNSUPPORTED, "not supported here: swapon: %s.", strerror(errno));
}

/* The directory of a device of compressed memory: /sys/block/zram0; false for other devices. */
static inline bool zram_file(const char *name, char *path, size_t bytes)
{
    const char *device = strrchr(swap_area.path, '/');
    if (!device || strncmp(device, "/zram", 5))
        return false;
    snprintf(path, bytes, "/sys/block%s/%s", device, name);
    return true;
}

static inline bool is_zram(void)
{
    char path[128];
    return zram_file("disksize", path, sizeof path);
}

/* Sets a file of a zram device; nothing happens for other devices, and where a kernel has no such
 * file: the device has the size then that it was given at boot. */
static inline void set_zram(const char *name, const char *word)
{
    char path[128];
    if (zram_file(name, path, sizeof path) && !put_word(path, word) && errno != ENOENT)
        failed(path);
}

/* Whether the device has no data to lose: only zeros at its start, or a swap area. A compressed one
 * that has no size yet is as good. */
static inline bool is_free_device(const char *path)
{
    static char start[MAX_PAGE];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, start, sizeof start);
    close(fd);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (length >= (ssize_t)page && !memcmp(start + page - MAGIC_BYTES, MAGIC, MAGIC_BYTES))
        return true;
    for (ssize_t i = 0; i < length; i++)
        if (start[i])
            return false;
    return length >= 0;
}

/* Decides on the device: `named`, or the first that is there and has nothing to lose. */
static inline void pick_device(const char *named)
{
    for (size_t i = 0; !named && i < sizeof swap_devices / sizeof *swap_devices; i++)
        if (is_free_device(swap_devices[i]))
            named = swap_devices[i];
    if (!named)
        end(UNSUPPORTED, "not supported here: no empty /dev/vdb, /dev/ram0 or /dev/zram0; name a "
                         "device by --device.");
    if (strlen(named) >= sizeof swap_area.path)
        end(2, "`%s` is too long for a device.", named);
    strcpy(swap_area.path, named);
}

/* Opens the device for its own use, past the page cache where the kernel can do that. */
static inline int open_device(void)
{
    int fd = open(swap_area.path, O_RDWR | O_EXCL | O_DIRECT | O_CLOEXEC);
    if (fd < 0 && errno == EINVAL)
        fd = open(swap_area.path, O_RDWR | O_EXCL | O_CLOEXEC);
    if (fd < 0)
        failed(swap_area.path);
    return fd;
}

/* Writes to the device, or reads from it; the number of bytes, or -1. */
static inline ssize_t transfer_at(int fd, char *bytes, size_t count, size_t at, bool writes)
{
    return writes ? pwrite(fd, bytes, count, (off_t)at) : pread(fd, bytes, count, (off_t)at);
}

/* Nanoseconds for writing (or reading) the first `bytes` of the device from (to) `chunk`. */
static inline uint64_t transfer(int fd, char *chunk, size_t bytes, bool writes)
{
    uint64_t start = now_ns();
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t count = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (transfer_at(fd, chunk, count, at, writes) != (ssize_t)count)
            failed(swap_area.path);
    }
    if (writes && fsync(fd))
        failed("fsync");
    return now_ns() - start;
}

/* Writes the header of version 1, as mkswap does: a page with its version, its last page, and the
 * magic word at its end. `page` is of MAX_PAGE bytes and aligned to them. */
static inline void write_header(int fd, char *page)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (page_bytes > MAX_PAGE)
        end(UNSUPPORTED, "not supported here: pages of %zu bytes.", page_bytes);
    uint32_t info[3] = {1, (uint32_t)(swap_area.bytes / page_bytes - 1), 0};
    memset(page, 0, page_bytes);
    memcpy(page + 1024, info, sizeof info); /* Before it there is room for a boot sector. */
    memcpy(page + page_bytes - MAGIC_BYTES, MAGIC, MAGIC_BYTES);
    if (pwrite(fd, page, page_bytes, 0) != (ssize_t)page_bytes || fsync(fd))
        failed(swap_area.path);
}

static inline void swap_on(void)
{
    if (swapon(swap_area.path, 0))
        failed("swapon");
    swap_area.is_on = true;
}

static inline void swap_off(void)
{
    if (swapoff(swap_area.path))
        failed("swapoff");
    swap_area.is_on = false;
}

/* However the program ends, no swap stays on. */
static void give_swap_back(void)
{
    if (swap_area.owner != getpid())
        return;
    if (swap_area.is_on)
        swapoff(swap_area.path);
    char path[128];
    if (zram_file("reset", path, sizeof path))
        put_word(path, "1");
}

/* Opens a device with room for at least `least` and at most `most` bytes, and decides how many
 * of them are the area. */
static inline int open_swap(const char *named, size_t least, size_t most)
{
    need_swap();
    pick_device(named);
    swap_area.owner = getpid();
    atexit(give_swap_back);
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%zu", most);
    set_zram("reset", "1");
    set_zram("disksize", bytes);
    int fd = open_device();
    off_t there = lseek(fd, 0, SEEK_END);
    if (there < (off_t)least)
        end(there < 0 ? 1 : UNSUPPORTED, "not supported here: %s has %lld bytes, needed are %zu.",
            swap_area.path, (long long)there, least);
    swap_area.bytes = ((size_t)there < most ? (size_t)there : most) & ~(MAX_PAGE - 1);
    return fd;
}

#endif
