package badger_test

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	// A step of the model costs a sync here; the rules themselves are tried many
	// times over the memory store.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	// Most of the time goes to waiting for the disk.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// Two goroutines of badger stay behind when it cannot open a damaged table.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"))
}

func quiet(o badger.Options) *badger.Options {
	o.Logger = slog.New(slog.DiscardHandler)
	o.Eager()
	return &o
}

func open(t testing.TB, dir string, o badger.Options) store.Store {
	t.Helper()
	st, err := badger.Open(dir, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStore(t *testing.T) {
	storetest.Test(t, func(t *testing.T) store.Store { return open(t, t.TempDir(), badger.Options{}) })
}

func TestReopen(t *testing.T) {
	storetest.Reopen(t, func(t *testing.T) func() (store.Store, error) {
		dir := t.TempDir()
		return func() (store.Store, error) { return badger.Open(dir, quiet(badger.Options{})) }
	})
}

// TestOpenAfterKill makes what a kill may leave behind: files without content.
func TestOpenAfterKill(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, badger.Options{})
	id := st.ID()
	j := submit(t, st, "h")
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00007.mem", "000009.vlog", "000001.vlog", "000900.sst"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	st = open(t, dir, badger.Options{})
	defer st.Close()
	if _, err := st.Job(t.Context(), j.ID); err != nil || st.ID() != id {
		t.Fatalf("after opening: id %s, want %s; job %v", st.ID(), id, err)
	}
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, badger.Options{})
	defer st.Close()
	if _, err := badger.Open(dir, quiet(badger.Options{})); !errors.Is(err, badger.ErrInUse) {
		t.Fatalf("opening again: %v, want ErrInUse", err)
	}
	submit(t, st, "h") // the first is not harmed
}

// TestSpace checks what the two lines refuse, and that it comes back with space.
func TestSpace(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	st := open(t, t.TempDir(), badger.Options{
		LowSpace: 400 << 20, CriticalSpace: 100 << 20, Ballast: -1,
		Disk: func(string) (uint64, uint64, error) { return free.Load(), 1 << 40, nil },
	})
	defer st.Close()
	ctx, now := t.Context(), time.Now()
	free.Store(400 << 20)
	st.SetGate("h", store.Gate{Open: true, Most: 10})
	running, waiting := submit(t, st, "h"), submit(t, st, "away")
	expiring := submission("away")
	expiring.Job.Expires = now.Add(time.Hour)
	if _, err := st.Submit(ctx, []store.Submission{expiring}, now); err != nil {
		t.Fatal(err)
	}
	records := store.Append{ID: running.ID, Attempt: 1, Fence: running.Fence, Records: []harp.Record{{}}}
	started := store.Event{Kind: store.Started, At: now, Attempt: 1, Fence: running.Fence}

	free.Store(399 << 20)
	_, err := st.Submit(ctx, []store.Submission{{Job: store.Job{ID: harp.NewID(), Host: "h"}}}, now)
	refused(t, "submit below the low line", err)
	if !errors.Is(err, harp.ErrRefused) {
		t.Errorf("%v is no ErrRefused", err)
	}
	if _, err := st.Append(ctx, records); err != nil {
		t.Errorf("records below the low line: %v", err)
	}

	free.Store(99 << 20)
	_, err = st.Append(ctx, store.Append{ID: running.ID, Attempt: 1, Fence: running.Fence, First: 1, Records: []harp.Record{{}}})
	refused(t, "records", err)
	_, err = st.Claim(ctx, []string{"h"}, 1, now)
	refused(t, "claim", err)
	if _, err = st.Advance(ctx, now); err != nil {
		t.Errorf("advance with nothing due: %v", err)
	}
	_, err = st.Advance(ctx, expiring.Job.Expires)
	refused(t, "advance", err)
	_, err = st.OpenSession(ctx, store.Session{Host: "h"})
	refused(t, "session", err)
	refused(t, "document", st.PutDocument(ctx, "k", "n", nil))
	changes, err := st.Apply(ctx,
		store.Transition{ID: running.ID, Event: started},
		store.Transition{ID: waiting.ID, Event: store.Event{Kind: store.CancelReq, At: now}})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "started", changes[0].Err)
	if changes[1].Err != nil || changes[1].Job.State != harp.StateCancelled {
		t.Errorf("cancel: %v, %s", changes[1].Err, changes[1].Job.State)
	}

	free.Store(400 << 20)
	submit(t, st, "h")
	changes, err = st.Apply(ctx, store.Transition{ID: running.ID, Event: started})
	if err != nil || changes[0].Err != nil {
		t.Errorf("started after space came back: %v %v", err, changes)
	}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, harp.ErrNoSpace) {
		t.Errorf("%s: %v, want ErrNoSpace", what, err)
	}
}

// TestGroups puts more into the store at once, from many sides, than one
// transaction takes.
func TestGroups(t *testing.T) {
	st := open(t, t.TempDir(), badger.Options{})
	defer st.Close()
	st.SetGate("h", store.Gate{Open: true, Most: 1000})
	big := bytes.Repeat([]byte{0xc0}, 2<<20)
	done := make(chan error)
	for i := range 24 {
		go func() {
			s := submission("h")
			s.Request.Request = big[:len(big)-i]
			out, err := st.Submit(t.Context(), []store.Submission{s}, time.Now())
			if err == nil {
				err = out[0].Err
			}
			if err != nil {
				done <- err
				return
			}
			j := out[0].Job
			changes, err := st.Apply(t.Context(), store.Transition{ID: j.ID, Event: store.Event{
				Kind: store.End, At: time.Now(), Attempt: j.Attempt, Fence: j.Fence, Value: big[:len(big)-i],
			}})
			if err == nil {
				err = changes[0].Err
			}
			if err == nil {
				_, err = st.Value(t.Context(), j.ID)
			}
			done <- err
		}()
	}
	for range 24 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	over := submission("h")
	over.Request.Request = bytes.Repeat([]byte{1}, 4<<20)
	if _, err := st.Submit(t.Context(), []store.Submission{over}, time.Now()); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("a submission of 4 MiB: %v, want ErrInvalid", err)
	}
	submit(t, st, "h")
}

func overwrite(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// compare checks what a store has, and closes it.
func compare(t *testing.T, st store.Store, want map[string]*store.Job) {
	t.Helper()
	for id, j := range want {
		if got, err := st.Job(t.Context(), id); err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("job %s came back as %+v, %v", id, got, err)
		}
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

func submission(host string) store.Submission {
	return store.Submission{
		Job:     store.Job{ID: harp.NewID(), Host: host, Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: time.Now()},
		Request: harp.Submission{Request: []byte("request")},
	}
}

func submit(t testing.TB, st store.Store, host string) *store.Job {
	t.Helper()
	out, err := st.Submit(t.Context(), []store.Submission{submission(host)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0].Job
}
