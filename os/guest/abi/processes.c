/* Processes: fork, vfork, exec, exit, wait. */
#include "abi.h"

#include <sys/prctl.h>
#include <sys/resource.h>

static void exits_300(void) { _exit(300); }
static void kills_itself(void) { kill(getpid(), SIGKILL); }
static void exits_group(void) { syscall(SYS_exit_group, 7); }

static const char *exit_codes(void)
{
    int status = status_of(exits_300);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 300 % 256);
    status = status_of(kills_itself);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = status_of(exits_group);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return NULL;
}

static const char *fork_copies(void)
{
    int value = 1, status;
    pid_t self = getpid(), child = fork();
    CHECK(child >= 0);
    if (!child) {
        bool good = getppid() == self && getpid() != self && value == 1;
        value = 2;
        _exit(!good || value != 2);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && value == 1);
    return NULL;
}

/* The parent stands still until the child of vfork exits. */
static const char *vfork_waits(void)
{
    uint64_t start = now_ns();
    int status;
    pid_t child = vfork();
    if (!child) {
        sleep_ms(30);
        _exit(5);
    }
    CHECK(child > 0 && now_ns() - start >= 30000000);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    return NULL;
}

static const char *waits(void)
{
    int status;
    FAILS(ECHILD, waitpid(-1, &status, 0));
    FAILS(ECHILD, waitpid(-1, &status, WNOHANG));
    FAILS(ECHILD, waitpid(1 << 22, &status, 0));
    FAILS(EINVAL, waitpid(-1, &status, 0x100));
    pid_t child = fork();
    if (!child) {
        sleep_ms(50);
        _exit(3);
    }
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    struct rusage usage;
    CHECK(wait4(child, &status, 0, &usage) == child && WEXITSTATUS(status) == 3);
    FAILS(ECHILD, waitpid(child, &status, 0));
    return NULL;
}

static const char *wait_by_id(void)
{
    siginfo_t info;
    pid_t child = fork();
    if (!child)
        _exit(9);
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_pid == child && info.si_code == CLD_EXITED && info.si_status == 9);
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == child);
    FAILS(ECHILD, waitid(P_ALL, 0, &info, WEXITED));
    FAILS(EINVAL, waitid(P_ALL, 0, &info, 0));
    return NULL;
}

static const char *wait_any_order(void)
{
    pid_t quick, slow = fork();
    int status;
    if (!slow) {
        sleep_ms(60);
        _exit(1);
    }
    quick = fork();
    if (!quick)
        _exit(2);
    CHECK(wait(&status) == quick && WEXITSTATUS(status) == 2);
    CHECK(wait(&status) == slow && WEXITSTATUS(status) == 1);
    return NULL;
}

/* An orphan gets another parent, and lives on. */
static const char *orphans(void)
{
    int ends[2];
    char byte = 0;
    CHECK(pipe(ends) == 0);
    pid_t middle = fork();
    if (!middle) {
        pid_t self = getpid();
        if (!fork()) {
            while (getppid() == self)
                sleep_ms(1);
            _exit(write(ends[1], "o", 1) != 1);
        }
        _exit(0);
    }
    CHECK(close(ends[1]) == 0 && waitpid(middle, NULL, 0) == middle);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'o');
    return NULL;
}

static void execs_itself(void)
{
    char *argv[] = {"abicheck", "no such case", NULL}, *envp[] = {NULL};
    close(2);
    execve("/proc/self/exe", argv, envp);
}

static const char *exec_runs(void)
{
    int status = status_of(execs_itself);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    return NULL;
}

static const char *exec_refuses(void)
{
    char *argv[] = {"x", NULL}, *envp[] = {NULL};
    CHECK(make_file("f", "no program"));
    FAILS(EACCES, execve("f", argv, envp));
    CHECK(chmod("f", 0755) == 0);
    FAILS(ENOEXEC, execve("f", argv, envp));
    FAILS(ENOENT, execve("none", argv, envp));
    FAILS(EACCES, execve(".", argv, envp));
    FAILS(ENOTDIR, execve("f/x", argv, envp));
    return NULL;
}

static const char *names(void)
{
    char name[17] = "";
    CHECK(prctl(PR_SET_NAME, "a-name-that-is-too-long") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "a-name-that-is-"));
    FAILS(EINVAL, prctl(99999, 0, 0, 0, 0));
    return NULL;
}

const struct abi_case process_cases[] = {
    {"exit codes", exit_codes},
    {"fork", fork_copies},
    {"vfork", vfork_waits},
    {"wait4", waits},
    {"waitid", wait_by_id},
    {"wait for any child", wait_any_order},
    {"orphans", orphans},
    {"execve", exec_runs},
    {"execve refuses", exec_refuses},
    {"prctl PR_SET_NAME", names},
    {NULL, NULL},
};
