package client

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// seqs reads a sequence to its end.
func seqs(t testing.TB, records iter.Seq2[harp.Record, error]) []uint64 {
	t.Helper()
	var got []uint64
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Seq)
	}
	return got
}

func numbers(from, to uint64) []uint64 {
	var n []uint64
	for ; from < to; from++ {
		n = append(n, from)
	}
	return n
}

func ints(n int) []any {
	var list []any
	for i := range n {
		list = append(list, i)
	}
	return list
}

var succeeded = harp.Result{State: harp.StateSucceeded, Value: harp.Value{0xc3}}

// TestStream: a stream is what is there when the loop starts, from where it was asked
// for, whether the job has ended or not, in pages of any size.
func TestStream(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		for _, ended := range []bool{false, true} {
			for d.pageSize = range 4 {
				id := d.add(ints(7)...)
				if ended {
					d.end(id, succeeded)
				}
				job := caller.Job(id)
				for _, c := range []struct {
					opts []harp.StreamOption
					want []uint64
				}{
					{nil, numbers(0, 7)},
					{[]harp.StreamOption{harp.Since(0)}, numbers(0, 7)},
					{[]harp.StreamOption{harp.Since(5)}, numbers(5, 7)},
					{[]harp.StreamOption{harp.Since(7)}, nil},
					{[]harp.StreamOption{harp.Since(1 << 63)}, nil},
					{[]harp.StreamOption{harp.Recent(3)}, numbers(4, 7)},
					{[]harp.StreamOption{harp.Recent(0)}, nil},
					{[]harp.StreamOption{harp.Recent(100)}, numbers(0, 7)},
					{[]harp.StreamOption{harp.Recent(3), harp.Since(6)}, numbers(6, 7)},
					{[]harp.StreamOption{harp.Since(6), harp.Recent(3)}, numbers(4, 7)},
				} {
					if got := seqs(t, job.Stream(t.Context(), c.opts...)); !slices.Equal(got, c.want) {
						t.Errorf("ended %v, page %d: got %v, want %v", ended, d.pageSize, got, c.want)
					}
				}
			}
		}
		d.pageSize = 0
		if got := seqs(t, caller.Job(d.add()).Stream(t.Context())); got != nil {
			t.Errorf("of nothing: %v", got)
		}
	})
}

// TestStreamEnds: a stream ends at what was there when it began, however fast the job
// goes on.
func TestStreamEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.pageSize = 2
		id := d.add(ints(5)...)
		var got []uint64
		for r, err := range caller.Job(id).Stream(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Seq)
			d.emit(id, "more", "and more")
		}
		if !slices.Equal(got, numbers(0, 5)) {
			t.Errorf("got %v", got)
		}
	})
}

// TestFollow: following shows what comes until the job has ended, and with Since what
// was there before, without gap or repeat.
func TestFollow(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		for d.pageSize = range 3 {
			for _, c := range []struct {
				opts []harp.StreamOption
				want []uint64
			}{
				{nil, numbers(4, 8)},
				{[]harp.StreamOption{harp.Since(0)}, numbers(0, 8)},
				{[]harp.StreamOption{harp.Since(2)}, numbers(2, 8)},
				{[]harp.StreamOption{harp.Since(6)}, numbers(6, 8)},
				{[]harp.StreamOption{harp.Recent(1)}, numbers(3, 8)},
			} {
				id := d.add(ints(4)...)
				var started sync.WaitGroup
				started.Go(func() {
					d.until(func() bool { return d.waiting > 0 })
					for i := range 4 {
						d.emit(id, i)
					}
					d.end(id, harp.Result{State: harp.StateFailed, Err: &harp.RemoteError{Type: "x"}})
				})
				if got := seqs(t, caller.Job(id).Follow(t.Context(), c.opts...)); !slices.Equal(got, c.want) {
					t.Errorf("page %d: got %v, want %v", d.pageSize, got, c.want)
				}
				started.Wait()
			}
		}
		d.pageSize = 0
		id := d.add(ints(3)...)
		d.end(id, succeeded)
		if got := seqs(t, caller.Job(id).Follow(t.Context())); got != nil {
			t.Errorf("after the end: %v", got)
		}
		if got := seqs(t, caller.Job(id).Follow(t.Context(), harp.Since(0))); !slices.Equal(got, numbers(0, 3)) {
			t.Errorf("after the end: %v", got)
		}
	})
}

// TestFromNow: "from now on" is when the loop starts, not when Follow was called.
func TestFromNow(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := d.add(ints(2)...)
		follow := caller.Job(id).Follow(t.Context())
		if d.count("Records") != 0 {
			t.Error("Follow asked before anybody read")
		}
		d.emit(id, "before the loop")
		d.end(id, succeeded)
		if got := seqs(t, follow); got != nil {
			t.Errorf("got %v", got)
		}
	})
}

// TestEachRangeReadsAnew: a sequence remembers nothing of an earlier loop over it.
func TestEachRangeReadsAnew(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := d.add(ints(2)...)
		stream := caller.Job(id).Stream(t.Context())
		recent := caller.Job(id).Stream(t.Context(), harp.Recent(1))
		if got := seqs(t, stream); !slices.Equal(got, numbers(0, 2)) {
			t.Errorf("got %v", got)
		}
		if got := seqs(t, recent); !slices.Equal(got, numbers(1, 2)) {
			t.Errorf("got %v", got)
		}
		d.emit(id, 2)
		if got := seqs(t, stream); !slices.Equal(got, numbers(0, 3)) {
			t.Errorf("got %v", got)
		}
		if got := seqs(t, recent); !slices.Equal(got, numbers(2, 3)) {
			t.Errorf("got %v", got)
		}
	})
}

