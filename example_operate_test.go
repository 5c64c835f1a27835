package harp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
)

// The feed tells what happens, from any cursor on, without gap or repeat.
func ExampleCaller_Events() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"})
	must(err)

	filter := harp.EventFilter{After: harp.EventsFromStart, Types: []string{"job.*"}, Job: job.ID()}
	for event, err := range caller.Events(ctx, filter) {
		must(err)
		if event.Type == harp.EventJobSubmitted || event.State.Ended() {
			fmt.Println(event.Type)
		}
		filter.After = event.Cursor // stored with what was done about the event: here the next reader begins
		if event.State.Ended() {
			break
		}
	}
	page, err := caller.EventsPage(ctx, filter, false) // all there is, without waiting
	must(err)
	fmt.Println("more:", len(page.Events) > 0)
	// Output:
	// job.submitted
	// job.succeeded
	// more: false
}

func ExampleCaller_Ping() {
	caller, stop := fleet()
	defer stop()
	info, err := caller.Ping(context.Background())
	fmt.Println(info.Software == "harp/"+harp.Version(), err)
	// Output: true <nil>
}

// A backup is a copy of the store as it is at one moment; harp restore makes a store
// of it.
func ExampleCaller_Backup() {
	caller, stop := fleet()
	defer stop()
	var file bytes.Buffer
	err := caller.Backup(context.Background(), &file)
	fmt.Println(file.Len() > 0, err)
	// Output: true <nil>
}

// What ended long ago is deleted.
func ExampleCaller_Prune() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"})
	must(err)
	_, err = job.Wait(ctx)
	must(err)

	fmt.Println(caller.Prune(ctx, time.Now().Add(-24*time.Hour)))
	// Output: 0 <nil>
}

// Which hosts there are, and which of them are there.
func ExampleHosts_List() {
	caller, stop := fleet()
	defer stop()
	for host, err := range caller.Hosts().List(context.Background(), "") {
		must(err)
		fmt.Println(host.Name, host.Online, host.Procedures)
	}
	// Output:
	// db01 false []
	// web01 true [base count disk.check greet hang tmp.clean]
}

// Which hosts a target selects, and why.
func ExampleCaller_Target() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	t := caller.Target("host.online=true and not db*")
	names, err := t.Hosts(ctx)
	must(err)
	fmt.Println(names)
	explained, err := t.Explain(ctx, "")
	must(err)
	for _, part := range explained.Parts {
		fmt.Println(part.Hosts, part.Text)
	}
	_, err = caller.Target("web02").Hosts(ctx)
	fmt.Println(errors.Is(err, harp.ErrNotFound))
	// Output:
	// [web01]
	// 1 host.online=true
	// 1 not db*
	// true
}

// What a call of all hosts of a target would meet, before it is made.
func ExampleTarget_Preview() {
	caller, stop := fleet()
	defer stop()
	p, err := caller.Target("*").Preview(context.Background(), "count", harp.Args{"to": "three"})
	must(err)
	fmt.Printf("%d hosts, %d away, %d unfit\n", p.Hosts, p.Away, p.Unfit)
	for _, unfit := range p.UnfitHosts {
		fmt.Printf("%s: %v\n", unfit.Host, unfit.Err)
	}
	// Output:
	// 2 hosts, 1 away, 1 unfit
	// web01: invalid args.to: must be an integer, is a string
}

// A group is a target with a name, for use in others.
func ExampleGroups_Put() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	groups := caller.Groups()
	must(groups.Put(ctx, "web", "web*"))
	must(groups.Put(ctx, "reachable", "@web and host.online=true"))
	names, err := caller.Target("@reachable").Hosts(ctx)
	must(err)
	fmt.Println(names)
	err = groups.Delete(ctx, "web")
	fmt.Println(errors.Is(err, harp.ErrConflict)) // another group uses it
	// Output:
	// [web01]
	// true
}

func ExampleGroups_List() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	must(caller.Groups().Put(ctx, "away", "host.online=false"))
	for group, err := range caller.Groups().List(ctx) {
		must(err)
		fmt.Printf("%s is %s, by %s\n", group.Name, group.Target, group.By.Kind)
	}
	// Output: away is host.online=false, by process
}

