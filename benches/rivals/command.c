// The command that `tenure run` and `etcdctl lock` start: it says what the rivals say themselves (go/lead/lead.go).
//
//   command          ELECTED, W every 5 ms, RESIGNED at SIGTERM
//   command stamp    ELECTED when the first line comes in, for a tool that tells of its election in words of its own
//   command spin     keeps one core busy
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;

static void on_term(int signal) {
    (void)signal;
    is_over = 1;
}

static void say(const char *word) {
    struct timespec now;
    char line[64];
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%s %lld\n", word, now.tv_sec * 1000000000LL + now.tv_nsec);
    if (write(1, line, length) != length) _exit(1);
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
    for (say("ELECTED"); !is_over; usleep(5000)) say("W");
    say("RESIGNED");
    return 0;
}
