package schedule

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// The rules of the schedule are tested through package rows, with what is stored; here only what it
// says by itself.

const now = int64(1e18)

// waiting adds a job that waits.
func waiting(s *Schedule, host, queue string, priority int) *Job {
	s.Number++
	j := &store.Job{No: s.Number, Host: host, Priority: priority, OfflineWait: harp.NoLimit, Life: store.Life{State: harp.StateQueued}}
	if queue != "" {
		j.Queue, j.Concurrency = harp.Value(queue), 1
	}
	return s.Add(ID{byte(s.Number)}, j, now, now)
}

func open(s *Schedule, hosts ...string) {
	for _, h := range hosts {
		s.SetGate(h, store.Gate{Open: true, Most: 2})
	}
}

// started starts all that may start on some hosts and returns their numbers.
func started(s *Schedule, hosts ...string) (numbers []uint64) {
	for o := s.Offers(hosts, now); o.More(); {
		e := o.Next()
		if e == nil {
			break
		}
		s.Start(e, now)
		numbers = append(numbers, e.No)
	}
	return numbers
}

// TestOffers starts jobs in the order of their queues, as many as a host and a queue take.
func TestOffers(t *testing.T) {
	s := New()
	waiting(s, "a", "q", 0)      // 1
	waiting(s, "b", "q", 1)      // 2
	waiting(s, "a", "", 0)       // 3
	waiting(s, "a", "", 0)       // 4: its host is full
	waiting(s, "away", "", 1000) // 5
	open(s, "a", "b")
	if got, want := started(s, "b", "a", "away", "a"), []uint64{2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("%v were started, want %v", got, want)
	}
	if e := s.Job(ID{1}); !e.Waits() || e.Position() != 1 || s.Reason(e, &store.Job{}) != harp.ReasonQueue {
		t.Errorf("the first waits %v at %d for %q", e.Waits(), e.Position(), s.Reason(e, &store.Job{}))
	}
	s.Release(s.Job(ID{2}), now)
	if e := s.NextInQueue(s.Queue("q"), now); e != nil {
		t.Errorf("job %d may start on a host that is full", e.No)
	}
	s.Release(s.Job(ID{3}), now)
	s.Settle(s.Job(ID{3}), now)
	if got := started(s, "a", "b"); !slices.Equal(got, []uint64{1}) {
		t.Errorf("by the slots that came free %v were started", got)
	}
}

// TestReleasedSlot frees a slot of a queue, and a place on a host, by the same job: the next of the queue on that host, which
// was passed over as the host was full, is before those of other hosts that came later.
func TestReleasedSlot(t *testing.T) {
	s := New()
	one := waiting(s, "a", "q", 0)
	other := waiting(s, "b", "q", 0)
	next := waiting(s, "a", "q", 0)
	passing := waiting(s, "c", "q", 0)
	waiting(s, "d", "q", 0)
	q := s.Queue("q")
	s.ChangeQueue(q, harp.QueueChange{Concurrency: new(2)}, harp.Principal{}, now)
	open(s, "b", "c", "d")
	s.SetGate("a", store.Gate{Open: true, Most: 1})
	s.Start(one, now)
	s.Start(other, now)
	s.Release(other, now)
	if e := s.NextInQueue(q, now); e != passing {
		t.Fatalf("next is job %d, want %d", e.No, passing.No)
	}
	s.Start(passing, now)
	s.Settle(other, now)
	s.Release(one, now)
	if e := s.NextInQueue(q, now); e != next {
		t.Errorf("next is job %d, want %d", e.No, next.No)
	}
}

// TestJobsThatWaitAreLookedAtOnce has one more job wait for an absent host, in a queue that would start all of them, and asks for what it
// waits: those that were there before, which can be many, are not looked at.
func TestJobsThatWaitAreLookedAtOnce(t *testing.T) {
	s := New()
	s.OpenQueue("q", 1000)
	for range 3 {
		waiting(s, "away", "q", 0)
	}
	first := s.Job(ID{1})
	if !first.isAllowed {
		t.Fatal("something but its host keeps a job waiting")
	}
	first.isAllowed = false // a look at it would mend that
	for _, priority := range []int{0, -1} {
		last := waiting(s, "away", "q", priority)
		if reason := s.Reason(last, &store.Job{}); reason != harp.ReasonOffline || first.isAllowed {
			t.Errorf("one more of priority %d waits for %q, and the first was looked at: %v", priority, reason, first.isAllowed)
		}
	}
}

