package badger_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// childEnv names the directory that the test binary, started again, works in.
const childEnv = "HARP_TEST_STORE_CHILD"

// inChild is what else a child does, and childDisk the disk that it sees.
var (
	inChild   func(dir string, st store.Store)
	childDisk func(dir string) (free, total uint64, err error)
)

// child submits, records and finishes until it is killed, and says on its standard
// output what was acknowledged.
func child(dir string) {
	st, err := badger.Open(dir, quiet(badger.Options{Disk: childDisk}))
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	if inChild != nil {
		go inChild(dir, st)
	}
	st.SetGate("h", store.Gate{Open: true, Most: 1 << 20})
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	}
	say("open", st.ID())
	var workers sync.WaitGroup
	var poisoned atomic.Bool
	for range 8 {
		workers.Go(func() {
			var err error
			for err == nil {
				err = work(st, say)
			}
			if !errors.Is(err, store.ErrPoisoned) {
				say("failed", err)
				return
			}
			poisoned.Store(true)
			say("poisoned", err)
			if err := work(st, say); !errors.Is(err, store.ErrPoisoned) {
				say("failed", "after that:", err)
			}
		})
	}
	workers.Wait()
	if poisoned.Load() {
		say("poisoned", st.Close())
	}
}

// work takes one job through its life.
func work(st store.Store, say func(words ...any)) error {
	ctx := context.Background()
	out, err := st.Submit(ctx, []store.Submission{submission("h")}, time.Now())
	if err != nil {
		return err
	}
	j := out[0].Job
	say("submitted", j.ID, j.No)
	for i := range 3 {
		if _, err := st.Append(ctx, store.Append{
			ID: j.ID, Attempt: 1, Fence: j.Fence, First: uint64(i),
			Records: []harp.Record{{Value: recordOf(i)}}, Arrived: time.Now(),
		}); err != nil {
			return err
		}
		say("recorded", j.ID, i+1)
	}
	changes, err := st.Apply(ctx, store.Transition{ID: j.ID, Event: store.Event{
		Kind: store.End, At: time.Now(), Attempt: 1, Fence: j.Fence, Value: harp.Value{1, 2, 3},
	}})
	if err = errors.Join(err, outcome(changes)); err == nil {
		say("ended", j.ID)
	}
	return err
}

// outcome is the error of the first change.
func outcome(changes []store.Change) error {
	if len(changes) == 0 {
		return nil
	}
	return changes[0].Err
}

// recordOf is a record that lies in a table, or in the value log.
func recordOf(i int) harp.Value {
	return bytes.Repeat([]byte{byte(i)}, 1+i*3*badger.ValueThreshold)
}

// acked is what a child said of a job.
type acked struct {
	no      string
	records int
	ended   bool
}

// TestKill kills a working process again and again, without warning, and checks
// that all it acknowledged is there.
func TestKill(t *testing.T) {
	const cycles = 4
	dir := t.TempDir()
	var id string
	jobs := map[string]*acked{}
	for cycle := range cycles {
		if said := runChild(t, dir, jobs, 300+150*cycle); id != "" && said != id {
			t.Fatalf("the store's id is %s, want %s", said, id)
		} else {
			id = said
		}
		checkAcked(t, dir, jobs)
	}
	t.Logf("%d jobs over %d kills", len(jobs), cycles)
}

// runChild lets a child acknowledge so many things and kills it.
func runChild(t *testing.T, dir string, jobs map[string]*acked, lines int) (id string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it was killed
	n := 0
	for in := bufio.NewScanner(out); in.Scan(); { // to the end: a line that was written counts
		word := strings.Fields(in.Text())
		if n++; n == lines {
			cmd.Process.Kill() //nolint:errcheck // nothing else can be done
		}
		switch word[0] {
		case "open":
			id = word[1]
		case "submitted":
			jobs[word[1]] = &acked{no: word[2]}
		case "recorded":
			n, err := strconv.Atoi(word[2])
			if err != nil {
				t.Error(err)
			}
			jobs[word[1]].records = n
		case "ended":
			jobs[word[1]].ended = true
		default:
			t.Error(in.Text())
		}
	}
	return id
}

// checkAcked opens the store and compares it with what was acknowledged.
func checkAcked(t *testing.T, dir string, jobs map[string]*acked) {
	t.Helper()
	st := open(t, dir, badger.Options{})
	defer st.Close()
	numbers := map[uint64]bool{}
	for id, want := range jobs {
		j, err := st.Job(t.Context(), id)
		if err != nil {
			t.Fatalf("job %s was acknowledged: %v", id, err)
		}
		if fmt.Sprint(j.No) != want.no || numbers[j.No] {
			t.Fatalf("job %s has number %d, want %s", id, j.No, want.no)
		}
		numbers[j.No] = true
		records, err := st.Read(t.Context(), id, 0, store.ReadLimit{Bytes: 1 << 20})
		if err != nil || len(records) < want.records || uint64(len(records)) != j.Records {
			t.Fatalf("job %s has %d of %d records, %d were acknowledged: %v", id, len(records), j.Records, want.records, err)
		}
		for i, r := range records {
			if r.Seq != uint64(i) || !bytes.Equal(r.Value, recordOf(i)) {
				t.Fatalf("record %d of job %s is number %d with %d bytes", i, id, r.Seq, len(r.Value))
			}
		}
		if v, err := st.Value(t.Context(), id); want.ended && (err != nil || len(v) != 3 || j.State != harp.StateSucceeded) {
			t.Fatalf("job %s ended and is %s with value %v: %v", id, j.State, v, err)
		}
	}
	active, err := st.Active(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range active {
		if want := jobs[j.ID]; want != nil && want.ended {
			t.Fatalf("job %s ended and is active", j.ID)
		}
	}
}
