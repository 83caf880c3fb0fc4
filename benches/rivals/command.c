// The command that `tenure run` and `etcdctl lock` start: it says what the rivals say themselves (go/lead/lead.go).
//
//   command          ELECTED, W every 5 ms, RESIGNED at SIGTERM; its election is its very first instruction
//   command stamp    ELECTED when the first line comes in, for a tool that tells of its election in words of its own
//   command spin     keeps one core busy
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// What a program does before `main` is its own time, and not that of the tool which starts it.
struct timespec first;
#ifdef __x86_64__
// Asks the clock (system call 228, CLOCK_MONOTONIC), and begins as every program does. Linked with `-e first_instruction`.
__asm__(
    ".globl first_instruction\n"
    "first_instruction:\n"
    "  mov $228, %eax\n"
    "  mov $1, %edi\n"
    "  lea first(%rip), %rsi\n"
    "  syscall\n"
    "  jmp _start\n");
#else
#error "the first instruction is written for x86-64 only"
#endif

static volatile sig_atomic_t is_over;

static void on_term(int signal) {
    (void)signal;
    is_over = 1;
}

static void say_at(const char *word, struct timespec when) {
    char line[64];
    int length = snprintf(line, sizeof line, "%s %lld\n", word, when.tv_sec * 1000000000LL + when.tv_nsec);
    if (write(1, line, length) != length) _exit(1);
}

static void say(const char *word) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    say_at(word, now);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    char line[256];
    if (!strcmp(mode, "spin"))
        for (;;) is_over = 0;
    if (!strcmp(mode, "stamp")) {
        if (read(0, line, sizeof line) > 0) say("ELECTED");
        while (read(0, line, sizeof line) > 0) {}
        return 0;
    }
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, 0);
    for (say_at("ELECTED", first); !is_over; usleep(5000)) say("W");
    say("RESIGNED");
    return 0;
}
