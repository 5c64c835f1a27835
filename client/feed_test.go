package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

// hosted are n events, of hosts h0 and h1 in turn.
func hosted(n int) []harp.Event {
	events := make([]harp.Event, n)
	for i := range events {
		events[i] = harp.Event{Time: time.Unix(1, 0).UTC(), Type: harp.EventHostOnline, Host: fmt.Sprintf("h%d", i%2)}
	}
	return events
}

// cursors reads n events and returns their cursors; each must come after the one
// before.
func cursors(t testing.TB, caller *harp.Caller, f harp.EventFilter, n int) []int {
	t.Helper()
	var got []int
	for e, err := range caller.Events(t.Context(), f) {
		if err != nil {
			t.Error(err)
			break
		}
		i, err := strconv.Atoi(e.Cursor)
		if err != nil {
			t.Error(err)
		}
		if got = append(got, i); len(got) == n {
			break
		}
	}
	return got
}

func counted(from, to int) []int {
	var all []int
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

// TestEvents: the feed is read from the beginning, from a cursor or from now, page by
// page, as far as the filter says, and then it waits for what comes.
func TestEvents(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.pageSize = 3
		d.note(hosted(8)...)
		if got := cursors(t, caller, harp.EventFilter{After: harp.EventsFromStart}, 8); !slices.Equal(got, counted(1, 8)) {
			t.Error(got)
		}
		if got := cursors(t, caller, harp.EventFilter{After: "6"}, 2); !slices.Equal(got, counted(7, 8)) {
			t.Error(got)
		}
		if got := cursors(t, caller, harp.EventFilter{After: "1", Host: "h0", Types: []string{"job.*", "host.*"}}, 3); !slices.Equal(got, []int{3, 5, 7}) {
			t.Error(got)
		}
		go func() {
			d.until(func() bool { return d.waiting == 1 })
			d.note(harp.Event{Type: harp.EventJobLost, Job: "j"})
			d.note(hosted(2)...)
		}()
		if got := cursors(t, caller, harp.EventFilter{Host: "h1"}, 1); !slices.Equal(got, []int{11}) {
			t.Error(got)
		}
		page, err := caller.EventsPage(t.Context(), harp.EventFilter{}, false)
		if err != nil || len(page.Events) != 0 || page.Cursor != "11" {
			t.Error(page, err)
		}
		for _, err := range caller.Events(t.Context(), harp.EventFilter{After: "x"}) {
			wantField(t, err, "after")
		}
		d.pruned(4)
		for _, err := range caller.Events(t.Context(), harp.EventFilter{After: "3"}) {
			if !errors.Is(err, harp.ErrPruned) {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			d.until(func() bool { return d.waiting == 1 })
			cancel()
		}()
		for _, err := range caller.Events(ctx, harp.EventFilter{}) {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

func (d *desk) pruned(before int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.feed.pruned = before
}

// TestEventsShareNothing: the filter that was given may be changed afterwards.
func TestEventsShareNothing(t *testing.T) {
	f := newFake()
	defer f.Close()
	f.note(harp.Event{Type: harp.EventJobLost}, harp.Event{Type: harp.EventHostAway})
	types := []string{"host.away"}
	events := harp.NewCaller(f).Events(t.Context(), harp.EventFilter{After: harp.EventsFromStart, Types: types})
	types[0] = "job.lost"
	for e, err := range events {
		if err != nil || e.Type != harp.EventHostAway {
			t.Error(e, err)
		}
		break
	}
}

// TestEventsThroughLosses: who follows the feed over connections that are lost again
// and again, and a dispatcher that restarts, sees every event once, in order, also
// those of the time while it was away; "from now" is the moment at which it began.
func TestEventsThroughLosses(t *testing.T) {
	const before, n = 5, 200
	for _, after := range []string{harp.EventsFromStart, harp.EventsFromNow} {
		t.Run("from "+after, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				f.desk.pageSize = 3
				f.desk.note(hosted(before)...)
				caller := f.dial()
				defer caller.Close()
				done := make(chan struct{})
				go func() {
					defer close(done)
					f.desk.until(func() bool { return f.desk.waiting == 1 })
					for i := range n {
						switch {
						case i%50 == 0:
							f.stop()
							time.Sleep(time.Hour)
						case i%50 == 30:
							f.open()
						case i%7 == 0:
							f.cut()
						}
						f.desk.note(hosted(1)...)
						time.Sleep(10 * time.Millisecond)
					}
				}()
				first := 1
				if after == harp.EventsFromNow {
					first = before + 1
				}
				want := counted(first, before+n)
				if got := cursors(t, caller, harp.EventFilter{After: after}, len(want)); !slices.Equal(got, want) {
					t.Errorf("got %v", got)
				}
				<-done
			})
		})
	}
}

// TestPageOfEvents: of a page that is too long for an answer the first events are
// sent, with the cursor of the last of them.
func TestPageOfEvents(t *testing.T) {
	events := hosted(wire.MaxRows + 10)
	for i := range events {
		events[i].Cursor = strconv.Itoa(i)
	}
	w := wire.NewEvents(harp.EventPage{Events: events, Cursor: "end"})
	if len(w.Events) != wire.MaxRows || w.Cursor != strconv.Itoa(wire.MaxRows-1) {
		t.Error(len(w.Events), w.Cursor)
	}
	if w = wire.NewEvents(harp.EventPage{Events: events[:3], Cursor: "end"}); len(w.Events) != 3 || w.Cursor != "end" {
		t.Error(len(w.Events), w.Cursor)
	}
}

// TestRetry: a job is made again with what its caller gave, without what was about
// that job alone, and the new one says whose repetition it is.
func TestRetry(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		job, err := caller.Host("web01").Call(t.Context(), "p", harp.Pos(1, "x"),
			harp.Queue(harp.Args{"q": 1}), harp.Concurrency(2), harp.Priority(3), harp.SilenceTimeout(time.Second), harp.MaxExecTime(harp.NoLimit), harp.OfflineWait(time.Minute),
			harp.WhenOffline(harp.FailFast), harp.Info("mine"), harp.Label("a", "b"), harp.Label("c", "d"), harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}}),
			harp.StartAfter(at), harp.StartBefore(at.Add(1)), harp.IdempotencyKey("k", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		first := d.jobs[job.ID()].request
		again, err := job.Retry(t.Context(), harp.Priority(4), harp.Label("a", "e"))
		if err != nil || again.ID() == job.ID() {
			t.Fatal(again, err)
		}
		want := first
		want.ID, want.RetryOf, want.Priority, want.Labels = again.ID(), job.ID(), 4, map[string]string{"a": "e", "c": "d"}
		want.StartAfter, want.StartBefore, want.IdempotencyKey, want.IdempotencyTTL = time.Time{}, time.Time{}, "", 0
		if got := d.jobs[again.ID()].request; !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v, want\n%+v", got, want)
		}
		id := harp.NewID()
		third, err := again.Retry(t.Context(), harp.JobID(id), harp.StartAfter(at), harp.IdempotencyKey("l", time.Second))
		if err != nil || third.ID() != id {
			t.Fatal(third, err)
		}
		if got := d.jobs[id].request; got.RetryOf != again.ID() || !got.StartAfter.Equal(at) || got.IdempotencyKey != "l" || got.Priority != 4 {
			t.Errorf("got %+v", got)
		}
		_, err = job.Retry(t.Context(), harp.Priority(101))
		wantField(t, err, "priority")
		if _, err := caller.Job(harp.NewID()).Retry(t.Context()); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		d.failing("Submit", failures.New("conflict", "the job has not ended").Err())
		if _, err := job.Retry(t.Context()); !errors.Is(err, harp.ErrConflict) || harp.RanOf(err) != harp.DidNotRun {
			t.Error(err)
		}
	})
}

