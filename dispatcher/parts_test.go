package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// opened is a dispatcher on a store in memory, if no other is given, until the test ends.
func opened(t *testing.T, st store.Store, cfg Config) *Dispatcher {
	t.Helper()
	if st == nil {
		st = memory.Open(nil)
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	d, err := Open(t.Context(), st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d
}

// What a page may hold is divided among those that ask, within bounds.
func TestPageLimit(t *testing.T) {
	for _, c := range []struct {
		asked        int
		asking, want int64
	}{
		{0, 1, 1 << 20},
		{0, 4, 1 << 20},
		{0, 5, (4 << 20) / 5},
		{0, 128, 32 << 10},
		{0, 1000, 32 << 10},
		{100, 1, 100},
		{2 << 20, 1, 1 << 20},
		{100, 1000, 100},
	} {
		if got := pageLimit(harp.RecordQuery{MaxBytes: c.asked}, c.asking); int64(got) != c.want {
			t.Errorf("asked for %d by %d: %d, want %d", c.asked, c.asking, got, c.want)
		}
	}
}

// A watcher gives what fits, and one record at least.
func TestAWatcherGivesWhatFits(t *testing.T) {
	var ts watchers
	held := ts.follow("job")
	ts.notifyAppended("job", numbered(0, 10, 4))
	each := recordCost(held.recent[0])
	for bytes, want := range map[int]int{1: 1, each: 1, 2*each - 1: 1, 2 * each: 2, 3*each + 1: 3, 10 * each: 10, 99 * each: 10} {
		got, end := held.recordsFrom(0, store.ReadLimit{Bytes: bytes})
		if len(got) != want || end != 10 {
			t.Errorf("of %d bytes it gives %d, up to %d, want %d", bytes, len(got), end, want)
		}
	}
	if got, _ := held.recordsFrom(7, store.ReadLimit{Records: 1, Bytes: pageBytes}); len(got) != 1 || got[0].Seq != 7 {
		t.Errorf("it gives %v", got)
	}
}

// A change is signalled to those that asked before it, once.
func TestAChangeIsSignalledOnce(t *testing.T) {
	var ts watchers
	held := ts.follow("job")
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for name, change := range map[string]func(){
		"records": func() { ts.notifyAppended("job", numbered(0, 1, 1)) },
		"counted": func() { ts.notifyCounted("job") },
		"ended":   func() { ts.notifyEnded(&store.Job{ID: "job"}, nil) },
		"again":   func() { ts.notifyEnded(&store.Job{ID: "job"}, nil) },
	} {
		first, second := held.changed(), held.changed()
		if isClosed(first) {
			t.Errorf("%s: it is signalled before", name)
		}
		change()
		if !isClosed(first) || !isClosed(second) || isClosed(held.changed()) {
			t.Errorf("%s: it is signalled %v, %v, and afterwards %v", name, isClosed(first), isClosed(second), isClosed(held.changed()))
		}
	}
	other := held.changed()
	ts.notifyAppended("job", nil)
	ts.notifyAppended("another", numbered(0, 1, 1))
	ts.notifyCounted("another")
	if isClosed(other) {
		t.Error("nothing has changed, and it is signalled")
	}
	if held.isAt(held.next) {
		t.Error("of a job that has ended something is still to come")
	}
}

// The feed pauses for those that follow it, and for one alone not at all.
func TestTheFeedPausesByThoseThatFollow(t *testing.T) {
	for waiting, want := range map[int]time.Duration{0: 0, 1: 0, 2: 200 * time.Microsecond, 100: 10 * time.Millisecond, 10_000: time.Second, 50_000: time.Second} {
		f := feed{changed: make(chan struct{})}
		f.addWaiting(waiting)
		before, _ := f.signals()
		if got := f.wakeWaiting(); got != want {
			t.Errorf("for %d it pauses %v, want %v", waiting, got, want)
		}
		select {
		case <-before:
		default:
			t.Errorf("%d are not woken", waiting)
		}
		changed, resumed := f.signals()
		if changed == before || (resumed != nil) != (want > 0) {
			t.Errorf("for %d there is a pause: %v", waiting, resumed != nil)
		}
		f.resume()
		if _, again := f.signals(); again != nil {
			t.Errorf("for %d the pause does not end", waiting)
		}
		f.resume()
	}
}

// Who waits for the end of a pause is woken also where followers are woken again before it is over.
func TestAPauseOfTheFeedEndsWithTheNextWakeUp(t *testing.T) {
	for _, left := range []int{0, 1, 2} {
		f := feed{changed: make(chan struct{})}
		f.addWaiting(2)
		f.wakeWaiting()
		_, resumed := f.signals()
		f.addWaiting(left - 2)
		f.wakeWaiting()
		select {
		case <-resumed:
		default:
			t.Errorf("with %d that follow who waits for its end is not woken", left)
		}
		if _, again := f.signals(); (again != nil) != (left > 1) {
			t.Errorf("with %d that follow there is another pause: %v", left, again != nil)
		}
	}
}

// An attempt that was lost with its journal may run beside the next one.
func TestWhatMayRunTwice(t *testing.T) {
	lost := harp.Attempt{Outcome: string(harp.StateLost), Reason: harp.LostJournalGone}
	known := harp.Attempt{Outcome: string(harp.StateLost), Reason: harp.LostAgentRestarted}
	failed := harp.Attempt{Outcome: string(harp.StateFailed), Reason: harp.LostJournalGone}
	for n, c := range []struct {
		attempts []harp.Attempt
		want     bool
	}{
		{nil, false},
		{[]harp.Attempt{lost}, false},
		{[]harp.Attempt{lost, failed}, true},
		{[]harp.Attempt{known, lost}, false},
		{[]harp.Attempt{known, failed}, false},
		{[]harp.Attempt{failed, lost, known}, true},
		{[]harp.Attempt{failed, failed}, false},
	} {
		if got := duplicatePossible(c.attempts); got != c.want {
			t.Errorf("%d: %v", n, got)
		}
	}
}

// What a status takes of a page is counted in all its parts.
func TestStatusSize(t *testing.T) {
	none := statusSize(&harp.JobStatus{})
	for name, s := range map[string]harp.JobStatus{
		"args":     {Args: make(harp.Value, 100)},
		"info":     {Info: make(harp.Value, 100)},
		"queue":    {Queue: make(harp.Value, 100)},
		"attempts": {Attempts: make([]harp.Attempt, 1)},
		"labels":   {Labels: map[string]string{strings.Repeat("k", 60): strings.Repeat("v", 40)}},
	} {
		if got := statusSize(&s) - none; got != 100 {
			t.Errorf("%s of 100 bytes count %d", name, got)
		}
	}
	if none < 512 {
		t.Errorf("one of nothing counts %d", none)
	}
}

// What is kept, by what the configuration says.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, nil, Config{Retain: time.Hour, RetainBytes: 7})
		if r := d.retention(); r.MaxBytes != 7 || !r.EndedBefore.Equal(time.Now().Add(-time.Hour)) || !r.EventsBefore.Equal(r.EndedBefore) {
			t.Errorf("for an hour it is %+v", r)
		}
		d = opened(t, nil, Config{Retain: harp.NoLimit, RetainBytes: 8})
		if r := d.retention(); r.MaxBytes != 8 || !r.EndedBefore.IsZero() || !r.EventsBefore.IsZero() {
			t.Errorf("for ever it is %+v", r)
		}
	})
}

