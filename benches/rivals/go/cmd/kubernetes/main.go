// client-go's leaderelection on Leases: one elector for each role.
//
// W: until the context of OnStartedLeading ends. I: while IsLeader() says yes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"rivals/lead"
)

func main() {
	flag.Parse()
	config := lead.Must(clientcmd.BuildConfigFromFlags("", *lead.Store))
	config.QPS = -1 // a thousand electors need more than the five requests a second that are the default
	client := lead.Must(kubernetes.NewForConfig(config))
	ctx, cancel := context.WithCancel(context.Background())
	var electors sync.WaitGroup
	for i := range *lead.Roles {
		electors.Go(func() { elector(client, fmt.Sprintf("%s-%d", *lead.Role, i)).Run(ctx) })
	}
	go func() {
		electors.Wait() // every elector ended by itself: it lost its role
		if ctx.Err() == nil {
			os.Exit(1)
		}
	}()
	lead.AwaitTerm()
	cancel()
	electors.Wait()
}

// The times are the library's defaults (15, 10 and 2 s), or the same fractions of another lease.
func elector(client kubernetes.Interface, name string) *leaderelection.LeaderElector {
	ttl := *lead.TTL
	if ttl == 0 {
		ttl = 15 * time.Second
	}
	var this *leaderelection.LeaderElector
	work := func(ctx context.Context) {
		if *lead.Roles == 1 {
			go lead.While(this.IsLeader, "I")
		}
		lead.Work(func() bool { return ctx.Err() == nil })
	}
	this = lead.Must(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: "default"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *lead.Node},
		},
		LeaseDuration: ttl, RenewDeadline: ttl * 10 / 15, RetryPeriod: ttl * 2 / 15,
		ReleaseOnCancel: true, // without it a clean end costs the whole lease
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: work, OnStoppedLeading: func() {}},
	}))
	return this
}
