package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store/memory"
)

// idAt is an id that was made then.
func idAt(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + harp.NewID()[13:]
}

// Requests for operations are taken as calls are, by the time of their ids.
func TestOperationsOfAnotherTimeAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := Open(t.Context(), memory.Open(nil), Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Shutdown(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing is to be kept
		s := d.service(harp.Principal{Kind: "process"})
		const day = 24 * time.Hour
		name, err := harp.QueueName(harp.Args{"a": 1})
		if err != nil {
			t.Fatal(err)
		}
		pause := true
		for ahead, want := range map[time.Duration]error{
			time.Hour: nil, time.Hour + time.Millisecond: harp.ErrInvalid,
			-30*day + time.Millisecond: nil, -30 * day: harp.ErrPruned,
		} {
			id := idAt(time.Now().Add(ahead))
			none := want // nil: it is looked for
			if want == nil {
				none = harp.ErrNotFound
			}
			if _, err := s.CancelQueue(t.Context(), id, []byte{0x81, 0xa1, 'z', 1}); !errors.Is(err, none) {
				t.Errorf("%v: to cancel a queue gives %v, want %v", ahead, err, none)
			}
			if err := s.ChangeQueue(t.Context(), idAt(time.Now().Add(ahead)), name, harp.QueueChange{Paused: &pause}); !errors.Is(err, want) {
				t.Errorf("%v: to change a queue gives %v, want %v", ahead, err, want)
			}
		}
		if err := s.ChangeQueue(t.Context(), harp.NewID(), nil, harp.QueueChange{Paused: &pause}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("no queue gives %v", err)
		}
		less := -1
		if err := s.ChangeQueue(t.Context(), harp.NewID(), name, harp.QueueChange{Concurrency: &less}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("less than none at a time gives %v", err)
		}
		if err := s.ChangeQueue(t.Context(), harp.NewID(), harp.Value{0x01}, harp.QueueChange{Paused: &pause}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("a number gives %v", err)
		}
	})
}
