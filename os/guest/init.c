/* /init of the initramfs, for both kernels. It mounts what programs expect (on Linux with
 * disk=/dev/vda also that disk), applies settings, turns swap on, runs the program, and powers the
 * machine off.
 *
 * The host leaves files of strings, each ended by a zero byte, so that no byte has another meaning:
 *
 *     /init.argv      the program and its arguments; without it, a shell
 *     /init.settings  PATH=VALUE: files to write first, such as /proc/sys/vm/swappiness=10
 *     /init.swaps     DEVICE=BYTES: devices to swap to
 *
 * Unknown words KEY=VALUE of the kernel's command line are in the environment: thp=64K=always,
 * settle=3. Init's lines begin with `[init]`; the last of them, `[init] exit STATUS`, gives the
 * program's exit status, or 128 plus the signal that killed it. */
#include "common.h"

#include <dirent.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

/* The KiB of a size that has a setting, as in hugepages-64kB; 0 for another word. */
static size_t setting_kib(const char *word, const char **rest)
{
    char *end_of_number;
    unsigned long value = strtoul(word, &end_of_number, 10);
    if (end_of_number == word || (*end_of_number != 'K' && *end_of_number != 'M'))
        return 0;
    *rest = end_of_number + 1;
    return *end_of_number == 'M' ? value * 1024 : value;
}

static void mount_at(const char *what, const char *where)
{
    mkdir(where, 0755); /* It may be there already. */
    /* Both kernels may have mounted it already: EBUSY. */
    if (mount(what, where, what, 0, NULL) && errno != EBUSY)
        printf("[init] %s is not mounted: %s.\n", where, strerror(errno));
}

/* Control groups, with limits on memory for those that are made. */
static void mount_groups(void)
{
    mount_at("cgroup2", "/sys/fs/cgroup");
    int fd = open("/sys/fs/cgroup/cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "+memory", 7) != 7)
        printf("[init] groups have no limits: %s.\n", strerror(errno));
    close(fd);
}

/* A console where the kernel gave none: descriptors 0 to 2. */
static void open_console(void)
{
    while (fcntl(2, F_GETFD) < 0)
        if (open("/dev/console", O_RDWR) < 0)
            return;
}

/* Applies one setting like 64K=always. */
static void apply(const char *setting)
{
    const char *rest;
    size_t kib = setting_kib(setting, &rest);
    if (!kib || *rest != '=')
        printf("[init] thp: `%s` is not of the form 64K=always.\n", setting);
    else if (!set_thp(kib, rest + 1))
        printf("[init] thp: %s: %s.\n", setting, strerror(errno));
}

static void apply_all(const char *settings)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", settings);
    char *place;
    for (char *word = strtok_r(copy, ",", &place); word; word = strtok_r(NULL, ",", &place))
        apply(word);
}

/* The word in brackets of a file like `always [madvise] never`. */
static void print_setting(const char *name, const char *path)
{
    char text[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    char *from = length > 0 ? strchr(text, '[') : NULL;
    char *to = from ? strchr(from, ']') : NULL;
    if (to) {
        *to = 0;
        printf(" %s=%s", name, from + 1);
    }
}

static void print_settings(void)
{
    printf("[init] thp:");
    print_setting("all", THP_DIR "/enabled");
    for (size_t kib = 8; kib <= 2048; kib *= 2) {
        char path[128], name[32];
        snprintf(path, sizeof path, THP_DIR "/hugepages-%zukB/enabled", kib);
        snprintf(name, sizeof name, kib < 1024 ? "%zuK" : "%zuM", kib < 1024 ? kib : kib / 1024);
        print_setting(name, path);
    }
    putchar('\n');
}

/* Loads the drivers in /modules, in the order of their names 0, 1, ..., each with the arguments in
 * the file beside it if there is one. Quire's kernel has its own. */
static void load_modules(void)
{
    for (int number = 0;; number++) {
        char path[32], words[128] = "";
        snprintf(path, sizeof path, "/modules/%d.args", number);
        int args = open(path, O_RDONLY | O_CLOEXEC);
        if (args >= 0) {
            if (read(args, words, sizeof words - 1) < 0)
                printf("[init] %s: %s.\n", path, strerror(errno));
            close(args);
        }
        snprintf(path, sizeof path, "/modules/%d", number);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return;
        if (syscall(SYS_finit_module, fd, words, 0) && errno != EEXIST)
            printf("[init] module %d: %s.\n", number, strerror(errno));
        close(fd);
    }
}

/* Links the disk's entries into the root, but for names that are there: Quire's kernel does that
 * itself. */
static void show_disk(const char *device)
{
    static const char where[] = "/disk";
    mkdir(where, 0755);
    /* A driver may need a moment to find it. */
    for (int tries = 0; mount(device, where, "ext4", MS_RDONLY, NULL); tries++) {
        if (tries == 100) {
            printf("[init] %s is not mounted: %s.\n", device, strerror(errno));
            return;
        }
        usleep(20000);
    }
    DIR *dir = opendir(where);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char to[300], from[300];
        struct stat data;
        snprintf(to, sizeof to, "/%s", entry->d_name);
        snprintf(from, sizeof from, "%s/%s", where, entry->d_name);
        if (lstat(to, &data) && symlink(from, to))
            printf("[init] %s is not shown: %s.\n", to, strerror(errno));
    }
    if (dir)
        closedir(dir);
}

