package rows

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestListWhileJobsGoOn changes the states of jobs between the pages of a listing, and as each
// looks at them: a job that is in one of the wanted states all the time is listed once, and none
// is in another state.
func TestListWhileJobsGoOn(t *testing.T) {
	for name, states := range map[string][]harp.State{
		"all":                  nil,
		"running or succeeded": {harp.StateRunning, harp.StateSucceeded},
		"not ended":            {harp.StateQueued, harp.StateSent, harp.StateRunning},
	} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				listWhileJobsGoOn(t, states, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	}
}

func listWhileJobsGoOn(t *testing.T, states []harp.State, r *rand.Rand) {
	e := &viewed{trial: newTrial()}
	s := opened(t, e, Options{})
	openGate(s, "h")
	var calls []store.Submission
	for range 60 {
		calls = append(calls, call([]string{"h", "away"}[r.IntN(2)]))
	}
	jobs := submitted(t, s, calls...)
	wanted := func(j *store.Job) bool {
		for _, state := range states {
			if state == j.State {
				return true
			}
		}
		return states == nil
	}
	goOn := func() {
		for range 5 {
			n := r.IntN(len(jobs))
			switch jobs[n].State {
			case harp.StateSent:
				jobs[n] = applied(t, s, about(jobs[n], store.Started))[0].Job
			case harp.StateRunning:
				jobs[n] = applied(t, s, about(jobs[n], store.End))[0].Job
			case harp.StateQueued:
				if r.IntN(2) == 0 {
					jobs[n] = applied(t, s, about(jobs[n], store.CancelReq))[0].Job
				}
			default:
			}
		}
	}
	for range 10 {
		goOn()
	}
	always := map[string]bool{}
	for n := range jobs {
		if wanted(jobs[n]) {
			always[jobs[n].ID] = true
		}
	}
	listed := map[string]bool{}
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		e.around = goOn
		page, err := s.List(t.Context(), store.Filter{States: states, Limit: 7}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for n := range page.Jobs {
			j := page.Jobs[n]
			if listed[j.ID] || !wanted(j) {
				t.Errorf("job %d is listed as %s, before %v", j.No, j.State, listed[j.ID])
			}
			listed[j.ID] = true
		}
		goOn()
		for n := range jobs {
			if !wanted(jobs[n]) {
				delete(always, jobs[n].ID)
			}
		}
		cursor = page.Cursor
	}
	for id := range always {
		if !listed[id] {
			t.Errorf("job %s is not listed", id)
		}
	}
	if len(always) == 0 {
		t.Error("none was in a wanted state all the time")
	}
}

// viewed is an engine that calls a function before and after it opens a view, once.
type viewed struct {
	*trial
	around func()
}

func (e *viewed) View() (Snapshot, error) {
	f := e.around
	if f == nil {
		return e.trial.View()
	}
	e.around = nil
	f()
	defer f()
	return e.trial.View()
}

// TestListUnendedAtOnce checks that an answered change of a job's state is one of its listing.
func TestListUnendedAtOnce(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	j := started(t, s)
	is := func(want harp.State) {
		t.Helper()
		for _, state := range allStates {
			page, err := s.List(t.Context(), store.Filter{States: []harp.State{state}}, "")
			if err != nil || (len(page.Jobs) == 1) != (state == want) {
				t.Errorf("%d are listed as %s, %v; it is %s", len(page.Jobs), state, err, want)
			}
		}
	}
	is(harp.StateSent)
	for _, step := range []struct {
		kind store.Kind
		want harp.State
	}{{store.Started, harp.StateRunning}, {store.Silent, harp.StateUnknown}, {store.Alive, harp.StateRunning}, {store.CancelReq, harp.StateCancelling}, {store.End, harp.StateSucceeded}} {
		applied(t, s, about(j, step.kind))
		is(step.want)
	}
}

