package harp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/harpcaller/harp"
)

// Whose fault it is: whom to page.
func ExampleFaultOf() {
	for _, err := range []error{nil, harp.ErrInvalid, harp.ErrRefused, harp.ErrUnreachable, &harp.RemoteError{Type: "disk_full"}} {
		fmt.Printf("%q\n", harp.FaultOf(err))
	}
	// Output:
	// ""
	// "caller"
	// "policy"
	// "network"
	// "procedure"
}

// Whether the procedure ran: may the call be made again?
func ExampleRanOf() {
	for _, err := range []error{nil, harp.ErrExpired, harp.ErrLost, &harp.RemoteError{Type: "disk_full"}} {
		fmt.Println(harp.RanOf(err))
	}
	// Output:
	// yes
	// no
	// maybe
	// yes
}

// An error is stored and sent as data, and is the same error at the other end.
func ExampleFailureOf() {
	err := fmt.Errorf("calling: %w", &harp.TimeoutError{Limit: time.Minute, Of: harp.LimitMaxExecTime})
	again := harp.FailureOf(err).Err()

	var limit *harp.TimeoutError
	fmt.Println(errors.Is(again, harp.ErrTimeout), errors.As(again, &limit) && limit.Limit == time.Minute)
	// Output: true true
}

// A Value is one argument, record or result, as it is stored.
func ExampleNewValue() {
	v, err := harp.NewValue(map[string]any{"service": "nginx", "ports": []int{80, 443}})
	must(err)
	fmt.Println(v)

	var into struct {
		Service string `json:"service"`
		Ports   []int  `json:"ports"`
	}
	must(v.Decode(&into))
	fmt.Println(into.Service, into.Ports)
	// Output:
	// {"ports":[80,443],"service":"nginx"}
	// nginx [80 443]
}

// A value that does not fit is refused, never cut.
func ExampleValue_Decode() {
	v, err := harp.NewValue(300)
	must(err)
	var small int8
	err = v.Decode(&small)
	fmt.Println(errors.Is(err, harp.ErrInvalid))
	// Output: true
}

// Queues with equal names are one queue, whatever the order of the keys.
func ExampleQueueName() {
	one, err := harp.QueueName(map[string]any{"db": "main", "rack": 4})
	must(err)
	type name struct {
		Rack int    `json:"rack"`
		DB   string `json:"db"`
	}
	other, err := harp.QueueName(name{Rack: 4, DB: "main"})
	must(err)
	fmt.Println(one, string(one) == string(other))
	// Output: {"db":"main","rack":4} true
}

// Ids are ordered by the time at which they were made.
func ExampleNewID() {
	first, second := harp.NewID(), harp.NewID()
	fmt.Println(first < second, harp.CheckID(first), time.Since(harp.IDTime(first)) < time.Minute)
	// Output: true <nil> true
}

func ExampleRetryPolicy() {
	p := harp.RetryPolicy{On: []harp.State{harp.StateTimedOut}, Attempts: 3}
	text, err := json.Marshal(p)
	fmt.Println(string(text), err)
	// Output: {"on":["timed_out"],"attempts":3} <nil>
}

func ExampleState_Ended() {
	fmt.Println(harp.StateRunning.Ended(), harp.StateUnknown.Ended(), harp.StateLost.Ended())
	// Output: false false true
}

// A procedure that refuses to do something says so with a type and data.
func ExampleRemoteError() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "disk.check", nil)
	must(err)

	_, err = job.Get(ctx)
	var failed *harp.RemoteError
	if errors.As(err, &failed) {
		fmt.Println(failed.Type, "-", failed.Message, "-", failed.Data)
	}
	// Output: disk_full - no space left on /var - {"free":0}
}
