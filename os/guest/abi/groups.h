/* Making control groups, and reading their files. */
#ifndef GROUPS_H
#define GROUPS_H

#include "abi.h"

#include <sys/vfs.h>

enum { GROUP_BYTES = 256, REGION = 512, LIMIT_PAGES = 1024, CGROUP2 = 0x63677270 };

/* LIMIT_PAGES, as a limit is written. */
#define LIMIT_WORD "4M"

/* Leaves the case where no group with a limit can be made; else makes one with the path `name`. */
#define GROUP(name) \
    char name[GROUP_BYTES]; \
    if (!group_make(name)) \
        return NULL

static inline const char *group_root(void)
{
    return "/sys/fs/cgroup";
}

/* The path of a file of a group. */
static inline const char *group_file(char path[GROUP_BYTES], const char *group, const char *name)
{
    if (snprintf(path, GROUP_BYTES, "%s/%s", group, name) >= GROUP_BYTES)
        failed("the path of a group");
    return path;
}

/* Writes to a file of a group in one call. */
static inline bool group_write(const char *group, const char *name, const char *text)
{
    char path[GROUP_BYTES];
    int fd = open(group_file(path, group, name), O_WRONLY);
    if (fd < 0)
        return false;
    bool good = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int error = errno;
    close(fd);
    errno = error;
    return good;
}

/* The first bytes of a file of a group, as a string. */
static inline bool group_read(const char *group, const char *name, char text[GROUP_BYTES])
{
    char path[GROUP_BYTES];
    int fd = open(group_file(path, group, name), O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, GROUP_BYTES - 1);
    text[length > 0 ? length : 0] = 0;
    if (fd >= 0)
        close(fd);
    return length >= 0;
}

/* Whether a file of a group has this text in it. */
static inline bool group_has(const char *group, const char *name, const char *wanted)
{
    char text[GROUP_BYTES];
    return group_read(group, name, text) && strstr(text, wanted);
}

/* The number behind `name` in a file of lines; -1 if there is none. */
static inline long number_in(const char *path, const char *name)
{
    char line[256];
    long number = -1;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            number = strtol(line + strlen(name), NULL, 10);
    if (file)
        fclose(file);
    return number;
}

static inline long group_number(const char *group, const char *file, const char *name)
{
    char path[GROUP_BYTES];
    return number_in(group_file(path, group, file), name);
}

/* Whether the caller is in the group. */
static inline bool is_in(const char *group)
{
    char text[GROUP_BYTES];
    const char *name = strrchr(group, '/');
    if (!group_read("/proc/self", "cgroup", text) || !strchr(text, '\n'))
        return false;
    char *line = strstr(text, "0::");
    if (!line)
        return false;
    *strchr(line, '\n') = 0;
    size_t length = strlen(line), own = strlen(name);
    return length >= own && !strcmp(line + length - own, name);
}

/* Makes a group with a limit below the root, if this system and the caller's rights allow that. It
 * mounts nothing and enables no controller: that is left to the owner of the system. */
static inline bool group_make(char path[GROUP_BYTES])
{
    static int count;
    struct statfs about;
    const char *root = group_root();
    if (statfs(root, &about) || about.f_type != CGROUP2 ||
        !group_has(root, "cgroup.subtree_control", "memory"))
        return false;
    snprintf(path, GROUP_BYTES, "%s/abicheck.%d.%d", root, (int)getpid(), count++);
    return !mkdir(path, 0755);
}

#endif
