/* Control groups (cgroup v2) with the controller of memory. They need the right to make groups, and
 * a root that passes that controller on; without, they are skipped. Those that page out, with a
 * disk, are among the cases of swap. */
#include "groups.h"

#include <dirent.h>

static const char *the_tree_is_made_and_removed(void)
{
    GROUP(one);
    char path[GROUP_BYTES];
    struct stat about;
    CHECK(!stat(one, &about) && S_ISDIR(about.st_mode) && (about.st_mode & 0777) == 0755);
    FAILS(EEXIST, mkdir(one, 0755));
    FAILS(EEXIST, mkdir(group_file(path, one, "cgroup.procs"), 0755));
    FAILS(ENOTDIR, rmdir(path));
    FAILS(EPERM, unlink(path));
    FAILS(EINVAL, mkdir(group_file(path, one, "a\nb"), 0755));
    FAILS(ENOENT, rmdir(group_file(path, one, "none")));
    CHECK(!mkdir(group_file(path, one, "in"), 0700));
    CHECK(group_has(one, "cgroup.stat", "nr_descendants 1\n"));
    FAILS(EBUSY, rmdir(one));
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    int procs = openat(dir, "cgroup.procs", O_RDWR);
    CHECK(dir >= 0 && procs >= 0 && !rmdir(path));
    char byte;
    FAILS(ENODEV, read(procs, &byte, 1));
    FAILS(ENODEV, write(procs, "0", 1));
    FAILS(ENOENT, openat(dir, "cgroup.procs", O_RDONLY));
    FAILS(ENOENT, mkdirat(dir, "more", 0755));
    CHECK(!close(procs) && !close(dir));
    CHECK(group_has(one, "cgroup.stat", "nr_descendants 0\n"));
    CHECK(group_has(one, "cgroup.type", "domain\n"));
    CHECK(!rmdir(one));
    FAILS(ENOENT, rmdir(one));
    return NULL;
}

static const char *a_directory_lists_files_and_groups(void)
{
    GROUP(one);
    char path[GROUP_BYTES];
    CHECK(!mkdir(group_file(path, one, "in"), 0755));
    int wanted = 0, other = 0;
    DIR *dir = opendir(one);
    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        bool is_group = !strcmp(entry->d_name, "in");
        bool is_file = !strcmp(entry->d_name, "memory.max");
        wanted += is_group && entry->d_type == DT_DIR;
        wanted += is_file && entry->d_type == DT_REG;
        other += is_group || is_file;
    }
    CHECK(!closedir(dir) && wanted == 2 && other == 2);
    CHECK(!rmdir(path) && !rmdir(one));
    return NULL;
}

