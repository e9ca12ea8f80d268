/* Sockets: AF_UNIX by path, abstract name and pair; TCP and UDP of this machine. */
#include "abi.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un unix_at(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path + (*name == '@'), name + (*name == '@'));
    return at;
}

static socklen_t unix_bytes(const char *name)
{
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@');
}

static struct sockaddr_in inet_at(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

/* A listener at a free port; its address. */
static int listener(struct sockaddr_in *at)
{
    socklen_t bytes = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *at = inet_at(0);
    if (fd < 0 || bind(fd, (void *)at, sizeof *at) || listen(fd, 5)
        || getsockname(fd, (void *)at, &bytes))
        return -1;
    return fd;
}

static int events_of(int fd)
{
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    return poll(&p, 1, 0) < 0 ? -1 : p.revents;
}

static const char *stream_at(const char *name)
{
    struct sockaddr_un at = unix_at(name), who;
    socklen_t length = unix_bytes(name), bytes = sizeof who;
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    char text[8];
    CHECK(server >= 0 && client >= 0);
    FAILS(EINVAL, listen(server, 1));
    CHECK(bind(server, (void *)&at, length) == 0);
    FAILS(EADDRINUSE, bind(client, (void *)&at, length));
    FAILS(ECONNREFUSED, connect(client, (void *)&at, length));
    CHECK(listen(server, 1) == 0);
    FAILS(EINVAL, accept4(server, NULL, NULL, 1));
    CHECK(connect(client, (void *)&at, length) == 0);
    FAILS(EISCONN, connect(client, (void *)&at, length));
    CHECK(events_of(server) == POLLIN);
    int other = accept4(server, (void *)&who, &bytes, SOCK_NONBLOCK);
    CHECK(other >= 0 && bytes == sizeof who.sun_family && who.sun_family == AF_UNIX);
    FAILS(EAGAIN, read(other, text, 8));
    bytes = sizeof who;
    CHECK(getpeername(client, (void *)&who, &bytes) == 0 && bytes == length);
    CHECK(!memcmp(&who, &at, length));
    CHECK(send(client, "hello", 5, 0) == 5 && recv(other, text, 8, MSG_PEEK) == 5);
    CHECK(recv(other, text, 8, 0) == 5 && !memcmp(text, "hello", 5));
    CHECK(close(client) == 0 && read(other, text, 8) == 0);
    FAILS(EPIPE, send(other, "x", 1, MSG_NOSIGNAL));
    CHECK(close(server) == 0);
    return NULL;
}

static const char *paths(void)
{
    const char *failed = stream_at("socket");
    if (failed)
        return failed;
    struct stat about;
    CHECK(stat("socket", &about) == 0 && S_ISSOCK(about.st_mode));
    FAILS(ENXIO, open("socket", O_RDWR));
    struct sockaddr_un at = unix_at("socket");
    int client = socket(AF_UNIX, SOCK_STREAM, 0), packets = socket(AF_UNIX, SOCK_DGRAM, 0);
    FAILS(ECONNREFUSED, connect(client, (void *)&at, unix_bytes("socket")));
    CHECK(unlink("socket") == 0);
    FAILS(ENOENT, connect(client, (void *)&at, unix_bytes("socket")));
    CHECK(make_file("file", "x"));
    at = unix_at("file");
    FAILS(ECONNREFUSED, connect(client, (void *)&at, unix_bytes("file")));
    at = unix_at("packets");
    CHECK(bind(packets, (void *)&at, unix_bytes("packets")) == 0);
    FAILS(EPROTOTYPE, connect(client, (void *)&at, unix_bytes("packets")));
    at = unix_at("others");
    FAILS(EINVAL, bind(packets, (void *)&at, unix_bytes("others")));
    return NULL;
}

static const char *abstract(void)
{
    return stream_at("@quire.abicheck");
}

static const char *bad_arguments(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), file = open("/", O_RDONLY);
    struct sockaddr_in at = inet_at(1);
    int inet = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    socklen_t bytes = sizeof one;
    FAILS(EAFNOSUPPORT, socket(99, SOCK_STREAM, 0));
    FAILS(EINVAL, socket(AF_UNIX, SOCK_STREAM | 1 << 25, 0));
    FAILS(EPROTONOSUPPORT, socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    FAILS(ENOTSOCK, listen(file, 1));
    FAILS(EBADF, listen(99, 1));
    FAILS(ENOTCONN, getpeername(fd, (void *)&at, &bytes));
    FAILS(ENOTCONN, send(fd, "x", 1, 0));
    FAILS(EINVAL, recv(fd, &one, 1, 0));
    FAILS(ENOTCONN, recv(inet, &one, 1, 0));
    FAILS(ENOTCONN, shutdown(inet, SHUT_RD));
    FAILS(EINVAL, bind(inet, (void *)&at, 4));
    FAILS(EFAULT, bind(inet, (void *)8, sizeof at));
    FAILS(ECONNREFUSED, connect(inet, (void *)&at, sizeof at));
    FAILS(ENOPROTOOPT, setsockopt(fd, SOL_SOCKET, 999, &one, sizeof one));
    FAILS(EFAULT, getsockopt(fd, SOL_SOCKET, SO_TYPE, &one, (void *)8));
    FAILS(EINVAL, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, 1));
    FAILS(ESPIPE, lseek(fd, 0, SEEK_SET));
    return NULL;
}

