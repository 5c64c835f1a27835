package harp_test

import (
	"context"
	"fmt"

	"github.com/harpcaller/harp"
)

// Follow yields records until the job has ended. It starts at the moment of the loop;
// Since(0) starts at the first record.
func ExampleJob_Follow() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "count", harp.Args{"to": 3})
	must(err)

	for record, err := range job.Follow(ctx, harp.Since(0)) {
		if err != nil {
			fmt.Println(err) // the last thing there is
			break
		}
		fmt.Println(record.Seq, record.Kind, record.Value)
	}
	fmt.Println(job.Get(ctx))
	// Output:
	// 0 data 1
	// 1 data 2
	// 2 data 3
	// "done" <nil>
}

// Stream yields the records there are, and does not wait for more.
func ExampleJob_Stream() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := count.Call(ctx, caller.Host("web01"), countArgs{To: 100})
	must(err)
	_, err = job.Wait(ctx)
	must(err)

	for record, err := range job.Stream(ctx, harp.Recent(2)) {
		must(err)
		fmt.Println(record.Seq, record.Value)
	}
	// Output:
	// 98 99
	// 99 100
}

// A reader that was interrupted goes on where it was: the cursor is the record's number.
func ExampleSince() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := count.Call(ctx, caller.Host("web01"), countArgs{To: 4})
	must(err)

	next := uint64(0)
	for record, err := range job.Follow(ctx, harp.Since(next)) {
		must(err)
		fmt.Println("first reader:", record.Value)
		if next = record.Seq + 1; next == 2 {
			break
		}
	}
	for record, err := range job.Follow(ctx, harp.Since(next)) {
		must(err)
		fmt.Println("second reader:", record.Value)
	}
	// Output:
	// first reader: 1
	// first reader: 2
	// second reader: 3
	// second reader: 4
}

// A procedure with records, declared with their type.
func ExampleNewStreamProc() {
	type args struct {
		To int `json:"to"`
	}
	count := harp.NewStreamProc[args, int, string]("count", "Count to a number")

	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := count.Call(ctx, caller.Host("web01"), args{To: 3})
	must(err)
	sum := 0
	for n, err := range count.Follow(ctx, job, harp.Since(0)) {
		must(err)
		sum += n
	}
	fmt.Println(sum)
	// Output: 6
}

// Typed records, where there is no StreamProc at hand.
func ExampleDecode() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := caller.Host("web01").Call(ctx, "count", harp.Args{"to": 2})
	must(err)

	for n, err := range harp.Decode[int](job.Follow(ctx, harp.Since(0))) {
		must(err)
		fmt.Println(n + 1)
	}
	// Output:
	// 2
	// 3
}

// Some context, and then what comes.
func ExampleRecent() {
	caller, stop := fleet()
	defer stop()
	ctx := context.Background()
	job, err := count.Call(ctx, caller.Host("web01"), countArgs{To: 1000})
	must(err)
	_, err = job.Wait(ctx)
	must(err)

	for n, err := range count.Follow(ctx, job, harp.Recent(1)) {
		fmt.Println(n, err)
	}
	// Output: 1000 <nil>
}
