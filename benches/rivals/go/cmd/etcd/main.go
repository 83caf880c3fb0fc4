// etcd's concurrency package: one session, and one Election for each role.
package main

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"rivals/lead"
)

func main() {
	flag.Parse()
	client := lead.Must(clientv3.New(clientv3.Config{Endpoints: []string{*lead.Store}, DialTimeout: 5 * time.Second}))
	var options []concurrency.SessionOption
	if *lead.TTL > 0 {
		options = append(options, concurrency.WithTTL(int(lead.TTL.Seconds())))
	}
	session := lead.Must(concurrency.NewSession(client, options...))
	lives := func() bool {
		select {
		case <-session.Done():
			return false
		default:
			return true
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var led atomic.Pointer[concurrency.Election]
	for i := range *lead.Roles {
		go func() {
			election := concurrency.NewElection(session, fmt.Sprintf("/%s/%d", *lead.Role, i))
			if election.Campaign(ctx, *lead.Node) == nil {
				led.Store(election)
				lead.Work(lives)
			}
		}()
	}
	lead.AwaitTerm()
	if election := led.Load(); election != nil {
		election.Resign(context.Background())
	}
	cancel()
	session.Close()
}
