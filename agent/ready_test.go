package agent_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// TestNoSpaceIsNoRoom checks that a call for which there was no space on the disk
// leaves no room behind: READY would bring it back at once, for ever.
func TestNoSpaceIsNoRoom(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		x := m.peer.call("count", nil).accepted()
		ill.fail(syscall.ENOSPC)
		for range 2 {
			if reason := m.peer.call("once", nil).notNow(); reason != wire.NotNowNoSpace {
				t.Errorf("NOT_NOW(%s)", reason)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := m.peer.hear(ctx, wire.TypeReady, new(wire.Ready)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("READY, %v", err)
			}
			cancel()
		}
		ill.heal()
		close(c.release)
		x.ended()
		synctest.Wait()
		if err := m.peer.hear(t.Context(), wire.TypeReady, new(wire.Ready)); err != nil {
			t.Error("no READY when an attempt was over: ", err)
		}
	})
}
