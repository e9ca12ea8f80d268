/* mapcheck: compares a mapping of a file, page by page, with the bytes that read returns. `mapcheck
 * FILE`, or `mapcheck FILE PAGE` where that page of the file cannot be read: there read gives EIO,
 * and a touch gives SIGBUS; nothing else does. The file is only read. */
#include "common.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int file;
static size_t length, pages;
static size_t bad = SIZE_MAX;
static int failures;

static sigjmp_buf back;
static volatile sig_atomic_t code;

static void on_bus(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    code = info->si_code;
    siglongjmp(back, 1);
}

static void check(const char *name, bool good)
{
    printf(good ? "ok %s\n" : "FAILED %s\n", name);
    failures += !good;
}

/* Whether a load from `at` causes SIGBUS. */
static bool is_bus(const volatile char *at)
{
    code = 0;
    if (!sigsetjmp(back, 1)) {
        (void)*at;
        return false;
    }
    return code == BUS_ADRERR;
}

static char *map(int prot, int flags)
{
    char *at = mmap(NULL, pages * PAGE, prot, flags, file, 0);
    if (at == MAP_FAILED)
        failed("mmap");
    return at;
}

/* Reads a page of the file; zeroes behind its end. Whether it can be read. */
static bool read_page(size_t page, char *into)
{
    memset(into, 0, PAGE);
    size_t count = length - page * PAGE < PAGE ? length - page * PAGE : PAGE;
    return pread(file, into, count, (off_t)(page * PAGE)) == (ssize_t)count;
}

static bool shows(const char *at)
{
    char page[PAGE];
    for (size_t i = 0; i < pages; i++) {
        if (i == bad)
            continue;
        if (!read_page(i, page) || memcmp(page, at + i * PAGE, PAGE)) {
            printf("page %zu differs.\n", i);
            return false;
        }
    }
    return true;
}

/* From the end, where nothing was read ahead, to the beginning. */
static bool shows_backwards(const char *at)
{
    char page[PAGE];
    for (size_t i = pages; i-- > 0;)
        if (i != bad && (!read_page(i, page) || memcmp(page, at + i * PAGE, PAGE)))
            return false;
    return true;
}

/* The first page that can be read and is not the first of all. */
static size_t a_page(void) { return bad == 1 ? 2 : 1; }

static bool writes_are_private(void)
{
    char *one = map(PROT_READ | PROT_WRITE, MAP_PRIVATE), *two = map(PROT_READ, MAP_PRIVATE);
    for (size_t i = 0; i < pages; i += 3)
        if (i != bad)
            memset(one + i * PAGE, 0x5a, PAGE);
    bool good = shows(two) && one[0] == 0x5a && one[PAGE - 1] == 0x5a;
    madvise(one, pages * PAGE, MADV_DONTNEED);
    good &= shows(one);
    munmap(one, pages * PAGE);
    munmap(two, pages * PAGE);
    return good;
}

static int status_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static bool children_are_alone(void)
{
    char *at = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    size_t page = a_page() * PAGE;
    at[page] = 1;
    pid_t child = fork();
    if (!child) {
        bool good = at[page] == 1;
        at[page] = 2, at[0] = 3;
        _exit(!(good && at[page] == 2));
    }
    char first[PAGE];
    bool good = status_of(child) == 0 && at[page] == 1 && read_page(0, first) && at[0] == first[0];
    munmap(at, pages * PAGE);
    return good;
}

static bool many_read_it(void)
{
    pid_t children[4];
    for (int i = 0; i < 4; i++)
        if (!(children[i] = fork())) {
            const char *at = map(PROT_READ, i & 1 ? MAP_PRIVATE : MAP_SHARED);
            _exit(!(i & 2 ? shows(at) : shows_backwards(at)));
        }
    bool good = true;
    for (int i = 0; i < 4; i++)
        good &= status_of(children[i]) == 0;
    return good;
}