func TestLimitedBuffer(t *testing.T) {
	for _, c := range []struct {
		writes        []string
		refuses, full bool
		kept          string
		n             int // of the last write
		err           error
	}{
		{[]string{"abc", "de"}, true, false, "abcde", 2, nil},
		{[]string{"abc", "def"}, true, true, "abcde", 2, io.ErrShortWrite},
		{[]string{"abcdef", "g"}, true, true, "abcde", 0, io.ErrShortWrite},
		{[]string{"abc", "def"}, false, true, "abcde", 3, nil},
		{[]string{"abcde", ""}, true, false, "abcde", 0, nil},
	} {
		b := limitedBuffer{most: 5, refuses: c.refuses}
		var n int
		var err error
		for _, w := range c.writes {
			n, err = b.Write([]byte(w))
		}
		if string(b.kept) != c.kept || b.full != c.full || n != c.n || !errors.Is(err, c.err) {
			t.Errorf("%q: it has %q, full %v; the last write %d, %v", c.writes, b.kept, b.full, n, err)
		}
	}
}

func TestAddressesThatCanBeDialled(t *testing.T) {
	for addr, want := range map[string]bool{
		"web01": true, "web01:7442": true, "10.0.0.1": true, "10.0.0.1:1": true, "10.0.0.1:65535": true, "::1": true, "[::1]:7442": true, "[fe80::1%eth0]:7": true,
		":7442": false, "web01:0": false, "web01:65536": false, "web01:-1": false, "web01:ssh": false, "[a:b:c]:7442": false, "a:b:c:d:e": false,
	} {
		if got := canDial(addr); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

func TestNamesInTheRegistry(t *testing.T) {
	long := strings.Repeat("x", 255)
	if err := checkHosts([]HostSpec{{Name: long}, {Name: "a", Address: "b"}}); err != nil {
		t.Error(err)
	}
	for field, specs := range map[string][]HostSpec{
		"hosts[0].name":    {{Name: long + "x"}},
		"hosts[2].name":    {{Name: "a"}, {Name: "b"}, {Name: "a"}},
		"hosts[1].address": {{Name: "a"}, {Name: "b", Address: "b:0"}},
	} {
		var wrong *harp.FieldError
		if err := checkHosts(specs); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: error is %v", field, err)
		}
	}
	if _, err := (HostScript{}).Hosts(t.Context()); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("a script without a command gives %v", err)
	}
	if _, err := parseHosts([]byte(`{"name":"` + strings.Repeat("x", 70<<10) + `"}`)); err == nil || !strings.Contains(err.Error(), "hosts script") {
		t.Errorf("a line that is too long gives %v", err)
	}
	if got := firstLine("  \n one \n two"); strings.TrimSpace(got) != "one" {
		t.Errorf("the first line is %q", got)
	}
}

