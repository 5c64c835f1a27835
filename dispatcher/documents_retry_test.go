package dispatcher

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// TestDocumentsWereNotAppliedWhenTheServerOfTheirCalendarWasBack: a set that is refused since a calendar cannot be fetched is applied as soon as it can, though
// nothing of it has changed; meanwhile Health and one event of each reason say so.
func TestDocumentsWereNotAppliedWhenTheServerOfTheirCalendarWasBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &calendarServer{err: errors.New("its server is down")}
		d := opened(t, nil, Config{Calendars: server, Hosts: StaticHosts{{Name: "a"}}})
		var reads atomic.Int64
		ctx := t.Context()
		read := func() ([]harp.Document, func(error) error, error) {
			reads.Add(1)
			another := calendarWindow()
			another.Name = "x"
			return []harp.Document{{Window: new(calendarWindow())}, {Window: &another}, {Group: &harp.Group{Name: "g", Target: "a"}}}, nil, nil
		}
		if _, err := d.ReplaceDocuments(ctx, "fleet", read); !errors.Is(err, harp.ErrInvalid) {
			t.Fatalf("it was applied: %v", err)
		}
		for _, step := range []struct {
			after time.Duration
			reads int64
			next  string
		}{{9 * time.Second, 1, "in 1s"}, {time.Second, 2, "in 20s"}, {20 * time.Second, 3, "in 40s"}, {10 * time.Minute, 7, "in 4m40s"}, {10 * time.Minute, 9, "in 4m40s"}} {
			time.Sleep(step.after)
			synctest.Wait()
			problem := d.Health(ctx).Checks["documents"]
			if reads.Load() != step.reads || problem == nil || !strings.Contains(problem.Error(), "its server is down; tried again "+step.next) {
				t.Errorf("read %d times, want %d; health is %v, want %s", reads.Load(), step.reads, problem, step.next)
			}
		}
		if asked, _ := server.counts(); int64(asked) != reads.Load() {
			t.Errorf("%d calendars were waited for in %d times", asked, reads.Load())
		}
		server.set(nil, errors.New("its server answers 500"))
		time.Sleep(10 * time.Minute)
		server.set(eventCalendar(time.Now(), time.Hour), nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if err := d.Health(ctx).Checks["documents"]; err != nil || !isHeldNow(t, d) {
			t.Errorf("they are not applied: %v", err)
		}
		told := eventsOf(t, d, "documents.*")
		if len(told) != 3 || !strings.Contains(told[0], "fleet: invalid documents[0].calendar.url: its server is down; they are tried again") ||
			!strings.Contains(told[1], "answers 500") || !strings.Contains(told[2], "fleet: 3 made") {
			t.Errorf("told was %q", told)
		}
		was := reads.Load()
		time.Sleep(time.Hour)
		if is := reads.Load(); is != was {
			t.Errorf("read %d times when they are applied", is-was)
		}
	})
}

// Each set that the dispatcher reads itself is tried again apart from the others, and what one says takes nothing from what another does.
func TestDocumentsOfSeveralAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ctx := opened(t, nil, Config{}), t.Context()
		var mu sync.Mutex // guards what follows
		broken := errors.New("not mounted")
		err, order := broken, []string(nil)
		of := func(name string, err *error) readDocuments {
			return func() ([]harp.Document, func(error) error, error) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				return []harp.Document{{Group: &harp.Group{Name: name, Target: "a"}}}, nil, *err
			}
		}
		_, first := d.ReplaceDocuments(ctx, "a", of("a", &err))
		time.Sleep(5 * time.Second)
		_, second := d.ReplaceDocuments(ctx, "b", of("b", &err))
		if !errors.Is(first, broken) || !errors.Is(second, broken) {
			t.Fatal(first, second)
		}
		if _, err := d.ReplaceDocuments(ctx, "c", of("c", new(error))); err != nil {
			t.Fatal(err)
		}
		if err := d.Health(ctx).Checks["documents"]; !errors.Is(err, broken) {
			t.Errorf("one that is applied hides those that are not: %v", err)
		}
		time.Sleep(20 * time.Second)
		mu.Lock()
		err = nil
		mu.Unlock()
		if _, err := d.ReplaceDocuments(ctx, "a", of("a", &err)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"a", "b", "c", "a", "b", "a", "b"}; !slices.Equal(order, want) {
			t.Errorf("read were %q, want %q", order, want)
		}
		if err := d.Health(ctx).Checks["documents"]; err != nil {
			t.Error(err)
		}
	})
}
