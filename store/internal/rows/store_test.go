package rows

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestGroup checks that what arrives during a commit is the next one, and that all
// of it is answered by it.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTrial()
		s := opened(t, e, Options{})
		e.onCommit = func([]Write) error {
			time.Sleep(time.Second)
			return nil
		}
		begun := time.Now()
		var callers sync.WaitGroup
		took := make([]time.Duration, 100)
		for i := range took {
			callers.Go(func() {
				submitted(t, s, call("h"))
				took[i] = time.Since(begun)
			})
		}
		callers.Wait()
		if n := len(e.commits) - 1; n > 3 { // but that which made the store
			t.Errorf("%d commits for 100 callers at once", n)
		}
		if slowest := slices.Max(took); slowest > 3*time.Second {
			t.Errorf("the last was answered after %v", slowest)
		}
	})
}

// TestGroupSize checks that no commit is larger than an engine has to take, and
// that one operation is never in two.
func TestGroupSize(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			c := call("h")
			c.Request.Request = make([]byte, 700_000)
			submitted(t, s, c)
		})
	}
	callers.Wait()
	for _, writes := range e.commits {
		size, calls, requests := 0, 0, 0
		for _, w := range writes {
			size += len(w.Key) + len(w.Value) + WriteCost
			switch w.Key[0] {
			case prefixCall:
				calls++
			case prefixRequest:
				requests++
			}
		}
		if size > MaxCommit || calls != requests {
			t.Errorf("a commit of %d bytes, at most %d, has %d jobs and %d requests", size, MaxCommit, calls, requests)
		}
	}
}

// TestPoisoned checks that after a failed commit nothing is done any more, nobody
// was told that it was, and opening anew finds what was committed before.
func TestPoisoned(t *testing.T) {
	e := newTrial()
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := submitted(t, s, call("h"))[0]
	broken := errors.New("broken")
	e.onCommit = func([]Write) error { return broken }
	bad := call("h")
	awaited := make(chan error, 1)
	go func() { awaited <- s.AwaitFailure(t.Context()) }()
	_, err = s.Submit(t.Context(), []store.Submission{bad}, noon)
	if !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, broken) {
		t.Fatalf("the failed commit: %v, want ErrPoisoned and why", err)
	}
	if err := <-awaited; !errors.Is(err, store.ErrPoisoned) || !errors.Is(err, broken) {
		t.Fatalf("who awaits a failure is told %v, want ErrPoisoned and why", err)
	}
	e.onCommit = nil
	for name, err := range everything(t.Context(), s, good.ID) {
		if !errors.Is(err, store.ErrPoisoned) {
			t.Errorf("%s afterwards: %v, want ErrPoisoned", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, e, Options{})
	if _, err := s.Job(t.Context(), good.ID); err != nil {
		t.Errorf("the job from before: %v", err)
	}
	if _, err := s.Job(t.Context(), bad.Job.ID); !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("the job that failed: %v", err)
	}
}

