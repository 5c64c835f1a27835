package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// Backup runs the rules of backups. Restore restores one into a new place, at a time,
// and opens what it has made there; with an error there is nothing to be opened.
func Backup(t *testing.T, open func(t *testing.T) store.Store, restore Restorer) {
	for _, c := range backing {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.rule, open(t))
			c.run(&restorer{world: w, restore: restore})
		})
	}
}

// Restorer restores a backup and opens the store.
type Restorer func(t *testing.T, r io.Reader, at time.Time) (store.Store, store.Restored, error)

type restorer struct {
	*world
	restore Restorer
}

type backupRule struct {
	name string
	rule string
	run  func(w *restorer)
}

var backing = []backupRule{
	{"backup/schedule", "a restored schedule is where it was, with its ledger, and knows when it was restored, and what was left of its backfill: what fired since the backup nobody knows, and nothing of the past is made up for", func(w *restorer) {
		w.put("s", minute(0))
		w.step(w.firing(w.schedule("s"), minute(1), "h"))
		state := w.schedule("s").ScheduleState
		state.Backfill = []time.Time{minute(-1)}
		w.step(store.ScheduleStep{Name: "s", Revision: 2, State: state})
		backup := w.backup()
		w.step(w.firing(w.schedule("s"), minute(2), "h")) // not in it
		w.pass(time.Hour)
		from := w.restored(backup)
		got := from.schedule("s")
		if string(got.Document) != "document of s" || !got.Through.Equal(minute(1)) || !got.Restored.Equal(from.now) || got.Backfill != nil || !slices.Equal(got.Lost, state.Backfill) || len(got.Runs) != 1 {
			w.Fatalf("it is %+v", got)
		}
		from.wantLedger(harp.LedgerFilter{}, "s fired 1-1 1")
		if b, err := from.st.Batch(w.ctx(), got.LastBatch); err != nil || !b.State.Ended() {
			w.Fatalf("its batch is %+v, %v", b, err)
		}
		from.step(from.firing(got, minute(90), "h"))
	}},
	{"backup/all", "a restored store has all that was there when its backup began, under a new id", func(w *restorer) {
		_, err := w.st.OpenSession(w.ctx(), store.Session{Host: "h", Journal: "j", Taken: 9, At: w.now})
		w.must(err)
		w.must(w.st.PutDocument(w.ctx(), "kind", "name", bytes.Repeat([]byte{3}, 200_000)))
		ended := w.ended(2000)
		gone := w.ended(1)
		w.pass(time.Minute)
		later := w.ended(1, emits(100_000))
		w.prune(store.Retention{EndedBefore: w.now})
		kept := w.submit(on("away"), under("k", w.now.Add(time.Hour)))
		w.apply(kept, store.CancelReq)
		backup := w.backup()
		w.ended(1) // not in it

		from := w.restored(backup)
		old, got := w.st, from.st
		if got.ID() == old.ID() || from.did.From != old.ID() || from.did.ID != got.ID() || from.did.Lost != 0 {
			w.Fatalf("restored %s as %s: %+v", old.ID(), got.ID(), from.did)
		}
		for _, j := range []*store.Job{later, kept} {
			w.sameJob(got, j.ID)
		}
		from.gone(ended)
		from.gone(gone)
		page, err := got.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		w.ids(page.Jobs, kept, later)
		if again := from.sameAs(kept); again.New || again.Job.ID != kept.ID {
			w.Fatalf("an idempotency key answers %+v", again)
		}
		host, err := got.Host(w.ctx(), "h")
		w.must(err)
		if host.Epoch != 1 || host.Journal != "j" || host.Taken != 0 {
			w.Fatalf("the host is %+v", host)
		}
		if doc, err := got.Document(w.ctx(), "kind", "name"); err != nil || len(doc) != 200_000 {
			w.Fatalf("the document has %d bytes, %v", len(doc), err)
		}
		next := from.submit()
		if next.No != kept.No+1 {
			w.Fatalf("the next job is number %d after %d", next.No, kept.No)
		}
	}},
	{"backup/lost", "every job that had not ended is lost(restored), but those that a queue's cancel has ended", func(w *restorer) {
		w.gate("h")
		queued, sent, running := w.submit(on("away")), w.submit(), w.running()
		cancelling, silent, ended := w.running(), w.running(), w.ended(1)
		w.apply(cancelling, store.CancelReq)
		w.apply(silent, store.Silent)
		q := queue("cancelled")
		marked, active := w.submit(on("away"), in(q), slots(5)), w.running(in(q))
		w.cancelQueue(q)
		backup := w.backup()
		w.pass(time.Hour)
		got := w.restored(backup)
		for _, j := range []*store.Job{queued, sent, running, cancelling, silent, active} {
			if now := got.state(j, harp.StateLost); now.Reason != harp.LostRestored || now.Started != harp.MayHaveRun || !now.EndTime.Equal(w.now) {
				w.Errorf("a job in %s is %s(%s) %s at %v", j.State, now.State, now.Reason, now.Started, now.EndTime)
			}
		}
		got.state(marked, harp.StateCancelled)
		got.state(ended, harp.StateSucceeded)
		if got.did.Lost != 6 {
			w.Errorf("%d jobs are said to be lost, want 6", got.did.Lost)
		}
		if jobs, err := got.st.Active(w.ctx(), ""); err != nil || len(jobs) > 0 {
			w.Errorf("%d jobs are active, %v", len(jobs), err)
		}
		_, err := got.st.Queue(w.ctx(), q)
		w.wants(err, harp.ErrNotFound)
	}},
	{"backup/events", "the feed goes on from the backup, and cursors of the store that was backed up are ErrPruned", func(w *restorer) {
		w.ended(1)
		j := w.running()
		all := w.events(harp.EventFilter{After: harp.EventsFromStart})
		cursor := w.cursor()
		got := w.restored(w.backup())
		after := got.events(harp.EventFilter{After: harp.EventsFromStart})
		if len(after) != len(all)+1 || after[len(all)].Type != harp.EventJobLost || after[len(all)].Job != j.ID {
			w.Fatalf("%d events became %d, the last of which is %+v", len(all), len(after), after[len(after)-1])
		}
		_, err := got.st.Events(w.ctx(), harp.EventFilter{After: cursor}, 1)
		w.wants(err, harp.ErrPruned)
	}},
	{"backup/snapshot", "a backup is of one moment, whatever is written meanwhile", func(w *restorer) {
		j := w.ended(2000)
		var buf bytes.Buffer
		once := false
		during := writerFunc(func(b []byte) (int, error) {
			if !once {
				once = true
				w.ended(1)
				w.prune(store.Retention{EndedBefore: w.now.Add(1)})
			}
			return buf.Write(b)
		})
		w.must(w.st.Backup(w.ctx(), during))
		got := w.restored(buf.Bytes())
		got.state(j, harp.StateSucceeded)
		page, err := got.st.List(w.ctx(), store.Filter{}, "")
		w.must(err)
		w.ids(page.Jobs, j)
	}},
	{"backup/cut", "what is cut short, changed anywhere or followed by something is refused", func(w *restorer) {
		w.running()
		backup := w.backup()
		for _, bad := range damages(backup) {
			if st, _, err := w.restore(w.T, bytes.NewReader(bad.bytes), w.now); err == nil {
				w.must(st.Close())
				w.Errorf("%s was restored", bad.what)
			}
		}
	}},
	{"backup/errors", "a writer's error and the end of a context are those of Backup", func(w *restorer) {
		w.ended(3000)
		full := errors.New("full")
		n := 0
		w.wants(w.st.Backup(w.ctx(), writerFunc(func(b []byte) (int, error) {
			if n += len(b); n > 1<<20 {
				return 0, full
			}
			return len(b), nil
		})), full)
		ctx, cancel := context.WithCancel(w.ctx())
		w.wants(w.st.Backup(ctx, writerFunc(func(b []byte) (int, error) {
			cancel()
			return len(b), nil
		})), context.Canceled)
	}},
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (w *world) backup() []byte {
	w.Helper()
	var buf bytes.Buffer
	w.must(w.st.Backup(w.ctx(), &buf))
	return buf.Bytes()
}

// restoredWorld is a restored store, beside the one that it came from.
type restoredWorld struct {
	*world
	did store.Restored
}

func (w *restorer) restored(backup []byte) *restoredWorld {
	w.Helper()
	st, did, err := w.restore(w.T, bytes.NewReader(backup), w.now)
	w.must(err)
	other := &world{T: w.T, st: st, now: w.now}
	w.Cleanup(func() { w.must(st.Close()) })
	return &restoredWorld{other, did}
}

// sameJob checks that another store shows a job as this one does.
func (w *restorer) sameJob(other store.Store, id string) {
	w.Helper()
	show := func(st store.Store) []any {
		j, err := st.Job(w.ctx(), id)
		w.must(err)
		request, err := st.Request(w.ctx(), id)
		w.must(err)
		value, err := st.Value(w.ctx(), id)
		w.must(err)
		records, err := st.Read(w.ctx(), id, 0, store.ReadLimit{Bytes: 1 << 30})
		w.must(err)
		return []any{j, request, value, records}
	}
	want, got := show(w.st), show(other)
	for n := range want {
		if !reflect.DeepEqual(got[n], want[n]) {
			w.Fatalf("a restored job has\n%.300s, want\n%.300s", fmt.Sprint(got[n]), fmt.Sprint(want[n]))
		}
	}
}

type damage struct {
	what  string
	bytes []byte
}

// damages are what can have happened to a backup, at a number of places.
func damages(backup []byte) []damage {
	out := []damage{
		{"nothing", nil},
		{"all but the last byte", backup[:len(backup)-1]},
		{"one byte more", append(bytes.Clone(backup), 0)},
		{"two backups", append(bytes.Clone(backup), backup...)},
	}
	const places = 40
	for n := range places {
		at := n * len(backup) / places
		flipped := bytes.Clone(backup)
		flipped[at] ^= 1
		out = append(out,
			damage{fmt.Sprintf("what was cut after %d bytes of %d", at, len(backup)), backup[:at]},
			damage{fmt.Sprintf("what was changed at %d of %d bytes", at, len(backup)), flipped})
	}
	return out
}
