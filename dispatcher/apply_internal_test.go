package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// batchSchedule is a schedule that does not fire in a test by itself.
func batchSchedule(t *testing.T, name, procedure string, args harp.Args) harp.Schedule {
	t.Helper()
	req, err := harp.NewBatchRequest("web*", procedure, args)
	if err != nil {
		t.Fatal(err)
	}
	req.ID = ""
	return harp.Schedule{Name: name, Cron: "0 3 1 1 *", Request: req}
}

func applyTo(t *testing.T, s *service, o harp.ApplyOptions, documents ...harp.Document) (harp.Applied, error) {
	t.Helper()
	return s.ApplyDocuments(t.Context(), harp.NewID(), "ops", documents, o)
}

func scheduleDocument(s harp.Schedule) harp.Document { return harp.Document{Schedule: &s} }

// A secret is not shown where it became known as such after it was put, nor where no host says any more that it is one.
func TestApplyHidesSecretsThatOneSideKnows(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	login := func(password string) harp.Document {
		return scheduleDocument(batchSchedule(t, "s", "login", harp.Args{"user": "ada", "password": password}))
	}
	check := func(what string, got harp.Applied, err error) {
		t.Helper()
		if text := fmt.Sprintf("%+v", got); err != nil || got.Count != 1 || strings.Contains(text, "swordfish") || strings.Contains(text, "plugh") {
			t.Errorf("%s: %s, %v", what, text, err)
		}
	}
	if _, err := applyTo(t, s, harp.ApplyOptions{}, login("swordfish")); err != nil {
		t.Fatal(err)
	}
	offers := d.hosts.catalogues.catalogueOf([]harp.ProcedureDoc{{
		Name: "login", Args: json.RawMessage(`{"type":"object","properties":{"user":{"type":"string"},"password":{"type":"string","writeOnly":true}}}`),
	}})
	other := scheduleDocument(batchSchedule(t, "s", "other", harp.Args{"user": "ada"}))
	got, err := applyTo(t, s, harp.ApplyOptions{DryRun: true}, other)
	check("another procedure", got, err)
	got, err = applyTo(t, s, harp.ApplyOptions{}, login("xyzzy"))
	check("it is known", got, err)
	for key := range d.hosts.catalogues.known {
		d.hosts.catalogues.mu.Lock()
		delete(d.hosts.catalogues.known, key)
		d.hosts.catalogues.mu.Unlock()
	}
	got, err = applyTo(t, s, harp.ApplyOptions{}, login("plugh"))
	check("nobody knows it any more", got, err)
	page, err := s.ListSchedules(t.Context(), "s", "")
	if text := page.Items[0].Request.Args.String(); err != nil || strings.Contains(text, "plugh") {
		t.Errorf("the schedule shows %s, %v", text, err)
	}
	runtime.KeepAlive(offers)
}

// Documents wait for a schedule whose step takes long; groups, windows and other schedules do not, and who gives up waiting is gone.
func TestApplyWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stuckStore{Store: memory.Open(nil), goOn: make(chan struct{})}
		d := opened(t, st, Config{})
		s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
		putEverySecond(t, s, "slow")
		slow := "slow"
		st.stuck.Store(&slow)
		time.Sleep(2 * time.Second)
		applied := make(chan error)
		go func() {
			_, err := applyTo(t, s, harp.ApplyOptions{}, scheduleDocument(batchSchedule(t, "slow", "hello", nil)))
			applied <- err
		}()
		synctest.Wait()
		asked, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 3)
		go func() { done <- s.PutGroup(asked, harp.NewID(), "g", "web*") }()
		go func() {
			done <- s.PutWindow(asked, harp.NewID(), harp.Window{Name: "w", Target: "*", Cron: "@daily", For: time.Hour})
		}()
		go func() {
			_, err := s.ApplyDocuments(asked, harp.NewID(), "others", nil, harp.ApplyOptions{Prune: true})
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			done <- err
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(done) != 3 {
			t.Errorf("%d of 3 are over", len(done))
		}
		st.stuck.Store(nil)
		close(st.goOn)
		if err := <-applied; err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// Nobody manages more than a set may have, so that one can always be pruned.
func TestApplyManagesASet(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	set := func(from, n int) (documents []harp.Document) {
		for i := range n {
			labels := map[string]string{}
			for k := range harp.MaxLabels {
				labels[fmt.Sprintf("%d%s", k, strings.Repeat("k", harp.MaxLabelKey-2))] = strings.Repeat("v", 16)
			}
			one := batchSchedule(t, fmt.Sprint("s", from+i), "hello", nil)
			one.Labels = labels
			documents = append(documents, scheduleDocument(one))
		}
		return documents
	}
	const half = harp.MaxDocuments / 2
	for i := range 2 {
		if got, err := applyTo(t, s, harp.ApplyOptions{}, set(i*half, half)...); err != nil || got.Count != half {
			t.Fatalf("half %d: %d, %v", i, got.Count, err)
		}
	}
	for _, dry := range []bool{true, false} {
		if _, err := applyTo(t, s, harp.ApplyOptions{DryRun: dry}, set(2*half, 1)...); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("one more: %v", err)
		}
		if _, err := applyTo(t, s, harp.ApplyOptions{DryRun: dry, Prune: true}, set(half, 1)...); err != nil {
			t.Errorf("fewer: %v", err)
		}
	}
}

