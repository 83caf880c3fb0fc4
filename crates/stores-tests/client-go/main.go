// A program as they were before: it works while client-go's leaderelection says that it leads.
//
// Its work is a lock on a file that every contender's work takes, and never waits for: a contender that finds the lock taken writes
// OVERLAP. The lock ends with the process, whatever ends it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// work takes the lock, and gives what ends it.
func work(witness, log, name string) func() {
	lock := must(os.OpenFile(witness, os.O_CREATE|os.O_RDWR, 0o644))
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		say(log, "OVERLAP "+name)
	}
	say(log, "began "+name)
	var once sync.Once
	return func() {
		once.Do(func() {
			say(log, "ended "+name)
			lock.Close()
		})
	}
}

func say(log, line string) {
	file := must(os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer file.Close()
	fmt.Fprintln(file, line)
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "")
	namespace := flag.String("namespace", "default", "")
	lease := flag.String("lease", "", "name of the Lease")
	name := flag.String("name", "", "identity of this contender")
	ttl := flag.Duration("ttl", 15*time.Second, "LeaseDuration; the other times are its client-go's fractions of it")
	witness := flag.String("witness", "", "the file that the work locks")
	log := flag.String("log", "", "the file that the work writes to")
	flag.Parse()

	client := must(kubernetes.NewForConfig(must(clientcmd.BuildConfigFromFlags("", *kubeconfig))))
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	end := func() {}
	elector := must(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: *lease, Namespace: *namespace},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *name},
		},
		LeaseDuration: *ttl, RenewDeadline: *ttl * 10 / 15, RetryPeriod: *ttl * 2 / 15, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() == nil {
					end = work(*witness, *log, *name)
				}
			},
			// A program that loses its Lease exits.
			OnStoppedLeading: func() { os.Exit(1) },
		},
	}))
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		// The work ends first, then the Lease is given back.
		mu.Lock()
		end()
		cancel()
		mu.Unlock()
	}()
	elector.Run(ctx)
}