// TestBreak: leaving a loop frees everything at once, though the job goes on.
func TestBreak(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		for range 20 {
			id := d.add(ints(3)...)
			for _, err := range caller.Job(id).Follow(t.Context(), harp.Since(0)) {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}
		d.until(func() bool { return d.waiting == 0 })
	})
}

// TestUnread: a Follow that is not read costs one page ahead, if there is one, and no more.
func TestUnread(t *testing.T) {
	inMemory(t, func(t *testing.T, f *front) {
		f.desk.pageSize = 2
		id := f.desk.add(ints(20)...)
		caller := f.dial()
		defer caller.Close()
		next, stop := iter.Pull2(caller.Job(id).Follow(t.Context(), harp.Since(0)))
		defer stop()
		for i := range uint64(20) {
			r, err, ok := next()
			if err != nil || !ok || r.Seq != i {
				t.Fatal(r, err, ok)
			}
			time.Sleep(time.Minute)
			if got, want := f.desk.count("Records"), min(int(i)/2+2, 10); got != want {
				t.Fatalf("at record %d: %d pages were asked for, want %d", i, got, want)
			}
		}
	})
}

// TestFollowErrors: an error is the last thing a sequence yields, and says which job
// it is about.
func TestFollowErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.pageSize = 1
		unknown := harp.NewID()
		for _, seq := range []iter.Seq2[harp.Record, error]{caller.Job(unknown).Stream(t.Context()), caller.Job(unknown).Follow(t.Context())} {
			n := 0
			for _, err := range seq {
				if n++; !errors.Is(err, harp.ErrNotFound) || harp.RanOf(err) != harp.MayHaveRun {
					t.Errorf("%v, %s", err, harp.RanOf(err))
				}
			}
			if n != 1 {
				t.Errorf("%d things were yielded", n)
			}
		}
		id := d.add(ints(2)...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		n := 0
		for _, err := range caller.Job(id).Follow(ctx, harp.Since(0)) {
			if n++; err == nil && n == 2 {
				cancel()
			}
			last = err
		}
		if n != 3 || !errors.Is(last, context.Canceled) {
			t.Errorf("%d things, the last %v", n, last)
		}
		cause := errors.New("enough")
		ctx2, cancel2 := context.WithCancelCause(t.Context())
		cancel2(cause)
		for _, err := range caller.Job(id).Stream(ctx2) {
			if err != nil && !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// TestDecodeRecords: typed records are those of kind data.
func TestDecodeRecords(t *testing.T) {
	type line struct{ N int }
	records := func(yield func(harp.Record, error) bool) {
		_ = yield(harp.Record{Kind: harp.KindStdout, Value: must(harp.NewValue("text"))}, nil) &&
			yield(harp.Record{Kind: harp.KindData, Value: must(harp.NewValue(line{1}))}, nil) &&
			yield(harp.Record{Kind: harp.KindData, Value: must(harp.NewValue(line{2}))}, nil) &&
			yield(harp.Record{}, harp.ErrClosed)
	}
	var got []line
	var last error
	for l, err := range harp.Decode[line](records) {
		if last = err; err == nil {
			got = append(got, l)
		}
	}
	if !reflect.DeepEqual(got, []line{{1}, {2}}) || !errors.Is(last, harp.ErrClosed) {
		t.Error(got, last)
	}
	n := 0
	for _, err := range harp.Decode[int](records) {
		if n++; !errors.Is(err, harp.ErrInvalid) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d things were yielded", n)
	}
	for _, err := range harp.Decode[line](records) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}

// TestProc: a typed procedure calls, gets and follows with its own types, and refuses
// a job that is not its own.
func TestProc(t *testing.T) {
	type args struct {
		To int `json:"to"`
	}
	count := harp.NewStreamProc[args, int, string]("count", "Count.", "Slowly.")
	if count.Doc != "Count.\nSlowly." {
		t.Errorf("%q", count.Doc)
	}
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		job, err := count.Call(t.Context(), caller.Host("web01"), args{3})
		if err != nil {
			t.Fatal(err)
		}
		d.emit(job.ID(), 1, 2)
		d.end(job.ID(), harp.Result{State: harp.StateSucceeded, Value: must(harp.NewValue("done"))})
		var got []int
		for n, err := range count.Follow(t.Context(), job, harp.Since(0)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, []int{1, 2}) {
			t.Errorf("got %v", got)
		}
		if text, err := count.Get(t.Context(), job); err != nil || text != "done" {
			t.Error(text, err)
		}
		if status, err := job.Status(t.Context()); err != nil || status.Args.String() != `{"to":3}` {
			t.Error(status.Args, err)
		}
		if _, err := harp.NewProc[args, string]("other").Get(t.Context(), job); !errors.Is(err, harp.ErrInvalid) || harp.RanOf(err) != harp.MayHaveRun {
			t.Error(err)
		}
		if _, err := harp.Get[int](t.Context(), job); !errors.Is(err, harp.ErrInvalid) || harp.RanOf(err) != harp.DidRun {
			t.Error(err, harp.RanOf(err))
		}
		if _, err := harp.NewProc[args, string]("other").Get(t.Context(), caller.Job(harp.NewID())); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
	})
}