static const char *processes_move_and_children_stay(void)
{
    GROUP(one);
    char text[GROUP_BYTES], own[16];
    CHECK(group_has(one, "cgroup.events", "populated 0\n"));
    pid_t child = fork();
    if (!child) {
        bool good = group_write(one, "cgroup.procs", "0") && is_in(one);
        pid_t grandchild = fork();
        if (!grandchild)
            _exit(!is_in(one));
        int status = -1;
        good = good && waitpid(grandchild, &status, 0) == grandchild && !status;
        raise(SIGSTOP);
        _exit(!good);
    }
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    snprintf(own, sizeof own, "%d\n", (int)child);
    CHECK(group_read(one, "cgroup.procs", text) && !strcmp(text, own));
    CHECK(group_has(one, "cgroup.events", "populated 1\n"));
    FAILS(EBUSY, rmdir(one));
    CHECK(group_write(group_root(), "cgroup.procs", own));
    CHECK(group_read(one, "cgroup.procs", text) && !text[0]);
    CHECK(group_write(one, "cgroup.procs", own));
    kill(child, SIGCONT);
    siginfo_t info;
    CHECK(!waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
    CHECK(group_has(one, "cgroup.events", "populated 0\n"));
    CHECK(!rmdir(one)); /* A process that has ended keeps no group. */
    CHECK(waitpid(child, &status, 0) == child && !status);
    return NULL;
}

static const char *a_missing_process_does_not_move(void)
{
    GROUP(one);
    char path[GROUP_BYTES];
    int procs = open(group_file(path, one, "cgroup.procs"), O_WRONLY);
    CHECK(procs >= 0);
    FAILS(ESRCH, write(procs, "4194303", 7));
    FAILS(EINVAL, write(procs, "-1", 2));
    FAILS(EINVAL, write(procs, "x", 1));
    FAILS(EINVAL, write(procs, "1 2", 3));
    CHECK(!close(procs) && !rmdir(one));
    return NULL;
}

static const char *with_controlled_children_has_no_processes(void)
{
    GROUP(one);
    char in[GROUP_BYTES], path[GROUP_BYTES];
    CHECK(group_has(one, "cgroup.controllers", "memory"));
    CHECK(!mkdir(group_file(in, one, "in"), 0755));
    int control = open(group_file(path, in, "cgroup.subtree_control"), O_WRONLY);
    CHECK(control >= 0 && access(group_file(path, in, "memory.max"), F_OK));
    FAILS(ENOENT, write(control, "+memory", 7));
    FAILS(EINVAL, write(control, "+nonsense", 9));
    FAILS(EINVAL, write(control, "memory", 6));
    CHECK(!close(control) && group_write(one, "cgroup.subtree_control", "+memory"));
    CHECK(group_has(in, "cgroup.controllers", "memory") && !access(path, F_OK));
    pid_t child = fork();
    if (!child) {
        bool good = !group_write(one, "cgroup.procs", "0") && errno == EBUSY;
        good = good && group_write(in, "cgroup.procs", "0");
        /* A group with a process cannot pass the controller on. */
        good = good && !group_write(in, "cgroup.subtree_control", "+memory") && errno == EBUSY;
        _exit(!good);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(group_write(in, "memory.max", "1M"));
    CHECK(group_write(in, "cgroup.subtree_control", "+memory"));
    CHECK(!group_write(one, "cgroup.subtree_control", "-memory") && errno == EBUSY);
    CHECK(group_write(in, "cgroup.subtree_control", "-memory"));
    CHECK(group_write(one, "cgroup.subtree_control", "-memory") && access(path, F_OK));
    CHECK(group_write(one, "cgroup.subtree_control", "+memory"));
    CHECK(group_has(in, "memory.max", "max\n"));
    CHECK(!rmdir(in) && !rmdir(one));
    return NULL;
}

static const char *limits_are_numbers(void)
{
    GROUP(one);
    char path[GROUP_BYTES];
    CHECK(access(group_file(path, group_root(), "memory.max"), F_OK));
    CHECK(group_has(one, "memory.max", "max\n"));
    static const char *const good[][2] = {{"1048576", "1048576\n"}, {"3M\n", "3145728\n"},
                                          {"5k", "4096\n"}, {"0x2000", "8192\n"},
                                          {" 1g ", "1073741824\n"}, {"max", "max\n"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!group_write(one, "memory.max", good[i][0]) ||
            !group_has(one, "memory.max", good[i][1]))
            return why(__LINE__, good[i][0], 0, 0);
    static const char *const bad[] = {"x", "1KB", "-1", "1.5M", "maximum", "1 M"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (group_write(one, "memory.max", bad[i]) || errno != EINVAL)
            return why(__LINE__, bad[i], 0, 0);
    CHECK(!group_write(one, "memory.current", "1") && group_number(one, "memory.current", "") == 0);
    CHECK(group_number(one, "memory.events", "max ") == 0);
    CHECK(group_number(one, "memory.events", "oom_kill ") == 0);
    CHECK(group_number(one, "memory.stat", "anon ") == 0);
    CHECK(!rmdir(one));
    return NULL;
}

/* Whether memory.stat shows it, sooner or later: Linux updates it now and then. */
static bool anon_falls_below(const char *group, long bytes)
{
    for (int i = 0; i < 200 && group_number(group, "memory.stat", "anon ") >= bytes; i++)
        sleep_ms(50);
    return group_number(group, "memory.stat", "anon ") < bytes;
}

static const char *memory_is_reported(void)
{
    GROUP(one);
    pid_t child = fork();
    if (!child) {
        bool good = group_write(one, "cgroup.procs", "0");
        char *all = pages(REGION);
        for (size_t page = 0; page < REGION; page++)
            all[page * PAGE] = 1;
        good = good && group_number(one, "memory.current", "") >= (long)(REGION * PAGE);
        munmap(all, REGION * PAGE);
        _exit(!good || !anon_falls_below(one, REGION * PAGE));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(anon_falls_below(one, 1) && !rmdir(one));
    return NULL;
}

/* Ends a child by too much memory in a group of 4 MiB, while a child outside, with as much memory,
 * lives on. Returns the exit status of the first. */
static int over_limit(const char *group, bool in_a_call)
{
    int status = -1;
    pid_t child = fork();
    if (!child) {
        group_write(group, "cgroup.procs", "0");
        char *all = pages(4 * LIMIT_PAGES);
        int zero = open("/dev/zero", O_RDONLY);
        for (size_t page = 0; page < 4 * LIMIT_PAGES; page++)
            if (!in_a_call)
                all[page * PAGE] = 1;
            else if (read(zero, all + page * PAGE, PAGE) != PAGE)
                break;
        _exit(0);
    }
    return waitpid(child, &status, 0) == child ? status : -1;
}

static const char *a_process_over_the_limit_ends_alone(void)
{
    GROUP(one);
    group_write(one, "memory.swap.max", "0"); /* Where there is such a file. */
    if (number_in("/proc/meminfo", "SwapTotal:") > 0 && group_number(one, "memory.swap.max", ""))
        return rmdir(one) ? "rmdir" : NULL;
    CHECK(group_write(one, "memory.max", LIMIT_WORD));
    char *beside = pages(4 * LIMIT_PAGES);
    for (size_t page = 0; page < 4 * LIMIT_PAGES; page++)
        *(size_t *)(beside + page * PAGE) = page + 1;
    for (int in_a_call = 0; in_a_call < 2; in_a_call++) {
        int status = over_limit(one, in_a_call);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(group_number(one, "memory.events", "oom_kill ") == in_a_call + 1);
        CHECK(group_number(one, "memory.events", "oom ") > in_a_call);
        CHECK(group_number(one, "memory.events", "max ") > in_a_call);
    }
    for (size_t page = 0; page < 4 * LIMIT_PAGES; page++)
        CHECK(*(size_t *)(beside + page * PAGE) == page + 1);
    CHECK(!rmdir(one));
    return NULL;
}

static const char *a_limit_holds_for_groups_within(void)
{
    GROUP(one);
    char in[GROUP_BYTES];
    group_write(one, "memory.swap.max", "0");
    if (number_in("/proc/meminfo", "SwapTotal:") > 0 && group_number(one, "memory.swap.max", ""))
        return rmdir(one) ? "rmdir" : NULL;
    CHECK(!mkdir(group_file(in, one, "in"), 0755) && group_write(one, "memory.max", LIMIT_WORD));
    int status = over_limit(in, false);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(group_number(one, "memory.events", "oom_kill ") == 1);
    CHECK(!rmdir(in) && !rmdir(one));
    return NULL;
}

static const char *a_lower_limit_ends_processes_over_it(void)
{
    GROUP(one);
    group_write(one, "memory.swap.max", "0");
    if (number_in("/proc/meminfo", "SwapTotal:") > 0 && group_number(one, "memory.swap.max", ""))
        return rmdir(one) ? "rmdir" : NULL;
    int done[2];
    CHECK(!pipe(done));
    pid_t child = fork();
    if (!child) {
        group_write(one, "cgroup.procs", "0");
        char *all = pages(2 * LIMIT_PAGES);
        for (size_t page = 0; page < 2 * LIMIT_PAGES; page++)
            all[page * PAGE] = 1;
        if (write(done[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    char byte;
    int status = -1;
    CHECK(!close(done[1]));
    CHECK(read(done[0], &byte, 1) == 1 && group_write(one, "memory.max", LIMIT_WORD));
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(group_number(one, "memory.events", "oom_kill ") == 1);
    CHECK(!rmdir(one));
    return NULL;
}

static const char *all_of_a_group_are_killed(void)
{
    GROUP(one);
    CHECK(!group_write(one, "cgroup.kill", "2") && errno == ERANGE);
    pid_t children[3];
    for (size_t i = 0; i < 3; i++) {
        char own[16];
        children[i] = fork();
        if (!children[i])
            for (;;)
                pause();
        snprintf(own, sizeof own, "%d", (int)children[i]);
        CHECK(i == 2 || group_write(one, "cgroup.procs", own));
    }
    CHECK(group_write(one, "cgroup.kill", "1"));
    for (size_t i = 0; i < 2; i++) {
        int status = -1;
        CHECK(waitpid(children[i], &status, 0) == children[i] && WTERMSIG(status) == SIGKILL);
    }
    CHECK(!kill(children[2], 0) && !kill(children[2], SIGKILL));
    CHECK(waitpid(children[2], NULL, 0) == children[2] && !rmdir(one));
    return NULL;
}

const struct abi_case group_cases[] = {
    {"group_the_tree_is_made_and_removed", the_tree_is_made_and_removed},
    {"group_a_directory_lists_files_and_groups", a_directory_lists_files_and_groups},
    {"group_processes_move_and_children_stay", processes_move_and_children_stay},
    {"group_a_missing_process_does_not_move", a_missing_process_does_not_move},
    {"group_with_controlled_children_has_no_processes", with_controlled_children_has_no_processes},
    {"group_limits_are_numbers", limits_are_numbers},
    {"group_memory_is_reported", memory_is_reported},
    {"group_a_process_over_the_limit_ends_alone", a_process_over_the_limit_ends_alone},
    {"group_a_limit_holds_for_groups_within", a_limit_holds_for_groups_within},
    {"group_a_lower_limit_ends_processes_over_it", a_lower_limit_ends_processes_over_it},
    {"group_all_of_a_group_are_killed", all_of_a_group_are_killed},
    {NULL, NULL},
};