static const char *socket_options(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), value = 0, one = 1;
    socklen_t bytes = sizeof value;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &bytes) == 0 && value == SOCK_STREAM);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &bytes) == 0 && value == AF_INET);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &bytes) == 0 && value == IPPROTO_TCP);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &bytes) == 0 && !value);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &bytes) == 0 && !value);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, &bytes) == 0 && value == 1);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &bytes) == 0 && value == 1);
    int size = 20000;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &bytes) == 0 && value == 40000);
    CHECK(listen(fd, 1) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &bytes) == 0 && value == 1);
    return NULL;
}

static const char *time_limits(void)
{
    int fd[2];
    char byte;
    struct timeval limit = {0, 20000}, shown;
    socklen_t bytes = sizeof shown;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(getsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &shown, &bytes) == 0);
    CHECK(bytes == sizeof shown && shown.tv_sec == 0 && shown.tv_usec == 20000);
    FAILS(EAGAIN, recv(fd[0], &byte, 1, 0));
    FAILS(EAGAIN, read(fd[0], &byte, 1));
    limit.tv_usec = 1000000;
    FAILS(EDOM, setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    return NULL;
}

static const char *tcp(void)
{
    struct sockaddr_in at, here, there;
    socklen_t bytes = sizeof here;
    int server = listener(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    char text[100];
    CHECK(server >= 0 && at.sin_port != 0);
    CHECK(connect(client, (void *)&at, sizeof at) == 0);
    int other = accept(server, (void *)&there, &bytes);
    CHECK(other >= 0 && bytes == sizeof there);
    CHECK(getsockname(client, (void *)&here, &bytes) == 0 && here.sin_port == there.sin_port);
    CHECK(here.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(write(client, "one", 3) == 3 && write(client, "two", 3) == 3);
    CHECK(recv(other, text, 6, MSG_WAITALL) == 6 && !memcmp(text, "onetwo", 6));
    pid_t child = fork();
    if (!child) {
        sleep_ms(20);
        _exit(write(client, "late", 4) == 4 && shutdown(client, SHUT_WR) == 0 ? 0 : 1);
    }
    CHECK(recv(other, text, 10, MSG_WAITALL) == 4);
    CHECK(events_of(other) == (POLLIN | POLLOUT | POLLRDHUP) && read(other, text, 1) == 0);
    CHECK(write(other, "back", 4) == 4 && read(client, text, 10) == 4);
    CHECK(close(other) == 0 && read(client, text, 1) == 0);
    return NULL;
}

static const char *udp(void)
{
    struct sockaddr_in at = inet_at(0), from;
    socklen_t bytes = sizeof at;
    int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    CHECK(bind(one, (void *)&at, sizeof at) == 0 && getsockname(one, (void *)&at, &bytes) == 0);
    FAILS(EDESTADDRREQ, send(other, "x", 1, 0));
    CHECK(sendto(other, "hello", 5, 0, (void *)&at, sizeof at) == 5);
    CHECK(recvfrom(one, text, 3, MSG_TRUNC, (void *)&from, &bytes) == 5);
    CHECK(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && from.sin_port != 0);
    CHECK(connect(one, (void *)&from, sizeof from) == 0 && send(one, "", 0, 0) == 0);
    CHECK(recv(other, text, 8, 0) == 0);
    CHECK(close(other) == 0 && send(one, "x", 1, 0) == 1);
    FAILS(ECONNREFUSED, recv(one, text, 1, 0));
    FAILS(EAGAIN, recv(one, text, 1, MSG_DONTWAIT));
    return NULL;
}

static const char *both_versions(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, who;
    struct sockaddr_in at = inet_at(0);
    socklen_t bytes = sizeof any;
    int server = socket(AF_INET6, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(server, (void *)&any, sizeof any) == 0 && listen(server, 5) == 0);
    CHECK(getsockname(server, (void *)&any, &bytes) == 0 && bytes == sizeof any);
    at.sin_port = any.sin6_port;
    CHECK(connect(client, (void *)&at, sizeof at) == 0);
    CHECK(accept(server, (void *)&who, &bytes) >= 0 && IN6_IS_ADDR_V4MAPPED(&who.sin6_addr));
    any.sin6_addr = in6addr_loopback;
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&any, sizeof any) == 0);
    CHECK(accept(server, (void *)&who, &bytes) >= 0);
    CHECK(IN6_IS_ADDR_LOOPBACK(&who.sin6_addr));
    return NULL;
}