// TestIdempotencyKey: the job of a call is that of its key's first call.
func TestIdempotencyKey(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *desk, caller *harp.Caller) {
		host := caller.Host("web01", harp.IdempotencyKey("k", time.Minute))
		first, err := host.Call(t.Context(), "p", nil)
		if err != nil {
			t.Fatal(err)
		}
		second, err := host.Call(t.Context(), "p", nil, harp.JobID(harp.NewID()))
		if err != nil || second.ID() != first.ID() {
			t.Error(second, err)
		}
	})
}

// TestForceLost: why a job is given up reaches the dispatcher.
func TestForceLost(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		id := d.add()
		if err := caller.Job(id).ForceLost(t.Context(), "the disk burned"); err != nil || d.feed.given[id] != "the disk burned" {
			t.Error(d.feed.given, err)
		}
		for _, why := range []string{"", "\xff", string(make([]byte, harp.MaxWhy+1))} {
			wantField(t, caller.Job(id).ForceLost(t.Context(), why), "why")
		}
		if err := caller.Job(harp.NewID()).ForceLost(t.Context(), "x"); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
		d.failing("ForceLost", failures.New("conflict", "the job is running").Err())
		if err := caller.Job(id).ForceLost(t.Context(), "x"); !errors.Is(err, harp.ErrConflict) {
			t.Error(err)
		}
	})
}