// Room for schedules is looked at as it will be, by a dry run too.
func TestApplyTakesRoomOfWhatItDeletes(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	if _, err := applyTo(t, s, harp.ApplyOptions{}, scheduleDocument(batchSchedule(t, "a", "hello", harp.Args{"x": strings.Repeat("x", 1000)}))); err != nil {
		t.Fatal(err)
	}
	d.schedules.mu.Lock()
	d.schedules.size += maxScheduleBytes - d.schedules.size
	d.schedules.mu.Unlock()
	b, c := scheduleDocument(batchSchedule(t, "b", "hello", nil)), scheduleDocument(batchSchedule(t, "c", "hello", harp.Args{"x": strings.Repeat("x", 1000)}))
	for _, dry := range []bool{true, false} {
		if _, err := applyTo(t, s, harp.ApplyOptions{DryRun: dry}, b); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("dry %t, beyond what there may be: %v", dry, err)
		}
		if _, err := applyTo(t, s, harp.ApplyOptions{DryRun: dry, Prune: true}, b, c); !errors.Is(err, harp.ErrRefused) {
			t.Errorf("dry %t, both: %v", dry, err)
		}
	}
	for _, dry := range []bool{true, false} {
		if got, err := applyTo(t, s, harp.ApplyOptions{DryRun: dry, Prune: true}, b); err != nil || got.Count != 2 {
			t.Errorf("dry %t, one in the place of another: %+v, %v", dry, got, err)
		}
	}
}

// Documents in another time zone are the same, and nothing of them is shared with who gave them.
func TestApplyKeepsItsOwn(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	zone := time.FixedZone("", 3600)
	from := time.Now().Add(time.Hour)
	sch := batchSchedule(t, "s", "hello", nil)
	sch.From = from
	for i, want := range []int{2, 0} {
		w := harp.Window{Name: "w", Target: "*", From: from, To: from.Add(time.Hour), Procedures: []string{"hello"}}
		got, err := applyTo(t, s, harp.ApplyOptions{}, scheduleDocument(sch), harp.Document{Window: &w})
		if err != nil || got.Count != want {
			t.Errorf("application %d: %+v, %v", i, got, err)
		}
		w.Procedures[0] = "other"
		sch.From, from = sch.From.In(zone), from.In(zone)
	}
	w := harp.Window{Name: "by hand", Target: "*", From: from, Procedures: []string{"hello"}}
	if err := s.PutWindow(t.Context(), harp.NewID(), w); err != nil {
		t.Fatal(err)
	}
	w.Procedures[0] = "other"
	for _, name := range []string{"w", "by hand"} {
		is, err := d.windows.find(name)
		if err != nil || is.Window.Procedures[0] != "hello" || is.window.Procedures[0] != "hello" {
			t.Errorf("%s is %+v, %v", name, is, err)
		}
	}
}

