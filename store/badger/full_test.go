//go:build linux

package badger_test

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// smallDisk mounts a file system of so many MiB.
func smallDisk(t *testing.T, size int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		needs.Missing(t, "a file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk fills a real file system with records until they are refused. All that
// was acknowledged is there, cancels and deletes still work, and when there is space
// again all goes on, with the store open all the time.
func TestFullDisk(t *testing.T) {
	const size = 640
	dir := smallDisk(t, size)
	st := open(t, dir, badger.Options{LowSpace: 320 << 20, CriticalSpace: 256 << 20, MaxStored: 1 << 40})
	defer st.Close()
	ctx, now := t.Context(), time.Now()
	st.SetGate("h", store.Gate{Open: true, Most: 10_000})
	waiting := make([]store.Job, 1000)
	for n := range waiting {
		waiting[n] = submit(t, st, "away")
	}
	var ended []store.Job
	ended = append(ended, endedJob(t, st, now))
	j := submit(t, st, "h")
	kept := fillDisk(t, st, j)
	if kept < 100 {
		t.Fatalf("after %d MiB of records there is no space", kept)
	}
	if _, err := st.Submit(ctx, []store.Submission{submission("h")}, now); !errors.Is(err, harp.ErrNoSpace) {
		t.Fatalf("submitting to a full disk: %v", err)
	}
	if st.Space() != store.SpaceCritical {
		t.Fatalf("space is %s", st.Space())
	}
	for n := range waiting { // many, for each must fit
		changes, err := st.Apply(ctx, store.Transition{ID: waiting[n].ID, Event: store.Event{Kind: store.CancelReq, At: now}})
		if err != nil || changes[0].Err != nil {
			t.Fatalf("cancel %d on a full disk: %v %v", n, err, changes)
		}
	}
	did, err := st.Prune(ctx, store.Retention{EndedBefore: now.Add(1)}, now)
	if err != nil || did.Jobs < len(ended) {
		t.Fatalf("deleting on a full disk: %+v, %v", did, err)
	}
	records, err := st.Read(ctx, j.ID, uint64(kept-1), store.Most{Bytes: 10 << 20})
	if err != nil || len(records) != 1 {
		t.Fatalf("the last record that was acknowledged: %d, %v", len(records), err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%dm", 2*size)); err != nil {
		t.Fatal(err)
	}
	submit(t, st, "h")
	a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(kept), Records: []harp.Record{{}}, Arrived: now}
	if _, err := st.Append(ctx, a); err != nil {
		t.Fatalf("records after there is space: %v", err)
	}
	if st.Space() != store.SpacePlenty || ballastBlocks(dir) == 0 {
		t.Fatalf("space is %s, the ballast takes %d bytes", st.Space(), ballastBlocks(dir))
	}
}

// fillDisk appends records of 1 MiB until they are refused, and returns how many were
// not.
func fillDisk(t *testing.T, st store.Store, j store.Job) int {
	t.Helper()
	big := bytes.Repeat([]byte{7}, 1<<20)
	for n := 0; ; n++ {
		a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(n), Records: []harp.Record{{Value: big}}, Arrived: time.Now()}
		switch got, err := st.Append(t.Context(), a); {
		case errors.Is(err, harp.ErrNoSpace):
			return n
		case err != nil:
			t.Fatal(err)
		case got.Full:
			t.Fatalf("the job is full after %d records", n)
		}
	}
}

func endedJob(t *testing.T, st store.Store, at time.Time) store.Job {
	t.Helper()
	j := submit(t, st, "h")
	end := store.Event{Kind: store.End, At: at, Attempt: 1, Fence: j.Fence}
	changes, err := st.Apply(t.Context(), store.Transition{ID: j.ID, Event: end})
	if err != nil || changes[0].Err != nil {
		t.Fatal(err, changes)
	}
	return changes[0].Job
}
