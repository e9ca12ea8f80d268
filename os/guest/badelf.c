/* badelf: malformed programs, and the errors of execve for them. The kernel lives on in any case;
 * where Linux promises an error, it must be that one. A file that Linux would kill after the point
 * of no return may also be refused. */
#include "common.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The words of argv[0] by which this program knows that it is a copy that was started. */
#define COPY "badelf-copy"

static const char *path = "/tmp/badelf";
static unsigned char *good;
static size_t good_bytes;

/* The exit status of a child that could not exec: 100 plus a small number for the error. */
static const struct { int error, status; } answers[] = {
    {ENOEXEC, 100}, {ENOMEM, 101}, {EINVAL, 102}, {EACCES, 103}, {EIO, 104}, {EFAULT, 105},
    {ENOENT, 106}, {ETXTBSY, 107},
};

struct scene {
    const char *name;
    void (*spoil)(unsigned char *bytes, size_t *length);
    int error; /* the expected error; 0: any error, or death by a signal */
};

static Elf64_Ehdr *head(unsigned char *bytes) { return (Elf64_Ehdr *)bytes; }

static Elf64_Phdr *first_load(unsigned char *bytes)
{
    Elf64_Phdr *part = (Elf64_Phdr *)(bytes + head(bytes)->e_phoff);
    while (part->p_type != PT_LOAD)
        part++;
    return part;
}

static void empty(unsigned char *b, size_t *n) { (void)b, *n = 0; }
static void one_byte(unsigned char *b, size_t *n) { (void)b, *n = 1; }
static void half_header(unsigned char *b, size_t *n) { (void)b, *n = 32; }
static void only_header(unsigned char *b, size_t *n) { (void)b, *n = sizeof(Elf64_Ehdr); }
static void no_magic(unsigned char *b, size_t *n) { (void)n, b[1] = 'F'; }
static void text(unsigned char *b, size_t *n) { *n = 6, memcpy(b, "hello\n", 6); }
static void other_isa(unsigned char *b, size_t *n)
{
    (void)n, head(b)->e_machine = head(b)->e_machine == EM_X86_64 ? EM_AARCH64 : EM_X86_64;
}
static void relocatable(unsigned char *b, size_t *n) { (void)n, head(b)->e_type = ET_REL; }
static void core_file(unsigned char *b, size_t *n) { (void)n, head(b)->e_type = ET_CORE; }
static void no_parts(unsigned char *b, size_t *n) { (void)n, head(b)->e_phnum = 0; }
static void many_parts(unsigned char *b, size_t *n) { (void)n, head(b)->e_phnum = 0xfffe; }
static void odd_parts(unsigned char *b, size_t *n) { (void)n, head(b)->e_phentsize = 55; }
static void parts_outside(unsigned char *b, size_t *n) { head(b)->e_phoff = *n + 4096; }
static void parts_wrap(unsigned char *b, size_t *n) { (void)n, head(b)->e_phoff = ~0ul - 63; }
static void size_outside(unsigned char *b, size_t *n) { (void)n, first_load(b)->p_filesz = 1ul << 46; }
static void size_wraps(unsigned char *b, size_t *n)
{
    (void)n, first_load(b)->p_memsz = ~0ul, first_load(b)->p_filesz = ~0ul;
}
static void more_in_file(unsigned char *b, size_t *n)
{
    (void)n, first_load(b)->p_filesz = first_load(b)->p_memsz + 4096;
}
static void huge_memory(unsigned char *b, size_t *n) { (void)n, first_load(b)->p_memsz = 1ul << 50; }
static void kernel_address(unsigned char *b, size_t *n)
{
    (void)n, first_load(b)->p_vaddr = 0xffffffff80000000;
}
static void odd_address(unsigned char *b, size_t *n) { (void)n, first_load(b)->p_vaddr += 1; }
static void offset_wraps(unsigned char *b, size_t *n) { (void)n, first_load(b)->p_offset = ~0xffful; }
static void overlap(unsigned char *b, size_t *n)
{
    (void)n;
    Elf64_Phdr *one = first_load(b);
    one[1].p_vaddr = one->p_vaddr + (one[1].p_offset - one->p_offset) % PAGE;
    one[1].p_type = PT_LOAD;
}
static void entry_nowhere(unsigned char *b, size_t *n) { (void)n, head(b)->e_entry = 8; }
static void entry_in_kernel(unsigned char *b, size_t *n) { (void)n, head(b)->e_entry = ~0xffful; }
static void truncated(unsigned char *b, size_t *n) { (void)b, *n = 4096; }
static void script_without_interpreter(unsigned char *b, size_t *n)
{
    *n = 10, memcpy(b, "#!/no/one\n", 10);
}
static void script_without_name(unsigned char *b, size_t *n) { *n = 3, memcpy(b, "#!\n", 3); }
static void zeros(unsigned char *b, size_t *n) { memset(b, 0, *n); }

