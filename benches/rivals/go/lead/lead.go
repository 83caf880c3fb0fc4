// Package lead is what the rivals in Go share: their options, and the lines that the harness reads.
//
//	ELECTED ns    it believes that it leads
//	W ns          it works: every 5 ms, as long as it believes so
//	LOST ns       it has found out that it does not lead
//	RESIGNED ns   its work has ended, and the library is about to be told
//
// All times are CLOCK_MONOTONIC, so that lines of different processes compare. With several roles only ELECTED is said.
package lead

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	Store = flag.String("store", "", "where the server is")
	Node  = flag.String("node", "", "name of this candidate")
	Role  = flag.String("role", "", "what names of roles begin with")
	Roles = flag.Int("roles", 1, "how many roles")
	TTL   = flag.Duration("ttl", 0, "the lease; 0: the library's default")

	line, working sync.Mutex
	stop          atomic.Bool
)

// Say prints a line of the harness.
func Say(word string) {
	line.Lock()
	defer line.Unlock()
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	fmt.Fprintf(os.Stdout, "%s %d\n", word, now.Nano())
}

// While prints the word every 5 ms while it holds, or until SIGTERM.
func While(holds func() bool, word string) {
	for holds() && !stop.Load() {
		Say(word)
		time.Sleep(5 * time.Millisecond)
	}
}

// Work is the work of a leader.
func Work(leads func() bool) {
	Say("ELECTED")
	if *Roles > 1 {
		return
	}
	working.Lock()
	defer working.Unlock()
	While(leads, "W")
	if !stop.Load() {
		Say("LOST")
	}
}

// AwaitTerm returns when SIGTERM has come and the work, if there was any, has ended: the library may be told.
func AwaitTerm() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	<-term
	stop.Store(true)
	if !working.TryLock() {
		working.Lock()
		Say("RESIGNED")
	}
}

// Must ends the program if there is an error.
func Must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