// dials notes which addresses were dialled since it was asked last.
type dials struct {
	mu    sync.Mutex
	addrs map[string]int
}

func (d *dials) dial(_ context.Context, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addrs[addr]++
	return nil, errors.New("no way to " + addr)
}

func (d *dials) since(wait time.Duration) map[string]int {
	d.mu.Lock()
	d.addrs = map[string]int{}
	d.mu.Unlock()
	time.Sleep(wait)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.addrs
}

// listed is a registry that a test changes, and that counts how often it is read.
type listed struct {
	mu    sync.Mutex
	specs []HostSpec
	reads int
}

func (l *listed) Hosts(context.Context) ([]HostSpec, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return l.specs, nil
}

// count returns how often the registry was read.
func (l *listed) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

func (l *listed) set(specs ...HostSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.specs = specs
}

// Each host of the registry is dialled at its address, with pauses of 10 s at most, until it is
// not there any more.
func TestHostsAreDialledAtTheirAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds, l := &dials{addrs: map[string]int{}}, &listed{}
		l.set(HostSpec{Name: "a", Address: "1.1.1.1"}, HostSpec{Name: "b", Address: "2.2.2.2:5"}, HostSpec{Name: "in"})
		d := opened(t, nil, Config{Hosts: l, Dial: ds.dial, TLS: &tls.Config{}, RefreshHosts: 20 * time.Minute}) //nolint:gosec // nobody answers
		expect := func(addrs ...string) {
			t.Helper()
			got := ds.since(time.Hour)
			for _, addr := range addrs {
				if n := got[addr]; n < 500 || n > 1500 { // the mean pause is 5 s
					t.Errorf("%s was dialled %d times in an hour", addr, n)
				}
			}
			if len(got) != len(addrs) {
				t.Errorf("dialled were %v, want %v", got, addrs)
			}
		}
		refresh := func(specs ...HostSpec) {
			t.Helper()
			l.set(specs...)
			if n, err := d.refresh(t.Context()); n != len(specs) || err != nil {
				t.Errorf("refresh gives %d, %v", n, err)
			}
			synctest.Wait()
		}
		expect("1.1.1.1:7442", "2.2.2.2:5")
		if s := d.hosts.get("a").status(); !strings.Contains(s.Error, "no way to 1.1.1.1:7442") || s.Online {
			t.Errorf("it is %+v", s)
		}
		if reads := l.count(); reads != 4 && reads != 3 {
			t.Errorf("it was read %d times in an hour", reads)
		}
		refresh(HostSpec{Name: "a", Address: "1.1.1.1"}, HostSpec{Name: "b", Address: "3.3.3.3:5"}, HostSpec{Name: "in", Address: "4.4.4.4"})
		expect("1.1.1.1:7442", "3.3.3.3:5", "4.4.4.4:7442")
		refresh(HostSpec{Name: "a"}, HostSpec{Name: "in", Address: "4.4.4.4"})
		expect("4.4.4.4:7442")
		refresh()
		expect()
		var names []string
		page, _ := d.hosts.page("", 10)
		for _, h := range page {
			names = append(names, h.name)
		}
		if len(names) != 0 {
			t.Errorf("it knows %v", names)
		}
	})
}