/* Waits as many seconds as the word settle=3 says: a kernel may still be busy after boot, and a
 * measurement meanwhile has only a part of the CPU. */
static void settle(void)
{
    const char *seconds = getenv("settle");
    if (seconds)
        sleep((unsigned)number(seconds, 0, 60));
    unsetenv("settle");
}

/* The control group that the program runs in when it has settings. */
#define GROUP "/sys/fs/cgroup/run"

/* The exit status where a setting or a swap device fails: the program does not run, as it would run
 * in another machine than the one that was asked for. */
#define NOT_SET 126

/* The strings of a file that the host left, each ended by a zero byte, then NULL; NULL if there is
 * no such file. The file is removed. */
static char **strings(const char *path)
{
    struct stat data;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &data))
        return NULL;
    size_t bytes = (size_t)data.st_size, count = 0;
    char *text = malloc(bytes + 1);
    if (!text || read(fd, text, bytes) != (ssize_t)bytes)
        failed(path);
    close(fd);
    unlink(path);
    for (size_t at = 0; at < bytes; at++)
        count += !text[at];
    char **all = calloc(count + 1, sizeof *all);
    if (!all)
        failed(path);
    for (size_t at = 0, number = 0; number < count; at += strlen(text + at) + 1)
        all[number++] = text + at;
    return all;
}

/* Cuts a string like PATH=VALUE in two; the value. */
static char *cut(char *string)
{
    char *value = strchr(string, '=');
    if (!value)
        end(1, "`%s` is not of the form PATH=VALUE.", string);
    *value = 0;
    return value + 1;
}

/* Writes the settings; false if one was refused. */
static bool set_files(char **settings)
{
    for (; settings && *settings; settings++) {
        char *value = cut(*settings);
        if (!strncmp(*settings, GROUP "/", sizeof GROUP))
            mkdir(GROUP, 0755); /* An earlier setting may have made it. */
        if (!put_word(*settings, value)) {
            printf("[init] %s cannot be set to %s: %s.\n", *settings, value, strerror(errno));
            return false;
        }
    }
    return true;
}

/* Makes the first `bytes` of a device a swap area, as mkswap does, and swaps to it. */
static bool swap_to(const char *device, size_t bytes)
{
    static struct {
        char boot[1024];
        uint32_t version, last_page, bad_pages;
        char rest[PAGE - 1024 - 12 - 10], magic[10];
    } header;
    char path[64], size[32];
    /* On Linux compressed memory has no size at first. */
    snprintf(path, sizeof path, "/sys/block%s/disksize", strrchr(device, '/'));
    snprintf(size, sizeof size, "%zu", bytes);
    if (!put_word(path, size) && errno != ENOENT)
        return false;
    header.version = 1;
    header.last_page = (uint32_t)(bytes / PAGE - 1);
    memcpy(header.magic, "SWAPSPACE2", sizeof header.magic);
    int fd = open(device, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = pwrite(fd, &header, sizeof header, 0) == sizeof header && !fsync(fd);
    close(fd);
    return good && !swapon(device, 0);
}

/* Swaps to all devices; false if one fails. */
static bool set_swaps(char **swaps)
{
    for (; swaps && *swaps; swaps++) {
        char *bytes = cut(*swaps);
        if (!swap_to(*swaps, strtoul(bytes, NULL, 10))) {
            printf("[init] %s is no swap device: %s.\n", *swaps, strerror(errno));
            return false;
        }
    }
    return true;
}

/* Runs the program from its path or from a directory in PATH, within its control group if there is
 * one; does not return. */
static void execute(char **argv)
{
    if (!access(GROUP, F_OK) && !put_word(GROUP "/cgroup.procs", "0"))
        printf("[init] %s: %s.\n", GROUP, strerror(errno));
    else
        execvp(argv[0], argv);
    printf("[init] %s cannot be run: %s.\n", argv[0], strerror(errno));
    fflush(stdout);
    _exit(127);
}

/* Runs the program and waits for it; reaps orphans meanwhile. */
static int run(char **argv)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        printf("[init] fork: %s.\n", strerror(errno));
        return 126;
    }
    if (!child) {
        setsid();
        execute(argv);
    }
    for (;;) {
        int status;
        pid_t ended = wait(&status);
        if (ended < 0 && errno != EINTR)
            return 126;
        if (ended == child)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

int main(void)
{
    static char *shell[] = {"/bin/sh", NULL};
    program_name = "init";
    mkdir("/dev", 0755);
    mount_at("devtmpfs", "/dev");
    open_console();
    mount_at("proc", "/proc");
    mount_at("sysfs", "/sys");
    mount_groups();
    load_modules();
    const char *device = getenv("disk");
    if (device)
        show_disk(device);
    unsetenv("disk");
    setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin", 1);
    setenv("HOME", "/", 0);
    const char *settings = getenv("thp");
    if (settings)
        apply_all(settings);
    unsetenv("thp");
    print_settings();
    char **argv = strings("/init.argv");
    bool is_set = set_files(strings("/init.settings")) && set_swaps(strings("/init.swaps"));
    settle();
    int status = is_set ? run(argv && *argv ? argv : shell) : NOT_SET;
    printf("[init] exit %d\n", status);
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    /* Without the right to power off, PID 1 must not end: that would be a panic. */
    for (;;)
        pause();
}