static const struct scene scenes[] = {
    {"an empty file", empty, ENOEXEC},
    {"one byte", one_byte, ENOEXEC},
    {"half a header", half_header, ENOEXEC},
    {"a header alone", only_header, 0},
    {"no magic number", no_magic, ENOEXEC},
    {"text", text, ENOEXEC},
    {"zeros", zeros, ENOEXEC},
    {"another ISA", other_isa, ENOEXEC},
    {"a relocatable file", relocatable, ENOEXEC},
    {"a core file", core_file, ENOEXEC},
    {"no program headers", no_parts, ENOEXEC},
    {"too many program headers", many_parts, 0},
    {"program headers of another size", odd_parts, ENOEXEC},
    {"program headers behind the end", parts_outside, 0},
    {"program headers that wrap", parts_wrap, 0},
    {"a part behind the end", size_outside, 0},
    {"a part that wraps", size_wraps, 0},
    {"more in the file than in memory", more_in_file, 0},
    {"more memory than there are addresses", huge_memory, 0},
    {"a kernel's address", kernel_address, 0},
    {"an address off its page", odd_address, 0},
    {"an offset that wraps", offset_wraps, 0},
    {"parts that overlap", overlap, 0},
    {"an entry where nothing is", entry_nowhere, 0},
    {"an entry in the kernel", entry_in_kernel, 0},
    {"a file cut off", truncated, 0},
    {"a script with a missing interpreter", script_without_interpreter, ENOENT},
    {"a script without a name", script_without_name, ENOEXEC},
};

static void read_self(void)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat data;
    if (fd < 0 || fstat(fd, &data))
        failed("reading this program");
    good_bytes = (size_t)data.st_size;
    good = malloc(good_bytes);
    if (!good)
        failed("malloc");
    for (size_t at = 0; at < good_bytes;) {
        ssize_t count = read(fd, good + at, good_bytes - at);
        if (count <= 0)
            failed("reading this program");
        at += (size_t)count;
    }
    close(fd);
}

static void write_file(const unsigned char *bytes, size_t length)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (fd < 0)
        failed("open");
    for (size_t at = 0; at < length;) {
        ssize_t count = write(fd, bytes + at, length - at);
        if (count <= 0)
            failed("write");
        at += (size_t)count;
    }
    close(fd);
}

/* The status of a child that execs the file. */
static int execute(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child) {
        execl(path, COPY, NULL);
        for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
            if (answers[i].error == errno)
                _exit(answers[i].status);
        _exit(99);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        failed("wait");
    return status;
}

static bool is_right(const struct scene *scene, int status)
{
    if (WIFSIGNALED(status))
        return !scene->error;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (answers[i].status == WEXITSTATUS(status))
            return !scene->error || scene->error == answers[i].error;
    /* A harmless file may also run. */
    return !scene->error && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    if (argc && !strcmp(argv[0], COPY))
        return 0;
    program_name = "badelf";
    if (argc > 1)
        end(2, "usage: badelf");
    char own[64];
    snprintf(own, sizeof own, "/tmp/badelf.%d", (int)getpid());
    path = own;
    read_self();
    write_file(good, good_bytes);
    if (execute())
        end(1, "a good copy of this program does not run.");
    size_t bad = 0, count = sizeof scenes / sizeof *scenes;
    for (size_t i = 0; i < count; i++) {
        unsigned char *copy = malloc(good_bytes);
        size_t length = good_bytes;
        if (!copy)
            failed("malloc");
        memcpy(copy, good, good_bytes);
        scenes[i].spoil(copy, &length);
        write_file(copy, length);
        free(copy);
        int status = execute();
        bool right = is_right(&scenes[i], status);
        bad += !right;
        if (right)
            printf("ok %s\n", scenes[i].name);
        else
            printf("FAILED %s: status %#x\n", scenes[i].name, status);
    }
    unlink(path);
    printf("badelf: %zu ok, %zu failed\n", count - bad, bad);
    return bad != 0;
}
