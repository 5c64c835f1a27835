package dispatcher

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// fullStore is a store that has no room for batches of schedules while it is full. It counts how often a batch is read.
type fullStore struct {
	store.Store
	full  bool
	reads atomic.Int64 // of batches
}

func (s *fullStore) Batch(ctx context.Context, id string) (*store.Batch, error) {
	s.reads.Add(1)
	return s.Store.Batch(ctx, id)
}

func (s *fullStore) StepSchedule(ctx context.Context, step store.ScheduleStep, now time.Time) (store.ScheduleStepped, error) {
	if s.full && step.Batch != nil {
		return store.ScheduleStepped{}, harp.ErrNoSpace
	}
	return s.Store.StepSchedule(ctx, step, now)
}

// ada has put the schedules of these tests.
var ada = harp.Principal{Kind: "caller", Name: "ada", Auth: "certificate"}

// withSchedule opens a dispatcher that knows the host web01 and has the schedule s, of ada, whose time never comes.
func withSchedule(t *testing.T, st store.Store, cfg Config, args harp.Args) *Dispatcher {
	t.Helper()
	if _, err := st.OpenSession(t.Context(), store.Session{Host: "web01", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	d := opened(t, st, cfg)
	req, err := harp.NewBatchRequest("web*", "p", args, harp.OfflineWait(harp.NoLimit))
	if err != nil {
		t.Fatal(err)
	}
	req.ID = ""
	if err := d.service(ada).PutSchedule(t.Context(), harp.NewID(), harp.Schedule{Name: "s", Cron: "0 3 1 1 *", Request: req}); err != nil {
		t.Fatal(err)
	}
	return d
}

// A run that somebody asked for and that was not stored counts for nothing of what the schedule's principal may have stored.
func TestARunThatIsNotStoredIsNotCounted(t *testing.T) {
	st := &fullStore{Store: memory.Open(nil)}
	limits := Limits{PerPrincipal: PrincipalLimits{BytesPerHour: 1 << 20}}
	d := withSchedule(t, st, Config{Limits: limits}, harp.Args{"text": strings.Repeat("x", 200<<10)})
	bob := d.service(harp.Principal{Kind: "caller", Name: "bob", Auth: "certificate"})
	st.full = true
	for range 10 {
		if _, err := bob.TriggerSchedule(t.Context(), harp.NewID(), "s", harp.Trigger{}); !errors.Is(err, harp.ErrNoSpace) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	st.full = false
	if _, err := bob.TriggerSchedule(t.Context(), harp.NewID(), "s", harp.Trigger{}); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}

// A schedule forgets no run that is not over, beside which a time would fire: no more are started than it remembers.
func TestNoRunIsForgottenThatIsNotOver(t *testing.T) {
	st := memory.Open(nil)
	d := withSchedule(t, st, Config{}, nil)
	ada := d.service(ada)
	for range maxRuns {
		if _, err := ada.TriggerSchedule(t.Context(), harp.NewID(), "s", harp.Trigger{EvenIfRunning: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ada.TriggerSchedule(t.Context(), harp.NewID(), "s", harp.Trigger{EvenIfRunning: true}); !errors.Is(err, harp.ErrConflict) {
		t.Errorf("one too many: %v", err)
	}
}

// A batch of thousands changes a thousand times a second; its schedule is looked at fifty times.
func TestTheScheduleOfALargeBatchIsLookedAtNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &fullStore{Store: memory.Open(nil)}
		d := withSchedule(t, st, Config{}, nil)
		ada := d.service(ada)
		batch, err := ada.TriggerSchedule(t.Context(), harp.NewID(), "s", harp.Trigger{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := st.reads.Load()
		for range 1000 {
			d.schedules.noteBatch(batch.ID)
			time.Sleep(time.Millisecond)
		}
		if n := st.reads.Load() - before; n < 10 || n > 60 {
			t.Errorf("it was looked at %d times", n)
		}
	})
}
