/* Runs a program and disturbs one of its system calls, counted over all of its threads (`strace` counts per thread).
 *
 *   fault_tracer REPORT CALLS FAULT FIRST LAST PROGRAM [ARGUMENT...]
 *
 * CALLS: names from the table below, separated by commas. Writes count where they go to a regular file, opens where they
 * may create or empty one. FAULT: "kill", or an errno; it hits the calls FIRST to LAST. REPORT gets the number of calls,
 * and the name of the first one that was hit. Ends as the program does. Other processes that the program starts run
 * undisturbed from their `execve` on. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <linux/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls that newer architectures lack: no call has such a number. */
#ifndef SYS_rename
#define SYS_rename -2
#define SYS_unlink -3
#define SYS_mkdir -4
#define SYS_rmdir -5
#define SYS_open -6
#endif

static const struct {
    const char *name;
    long number;
} CALLS[] = {
    {"write", SYS_write},         {"pwrite64", SYS_pwrite64},   {"fsync", SYS_fsync},
    {"fdatasync", SYS_fdatasync}, {"ftruncate", SYS_ftruncate}, {"openat", SYS_openat},
    {"openat2", SYS_openat2},     {"renameat", SYS_renameat},   {"renameat2", SYS_renameat2},
    {"unlinkat", SYS_unlinkat},   {"mkdirat", SYS_mkdirat},     {"linkat", SYS_linkat},
    {"rename", SYS_rename},       {"unlink", SYS_unlink},       {"mkdir", SYS_mkdir},
    {"rmdir", SYS_rmdir},         {"open", SYS_open},           {"syncfs", SYS_syncfs},
    {"symlinkat", SYS_symlinkat}, {"copy_file_range", SYS_copy_file_range},
};
enum { COUNT = sizeof CALLS / sizeof *CALLS };

static pid_t program;

static void fail(const char *what) {
    fprintf(stderr, "fault_tracer: cannot %s: %s\n", what, strerror(errno));
    if (0 < program)
        kill(program, SIGKILL);
    exit(125);
}

/* Whether a thread belongs to the program itself. */
static int is_of_program(pid_t thread) {
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d/task/%d", program, thread);
    return stat(path, &found) == 0;
}

static int is_regular(pid_t thread, long file) {
    char path[64];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d/fd/%ld", thread, file);
    return stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

/* Whether the call changes what is on a disk, or makes it durable. */
static int changes_disk(pid_t thread, const struct ptrace_syscall_info *info) {
    const __u64 *args = info->entry.args;
    switch ((long)info->entry.nr) {
    case SYS_write:
    case SYS_pwrite64:
        return is_regular(thread, (int)args[0]);
    case SYS_openat:
        return (args[2] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_openat2:
        return (ptrace(PTRACE_PEEKDATA, thread, args[2], 0) & (O_CREAT | O_TRUNC)) != 0;
    case SYS_open:
        return (args[1] & (O_CREAT | O_TRUNC)) != 0;
    }
    return 1;
}

/* Skips the call that a thread is about to make; it returns the error. */
static void refuse(pid_t thread, long error) {
    struct user_regs_struct regs;
    struct iovec place = {&regs, sizeof regs};
    if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &place) != 0)
        return;
#if defined(__x86_64__)
    regs.orig_rax = -1;
    regs.rax = -error;
#elif defined(__aarch64__)
    int none = -1;
    struct iovec number = {&none, sizeof none};
    ptrace(PTRACE_SETREGSET, thread, NT_ARM_SYSTEM_CALL, &number);
    regs.regs[0] = -error;
#else
#error "the registers of this architecture are not known here"
#endif
    ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &place);
}

int main(int argc, char **argv) {
    if (argc < 7) {
        fputs("fault_tracer: REPORT CALLS FAULT FIRST LAST PROGRAM [ARGUMENT...]\n", stderr);
        return 125;
    }
    int is_chosen[COUNT] = {0}, go[2], status = 0, end = 0;
    for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
        int known = 0;
        for (int at = 0; at < COUNT; at++)
            if (strcmp(name, CALLS[at].name) == 0)
                known = is_chosen[at] = 1;
        if (!known) {
            fprintf(stderr, "fault_tracer: unknown call %s\n", name);
            return 125;
        }
    }
    long is_kill = strcmp(argv[3], "kill") == 0, error = atol(argv[3]);
    long first = atol(argv[4]), last = atol(argv[5]), calls = 0;
    const char *hit = "";
    if (pipe2(go, O_CLOEXEC) != 0 || (program = fork()) < 0)
        fail("start");
    if (program == 0) {
        char byte;
        if (read(go[0], &byte, 1) == 1)
            execv(argv[6], argv + 6);
        _exit(127);
    }
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, program, 0, options) != 0)
        fail("trace");
    if (write(go[1], "g", 1) != 1)
        fail("start");
    close(go[0]);
    close(go[1]);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR)
            continue;
        if (thread < 0)
            break;
        if (!WIFSTOPPED(status)) {
            if (thread == program)
                end = status;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_EXEC && thread != program) {
            ptrace(PTRACE_DETACH, thread, 0, 0);
            continue;
        }
        if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
            ptrace(PTRACE_LISTEN, thread, 0, 0);
            continue;
        }
        struct ptrace_syscall_info info;
        if (signal == (SIGTRAP | 0x80) &&
            0 < ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) &&
            info.op == PTRACE_SYSCALL_INFO_ENTRY) {
            int at = 0;
            while (at < COUNT && !(is_chosen[at] && CALLS[at].number == (long)info.entry.nr))
                at++;
            if (at < COUNT && is_of_program(thread) && changes_disk(thread, &info)) {
                calls++;
                if (first <= calls && calls <= last) {
                    hit = *hit ? hit : CALLS[at].name;
                    is_kill ? (void)kill(program, SIGKILL) : refuse(thread, error);
                }
            }
        }
        int is_ours = event != 0 || signal == (SIGTRAP | 0x80);
        ptrace(PTRACE_SYSCALL, thread, 0, is_ours ? 0 : signal);
    }
    FILE *report = fopen(argv[1], "w");
    if (!report || fprintf(report, "%ld %s\n", calls, hit) < 0 || fclose(report) != 0)
        fail("write the report");
    if (WIFSIGNALED(end)) {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(WTERMSIG(end), &plain, NULL);
        kill(getpid(), WTERMSIG(end));
    }
    return WEXITSTATUS(end);
}