// TestChangeQueue: a queue is paused, unpaused and given another concurrency, one
// thing at a time.
func TestChangeQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		name := harp.Args{"n": "a"}
		d.queues = []harp.QueueStatus{{Name: must(harp.NewValue(name)), Concurrency: 1}}
		ctx, queues, until := t.Context(), caller.Queues(), time.Unix(5, 0).UTC()
		for _, err := range []error{queues.Pause(ctx, name, "disk", until), queues.SetConcurrency(ctx, name, 5), queues.Unpause(ctx, name)} {
			if err != nil {
				t.Error(err)
			}
		}
		want := []harp.QueueChange{{Paused: ptr(true), Reason: "disk", Until: until}, {Concurrency: ptr(5)}, {Paused: ptr(false)}}
		if !reflect.DeepEqual(d.feed.changes, want) {
			t.Errorf("got %+v", d.feed.changes)
		}
		wantField(t, queues.SetConcurrency(ctx, name, -1), "concurrency")
		wantField(t, queues.Pause(ctx, "a", "", time.Time{}), "queue")
		wantField(t, queues.Pause(ctx, name, strings.Repeat("r", harp.MaxWhy+1), time.Time{}), "reason")
		wantField(t, queues.Pause(ctx, name, "", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)), "until")
		wantField(t, queues.Unpause(ctx, nil), "queue")
		if err := queues.Unpause(ctx, harp.Args{"n": "b"}); !errors.Is(err, harp.ErrNotFound) {
			t.Error(err)
		}
	})
}

// TestChangesAreAskedAgain: what an operator asked for is asked again after a lost
// connection.
func TestChangesAreAskedAgain(t *testing.T) {
	for method, ask := range map[string]func(ctx context.Context, caller *harp.Caller, id string) error{
		"ForceLost": func(ctx context.Context, c *harp.Caller, id string) error { return c.Job(id).ForceLost(ctx, "x") },
		"ChangeQueue": func(ctx context.Context, c *harp.Caller, _ string) error {
			return c.Queues().Pause(ctx, harp.Args{}, "", time.Time{})
		},
		"Prune": func(ctx context.Context, c *harp.Caller, _ string) error {
			_, err := c.Prune(ctx, time.Unix(1, 0))
			return err
		},
		"RemoveHost": func(ctx context.Context, c *harp.Caller, _ string) error {
			_, err := c.Hosts().Remove(ctx, "h")
			return err
		},
		"PutWindow": func(ctx context.Context, c *harp.Caller, _ string) error {
			return c.Maintenance().Put(ctx, newWindow("w"))
		},
		"PutRetentionRule": func(ctx context.Context, c *harp.Caller, _ string) error {
			return c.Retention().Put(ctx, newRule("r"))
		},
		"DeleteRetentionRule": func(ctx context.Context, c *harp.Caller, _ string) error { return c.Retention().Delete(ctx, "r") },
		"ApplyDocuments": func(ctx context.Context, c *harp.Caller, _ string) error {
			_, err := c.Schedules().Apply(ctx, "ops", nil, harp.ApplyOptions{})
			return err
		},
		"ForgetDrift": func(ctx context.Context, c *harp.Caller, _ string) error {
			_, err := c.Hosts().ForgetDrift(ctx, "base")
			return err
		},
		"DeleteWindow": func(ctx context.Context, c *harp.Caller, _ string) error { return c.Maintenance().Delete(ctx, "w") },
		"EndWindow":    func(ctx context.Context, c *harp.Caller, _ string) error { return c.Maintenance().End(ctx, "w") },
		"PauseHosts": func(ctx context.Context, c *harp.Caller, _ string) error {
			_, err := c.Hosts().Pause(ctx, "*", "", time.Time{})
			return err
		},
		"JobRequest": func(ctx context.Context, c *harp.Caller, id string) error { _, err := c.Job(id).Retry(ctx); return err },
	} {
		t.Run(method, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				f.desk.hosts = []harp.HostStatus{{Name: "h"}}
				f.desk.queues = []harp.QueueStatus{{Name: must(harp.NewValue(harp.Args{}))}}
				caller := f.dial()
				defer caller.Close()
				release := f.desk.holding(method)
				go func() {
					f.desk.until(func() bool { return f.desk.asked[method] == 1 })
					f.cut()
					release()
				}()
				if err := ask(t.Context(), caller, f.desk.add()); err != nil || f.desk.count(method) != 2 {
					t.Error(err, f.desk.count(method))
				}
			})
		})
	}
}

// TestPrune: the time reaches the dispatcher, and the count the caller.
func TestPrune(t *testing.T) {
	at := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
		d.add()
		if n, err := caller.Prune(t.Context(), at); err != nil || n != 1 || !d.feed.before.Equal(at) {
			t.Error(n, err, d.feed.before)
		}
	})
}