// Labels of operators count more than those of the registry and of agents.
func ExampleHosts_Label() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	n, err := caller.Hosts().Label(ctx, "web01,db01", map[string]string{"env": "prod", "rack": "7"})
	must(err)
	fmt.Println("labelled", n)
	_, err = caller.Hosts().Label(ctx, "db01", nil, "rack") // away, and labelled all the same
	must(err)
	names, err := caller.Target("env=prod and not rack=*").Hosts(ctx)
	must(err)
	fmt.Println(names)
	// Output:
	// labelled 2
	// [db01]
}

// Agents are asked whether they are there; nothing is called.
func ExampleHosts_Ping() {
	caller, stop := fleet()
	defer stop()
	for ping, err := range caller.Hosts().Ping(context.Background(), "*") {
		must(err)
		fmt.Println(ping.Host, ping.Online, ping.Answered)
	}
	// Output:
	// db01 false false
	// web01 true true
}

func ExampleHosts_Get() {
	caller, stop := fleet()
	defer stop()
	host, err := caller.Hosts().Get(context.Background(), "web01")
	must(err)
	fmt.Println(host.Online, host.Software == "harp/"+harp.Version())
	// Output: true true
}

// What a host offers, with the schema of its arguments.
func ExampleHosts_Procedures() {
	caller, stop := fleet()
	defer stop()
	docs, err := caller.Hosts().Procedures(context.Background(), "web01")
	must(err)
	for _, doc := range docs {
		fmt.Printf("%s %v: %s\n", doc.Name, doc.Params, doc.Summary)
	}
	// Output:
	// base []: Make the host what it should be
	// count [to]: Count to a number
	// disk.check []: Check the disk
	// greet [name]: Greet somebody
	// hang []: Wait to be stopped
	// tmp.clean []: Delete old files
}

// A paused queue holds what waits in it.
func ExampleQueues_Pause() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	name := map[string]string{"db": "main"}
	first, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"}, harp.Queue(name))
	must(err)
	_, err = first.Wait(ctx)
	must(err)

	must(caller.Queues().Pause(ctx, name, "the database moves", time.Time{}))
	job, err := greet.Call(ctx, caller.Host("web01"), greetArgs{"Ada"}, harp.Queue(name))
	must(err)
	status, err := job.Status(ctx)
	must(err)
	fmt.Println(status.State, status.Reason)

	must(caller.Queues().Unpause(ctx, name))
	fmt.Println(job.Get(ctx))
	// Output:
	// queued paused
	// {"text":"hello Ada"} <nil>
}

// All that is in a queue at one moment is cancelled in one step.
func ExampleQueues_Cancel() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	name := map[string]string{"db": "main"}
	for range 3 {
		_, err := caller.Host("web01").Call(ctx, "hang", nil, harp.Queue(name))
		must(err)
	}
	fmt.Println(caller.Queues().Cancel(ctx, name))
	// Output: 3 <nil>
}

// A live queue is given another concurrency.
func ExampleQueues_SetConcurrency() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	name := map[string]string{"db": "main"}
	_, err := caller.Host("web01").Call(ctx, "hang", nil, harp.Queue(name))
	must(err)

	must(caller.Queues().SetConcurrency(ctx, name, 4))
	queue, err := caller.Queues().Get(ctx, name)
	must(err)
	fmt.Println(queue.Name, queue.Concurrency)
	// Output: {"db":"main"} 4
}

func ExampleQueues_List() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	_, err := caller.Host("web01").Call(ctx, "hang", nil, harp.Queue(map[string]string{"db": "main"}))
	must(err)
	for queue, err := range caller.Queues().List(ctx) {
		must(err)
		fmt.Println(queue.Name, "concurrency", queue.Concurrency)
	}
	// Output: {"db":"main"} concurrency 1
}

// The hosts registry is read again, as after a change of what it comes from.
func ExampleHosts_Refresh() {
	caller, stop := fleet()
	defer stop()
	fmt.Println(caller.Hosts().Refresh(context.Background()))
	// Output: 2 <nil>
}

// Handles of a closed Caller are of no use; jobs go on.
func ExampleCaller_Close() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "hang", nil)
	must(err)

	must(caller.Close())
	_, err = job.Status(ctx)
	fmt.Println(errors.Is(err, harp.ErrClosed))
	// Output: true
}