// TestSlotsThatWereTakenMeanwhile has the free slots of a queue be taken and come free again while nobody asks for what jobs wait that
// have only their absent host in their way: those that the slots were for have waited for it since then.
func TestSlotsThatWereTakenMeanwhile(t *testing.T) {
	s := New()
	s.OpenQueue("q", 3)
	open(s, "b")
	for range 3 {
		waiting(s, "away", "q", 0)
	}
	var taken []*Job
	for range 2 {
		taken = append(taken, waiting(s, "b", "q", -1))
	}
	for _, e := range taken {
		s.Start(e, now+1)
	}
	for n, e := range taken {
		s.Release(e, now+2+int64(n))
	}
	for n, want := range []int64{now, now + 2, now + 3} {
		e := s.Job(ID{byte(n + 1)})
		if s.Reason(e, &store.Job{}); e.allowed != want {
			t.Errorf("job %d has waited since %d, want %d", e.No, e.allowed-now, want-now)
		}
	}
}

// TestUnendedOfAHostWithoutJobs asks for the jobs of a host that has none: those of others, which can be many, are not looked at.
func TestUnendedOfAHostWithoutJobs(t *testing.T) {
	s := New()
	waiting(s, "a", "", 0)
	open(s, "idle")
	e := s.Job(ID{1})
	s.jobs[ID{}] = nil // a look at it panics
	if got := s.Unended("idle"); len(got) > 0 {
		t.Errorf("a host without jobs has %v", got)
	}
	delete(s.jobs, ID{})
	if got := s.Unended("a"); !slices.Equal(got, []ID{e.ID}) {
		t.Errorf("a host with one has %v", got)
	}
}

// TestNothingIsKept drops all jobs: no queue is left, and nothing is due.
func TestNothingIsKept(t *testing.T) {
	s := New()
	jobs := []*Job{waiting(s, "a", "q", 0), waiting(s, "b", "q", 0), waiting(s, "a", "", 0)}
	for n, e := range jobs {
		s.Dequeue(e, now)
		if gone := s.Drop(e); gone != (n == 1) {
			t.Errorf("with job %d its queue is gone: %v", e.No, gone)
		}
	}
	names, more := s.QueueNames("", math.MaxInt)
	if s.Len() != 0 || s.Queue("q") != nil || len(names) != 0 || more || s.NextDue() != 0 {
		t.Errorf("%d jobs and queues %v are left, and something is due at %d", s.Len(), names, s.NextDue())
	}
}

// TestCancelQueue has the jobs of a queue end that wait, and none start.
func TestCancelQueue(t *testing.T) {
	s := New()
	open(s, "a")
	first, second := waiting(s, "a", "q", 0), waiting(s, "a", "q", 0)
	s.Start(first, now)
	q := s.Queue("q")
	s.CancelQueue(q, harp.Principal{Name: "ada"}, time.Unix(0, now))
	third := waiting(s, "a", "q", 0)
	if second.Waits() || !third.Waits() || first.IsCancelled() || q.Through() != second.No || !s.HasCancelled() {
		t.Errorf("the mark is %d, cancelled are %v, %v, %v", q.Through(), first.IsCancelled(), second.IsCancelled(), third.IsCancelled())
	}
	if e := s.NextCancelled(); e != second || s.NextCancelled() != nil {
		t.Errorf("to be written is %+v", e)
	}
	s.Drop(second)
	if q.DropMarks() {
		t.Error("the mark is dropped while a job that it covers runs")
	}
	s.Release(first, now)
	s.Drop(first)
	if !q.DropMarks() || q.Through() != 0 {
		t.Error("the mark is not dropped with the last job that it covers")
	}
	if e := s.NextInQueue(q, now); e != third {
		t.Errorf("next is %+v, want what came after the cancel", e)
	}
}

// TestAnswers: of a host that is asked for many procedures not all answers are remembered.
func TestAnswers(t *testing.T) {
	at := msgpack.FromNanos(now)
	g := window.NewGate(at, at.Add(time.Hour), nil, nil)
	h := holds{gate: &g}
	for n := range 10 * maxAnswers {
		if h.ask(window.Start{Procedure: strconv.Itoa(n)}, now).kept {
			t.Fatal("it is kept back")
		}
	}
	if len(h.answers) > maxAnswers {
		t.Errorf("%d answers are remembered", len(h.answers))
	}
}

// TestWakeKept: a job that a window keeps back waits for its end, whatever else was to wake it.
func TestWakeKept(t *testing.T) {
	s := New()
	e := waiting(s, "h", "", 0)
	s.WakeLater(e, now) // there was no room to start it
	at := msgpack.FromNanos(now)
	g := window.NewGate(at.Add(-time.Hour), at.Add(time.Hour), nil, []window.Pause{{Since: at, Until: at.Add(time.Minute)}})
	s.SetHolds("h", &g)
	review := s.PopAlarm(now)
	s.ReviewHolds(review, now)
	end := now + int64(time.Minute)
	if a := s.PopAlarm(end); a.Kind != AlarmWake || s.Wake(a.Job, end) || !e.isKept || e.hostQueue != nil {
		t.Fatalf("alarm %+v has woken it: %+v", *a, *e)
	}
	s.ReviewHolds(s.PopAlarm(end), end)
	if e.isKept || e.hostQueue == nil || len(e.host.holds.kept) > 0 {
		t.Fatalf("at the end it is %+v", *e)
	}
}
