package dispatcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// The first agents that come back after a restart are told the interval that is right
// when all have.
func TestBeatCountsThoseThatReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Dispatcher{cfg: Config{Heartbeat: 10 * time.Second}, hosts: newHosts()}
		if got := d.beat(); got != 10*time.Second {
			t.Errorf("with no agents: %v", got)
		}
		for i := range 2000 {
			d.hosts.expectReturn(d.hosts.get(fmt.Sprint("host", i)), time.Now().Add(returningTime))
		}
		if got := d.beat(); got != 20*time.Second {
			t.Errorf("with 2000 that are about to return: %v", got)
		}
		time.Sleep(returningTime)
		if got := d.beat(); got != 10*time.Second {
			t.Errorf("when they have not returned: %v", got)
		}
	})
}

// An interval that is off by a quarter is near enough, one that is off by more is not.
func TestAnIntervalIsFarFromAnotherBeyondAQuarter(t *testing.T) {
	for _, c := range []struct {
		have, want time.Duration
		far        bool
	}{{100, 100, false}, {125, 100, false}, {126, 100, true}, {100, 125, false}, {100, 126, true}} {
		if got := farFrom(c.have, c.want); got != c.far {
			t.Errorf("%d, where %d is right, is far off: %v", c.have, c.want, got)
		}
	}
}

// pages are the names that a listing gives, page by page.
func pages(list func(cursor string) (names []string, next string)) (all []string) {
	for cursor := ""; ; {
		names, next := list(cursor)
		all = append(all, strings.Join(names, " "))
		if cursor = next; cursor == "" {
			return all
		}
	}
}

// Hosts that are known are listed by name, each once; those that were only asked for are
// not.
func TestKnownHostsAreListedInPages(t *testing.T) {
	hs := newHosts()
	for _, name := range []string{"d", "b", "e", "a", "c"} {
		hs.get(name).setSpec(&HostSpec{Name: name})
	}
	hs.get("bb")
	for n, want := range map[int][]string{
		2:  {"a b", "c d", "e"},
		5:  {"a b c d e"},
		99: {"a b c d e"},
	} {
		got := pages(func(cursor string) (names []string, next string) {
			page, next := hs.page(cursor, n)
			for _, h := range page {
				names = append(names, h.name)
			}
			return names, next
		})
		if !slices.Equal(got, want) {
			t.Errorf("by %d they are %q, want %q", n, got, want)
		}
	}
	if page, _ := hs.page("bc", 2); len(page) != 2 || page[0].name != "c" {
		t.Errorf("behind a host that is gone are %v", page)
	}
	if hs.findKnown("bb") != nil || hs.findKnown("b") != hs.get("b") || hs.findKnown("z") != nil {
		t.Error("what is known is not what the registry has")
	}
}

// What a host offers is listed by name, each once.
func TestProceduresAreListedInPages(t *testing.T) {
	h := newHosts().get("web01")
	var docs []harp.ProcedureDoc
	for _, name := range []string{"d", "b", "e", "a", "c"} {
		docs = append(docs, harp.ProcedureDoc{Name: name})
	}
	h.setRow(store.Host{Name: "web01", Procedures: docs})
	for n, want := range map[int][]string{2: {"a b", "c d", "e"}, 5: {"a b c d e"}} {
		got := pages(func(cursor string) (names []string, next string) {
			page, next := h.procedures(cursor, n)
			for _, doc := range page {
				names = append(names, doc.Name)
			}
			return names, next
		})
		if !slices.Equal(got, want) {
			t.Errorf("by %d they are %q, want %q", n, got, want)
		}
	}
	if page, _ := h.procedures("bb", 1); len(page) != 1 || page[0].Name != "c" {
		t.Errorf("behind one that is gone is %v", page)
	}
}

// A host is away from when it no longer counts as about to come back.
func TestAHostIsAwayOnceItNoLongerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts()
		h := hs.get("web01")
		if !h.away() {
			t.Error("one that never was is not away")
		}
		hs.expectReturn(h, time.Now().Add(time.Minute))
		time.Sleep(time.Minute - time.Nanosecond)
		if h.away() || hs.expected() != 1 {
			t.Errorf("before a minute is over: away %v, expected %d", h.away(), hs.expected())
		}
		time.Sleep(time.Nanosecond)
		if !h.away() || hs.expected() != 0 {
			t.Errorf("after a minute: away %v, expected %d", h.away(), hs.expected())
		}
	})
}

// The labels of the registry go before those of the agent; nothing of either is shared.
func TestTheStatusOfAHost(t *testing.T) {
	h := newHosts().get("web01")
	row := store.Host{Name: "web01", Labels: map[string]string{"role": "web", "site": "a"}, Software: "harp 1", LastHeard: time.Unix(5, 0).UTC()}
	h.setRow(row)
	h.setSpec(&HostSpec{Name: "web01", Address: "10.0.0.1", Labels: map[string]string{"role": "db"}})
	h.setDialError("no way there")
	s := h.status()
	if s.Labels["role"] != "db" || s.Labels["site"] != "a" || s.Address != "10.0.0.1" || s.Software != "harp 1" || s.Online || s.Error != "no way there" || !s.LastHeard.Equal(row.LastHeard) {
		t.Errorf("it is %+v", s)
	}
	s.Labels["role"] = "mine"
	if again := h.status(); again.Labels["role"] != "db" || row.Labels["role"] != "web" {
		t.Error("a caller changed its labels")
	}
	h.setSpec(nil)
	if s := h.status(); s.Address != "" || s.Labels["role"] != "web" {
		t.Errorf("out of the registry it is %+v", s)
	}
}

// A sign that an attempt has begun is none of the next one: taken for that, an attempt that never started would be proof that its
// agent's journal is gone.
func TestASignOfAnEarlierAttempt(t *testing.T) {
	var h host
	first, second := &store.Job{ID: "job", Life: store.Life{Attempt: 1}}, &store.Job{ID: "job", Life: store.Life{Attempt: 2}}
	h.noteBegun(first)
	if !h.hasBegun(first) || h.hasBegun(second) {
		t.Errorf("after the first began: the first %t, the second %t", h.hasBegun(first), h.hasBegun(second))
	}
	h.noteBegun(second)
	if h.hasBegun(first) || !h.hasBegun(second) {
		t.Errorf("after the second began: the first %t, the second %t", h.hasBegun(first), h.hasBegun(second))
	}
}
