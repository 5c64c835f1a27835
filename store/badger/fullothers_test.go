//go:build linux && !race

package badger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestFullDiskOfOthers fills disks with what is stored beside jobs that are called one by one: ledgers
// of schedules, documents as messages are, and batches with their logs. Whatever was acknowledged is there when the
// disk is full, when another has taken it to the last byte, and with room again, when all goes on.
func TestFullDiskOfOthers(t *testing.T) {
	disks := []disk{{"tmpfs", 256}}
	if os.Getenv(longEnv) != "" {
		disks = append(disks, disk{"ext4", 400}, disk{"tmpfs", 700}, disk{"ext4", 700}, disk{"tmpfs", 2048}, disk{"tmpfs", 4096})
	}
	for _, d := range disks {
		t.Run(d.String(), func(t *testing.T) {
			if inNamespace(t) {
				f := &fullDisk{t: t, dir: d.mount(t)}
				(&othersFull{fullDisk: f, ledgers: map[string]int{}, documents: map[string]bool{}, ends: map[string]int{}}).run()
			}
		})
	}
}

type othersFull struct {
	*fullDisk
	ledgers   map[string]int  // entries, by schedule
	documents map[string]bool // by name: whether it is there; false: it was deleted
	ends      map[string]int  // members that ended, by batch
}