/* Sends a byte, and with it a descriptor unless that is below 0. */
static ssize_t send_with(int to, int fd)
{
    char space[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8))) = {0};
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = space;
        message.msg_controllen = sizeof space;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    return sendmsg(to, &message, 0);
}

/* Receives a byte; the control messages are in `space`. */
static ssize_t receive_with(int from, char *space, size_t *bytes, int *flags)
{
    char byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    message.msg_control = space;
    message.msg_controllen = *bytes;
    ssize_t count = recvmsg(from, &message, *flags);
    *bytes = message.msg_controllen;
    *flags = message.msg_flags;
    return count;
}

static const char *rights(void)
{
    int fd[2], file, got, flags = MSG_CMSG_CLOEXEC;
    char space[64] __attribute__((aligned(8))), text[8];
    size_t bytes = sizeof space;
    CHECK(make_file("file", "content") && (file = open("file", O_RDONLY)) >= 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(send_with(fd[0], file) == 1 && close(file) == 0);
    CHECK(receive_with(fd[1], space, &bytes, &flags) == 1 && !(flags & MSG_CTRUNC));
    struct cmsghdr *head = (void *)space;
    CHECK(head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof got));
    memcpy(&got, CMSG_DATA(head), sizeof got);
    CHECK(fcntl(got, F_GETFD) == FD_CLOEXEC && read(got, text, 7) == 7);
    CHECK(!memcmp(text, "content", 7));
    FAILS(EBADF, send_with(fd[0], 77));
    CHECK(send_with(fd[0], got) == 1);
    bytes = flags = 0;
    CHECK(receive_with(fd[1], space, &bytes, &flags) == 1 && flags & MSG_CTRUNC);
    return NULL;
}

