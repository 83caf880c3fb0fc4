// River: the leader election of its client. It is internal, has no settings and one role for each schema; its subscription is read
// by reflection, as River's own maintenance services read it.
package main

import (
	"context"
	"flag"
	"log/slog"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"rivals/lead"
)

type job struct{}

func (job) Kind() string { return "nothing" }

type worker struct{ river.WorkerDefaults[job] }

func (worker) Work(context.Context, *river.Job[job]) error { return nil }

func main() {
	migrate := flag.Bool("migrate", false, "make River's tables, and end")
	flag.Parse()
	ctx := context.Background()
	driver := riverpgxv5.New(lead.Must(pgxpool.New(ctx, *lead.Store)))
	if *migrate {
		lead.Must(lead.Must(rivermigrate.New(driver, nil)).Migrate(ctx, rivermigrate.DirectionUp, nil))
		return
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	client := lead.Must(river.NewClient(driver, &river.Config{
		ID: *lead.Node, Logger: slog.New(slog.DiscardHandler), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
	}))
	go follow(reflect.ValueOf(client).Elem().FieldByName("elector"))
	lead.Must(0, client.Start(ctx))
	lead.AwaitTerm()
	client.Stop(ctx)
}

// follow works while the elector says that this client leads.
func follow(field reflect.Value) {
	elector := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
	news := elector.MethodByName("Listen").Call(nil)[0].MethodByName("C").Call(nil)[0]
	var leads atomic.Bool
	for {
		notification, _ := news.Recv()
		is := notification.Elem().FieldByName("IsLeader").Bool()
		if is && !leads.Swap(true) {
			go lead.Work(leads.Load)
		} else if !is {
			leads.Store(false)
		}
	}
}
