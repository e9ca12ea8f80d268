/* abicheck: whether each system call succeeds and fails as on Linux. One line for each case, a
 * summary at the end; exit status 1 if any failed. Words as arguments: only cases with names that
 * begin with one of them. */
#include "abi.h"

#include <dirent.h>
#include <sys/resource.h>

enum { PATIENCE_MS = 60000, REASON_BYTES = 512 };

static const struct abi_case *const groups[] = {
    file_cases, path_cases, poll_cases, map_cases, remap_cases,
    memory_file_cases, shown_cases, advice_cases, process_cases,
    signal_cases, futex_cases, time_cases, id_cases, fault_cases,
    guard_cases, group_cases, query_cases, swap_cases, other_cases, user_cases,
    event_cases, segment_cases, error_cases, watched_cases, protected_cases,
    changed_cases, reserved_cases, socket_cases, vdso_cases, hole_cases, limit_cases, setting_cases,
    duty_cases, semaphore_cases, watched_reserved_cases};

static char reason[REASON_BYTES];

const char *why(int line, const char *what, long result, int wanted_errno)
{
    int found = errno;
    if (wanted_errno)
        snprintf(reason, sizeof reason, "line %d: %s: %ld, errno %d (%s) and not %d (%s)", line,
                 what, result, found, strerror(found), wanted_errno, strerror(wanted_errno));
    else
        snprintf(reason, sizeof reason, "line %d: not true: %s (errno %d, %s)", line, what, found,
                 strerror(found));
    return reason;
}

/* The child of one case; its reason goes through the pipe. */
__attribute__((noreturn)) static void run_child(const struct abi_case *c, int out)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    setpgid(0, 0);
    umask(022);
    const char *said = c->test();
    if (said && write(out, said, strlen(said)) < 0)
        _exit(2);
    _exit(said != NULL);
}

/* Waits for a child up to a deadline; then kills it, and reports that. */
static bool wait_patiently(pid_t child, int *status)
{
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        pid_t ended = waitpid(child, status, WNOHANG);
        if (ended == child)
            return true;
        if (ended < 0)
            return false;
        sleep_ms(ms < 20 ? 1 : 5);
        ms += ms < 20 ? 0 : 4;
    }
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return false;
}

/* Runs one case and prints its result. */
static bool run_case(const struct abi_case *c)
{
    int out[2], status = 0;
    if (pipe(out))
        failed("pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child) {
        close(out[0]);
        run_child(c, out[1]);
    }
    close(out[1]);
    bool in_time = wait_patiently(child, &status);
    kill(-child, SIGKILL); /* Processes that it left behind; usually none. */
    ssize_t length = read(out[0], reason, sizeof reason - 1);
    close(out[0]);
    reason[length > 0 ? length : 0] = 0;
    if (!in_time)
        printf("FAILED %s: it did not end in time\n", c->name);
    else if (status && !reason[0])
        printf("FAILED %s: it ended with status %#x\n", c->name, status);
    else if (reason[0])
        printf("FAILED %s: %s\n", c->name, reason);
    else
        printf("ok %s\n", c->name);
    return in_time && !status && !reason[0];
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(name, argv[i], strlen(argv[i])))
            return true;
    return argc < 2;
}

/* Removes what cases left in the directory; directories that are not empty stay. */
static void clean(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (unlinkat(dirfd(dir), entry->d_name, 0))
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    if (dir)
        closedir(dir);
}

int main(int argc, char **argv)
{
    unsigned good = 0, bad = 0;
    char path[64];
    program_name = "abicheck";
    snprintf(path, sizeof path, "/tmp/abicheck.%d", (int)getpid());
    mkdir("/tmp", 01777); /* It is there on most systems. */
    if (mkdir(path, 0755) || chdir(path))
        failed(path);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const struct abi_case *c = groups[g]; c->name; c++) {
            if (!is_wanted(c->name, argc, argv))
                continue;
            if (run_case(c))
                good++;
            else
                bad++;
            clean(path);
        }
    rmdir(path);
    if (!good && !bad)
        end(2, "no case begins with `%s`.", argv[1]);
    printf("abicheck: %u ok, %u failed\n", good, bad);
    return bad != 0;
}