/* Nothing of the file is in memory yet: the call that copies it must wait for each piece. */
static bool can_be_written_elsewhere(void)
{
    char *at = map(PROT_READ, MAP_PRIVATE), *copy = malloc(length);
    size_t most = bad == SIZE_MAX ? length : bad * PAGE;
    int to = open("/tmp/mapcheck", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (!copy || to < 0)
        failed("/tmp/mapcheck");
    ssize_t wrote = write(to, at, length);
    bool good = most ? wrote == (ssize_t)most : wrote == -1 && errno == EFAULT;
    good &= pread(to, copy, length, 0) == (ssize_t)most && lseek(to, 0, SEEK_CUR) == (off_t)most;
    good &= !memcmp(copy, at, most);
    /* The other way: a read goes to pages that must be brought in for the copy. */
    char *own = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    good &= pread(to, own + 1, most - 1, 0) == (ssize_t)most - 1 || most == 0;
    good &= most == 0 || (own[0] == at[0] && !memcmp(own + 1, at, most - 1));
    munmap(own, pages * PAGE), munmap(at, pages * PAGE);
    close(to), unlink("/tmp/mapcheck"), free(copy);
    return good;
}

static bool calls_reach_it(void)
{
    char *at = map(PROT_READ | PROT_WRITE, MAP_PRIVATE), page[PAGE], got[100];
    size_t last = pages - 1 == bad ? pages - 2 : pages - 1;
    int ends[2];
    if (pipe(ends))
        failed("pipe");
    bool good = write(ends[1], at + last * PAGE, 100) == 100 && read(ends[0], got, 100) == 100;
    good &= read_page(last, page) && !memcmp(got, page, 100);
    good &= write(ends[1], "here", 4) == 4 && read(ends[0], at + a_page() * PAGE, 4) == 4;
    good &= !memcmp(at + a_page() * PAGE, "here", 4);
    if (bad != SIZE_MAX)
        good &= write(ends[1], at + bad * PAGE, 100) == -1 && errno == EFAULT;
    close(ends[0]), close(ends[1]);
    munmap(at, pages * PAGE);
    return good;
}

static bool ends_where_it_ends(void)
{
    char *at = mmap(NULL, (pages + 2) * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    return at != MAP_FAILED && is_bus(at + pages * PAGE) && is_bus(at + (pages + 1) * PAGE);
}

static bool shared_is_not_written(void)
{
    char *at = map(PROT_READ, MAP_SHARED);
    bool good = shows(at) && mprotect(at, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES;
    munmap(at, pages * PAGE);
    return good;
}

static void check_bad(const char *at)
{
    char page[PAGE];
    for (int i = 0; i < 3; i++) {
        check("the bad page is SIGBUS", is_bus(at + bad * PAGE));
        errno = 0;
        check("and EIO", !read_page(bad, page) && errno == EIO);
    }
}

int main(int argc, char **argv)
{
    program_name = "mapcheck";
    if (argc < 2 || argc > 3)
        end(2, "give it a file, and perhaps the number of a page that cannot be read.");
    struct stat about;
    file = open(argv[1], O_RDONLY);
    if (file < 0 || fstat(file, &about))
        failed(argv[1]);
    length = (size_t)about.st_size;
    pages = (length + PAGE - 1) / PAGE;
    if (pages < 4 || length % PAGE == 0)
        end(2, "%s must have more than three pages, the last in part.", argv[1]);
    if (argc == 3)
        bad = (size_t)number(argv[2], 0, (long)pages - 1);
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);

    check("calls wait for pages that are not in memory", can_be_written_elsewhere());
    char *at = map(PROT_READ, MAP_PRIVATE);
    check("a mapping shows the file", shows_backwards(at));
    if (bad != SIZE_MAX)
        check_bad(at);
    check("calls reach untouched pages", calls_reach_it());
    check("writes stay private", writes_are_private());
    check("a child's pages are its own", children_are_alone());
    check("a mapping ends where the file does", ends_where_it_ends());
    check("a shared mapping cannot be written", shared_is_not_written());
    check("many read at once", many_read_it());
    check("it still shows the file", shows(at));
    return failures != 0;
}
