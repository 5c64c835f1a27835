package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// TestWhy: all that keeps a job from starting is told to callers, near and far, and of a batch that is
// paused also by whom and why.
func TestWhy(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.agent("web01", greeter)
		start := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		q := harp.Queue(harp.Args{"q": 1})
		if err := sys.caller.Queues().Pause(ctx, harp.Args{"q": 1}, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
		waits := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, helloProc.Name, helloArgs{Name: "Ada"}, q))
		late := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, helloProc.Name, helloArgs{Name: "Ada"}, q, harp.StartAfter(start)))
		why := must[[]harp.Obstacle](t)(waits.Why(ctx))
		if len(why) != 1 || why[0].Reason != harp.ReasonPaused || why[0].By.Kind == "" {
			t.Errorf("it waits for %+v", why)
		}
		why = must[[]harp.Obstacle](t)(late.Why(ctx))
		if len(why) != 2 || why[0].Reason != harp.ReasonStartAfter || !why[0].Until.Equal(start) || why[1].Reason != harp.ReasonPaused {
			t.Errorf("the later one waits for %+v", why)
		}
		for s, err := range sys.caller.Jobs(ctx, harp.JobFilter{}) {
			if err != nil || s.Obstacles != nil {
				t.Errorf("listed: %+v, %v", s, err)
			}
		}

		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(ctx, helloProc.Name, helloArgs{Name: "Ada"}, q))
		member := b.Job("web01")
		if err := b.Pause(ctx, "lunch"); err != nil {
			t.Fatal(err)
		}
		why = must[[]harp.Obstacle](t)(member.Why(ctx))
		n := slices.IndexFunc(why, func(o harp.Obstacle) bool { return o.Reason == harp.ReasonBatch })
		if n < 0 || why[n].Batch != b.ID() || why[n].Why != "lunch" || why[n].By.Kind == "" || why[n].Since.IsZero() {
			t.Errorf("the member waits for %+v", why)
		}
		if err := sys.caller.Queues().Unpause(ctx, harp.Args{"q": 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := waits.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if why := must[[]harp.Obstacle](t)(waits.Why(ctx)); why != nil {
			t.Errorf("ended, it waits for %+v", why)
		}
	})
}

// damagedBatches is a store that cannot read batches once they are damaged.
type damagedBatches struct {
	store.Store
	damaged atomic.Bool
}

func (s *damagedBatches) Batch(ctx context.Context, id string) (*store.Batch, error) {
	if s.damaged.Load() {
		return nil, fmt.Errorf("%w: batch %s", store.ErrDamaged, id)
	}
	return s.Store.Batch(ctx, id)
}

// A member that waits for its batch can be looked at though what is stored of that cannot be read.
func TestWhyOfAMemberOfADamagedBatch(t *testing.T) {
	st := &damagedBatches{Store: memory.Open(nil)}
	sys := newSystem(t, embedded, st, dispatcher.Config{})
	sys.webs(1)
	ctx := t.Context()
	b := must[*harp.Batch](t)(hostName.Run(ctx, sys.caller.Target("web01"), struct{}{}, harp.StartAfter(time.Now().Add(time.Hour))))
	st.damaged.Store(true)
	s, err := b.Job("web01").Status(ctx)
	if err != nil || s.State != harp.StateQueued || len(s.Obstacles) != 1 || s.Obstacles[0].Batch != b.ID() {
		t.Errorf("it is %s, and waits for %+v, %v", s.State, s.Obstacles, err)
	}
}