static const char *credentials(void)
{
    int fd[2], on = 1, flags = 0;
    char space[64] __attribute__((aligned(8)));
    size_t bytes = sizeof space;
    struct ucred who;
    socklen_t length = sizeof who;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0);
    CHECK(getsockopt(fd[0], SOL_SOCKET, SO_PEERCRED, &who, &length) == 0);
    CHECK(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
    CHECK(setsockopt(fd[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    CHECK(send_with(fd[0], -1) == 1 && receive_with(fd[1], space, &bytes, &flags) == 1);
    struct cmsghdr *head = (void *)space;
    CHECK(bytes >= CMSG_LEN(sizeof who) && head->cmsg_type == SCM_CREDENTIALS);
    memcpy(&who, CMSG_DATA(head), sizeof who);
    CHECK(who.pid == getpid() && who.uid == getuid());
    return NULL;
}

static volatile sig_atomic_t broken;

static void note_pipe(int number)
{
    (void)number;
    broken++;
}

static const char *ends(void)
{
    int fd[2], count = 0;
    char byte;
    signal(SIGPIPE, note_pipe);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(write(fd[1], "ab", 2) == 2 && ioctl(fd[0], FIONREAD, &count) == 0 && count == 2);
    CHECK(shutdown(fd[1], SHUT_WR) == 0);
    FAILS(EPIPE, write(fd[1], "x", 1));
    CHECK(broken == 1);
    FAILS(EPIPE, send(fd[1], "x", 1, MSG_NOSIGNAL));
    CHECK(broken == 1 && events_of(fd[0]) == (POLLIN | POLLOUT | POLLRDHUP));
    CHECK(read(fd[0], &byte, 1) == 1 && close(fd[1]) == 0);
    CHECK(events_of(fd[0]) == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
    CHECK(read(fd[0], &byte, 1) == 1 && read(fd[0], &byte, 1) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    CHECK(write(fd[0], "x", 1) == 1 && close(fd[1]) == 0);
    FAILS(ECONNRESET, read(fd[0], &byte, 1));
    CHECK(read(fd[0], &byte, 1) == 0);
    return NULL;
}

static const char *events(void)
{
    struct sockaddr_in at;
    int server = listener(&at), set = epoll_create1(0), client, other;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = server};
    char text[16];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, server, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    CHECK((client = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(client, (void *)&at, sizeof at) == 0);
    CHECK(epoll_wait(set, &event, 1, 1000) == 1 && event.data.fd == server);
    CHECK((other = accept(server, NULL, NULL)) >= 0 && epoll_wait(set, &event, 1, 0) == 0);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.fd = other};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, other, &event) == 0);
    CHECK(write(client, "abc", 3) == 3 && epoll_wait(set, &event, 1, 1000) == 1);
    CHECK(read(other, text, 1) == 1 && epoll_wait(set, &event, 1, 0) == 0);
    CHECK(write(client, "d", 1) == 1 && epoll_wait(set, &event, 1, 1000) == 1);
    CHECK(close(client) == 0 && epoll_wait(set, &event, 1, 1000) == 1);
    return NULL;
}

static const char *full(void)
{
    static char block[8192];
    int fd[2];
    ssize_t sent = 0, count, read_bytes = 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
    while ((count = write(fd[0], block, sizeof block)) > 0)
        sent += count;
    FAILS(EAGAIN, write(fd[0], block, 1));
    CHECK(sent >= 65536 && !(events_of(fd[0]) & POLLOUT));
    pid_t child = fork();
    if (!child) {
        fcntl(fd[0], F_SETFL, 0);
        static char all[1 << 20];
        _exit(write(fd[0], all, sizeof all) == sizeof all ? 0 : 1);
    }
    close(fd[0]);
    fcntl(fd[1], F_SETFL, 0);
    while ((count = read(fd[1], block, sizeof block)) > 0)
        read_bytes += count;
    int status;
    CHECK(read_bytes == sent + (1 << 20) && waitpid(child, &status, 0) == child && !status);
    return NULL;
}

static const char *many_messages(void)
{
    int fd[2];
    char text[3][4] = {"ab", "cd", "ef"}, got[3][4];
    struct iovec out[3], in[3];
    struct mmsghdr to[3] = {0}, from[3] = {0};
    for (int at = 0; at < 3; at++) {
        out[at] = (struct iovec){text[at], 2};
        in[at] = (struct iovec){got[at], 4};
        to[at].msg_hdr = (struct msghdr){.msg_iov = &out[at], .msg_iovlen = 1};
        from[at].msg_hdr = (struct msghdr){.msg_iov = &in[at], .msg_iovlen = 1};
    }
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) == 0);
    CHECK(sendmmsg(fd[0], to, 2, 0) == 2 && to[1].msg_len == 2);
    CHECK(recvmmsg(fd[1], from, 3, MSG_WAITFORONE, NULL) == 2 && from[1].msg_len == 2);
    CHECK(!memcmp(got[1], "cd", 2));
    return NULL;
}

const struct abi_case socket_cases[] = {
    {"socket at a path", paths},
    {"socket with an abstract name", abstract},
    {"socket errors", bad_arguments},
    {"socket options", socket_options},
    {"socket time limits", time_limits},
    {"socket of TCP", tcp},
    {"socket of UDP", udp},
    {"socket of both versions of IP", both_versions},
    {"socket rights", rights},
    {"socket credentials", credentials},
    {"socket ends", ends},
    {"socket epoll", events},
    {"socket that is full", full},
    {"socket with many messages", many_messages},
    {NULL, NULL},
};