// TestDamagedCohort checks that a store is not opened that cannot say which jobs have not ended:
// they would not be started, nor ended.
func TestDamagedCohort(t *testing.T) {
	for name, damage := range map[string]func(key, value []byte) []byte{
		"bit": func(_, value []byte) []byte { value[len(value)-1] ^= 1; return value },
		"cut": func(key, value []byte) []byte { return seal(key, value[crcSize:len(value)-1]) },
	} {
		e := newTrial()
		s, err := Open(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		submitted(t, s, call("h"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		e.poke([]byte{prefixUnended}, damage)
		if _, err := Open(e, Options{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: opening: %v, want ErrDamaged", name, err)
		}
	}
}

// TestLostCohort opens a store of which a row of those that have not ended is not there any more, as
// it was in a table that is damaged: its jobs are found all the same, and where those are not there
// either the store is not opened. They would wait for ever.
func TestLostCohort(t *testing.T) {
	setUp := func(t *testing.T) (*trial, []*store.Job) {
		e := newTrial()
		s, err := Open(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		openGate(s, "h")
		jobs := submitted(t, s, call("h"), call("away"), call("h"))
		submitted(t, s, call("away"))
		applied(t, s, about(jobs[2], store.End))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		e.poke([]byte{prefixUnended}, func(_, _ []byte) []byte { return nil })
		return e, jobs
	}
	t.Run("found", func(t *testing.T) {
		e, jobs := setUp(t)
		for range 2 {
			s, err := Open(e, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if active, err := s.Active(t.Context(), "h"); err != nil || len(active) != 1 || active[0].ID != jobs[0].ID {
				t.Errorf("%d are active, %v, want one", len(active), err)
			}
			if n := s.sched.Len(); n != 3 {
				t.Errorf("%d have not ended, want 3", n)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		s := opened(t, e, Options{})
		openGate(s, "away")
		if got, err := s.Claim(t.Context(), []string{"away"}, 10, noon); err != nil || len(got) != 2 {
			t.Errorf("%d are started, %v, want 2", len(got), err)
		}
	})
	t.Run("restored", func(t *testing.T) {
		e, _ := setUp(t)
		from, err := Open(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		e.poke([]byte{prefixUnended}, func(_, _ []byte) []byte { return nil })
		into := newTrial()
		did, err := Restore(into, backedUp(t, from), noon, Options{})
		if err != nil || did.Lost != 3 {
			t.Errorf("%d are lost, %v, want 3", did.Lost, err)
		}
		if n := opened(t, into, Options{}).sched.Len(); n != 0 {
			t.Errorf("%d have not ended", n)
		}
	})
	t.Run("nowhere", func(t *testing.T) {
		e, jobs := setUp(t)
		i, _ := parseID(jobs[1].ID)
		for _, kind := range []byte{prefixCall, prefixLife} {
			e.poke(i.key(kind), func(_, _ []byte) []byte { return nil })
		}
		if _, err := Open(e, Options{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("opening: %v, want ErrDamaged", err)
		}
	})
}

// TestLostNumber opens a store of which the row with the last submit number is not there any more:
// what has not ended keeps its numbers for itself.
func TestLostNumber(t *testing.T) {
	e := newTrial()
	s, err := Open(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	last := submitted(t, s, call("h"), call("h"))[1]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e.poke(keyNumber, func(_, _ []byte) []byte { return nil })
	s = opened(t, e, Options{})
	if j := submitted(t, s, call("h"))[0]; j.No <= last.No {
		t.Errorf("job %d follows on %d", j.No, last.No)
	}
}

// TestManyCohorts opens a store anew while of jobs that were submitted together some have ended,
// and ends the others.
func TestManyCohorts(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	const n = 3*cohortMost + 1
	var calls []store.Submission
	for range n {
		calls = append(calls, call("h"))
	}
	jobs := submitted(t, s, calls...)
	if got := e.count(prefixUnended); got != 4 {
		t.Errorf("%d jobs are in %d cohorts", n, got)
	}
	var ends []store.Transition
	for i, j := range jobs {
		if i%3 > 0 || i < cohortMost {
			ends = append(ends, about(j, store.End))
		}
	}
	applied(t, s, ends...)
	if got := e.count(prefixUnended); got != 3 {
		t.Errorf("there are %d cohorts where all of one have ended", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, e, Options{})
	active, err := s.Active(t.Context(), "h")
	if err != nil || len(active) != n-len(ends) {
		t.Fatalf("%d are active, %v, want %d", len(active), err, n-len(ends))
	}
	for _, j := range active {
		applied(t, s, about(j, store.End))
	}
	if got := e.count(prefixUnended); got != 0 {
		t.Errorf("%d cohorts are left", got)
	}
}

// TestEndedTogether prunes jobs that ended in one commit: those that ended first, as many as one
// Prune deletes, and beside what cannot be read.
func TestEndedTogether(t *testing.T) {
	const n = 2*maxPruned + 10
	setUp := func(t *testing.T) (*trial, *Store, []*store.Job) {
		e := newTrial()
		s := opened(t, e, Options{})
		openGate(s, "h")
		jobs := manyLarge(t, s, n, func(int) store.Submission { return call("h") })
		var ends []store.Transition
		for k, j := range jobs {
			end := about(j, store.End)
			end.Event.At = noon.Add(time.Duration(k*7919%n) * time.Second)
			ends = append(ends, end)
		}
		applied(t, s, ends...)
		return e, s, jobs
	}
	endedBefore := func(t *testing.T, s *Store, jobs []*store.Job, at time.Time) {
		t.Helper()
		for k, j := range jobs {
			_, err := s.Job(t.Context(), j.ID)
			if isOld := noon.Add(time.Duration(k*7919%n) * time.Second).Before(at); errors.Is(err, harp.ErrPruned) != isOld {
				t.Errorf("job %d: %v; its time is over: %v", k, err, isOld)
			}
		}
	}
	t.Run("by time", func(t *testing.T) {
		e, s, jobs := setUp(t)
		half := noon.Add(n / 2 * time.Second)
		prune(t, s, store.Retention{EndedBefore: half}, noon)
		endedBefore(t, s, jobs, half)
		prune(t, s, store.Retention{EndedBefore: noon.Add(n * time.Second)}, noon)
		if got := e.count(prefixIndex, byEnded) + e.count(prefixCall); got != 0 || s.stored.Load() != 0 {
			t.Errorf("%d rows are left, and %d bytes", got, s.stored.Load())
		}
	})
	t.Run("by bytes", func(t *testing.T) {
		_, s, jobs := setUp(t)
		prune(t, s, store.Retention{MaxBytes: s.stored.Load() / 2}, noon)
		left := 0
		for _, j := range jobs {
			if _, err := s.Job(t.Context(), j.ID); err == nil {
				left++
			}
		}
		if left < n/2-2 || left > n/2 {
			t.Errorf("%d of %d are left in half of what they take", left, n)
		}
	})
	t.Run("some at a time", func(t *testing.T) {
		_, s, _ := setUp(t)
		for _, want := range []int{maxPruned, maxPruned, n - 2*maxPruned} {
			did, err := s.Prune(t.Context(), store.Retention{EndedBefore: noon.Add(n * time.Second)}, noon)
			if err != nil || did.Jobs != want || did.More != (want == maxPruned) {
				t.Errorf("it did %+v, %v, want %d", did, err, want)
			}
		}
	})
	t.Run("damaged", func(t *testing.T) {
		e, s, _ := setUp(t)
		e.damage(s, indexKey(byEnded))
		prune(t, s, store.Retention{EndedBefore: noon.Add(n * time.Second)}, noon)
		if got := e.count(prefixCall); got != 0 {
			t.Errorf("%d are left", got)
		}
		works(t, s)
	})
}

// TestShortAndLong stores requests and values about as long as lie in a row of their job: what is
// read is what was given, also once the store was opened anew and from a backup, what it takes is
// counted, and nothing is left when they are deleted.
func TestShortAndLong(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	type one struct {
		id      string
		request string
		value   string
	}
	var all []one
	for _, request := range []int{0, 1, shortMost - 2, shortMost - 1, 2 * pieceSize} {
		for _, value := range []int{1, shortMost, shortMost + 1, 2 * pieceSize} {
			c := call("h")
			c.Request = harp.Submission{Request: []byte(strings.Repeat("r", request)), Signature: []byte("s"), KeyID: "k"}
			j := submitted(t, s, c)[0]
			end := about(j, store.End)
			end.Event.Value = []byte(strings.Repeat("v", value))
			applied(t, s, end)
			all = append(all, one{j.ID, string(c.Request.Request), string(end.Event.Value)})
		}
	}
	if a, v := e.count(prefixRequest), e.count(prefixValue); a != 2*4 || v != 5*2 {
		t.Errorf("%d requests and %d values lie beside their jobs", a, v)
	}
	check := func(s *Store) {
		t.Helper()
		for _, want := range all {
			r, err := s.Request(t.Context(), want.id)
			if err != nil || string(r.Request) != want.request || string(r.Signature) != "s" || r.KeyID != "k" {
				t.Errorf("a request of %d bytes is read as %d, %v", len(want.request), len(r.Request), err)
			}
			if v, err := s.Value(t.Context(), want.id); err != nil || string(v) != want.value {
				t.Errorf("a value of %d bytes is read as %d, %v", len(want.value), len(v), err)
			}
		}
	}
	check(s)
	backup := backedUp(t, s)
	into := newTrial()
	if _, err := Restore(into, backup, noon, Options{}); err != nil {
		t.Fatal(err)
	}
	check(opened(t, into, Options{}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, e, Options{})
	check(s)
	if got, want := s.stored.Load(), e.keptBytes(t, s); got != want {
		t.Errorf("%d bytes are counted, there are %d", got, want)
	}
	later := noon.Add(time.Hour)
	prune(t, s, store.Retention{EndedBefore: later, EventsBefore: later}, later)
	if n := e.count(prefixCall) + e.count(prefixLife) + e.count(prefixRequest) + e.count(prefixValue) + e.count(prefixPiece); n != 0 || s.stored.Load() != 0 {
		t.Errorf("%d rows are left, and %d bytes", n, s.stored.Load())
	}
}

// TestLateValue has an attempt that was given up return something after all, and its last records
// come behind that: the value stays, where it can be read, whether it is short or long.
func TestLateValue(t *testing.T) {
	for _, size := range []int{1, shortMost, shortMost + 1, 2 * pieceSize} {
		for _, damaged := range []bool{false, true} {
			e := newTrial()
			s := opened(t, e, Options{})
			j := started(t, s)
			i, _ := parseID(j.ID)
			lose := about(j, store.Lose)
			lose.Event.Reason = harp.LostAgentRestarted
			end := about(j, store.End)
			end.Event.Value = make(harp.Value, size)
			applied(t, s, lose, end)
			if damaged { // what is at hand goes on
				e.poke(i.key(prefixLife), func(_, value []byte) []byte { value[len(value)-1] ^= 1; return value })
			}
			a := store.Append{ID: j.ID, Attempt: 1, Fence: j.Fence, Records: []harp.Record{{Value: harp.Value{1}}}, Arrived: noon}
			if _, err := s.Append(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			s.unlearn()
			v, err := s.Value(t.Context(), j.ID)
			if isLost := damaged && size <= shortMost; isLost != errors.Is(err, ErrDamaged) || !isLost && len(v) != size {
				t.Errorf("of %d bytes %d are read, %v; its row was damaged: %v", size, len(v), err, damaged)
			}
			if got, want := s.stored.Load(), e.keptBytes(t, s); got != want && !damaged {
				t.Errorf("%d bytes are counted, there are %d", got, want)
			}
			got, err := s.Job(t.Context(), j.ID)
			if err != nil || got.Late == nil || !got.Late.HasValue || got.Records != 1 {
				t.Errorf("it is %+v, %v", got.Late, err)
			}
		}
	}
}

// TestValueOfAnEarlierAttempt ends a job as its last attempt had, which returned something short:
// that lies beside the job, which was written several times since.
func TestValueOfAnEarlierAttempt(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	c := call("h")
	c.Job.Retry, c.Job.Expires = largestCall().Job.Retry, noon.Add(24*time.Hour)
	end := about(submitted(t, s, c)[0], store.End)
	end.Event.Failure, end.Event.Jitter, end.Event.Value = harp.Failure{Code: "remote"}, 1, harp.Value{1}
	applied(t, s, end)
	s.SetGate("h", store.Gate{Reason: harp.ReasonOffline})
	j := advanceAll(t, s, noon.Add(48*time.Hour)).Ended[0]
	if v, err := s.Value(t.Context(), j.ID); err != nil || len(v) != 1 || !j.HasValue || e.count(prefixValue) != 1 {
		t.Errorf("its value is %v, %v, of %d", v, err, e.count(prefixValue))
	}
	later := noon.Add(72 * time.Hour)
	prune(t, s, store.Retention{EndedBefore: later}, later)
	if n := e.count(prefixValue); n != 0 || s.stored.Load() != 0 {
		t.Errorf("%d values are left, and %d bytes", n, s.stored.Load())
	}
}

// TestRequestOfADamagedJob checks that a long request is read though the row of its job cannot be,
// and that a short one is damaged with it.
func TestRequestOfADamagedJob(t *testing.T) {
	for _, size := range []int{shortMost, shortMost + 1} {
		e := newTrial()
		s := opened(t, e, Options{})
		c := call("h")
		c.Request.Request = make([]byte, size)
		j := submitted(t, s, c)[0]
		e.damage(s, []byte{prefixCall})
		r, err := s.Request(t.Context(), j.ID)
		if isLong := size > shortMost; errors.Is(err, ErrDamaged) == isLong || isLong && len(r.Request) != size {
			t.Errorf("of %d bytes %d are read, %v", size, len(r.Request), err)
		}
	}
}

// TestEndedInACohort opens a store in which a job that has ended is stored as one that has not, as
// an older row of its cohort came back: it does not start again, and the others of it go on.
func TestEndedInACohort(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	openGate(s, "h")
	jobs := submitted(t, s, call("h"), call("h"))
	var had []byte
	e.poke([]byte{prefixUnended}, func(_, value []byte) []byte { had = value; return value })
	applied(t, s, about(jobs[0], store.End))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e.poke([]byte{prefixUnended}, func(_, _ []byte) []byte { return had })
	s = opened(t, e, Options{})
	active, err := s.Active(t.Context(), "")
	wantJobs(t, "active", active, jobs[1].No)
	if err != nil || s.sched.Len() != 1 {
		t.Errorf("%d have not ended, %v", s.sched.Len(), err)
	}
	applied(t, s, about(jobs[1], store.End))
	if n := e.count(prefixUnended); n != 0 {
		t.Errorf("%d cohorts are left", n)
	}
}