func (f *othersFull) run() {
	t := f.t
	f.open()
	f.fill()
	entries, there, ends := 0, 0, 0
	for _, n := range f.ledgers {
		entries += n
	}
	for _, n := range f.ends {
		ends += n
	}
	for _, is := range f.documents {
		if is {
			there++
		}
	}
	t.Logf("full of %d entries of ledgers, %d documents, %d members of %d batches", entries, there, ends, len(f.ends))
	f.deleteDocuments(there / 10)
	f.check()
	f.close()
	rest := takeRest(t, f.dir)
	f.open()
	f.check()
	f.deleteDocuments(there / 10)
	f.cancelBatches()
	f.close()
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	f.open()
	f.check()
	f.deleteDocuments(there)
	for more := true; more; {
		did, err := f.st.Prune(t.Context(), store.Retention{EndedBefore: time.Now(), EventsBefore: time.Now()}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		more = did.More
	}
	if err := f.st.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.step("again", 0); err != nil {
		t.Fatal(err)
	}
	f.close()
}

// fill stores all of it at once, until nothing of any kind is taken.
func (f *othersFull) fill() {
	var workers sync.WaitGroup
	for w := range 6 {
		workers.Go(func() { f.until(func(n int) error { return f.step(fmt.Sprintf("schedule %d", w), n) }) })
		workers.Go(func() { f.until(func(n int) error { return f.document(fmt.Sprintf("%d %d", w, n), n) }) })
		workers.Go(func() { f.until(func(n int) error { return f.batch(w, n) }) })
	}
	workers.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

func (f *othersFull) until(do func(n int) error) {
	var err error
	for n := 0; err == nil; n++ {
		err = do(n)
	}
	f.wanted(err) //nolint:errcheck // it has told the test
}

// step adds an entry to a ledger.
func (f *othersFull) step(schedule string, n int) error {
	at := time.Unix(int64(1_700_000_000+60*n), 0)
	s := store.ScheduleStep{
		Name: schedule, Revision: uint64(n),
		State:  store.ScheduleState{Version: 1, ScheduleLife: store.ScheduleLife{Through: at}},
		Entry:  &harp.LedgerEntry{Kind: harp.LedgerTime, Outcome: harp.TimeSkipped, Detail: f.text(schedule, n, 4<<10), From: at, To: at, Count: 1, At: at},
		Events: []harp.Event{{Type: harp.EventScheduleSkipped, Schedule: schedule, Time: at}},
	}
	if n == 0 {
		s.Document = []byte("document of " + schedule)
	}
	if _, err := f.st.StepSchedule(f.t.Context(), s, time.Now()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledgers[schedule]++
	return nil
}

func (f *othersFull) text(of string, n, size int) string { return string(f.value(of, n, size)) }

// document puts a document, and with each fourth deletes the one before in the same commit.
func (f *othersFull) document(name string, n int) error {
	size := []int{300, 9 << 10, 70 << 10, 250 << 10}[n%4]
	c := store.DocumentChanges{Changes: []store.DocumentChange{{Kind: "message", Name: name, New: f.value(name, n, size)}}}
	before := ""
	if n%4 == 3 {
		var w int
		if _, err := fmt.Sscanf(name, "%d", &w); err != nil {
			return err
		}
		before = fmt.Sprintf("%d %d", w, n-1)
		c.Changes = append(c.Changes, store.DocumentChange{Kind: "message", Name: before, Old: f.value(before, n-1, 70<<10)})
	}
	if _, err := f.st.ChangeDocuments(f.t.Context(), c); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.documents[name] = true
	if before != "" {
		f.documents[before] = false
	}
	return nil
}

// batch submits a batch of many hosts and ends its members, so that its log grows.
func (f *othersFull) batch(w, n int) error {
	const hosts = 100
	b := store.BatchSubmission{
		Batch: store.Batch{
			ID: harp.NewID(), Target: "h*", Classes: []store.BatchClass{{SilenceTimeout: time.Minute}},
			Plan:   store.BatchPlan{Waves: []int{hosts}, Parallel: hosts, MaxPause: 24 * time.Hour},
			Member: store.Job{Procedure: "p", OfflineWait: harp.NoLimit, SubmitTime: time.Now(), Principal: harp.Principal{Kind: "caller", Name: "ada"}},
		},
		Request: harp.Submission{Request: []byte("request of all")},
	}
	for i := range hosts {
		name := fmt.Sprintf("h%d.%d.%d.%s", w, n, i, bytes.Repeat([]byte("x"), 100))
		b.Hosts = append(b.Hosts, store.BatchHost{Name: name})
		f.st.SetGate(name, store.Gate{Open: true, Most: 10})
	}
	copy(b.Digest[:], b.Batch.ID)
	if _, err := f.st.SubmitBatch(f.t.Context(), b, time.Now()); err != nil {
		return err
	}
	f.mu.Lock()
	f.ends[b.Batch.ID] = 0
	f.mu.Unlock()
	for {
		out, err := f.st.Advance(f.t.Context(), time.Now())
		if err != nil {
			return err
		}
		if err := f.end(out.Claimed); err != nil {
			return err
		}
		if len(out.Claimed) == 0 && !out.More {
			return nil
		}
	}
}

func (f *othersFull) end(jobs []*store.Job) error {
	for _, j := range jobs {
		changes, err := f.st.Apply(f.t.Context(), store.Transition{ID: j.ID, Event: store.Event{
			Kind: store.End, At: time.Now(), Attempt: 1, Fence: j.Fence, Value: f.value(j.ID, 0, 2<<10),
		}})
		if err = errors.Join(err, outcome(changes)); err != nil {
			return err
		}
		f.mu.Lock()
		f.ends[j.Batch]++
		f.mu.Unlock()
	}
	return nil
}

func (f *othersFull) deleteDocuments(n int) {
	f.t.Helper()
	for name, is := range f.documents {
		if n == 0 {
			return
		}
		if !is {
			continue
		}
		old, err := f.st.Document(f.t.Context(), "message", name)
		if err != nil {
			f.t.Fatal(err)
		}
		c := store.DocumentChanges{Changes: []store.DocumentChange{{Kind: "message", Name: name, Old: old}}}
		_, err = f.st.ChangeDocuments(f.t.Context(), c)
		for deadline := time.Now().Add(time.Minute); errors.Is(err, harp.ErrNoSpace) && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			_, err = f.st.ChangeDocuments(f.t.Context(), c) // what was in the logs was not in tables yet, which need their room
		}
		if err != nil {
			f.t.Fatalf("deleting on a full disk: %v", err)
		}
		f.documents[name] = false
		n--
	}
}

func (f *othersFull) cancelBatches() {
	f.t.Helper()
	for id := range f.ends {
		_, err := f.st.ChangeBatch(f.t.Context(), id, store.BatchEvent{Kind: store.BatchCancel, At: time.Now()}, store.Operation{})
		if err != nil && !errors.Is(err, store.ErrIllegal) {
			f.t.Fatalf("cancelling a batch on a full disk: %v", err)
		}
	}
}

// check looks for all that was acknowledged.
func (f *othersFull) check() {
	t := f.t
	t.Helper()
	for schedule, n := range f.ledgers {
		seen := 0
		for cursor := ""; ; {
			page, err := f.st.ScheduleLedger(t.Context(), harp.LedgerFilter{Schedule: schedule}, cursor)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Items {
				at := int(e.From.Unix()-1_700_000_000) / 60
				if e.Detail != f.text(schedule, at, 4<<10) {
					t.Fatalf("entry %d of %s is not what was stored", at, schedule)
				}
				seen++
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		if seen != n {
			t.Fatalf("the ledger of %s has %d entries of %d", schedule, seen, n)
		}
	}
	for name, is := range f.documents {
		content, err := f.st.Document(t.Context(), "message", name)
		if is != (err == nil) || err != nil && !errors.Is(err, harp.ErrNotFound) {
			t.Fatalf("document %s: %v", name, err)
		}
		if is && !bytes.HasPrefix(content, []byte(name+" ")) {
			t.Fatalf("document %s is not what was stored", name)
		}
	}
	for id, n := range f.ends {
		var ended []int
		for from := uint64(0); ; {
			log, err := f.st.BatchLog(t.Context(), id, from, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range log.Entries {
				if e.Kind == store.BatchMemberEnded {
					ended = append(ended, e.Index)
				}
			}
			if from = log.Next; from >= log.End {
				break
			}
		}
		slices.Sort(ended)
		if all := len(slices.Compact(slices.Clone(ended))); all < n || all != len(ended) {
			t.Fatalf("the log of batch %s tells of %d ends of %d, %d of them twice", id, all, n, len(ended)-all)
		}
	}
}
