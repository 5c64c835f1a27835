package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// places is how many attempts an agent may hold.
func places(t *testing.T) int {
	for _, b := range agent.Bounds() {
		if b.Name == "attempts held" {
			return int(b.Most)
		}
	}
	t.Fatal("there is no such bound")
	return 0
}

// filled is a machine whose journal has as many attempts as it may, which have ended one after the other: the first of them are those of
// another dispatcher.
func filled(t *testing.T, p place, others int) (m *machine, ids []string) {
	t.Helper()
	return filledWith(t, p, places(t), func(i int) string {
		if i < others {
			return "other"
		}
		return "store"
	}, false)
}

// filledWith is one with so many attempts, which are of stores, and may be reduced.
func filledWith(t *testing.T, p place, attempts int, storeOf func(int) string, reduced bool) (m *machine, ids []string) {
	t.Helper()
	m = newMachine(t, p, newCounter().offer, agent.Limits{})
	m.run.stop()
	m.run.wait()
	j, err := journal.Open(m.disk.Mount(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	end := wire.Encode(map[string][]byte{"end": wire.Encode(wire.End{Value: harp.Value{7}, Started: &wire.Started{}})})
	for i := range attempts {
		k := journal.Key{Job: harp.NewID(), Attempt: 1}
		info := wire.Encode(map[string]any{"store": storeOf(i), "proc": "count", "red": reduced})
		if err := j.AcceptStart(k, journal.Accept{Info: info}, time.Now().Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := j.End(k, journal.End{Body: end}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.Job)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	m.boot()
	return m, ids
}

// TestPlacesOfAttempts: an agent holds so many attempts that it can tell of all of them in a greeting, and takes no more until some are
// forgotten.
func TestPlacesOfAttempts(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m, ids := filled(t, p, 0)
		if n := len(m.peer.held); n != len(ids) {
			t.Fatalf("%d of %d are held", n, len(ids))
		}
		if why := m.peer.call("once", nil).notNow(); why != wire.NotNowNoSpace {
			t.Errorf("with no place left: %q", why)
		}
		m.peer.forget(wire.HeldAttempt{Job: ids[7], Attempt: 1})
		synctest.Wait()
		x := m.peer.call("once", nil).accepted()
		expect[wire.End](x, wire.TypeEnd)
		if why := m.peer.call("once", nil).notNow(); why != wire.NotNowNoSpace {
			t.Errorf("with no place left again: %q", why)
		}
	})
}

// underWay is how many attempts a dispatcher has under way on one host at most.
const underWay = 4096

// TestPlacesOfAnotherDispatcher: what another dispatcher has left in the places gives way to what is called now, the oldest first, but
// for as many as it may have under way.
func TestPlacesOfAnotherDispatcher(t *testing.T) {
	for others, gone := range map[int]int{underWay: 0, underWay + 3: 3, places(t): underWay} {
		inMemory(t, func(t *testing.T, p place) {
			m, ids := filled(t, p, others)
			var theirs []wire.HeldAttempt
			for _, id := range ids[:others] {
				theirs = append(theirs, wire.HeldAttempt{Job: id, Attempt: 1})
			}
			for page := range slices.Chunk(theirs, 200) {
				m.peer.forget(page...)
			}
			synctest.Wait()
			calls := 0
			for ; calls < 5; calls++ {
				if f := m.peer.call("once", nil).receive(); f.Type == wire.TypeNotNow {
					break
				}
			}
			if want := min(gone, 5); calls != want {
				t.Errorf("%d calls are taken beside %d of another dispatcher, want %d", calls, others, want)
			}
			time.Sleep(time.Second)
			m.lose()
			if n := len(m.peer.held); n != len(ids)-gone+calls {
				t.Errorf("%d are held, want all but %d of %d, and %d", n, gone, len(ids), calls)
			}
			if gone > 0 && m.agent.Holds(ids[gone-1]) || !m.agent.Holds(ids[gone]) {
				t.Error("not the oldest are forgotten")
			}
		})
	}
}

// TestRoomOfManyDispatchers: of what is left for each dispatcher that is away as much stays as it may have under way, however much others
// have left, when bytes are needed. Then no more calls are taken.
func TestRoomOfManyDispatchers(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m, ids := filledWith(t, p, 3*underWay, func(i int) string { return []string{"first", "second", "second"}[i%3] }, true)
		m.run.stop()
		m.run.wait()
		m.limits = agent.Limits{MaxJournal: 1 << 20}
		m.boot()
		if why := m.peer.call("once", nil).notNow(); why != wire.NotNowNoSpace {
			t.Errorf("with no room left: %q", why)
		}
		for i, id := range ids {
			if stays := i%3 == 0 || i >= len(ids)/2; stays != m.agent.Holds(id) {
				t.Fatalf("attempt %d of %d is held: %t", i, len(ids), !stays)
			}
		}
	})
}