func everything(ctx context.Context, s *Store, id string) map[string]error {
	errs := map[string]error{}
	_, errs["Submit"] = s.Submit(ctx, nil, noon)
	_, errs["Claim"] = s.Claim(ctx, []string{"h"}, 1, noon)
	errs["Wake"] = s.Wake(ctx, "h", noon)
	_, errs["Apply"] = s.Apply(ctx)
	_, errs["Advance"] = s.Advance(ctx, noon)
	_, errs["Job"] = s.Job(ctx, id)
	_, errs["Request"] = s.Request(ctx, id)
	_, errs["Value"] = s.Value(ctx, id)
	_, errs["Active"] = s.Active(ctx, "")
	_, errs["List"] = s.List(ctx, store.Filter{}, "")
	_, errs["Append"] = s.Append(ctx, store.Append{ID: id})
	_, errs["Read"] = s.Read(ctx, id, 0, store.ReadLimit{Bytes: 1})
	_, errs["Queue"] = s.Queue(ctx, harp.Value{0x80})
	_, _, errs["ListQueues"] = s.ListQueues(ctx, "", 1)
	_, errs["CancelQueue"] = s.CancelQueue(ctx, harp.Value{0x80}, store.Operation{})
	_, errs["OpenSession"] = s.OpenSession(ctx, store.Session{Host: "h"})
	errs["PutHost"] = s.PutHost(ctx, store.Host{Name: "h"})
	_, errs["Host"] = s.Host(ctx, "h")
	_, _, errs["ListHosts"] = s.ListHosts(ctx, "", 1)
	_, errs["Document"] = s.Document(ctx, "k", "n")
	errs["PutDocument"] = s.PutDocument(ctx, "k", "n", nil)
	_, _, errs["ListDocuments"] = s.ListDocuments(ctx, "k", "", 1)
	_, errs["ChangeDocuments"] = s.ChangeDocuments(ctx, store.DocumentChanges{Changes: []store.DocumentChange{{Kind: "k", Name: "m", New: []byte{1}}}})
	_, errs["ChangeDocuments/delete"] = s.ChangeDocuments(ctx, store.DocumentChanges{Changes: []store.DocumentChange{{Kind: "k", Name: "o"}}})
	_, _, errs["DocumentsChanged"] = s.DocumentsChanged(ctx, store.Operation{ID: harp.NewID()})
	_, errs["StepSchedule"] = s.StepSchedule(ctx, store.ScheduleStep{Name: "s", Document: []byte{1}}, noon)
	_, errs["StepSchedule/entry"] = s.StepSchedule(ctx, store.ScheduleStep{Name: "t", Entry: &harp.LedgerEntry{Kind: harp.LedgerTime}}, noon)
	_, errs["StepSchedule/state"] = s.StepSchedule(ctx, store.ScheduleStep{Name: "u"}, noon)
	_, errs["StepSchedule/delete"] = s.StepSchedule(ctx, store.ScheduleStep{Name: "v", Delete: true}, noon)
	_, errs["Schedule"] = s.Schedule(ctx, "s")
	_, _, errs["ListSchedules"] = s.ListSchedules(ctx, "", 1)
	_, errs["ScheduleLedger"] = s.ScheduleLedger(ctx, harp.LedgerFilter{}, "")
	errs["AppendEvents"] = s.AppendEvents(ctx, harp.Event{Type: harp.EventHostForgot})
	_, errs["Events"] = s.Events(ctx, harp.EventFilter{}, 1)
	_, errs["Prune"] = s.Prune(ctx, store.Retention{}, noon)
	errs["Compact"] = s.Compact(ctx)
	_, errs["Size"] = s.Size()
	errs["Backup"] = s.Backup(ctx, io.Discard)
	return errs
}

// TestHalfAnOperation checks that an operation which fails after its first write is
// not committed, nor what was grouped with it.
func TestHalfAnOperation(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	commits := len(e.commits)
	err := s.do(t.Context(), SpacePlenty, func(tx *tx) error {
		tx.put([]byte("key"), []byte("half"))
		return errors.New("broken")
	})
	if !errors.Is(err, store.ErrPoisoned) || len(e.commits) != commits {
		t.Fatalf("%v after %d commits, want ErrPoisoned and none", err, len(e.commits)-commits)
	}
}

// TestRefusedOperation checks that one that fails before its first write harms
// nobody.
func TestRefusedOperation(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	broken := errors.New("broken")
	if err := s.do(t.Context(), SpacePlenty, func(*tx) error { return broken }); err != broken { //nolint:errorlint // itself
		t.Fatal(err)
	}
	submitted(t, s, call("h"))
}

