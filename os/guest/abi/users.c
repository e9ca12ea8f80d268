/* Users, groups and capabilities: what a process that is not root may do. */
#include "abi.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

enum { USER = 65534 };

/* From now on the process is not root. */
static bool become_user(void)
{
    return setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 &&
           setresuid(USER, USER, USER) == 0;
}

static const char *a_user_stays_one(void)
{
    uid_t r, e, s;
    CHECK(geteuid() == 0 && become_user());
    CHECK(getuid() == USER && geteuid() == USER && getgid() == USER && getegid() == USER);
    CHECK(getresuid(&r, &e, &s) == 0 && r == USER && e == USER && s == USER);
    CHECK(getgroups(0, NULL) == 0);
    FAILS(EPERM, setuid(0));
    FAILS(EPERM, setresuid(-1, 0, -1));
    FAILS(EPERM, setreuid(0, -1));
    FAILS(EPERM, setgid(0));
    FAILS(EPERM, setgroups(0, NULL));
    CHECK(setuid(USER) == 0 && setresuid(-1, -1, -1) == 0);
    FAILS(EINVAL, setuid(-1));
    return NULL;
}

static const char *root_lends_its_rights(void)
{
    CHECK(seteuid(USER) == 0 && geteuid() == USER && getuid() == 0);
    FAILS(EPERM, setgroups(0, NULL));
    CHECK(seteuid(0) == 0 && geteuid() == 0 && setgroups(0, NULL) == 0);
    CHECK(setreuid(USER, 0) == 0 && getuid() == USER && geteuid() == 0);
    return NULL;
}

static const char *rights_to_files(void)
{
    CHECK(make_file("secret", "text") && chmod("secret", 0600) == 0);
    CHECK(mkdir("closed", 0700) == 0 && make_file("closed/in", "text"));
    CHECK(mkdir("sticky", 01777) == 0 && chmod("sticky", 01777) == 0 &&
          make_file("sticky/roots", "text"));
    CHECK(make_file("shown", "text") && chmod("shown", 0444) == 0);
    CHECK(become_user());
    FAILS(EACCES, open("secret", O_RDONLY));
    FAILS(EACCES, open("shown", O_WRONLY));
    FAILS(EACCES, open("closed/in", O_RDONLY));
    FAILS(EACCES, open("new", O_CREAT | O_WRONLY, 0600));
    FAILS(EACCES, unlink("shown"));
    FAILS(EACCES, mkdir("more", 0700));
    FAILS(EACCES, chdir("closed"));
    FAILS(EACCES, access("shown", W_OK));
    FAILS(EACCES, truncate("shown", 0));
    FAILS(EPERM, chmod("shown", 0666));
    FAILS(EPERM, chown("shown", USER, USER));
    FAILS(EPERM, unlink("sticky/roots"));
    int fd = open("shown", O_RDONLY);
    CHECK(fd >= 0 && access("shown", R_OK) == 0);
    FAILS(EACCES, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    fd = open("sticky/own", O_CREAT | O_RDWR, 0600);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == USER && st.st_gid == USER);
    CHECK(unlink("sticky/own") == 0);
    return NULL;
}

static const char *signals_to_others(void)
{
    pid_t parent = getppid();
    CHECK(kill(parent, 0) == 0 && become_user());
    FAILS(EPERM, kill(parent, 0));
    FAILS(EPERM, kill(1, SIGTERM));
    CHECK(kill(getpid(), 0) == 0);
    return NULL;
}

static const char *memory_of_others(void)
{
    char byte = 0;
    pid_t parent = getppid();
    struct iovec own = {&byte, 1}, other = {&byte, 1};
    CHECK(process_vm_readv(parent, &own, 1, &other, 1, 0) == 1 && become_user());
    FAILS(EPERM, process_vm_readv(parent, &own, 1, &other, 1, 0));
    FAILS(EPERM, process_vm_writev(parent, &own, 1, &other, 1, 0));
    return NULL;
}

static const char *limits_of_a_user(void)
{
    struct rlimit a = {PAGE, 2 * PAGE}, none = {0, 0};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &a) == 0);
    char *p = pages(4);
    CHECK(p != MAP_FAILED && mlock(p, 4 * PAGE) == 0 && munlock(p, 4 * PAGE) == 0);
    CHECK(become_user());
    FAILS(EPERM, setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){PAGE, 3 * PAGE}));
    CHECK(mlock(p, PAGE) == 0 && mlock(p, PAGE) == 0);
    FAILS(ENOMEM, mlock(p, 2 * PAGE));
    FAILS(EAGAIN, mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0));
    FAILS(ENOMEM, mlockall(MCL_CURRENT));
    CHECK(munlock(p, PAGE) == 0 && setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    FAILS(EPERM, mlock(p, PAGE));
    FAILS(EPERM, mlockall(MCL_CURRENT));
    FAILS(EPERM, mlockall(MCL_FUTURE));
    CHECK(munlock(p, PAGE) == 0 && munlockall() == 0);
    return NULL;
}

static const char *capabilities(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &head, sets) == 0 && sets[0].effective & 1 << CAP_IPC_LOCK);
    sets[0].effective &= ~(1U << CAP_SETUID);
    CHECK(syscall(SYS_capset, &head, sets) == 0);
    FAILS(EPERM, setuid(USER));
    sets[0].effective |= 1U << CAP_SETUID;
    CHECK(syscall(SYS_capset, &head, sets) == 0 && setuid(USER) == 0);
    FAILS(EPERM, syscall(SYS_capset, &head, sets));
    head.version = 1;
    FAILS(EINVAL, syscall(SYS_capget, &head, sets));
    CHECK(head.version == _LINUX_CAPABILITY_VERSION_3);
    return NULL;
}

const struct abi_case user_cases[] = {
    {"user_stays_one", a_user_stays_one},
    {"user_rights_lent", root_lends_its_rights},
    {"user_files", rights_to_files},
    {"user_signals", signals_to_others},
    {"user_memory", memory_of_others},
    {"user_limits", limits_of_a_user},
    {"user_capabilities", capabilities},
    {NULL, NULL}};