// wantStored checks that what is in memory is what is stored.
func wantStored(t *testing.T, d *Dispatcher) {
	t.Helper()
	other := &Dispatcher{store: d.store, log: d.log, clock: d.clock, groups: &groups{byName: map[string]group{}}, schedules: newSchedules(), windows: newWindows()}
	for _, load := range []func(context.Context) error{other.loadGroups, other.loadWindows, other.loadSchedules} {
		if err := load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(d.groups.byName, other.groups.byName) || d.groups.size != other.groups.size {
		t.Errorf("the groups are\n%+v, stored are\n%+v", d.groups.byName, other.groups.byName)
	}
	windowsOf := func(ws *windows) (all []string) {
		for _, w := range ws.all() {
			all = append(all, string(wire.Encode(w.windowDocument)))
		}
		return append(all, fmt.Sprint(ws.size))
	}
	if is, stored := windowsOf(d.windows), windowsOf(other.windows); !slices.Equal(is, stored) {
		t.Errorf("the windows are\n%q, stored are\n%q", is, stored)
	}
	schedulesOf := func(ss *schedules) (all []string) {
		page, _ := ss.page("", "", maxSchedules)
		for _, s := range page {
			all = append(all, fmt.Sprintf("%s %d %x", s.name, s.revision, s.document))
		}
		return append(all, fmt.Sprint(ss.size, len(ss.runs)))
	}
	if is, stored := schedulesOf(d.schedules), schedulesOf(other.schedules); !slices.Equal(is, stored) {
		t.Errorf("the schedules are\n%q, stored are\n%q", is, stored)
	}
}

// Sets that are applied beside one another, beside changes by hand and while their schedules fire leave in memory what is stored.
func TestApplyBesideOtherChanges(t *testing.T) {
	d := opened(t, nil, Config{})
	ctx := t.Context()
	var all sync.WaitGroup
	for n := range 6 {
		s := d.service(harp.Principal{Kind: "caller", Name: fmt.Sprint("caller", n)})
		random := rand.New(rand.NewPCG(uint64(n), 1))
		all.Go(func() {
			for range 60 {
				name, id := fmt.Sprint("n", random.IntN(4)), harp.NewID()
				one := batchSchedule(t, name, "hello", harp.Args{"x": random.IntN(100)})
				one.Cron, one.CatchUpMost, one.Request.Target = "* * * * * *", 10, []string{"web*", "@n0"}[random.IntN(2)]
				w := harp.Window{Name: name, Target: []string{"web*", "@n1"}[random.IntN(2)], Cron: "@daily", For: time.Hour}
				var documents []harp.Document
				for k, doc := range []harp.Document{{Schedule: &one}, {Window: &w}, {Group: &harp.Group{Name: "n0", Target: "web*"}}, {Group: &harp.Group{Name: "n1", Target: "@n0"}}} {
					if random.IntN(4) > 0 || k > 2 {
						documents = append(documents, doc)
					}
				}
				switch random.IntN(8) {
				case 0:
					_ = s.PutSchedule(ctx, id, one) // many of these are refused, as they are managed, used or not there
				case 1:
					_ = s.DeleteSchedule(ctx, id, name)
				case 2:
					_ = s.ChangeSchedule(ctx, id, name, harp.ScheduleChange{Kind: harp.PauseOfSchedule})
				case 3:
					_ = s.PutWindow(ctx, id, w)
				case 4:
					_ = s.DeleteGroup(ctx, id, "n0")
				default:
					asked, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(20))*time.Millisecond)
					_, err := s.ApplyDocuments(asked, id, []string{"ops", "others"}[random.IntN(2)], documents, harp.ApplyOptions{Prune: random.IntN(2) > 0, DryRun: random.IntN(4) == 0})
					cancel()
					if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, harp.ErrConflict) && !errors.Is(err, harp.ErrInvalid) {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if err := d.schedules.awaitTurns(ctx, []string{"n0", "n1", "n2", "n3"}); err != nil {
		t.Fatal(err)
	}
	defer d.schedules.endTurns([]string{"n0", "n1", "n2", "n3"})
	if len(d.schedules.turns) != 4 {
		t.Errorf("%d turns are taken", len(d.schedules.turns))
	}
	wantStored(t, d)
}

// failingChanges is a store that refuses changes of documents.
type failingChanges struct {
	store.Store
	err atomic.Pointer[error] // nil: it does not
}

func (s *failingChanges) ChangeDocuments(ctx context.Context, c store.DocumentChanges) (int, error) {
	if err := s.err.Load(); err != nil {
		return 0, *err
	}
	return s.Store.ChangeDocuments(ctx, c)
}

// When documents cannot be stored, nothing of them is there, and they can be applied later under the same id.
func TestApplyThatCannotBeStored(t *testing.T) {
	st := &failingChanges{Store: memory.Open(nil)}
	d := opened(t, st, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	w := harp.Window{Name: "w", Target: "@g", Cron: "@daily", For: time.Hour}
	before := []harp.Document{{Group: &harp.Group{Name: "g", Target: "web*"}}, scheduleDocument(batchSchedule(t, "a", "hello", nil)), {Window: &w}}
	if _, err := applyTo(t, s, harp.ApplyOptions{}, before...); err != nil {
		t.Fatal(err)
	}
	after := []harp.Document{{Group: &harp.Group{Name: "h", Target: "db*"}}, scheduleDocument(batchSchedule(t, "b", "hello", nil))}
	for _, why := range []error{harp.ErrNoSpace, harp.ErrConflict, context.Canceled} {
		st.err.Store(&why)
		id := harp.NewID()
		if _, err := s.ApplyDocuments(t.Context(), id, "ops", after, harp.ApplyOptions{Prune: true}); !errors.Is(err, why) {
			t.Errorf("%v: %v", why, err)
		}
		wantStored(t, d)
		if got, err := applyTo(t, s, harp.ApplyOptions{DryRun: true, Prune: true}, before...); err != nil || got.Count != 0 {
			t.Errorf("after %v: %+v, %v", why, got, err)
		}
		st.err.Store(nil)
		if got, err := s.ApplyDocuments(t.Context(), id, "ops", after, harp.ApplyOptions{Prune: true}); err != nil || got.Count != 5 {
			t.Errorf("again: %+v, %v", got, err)
		}
		wantStored(t, d)
		if _, err := applyTo(t, s, harp.ApplyOptions{Prune: true}, before...); err != nil {
			t.Fatal(err)
		}
	}
}

// A set as large as one may be is applied whole, or refused in words, and what is refused as it is deleted can be deleted in parts.
func TestApplyTheLargestSet(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	labels := map[string]string{}
	for k := range harp.MaxLabels {
		labels[fmt.Sprintf("%02d%s", k, strings.Repeat("k", harp.MaxLabelKey-2))] = strings.Repeat("v", harp.MaxLabelValue)
	}
	var all []harp.Document
	for i := range harp.MaxDocuments {
		one := batchSchedule(t, fmt.Sprint("s", i), "hello", nil)
		one.Labels = labels
		all = append(all, scheduleDocument(one))
	}
	const part = harp.MaxDocuments / 5
	for i := 0; i < len(all); i += part {
		if _, err := applyTo(t, s, harp.ApplyOptions{}, all[i:i+part]...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := applyTo(t, s, harp.ApplyOptions{Prune: true}); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "documents") {
		t.Errorf("all at once: %v", err)
	}
	wantStored(t, d)
	for i := part; i <= len(all); i += part {
		if _, err := applyTo(t, s, harp.ApplyOptions{Prune: true}, all[i:]...); err != nil {
			t.Fatal(err)
		}
	}
	wantStored(t, d)
	big := scheduleDocument(batchSchedule(t, "big", "hello", harp.Args{"x": strings.Repeat("x", 700_000)}))
	if _, err := applyTo(t, s, harp.ApplyOptions{}, big); err != nil {
		t.Error(err)
	}
}

// A group that many schedules use is read once for all of those that have the same target.
func TestApplyReadsATargetOnce(t *testing.T) {
	d := opened(t, nil, Config{})
	s := d.service(harp.Principal{Kind: "caller", Name: "ada"})
	hosts := make([]string, 20_000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("host%d", i)
	}
	if err := s.PutGroup(t.Context(), harp.NewID(), "big", strings.Join(hosts, ",")); err != nil {
		t.Fatal(err)
	}
	take := func(n int) uint64 {
		var all []harp.Document
		for i := range n {
			one := batchSchedule(t, fmt.Sprint("s", i), "hello", nil)
			one.Request.Target = "@big"
			all = append(all, scheduleDocument(one))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := applyTo(t, s, harp.ApplyOptions{DryRun: true}, all...); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if one, many := take(1), take(50); many > 5*one {
		t.Errorf("one takes %d bytes, 50 take %d", one, many)
	}
}