// A host of the registry that cannot be dialled for want of a certificate says so.
func TestHostsCannotBeDialledWithoutTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds := &dials{addrs: map[string]int{}}
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a", Address: "1.1.1.1"}}, Dial: ds.dial})
		if got := ds.since(time.Minute); len(got) != 0 {
			t.Errorf("dialled were %v", got)
		}
		if s := d.hosts.get("a").status(); !strings.Contains(s.Error, "tls") {
			t.Errorf("it is %+v", s)
		}
	})
}

// Where and at which stage a host could not be reached is said once.
func TestAHandshakeThatFailsIsSaidInBrief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangUp := func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				_, _ = far.Read(make([]byte, 1))
				_ = far.Close()
			}()
			return near, nil
		}
		d := opened(t, nil, Config{Hosts: StaticHosts{{Name: "a", Address: "1.1.1.1"}}, Dial: hangUp, TLS: &tls.Config{}}) //nolint:gosec // nobody answers
		time.Sleep(time.Minute)
		if s := d.hosts.get("a").status(); !strings.HasPrefix(s.Error, "a: unreachable at tls (") || strings.Contains(s.Error, "handshake with") {
			t.Errorf("it says %s", s.Error)
		}
	})
}

// putStore is a store that notes which documents are stored.
type putStore struct {
	store.Store
	mu   sync.Mutex
	puts []string
}

func (s *putStore) PutDocument(ctx context.Context, kind, name string, doc []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts = append(s.puts, fmt.Sprintf("%s %d", name, min(len(doc), 1)))
	return s.Store.PutDocument(ctx, kind, name, doc)
}

// A registry is stored when it has changed, beside the one before, whose space is then given
// back.
func TestARegistryIsStoredWhenItHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, l := &putStore{Store: memory.Open(nil)}, &listed{}
		l.set(HostSpec{Name: "a"})
		d := opened(t, st, Config{Hosts: l})
		synctest.Wait()
		for _, c := range []struct {
			specs []HostSpec
			puts  []string
		}{
			{[]HostSpec{{Name: "a"}}, nil},
			{[]HostSpec{{Name: "b"}}, []string{"hosts.0.0 1", "hosts 1", "hosts.1.0 0"}},
			{[]HostSpec{{Name: "b"}}, nil},
			{[]HostSpec{{Name: "c"}}, []string{"hosts.1.0 1", "hosts 1", "hosts.0.0 0"}},
		} {
			l.set(c.specs...)
			st.mu.Lock()
			st.puts = nil
			st.mu.Unlock()
			if _, err := d.refresh(t.Context()); err != nil {
				t.Error(err)
			}
			st.mu.Lock()
			if !slices.Equal(st.puts, c.puts) {
				t.Errorf("for %v it stores %q, want %q", c.specs, st.puts, c.puts)
			}
			st.mu.Unlock()
		}
	})
}

// inactiveStore is a store that cannot say which jobs hold an attempt.
type inactiveStore struct{ store.Store }

func (s inactiveStore) Active(context.Context, string) ([]*store.Job, error) {
	return nil, errors.New("trouble")
}

// A dispatcher that does not open dials nobody.
func TestNobodyIsDialledWhereOpeningFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds := &dials{addrs: map[string]int{}}
		cfg := Config{Hosts: StaticHosts{{Name: "a", Address: "1.1.1.1"}}, Dial: ds.dial, TLS: &tls.Config{}, Logger: slog.New(slog.DiscardHandler)} //nolint:gosec // nobody answers
		if _, err := Open(t.Context(), inactiveStore{memory.Open(nil)}, cfg); err == nil {
			t.Error("it opens")
		}
		synctest.Wait()
		if got := ds.since(time.Hour); len(got) != 0 {
			t.Errorf("dialled were %v", got)
		}
	})
}