// TestBackup: a backup of any size comes over every wiring byte for byte.
func TestBackup(t *testing.T) {
	for _, size := range []int{0, 1, wire.MaxChunk, wire.MaxChunk + 1, 10*wire.MaxChunk - 1} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			everywhere(t, func(t *testing.T, d *desk, caller *harp.Caller) {
				d.feed.copied = make([]byte, size)
				for i := range d.feed.copied {
					d.feed.copied[i] = byte(i % 251)
				}
				var got bytes.Buffer
				if err := caller.Backup(t.Context(), &got); err != nil || !bytes.Equal(got.Bytes(), d.feed.copied) {
					t.Error(err, got.Len())
				}
				if _, err := caller.Ping(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// failingWriter takes so many bytes, then does then, then fails.
type failingWriter struct {
	left int
	then func()
	err  error
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left > 0 {
		return len(b), nil
	}
	if w.then != nil {
		w.then()
	}
	return len(b), w.err
}

// TestBackupFails: a backup that is not whole is an error, whoever is to blame, and
// is not asked for again.
func TestBackupFails(t *testing.T) {
	full := errors.New("disk full")
	for _, c := range []struct {
		name string
		w    func(f *front, caller *harp.Caller, cancel context.CancelFunc) io.Writer
		is   error
	}{
		{"the writer", func(*front, *harp.Caller, context.CancelFunc) io.Writer {
			return &failingWriter{left: wire.MaxChunk, err: full}
		}, full},
		{"the connection", func(f *front, _ *harp.Caller, _ context.CancelFunc) io.Writer {
			return &failingWriter{left: wire.MaxChunk, then: f.cut}
		}, harp.ErrUnavailable},
		{"the caller", func(_ *front, _ *harp.Caller, cancel context.CancelFunc) io.Writer {
			return &failingWriter{left: wire.MaxChunk, then: cancel}
		}, context.Canceled},
		{"the end", func(_ *front, caller *harp.Caller, _ context.CancelFunc) io.Writer {
			return &failingWriter{left: wire.MaxChunk, then: func() { _ = caller.Close() }}
		}, harp.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, f *front) {
				f.desk.feed.copied = make([]byte, 100*wire.MaxChunk) // more than is read ahead
				caller := f.dial()
				defer caller.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := caller.Backup(ctx, c.w(f, caller, cancel))
				if !errors.Is(err, c.is) || f.desk.count("Backup") != 1 {
					t.Error(err, f.desk.count("Backup"))
				}
				synctest.Wait()
			})
		})
	}
	inMemory(t, func(t *testing.T, f *front) {
		f.desk.failing("Backup", failures.New("denied", "not you").Err())
		caller := f.dial()
		defer caller.Close()
		if err := caller.Backup(t.Context(), io.Discard); !errors.Is(err, harp.ErrDenied) {
			t.Error(err)
		}
		f.stop()
		synctest.Wait()
		start := time.Now()
		if err := caller.Backup(t.Context(), io.Discard); !errors.Is(err, harp.ErrUnavailable) || time.Since(start) > time.Minute {
			t.Error(err, time.Since(start))
		}
	})
}

// halfway is a Service whose backup ends with an error after some bytes.
type halfway struct{ *fake }

func (h halfway) Backup(_ context.Context, w io.Writer) error {
	if _, err := w.Write(make([]byte, 2*wire.MaxChunk+5)); err != nil {
		return err
	}
	return failures.New("unavailable", "the disk is gone").Err()
}

// TestBackupCutShort: an error that comes behind bytes is the backup's, and one that
// claims more bytes than came is none.
func TestBackupCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen("dispatcher:7440", dispatcherID)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			cfg := transport.ServeConfig{Logger: silent, Protocols: map[string]transport.Role{transport.ProtocolCall: transport.RoleCaller}}
			done <- transport.Serve(ctx, l, cfg, func(ctx context.Context, conn *transport.Conn) {
				_ = dispatcher.ServeCaller(ctx, conn, halfway{newFake()}, dispatcher.CallerConfig{Logger: silent})
			})
		}()
		caller, err := Dial(ctx, "dispatcher:7440", Config{Logger: silent, Dial: n.Dialer(callerID)})
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := caller.Backup(ctx, &got); !errors.Is(err, harp.ErrUnavailable) || err == nil {
			t.Error(err)
		}
		if err := caller.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := allCopied(wire.Encode(wire.Copied{Bytes: 7}), 6); err == nil {
		t.Error("a backup with a byte missing was taken")
	}
}