// TestOtherFormat refuses stores that other versions have written, and their backups.
func TestOtherFormat(t *testing.T) {
	for version, use := range map[int]string{formatVersion - 1: "an older one", formatVersion + 1: "a newer one"} {
		e := newTrial()
		s, err := Open(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		e.poke(keyFormat, func(key, _ []byte) []byte {
			first, _ := split(key, encode(formatRow{Version: version, ID: "x"}))
			return first
		})
		says := func(err error) bool {
			return err != nil && strings.Contains(err.Error(), fmt.Sprint("version ", version)) && strings.HasSuffix(err.Error(), use)
		}
		if _, err = Open(e, Options{}); !says(err) {
			t.Errorf("opening format %d: %v", version, err)
		}
		if e.closed != 2 {
			t.Errorf("the engine was closed %d times, want 2: a failed Open owns it too", e.closed)
		}
		var backup bytes.Buffer
		backup.WriteString(backupTitle)
		out := &frameWriter{ctx: t.Context(), w: &backup}
		if err := out.frame(frameHead, encode(headRow{Store: "x", Format: version})); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(newTrial(), &backup, noon, Options{}); !says(err) {
			t.Errorf("a backup of format %d: %v", version, err)
		}
	}
}

func TestForeign(t *testing.T) {
	e := newTrial()
	if err := e.Commit([]Write{{[]byte("somebody's"), []byte("value")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(e, Options{}); err == nil {
		t.Fatal("a database of somebody else was taken for a new store")
	}
}

// TestDamagedRows changes what is stored: reading it is ErrDamaged, opening with it
// is refused if it is needed, and others are not touched.
func TestDamagedRows(t *testing.T) {
	flip := func(_, value []byte) []byte {
		value[len(value)-1] ^= 1
		return value
	}
	for _, prefix := range []byte{prefixCall, prefixLife} {
		e := newTrial()
		s, err := Open(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		j, other := submitted(t, s, call("h"))[0], submitted(t, s, call("h"))[0]
		i, _ := parseID(j.ID)
		e.poke(i.key(prefix), flip)
		s.unlearn()
		if _, err := s.Job(t.Context(), j.ID); !errors.Is(err, ErrDamaged) {
			t.Errorf("%c: reading it: %v", prefix, err)
		}
		s.SetGate("h", store.Gate{Open: true, Most: 5})
		got, err := s.Claim(t.Context(), []string{"h"}, 5, noon)
		if err != nil || len(got) != 1 || got[0].ID != other.ID {
			t.Errorf("%c: claimed %d, %v", prefix, len(got), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(e, Options{}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), j.ID) {
			t.Errorf("%c: opening: %v, want ErrDamaged naming the job", prefix, err)
		}
	}
}

// TestMissingRecords checks that a chunk that is gone is noticed, be it the last, and keeps nobody from those before it.
func TestMissingRecords(t *testing.T) {
	for gone := range uint64(3) {
		e := newTrial()
		s := opened(t, e, Options{})
		j := started(t, s)
		for i := range 3 {
			if _, err := s.Append(t.Context(), store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(i), Records: []harp.Record{{}}}); err != nil {
				t.Fatal(err)
			}
		}
		i, _ := parseID(j.ID)
		e.poke(i.recordsKey(1, gone), func(_, _ []byte) []byte { return nil })
		if next, err := readOn(t, s, j.ID, 0); !errors.Is(err, ErrDamaged) || next != gone {
			t.Errorf("reading where chunk %d was: %v at %d", gone, err, next)
		}
	}
}

// TestMaxStored checks that a job stores so many bytes of records, then one that
// says so, and counts the rest.
func TestMaxStored(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{MaxStored: 1000})
	j := started(t, s)
	a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence}
	for range 5 {
		a.Records = append(a.Records, harp.Record{Kind: harp.KindStdout, Value: make(harp.Value, 300), Time: noon})
	}
	got, err := s.Append(t.Context(), a)
	if err != nil || got.Records != 5 || !got.Full || got.Stored > 1000 {
		t.Fatalf("it has %d records, %d bytes, full %v: %v", got.Records, got.Stored, got.Full, err)
	}
	a.First = 5
	if got, err = s.Append(t.Context(), a); err != nil || got.Records != 10 {
		t.Fatalf("it has %d records: %v", got.Records, err)
	}
	records, err := s.Read(t.Context(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20})
	if err != nil || len(records) != 4 {
		t.Fatalf("%d records are stored, want 3 and one more: %v", len(records), err)
	}
	last := records[3]
	if last.Seq != 3 || last.Truncated != 300 || len(last.Value) != 0 || records[2].Truncated != 0 {
		t.Errorf("the last stored record is %+v", last)
	}
	if records, err = s.Read(t.Context(), j.ID, 4, store.ReadLimit{Bytes: 1 << 20}); err != nil || len(records) != 0 {
		t.Errorf("behind it there are %d records, %v", len(records), err)
	}
	if n := e.count(prefixRecords); n != 1 {
		t.Errorf("%d chunks are stored, want 1", n)
	}
}

// TestMissingBeyondMaxStored checks that it is told that records are missing though the job
// stores no more of them.
func TestMissingBeyondMaxStored(t *testing.T) {
	s := opened(t, newTrial(), Options{MaxStored: 100})
	j := started(t, s)
	a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Arrived: noon}
	line := []harp.Record{{Kind: harp.KindStdout, Value: make(harp.Value, 65), Time: noon}}
	for _, more := range []store.Append{{Records: line}, {Missing: 10}, {Records: line}} {
		a.Records, a.Missing = more.Records, more.Missing
		got, err := s.Append(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		a.First = got.Records
	}
	got, err := s.Read(t.Context(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20})
	if err != nil || len(got) != 3 || got[1].Missing != 10 || got[2].Seq != 11 || got[2].Truncated != 65 {
		t.Errorf("it has %+v, %v", got, err)
	}
}

// TestReadAttempts reads the records of several attempts as one stream. Only a
// retry makes a second attempt, so the rows are written by hand.
func TestReadAttempts(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	j := started(t, s).Clone()
	var want []harp.Record
	j.Attempts = nil
	for number, n := range []int{3, 0, 2, 4} {
		j.Attempts = append(j.Attempts, store.Attempt{Number: number + 1, Base: uint64(len(want)), Next: uint64(n)})
		for range n {
			seq := uint64(len(want))
			want = append(want, harp.Record{Seq: seq, Attempt: number + 1, Value: harp.Value{byte(seq)}})
		}
	}
	i, _ := parseID(j.ID)
	err := s.do(t.Context(), SpacePlenty, func(tx *tx) error {
		before, err := readJob(tx, i)
		if err != nil {
			return err
		}
		for _, a := range j.Attempts {
			for n := range a.Next {
				tx.put(i.recordsKey(a.Number, n), encodeChunk(want[a.Base+n:][:1], noon))
			}
		}
		return s.change(tx, i, before, j)
	})
	if err != nil {
		t.Fatal(err)
	}
	for from := range len(want) + 2 {
		got, err := s.Read(t.Context(), j.ID, uint64(from), store.ReadLimit{Bytes: 1 << 20})
		if err != nil || !slices.EqualFunc(got, want[min(from, len(want)):], func(a, b harp.Record) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("from %d there are %+v, %v", from, got, err)
		}
	}
}

// TestMarks checks that a second cancel of a queue does not change whom and when
// the first one names.
func TestMarks(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	s.SetGate("h", store.Gate{Open: true, Most: 5})
	q := harp.Value{0x80}
	submitQ := func() *store.Job {
		c := call("h")
		c.Job.Queue = q
		return submitted(t, s, c)[0]
	}
	var jobs [2][]*store.Job
	for round := range 2 {
		jobs[round] = []*store.Job{submitQ(), submitQ()}
		by := store.Operation{By: harp.Principal{Name: fmt.Sprint(round)}, Time: noon.Add(time.Duration(round) * time.Second)}
		if _, err := s.CancelQueue(t.Context(), q, by); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for round := range 2 {
			for _, j := range jobs[round] {
				got, err := s.Job(t.Context(), j.ID)
				if err != nil || got.Cancel == nil || got.Cancel.By.Name != fmt.Sprint(round) {
					t.Errorf("job of round %d: %+v, %v", round, got.Cancel, err)
				}
			}
		}
	}
	check()
	if _, err := s.Advance(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	check()
	// The mark goes with the last job that it covers, though the queue stays.
	later := submitQ()
	applied(t, s, about(jobs[0][0], store.End))
	if e.count(prefixMarked) != 0 || e.count(prefixQueue) != 1 {
		t.Errorf("%d marks and %d queues are left, want 0 and 1", e.count(prefixMarked), e.count(prefixQueue))
	}
	if got, err := s.Job(t.Context(), later.ID); err != nil || got.State != harp.StateSent {
		t.Errorf("the job from after: %s, %v", got.State, err)
	}
}

// TestCloseWaits checks that Close waits for the reading that is under way.
func TestCloseWaits(t *testing.T) {
	e := newTrial()
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := submitted(t, s, call("h"))[0]
	s.unlearn()
	reading := make(chan struct{})
	var once sync.Once
	e.onGet = func(_, _ []byte) error {
		once.Do(func() { close(reading) })
		<-s.closing
		if e.closed > 0 {
			t.Error("the engine was closed under a reader")
		}
		return nil
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		if _, err := s.Job(t.Context(), j.ID); err != nil {
			t.Error(err)
		}
	})
	<-reading
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
}

// TestReopenMany checks that opening reads only what has not ended.
func TestReopenMany(t *testing.T) {
	e := newTrial()
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	for range 20 {
		var calls []store.Submission
		for range 100 {
			calls = append(calls, call("h"))
		}
		var ts []store.Transition
		for _, j := range submitted(t, s, calls...) {
			ts = append(ts, about(j, store.End))
		}
		applied(t, s, ts...)
	}
	submitted(t, s, call("away"), call("h"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reads := 0
	e.onGet = func(key, _ []byte) error {
		reads++
		return nil
	}
	opened(t, e, Options{})
	if reads > 10 {
		t.Errorf("opening read %d rows; two jobs have not ended", reads)
	}
}

// TestNumberIsKept checks that a submit number is never given twice, though the
// jobs that had it may be deleted.
func TestNumberIsKept(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	last := submitted(t, s, call("h"), call("h"))[1]
	value, err := func() ([]byte, error) {
		snap, err := e.View()
		if err != nil {
			return nil, err
		}
		payload, _, err := loadValue(keyNumber, snap.Get)
		return payload, err
	}()
	if err != nil || binary.BigEndian.Uint64(value) != last.No {
		t.Fatalf("stored number %x, want %d: %v", value, last.No, err)
	}
}

// TestBoundedOperations checks that what is too much for one commit is refused
// before anything is done.
func TestBoundedOperations(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	j := started(t, s)
	big := bytes.Repeat([]byte{1}, maxOp+1)
	c := call("h")
	c.Request.Request = big
	_, submit := s.Submit(t.Context(), []store.Submission{c}, noon)
	end := about(j, store.End)
	end.Event.Value = big
	_, apply := s.Apply(t.Context(), end)
	_, records := s.Append(t.Context(), store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Records: []harp.Record{{Value: big}}})
	for name, err := range map[string]error{"submit": submit, "apply": apply, "append": records} {
		if !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	applied(t, s, about(j, store.End))
}
